"""Questions: what a check needs to know about single rows, keys, columns or the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from lakegate.checks.columns import QuotedColumn
from lakegate.model.checks import Scope, Verdict
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows, Rows
from lakegate.model.words import did_you_mean

_LONGEST_SHOWN = 200  # characters
_MOST_SHOWN = 30  # columns


def audit_time() -> datetime:
    """Return the time that checks compare with, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to a question.

    Attributes:
        failing_rows: Number of failing rows; 0 means that the check passes.
        detail: One sentence of explanation if the number isn't enough.
        failed: Whether the check fails although no single row does.
        skipped: Whether there was nothing to judge; ``detail`` says why.
        value: The measured value, if it's a number.
    """

    failing_rows: int
    detail: str | None = None
    failed: bool = False
    skipped: bool = False
    value: float | None = None

    @property
    def verdict(self) -> Verdict:
        """``pass`` if no row fails."""
        if self.skipped:
            return "skipped"
        return "fail" if self.failing_rows or self.failed else "pass"


@dataclass(frozen=True, slots=True)
class Band:
    """How far a measured value may be from those of earlier published batches.

    Attributes:
        deviations: Sample standard deviations of the earlier values.
        percent: Percent of their mean.
        last: Maximum number of batches to compare with.
        weekday: Whether only batches from the same day of the week count.
    """

    deviations: float | None
    percent: float | None
    last: int
    weekday: bool


@dataclass(frozen=True, slots=True, eq=False)
class FailingRows:
    """A question about single rows: those for which ``predicate`` is true fail. All share one scan.

    Attributes:
        predicate: Spark SQL as text.
        metrics: Returns the number of failing rows if the added files' metrics *prove* it, else ``None``. Only called
            for complete evidence (:attr:`~lakegate.model.tables.AddedFiles.complete`).
        by_user: Whether a user wrote a part of the predicate in the engine's language (SQL, a pattern). The engine may
            refuse it although lakegate accepted it.
        values_of: SQL expression whose failing values the report counts, if they say more than failing rows.
        nans_of: A column of floats whose NaN pass. The report says how many there are.
    """

    predicate: str
    metrics: Callable[[AddedFiles], int | None] | None = None
    by_user: bool = False
    values_of: str | None = None
    nans_of: QuotedColumn | None = None


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """A question about keys: rows whose ``columns`` (none NULL) equal those of another row fail.

    The other row is in the batch or, with ``scope="table"``, in the table as it would be after publishing.
    """

    columns: tuple[str, ...]
    scope: Scope = "batch"


@dataclass(frozen=True, slots=True)
class OrphanRows:
    """A question about keys: rows whose ``columns`` (none NULL) match no row of another table fail.

    ``table`` is read as it would be after publishing. ``other_columns`` are its columns, in the order of ``columns``.
    """

    columns: tuple[str, ...]
    table: TableIdentifier
    other_columns: tuple[str, ...]
    condition: str | None = None
    """Predicate of the rows of ``table`` that count."""


@dataclass(frozen=True, slots=True)
class RowTotal:
    """A question about the batch's number of rows, which ``judge`` turns into a finding.

    With ``band``, the number is also compared with those of earlier batches.
    """

    judge: Callable[[int], Finding]
    band: Band | None = None


@dataclass(frozen=True, slots=True)
class TotalBeside:
    """A question about the row counts of the audited table and another one, which ``judge`` compares."""

    table: TableIdentifier
    judge: Callable[[int, int], Finding]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """A question about all rows together. Such questions share one aggregation, or a few.

    Attributes:
        expressions: Aggregates in Spark SQL.
        judge: Turns their values and the number of judged rows into a finding.
        metrics: Returns the values if the added files' metrics *prove* them, else ``None``; as in :class:`FailingRows`.
        band: How far the value may be from those of earlier batches.
    """

    expressions: tuple[str, ...]
    judge: Callable[[Sequence[Any], int], Finding]
    metrics: Callable[[AddedFiles], Sequence[Any] | None] | None = None
    band: Band | None = None


@dataclass(frozen=True, slots=True)
class QueryRows:
    """A question answered by a query of its own on the view ``batch``. Each row of its result is a failure.

    Attributes:
        sql: A validated ``SELECT``.
        by_user: As in :class:`FailingRows`.
        is_rows: Whether each row of the result is a row of the batch, with all its columns.
    """

    sql: str
    by_user: bool = False
    is_rows: bool = False


@dataclass(frozen=True, slots=True)
class AboutColumns:
    """A question about the table's columns, answered by the schema."""

    judge: Callable[[Schema], Finding]


@dataclass(frozen=True, slots=True)
class AboutChange:
    """A question about how the run changes the table's columns, answered by the schemas before and after.

    ``judge`` gets ``None`` for a table that the run creates.
    """

    judge: Callable[[Schema | None, Schema], Finding]


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the rows that a check judges: those for which ``sql``, a validated Spark SQL predicate, is true."""

    sql: str


KeyQuestion: TypeAlias = DuplicateRows | OrphanRows
Question: TypeAlias = (
    FailingRows | KeyQuestion | RowTotal | TotalBeside | Aggregates | QueryRows | AboutColumns | AboutChange
)
_PLAIN = (DuplicateRows, OrphanRows, RowTotal, TotalBeside, Aggregates, QueryRows, AboutColumns, AboutChange)
_ABOUT_ROWS = (FailingRows, DuplicateRows, OrphanRows)


class CheckProblem(ValueError):  # noqa: N818 - becomes an error once it's known which check has it
    """Something wrong with a check's arguments or columns; the message continues "not_null(x): …"."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


def wrong_type(column: QuotedColumn, problem: str, hint: str | None = None) -> CheckProblem:
    """Return the error for a column whose type a check doesn't support; ``problem`` continues the sentence."""
    return CheckProblem(f"column '{column.name}' is of type {column.type.text}, {problem}", hint)


def as_question(answer: Any, schema: Schema, *, is_ours: bool) -> Question:
    """Return a check function's result as a complete question.

    Args:
        answer: A question, or SQL text.
        is_ours: Whether the check is built in. Other checks' predicates are validated like ``sql('…')``.

    Raises:
        CheckProblem: If it's none of these, or the text isn't a condition on one row of this table.
    """
    if isinstance(answer, str):
        answer = FailingRows(answer)
    question: Question = answer
    if isinstance(question, _PLAIN):
        return question
    if not isinstance(question, FailingRows):
        raise _no_question(answer)
    return question if is_ours else _validated(question, schema)


def is_about_rows(question: Question) -> bool:
    """Return whether a question finds single rows of the batch, which can be shown, tolerated and set aside."""
    return isinstance(question, _ABOUT_ROWS) or (isinstance(question, QueryRows) and question.is_rows)


def read_filter(where: str, schema: Schema | None = None, *, called: str = "where", table: str = "the table") -> Filter:
    """Return the filter for a ``where``.

    Args:
        schema: The table's schema, to resolve columns. Without it, only the text is validated.
        called: The argument's name, for messages.

    Raises:
        CheckProblem: If it isn't a condition on one row of this table.
    """
    # sqlglot takes 0.4 s to import.
    from lakegate.checks.predicates import PredicateError, read_predicate

    try:
        read = read_predicate(where)
    except PredicateError as error:
        raise CheckProblem(f"its {called}={start_of(where)!r} {error}.") from None
    if schema is None:
        return Filter(f"({read.sql})")
    _require_columns(read.columns, schema, f"its {called}={start_of(where)!r}", table)
    alone = None if read.lone_column is None else schema.find(read.lone_column)
    if alone is not None and alone.type != "boolean":
        raise CheckProblem(
            f"its {called}={start_of(where)!r} is column '{alone.name}' of type {alone.type}, not a truth value."
        )
    return Filter(f"({read.sql})")


def _require_columns(names: Sequence[str], schema: Schema, what: str, table: str) -> None:
    """Refuse a predicate that refers to a column which the table doesn't have."""
    missing = next((name for name in names if schema.find(name) is None), None)
    if missing is not None:
        raise CheckProblem(
            f"{what} refers to column '{missing}', which {table} doesn't have.",
            f"{did_you_mean(missing, schema.names)}Columns: {listed_columns(schema)}.",
        )


def listed_columns(schema: Schema) -> str:
    """Return the names of a table's columns for a hint; of a wide table, the first ones."""
    return ", ".join(schema.names[:_MOST_SHOWN]) + (" …" if len(schema.names) > _MOST_SHOWN else "")


def within(predicate: str, where: Filter) -> str:
    """Return ``predicate`` limited to a filter's rows. It's never evaluated on others."""
    return f"CASE WHEN {where.sql} THEN {predicate} END"


def filtered_rows(rows: AddedRows, where: Filter | None) -> AddedRows:
    """Return the rows that a filter selects."""
    return rows if where is None else rows.model_copy(update={"where": where.sql})


def with_condition(rows: tuple[Rows, ...], condition: str | None) -> tuple[Rows, ...]:
    """Return only the rows that meet a validated SQL condition."""
    return rows if condition is None else tuple(one.model_copy(update={"where": condition}) for one in rows)


def parent_rows(question: OrphanRows, rows: AddedRows, others: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """Return the rows that a foreign key may refer to.

    Args:
        rows: The batch's rows, which also count if the table refers to itself.
        others: The other rows of the table that the key refers to.
    """
    itself = (rows,) if question.table == rows.table else ()
    return with_condition((*others, *itself), question.condition)


def start_of(text: str) -> str:
    """Return the beginning of a user's string, for messages."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _no_question(value: Any) -> CheckProblem:
    # The repr of a DataFrame may run a query.
    shown = repr(value) if type(value).__module__ == "builtins" else f"a {type(value).__name__}"
    return CheckProblem(f"its function returned {shown}, which is neither SQL nor a question.", "Return SQL as text.")


def _validated(answer: FailingRows, schema: Schema) -> FailingRows:
    """Return the question of a user's function, after validating its predicate."""
    from lakegate.checks.predicates import PredicateError, read_predicate

    predicate: Any = answer.predicate
    if not isinstance(predicate, str):
        raise _no_question(predicate)
    try:
        read = read_predicate(predicate)
    except PredicateError as error:
        raise CheckProblem(f"its predicate {predicate!r} {error}.", "Correct the check's function.") from None
    _require_columns(read.columns, schema, f"its predicate {predicate!r}", "the table")
    return replace(answer, predicate=f"({read.sql})", by_user=True)
