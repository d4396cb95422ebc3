"""Bring runs to their end. Recovery is the only way to shut one down, whatever happened to it.

A run that this process can't take further is brought to its end by what the catalog says and by its state: if its
commit is there, it's published; if it passed its audit, it's published now; else it has failed, unless its state says
how it ended. Whoever wants another end writes the state first (:meth:`RunSession.move`) and then does the same. So a
process may be killed at any instant: the next one reads the state, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    AlreadyPublishedError,
    AuditTimeoutError,
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    EngineUnavailableError,
    LakegateError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
    StorageUnavailableError,
    internal_error,
)
from lakegate.ledger.publication import EarlierAttemptError, find_publication
from lakegate.ledger.sync import sync
from lakegate.model.run import Lease, Run
from lakegate.model.states import OPEN
from lakegate.progress import bound_to
from lakegate.telemetry import tracing
from lakegate.telemetry.metrics import measuring
from lakegate.wap import failpoints
from lakegate.wap.branches import store_verdict, stored_runs
from lakegate.wap.commit_loop import UnansweredCommitInterrupt
from lakegate.wap.deadline import NEVER, Deadline, cancel_engine_at
from lakegate.wap.discard import discard_own, ref_exists
from lakegate.wap.publish import BranchChangedError, RejectedLateError, publish
from lakegate.wap.publish_lock import BeingPublishedError, require_nobody_publishes
from lakegate.wap.retention import StagedFilesGoneError
from lakegate.wap.session import RunSession, to_run_error

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
                settled.append(settle_leased(context, lease, deadline=deadline))
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
    return f"Run {run_id} couldn't be recovered: {known.message} After fixing it: lakegate admin recover {run_id}"


def recover_now(context: Context, run_id: str) -> Run:
    """Settle one run, even if it's suspended. A run that has ended is returned unchanged."""
    lease = context.journal.resume(run_id)
    if lease is None:
        raise NotFoundError(f"Run '{run_id}' doesn't exist.", hint="lakegate runs", run_id=run_id)
    return settle_leased(context, lease)


def settle_leased(context: Context, lease: Lease, *, reason: str | None = None, deadline: Deadline = NEVER) -> Run:
    """Settle a run whose lease we took from another process or from nobody. One that has ended is returned unchanged.

    Args:
        reason: Why nobody will take the run further, in one sentence. It isn't published then, even if it passed its
            audit.
        deadline: When deliveries to downstream systems must have ended.

    Raises:
        CannotPublishError: When the run passed its audit, but Spark or the object store can't be reached.
        CatalogUnavailableError: When the catalog is unavailable; the next recovery settles the run.
        LeaseLostError: When another process has taken the run over from us.
        BeingPublishedError: When another process started to publish the run before we had its lease, and isn't done.
    """
    if lease.token is None:
        return lease.run
    session = RunSession.of(context, lease, deadline)
    unnoticed = lease.run.status == "published"
    if unnoticed:
        # Another process read its commit from the history. It still has a lease, so nobody has ended the run: its end
        # hasn't been counted, and no alert was sent.
        session.begun = lease.run.model_copy(update={"finished_at": None})
    waited = lease.run.is_stepwise or (lease.run.opening is not None and lease.run.status == "created")
    why = "which waited for its next step" if waited else "whose process died"
    doing = f"Recovering run {lease.run.run_id}, {why}" if reason is None else f"Undoing run {lease.run.run_id}"
    try:
        with (
            bound_to(lease.run, step="recover"),
            measuring(session.measured),
            session.heartbeat(),
            context.narrator.step(doing),
        ):
            if reason is not None and lease.run.finished_at is None and lease.run.status in OPEN:
                # Whenever we die now, nobody publishes it, and no late step takes it up again.
                _fail(session, _reason(lease.run, reason), order=None)
            settle(context, session)
    except BaseException:
        session.give_up_lease()  # let another process try again at once
        raise
    if session.run.status == "published":
        with suppress(LakegateError):  # what its commit says about other runs; if this fails, the next run reads it
            sync(context, session.run.target)
    if lease.run.finished_at is None or session.run.status != lease.run.status or unnoticed:
        session.tell(recovered=reason is None)  # else the process that ended it has told everybody
    return session.run


def settle(context: Context, session: RunSession) -> Run:
    """Bring a run to its end, by what the catalog says about it and by its state.

    A run that passed its audit is published, never discarded: its owner may be alive but slow, and about to publish it
    too; the catalog accepts only one of a run's two commits. The owner of a run that hasn't passed can no longer
    publish it, because it can't record that it passed. Before a run is recorded as failed, we wait for any process
    that is publishing it, and search the target for its commit once more. If the commit arrives even later,
    :func:`lakegate.ledger.sync.sync` corrects the record.
    """
    if (ended := _end_if_published(context, session)) is not None:
        return ended
    run = session.run
    if run.finished_at is None and run.status in OPEN:
        if run.status != "audited":
            _adopt_verdict(context, session)
        if session.run.status == "audited" and session.run.staged:  # else its record is damaged
            return _publish(context, session)
        if session.run.status in OPEN:
            _fail(session, _reason(run))
    return close(context, session)


def _publish(context: Context, session: RunSession) -> Run:
    run = session.run
    try:
        publication = publish(context, run, fresh=True, session=session)
    except RejectedLateError:
        session.move("rejected", detail="Its audit had failed.")
        return close(context, session)
    except (CatalogUnavailableError, LeaseLostError, OutcomeUnknownError):
        raise
    except (ConfigurationError, EngineUnavailableError, StorageUnavailableError) as error:
        raise CannotPublishError(
            f"Run {run.run_id} passed its audit, but can't be published from here right now: {error.message}",
            hint=f"{error.hint or ''} To give it up, drop its branch: lakegate discard {run.branch}".lstrip(),
            run_id=run.run_id,
            branch=run.branch,
        ) from error
    except LakegateError as error:
        if type(error) is RetryableError:  # the journal is unavailable: the next recovery settles the run
            raise
        _fail(session, error)
        return close(context, session)
    return session.end(
        status="published",
        publication=publication,
        branch_kept=publication.branch_left,
        detail="Passed its audit; published by recovery.",
    )


def _fail(session: RunSession, reason: LakegateError, **changes: object) -> None:
    # An interrupted publish is no reason to drop a user's branch.
    session.move(
        "failed",
        error=to_run_error(reason),
        branch_kept=session.run.is_users_branch,
        detail="Nothing of it was published."
        if session.run.is_users_branch
        else "Undone: nothing of it was published.",
        **changes,
    )


def close(context: Context, session: RunSession) -> Run:
    """Do what is left to do for a run whose state says how it ended, and end it.

    If we took it over, the branch must be gone or kept for sure. Otherwise its user waits for an answer: a branch that
    can't be dropped now is dropped by ``gc``.
    """
    run = session.run
    failpoints.reach("before-close")
    if run.status == "rejected" and run.finished_at is None and _stays(run):
        store_verdict(context, run)
    if session.is_taken_over:
        session.require_lease()
        require_nobody_publishes(context, run)
        stays = _stays(run) or _drop_branch(context, run)
        if (ended := _end_if_published(context, session)) is not None:
            return ended
        kept = stays and ref_exists(context, run.branch)
    else:
        kept = may_exist(context, run.branch) if _stays(run) else drop_if_possible(context, run)
    accepted = None if run.status == "rejected" else run.accepted
    return session.end(accepted=accepted, branch_kept=kept)


def _stays(run: Run) -> bool:
    """Return whether the branch of a run stays, by how the run ended."""
    if run.finished_at is not None:
        return True  # who ended it has decided that
    if run.status == "rejected":
        return run.on_failure == "keep" or run.is_users_branch
    return run.status == "failed" and run.branch_kept


def _end_if_published(context: Context, session: RunSession) -> Run | None:
    """End the run as published if the target has its commit."""
    run = session.run
    try:
        publication = find_publication(context, run)
    except EarlierAttemptError as error:
        # The run is published, as its commit says. Drop what was staged since.
        sync(context, run.target)
        kept = run.is_users_branch or _drop_branch(context, run)
        session.run = context.journal.get(run.run_id) or run
        if session.run.status in OPEN:
            _fail(session, error)
        return session.end(branch_kept=kept, error=to_run_error(error), detail=error.message)
    if publication is None:
        return None
    kept = run.kind != "branch" and _drop_branch(context, run)
    detail = "Was published already; now recorded."
    return session.end(status="published", publication=publication, branch_kept=kept, detail=detail)


def _adopt_verdict(context: Context, session: RunSession) -> None:
    """Take over the rejection that a run's branch stores, if it does: the journal may be older than the audit.

    Raises:
        NewerFormatError: When a newer lakegate stored the run on its branch, perhaps as rejected.
    """
    run = session.run
    base = run.base or (run.request.base if run.request is not None else None)
    if base is None or not run.branch:
        return
    with suppress(NotFoundError):
        for one in stored_runs(context, run.branch, base):
            if (one.run_id, one.branch) == (run.run_id, run.branch) and one.failures:
                names = ("tables", "request", "staged", "reports")
                known = {name: getattr(one, name) for name in names}
                session.move("rejected", **known, detail="Its audit had failed.")


def _reason(run: Run, given: str | None = None) -> LakegateError:
    """Return why a run ends. If it was suspended because a step failed, that includes the step's error."""
    if run.opening is not None and run.status == "created":
        by = f"{run.opening.deadline:%Y-%m-%d %H:%M} UTC"
        return LakegateError(given or f"It wasn't sealed by its deadline ({by}), or its process died before.")
    if not run.is_stepwise:
        return LakegateError(given or "Its process died before the audit was done.")
    why = given or "It wasn't audited, and nobody started its next step."
    last = None if run.error is None or run.error.message in why else run.error.message
    return LakegateError(why if last is None else f"{why} Its last attempt failed: {last}")


def _drop_branch(context: Context, run: Run) -> bool:
    """Drop the branch that a run created; return whether it stays, because we can't tell whose it is."""
    # If the user chose the name, the branch may belong to somebody else by now.
    with suppress(AlreadyExistsError):
        try:
            discard_own(context, run)
        except NotFoundError:
            return True
    return False


def drop_if_possible(context: Context, run: Run) -> bool:
    """Try to drop the branch that a run created; return whether the run still has a branch, or may have.

    A branch that the user created stays.
    """
    if run.is_users_branch:
        return may_exist(context, run.branch)
    try:
        discard_own(context, run)
    except AlreadyExistsError:
        return False  # it belongs to somebody else
    except LakegateError:
        return True
    return False


def may_exist(context: Context, branch: str) -> bool:
    """Return whether the branch exists, or may exist because the catalog doesn't answer."""
    try:
        return bool(branch and context.catalog.get_ref(branch))
    except LakegateError as error:
        return isinstance(error, RetryableError)


@contextmanager
def running(
    context: Context,
    run: Run,
    *,
    token: str | None = None,
    anew: bool = False,
    suspends: bool = False,
    deadline: Deadline = NEVER,
) -> Iterator[RunSession]:
    """Hold the lease of ``run`` while the body works on it. If the body fails, shut the run down as recovery does.

    Args:
        token: Token of its lease, if we hold it already; without one, the run starts here.
        anew: See :meth:`lakegate.journal.journal.Journal.begin`.
        suspends: Suspend the run if the body doesn't end it, or fails in a way that another attempt may fix.
        deadline: When the body must have stopped; cancelling the engine's work may take a while after that.
    """
    if token is None:
        run = run.model_copy(update={"orchestrator": run.orchestrator or context.orchestrator})
        token = context.journal.begin(run, anew=anew)
    session = RunSession(context, run, token, deadline)
    try:
        with (
            _traced(session),
            bound_to(run),
            measuring(session.measured),
            session.heartbeat(),
            _shut_down_on_error(context, session, suspends=suspends),
            cancel_engine_at(deadline, context, run.run_id),
        ):
            yield session
        if suspends and session.run.finished_at is None:
            session.suspend()
        failpoints.reach("after-end")
        if session.run.status == "published":
            # The journal must not record a file as published without its commit, or nobody would notice that the
            # target was reset later, and downstream systems wouldn't be notified of the commit. If this fails, the
            # next run reads it.
            with suppress(LakegateError):
                sync(context, run.target)
    finally:
        # Last, when nothing slow or broken here can affect the run.
        session.tell()


@contextmanager
def _traced(session: RunSession) -> Iterator[None]:
    with tracing.run_span(session.run) as note:
        try:
            yield
        finally:
            note(session.run)


@contextmanager
def _shut_down_on_error(context: Context, session: RunSession, *, suspends: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if session.ended:
            raise
        lost = error if isinstance(error, LeaseLostError) else session.lease_error()
        if lost is not None:
            if _is_published_by_others(context, session):
                return
            if lost is error:
                raise
            raise lost from error
        known = _error_to_show(session.run, error)
        _shut_down(context, session, known, suspends=suspends)
        if known is error:
            raise
        raise known from error
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(_shut_down_interrupted(context, session, interrupt)) from None
    except BaseException:
        # Stopped from outside, as Prefect stops a cancelled flow. Give up the lease, so that recovery needn't wait.
        session.give_up_lease()
        raise


def _error_to_show(run: Run, error: Exception) -> Exception:
    """Return the error to show. If a commit to the run's own branch got no answer, nothing was published."""
    publishes = run.steps and run.steps[-1].name == "publish"
    if not isinstance(error, OutcomeUnknownError) or publishes or not run.branch:
        return error
    return CatalogUnavailableError(
        f"The catalog didn't answer while run {run.run_id} was being written or audited. Nothing was published.",
        hint="Try again when the catalog is back.",
        branch=run.branch,
        run_id=run.run_id,
    )


def _is_published_by_others(context: Context, session: RunSession) -> bool:
    """Look how a run ended that another process took over, and drop what we wrote to its branch since."""
    with suppress(LakegateError):
        publication = find_publication(context, session.run)
        if publication is not None:
            session.end_as_published(publication)
            return session.run.status == "published"
    _drop_leftover_branch(context, session.run)
    return False


def _drop_leftover_branch(context: Context, run: Run) -> None:
    """Drop a branch that this process wrote to after another one had settled the run."""
    with suppress(LakegateError):
        settled = context.journal.get(run.run_id)
        if settled is not None and settled.finished_at is not None and not settled.branch_kept:
            discard_own(context, run)


def _shut_down(context: Context, session: RunSession, error: Exception, *, suspends: bool) -> None:
    """Suspend a run whose step failed, or write down that it has failed and end it."""
    run = session.run
    is_undecided = isinstance(error, (ConflictError, OutcomeUnknownError))
    if isinstance(error, LakegateError):
        error.context.setdefault("run_id", run.run_id)
    if suspends and _may_be_tried_again(error):
        if not run.staged:
            drop_if_possible(context, run)  # it's only half written
        with suppress(LakegateError):  # if this fails, the lease expires by itself
            session.suspend(error if isinstance(error, LakegateError) else None)
        return
    try:
        known = error if isinstance(error, LakegateError) else internal_error(error)
        is_as_before = not is_undecided or isinstance(error, AlreadyPublishedError)
        if session.before is not None and is_as_before and may_exist(context, run.branch):
            session.go_back(session.before, known)
            return
        is_users = (is_undecided or isinstance(error, AuditTimeoutError)) and (run.staged or not run.branch)
        # If the data is staged and audited, let the user decide what to do with it.
        session.move("failed", error=to_run_error(known), branch_kept=bool(is_users) or run.is_users_branch)
        ended = close(context, session)
        if ended.branch_kept and not is_users and not run.is_users_branch:
            known.hint = " ".join(filter(None, (known.hint, _branch_hint(run.branch))))
    except LakegateError as journal_error:
        # The user must see the first error, not this one.
        context.narrator.note(f"The journal couldn't be written: {journal_error.message}")


def _may_be_tried_again(error: Exception) -> bool:
    is_final = isinstance(error, (EarlierAttemptError, BranchChangedError, StagedFilesGoneError))
    return isinstance(error, (RetryableError, OutcomeUnknownError)) and not is_final


def _shut_down_interrupted(context: Context, session: RunSession, interrupt: KeyboardInterrupt) -> str:
    """Shut down an interrupted run, and return a sentence about its outcome."""
    run = session.run
    if session.ended and run.status != "published":
        return f"Run {run.run_id} had ended: {run.status}."
    if not session.ended:
        if run.branch:
            context.engine().cancel()
        said = _settle_interrupted(context, session, interrupt)
        if said is not None:
            return said
    return f"Run {run.run_id} had been published already; see `lakegate runs {run.run_id}`."


def _settle_interrupted(context: Context, session: RunSession, interrupt: KeyboardInterrupt) -> str | None:
    """Settle an interrupted run, unless it may still be published. Return ``None`` if it is published."""
    run = session.run
    try:
        publication = find_publication(context, run)
    except EarlierAttemptError as error:
        _shut_down(context, session, error, suspends=False)
        return error.message
    except LakegateError:
        if any(step.name == "publish" for step in run.steps):
            return _leave_to_recovery(session)
        publication = None
    if publication is not None:
        kept = drop_if_possible(context, run)
        with suppress(LakegateError):
            session.end(status="published", publication=publication, branch_kept=kept)
        return None
    lost = session.lease_error()
    if lost is not None:
        _drop_leftover_branch(context, run)
        return f"{lost.message} {lost.hint}"
    if isinstance(interrupt, UnansweredCommitInterrupt):
        return _leave_to_recovery(session)
    _shut_down(context, session, LakegateError("Interrupted by the user."), suspends=False)
    return _nothing_published(run, is_kept=session.run.branch_kept)


def _nothing_published(run: Run, *, is_kept: bool) -> str:
    if not run.branch:
        return "Nothing was published."
    if is_kept and run.is_users_branch:
        return f"Nothing was published. Branch {run.branch} is kept."
    return f"Nothing was published. {_branch_hint(run.branch) if is_kept else f'Branch {run.branch} was removed.'}"


def _leave_to_recovery(session: RunSession) -> str:
    """Give up the lease of a run that may be published. Recovery finds out once the catalog answers."""
    run_id = session.run.run_id
    session.give_up_lease()
    return (
        f"The catalog doesn't answer: run {run_id} may or may not have been published. "
        f"When it's back: lakegate admin recover; lakegate runs {run_id}"
    )


def _branch_hint(branch: str) -> str:
    return f"Branch {branch} may still exist; drop it with: lakegate discard {branch}"
