"""Review: audit and publish a branch that stands already, in a later command than the one that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from lakegate.audits import validate_checks
from lakegate.errors import InputError
from lakegate.flow.audit import audit
from lakegate.flow.ingest import finish
from lakegate.flow.inspect import find_staged
from lakegate.flow.publish import publish
from lakegate.flow.rooms import Rooms
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run, StagedBatch

Configured = Callable[[TableIdentifier], Sequence[Check]]
"""The checks that the settings hold for a table."""


def audit_branch(
    rooms: Rooms, table: TableIdentifier, branch: str, *, checks: Sequence[Check] | None, configured: Configured
) -> AuditReport:
    """Audit what ``branch`` added to ``table``, and write the report to the journal.

    Args:
        rooms: The lake's rooms.
        table: A table the branch changed.
        branch: The branch.
        checks: What to ask; ``None`` for what the branch's run asked, else what is configured.
        configured: The settings' checks.

    Raises:
        NotFoundError: When there is no such branch.
        InputError: When the branch did not change the table.
    """
    found = find_staged(rooms, branch)
    staged = next((one for one in found if one.table == table), None)
    if staged is None:
        changed = ", ".join(str(one.table) for one in found)
        raise InputError(f"Branch '{branch}' did not change {table}, but {changed}.", table=str(table), branch=branch)
    run = _run_of(rooms, branch, staged)
    return _audit(rooms, run, staged, checks if checks is not None else _checks_of(run, table, configured))[1]


def publish_branch(rooms: Rooms, branch: str, *, configured: Configured) -> Run:
    """Publish ``branch``; tables whose very state has not passed an audit yet are audited first.

    Raises:
        AuditFailedError: When an audit fails, or failed before on this state.
        ConflictError: When the target changed on one of the tables.
    """
    found = find_staged(rooms, branch)
    run = _run_of(rooms, branch, found[0])
    reports = []
    for staged in found:
        report = run.report
        if report is None or report.metadata_location != staged.pointer.metadata_location:
            run, report = _audit(rooms, run, staged, _checks_of(run, staged.table, configured))
        reports.append(report)
    publication = publish(rooms, found, reports)
    return finish(rooms, run, status="published", publication=publication, branch_kept=False)


def _run_of(rooms: Rooms, branch: str, staged: StagedBatch) -> Run:
    known = rooms.journal.find_by_branch(branch)
    if known is not None and known.run_id == staged.run_id:
        return known
    return Run(
        run_id=staged.run_id, table=str(staged.table), branch=branch, status="staged", started_at=datetime.now(UTC)
    )


def _checks_of(run: Run, table: TableIdentifier, configured: Configured) -> Sequence[Check]:
    return run.request.checks if run.request is not None and run.request.table == table else configured(table)


def _audit(rooms: Rooms, run: Run, staged: StagedBatch, checks: Sequence[Check]) -> tuple[Run, AuditReport]:
    resolved = validate_checks(checks, rooms.reader.metadata(staged.pointer).table_schema)
    report = audit(rooms, staged, resolved)
    status = "staged" if report.passed else "rejected"
    return finish(rooms, run, status=status, staged=staged, report=report, branch_kept=True), report
