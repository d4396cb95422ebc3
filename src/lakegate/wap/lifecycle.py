"""The lifecycle of a run: its lease, its steps, its end, and the cleanup when it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential
from tenacity.stop import stop_when_event_set

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    AuditTimeoutError,
    CatalogUnavailableError,
    ConflictError,
    LakegateError,
    LeaseLostError,
    OutcomeUnknownError,
    RetryableError,
    internal_error,
)
from lakegate.ledger.publication import EarlierAttemptError, find_publication
from lakegate.ledger.sync import sync
from lakegate.model.run import Publication, Run, RunError, RunStep
from lakegate.progress import bound_to, without_secrets
from lakegate.telemetry import tracing
from lakegate.telemetry.metrics import Measurements, Sample, count_ending, count_steps, measuring
from lakegate.wap import failpoints
from lakegate.wap.alerting import alert_run
from lakegate.wap.deadline import NEVER, Deadline, cancel_engine_at
from lakegate.wap.discard import discard_own
from lakegate.wap.downstream import send
from lakegate.wap.optimistic_commit import UnansweredCommitInterrupt

_LOG = logging.getLogger(__name__)
_END_RETRY_S = 30.0
"""How long to keep trying to record how a run ended while the journal is unavailable."""


class Progress:
    """A run in progress: the only place that changes its status. Each change is written to the journal at once.

    Attributes:
        deadline: When the work must have stopped.
        begun: The run as it was at the start.
        before: The suspended run that this was; if it fails now, it's suspended again.
        measured: Metrics that aren't in the journal yet.
        ended: Whether this process has ended the run, even if it couldn't write that to the journal.
    """

    def __init__(self, context: Context, run: Run, token: str, deadline: Deadline = NEVER) -> None:
        self._context = context
        self.deadline = deadline
        self.token = token
        self.begun = run
        self.before: Run | None = None
        self.ended = False
        # An earlier attempt's error says nothing about this one.
        self.run = run.model_copy(update={"error": None})
        self._lost = threading.Event()
        self._written = False
        self.measured = Measurements(tracing.observer())
        self._counted = run  # the run whose steps and checks have been counted

    def update(self, **changes: object) -> None:
        """Change the run.

        Raises:
            LeaseLostError: When another process took the run over, and now decides its outcome.
        """
        changed = self.run.model_copy(update=changes)
        self._context.journal.save(changed, self.token)
        self.run = changed

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the body as a step of the run, with its start and end."""
        self.deadline.require_time(self.run.run_id)
        began = RunStep(name=name, started_at=datetime.now(UTC))
        before = self.run.steps
        self.run = self.run.model_copy(update={"steps": (*before, began)})
        outcome = "failed"
        try:
            with bound_to(self.run, step=name), tracing.step_span(name, self.run):
                yield
            outcome = "done"
        finally:
            ended = began.model_copy(update={"finished_at": datetime.now(UTC), "outcome": outcome})
            self.run = self.run.model_copy(update={"steps": (*before, ended)})

    def end(self, **changes: object) -> Run:
        """End the run: release its lease and settle its claims.

        The outcome doesn't depend on the journal. If the journal is unavailable, the write is retried for a while;
        after that, recovery ends the run once its lease has expired.

        Returns:
            The run, with what the target's history says about it.
        """
        kept = self.run.order if changes.get("status") == "failed" else None
        ended = self.run.model_copy(update={"finished_at": datetime.now(UTC), "order": kept, **changes})
        try:
            self.run = self._write_end(ended)
            self._written = True
        except LeaseLostError:
            raise
        except RetryableError as error:
            self.run = ended
            self._context.narrator.note(
                f"Run {ended.run_id} has ended ({ended.status}), but the journal couldn't be written: {error.message} "
                "The next command will write it. To write it now: lakegate recover"
            )
        self.ended = True
        _log(self.run)
        return self.run

    def _write_end(self, ended: Run) -> Run:
        retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_delay(_END_RETRY_S) | stop_when_event_set(self._lost),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )

        count_ending(self.measured, ended, self.begun)
        counted = self._count()

        def write() -> Run:
            try:
                return self._context.journal.end(ended, self.token, counted=counted)
            except LeaseLostError:
                self.mark_lease_lost()
                retried = retrying.statistics["attempt_number"] > 1
                known = self._context.journal.get(ended.run_id) if retried else None
                if known is None or known.finished_at != ended.finished_at:
                    raise
                # An earlier try of ours ended it, but its answer was lost.
                return known

        return retrying(write)

    def suspend(self, error: LakegateError | None = None) -> None:
        """Suspend the run until its next step, or until this step is retried if it failed with ``error``."""
        self.run = self.run.model_copy(update={"error": None if error is None else to_run_error(error)})
        self._context.journal.suspend(self.run, self.token, for_s=self._context.suspend_s, counted=self._count())
        _log(self.run)

    def _count(self) -> list[Sample]:
        """Return the metrics since the last call."""
        count_steps(self.measured, self.run, self._counted)
        self._counted = self.run
        return self.measured.take()

    def require_lease(self) -> None:
        """Raise if another process took the run over."""
        # If this process was asleep, the heartbeat would notice too late.
        if self._lost.is_set() or not self._context.journal.renew(self.run.run_id, self.token):
            self.mark_lease_lost()
            raise LeaseLostError(
                f"Run {self.run.run_id} lost its lease (no heartbeat for {self._context.lease_s:,.0f} s); "
                "another process took it over.",
                hint=f"To see its outcome: lakegate runs {self.run.run_id}",
                run_id=self.run.run_id,
                branch=self.run.branch or None,
            )

    def mark_lease_lost(self) -> None:
        """Remember that the lease is lost."""
        self._lost.set()

    def alert(self) -> None:
        """Send alerts about the run, if it ended here."""
        if self._written:
            with bound_to(self.run):
                self.run = alert_run(self._context, self.run)

    def notify_downstream(self) -> None:
        """Send due events to downstream systems, if the run ended here."""
        if self.ended:
            with bound_to(self.run, step="downstream"):
                try:
                    send(self._context, left_s=self.deadline.left_s)
                except KeyboardInterrupt:
                    text = f"Run {self.run.run_id} had ended: {self.run.status}. Downstream systems may not know yet."
                    raise KeyboardInterrupt(text) from None

    def end_as_published(self, publication: Publication) -> None:
        """End the run as published by another process, whether the journal says so already or not."""
        known: Run | None = None
        with suppress(LakegateError):
            sync(self._context, self.run.target)
            known = self._context.journal.get(self.run.run_id)
        if known is None or known.publication is None:
            known = self.run.model_copy(
                update={"status": "published", "publication": publication, "finished_at": datetime.now(UTC)}
            )
        self.run = known
        self.ended = True


@contextmanager
def running(
    context: Context,
    run: Run,
    *,
    token: str | None = None,
    anew: bool = False,
    before: Run | None = None,
    suspends: bool = False,
    deadline: Deadline = NEVER,
) -> Iterator[Progress]:
    """Hold the lease of ``run`` while the body works on it, and clean up if the body fails.

    The body ends the run with :meth:`Progress.end`; a run that it doesn't end has failed or is suspended.

    Args:
        token: Token of its lease, if we hold it already; without one, the run starts here.
        anew: See :meth:`lakegate.journal.journal.Journal.begin`.
        before: The suspended run, if somebody publishes it by name now: if that fails, it's suspended again.
        suspends: Suspend the run if the body doesn't end it, or fails in a way that another attempt may fix.
        deadline: When the body must have stopped; cancelling the engine's work may take a while after that.
    """
    if token is None:
        run = run.model_copy(update={"orchestrator": run.orchestrator or context.orchestrator})
        token = context.journal.begin(run, anew=anew)
    progress = Progress(context, run, token, deadline)
    progress.before = before
    try:
        with (
            _traced(progress),
            bound_to(run),
            measuring(progress.measured),
            heartbeat(context, progress),
            _clean_up_on_error(context, progress, suspends=suspends),
            cancel_engine_at(deadline, context, run.run_id),
        ):
            yield progress
        if suspends and progress.run.finished_at is None:
            progress.suspend()
        failpoints.reach("after-end")
        if progress.run.status == "published":
            # The journal must not record a file as published without its commit, or nobody would notice that the
            # target was reset later, and downstream systems wouldn't be notified of the commit. If this fails, the
            # next run reads it.
            with suppress(LakegateError):
                sync(context, run.target)
    finally:
        # Last, when nothing slow or broken here can affect the run.
        progress.alert()
        progress.notify_downstream()


@contextmanager
def _traced(progress: Progress) -> Iterator[None]:
    with tracing.run_span(progress.run) as note:
        try:
            yield
        finally:
            note(progress.run)


@contextmanager
def heartbeat(context: Context, progress: Progress) -> Iterator[None]:
    """Keep the lease of a run alive while the body works on it."""
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(context.lease_s / 3):
            try:
                if not context.journal.renew(progress.run.run_id, progress.token):
                    progress.mark_lease_lost()
                    return
            except LakegateError:
                continue  # the journal may be back before the lease runs out

    name = f"lease of {progress.run.run_id}"
    thread = threading.Thread(target=copy_context().run, args=(beat,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def _clean_up_on_error(context: Context, progress: Progress, *, suspends: bool) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if progress.ended:
            raise
        lost = _lease_error(progress, error)
        if lost is None:
            known = _error_to_show(progress.run, error)
            _clean_up(context, progress, known, suspends=suspends)
            if known is error:
                raise
            raise known from error
        with suppress(LakegateError):
            publication = find_publication(context, progress.run)
            if publication is not None:
                # Published, by our own commit or by the process that took the run over.
                progress.end_as_published(publication)
        if progress.ended and progress.run.status == "published":
            return
        _drop_leftover_branch(context, progress.run)
        if lost is error:
            raise
        raise lost from error
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(_settle_interrupted(context, progress, interrupt)) from None
    except BaseException:
        # Stopped from outside, as Prefect stops a cancelled flow. Give up the lease, so that recovery needn't wait.
        with suppress(LakegateError):
            context.journal.abandon(progress.run.run_id, progress.token)
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


def _lease_error(progress: Progress, error: BaseException) -> LeaseLostError | None:
    """Return the error for a lost lease, or ``None``. The process that took the run over drops its branch."""
    if isinstance(error, LeaseLostError):
        return error
    try:
        progress.require_lease()
    except LeaseLostError as lost:
        return lost
    except LakegateError:
        return None
    return None


def _clean_up(context: Context, progress: Progress, error: Exception, *, suspends: bool) -> None:
    run = progress.run
    match error:
        case RetryableError() | OutcomeUnknownError() if suspends and not isinstance(error, EarlierAttemptError):
            error.context.setdefault("run_id", run.run_id)
            if not run.staged:
                _drop_own_branch(context, run)  # it's only half written
            with suppress(LakegateError):  # if this fails, the lease expires by itself
                progress.suspend(error)
        case AuditTimeoutError() if run.staged:
            _fail(context, progress, error, branch_kept=_may_exist(context, run.branch))
        case ConflictError() | OutcomeUnknownError() if run.staged or not run.branch:
            # The data is staged and audited: let the user decide what to do with it.
            _fail(context, progress, error, branch_kept=_may_exist(context, run.branch))
        case LakegateError():
            kept = _drop_own_branch(context, run)
            if kept and not run.is_users_branch:
                error.hint = " ".join(filter(None, (error.hint, _branch_hint(run.branch))))
            error.context.setdefault("run_id", run.run_id)
            _fail(context, progress, error, branch_kept=kept)
        case _:
            kept = _drop_own_branch(context, run)
            _fail(context, progress, internal_error(error), branch_kept=kept)


def _fail(context: Context, progress: Progress, error: LakegateError, *, branch_kept: bool) -> None:
    begun = progress.begun
    try:
        is_as_before = branch_kept and not isinstance(error, (ConflictError, OutcomeUnknownError))
        if progress.before is not None and is_as_before:
            progress.run = progress.before
            progress.suspend(error)
        elif begun.finished_at is not None and is_as_before:
            # The run had ended before, and its branch is unchanged: restore its outcome.
            names = ("status", "error", "finished_at", "reports", "accepted", "actions")
            was = {name: getattr(begun, name) for name in names}
            progress.end(**was, branch_kept=True)
        else:
            progress.end(status="failed", branch_kept=branch_kept, error=to_run_error(error))
    except LakegateError as journal_error:
        # The user must see the first error, not this one.
        context.narrator.note(f"The journal couldn't be written: {journal_error.message}")


def _drop_leftover_branch(context: Context, run: Run) -> None:
    """Drop a branch that this process wrote to after another one had settled the run."""
    with suppress(LakegateError):
        settled = context.journal.get(run.run_id)
        if settled is not None and settled.finished_at is not None and not settled.branch_kept:
            discard_own(context, run)


def _settle_interrupted(context: Context, progress: Progress, interrupt: KeyboardInterrupt) -> str:
    """Settle an interrupted run, and return a sentence about its outcome."""
    run = progress.run
    if progress.ended:
        if run.status != "published":
            return f"Run {run.run_id} had ended: {run.status}."
    else:
        if run.branch:
            context.engine().cancel()
        try:
            publication = find_publication(context, run)
        except EarlierAttemptError as error:
            _fail(context, progress, error, branch_kept=_drop_own_branch(context, run))
            return error.message
        except LakegateError:
            if any(step.name == "publish" for step in run.steps):
                return _leave_to_recovery(context, progress)
            publication = None
        if publication is None:
            return _settle_unpublished(context, progress, interrupt)
        kept = _drop_own_branch(context, run)
        with suppress(LakegateError):
            progress.end(status="published", publication=publication, branch_kept=kept)
    return f"Run {run.run_id} had been published already; see `lakegate runs {run.run_id}`."


def _settle_unpublished(context: Context, progress: Progress, interrupt: KeyboardInterrupt) -> str:
    """Undo an interrupted run that isn't published, unless it may still be."""
    lost = _lease_error(progress, interrupt)
    if lost is not None:
        _drop_leftover_branch(context, progress.run)
        return f"{lost.message} {lost.hint}"
    if isinstance(interrupt, UnansweredCommitInterrupt):
        return _leave_to_recovery(context, progress)
    branch = progress.run.branch
    kept = _drop_own_branch(context, progress.run)
    _fail(context, progress, LakegateError("Interrupted by the user."), branch_kept=kept)
    if not branch:
        return "Nothing was published."
    if kept and progress.run.is_users_branch:
        return f"Nothing was published. Branch {branch} is kept."
    return f"Nothing was published. {_branch_hint(branch) if kept else f'Branch {branch} was removed.'}"


def _leave_to_recovery(context: Context, progress: Progress) -> str:
    """Give up the lease of a run that may be published. Recovery finds out once the catalog answers."""
    run_id = progress.run.run_id
    with suppress(LakegateError):
        context.journal.abandon(run_id, progress.token)
    return (
        f"The catalog doesn't answer: run {run_id} may or may not have been published. "
        f"When it's back: lakegate recover; lakegate runs {run_id}"
    )


def _may_exist(context: Context, branch: str) -> bool:
    """Return whether the branch exists, or may exist because the catalog doesn't answer."""
    try:
        return bool(branch and context.catalog.get_ref(branch))
    except LakegateError as error:
        return isinstance(error, RetryableError)


def _drop_own_branch(context: Context, run: Run) -> bool:
    """Try to drop the branch that a run created; return whether the run still has a branch, or may have.

    A branch that the user created stays.
    """
    if run.is_users_branch:
        return _may_exist(context, run.branch)
    try:
        discard_own(context, run)
    except AlreadyExistsError:
        return False  # it belongs to somebody else
    except LakegateError:
        return True
    return False


def _branch_hint(branch: str) -> str:
    return f"Branch {branch} may still exist; drop it with: lakegate discard {branch}"


def _log(run: Run) -> None:
    facts: dict[str, object] = {"status": run.status, "rows": run.publication.rows if run.publication else None}
    if run.failures:
        facts["failed_checks"] = [result.name for result in run.failures]
    if run.error is not None:
        facts |= {"code": run.error.code, "message": run.error.message}
    level = logging.WARNING if run.failures or run.error else logging.INFO
    with bound_to(run):
        _LOG.log(level, "Run %s: %s", run.run_id, run.status, extra={"facts": facts})


def to_run_error(error: LakegateError) -> RunError:
    """Return an error for the journal and alerts, without secrets that another program's message may contain."""
    said = error.to_dict()
    texts = {key: without_secrets(text) for key, text in said.items() if isinstance(text, str)}
    context = said["context"]
    if isinstance(context, dict):
        context = {key: without_secrets(one) if isinstance(one, str) else one for key, one in context.items()}
    return RunError.model_validate({**said, **texts, "context": context})
