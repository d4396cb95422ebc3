"""Review: audit and publish a branch that stands already, in a later command than the one that wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from lakegate.audits import validate_checks
from lakegate.errors import AuditFailedError, InputError
from lakegate.flow.audit import audit, schemas_at
from lakegate.flow.history import sync
from lakegate.flow.inspect import find_staged
from lakegate.flow.publish import RejectedLateError, publish
from lakegate.flow.recover import recover
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import running
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.run import Run, StagedTable

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
    run = _run_of(rooms, branch, found)
    report = _audit(rooms, run, staged, configured, checks=checks)
    known = {known.table: known for known in run.reports} | {report.table: report}
    reports = [known[str(one.table)] for one in found if str(one.table) in known]
    rooms.journal.save(_audited(run, reports, finished_at=datetime.now(UTC)))
    return report


def publish_branch(rooms: Rooms, branch: str, *, configured: Configured) -> Run:
    """Publish ``branch``; tables whose very state has not passed an audit yet are audited first.

    Raises:
        InputError: When the run that wrote it failed before all was written, or was published and reverted since.
        AuditFailedError: When an audit fails, or failed before on this state.
        ConflictError: When the target changed on one of the tables in a way that the branch cannot be put on top of.
    """
    recover(rooms)
    sync(rooms, "main")
    _require_publishable(rooms, branch)
    run = _run_of(rooms, branch, find_staged(rooms, branch))
    with running(rooms, run.model_copy(update={"status": "staged", "error": None})) as progress:
        with progress.step("audit"):
            reports = [
                _known_report(run, one) or _audit(rooms, run, one, configured, checks=None) for one in run.staged
            ]
        audited = _audited(progress.run, reports)
        progress.update(reports=audited.reports, status=audited.status)
        try:
            with progress.step("publish"):
                publication = publish(
                    rooms, progress.run, require_lease=progress.require_lease, note_reports=progress.note_reports
                )
        except AuditFailedError as error:
            latest = error.reports if isinstance(error, RejectedLateError) else progress.run.reports
            progress.end(status="rejected", reports=latest, branch_kept=True)
            raise
        progress.end(status="published", publication=publication, branch_kept=publication.branch_left)
    return progress.run


def _require_publishable(rooms: Rooms, branch: str) -> None:
    run = rooms.journal.find_by_branch(branch)
    if run is not None and run.status == "reverted":
        raise InputError(
            f"Run {run.run_id} was published from branch {branch} and reverted by run {run.reverted_by}.",
            hint=f"Ingest its files again, and drop the branch: lakegate discard {branch}",
            branch=branch,
            run_id=run.run_id,
        )
    if run is not None and run.status == "failed" and not run.staged:
        raise InputError(
            f"Run {run.run_id} failed before all was written to branch {branch}; half of it cannot be published.",
            hint=f"lakegate discard {branch}",
            branch=branch,
            run_id=run.run_id,
        )


def _run_of(rooms: Rooms, branch: str, found: Sequence[StagedTable]) -> Run:
    known = rooms.journal.find_by_branch(branch)
    if known is None or known.run_id != found[0].run_id:
        known = Run(
            run_id=found[0].run_id,
            kind="branch",
            tables=(),
            branch=branch,
            status="staged",
            started_at=datetime.now(UTC),
            target=found[0].target,
        )
    tables = tuple(str(one.table) for one in found)
    staged = {"tables": tables, "staged": tuple(found), "base": known.base or found[0].base, "branch_kept": True}
    return known.model_copy(update=staged)


def _audited(run: Run, reports: Sequence[AuditReport], **changes: object) -> Run:
    status = "staged" if all(report.passed for report in reports) else "rejected"
    if run.publication is not None:
        status = run.status  # looking at what is left of its branch does not change what became of it
    return run.model_copy(update={"reports": tuple(reports), "status": status, **changes})


def _known_report(run: Run, staged: StagedTable) -> AuditReport | None:
    states = (report for report in run.reports if report.metadata_location == staged.pointer.metadata_location)
    return next(states, None)


def _audit(
    rooms: Rooms, run: Run, staged: StagedTable, configured: Configured, *, checks: Sequence[Check] | None
) -> AuditReport:
    if checks is None:
        own = run.request is not None and run.request.table == staged.table
        checks = run.request.checks if own and run.request is not None else configured(staged.table)
    at = Ref(name=staged.target, hash=staged.base)
    schema = rooms.reader.metadata(staged.pointer).table_schema
    resolved = validate_checks(checks, schema, schemas_at(rooms, at, run.staged))
    replaces = run.request.replaces if run.request is not None else ()
    return audit(rooms, staged, resolved, beside=run.staged, replaces=replaces)
