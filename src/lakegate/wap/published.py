"""Audit the published state of a table, or any other: the audit belongs to no run, and changes none."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.checks import Others, run_audit, validate_checks
from lakegate.errors import InputError
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, is_commit_hash
from lakegate.model.refs import Ref, TableAt, TablePointer
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, AddedRows, Rows, TableChange
from lakegate.points import MAIN, unknown_table
from lakegate.wap.audit import require_readable, schemas_at
from lakegate.wap.context import Context


def audit_state(
    context: Context,
    table: TableIdentifier,
    ref: Ref,
    checks: Sequence[Check],
    *,
    since: Ref | None = None,
    own: Sequence[int] | None = None,
    explain: bool = False,
) -> AuditReport:
    """Run ``checks`` on the rows that ``table`` has at a commit.

    Args:
        checks: The checks; those of scope ``table`` read other tables at the same commit.
        since: An earlier commit; only rows added after it are audited.
        own: Consecutive snapshots appended after ``since``, oldest first; only their rows are audited.
        explain: Whether the report says how each check was answered.

    Returns:
        The report, with an empty ``run_id``.

    Raises:
        CheckError: When a check can't be run on the table.
        InputError: When ``since`` was followed by anything but appends, compactions, new columns and wider types.
        RetryableError: When the audit couldn't run; that says nothing about the data.
    """
    pointer = context.catalog.get_table(table, ref)
    if pointer is None:
        raise unknown_table(context.catalog, str(table), ref)
    before = None if since is None else context.catalog.get_table(table, since)
    change = None if since is None else _appended(context, table, before, pointer, since, ref)
    after = None if change is None else change.parent_snapshot_id
    if own:
        parents = {one.snapshot_id: one.parent_id for one in context.reader.snapshots(pointer)}
        after = parents.get(own[0], after)
    schema = context.reader.metadata(pointer).table_schema
    require_readable(table, ref.name, schema)
    schemas = schemas_at(context, ref)
    return run_audit(
        run_id="",
        rows=AddedRows(
            table=table,
            ref=_named(ref),
            after_snapshot_id=after,
            snapshot_id=own[-1] if own else pointer.snapshot_id,
            hash=ref.hash,
            masked=context.masked,
        ),
        schema=schema,
        added=_live(context, pointer)
        if change is None
        else context.reader.added_files(pointer, own or change.snapshot_ids),
        checks=tuple({str(check): check for check in validate_checks(checks, schema, schemas)}.values()),
        engine=context.engine,
        metadata_location=pointer.metadata_location,
        narrator=context.narrator,
        others=_others(context, table, ref, since if before is not None else None, schema),
        at=ref.hash,
        schemas=schemas,
        explain=explain,
    ).model_copy(update={"branch": ref.name})


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


def _live(context: Context, pointer: TablePointer) -> AddedFiles:
    """Return all files of a table, as its manifests list them; none if its schema ever changed or it has deletes."""
    rows = context.reader.metadata(pointer).rows
    if rows is not None and len(context.reader.schemas(pointer)) == 1:
        files = AddedFiles(files=tuple(context.reader.files(pointer)), complete=True)
        if files.rows == rows:
            return files
    return AddedFiles(files=(), complete=False)


def _others(context: Context, audited: TableIdentifier, ref: Ref, since: Ref | None, columns: Schema) -> Others:
    def find(table: TableIdentifier) -> tuple[Rows, ...]:
        at = since if table == audited else ref
        pointer = None if at is None else context.catalog.get_table(table, at)
        if at is None or pointer is None:
            return ()
        there = context.reader.metadata(pointer).table_schema
        lacks = tuple(name for name in columns.names if there.find(name) is None) if table == audited else ()
        return (TableAt(table=table, ref=_named(ref), hash=at.hash, lacks=lacks),)

    return find


def _named(ref: Ref) -> str:
    """Return the reference name for the engine, which reads a commit by its hash, whatever branch it's on."""
    return MAIN if is_commit_hash(ref.name) else ref.name
