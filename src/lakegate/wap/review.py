"""Audit and publish a branch that exists already, in a later command than the one that wrote it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

from lakegate.errors import AuditFailedError, InputError, RetryableError
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Acceptance, Action, Publication, Run, StagedTable
from lakegate.wap.audit import audit, resolve_checks
from lakegate.wap.branches import by_hand, carry, carry_verdict, find_owner
from lakegate.wap.context import Context
from lakegate.wap.discard import discard
from lakegate.wap.history import commit_of, other_than_staged, publication_of, sync
from lakegate.wap.lifecycle import Progress, running
from lakegate.wap.plan import CONTRACT_COLUMNS
from lakegate.wap.publish import publish
from lakegate.wap.recover import recover
from lakegate.wap.stage import find_staged

_PUT_BACK = ("rejected", "failed")
Configured = Callable[[TableIdentifier], Sequence[Check]]
"""The checks that the settings hold for a table."""


def audit_branch(
    context: Context,
    table: TableIdentifier,
    branch: str,
    *,
    checks: Sequence[Check] | None,
    configured: Configured,
    explain: bool = False,
) -> AuditReport:
    """Audit what ``branch`` did to ``table``.

    With the run's own checks it is a re-audit: its report counts, and is written to the journal. With ``checks`` it
    only shows a report: the run's own report and status stay as they are.

    Args:
        checks: Checks to run instead; ``None`` for those of the branch's run and the configured ones.
        explain: Whether the report returned says how each check was answered.

    Raises:
        InputError: When the branch didn't change the table, or an unknown run wrote it.
        RetryableError: When another process works on the run, or its status changed meanwhile; the report isn't kept.
    """
    found = find_staged(context, branch)
    staged = next((one for one in found if one.table == table), None)
    if staged is None:
        changed = ", ".join(str(one.table) for one in found)
        raise InputError(f"Branch '{branch}' didn't change {table}, but {changed}.", table=str(table), branch=branch)
    if checks is not None:
        asked = resolve_checks(context, staged, checks, found)
        return _audit(context, by_hand(branch, found), staged, asked, explain=explain)
    run = find_owner(context, branch, found)
    report = _audit(context, run, staged, _asked(context, run, staged, configured), explain=explain)
    if run.publication is None:
        # A published run doesn't change when what remains of its branch is audited.
        _note(context, run, report.model_copy(update={"explanations": ()}))
    return report


def publish_branch(
    context: Context,
    branch: str,
    *,
    configured: Configured,
    acceptance: Acceptance | None = None,
    action: Action | None = None,
) -> Run:
    """Publish ``branch``; tables whose current state hasn't passed an audit are audited first.

    Args:
        acceptance: Who publishes it though its audit fails, and why. It overrides nothing else.
        action: Who publishes it, to be recorded with the run.

    Raises:
        InputError: When the run that wrote it failed halfway through its write, was published and reverted since, or
            is unknown; or when the branch holds rows of several runs.
        AuditFailedError: When an audit fails, or failed before on this state, and that isn't accepted.
        ConflictError: When the target changed on one of the tables in a way that rules out a rebase.
    """
    recover(context)
    sync(context, "main")
    run = find_owner(context, branch, find_staged(context, branch), acceptance=acceptance)
    published = _published_before(context, run)
    # In case we die on the way: a run that had ended is put back as it was, and recovery must not publish one that
    # hadn't for a report of too few checks.
    begun = run = run.model_copy(update={"adopted": True})
    if run.status not in _PUT_BACK:
        counting = tuple(
            one for staged in run.staged if (one := _counting(context, run, staged, configured)) is not None
        )
        begun = run.model_copy(update={"status": "staged", "error": None, "reports": counting})
    known = context.journal.get(run.run_id)
    waits = known is not None and known.order is not None and known.finished_at is None
    with running(context, begun, before=known if waits else None) as progress:
        if published is None:
            home = known.branch if known is not None and known.branch_kept else branch
            _audit_and_publish(context, progress, configured, acceptance, action, home=home)
        else:
            if acceptance is not None:
                context.narrator.note(
                    f"Run {run.run_id} was published already, in commit {published.commit[:12]}: there was nothing to "
                    "accept, and the reason isn't recorded."
                )
            discard(context, branch)
            progress.end(status="published", publication=published, branch_kept=False)
    return progress.run


def _published_before(context: Context, run: Run) -> Publication | None:
    """Return how the run was published, from this branch or from a copy of it."""
    commit = commit_of(context, run)
    if commit is None:
        return None
    staged = other_than_staged(context, run, commit)
    if staged is not None:
        raise InputError(
            f"Run {run.run_id} was published already, in commit {commit.hash[:12]}; what branch {run.branch} holds of "
            f"{staged.table} differs from that and wasn't published.",
            hint=f"lakegate discard {run.branch}",
            branch=run.branch,
            table=str(staged.table),
            run_id=run.run_id,
        )
    return publication_of(run, commit.hash)


def _audit_and_publish(
    context: Context,
    progress: Progress,
    configured: Configured,
    acceptance: Acceptance | None,
    action: Action | None,
    *,
    home: str,
) -> None:
    """Audit and publish; ``home`` is the branch that the run keeps if a copy of it is rejected."""
    run = progress.run
    with progress.step("audit"):
        reports = tuple(
            _counting(context, run, one, configured) or _audit(context, run, one, _asked(context, run, one, configured))
            for one in run.staged
        )
    actions = run.actions if action is None else (*run.actions, action)
    status = "staged" if acceptance else _status(reports)
    progress.update(reports=reports, status=status, accepted=acceptance, actions=actions)
    try:
        with progress.step("publish"):
            publication = publish(context, progress.run, progress=progress)
    except AuditFailedError:
        carry_verdict(context, progress.run)
        progress.end(status="rejected", branch=home, branch_kept=True, actions=run.actions)
        raise
    progress.end(status="published", publication=publication, branch_kept=publication.branch_left)


def _status(reports: Sequence[AuditReport]) -> str:
    return "staged" if all(report.passed for report in reports) else "rejected"


def _counting(context: Context, run: Run, staged: StagedTable, configured: Configured) -> AuditReport | None:
    """Return the report on the table's current state: a failed one counts, a passed one if it ran all checks."""
    known = _known_report(run, staged)
    if known is None or not known.passed:
        return known
    asked = {str(check) for check in _asked(context, run, staged, configured)}
    return known if asked <= {result.check for result in known.results} else None


def _known_report(run: Run, staged: StagedTable) -> AuditReport | None:
    states = (report for report in run.reports if report.metadata_location == staged.pointer.metadata_location)
    return next(states, None)


def _note(context: Context, run: Run, report: AuditReport) -> None:
    known = [report if str(one.table) == report.table else _known_report(run, one) for one in run.staged]
    reports = tuple(one for one in known if one is not None)
    before = [one.passed for one in run.reports if one.metadata_location == report.metadata_location]
    changes = {"reports": reports, "status": _status(reports), "finished_at": datetime.now(UTC)}
    changes |= {name: getattr(run, name) for name in ("tables", "staged", "base", "branch", "branch_kept")}
    noted = context.journal.amend(run, **changes)
    run = run.model_copy(update=changes)
    if noted is None:
        # Known from its branch only, or nobody's.
        context.journal.save(run)
    elif noted.status != run.status or noted.reports != run.reports:
        raise RetryableError(
            f"Run {run.run_id} became '{noted.status}' while its branch {run.branch} was audited; the report wasn't "
            "recorded.",
            hint=f"lakegate runs {run.run_id}",
            run_id=run.run_id,
            branch=run.branch,
        )
    if run.kind != "branch" and any(passed != report.passed for passed in before):
        # So that other journals, which read the branch, know it, too.
        carry(context, run, context.catalog.get_ref(run.branch))


def _asked(context: Context, run: Run, staged: StagedTable, configured: Configured) -> tuple[Check, ...]:
    """Return the run's checks of a table, and those that the settings hold now."""
    own = run.checks.get(str(staged.table), ())
    if run.request is not None and run.request.table == staged.table:
        own = run.request.checks
    held = configured(staged.table)
    if run.request is not None and run.request.contract is not None and _is_as_written(run, staged):
        held = [check for check in held if check.label != CONTRACT_COLUMNS]  # compared before the run wrote
    return resolve_checks(context, staged, (*own, *held), run.staged)


def _is_as_written(run: Run, staged: StagedTable) -> bool:
    """Whether the run itself audited this state: nobody has changed the table on its branch since."""
    known = _known_report(run, staged)
    return known is not None and not any(one.name.startswith(CONTRACT_COLUMNS) for one in known.results)


def _audit(
    context: Context, run: Run, staged: StagedTable, checks: Sequence[Check], *, explain: bool = False
) -> AuditReport:
    replaces = run.request.replaces if run.request is not None else ()
    return audit(context, staged, checks, beside=run.staged, replaces=replaces, explain=explain)


_LONGEST = 1_000
_ACTORS = ("LAKEGATE_ACTOR", "GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILDKITE_BUILD_CREATOR_EMAIL")
"""Environment variables that name who acts, the first one that is set: lakegate's own, then those of CI services."""


def accepted(reason: str, actor: str | None = None) -> Acceptance:
    """Return the decision to publish for ``reason``, made now by ``actor`` or else the current user."""
    words = " ".join(reason.split())
    if not words:
        raise InputError(
            "Publishing what failed its audit needs a reason; it is written into the commit.",
            hint='lakegate publish BRANCH --accept "REASON"',
        )
    if len(words) > _LONGEST:
        raise InputError(f"The reason has {len(words):,} characters; at most {_LONGEST:,} fit.")
    return Acceptance(reason=words, actor=_named(actor) or this_actor(), at=datetime.now(UTC))


def acted(action: Literal["publish", "discard", "revert", "release", "drop"], actor: str | None) -> Action | None:
    """Return the record of what ``actor`` does now; ``None`` if nobody is named."""
    name = _named(actor)
    return Action(action=action, actor=name, at=datetime.now(UTC)) if name else None


def _named(actor: str | None) -> str:
    return " ".join((actor or "").split())[:_LONGEST]


def this_actor() -> str:
    """Return who runs this: ``LAKEGATE_ACTOR``, the CI service's user, or user and host."""
    named = next((name for variable in _ACTORS if (name := " ".join(os.environ.get(variable, "").split()))), None)
    if named is not None:
        return named[:_LONGEST]
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
