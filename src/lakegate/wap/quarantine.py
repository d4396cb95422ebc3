"""Quarantine: set aside rows that fail checks of severity ``quarantine``, and publish the rest.

The write is thrown away: a commit on the branch puts the table back. The batch's files are read once more, because only
they tell which file and row is which: the failing rows are appended to the quarantine table and the others to the
table, as if the failing ones had never been in the batch. If the files are gone or have changed, or a program gave the
rows, the staged rows are divided instead, which the commit before still has. Both tables then only have appends, which
are audited, published in one commit, rebased and reverted like any others. If the audit of the other rows fails, the
run is rejected.

From the moment that the write is thrown away until the result is recorded, nothing of the run is staged: if its process
dies, the run starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lakegate.context import Context
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    InputError,
    NotFoundError,
    SchemaError,
)
from lakegate.model.checks import AuditReport, Check, CheckResult, Tolerance, is_tolerated
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import COLUMNS, BatchRows, is_quarantine, quarantine_of
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, StagedTable
from lakegate.model.schema import Schema
from lakegate.model.sqltext import SqlTextError, sql_tokens
from lakegate.model.tables import CreateTable, WriteTarget
from lakegate.model.types import can_promote, is_lossless
from lakegate.model.words import counted
from lakegate.wap import failpoints
from lakegate.wap.audit import added_rows, as_row_tests, audit
from lakegate.wap.failing_files import is_from_memory
from lakegate.wap.stage import find_changes, new_table, require_unchanged

QUARANTINE_OF_PROPERTY = "lakegate.quarantine-of"
"""Property of a quarantine table: the name of the table whose rows it holds."""
_PROPERTIES = {
    # Nobody filters by reasons and values: metrics of long strings would only fill the manifests.
    "write.metadata.metrics.default": "truncate(16)",
}


@dataclass(frozen=True, slots=True)
class Audited:
    """An audited batch: the tables to publish, and their reports.

    Attributes:
        staged: The table, and its quarantine table if rows were quarantined.
        reports: Their reports, in the same order.
        over_limit: Why failing rows weren't quarantined: there were too many of them. Otherwise ``None``.
    """

    staged: tuple[StagedTable, ...]
    reports: tuple[AuditReport, ...]
    over_limit: str | None = None


def audit_and_quarantine(
    context: Context, request: IngestRequest, staged: StagedTable, *, unstage: Callable[[], None]
) -> Audited:
    """Audit a batch, set aside the rows that fail checks of severity ``quarantine``, and audit the other rows.

    Args:
        unstage: Records that nothing is staged any more, once the write is thrown away.

    Raises:
        ConfigurationError: When another table has the name of the quarantine table.
        ConflictError: When somebody else has written to the branch.
        EngineError: When rows were lost or duplicated; the run can't be published.
        LakegateError: As for :func:`lakegate.wap.audit.audit`.
    """

    def audited(table: StagedTable) -> AuditReport:
        batch = request.batch if request.mode.writes_each_row else None
        return audit(context, table, request.checks, replaces=request.replaces, batch=batch)

    report = audited(staged)
    failing = quarantining(request.checks, report)
    if not failing:
        return Audited((staged,), (report,))
    split = _Split(context, request, staged, failing)
    if not split.failing:  # for instance, a time that was in the future during the audit has passed
        return Audited((staged,), (audited(staged),))
    if (problem := over_limit(request.quarantine_limit, split.failing, request.batch.rows)) is not None:
        return Audited((staged,), (report,), problem)
    passing, quarantine = split.run(unstage)
    _require_sum(request, passing, quarantine)
    reports = with_quarantined(audited(passing), report, split.by_check), audit(context, quarantine, ())
    return Audited((passing, quarantine), reports)


def quarantining(checks: Sequence[Check], report: AuditReport) -> list[tuple[str, Check]]:
    """Return the checks whose failing rows are to be quarantined, each with its name in the ``report``."""
    answered = zip(checks, report.results, strict=True)
    return [(result.name, check) for check, result in answered if result.severity == "quarantine" and result.blocks]


def require_quarantinable(context: Context, table: TableIdentifier, schema: Schema, base: Ref) -> None:
    """Check that rows of ``table`` can be quarantined."""
    taken = next((name for name in schema.names if name.lower() in COLUMNS), None)
    if taken is not None:
        raise SchemaError(
            f"Rows of {table} can't be quarantined: its column '{taken}' has the name of a column that quarantine "
            "tables use.",
            hint="Rename the column, or use severity='error' or 'warn'.",
            table=str(table),
            column=taken,
        )
    name = quarantine_of(table)
    pointer = context.catalog.get_table(name, base)
    if pointer is None:
        return
    metadata = context.reader.metadata(pointer)
    if metadata.properties.get(QUARANTINE_OF_PROPERTY) != str(table):
        raise ConfigurationError(
            f"Rows of {table} can't be quarantined: {name} exists, but isn't its quarantine table.",
            hint=f"Rename or drop {name}; names that end in '__quarantine' are reserved.",
            table=str(name),
        )
    _require_held(table, schema, metadata.table_schema)


def _require_held(table: TableIdentifier, schema: Schema, held: Schema) -> None:
    """Check that the quarantine table can hold all values of the table's columns."""
    name = quarantine_of(table)
    for column in schema.columns:
        there = held.find(column.name)
        if there is None or can_promote(there.type, column.type) or takes(column.type, there.type):
            continue
        raise SchemaError(
            f"Rows of {table} can't be quarantined: its column '{column.name}' is {column.type}, but {there.type} in "
            f"{name}, which can't hold all of its values.",
            hint=f"Rename the old column there: lakegate table evolve {name} 'RENAME COLUMN {column.name} TO "
            f"old_{column.name}'. Or use severity='error' or 'warn'.",
            table=str(table),
            column=column.name,
            types=[there.type, column.type],
        )


def takes(narrow: str, wide: str) -> bool:
    """Return whether a column of type ``wide`` can hold all values of ``narrow``.

    A quarantine table has the types that Spark reads: ``string`` for UUIDs, and ``binary`` for ``fixed``.

    Example:
        >>> takes("uuid", "string"), takes("int", "double"), takes("double", "float")
        (True, True, False)
    """
    return is_lossless(_as_read(narrow), _as_read(wide))


def _as_read(kind: str) -> str:
    return "string" if kind == "uuid" else "binary" if kind.startswith("fixed") else kind


def with_quarantined(report: AuditReport, first: AuditReport, counts: Mapping[str, int]) -> AuditReport:
    """Add the numbers of quarantined rows, and examples of them, to ``report``, which is about the remaining rows."""

    def with_rows(result: CheckResult, before: CheckResult) -> CheckResult:
        number = counts.get(result.name, 0)
        if not number or result.blocks:
            return result
        kept = {name: getattr(before, name) for name in ("examples", "files", "more_files")}
        detail = f"{counted(number, 'row')} quarantined."
        return result.model_copy(update={**kept, "quarantined": number, "detail": detail})

    results = tuple(with_rows(*pair) for pair in zip(report.results, first.results, strict=True))
    return report.model_copy(update={"results": results, "seconds": first.seconds + report.seconds})


def _require_sum(request: IngestRequest, staged: StagedTable, quarantine: StagedTable) -> None:
    """Check that each source row is in exactly one of the two tables."""
    # A quarantine table that gets its table's new columns isn't a pure append, but it only gains rows.
    only_adds = staged.only_adds or (staged.keeps_rows and request.schema_changes)
    if staged.rows + quarantine.rows == request.batch.rows and only_adds and quarantine.rows_removed == 0:
        return
    reason = staged.reason or quarantine.reason
    raise EngineError(
        f"{staged.rows:,} rows of the batch are in {staged.table} and {quarantine.rows:,} were quarantined, but its "
        f"files contain {request.batch.rows:,}{f' ({reason})' if reason else ''}. Nothing was published.",
        hint="Run the ingest again.",
        table=str(staged.table),
        branch=staged.branch,
        run_id=staged.run_id,
    )


class _Split:
    """The two filters that divide a batch between its table and the quarantine table."""

    def __init__(
        self, context: Context, request: IngestRequest, staged: StagedTable, checks: Sequence[tuple[str, Check]]
    ) -> None:
        self._context = context
        self._request = request
        self._staged = staged
        self._name = quarantine_of(staged.table)
        self._rows = _batch_rows(context, request, staged)
        self._tests = as_row_tests(context, staged, checks, replaces=request.replaces, masked=request.masked)
        self._engine = context.engine()
        with context.narrator.step(f"Looking for the rows of {staged.table} to quarantine"):
            counts = self._engine.count_failing_rows(self._rows, self._tests)
        self.failing = counts.failing
        self.by_check = {test.check: number for test, number in zip(self._tests, counts.by_test, strict=True)}
        if counts.rows != staged.rows:
            raise EngineError(
                f"The engine found {counts.rows:,} rows of the batch for {staged.table}, but {staged.rows:,} were "
                f"written to branch {staged.branch}. Nothing was published.",
                hint="Run the ingest again.",
                table=str(staged.table),
                branch=staged.branch,
                run_id=staged.run_id,
            )

    def run(self, unstage: Callable[[], None]) -> tuple[StagedTable, StagedTable]:
        """Set the failing rows aside and write the others again; return the states of both tables."""
        staged, names = self._staged, (self._staged.table, self._name)
        text = f"Quarantining {self.failing:,} of {staged.rows:,} rows in {self._name}"
        with self._context.narrator.step(text):
            self._undo_write()
            failpoints.reach("after-leaving-out")
            unstage()
            self._engine.quarantine_rows(self._rows, self._tests, self._quarantine_target())
            quarantined = find_changes(self._context, staged, names[1:], evolves=True)[self._name]
            failpoints.reach("after-quarantine")
            self._engine.append_passing(self._rows, added_rows(quarantined), self._passing_target())
            if self._rows.batch is not None:
                require_unchanged(self._context, self._request)
            changes = find_changes(self._context, staged, names, evolves=True)
        failpoints.reach("after-split")
        passing = changes[staged.table].model_copy(update={"schema_changes": staged.schema_changes})
        return passing, changes[self._name]

    def _undo_write(self) -> None:
        """Put the table back to its state before the write. Its rows stay readable at the branch's earlier commit.

        Raises:
            ConflictError: When somebody else has written to the branch since. The publish would refuse that, too.
        """
        staged, before = self._staged, self._staged.before
        puts = () if before is None else (before.model_copy(update={"content_id": staged.pointer.content_id}),)
        undo = CommitRequest(
            branch=staged.branch,
            base=staged.head,
            message=f"Quarantine: write {staged.table} again without the quarantined rows",
            puts=puts,
            deletes=(staged.table,) if before is None else (),
            at_head=True,
            properties={RUN_ID_PROPERTY: staged.run_id},
        )
        self._context.catalog.commit(undo)

    def _passing_target(self) -> WriteTarget:
        staged, request = self._staged, self._request
        if staged.before is None:
            create = new_table(self._context, staged.table, staged.run_id, partition_by=request.partition_by)
            return self._target(staged.table, create)
        schema = self._context.reader.metadata(staged.before).table_schema
        changes = schema.pending(request.schema_changes)
        return self._target(staged.table, None).model_copy(update={"schema_changes": changes})

    def _quarantine_target(self) -> WriteTarget:
        branch = self._context.catalog.get_ref(self._staged.branch)
        there = self._context.catalog.get_table(self._name, branch)
        if there is not None:
            schema = self._context.reader.metadata(there).table_schema
            return self._target(self._name, None).model_copy(update={"table_schema": schema})
        create = new_table(
            self._context,
            self._name,
            self._staged.run_id,
            properties={**_PROPERTIES, QUARANTINE_OF_PROPERTY: str(self._staged.table)},
            # The table's rows may have types that an older format version lacks.
            format_version=self._context.reader.metadata(self._staged.pointer).format_version,
        )
        return self._target(self._name, create)

    def _target(self, table: TableIdentifier, create: CreateTable | None) -> WriteTarget:
        return WriteTarget(
            table=table,
            ref=self._staged.branch,
            table_schema=None,
            create=create,
            snapshot_properties={RUN_ID_PROPERTY: self._staged.run_id},
        )


def _batch_rows(context: Context, request: IngestRequest, staged: StagedTable) -> BatchRows:
    batch, has_files = request.batch, not is_from_memory(request.batch)
    return BatchRows(
        run_id=staged.run_id,
        at=datetime.now(UTC),
        staged=added_rows(staged),
        schema=context.reader.metadata(staged.pointer).table_schema,
        # Copies of files may be on another machine, where the run was staged.
        batch=batch if has_files and not context.changed_files(batch) else None,
        source=batch.uris[0] if has_files and len(batch.files) == 1 else None,
    )


def over_limit(limit: Tolerance | None, number: int, total: int) -> str | None:
    """Return why ``number`` of ``total`` rows are too many to quarantine, or ``None``."""
    if limit is None or is_tolerated(limit, number, total):
        return None
    allowed = limit if isinstance(limit, str) else f"{limit:,} rows"
    return (
        f"{number:,} of {total:,} rows would be quarantined, more than quarantine_limit allows ({allowed}): "
        "the whole batch is rejected."
    )


def quarantines_rows(checks: Sequence[Check]) -> bool:
    """Return whether one of the checks quarantines rows."""
    return any(check.severity == "quarantine" for check in checks)


def require_not_reserved(table: TableIdentifier) -> None:
    """Refuse to write to a quarantine table.

    Raises:
        ConfigurationError: When ``table`` is named like one.
    """
    if is_quarantine(table):
        raise ConfigurationError(
            f"Can't write to {table}: names that end in '__quarantine' are reserved for quarantined rows.",
            hint="To publish, correct or drop quarantined rows: lakegate quarantine --help. For others, choose another "
            "name.",
            table=str(table),
        )


def renames_column(statement: str) -> bool:
    """Return whether a statement only renames a column, and not one that quarantine tables use.

    That's the one change of a quarantine table that users may make: after their table has got another column of the
    same name, which the old one can't hold.

    Example:
        >>> renames_column("ALTER TABLE nyc.trips__quarantine RENAME COLUMN fare TO old_fare")
        True
        >>> renames_column("ALTER TABLE nyc.trips__quarantine RENAME COLUMN _reasons TO why")
        False
    """
    try:
        tokens = sql_tokens(statement)
    except SqlTextError:
        return False
    words = [token.upper for token in tokens]
    after = next((at for at in range(3, len(words), 2) if words[at] != "."), len(words))  # the table's name
    is_rename = words[:2] == ["ALTER", "TABLE"] and words[after : after + 2] == ["RENAME", "COLUMN"]
    return is_rename and all(token.name.lower() not in COLUMNS for token in tokens[after + 2 : after + 3])


def quarantine_table(context: Context, table: TableIdentifier, at: Ref) -> TablePointer | None:
    """Return the quarantine table of ``table`` at a commit; ``None`` if it has none."""
    if is_quarantine(table):
        return None
    try:
        pointer = context.catalog.get_table(quarantine_of(table), at)
    except IdentifierError:  # the name would be too long, so it never had one
        return None
    with suppress(NotFoundError, InputError):  # if it's damaged, assume it's ours: only lakegate uses such names
        if pointer is not None and QUARANTINE_OF_PROPERTY not in context.reader.metadata(pointer).properties:
            return None
    return pointer
