"""Audit, publish or discard an existing branch, in a later command than the one that wrote it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from lakegate.context import Context
from lakegate.errors import (
    AlreadyPublishedError,
    AuditFailedError,
    ExitCode,
    InputError,
    LakegateError,
    RetryableError,
)
from lakegate.ledger.publication import commit_of, find_unpublished, publication_of
from lakegate.ledger.sync import sync
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref
from lakegate.model.run import Acceptance, Action, Lease, Publication, Run, StagedTable
from lakegate.model.states import OPEN, RunStatus
from lakegate.points import unknown_ref
from lakegate.wap.audit import ConfiguredChecks, audit, resolve_checks
from lakegate.wap.branches import as_classified, find_owner, manual_run, store_run, store_verdict
from lakegate.wap.discard import discard, ref_exists
from lakegate.wap.failing_files import with_known_files
from lakegate.wap.plan import CONTRACT_COLUMNS, contract_check
from lakegate.wap.publish import publish
from lakegate.wap.publish_lock import require_nobody_publishes
from lakegate.wap.recover import close, recover, running
from lakegate.wap.session import RunSession
from lakegate.wap.stage import find_staged


def audit_branch(
    context: Context,
    table: TableIdentifier,
    branch: str,
    *,
    checks: Sequence[Check] | None,
    configured: ConfiguredChecks,
    explain: bool = False,
) -> AuditReport:
    """Audit the change of ``table`` on ``branch``.

    With the run's own checks, this is a re-audit: the report counts, and is written to the journal. With ``checks``,
    the run's own report and status don't change.

    Args:
        checks: Checks to run instead; ``None`` for those of the branch's run and the configured ones.
        explain: Whether the returned report says how each check was answered.

    Raises:
        InputError: When the branch didn't change the table, or an unknown run wrote it.
        RetryableError: When another process is working on the run, or has changed its status. Then the report isn't
            recorded.
    """
    found = find_staged(context, branch)
    staged = next((one for one in found if one.table == table), None)
    if staged is None:
        changed = ", ".join(str(one.table) for one in found)
        raise InputError(
            f"Branch '{branch}' didn't change {table}. It changed {changed}.", table=str(table), branch=branch
        )
    if checks is not None:
        known = context.journal.get(staged.run_id)
        staged = staged if known is None else as_classified(known, staged)
        asked = resolve_checks(context, staged, checks, found, at=_compared_at(context, staged))
        return audit_table(context, manual_run(branch, found), staged, asked, explain=explain)
    run = find_owner(context, branch, found)
    staged = next(one for one in run.staged if one.table == table)
    report = audit_table(context, run, staged, _checks_of(context, run, staged, configured), explain=explain)
    if run.publication is None:
        # Auditing the leftover branch of a published run doesn't change the run.
        _record_report(context, run, report.model_copy(update={"explanations": ()}))
    return report


def publish_branch(
    context: Context,
    branch: str,
    *,
    configured: ConfiguredChecks,
    acceptance: Acceptance | None = None,
    action: Action | None = None,
) -> Run:
    """Publish ``branch``, after an audit of each table whose current state hasn't passed one.

    Args:
        acceptance: Who publishes it despite a failed audit, and why. It overrides nothing else.
        action: Who publishes it, to be recorded with the run.

    Raises:
        InputError: When the run that wrote the branch failed during its write, was reverted, or is unknown; or when the
            branch holds rows of several runs.
        AuditFailedError: When an audit fails, or failed before on this state, and nobody accepted that.
        ConflictError: When one of the tables changed on the target in a way that rules out a rebase.
    """
    recover(context)
    sync(context, MAIN)
    found = find_owner(context, branch, find_staged(context, branch), acceptance=acceptance)
    published = _published_before(context, found)
    before = context.journal.get(found.run_id)
    with running(context, _to_audit(context, found, configured)) as session:
        session.before = _before(found, before)
        if published is None:
            own_branch = before.branch if before is not None and before.branch_kept else branch
            _audit_again(context, session, configured, acceptance, action)
            _publish(context, session, own_branch)
        else:
            if acceptance is not None:
                context.narrator.note(
                    f"Run {found.run_id} was published already, in commit {published.commit[:12]}. There was nothing "
                    "to accept, so the reason isn't recorded."
                )
            discard(context, branch)
            session.end(status="published", publication=published, branch_kept=False)
    return session.run


def _before(found: Run, known: Run | None) -> Run | None:
    """Return what the run is again if it can't be published; ``None`` if nobody knew it, or if it's published."""
    if known is None and found.status not in OPEN:
        return found.model_copy(update={"finished_at": found.finished_at or datetime.now(UTC)})
    return known if known is not None and known.publication is None else None


def _to_audit(context: Context, run: Run, configured: ConfiguredChecks) -> Run:
    """Return a run as somebody begins to publish its branch. Reports with too few checks don't count any more."""
    if run.status not in OPEN:
        return run.model_copy(update={"adopted": True})
    reports = [_report_that_counts(context, run, staged, configured) for staged in run.staged]
    counting = tuple(report for report in reports if report is not None)
    passed = len(counting) == len(reports) and all(report.passed for report in counting)
    status = "audited" if passed and run.status == "audited" else "staged"
    return run.model_copy(update={"adopted": True, "status": status, "reports": counting})


def _published_before(context: Context, run: Run) -> Publication | None:
    """Return the run's publication, if this branch or a copy of it was published before."""
    commit = commit_of(context, run)
    if commit is None:
        return None
    staged = find_unpublished(context, run, commit)
    if staged is not None:
        raise InputError(
            f"Run {run.run_id} was published already, in commit {commit.hash[:12]}. Table {staged.table} on branch "
            f"{run.branch} differs from what was published.",
            hint=f"To drop the branch: lakegate discard {run.branch}",
            branch=run.branch,
            table=str(staged.table),
            run_id=run.run_id,
        )
    return publication_of(run, commit.hash)


def _audit_again(
    context: Context,
    session: RunSession,
    configured: ConfiguredChecks,
    acceptance: Acceptance | None,
    action: Action | None,
) -> None:
    """Audit each table whose present state has no report that counts."""
    run = session.run
    with session.step("audit"):
        reports = tuple(
            _report_that_counts(context, run, one, configured)
            or audit_table(context, run, one, _checks_of(context, run, one, configured))
            for one in run.staged
        )
    actions = run.actions if action is None else (*run.actions, action)
    status: RunStatus = "audited" if acceptance else _status(reports)
    session.move(status, reports=reports, accepted=acceptance, actions=actions, finished_at=None)


def _publish(context: Context, session: RunSession, own_branch: str) -> None:
    """Publish the run, or end it as rejected.

    Args:
        own_branch: The run's own branch, which the run keeps if it's rejected on a copy of that branch.

    Raises:
        AuditFailedError: When its audit failed.
        AlreadyPublishedError: When another run has published the run's source files.
    """
    try:
        with session.step("publish"):
            publication = publish(context, session.run, session=session)
    except AlreadyPublishedError as error:
        error.exit_code = ExitCode.USAGE  # this branch has these files however often it's tried
        raise
    except AuditFailedError:
        store_verdict(context, session.run)
        as_before = {"accepted": None, "actions": session.begun.actions}
        session.end(status="rejected", branch=own_branch, branch_kept=True, **as_before)
        raise
    session.end(status="published", publication=publication, branch_kept=publication.branch_left)


def _status(reports: Sequence[AuditReport]) -> RunStatus:
    return "audited" if all(report.passed for report in reports) else "rejected"


def _report_that_counts(
    context: Context, run: Run, staged: StagedTable, configured: ConfiguredChecks
) -> AuditReport | None:
    """Return the report that counts for the table's current state: any failed one, or one that passed all checks."""
    known = _known_report(run, staged)
    if known is None or not known.passed:
        return known
    asked = {str(check) for check in _checks_of(context, run, staged, configured)}
    return known if asked <= {result.check for result in known.results} else None


def _known_report(run: Run, staged: StagedTable) -> AuditReport | None:
    states = (report for report in run.reports if report.metadata_location == staged.pointer.metadata_location)
    return next(states, None)


def _record_report(context: Context, run: Run, report: AuditReport) -> None:
    known = [report if str(one.table) == report.table else _known_report(run, one) for one in run.staged]
    reports = tuple(one for one in known if one is not None)
    before = [one.passed for one in run.reports if one.metadata_location == report.metadata_location]
    status: RunStatus = _status(reports) if len(reports) == len(run.staged) else run.status
    changes: dict[str, object] = {"reports": reports, "status": status}
    if not run.is_stepwise:  # it waits for its next step
        changes["finished_at"] = datetime.now(UTC)
    changes |= {name: getattr(run, name) for name in ("tables", "staged", "base", "branch", "branch_kept")}
    noted = context.journal.amend(run, **changes)
    run = run.model_copy(update=changes)
    if noted is None:
        # The run is known from its branch only, or it was written by hand.
        context.journal.save(run)
    elif noted.status != run.status or noted.reports != run.reports:
        raise RetryableError(
            f"The status of run {run.run_id} changed to '{noted.status}' while its branch {run.branch} was being "
            "audited, so the report wasn't recorded.",
            hint=f"lakegate runs {run.run_id}",
            run_id=run.run_id,
            branch=run.branch,
        )
    if run.kind != "branch" and any(passed != report.passed for passed in before):
        # Lakes with other journals read the verdict from the branch.
        store_run(context, run, context.catalog.get_ref(run.branch))


def _checks_of(context: Context, run: Run, staged: StagedTable, configured: ConfiguredChecks) -> tuple[Check, ...]:
    """Return the run's checks of a table, and those in the settings now."""
    own = run.checks.get(str(staged.table), ())
    if run.request is not None and run.request.table == staged.table:
        own = run.request.checks
    held = configured(staged.table)
    if run.request is not None and run.request.contract is not None and _is_as_written(run, staged):
        known = str(contract_check(run.request.contract))  # compared before the run wrote; the contract may be newer
        held = [check for check in held if str(check) != known]
    return resolve_checks(context, staged, (*own, *held), run.staged, at=_compared_at(context, staged))


def _compared_at(context: Context, staged: StagedTable) -> Ref:
    """Return the target as checks of scope ``table`` read it: at its head, or before the rows if it has them already.

    A table that a check compares with may have been loaded since the branch was made.
    """
    head = context.catalog.get_ref(staged.target)
    pointer = context.catalog.get_table(staged.table, head)
    there = () if pointer is None else context.reader.snapshots(pointer)
    is_published = any(one.snapshot_id in staged.snapshot_ids for one in there)
    return Ref(name=staged.target, hash=staged.base) if is_published else head


def _is_as_written(run: Run, staged: StagedTable) -> bool:
    """Return whether the run itself audited this state: nobody has changed the table on its branch since."""
    known = _known_report(run, staged)
    return known is not None and not any(one.name.startswith(CONTRACT_COLUMNS) for one in known.results)


def audit_table(
    context: Context, run: Run, staged: StagedTable, checks: Sequence[Check], *, explain: bool = False
) -> AuditReport:
    """Run checks on one table of a run."""
    replaces = run.request.replaces if run.request is not None else ()
    at = _compared_at(context, staged)
    request = run.request if run.request is not None and run.request.table == staged.table else None
    batch = None if request is None or not request.mode.writes_each_row else request.batch
    report = audit(context, staged, checks, beside=run.staged, replaces=replaces, batch=batch, at=at, explain=explain)
    known = _known_report(run, staged)
    return report if known is None else with_known_files(report, known)


def discard_run(context: Context, branch: str, *, target: str = MAIN, action: Action | None = None) -> Run | None:
    """Drop ``branch`` as :func:`~lakegate.wap.discard.discard` does, and record that in the run that wrote it.

    Nobody can publish the run while we do: we hold its lease, wait for a process that is publishing it, and check the
    target before we return.

    Args:
        action: Who discards it, to be recorded with the run.

    Returns:
        The run: ``discarded``, unless it was published before; ``None`` when the journal knows no run of this branch.
        A suspended run ends.

    Raises:
        NotFoundError: When the branch doesn't exist.
        RetryableError: When another process is working on the run or publishing it, and doesn't stop within a few
            seconds.
    """
    existed = ref_exists(context, branch)
    run = context.journal.find_by_branch(branch)
    if run is None or not existed:
        if not discard(context, branch, target=target):
            raise unknown_ref(context.catalog, branch)
        return None
    session = RunSession.of(context, _take_lease(context, run))
    try:
        return _discard(context, session, target, action)
    except BaseException:
        session.give_up_lease()
        raise


def _discard(context: Context, session: RunSession, target: str, action: Action | None) -> Run:
    run = session.run
    actions = run.actions if action is None else (*run.actions, action)
    if run.publication is None:
        require_nobody_publishes(context, run)
        # Whenever we die from here on, nobody publishes it.
        session.move("discarded", actions=actions, finished_at=None, adopted=False)
    try:
        discard(context, run.branch, target=target)
    except LakegateError:
        if run.publication is None:
            session.go_back(run)
        raise
    if run.publication is None:
        return close(context, session)
    # A published or reverted run keeps its status, even if its branch couldn't be dropped then.
    return session.end(actions=actions, branch_kept=False, order=None)


def _take_lease(context: Context, run: Run) -> Lease:
    """Take a run's lease, even if it has ended."""
    try:
        return context.journal.resume(run.run_id, ended=True, wait_s=_PATIENCE_S) or Lease(run=run)
    except RetryableError as error:
        message = f"{error.message} Branch {run.branch} wasn't discarded."
        raise RetryableError(message, hint=error.hint, run_id=run.run_id, branch=run.branch) from error


_PATIENCE_S = 5.0
"""How long to wait for a process that is about to end a run."""
_LONGEST = 1_000
_ACTORS = ("LAKEGATE_ACTOR", "GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILDKITE_BUILD_CREATOR_EMAIL")
"""Environment variables that name the actor, in order of precedence: lakegate's own, then those of CI services."""


def accepted(reason: str, actor: str | None = None) -> Acceptance:
    """Return the decision to publish despite a failed audit, made now by ``actor`` or the current user."""
    words = " ".join(reason.split())
    if not words:
        raise InputError(
            "Publishing rows that fail a check needs a reason, which is recorded in the commit.",
            hint="Write why: --accept 'REASON'",
        )
    if len(words) > _LONGEST:
        raise InputError(f"The reason has {len(words):,} characters; at most {_LONGEST:,} fit.")
    return Acceptance(reason=words, actor=_clean_name(actor) or this_actor(), at=datetime.now(UTC))


def acted(action: Literal["publish", "discard", "revert", "release", "drop"], actor: str | None) -> Action | None:
    """Return a record that ``actor`` does ``action`` now; ``None`` if nobody is named."""
    name = _clean_name(actor)
    return Action(action=action, actor=name, at=datetime.now(UTC)) if name else None


def _clean_name(actor: str | None) -> str:
    return " ".join((actor or "").split())[:_LONGEST]


def this_actor() -> str:
    """Return who runs this process: ``LAKEGATE_ACTOR``, the CI service's user, or user and host."""
    named = next((name for variable in _ACTORS if (name := " ".join(os.environ.get(variable, "").split()))), None)
    if named is not None:
        return named[:_LONGEST]
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
