"""Audit: the run's checks, answered about the rows that the run added."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakegate.audits import Others, Schemas, parse_checks, rerun, run_audit
from lakegate.flow import faults
from lakegate.flow.published import published_files
from lakegate.flow.rooms import Rooms
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref, TableAt
from lakegate.model.run import Run, StagedTable
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, Rows


def audit(
    rooms: Rooms,
    staged: StagedTable,
    checks: Sequence[Check],
    *,
    beside: Sequence[StagedTable] = (),
    replaces: Sequence[str] = (),
) -> AuditReport:
    """Answer ``checks`` about the rows of ``staged``.

    Args:
        rooms: The lake's rooms.
        staged: What was written.
        checks: What to ask. Those of scope ``table`` look at the target as it was when the run began.
        beside: Other tables of the same run, which are published together with this one.
        replaces: Runs whose rows go when this one is published.

    Returns:
        The report. A check that failed is a value in it.

    Raises:
        CheckError: When a check cannot be asked of the table.
        RetryableError: When the audit could not run; it says nothing about the data then.
    """
    at = Ref(name=staged.target, hash=staged.base)
    report = run_audit(
        run_id=staged.run_id,
        rows=_rows(staged),
        schema=rooms.reader.metadata(staged.pointer).table_schema,
        added=rooms.reader.added_files(staged.pointer, staged.snapshot_ids),
        checks=checks,
        engine=rooms.engine,
        metadata_location=staged.pointer.metadata_location,
        narrator=rooms.narrator,
        others=_others(rooms, staged, beside, at, replaces),
        at=at.hash,
        schemas=schemas_at(rooms, at, beside),
    )
    faults.reach("after-audit")
    return report


def audit_again(
    rooms: Rooms, run: Run, staged: StagedTable, report: AuditReport, *, moved: Collection[str], at: Ref
) -> AuditReport:
    """Answer again the checks of ``report`` that read one of the ``moved`` tables, as these stand ``at`` a commit."""
    checks = [check for result in report.results for check in parse_checks(result.check)]
    return rerun(
        report,
        checks=checks,
        moved=moved,
        rows=_rows(staged),
        schema=rooms.reader.metadata(staged.pointer).table_schema,
        added=rooms.reader.added_files(staged.pointer, staged.snapshot_ids),
        engine=rooms.engine,
        narrator=rooms.narrator,
        others=_others(rooms, staged, run.staged, at, run.request.replaces if run.request else ()),
        at=at.hash,
        schemas=schemas_at(rooms, at, run.staged),
    )


def schemas_at(rooms: Rooms, at: Ref, beside: Sequence[StagedTable] = ()) -> Schemas:
    """Return what tells the columns of a table ``at`` a commit, or as a run that writes ``beside`` leaves it."""
    pointers = {one.table: one.pointer for one in beside}

    def find(table: TableIdentifier) -> Schema | None:
        pointer = pointers.get(table) or rooms.catalog.get_table(table, at)
        return None if pointer is None else rooms.reader.metadata(pointer).table_schema

    return find


def _rows(staged: StagedTable) -> AddedRows:
    """Return what a run's checks look at: the rows it appended, or the whole table when it did anything else to it."""
    last = staged.snapshot_ids[-1] if staged.snapshot_ids else staged.pointer.snapshot_id
    return AddedRows(
        table=staged.table, ref=staged.branch, after_snapshot_id=staged.parent_snapshot_id, snapshot_id=last
    )


def _others(
    rooms: Rooms, staged: StagedTable, beside: Sequence[StagedTable], at: Ref, replaces: Sequence[str]
) -> Others:
    """Return where tables are read as they would be after publishing, without the rows that are audited."""
    by_name = {one.table: one for one in beside}

    def find(table: TableIdentifier) -> tuple[Rows, ...]:
        if table == staged.table and staged.change == "rewrite":
            return ()  # what is audited is the whole table
        own = by_name.get(table) if table != staged.table else None
        if own is not None and own.change == "rewrite":
            return (_rows(own),)
        on_target = rooms.catalog.get_table(table, at) is not None
        gone = _replaced_files(rooms, table, replaces, at) if on_target and table == staged.table else ()
        there: tuple[Rows, ...] = (TableAt(table=table, ref=at.name, hash=at.hash, without=gone),) if on_target else ()
        return there if own is None else (*there, _rows(own))

    return find


def _replaced_files(rooms: Rooms, table: TableIdentifier, replaces: Sequence[str], at: Ref) -> tuple[str, ...]:
    found = (published_files(rooms, run_id, at).get(table, frozenset()) for run_id in replaces)
    return tuple(sorted(path for paths in found for path in paths))
