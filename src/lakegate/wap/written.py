"""What others wrote to a run's branch: stage it as it is, audit each table, and publish all of them or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakegate.context import Context
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.run import Acceptance, StagedTable
from lakegate.wap import failpoints
from lakegate.wap.audit import audit, resolve_checks
from lakegate.wap.branches import store_run
from lakegate.wap.discard import discard
from lakegate.wap.ingest import publish_audited
from lakegate.wap.recover import close
from lakegate.wap.session import RunSession
from lakegate.wap.stage import staged_since

ChecksFor = Callable[[TableIdentifier], Sequence[Check]]


def stage_written(
    context: Context,
    session: RunSession,
    base: Ref,
    checks: ChecksFor,
    *,
    reads: Sequence[str],
    require: Callable[[Sequence[StagedTable]], None],
    nothing: str,
    by_anyone: bool = False,
) -> None:
    """Find out what was written to the run's branch since ``base``. If nothing was, the run is skipped.

    Args:
        checks: Returns the checks that a changed table is audited with.
        reads: Tables that the rows were computed from.
        require: Raises if the changed tables aren't what was to be written.
        nothing: Why the run is skipped if nothing was written, in one sentence.
        by_anyone: Whether what the written metadata says about values proves nothing.
    """
    head = context.catalog.get_ref(session.run.branch)
    run_id = session.run.run_id
    staged = staged_since(context, base, head, target=session.run.target, run_id=run_id, by_anyone=by_anyone)
    require(staged)
    failpoints.reach("after-stage")
    if not staged:
        discard(context, session.run.branch)
        session.end(status="skipped", reads=tuple(reads), reverts=(), branch_kept=False, detail=nothing)
        return
    tables = tuple(str(one.table) for one in staged)
    by_table = {str(one.table): tuple(checks(one.table)) for one in staged}
    session.move("staged", tables=tables, staged=staged, reads=tuple(reads), checks=by_table, branch_kept=True)
    store_run(context, session.run, head)


def audit_written(context: Context, session: RunSession, acceptance: Acceptance | None = None) -> None:
    """Audit each table of a run that is staged.

    Args:
        acceptance: Let the run pass even if a check fails, and record why.
    """
    run = session.run
    if run.status != "staged":
        return
    with session.step("audit"):
        reports = tuple(
            audit(context, one, resolve_checks(context, one, run.checks[str(one.table)], run.staged), beside=run.staged)
            for one in run.staged
        )
    accepted = None if all(report.passed for report in reports) else acceptance
    is_passed = accepted is not None or all(report.passed for report in reports)
    session.move("audited" if is_passed else "rejected", reports=reports, accepted=accepted)


def publish_written(context: Context, session: RunSession) -> None:
    """Publish a run that passed its audit, or end one that didn't.

    Raises:
        ConflictError: When the rows were computed from a target that has changed.
    """
    if session.run.status == "audited":
        publish_audited(context, session)
    if session.run.status == "rejected":
        close(context, session)
