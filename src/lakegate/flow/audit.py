"""Audit: the run's checks, answered about the rows that the run added."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.audits import run_audit
from lakegate.flow import faults
from lakegate.flow.rooms import Rooms
from lakegate.model.checks import AuditReport, Check
from lakegate.model.run import StagedBatch
from lakegate.model.tables import AddedRows


def audit(rooms: Rooms, staged: StagedBatch, checks: Sequence[Check]) -> AuditReport:
    """Answer ``checks`` about the rows of ``staged``.

    Returns:
        The report. A check that failed is a value in it.

    Raises:
        CheckError: When a check cannot be asked of the table.
        RetryableError: When the audit could not run; it says nothing about the data then.
    """
    report = run_audit(
        run_id=staged.run_id,
        rows=AddedRows(
            table=staged.table,
            ref=staged.branch,
            after_snapshot_id=staged.parent_snapshot_id,
            snapshot_id=staged.snapshot_ids[-1],
        ),
        schema=rooms.reader.metadata(staged.pointer).table_schema,
        added=rooms.reader.added_files(staged.pointer, staged.snapshot_ids),
        checks=checks,
        engine=rooms.engine,
        metadata_location=staged.pointer.metadata_location,
        narrator=rooms.narrator,
    )
    faults.reach("after-audit")
    return report
