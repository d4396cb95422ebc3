"""Quarantine: set the rows that fail checks of severity ``quarantine`` aside, so that the others can be published.

No source file is read again. Of the data files that the run staged, those that hold failing rows are read once more;
their failing rows are appended to the quarantine table, the others to the table, and the files are left out of what the
run appends, as if they had never been written (docs/decisions/0069). What is left of both tables on the branch are pure
appends, which are audited, published in one commit, rebased and reverted as any others.

Between the steps the branch is in states that nobody publishes: until the run is recorded with what it leaves, only its
first state counts, and the next attempt begins there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    InputError,
    NotFoundError,
    NotReplayableError,
    SchemaError,
)
from lakegate.model.checks import AuditReport, Check, CheckResult, Tolerance, is_tolerated
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import COLUMNS, MOST_IN_ORDER, FileCount, Provenance, is_quarantine, quarantine_of
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, StagedTable
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, WriteTarget
from lakegate.model.types import can_promote, is_lossless
from lakegate.wap import failpoints
from lakegate.wap.audit import added_rows, as_row_tests, audit
from lakegate.wap.context import Context
from lakegate.wap.discard import despite_late_commits
from lakegate.wap.stage import find_changes, hiding_values, new_table

MADE_FOR = "lakegate.quarantine-of"
"""Property of a quarantine table: the name of the table whose rows it holds."""
_PROPERTIES = {
    # Reasons and values are looked up by reading; metrics of long strings would only fill manifests.
    "write.metadata.metrics.default": "truncate(16)",
}
_MOST_ROUNDS = 10
_COMMITTED = "Quarantine: "
"""What the messages of commits begin with that leave out data files on the run's branch."""
_TASK = re.compile(r"(?:.*/)?(\d{5,})-\d+-[0-9a-f-]{36,}-(\d{5,})\.\w+")
"""How Iceberg names data files (``OutputFileFactory``): the number of the partition that was written, the task's, the
write's, and the file's within the task."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What is left to publish of a staged table, and the reports about it.

    Attributes:
        staged: The table, and its quarantine table if rows were set aside.
        reports: Theirs, in the same order.
        over_limit: Why nothing was set aside although rows should be: there are too many.
    """

    staged: tuple[StagedTable, ...]
    reports: tuple[AuditReport, ...]
    over_limit: str | None = None


def audit_and_quarantine(context: Context, request: IngestRequest, staged: StagedTable) -> Audited:
    """Audit a batch; set aside the rows that fail checks of severity ``quarantine``, and audit what is left.

    All other checks judge the rows that are left. Called again with the same arguments, it starts over.

    Raises:
        ConfigurationError: When a table of the quarantine table's name exists and isn't one.
        EngineError: When rows got lost or appeared twice; nothing of the run can be published.
        LakegateError: As :func:`lakegate.wap.audit.audit`.
    """
    if sets_aside(request.checks):
        _undo_half_a_split(context, staged)
    report = audit(context, staged, request.checks, replaces=request.replaces)
    first, aside = report, None
    counts: Counter[str] = Counter()
    for _ in range(_MOST_ROUNDS):
        failing = [
            (result, check)
            for check, result in zip(request.checks, report.results, strict=True)
            if result.severity == "quarantine" and result.blocks
        ]
        if not failing:
            break
        if request.schema_changes:
            return Audited((staged,), (report,), _changes_columns(request))
        split = _Split(context, request, staged, [(result.name, check) for result, check in failing], aside)
        if not split.number:  # such as a time that was in the future when it was audited, and isn't any more
            report = audit(context, staged, request.checks, replaces=request.replaces)
            continue
        if (problem := split.over_limit()) is not None:
            tables = (staged,) if aside is None else (staged, aside)
            return Audited(tables, _reports(context, report, aside), problem)
        staged, aside = split.run()
        counts.update(split.by_check)
        # Rows that referred to one that was set aside may fail now: that takes another round.
        report = audit(context, staged, request.checks, replaces=request.replaces)
    if aside is None:
        return Audited((staged,), (report,))
    _require_sum(request, staged, aside)
    return Audited((staged, aside), _reports(context, with_quarantined(report, first, counts), aside))


def _undo_half_a_split(context: Context, staged: StagedTable) -> None:
    """Put the branch back to where the write left it, if an attempt before this one died while it set rows aside.

    What others committed there stays, for the publish to refuse.
    """
    aside = str(quarantine_of(staged.table))

    def put_back() -> None:
        branch = context.catalog.get_ref(staged.branch)
        since = context.catalog.history(branch.hash, until=staged.head, operations=True)
        if any(aside in commit.tables or commit.message.startswith(_COMMITTED) for commit in since):
            context.catalog.assign_ref(branch, Ref(name=branch.name, hash=staged.head))

    despite_late_commits(put_back)


def _changes_columns(request: IngestRequest) -> str:
    changes = ", ".join(map(str, request.schema_changes))
    return (
        f"Rows that should be quarantined come with a change of columns ({changes}); one run can't do both, and the "
        "batch is rejected as a whole. Change the table first, with a batch that passes or in a transaction."
    )


def require_quarantinable(context: Context, table: TableIdentifier, schema: Schema, base: Ref) -> None:
    """Check that rows of ``table`` can be quarantined."""
    taken = next((name for name in schema.names if name.lower() in COLUMNS), None)
    if taken is not None:
        raise SchemaError(
            f"Rows of {table} can't be quarantined: its column '{taken}' has the name of a column that quarantine "
            "tables add.",
            hint="Rename the column, or use severity='error' or 'warn'.",
            table=str(table),
            column=taken,
        )
    name = quarantine_of(table)
    pointer = context.catalog.get_table(name, base)
    if pointer is None:
        return
    metadata = context.reader.metadata(pointer)
    if metadata.properties.get(MADE_FOR) != str(table):
        raise ConfigurationError(
            f"Rows of {table} can't be quarantined: {name} exists, and isn't its quarantine table.",
            hint=f"Rename or drop {name}; names that end in '__quarantine' are reserved.",
            table=str(name),
        )
    _require_held(table, schema, metadata.table_schema)


def _require_held(table: TableIdentifier, schema: Schema, held: Schema) -> None:
    """Check that the quarantine table holds all values of the table's columns, or can be made to."""
    name = quarantine_of(table)
    for column in schema.columns:
        there = held.find(column.name)
        if there is None or can_promote(there.type, column.type) or takes(column.type, there.type):
            continue
        raise SchemaError(
            f"Rows of {table} can't be quarantined: its column '{column.name}' is {column.type}, but {there.type} in "
            f"{name}, which can't hold all of its values.",
            hint=f"Rename the old column of {name} in a transaction (ALTER TABLE … RENAME COLUMN), or release or drop "
            "the rows there and drop that table. Or use severity='error' or 'warn'.",
            table=str(table),
            column=column.name,
            types=[there.type, column.type],
        )


def takes(narrow: str, wide: str) -> bool:
    """Return whether a column of the one type can be written to one of the other without losing anything.

    Spark reads UUIDs as text and fixed bytes as bytes, and a quarantine table holds what Spark reads.

    Example:
        >>> takes("uuid", "string"), takes("int", "double"), takes("double", "float")
        (True, True, False)
    """
    return is_lossless(_as_read(narrow), _as_read(wide))


def _as_read(kind: str) -> str:
    return "string" if kind == "uuid" else "binary" if kind.startswith("fixed") else kind


def with_quarantined(report: AuditReport, first: AuditReport, counts: Mapping[str, int]) -> AuditReport:
    """Return ``report``, which is about what is left, with the rows that were set aside and examples of them."""

    def with_rows(result: CheckResult, before: CheckResult) -> CheckResult:
        number = counts.get(result.name, 0)
        if not number or result.blocks:
            return result
        detail = f"{number:,} row{'' if number == 1 else 's'} quarantined."
        return result.model_copy(update={"quarantined": number, "examples": before.examples, "detail": detail})

    results = tuple(with_rows(*pair) for pair in zip(report.results, first.results, strict=True))
    return report.model_copy(update={"results": results, "seconds": first.seconds + report.seconds})


def _reports(context: Context, report: AuditReport, aside: StagedTable | None) -> tuple[AuditReport, ...]:
    return (report,) if aside is None else (report, audit(context, aside, ()))


def _require_sum(request: IngestRequest, staged: StagedTable, aside: StagedTable) -> None:
    """Check that each row of the source is in one of the tables, and in one only."""
    # A quarantine table that follows its table's new columns isn't a pure append, but only gains rows.
    if staged.rows + aside.rows == request.batch.rows and staged.only_adds and aside.rows_removed == 0:
        return
    reason = staged.reason or aside.reason
    raise EngineError(
        f"{staged.rows:,} rows of the batch are left in {staged.table} and {aside.rows:,} were quarantined, but its "
        f"files hold {request.batch.rows:,}{f' ({reason})' if reason else ''}. Nothing was published.",
        hint="Run the ingest again.",
        table=str(staged.table),
        branch=staged.branch,
        run_id=staged.run_id,
    )


class _Split:
    """One round of setting rows aside."""

    def __init__(
        self,
        context: Context,
        request: IngestRequest,
        staged: StagedTable,
        checks: Sequence[tuple[str, Check]],
        aside: StagedTable | None,
    ) -> None:
        self._context = context
        self._request = request
        self._staged = staged
        self._aside = aside
        self._name = quarantine_of(staged.table)
        self._rows = added_rows(staged)
        self._tests = as_row_tests(context, staged, checks, replaces=request.replaces, masked=request.masked)
        self._engine = context.engine()
        self._hides = bool(context.masked or request.masked or any(check.examples == 0 for _, check in checks))
        with context.narrator.step(f"Looking for the rows of {staged.table} to quarantine"):
            self._found = self._failing_files()

    @property
    def number(self) -> int:
        """How many rows are to be set aside."""
        return sum(found.failing for found in self._found.values())

    @property
    def by_check(self) -> Mapping[str, int]:
        """How many of them fail each check, by its name in the report."""
        total: Counter[str] = Counter()
        for found in self._found.values():
            total.update({test.check: number for test, number in zip(self._tests, found.by_test, strict=True)})
        return total

    def over_limit(self) -> str | None:
        """Return why too many rows would be set aside."""
        number = self.number + (0 if self._aside is None else self._aside.rows)
        return over_limit(self._request.quarantine_limit, number, self._request.batch.rows)

    def run(self) -> tuple[StagedTable, StagedTable]:
        """Set the failing rows aside; return both tables as they are then."""
        context, staged = self._context, self._staged
        self._reset()
        text = f"Quarantining {self.number:,} of {staged.rows:,} rows in {self._name}"
        with context.narrator.step(text):
            mixed, others = self._mixed(), self._others()
            with hiding_values(self._hides, f"rows of {staged.table} were quarantined"):
                self._set_aside(mixed)
            failpoints.reach("after-quarantine")
            aside = self._changes()[self._name]
            self._commit(self._without(self._found), "leave out the data files that hold quarantined rows")
            failpoints.reach("after-leaving-out")
            if others:
                self._engine.keep_others(mixed, added_rows(aside), self._target(staged.table, None))
            found = self._changes()
        failpoints.reach("after-split")
        return found[staged.table], found[self._name]

    def _failing_files(self) -> Mapping[str, FileCount]:
        with hiding_values(self._hides, f"rows of {self._staged.table} were to be quarantined"):
            found = self._engine.failing_files(self._rows, self._tests)
        total = sum(one.rows for one in found.values())
        if total != self._staged.rows:
            raise EngineError(
                f"The engine found {total:,} rows in {self._staged.table} on branch {self._staged.branch}, where "
                f"{self._staged.rows:,} were added.",
                hint="Run the ingest again.",
                table=str(self._staged.table),
                branch=self._staged.branch,
                run_id=self._staged.run_id,
            )
        return {path: counted for path, counted in found.items() if counted.failing}

    def _others(self) -> int:
        """Return how many rows of the files stay."""
        return sum(found.rows - found.failing for found in self._found.values())

    def _reset(self) -> None:
        """Put the branch back to where the write left it: an attempt before this one may have died halfway."""

        def put_back() -> None:
            branch = self._context.catalog.get_ref(self._staged.branch)
            if branch.hash != self._staged.head:
                self._context.catalog.assign_ref(branch, Ref(name=branch.name, hash=self._staged.head))

        despite_late_commits(put_back)

    def _mixed(self) -> AddedRows:
        """Return the rows of just those files that hold failing ones, at a commit made for reading them."""
        staged = self._staged
        files = {file.path for file in self._context.reader.added_files(staged.pointer, staged.snapshot_ids).files}
        if not files - self._found.keys():
            return self._rows
        pointer, head = self._commit(self._without(files - self._found.keys()), "look at files that hold failing rows")
        return self._rows.model_copy(update={"snapshot_id": pointer.snapshot_id, "hash": head.hash})

    def _without(self, paths: Collection[str]) -> TablePointer:
        staged = self._staged
        try:
            return self._context.editor.append_without(staged.pointer, staged.snapshot_ids, staged.before, paths)
        except NotReplayableError as error:
            raise EngineError(
                f"Rows of {staged.table} can't be quarantined: {error.message}",
                hint=error.hint,
                table=str(staged.table),
                run_id=staged.run_id,
            ) from error

    def _commit(self, pointer: TablePointer, what: str) -> tuple[TablePointer, Ref]:
        branch = self._context.catalog.get_ref(self._staged.branch)
        request = CommitRequest(
            branch=branch.name,
            base=branch.hash,
            message=f"{_COMMITTED}{what}",
            puts=(pointer,),
            at_head=True,
            properties={RUN_ID_PROPERTY: self._staged.run_id},
        )
        return pointer, self._context.catalog.commit(request)

    def _set_aside(self, mixed: AddedRows) -> None:
        branch = self._context.catalog.get_ref(self._staged.branch)
        before = self._context.catalog.get_table(self._name, branch)
        create = None
        if before is None:
            create = new_table(
                self._context,
                self._name,
                self._staged.run_id,
                properties={**_PROPERTIES, MADE_FOR: str(self._staged.table)},
                # Its rows may have types that an older version lacks.
                format_version=self._context.reader.metadata(self._staged.pointer).format_version,
            )
        schema = None if before is None else self._context.reader.metadata(before).table_schema
        target = self._target(self._name, schema).model_copy(update={"create": create})
        self._engine.set_aside(mixed, self._tests, target, self._provenance())

    def _target(self, table: TableIdentifier, schema: Schema | None) -> WriteTarget:
        return WriteTarget(
            table=table,
            ref=self._staged.branch,
            table_schema=schema,
            snapshot_properties={RUN_ID_PROPERTY: self._staged.run_id},
        )

    def _provenance(self) -> Provenance:
        sources = [(file.uri, file.rows) for file in self._request.batch.files]
        files = self._context.reader.added_files(self._staged.pointer, self._staged.snapshot_ids).files
        in_order = (
            self._aside is None
            and len(sources) <= MOST_IN_ORDER
            and self._staged.pointer.sort_order_id == 0
            and not self._context.reader.metadata(self._staged.pointer).partition_by
        )
        offsets = offsets_of({file.path: file.rows for file in files}) if in_order else {}
        return Provenance(
            run_id=self._staged.run_id,
            at=datetime.now(UTC),
            sources=sources,
            offsets={path: offsets[path] for path in self._found if path in offsets},
        )

    def _changes(self) -> dict[TableIdentifier, StagedTable]:
        """Return both tables as they are on the branch."""
        base = Ref(name=self._staged.base, hash=self._staged.base, kind="detached")
        names = (self._staged.table, self._name)
        return {
            one.table: one
            for one in find_changes(
                self._context, base, self._staged.branch, names, target=self._staged.target, run_id=self._staged.run_id
            )
        }


def over_limit(limit: Tolerance | None, number: int, total: int) -> str | None:
    """Return why ``number`` of ``total`` rows are too many to be quarantined; ``None`` if they aren't."""
    if limit is None or is_tolerated(limit, number, total):
        return None
    allowed = limit if isinstance(limit, str) else f"{limit:,} rows"
    return (
        f"{number:,} of {total:,} rows would be quarantined, more than quarantine_limit allows ({allowed}): "
        "the batch is rejected as a whole."
    )


def offsets_of(files: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows were written before those of each data file; nothing if the names don't say.

    Spark's tasks write their partitions in order, and Iceberg puts their numbers into the names.

    Example:
        >>> uuid = "0b0e9f0c-0000-4000-8000-000000000000"
        >>> offsets_of({f"data/00001-9-{uuid}-00001.parquet": 5, f"data/00000-8-{uuid}-00001.parquet": 3})
        {'data/00000-8-0b0e9f0c-0000-4000-8000-000000000000-00001.parquet': 0, \
'data/00001-9-0b0e9f0c-0000-4000-8000-000000000000-00001.parquet': 3}
    """
    named = {path: match for path in files if (match := _TASK.fullmatch(path)) is not None}
    places = {path: (int(match[1]), int(match[2])) for path, match in named.items()}
    if len(set(places.values())) != len(files):
        return {}
    offsets, before = {}, 0
    for path in sorted(places, key=places.__getitem__):
        offsets[path], before = before, before + files[path]
    return offsets


def sets_aside(checks: Sequence[Check]) -> bool:
    """Return whether some check sets rows aside."""
    return any(check.severity == "quarantine" for check in checks)


def require_not_reserved(table: TableIdentifier) -> None:
    """Refuse to write to a quarantine table.

    Raises:
        ConfigurationError: When ``table`` has the name of one.
    """
    if is_quarantine(table):
        raise ConfigurationError(
            f"{table} can't be written to: names that end in '__quarantine' are reserved for rows that checks set "
            "aside.",
            hint="Choose another name. To publish quarantined rows: lakegate quarantine release --help",
            table=str(table),
        )


def held_aside(context: Context, table: TableIdentifier, at: Ref) -> TablePointer | None:
    """Return the quarantine table of ``table`` at a commit; ``None`` if it has none."""
    if is_quarantine(table):
        return None
    try:
        pointer = context.catalog.get_table(quarantine_of(table), at)
    except IdentifierError:  # the name would be too long, so there was never one
        return None
    with suppress(NotFoundError, InputError):  # damaged: nobody but lakegate gives a table such a name
        if pointer is not None and MADE_FOR not in context.reader.metadata(pointer).properties:
            return None
    return pointer
