"""Checks as tests of single rows, which separate failing rows from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakegate.checks.audit import Others
from lakegate.checks.questions import DuplicateRows, FailingRows, Filter, OrphanRows, Question, within
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.quarantine import KeyTest, RowTest
from lakegate.model.schema import Schema, is_masked
from lakegate.model.tables import AddedRows, Rows
from lakegate.model.types import nested_fields


def row_tests(
    checks: Sequence[tuple[str, Check]],
    schema: Schema,
    rows: AddedRows,
    others: Others,
    masked: Sequence[str] = (),
) -> tuple[RowTest, ...]:
    """Return checks as tests that find exactly the rows that an audit counts as failing.

    Args:
        checks: Name in the report and check, validated against ``schema``.
        schema: The table's columns on the branch.
        rows: All audited rows: keys are compared with all of them.
        others: As in :func:`~lakegate.checks.audit.run_audit`.
        masked: Patterns of columns whose values aren't written into a row's reasons.

    Raises:
        CheckError: If a check isn't about single rows.
    """

    def is_shown(column: str) -> bool:
        found = schema.resolve(column)
        return not is_masked(masked, column, nested_fields(found[1]) if found else ())

    return tuple(
        _test(name, check, schema, rows, others, is_shown if check.examples != 0 else lambda _: False)
        for name, check in checks
    )


def _test(
    name: str, check: Check, schema: Schema, rows: AddedRows, others: Others, is_shown: Callable[[str], bool]
) -> RowTest:
    definition = find_check(check.kind)
    question, where = definition.ask(check, schema), definition.filter(check, schema)
    shown = frozenset(column for column in check.columns if is_shown(column))
    if isinstance(question, FailingRows):
        predicate = question.predicate if where is None else within(question.predicate, where)
        is_slow = question.is_slow or (where is not None and where.is_slow)
        return RowTest(name, check.columns, shown, predicate=predicate, is_slow=is_slow)
    return RowTest(
        name,
        check.columns,
        shown,
        keys=_key_test(check, question, where, rows, others),
        is_slow=where is not None and where.is_slow,
    )


def _key_test(check: Check, question: Question, where: Filter | None, rows: AddedRows, others: Others) -> KeyTest:
    looked_at = rows if where is None else rows.model_copy(update={"where": where.sql, "one_by_one": where.is_slow})
    if isinstance(question, OrphanRows):
        # A table that refers to itself: the batch's own rows are among those that are referred to.
        itself = (rows,) if question.table == rows.table else ()
        parents: tuple[Rows, ...] = (*others(question.table), *itself)
        if question.condition is not None:
            parents = tuple(one.model_copy(update={"where": question.condition}) for one in parents)
        return KeyTest(looked_at, question.columns, parents, question.other_columns, orphans=True)
    if not isinstance(question, DuplicateRows):
        raise CheckError(f"{check}: it isn't about single rows, so none can be set aside.", check=check.kind)
    if question.scope == "batch":
        return KeyTest(looked_at, question.columns)
    beside = others(rows.table)
    if where is not None:
        beside = tuple(one.model_copy(update={"where": where.sql}) for one in beside)
    return KeyTest(looked_at, question.columns, beside, question.columns)
