"""Recover from crashes, with the catalog as the truth: settle runs whose process died, rebuild a lost journal."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    EngineUnavailableError,
    LakegateError,
    LeaseLostError,
    NewerFormatError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
    StorageUnavailableError,
    internal_error,
)
from lakegate.ledger.publication import EarlierAttemptError, find_publication
from lakegate.ledger.sync import History, read_history, sync
from lakegate.model.maintenance import RebuiltJournal
from lakegate.model.refs import Ref
from lakegate.model.run import Lease, Run
from lakegate.progress import bound_to
from lakegate.telemetry.metrics import measuring
from lakegate.wap.alerting import alert_run
from lakegate.wap.branches import store_verdict, stored_runs, stored_runs_in
from lakegate.wap.deadline import NEVER, Deadline
from lakegate.wap.discard import discard_own, ref_exists
from lakegate.wap.downstream import send
from lakegate.wap.lifecycle import Progress, heartbeat, to_run_error
from lakegate.wap.optimistic_commit import BeingPublishedError, require_nobody_publishes
from lakegate.wap.publish import RejectedLateError, publish

_LOG = logging.getLogger(__name__)


class CannotPublishError(RetryableError):
    """The run can't be published from here, for instance because Spark is unavailable. It may be from elsewhere."""


def recover(context: Context, deadline: Deadline = NEVER) -> tuple[Run, ...]:
    """Settle every run whose lease has expired: publish it if it passed its audit, else discard it. Return those runs.

    Safe to call at any time, from any number of processes: only one of them settles a run. Suspended runs are left
    alone until their time is over.

    Args:
        deadline: After this, no further run is settled. A run in progress is finished.

    Raises:
        CatalogUnavailableError: When the catalog is unavailable; the remaining runs are settled next time.
    """
    settled = []
    for run in context.journal.abandoned():
        if deadline.is_over:
            break
        lease = context.journal.take_over(run.run_id)
        if lease is not None:
            try:
                settled.append(settle(context, lease, deadline=deadline))
            except (LeaseLostError, BeingPublishedError):
                continue  # another process settles it, or we do next time
            except CannotPublishError as error:  # nobody else should have to wait for it
                _note(context, run, f"{error.message} {error.hint}")
            except (RetryableError, OutcomeUnknownError):
                raise
            except Exception as error:  # noqa: BLE001 - a run that can't be settled must not stop all others
                _note(context, run, _unsettled(run.run_id, error))
    return tuple(settled)


def _note(context: Context, run: Run, text: str) -> None:
    context.narrator.note(text)
    _LOG.warning("%s", text, extra={"facts": {"run_id": run.run_id, "table": run.table}})


def _unsettled(run_id: str, error: Exception) -> str:
    known = error if isinstance(error, LakegateError) else internal_error(error)
    return f"Run {run_id} couldn't be recovered: {known.message} After fixing it: lakegate recover {run_id}"


def recover_now(context: Context, run_id: str) -> Run:
    """Settle one run, even if it's suspended. A run that has ended is returned unchanged."""
    lease = context.journal.resume(run_id)
    if lease is None:
        raise NotFoundError(f"Run '{run_id}' doesn't exist.", hint="lakegate runs", run_id=run_id)
    return settle(context, lease)


def settle(
    context: Context, lease: Lease, *, publishes: bool = True, reason: str | None = None, deadline: Deadline = NEVER
) -> Run:
    """End a run whose lease we hold, by what the catalog says about it. A run that has ended is returned unchanged.

    A run that passed its audit is published, never discarded: its owner may be alive but slow, and about to publish it
    too; the catalog accepts only one of a run's two commits. The owner of a run that hasn't passed can no longer
    publish it, because it can't record that it passed. Before a run is recorded as failed, we wait for any process
    that is publishing it, and search the target for its commit once more. If the commit arrives even later,
    :func:`lakegate.ledger.sync.sync` corrects the record.

    Args:
        publishes: Whether to publish a run that passed its audit; if not, it's discarded like the others.
        reason: Why a run is discarded; by default, that its audit wasn't done.
        deadline: When deliveries to downstream systems must have ended.

    Raises:
        CannotPublishError: When the run passed its audit, but Spark or the object store can't be reached.
        CatalogUnavailableError: When the catalog is unavailable; the next recovery settles the run.
        LeaseLostError: When another process has taken the run over from us.
        BeingPublishedError: When another process started to publish the run before we had its lease, and isn't done.
    """
    if lease.token is None:
        return lease.run
    progress = Progress(context, lease.run, lease.token)
    unnoticed = lease.run.status == "published"
    if unnoticed:
        # Another process read its commit from the history. It still has a lease, so nobody has ended the run: its end
        # hasn't been counted, and no alert was sent.
        progress.begun = lease.run.model_copy(update={"finished_at": None})
    try:
        with bound_to(lease.run, step="recover"), measuring(progress.measured), heartbeat(context, progress):
            ended = _settle(context, progress, lease.run, publishes=publishes, reason=_reason(lease.run, reason))
    except BaseException:
        # Let another process try again at once.
        with suppress(LakegateError):
            context.journal.abandon(lease.run.run_id, lease.token)
        raise
    if lease.run.finished_at is not None and ended.status == lease.run.status and not unnoticed:
        return ended  # the process that ended it has sent the alerts
    with bound_to(ended, step="recover"):
        ended = alert_run(context, ended, recovered=publishes)
        send(context, target=ended.target, left_s=deadline.left_s)
    return ended


def _settle(context: Context, progress: Progress, run: Run, *, publishes: bool, reason: str) -> Run:
    why = "which waited for its next step" if run.is_stepwise else "whose process died"
    doing = f"Recovering run {run.run_id}, {why}"
    with context.narrator.step(doing if publishes else f"Undoing run {run.run_id}"):
        if (ended := _end_if_published(context, progress)) is not None:
            return ended
        is_open = run.status in ("running", "staged")
        if not run.reports and run.finished_at is None:
            run = progress.run = _with_verdict(context, progress.run)
        failed = bool(run.reports) and not all(report.passed for report in run.reports)
        if publishes and is_open and run.staged and len(run.staged) == len(run.reports) and not failed:
            return _publish(context, progress)
        if run.finished_at is not None:
            require_nobody_publishes(context, run)
            if (ended := _end_if_published(context, progress)) is not None:
                return ended
            # It had ended. Then a process took its lease again, for instance to publish its branch, and died.
            return progress.end(
                status="rejected" if failed and is_open else run.status,
                finished_at=run.finished_at,
                error=run.error,
                accepted=None,
                branch_kept=ref_exists(context, run.branch),
            )
        if failed:
            return _reject(context, progress)
        return _fail(context, progress, LakegateError(reason))


def _end_if_published(context: Context, progress: Progress) -> Run | None:
    """End the run as published if the target has its commit."""
    try:
        publication = find_publication(context, progress.run)
    except EarlierAttemptError as error:
        # The run is published, as its commit says. Drop what was staged since.
        sync(context, progress.run.target)
        kept = progress.run.is_users_branch or _drop_branch(context, progress.run)
        reason = to_run_error(error)
        return progress.end(status="failed", branch_kept=kept, error=reason, detail=error.message)
    if publication is None:
        return None
    kept = progress.run.kind != "branch" and _drop_branch(context, progress.run)
    return progress.end(
        status="published", publication=publication, branch_kept=kept, detail="Was published already; now recorded."
    )


def _with_verdict(context: Context, run: Run) -> Run:
    """Return a run with the rejection that its branch has, if it has one: the journal may be older than the audit.

    Raises:
        NewerFormatError: When a newer lakegate stored the run on its branch, perhaps as rejected.
    """
    base = run.base or (run.request.base if run.request is not None else None)
    if base is not None and run.branch:
        with suppress(NotFoundError):
            for one in stored_runs(context, run.branch, base):
                if (one.run_id, one.branch) == (run.run_id, run.branch) and one.failures:
                    names = ("tables", "request", "staged", "reports")
                    return run.model_copy(update={name: getattr(one, name) for name in names})
    return run


def _reason(run: Run, given: str | None) -> str:
    """Return why a run is discarded. If it was suspended because a step failed, that includes the error."""
    if not run.is_stepwise:
        return given or "Its process died before the audit was done."
    why = given or "It wasn't audited, and nobody started its next step."
    last = None if run.error is None or run.error.message in why else run.error.message
    return why if last is None else f"{why} Its last attempt failed: {last}"


def _reject(context: Context, progress: Progress) -> Run:
    run = progress.run
    keep = run.request is None or run.request.on_failure == "keep" or run.is_users_branch
    require_nobody_publishes(context, run)
    if keep:
        store_verdict(context, run)
    kept = ref_exists(context, run.branch) if keep else _drop_branch(context, run)
    if (published := _end_if_published(context, progress)) is not None:
        return published
    return progress.end(status="rejected", accepted=None, branch_kept=kept, detail="Its audit had failed.")


def _publish(context: Context, progress: Progress) -> Run:
    try:
        publication = publish(context, progress.run, fresh=True, progress=progress)
    except RejectedLateError:
        return _reject(context, progress)
    except (CatalogUnavailableError, LeaseLostError, OutcomeUnknownError):
        raise
    except (ConfigurationError, EngineUnavailableError, StorageUnavailableError) as error:
        run = progress.run
        raise CannotPublishError(
            f"Run {run.run_id} passed its audit, but can't be published from here right now: {error.message}",
            hint=f"{error.hint or ''} To give it up, drop its branch: lakegate discard {run.branch}".lstrip(),
            run_id=run.run_id,
            branch=run.branch,
        ) from error
    except LakegateError as error:
        if type(error) is RetryableError:  # the journal is unavailable: the next recovery settles the run
            raise
        return _fail(context, progress, error)
    return progress.end(
        status="published",
        publication=publication,
        branch_kept=publication.branch_left,
        detail="Passed its audit; published by recovery.",
    )


def _fail(context: Context, progress: Progress, reason: LakegateError) -> Run:
    progress.require_lease()
    require_nobody_publishes(context, progress.run)
    # An interrupted publish is no reason to drop a user's branch.
    stays = progress.run.is_users_branch or _drop_branch(context, progress.run)
    if (published := _end_if_published(context, progress)) is not None:
        return published
    return progress.end(
        status="failed",
        branch_kept=stays and ref_exists(context, progress.run.branch),
        error=to_run_error(reason),
        detail="Undone: nothing of it was published.",
    )


def _drop_branch(context: Context, run: Run) -> bool:
    """Drop the branch that a run created; return whether it stays, because we can't tell whose it is."""
    # If the user chose the name, the branch may belong to somebody else by now.
    with suppress(AlreadyExistsError):
        try:
            discard_own(context, run)
        except NotFoundError:
            return True
    return False


def rebuild(context: Context, target: str) -> RebuiltJournal:
    """Rebuild the journal's record of published files from all commits of ``target``.

    Rejected runs that the journal doesn't know are read from their branches, except those of a newer lakegate.

    Raises:
        NewerFormatError: When a commit of ``target`` names source files in an unknown format.
        RetryableError: When the catalog or the journal is unavailable; the journal is unchanged then.
    """
    with context.narrator.step(f"Reading the history of {target}") as step:
        (known, unread), published = context.journal.synced_and_unread(target), context.journal.published()
        head = context.catalog.get_ref(target)
        past = read_history(context, head.hash, step=step)
    with context.narrator.step("Reading the branches of rejected runs"):
        rejected = _rejected_runs(context, target, {commit.hash for commit in past.commits})
    with context.narrator.step("Writing the journal"):
        while not context.journal.record(
            target,
            past.commits,
            head.hash,
            rebuild=True,
            known=known,
            gone=published - past.runs,
            unread=unread,
        ):
            known = context.journal.synced(target)
            head, past = _with_newer(context, target, past, head)
        for run in rejected:
            with suppress(RetryableError):  # another process has started it, and knows more
                context.journal.end(run, context.journal.begin(run, anew=True))
    return RebuiltJournal(
        head=head,
        commits=len(past.commits),
        runs=len(past.runs),
        files=context.journal.count()[1],
        rejected=len(rejected),
    )


def _with_newer(context: Context, target: str, past: History, head: Ref) -> tuple[Ref, History]:
    """Return the target's head now, and the history up to it."""
    now = context.catalog.get_ref(target)
    if now.hash == head.hash:
        return head, past
    newer = read_history(context, now.hash, until=head.hash)
    return now, newer if newer.whole else replace(past, commits=[*past.commits, *newer.commits])


def _rejected_runs(context: Context, target: str, commits: Collection[str]) -> list[Run]:
    """Return the rejected runs that are stored on their branches but not in the journal."""
    found = []
    for ref in context.catalog.list_refs():
        if ref.kind != "branch" or ref.name == target or ref.hash in commits:
            continue
        own = list(takewhile(lambda commit: commit.hash not in commits, context.catalog.history(ref.hash)))
        try:
            stored = stored_runs_in(ref.name, own)
        except NewerFormatError as error:  # this doesn't affect what's published
            context.narrator.note(error.message)
            continue
        for run in stored:
            if run.failures and run.branch == ref.name and context.journal.get(run.run_id) is None:
                kept = {"status": "rejected", "branch_kept": True, "finished_at": own[0].time}
                found.append(run.model_copy(update={**kept, "detail": "Known from its branch only."}))
    return found
