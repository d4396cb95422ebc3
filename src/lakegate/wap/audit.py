"""Audit: run checks on the rows that a run added, or on the state of a table at a commit, whoever made it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from lakegate.checks import Others, Schemas, parse_checks, recheck, row_tests, run_audit, validate_checks
from lakegate.checks.history import BatchHistory, PastBatch
from lakegate.context import Context
from lakegate.errors import AuditTimeoutError, InputError, LakegateError, SchemaError
from lakegate.ledger.event import event_of, family
from lakegate.ledger.fold import moves
from lakegate.ledger.publication import published_to
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, quote
from lakegate.model.quarantine import RowTest, is_quarantine
from lakegate.model.refs import MAIN, Ref, TableAt, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, RunKind, StagedTable
from lakegate.model.schema import Schema, reserved_names
from lakegate.model.sqltext import not_pushed_down
from lakegate.model.tables import AddedFiles, AddedRows, Rows, TableChange
from lakegate.model.types import type_differences, type_words
from lakegate.model.words import counted
from lakegate.points import unknown_table
from lakegate.wap import failpoints
from lakegate.wap.deadline import Deadline, cancel_engine_at
from lakegate.wap.failing_files import with_files
from lakegate.wap.stage import changes_between

ConfiguredChecks = Callable[[TableIdentifier], Sequence[Check]]
"""Returns the checks that the settings have for a table."""
_BRINGS_NO_BATCH = frozenset({"maintenance", "revert", "restore"})
_BY_OTHERS = "another writer may have written some of them, and nothing proves its metrics"


def audit(
    context: Context,
    staged: StagedTable,
    checks: Sequence[Check],
    *,
    beside: Sequence[StagedTable] = (),
    replaces: Sequence[str] = (),
    batch: Batch | None = None,
    at: Ref | None = None,
    explain: bool = False,
) -> AuditReport:
    """Run ``checks`` on the rows of ``staged``.

    Args:
        checks: The checks.
        beside: Other tables of the same run, which are published together with this one.
        replaces: Runs whose rows this one replaces when it is published.
        batch: The files that all of the rows are from, to name those of failing rows.
        at: The target at the commit where checks of scope ``table`` read it; by default, as it was when the run began.
        explain: Whether the report says how each check was answered.

    Returns:
        The report. A failed check is a value in it, not an error.

    Raises:
        CheckError: When a check can't be run on the table.
        InputError: When another writer's metadata gets the number of rows in its files wrong.
        SchemaError: When the table has a column that makes it unreadable.
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    base = Ref(name=staged.target, hash=staged.base)
    at = at or base
    metadata = context.reader.metadata(staged.pointer)
    schema = metadata.table_schema
    require_readable(staged.table, staged.branch, schema)
    if metadata.properties.get("write.format.default", "").lower() == "orc":
        _require_true_times(context, staged, schema)
    report = _run_audit(
        context,
        run_id=staged.run_id,
        rows=added_rows(staged).model_copy(update={"masked": context.masked}),
        schema=schema,
        added=_added(context, staged),
        checks=checks,
        engine=context.engine,
        metadata_location=staged.pointer.metadata_location,
        narrator=context.narrator,
        others=_other_rows(context, staged, beside, at, replaces),
        at=at.hash,
        schemas=schemas_at(context, at, beside),
        explain=explain,
        past=_history_before(context, staged, beside, base),
        listed=staged.rows if staged.keeps_rows else metadata.rows_at_most,
        batch=batch,
    )
    if staged.by_anyone and staged.keeps_rows and report.rows != staged.rows:
        raise _miscounted(staged, report.rows)
    failpoints.reach("after-audit")
    return report


def recheck_table(
    context: Context, run: Run, staged: StagedTable, report: AuditReport, *, moved: Collection[str], at: Ref
) -> AuditReport:
    """Rerun those checks of ``report`` that read one of the ``moved`` tables, on the tables' state ``at`` a commit."""
    checks = [
        check.model_copy(update={"description": result.description, "owner": result.owner, "tags": result.tags})
        for result in report.results
        for check in parse_checks(result.check)
    ]
    return recheck(
        report,
        checks=checks,
        moved=moved,
        rows=added_rows(staged).model_copy(update={"masked": context.masked}),
        schema=context.reader.metadata(staged.pointer).table_schema,
        added=_added(context, staged),
        engine=context.engine,
        narrator=context.narrator,
        others=_other_rows(context, staged, run.staged, at, run.request.replaces if run.request else ()),
        at=at.hash,
        schemas=schemas_at(context, at, run.staged),
    )


def audit_state(
    context: Context,
    table: TableIdentifier,
    ref: Ref,
    checks: Sequence[Check],
    *,
    since: Ref | None = None,
    explain: bool = False,
) -> AuditReport:
    """Run ``checks`` on the rows that ``table`` has at a commit.

    Args:
        checks: The checks; those of scope ``table`` read other tables at the same commit.
        since: An earlier commit; only rows added after it are audited.
        explain: Whether the report says how each check was answered.

    Returns:
        The report, with an empty ``run_id``.

    Raises:
        CheckError: When a check can't be run on the table.
        InputError: When ``since`` was followed by anything but appends, compactions, new columns and wider types, or if
            the table had another name then.
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    pointer = context.catalog.get_table(table, ref)
    if pointer is None:
        raise unknown_table(context.catalog, str(table), ref)
    before = None if since is None else context.catalog.get_table(table, since)
    if since is not None and before is None:
        _require_same_name(context, table, since, ref)
    change = None if since is None else _appended(context, table, before, pointer, since, ref)
    metadata = context.reader.metadata(pointer)
    after = None if change is None else change.parent_snapshot_id
    listed = metadata.rows_at_most if change is None else change.rows_added
    schema = metadata.table_schema
    require_readable(table, ref.name, schema)
    schemas = schemas_at(context, ref)
    return _run_audit(
        context,
        run_id="",
        rows=AddedRows(
            table=table,
            ref=_name_of(ref),
            after_snapshot_id=after,
            snapshot_id=pointer.snapshot_id,
            hash=ref.hash,
            masked=context.masked,
        ),
        schema=schema,
        added=_live_files(context, pointer)
        if change is None
        else measured_files(context, pointer, change.snapshot_ids),
        checks=tuple({str(check): check for check in validate_checks(checks, schema, schemas)}.values()),
        engine=context.engine,
        metadata_location=pointer.metadata_location,
        narrator=context.narrator,
        others=_others_at(context, table, ref, since if before is not None else None, schema),
        at=ref.hash,
        schemas=schemas,
        explain=explain,
        listed=listed,
    ).model_copy(update={"branch": ref.name})


def _run_audit(context: Context, *, rows: AddedRows, batch: Batch | None = None, **audit: Any) -> AuditReport:
    """Run an audit within the time that the settings allow."""
    deadline = Deadline.after(context.audit_timeout_s)
    try:
        with cancel_engine_at(deadline, context, audit["run_id"]):
            report = run_audit(rows=rows, **audit)
            if batch is None or all(one.verdict != "fail" for one in report.results) or context.changed_files(batch):
                return report
            schema, others, schemas = audit["schema"], audit["others"], audit["schemas"]
            valid = validate_checks(
                audit["checks"],
                schema,
                lambda table: schema if table == rows.table else schemas(table),  # it may refer to itself, when new
                masked=rows.masked,
            )
            return with_files(
                report,
                valid,
                rows=rows,
                schema=schema,
                others=others,
                batch=batch,
                engine=audit["engine"](),
                narrator=audit["narrator"],
            )
    except LakegateError as error:
        if not deadline.is_over:
            raise
        # Only the error's type: its message may quote values of masked columns.
        raise AuditTimeoutError(
            f"The audit of {rows.table} on {rows.ref} took longer than audit.timeout_s={context.audit_timeout_s:g}, so "
            f"it was stopped ({type(error).__name__}). Nothing was published.",
            hint="Raise audit.timeout_s, or look for a pattern in the checks that is slow on some texts. "
            f"Then audit again: lakegate audit {rows.table} --branch {rows.ref}",
            table=str(rows.table),
            branch=rows.ref,
        ) from None


def added_rows(staged: StagedTable) -> AddedRows:
    """Return the rows that a run's checks read: those it added, or the whole table if it did more than add rows."""
    return AddedRows(
        table=staged.table,
        ref=staged.branch,
        after_snapshot_id=staged.parent_snapshot_id if staged.keeps_rows else None,
        snapshot_id=staged.pointer.snapshot_id,
        hash=staged.head,
    )


def as_row_tests(
    context: Context,
    staged: StagedTable,
    checks: Sequence[tuple[str, Check]],
    *,
    replaces: Sequence[str] = (),
    masked: Sequence[str] = (),
) -> tuple[RowTest, ...]:
    """Return checks, by their names in the report, as tests that find the failing rows that :func:`audit` counts."""
    at = Ref(name=staged.target, hash=staged.base)
    schema = context.reader.metadata(staged.pointer).table_schema
    others = _other_rows(context, staged, (), at, replaces)
    return row_tests(checks, schema, added_rows(staged), others, masked)


def resolve_checks(
    context: Context,
    staged: StagedTable,
    checks: Sequence[Check],
    beside: Sequence[StagedTable],
    at: Ref | None = None,
) -> tuple[Check, ...]:
    """Return ``checks`` without duplicates, validated against ``staged`` in a run that also writes ``beside``.

    Args:
        at: As in :func:`audit`.
    """
    schema = context.reader.metadata(staged.pointer).table_schema
    schemas = schemas_at(context, at or Ref(name=staged.target, hash=staged.base), beside)
    valid = validate_checks(checks, schema, schemas, masked=context.masked)
    return tuple({str(check): check for check in valid}.values())


def schemas_at(context: Context, at: Ref, beside: Sequence[StagedTable] = ()) -> Schemas:
    """Return a lookup of tables' columns: as a run leaves those that it writes (``beside``), others ``at`` a commit."""
    pointers = {one.table: one.pointer for one in beside}

    def find(table: TableIdentifier) -> Schema | None:
        pointer = pointers.get(table) or context.catalog.get_table(table, at)
        return None if pointer is None else context.reader.metadata(pointer).table_schema

    return find


def _history_before(context: Context, staged: StagedTable, beside: Sequence[StagedTable], at: Ref) -> BatchHistory:
    """Return what checks may compare ``staged`` with: the table's earlier batches, and its schema before the run."""
    table = str(staged.table)

    def batches() -> Iterator[PastBatch]:
        own = context.journal.get(staged.run_id)
        for run, name in context.journal.pages.published_to(table):
            if run.run_id != staged.run_id and (own is None or run.started_at < own.started_at):
                yield _past_batch(run, name)

    def before() -> Schema | None:
        pointer = context.catalog.get_table(staged.table, at)
        if pointer is None:
            return None
        # A column that was dropped and added again, or that got another column's name, is a different column.
        changes = changes_between(context.reader, pointer, staged.pointer)
        others = {one.column for one in changes if one.change in {"added", "renamed"}}
        return Schema(
            columns=tuple(
                one.model_copy(update={"name": f"{one.name}, as it was,"}) if one.name in others else one
                for one in context.reader.metadata(pointer).table_schema.columns
            )
        )

    def own() -> PastBatch:
        run = context.journal.get(staged.run_id)
        is_batch = _is_batch(run.kind if run else "ingest", [staged, *beside], table)
        return PastBatch(staged.run_id, run.started_at if run else datetime.now(UTC), staged.rows, is_batch=is_batch)

    return BatchHistory(batches, before, own)


def _is_batch(kind: RunKind, staged: Sequence[StagedTable], table: str) -> bool:
    """Return whether a run only adds new rows to a table: it deletes none and releases none from quarantine."""
    own = [one for one in staged if str(one.table) == table]
    if kind in _BRINGS_NO_BATCH or not own or not all(one.keeps_rows for one in own):
        return False
    if kind == "ingest":
        return True
    releases = kind == "transaction" and any(is_quarantine(one.table) for one in staged)
    return not releases and any(one.rows for one in own)


def _past_batch(run: Run, table: str) -> PastBatch:
    rows = sum(one.rows for one in run.staged if str(one.table) == table)
    results = [result for report in run.reports if report.table == table for result in report.results]
    measured = {one.measure: one.value for one in results if one.measure is not None and one.value is not None}
    passed = frozenset(one.check for one in results if one.verdict == "pass")
    is_batch = _is_batch(run.kind, run.staged, table)
    return PastBatch(run.run_id, run.started_at, rows, measured, passed, is_batch)


def require_readable(table: TableIdentifier, branch: str, schema: Schema) -> None:
    """Refuse a table that no engine can read.

    Raises:
        SchemaError: When a column has the name of one of Iceberg's metadata columns.
    """
    reserved = reserved_names(schema.names)
    if reserved:
        raise SchemaError(
            f"Table {table} on branch {branch} has a column '{reserved[0]}', which is the name of an Iceberg metadata "
            "column. No engine can read such a table, so it can't be published.",
            hint=f"Rename it: ALTER TABLE {table} RENAME COLUMN {reserved[0]} TO {reserved[0].lstrip('_')}",
            table=str(table),
            branch=branch,
            column=reserved[0],
        )


def _require_true_times(context: Context, staged: StagedTable, schema: Schema) -> None:
    """Refuse rows of a table of ORC files with times that may be others than those that were written.

    ORC moves fractions of the last second before 1970 to the first second after it.
    """
    kinds = {"timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP"}
    times = [(quote(one.name), kinds[one.type]) for one in schema.columns if one.type in kinds]
    moved = " OR ".join(
        f"({name} > {kind} '1970-01-01 00:00:00' AND {name} < {kind} '1970-01-01 00:00:01')" for name, kind in times
    )
    nested = any(one.type not in kinds and not type_words(one.type).isdisjoint(kinds) for one in schema.columns)
    # By ORC's statistics, it would skip the files that have such times.
    if nested or (moved and context.engine().examples(added_rows(staged), not_pushed_down(moved), 1)):
        found = "times inside of other types" if nested else "a time in the first second of 1970"
        raise InputError(
            f"{staged.table} is written as ORC, and has {found}. It may be a second too late: ORC moves fractions of "
            "the second before 1970 there.",
            hint="Write the table as Parquet. With Spark, in a transaction: "
            f"ALTER TABLE {staged.table} SET TBLPROPERTIES ('write.format.default' = 'parquet')",
            table=str(staged.table),
            branch=staged.branch,
        )


def _miscounted(staged: StagedTable, rows: int) -> InputError:
    return InputError(
        f"The metadata of {staged.table} on branch '{staged.branch}' lists {counted(staged.rows, 'added row')}, but "
        f"the audit read {rows:,}. Readers who count by the metadata would disagree with those who read the rows.",
        hint=f"Write the rows again, on another branch, and drop this one: lakegate discard {staged.branch}",
        table=str(staged.table),
        branch=staged.branch,
    )


def _added(context: Context, staged: StagedTable) -> AddedFiles:
    """Return the files whose metrics the audit may use: those that the run itself added, if it did nothing else."""
    if not staged.keeps_rows:
        return AddedFiles(files=(), complete=False)
    if staged.by_anyone:
        return AddedFiles(files=(), complete=False, gap=_BY_OTHERS)
    return measured_files(context, staged.pointer, staged.snapshot_ids)


def measured_files(context: Context, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
    """Return the files that snapshots added; none if lakegate's own engine didn't write all of them.

    Nothing proves what another writer says about the values in its files, so their rows are read.
    """
    snapshots = context.reader.snapshots(pointer)
    ours = {one.snapshot_id for one in snapshots if RUN_ID_PROPERTY in one.summary}
    if not ours.issuperset(snapshot_ids):
        return AddedFiles(files=(), complete=False, gap=_BY_OTHERS)
    return context.reader.added_files(pointer, snapshot_ids)


def _other_rows(
    context: Context, staged: StagedTable, beside: Sequence[StagedTable], at: Ref, replaces: Sequence[str]
) -> Others:
    """Return a lookup of tables' rows as they'd be after the publish, without the audited rows."""
    by_name = {one.table: one for one in beside}

    def find(table: TableIdentifier) -> tuple[Rows, ...]:
        if table == staged.table and not staged.keeps_rows:
            return ()  # the audit covers the whole table
        own = by_name.get(table) if table != staged.table else None
        if own is not None and not own.keeps_rows:
            return (added_rows(own),)
        pointer = context.catalog.get_table(table, at)
        there: tuple[Rows, ...] = ()
        if pointer is not None:
            before = context.reader.metadata(pointer).table_schema
            gone: tuple[str, ...] = ()
            lacks: tuple[str, ...] = ()
            if table == staged.table:
                gone = tuple(sorted(path for run in replaces for path in published_to(context, run, at, table)))
                lacks = _lacking(before, context.reader.metadata(staged.pointer).table_schema)
            opaque = before.uuids
            there = (TableAt(table=table, ref=at.name, hash=at.hash, without=gone, lacks=lacks, opaque=opaque),)
        return there if own is None else (*there, added_rows(own))

    return find


def _require_same_name(context: Context, table: TableIdentifier, since: Ref, ref: Ref) -> None:
    """Refuse a table that didn't exist ``since`` a commit if it had another name: all its rows would count as added."""
    for commit in context.catalog.history(ref.hash, until=since.hash):
        event = event_of(commit)
        old = next((old for old, new in moves(event) if new == family(str(table))), None) if event else None
        if old is not None:
            raise InputError(
                f"{table} was called {old} at {since.hash[:12]}; commit {commit.hash[:12]} renamed it.",
                hint=f"Pass that commit or a later one as --since: {commit.hash[:12]}",
                table=str(table),
                commit=commit.hash,
            )


def _appended(
    context: Context, table: TableIdentifier, before: TablePointer | None, pointer: TablePointer, since: Ref, ref: Ref
) -> TableChange:
    change = context.reader.change(before, pointer, evolves=True, compacted=True)
    if change.keeps_rows or (change.kind in ("metadata", "expire") and not change.written):
        return change
    if since.hash != ref.hash and any(one.hash == ref.hash for one in context.catalog.history(since.hash)):
        raise InputError(
            f"Commit {since.hash[:12]} comes after {ref.hash[:12]}, so no rows of {table} were added between them.",
            hint="Pass an earlier commit or time as --since, or leave out --at.",
            table=str(table),
            commit=since.hash,
        )
    reason = f", because {change.reason}" if change.reason else ""
    raise InputError(
        f"The rows added to {table} since {since.hash[:12]} can't be told apart from the others{reason}.",
        hint="Leave out --since to audit the whole table, or name a later commit: lakegate log",
        table=str(table),
        commit=since.hash,
    )


def _live_files(context: Context, pointer: TablePointer) -> AddedFiles:
    """Return all files of a table, if the audit may use their metrics.

    It may not if the table's schema ever changed, if it has deletes, or if a writer other than lakegate made one of the
    snapshots in its metadata.
    """
    rows = context.reader.metadata(pointer).rows
    if not all(RUN_ID_PROPERTY in one.summary for one in context.reader.snapshots(pointer)):
        return AddedFiles(files=(), complete=False, gap=_BY_OTHERS)
    if len(context.reader.schemas(pointer)) > 1:
        return AddedFiles(files=(), complete=False, gap="the table's columns have changed since some were written")
    files = AddedFiles(files=tuple(context.reader.files(pointer)), complete=True) if rows is not None else None
    if files is not None and files.rows == rows:
        return files
    return AddedFiles(files=(), complete=False, gap="some may be deleted, but still in their files")


def _others_at(context: Context, audited: TableIdentifier, ref: Ref, since: Ref | None, columns: Schema) -> Others:
    def find(table: TableIdentifier) -> tuple[Rows, ...]:
        at = since if table == audited else ref
        pointer = None if at is None else context.catalog.get_table(table, at)
        if at is None or pointer is None:
            return ()
        there = context.reader.metadata(pointer).table_schema
        lacks = _lacking(there, columns) if table == audited else ()
        return (TableAt(table=table, ref=_name_of(ref), hash=at.hash, lacks=lacks, opaque=there.uuids),)

    return find


def _lacking(before: Schema, columns: Schema) -> tuple[str, ...]:
    """Return which of a table's columns an earlier state of it lacks, or lacks a field of."""
    found = ((column, before.find(column.name)) for column in columns.columns)
    return tuple(
        column.name
        for column, was in found
        if was is None or any(one.one is None for one in type_differences(was.type, column.type))
    )


def _name_of(ref: Ref) -> str:
    """Return a branch or tag for the engine. It reads the commit by its hash, so any branch will do."""
    return MAIN if is_commit_hash(ref.name) else ref.name
