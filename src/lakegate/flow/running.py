"""Running: a run under way, its lease kept alive, its steps written down, and the cleaning up when it ends badly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime

from lakegate.errors import (
    AlreadyExistsError,
    AuditFailedError,
    ConflictError,
    LakegateError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.flow.deadline import NEVER, Deadline, held_to
from lakegate.flow.discard import discard
from lakegate.flow.history import sync
from lakegate.flow.publish import find_publication
from lakegate.flow.rooms import Rooms
from lakegate.flow.telling import tell
from lakegate.model.checks import AuditReport
from lakegate.model.run import Publication, Run, RunError, RunStep
from lakegate.narration import bound_to

_LOG = logging.getLogger(__name__)


class LeaseLostError(RetryableError):
    """Another process has taken the run over, because this one was not heard of for too long."""


class Progress:
    """A run as far as it has come. What it comes to is written to the journal at once."""

    def __init__(self, rooms: Rooms, run: Run, deadline: Deadline = NEVER) -> None:
        self._rooms = rooms
        self._deadline = deadline
        # Why an earlier try was given up says nothing of this one.
        self.run = run.model_copy(update={"error": None})
        self._lost = threading.Event()
        self._ended = False

    def update(self, **changes: object) -> None:
        """Note ``changes`` of the run.

        Raises:
            LeaseLostError: When it was taken over: what became of it is not ours to say any more.
        """
        self.require_lease()
        self.run = self.run.model_copy(update=changes)
        self._rooms.journal.save(self.run)

    def note_reports(self, reports: tuple[AuditReport, ...]) -> None:
        """Note that checks were answered again."""
        self.update(reports=reports)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note when the body began and ended, as a step of the run.

        Raises:
            DeadlineReachedError: When there is no time to begin it.
        """
        self._deadline.require_time(self.run.run_id)
        began = RunStep(name=name, started_at=datetime.now(UTC))
        before = self.run.steps
        self.run = self.run.model_copy(update={"steps": (*before, began)})
        outcome = "failed"
        try:
            with bound_to(self.run, step=name):
                yield
            outcome = "done"
        finally:
            ended = began.model_copy(update={"finished_at": datetime.now(UTC), "outcome": outcome})
            self.run = self.run.model_copy(update={"steps": (*before, ended)})

    def end(self, **changes: object) -> Run:
        """End the run: its lease goes, its claims are settled.

        Raises:
            LeaseLostError: When it was taken over.
        """
        self.require_lease()
        kept = self.run.order if changes.get("status") == "failed" else None
        self.run = self.run.model_copy(update={"finished_at": datetime.now(UTC), "order": kept, **changes})
        self._rooms.journal.end(self._as_told(self.run))
        self._ended = True
        _log(self.run)
        return self.run

    def tell(self) -> None:
        """Tell those who want to know of the run, if it ended here."""
        if self._ended:
            with bound_to(self.run):
                self.run = tell(self._rooms, self.run)

    def park(self, for_s: float, error: LakegateError | None = None) -> None:
        """Leave the run to its next step, or to another try of this one when it failed with ``error``.

        Raises:
            LeaseLostError: When it was taken over.
        """
        self.require_lease()
        self.run = self.run.model_copy(update={"error": _record(error)})
        self._rooms.journal.park(self.run, for_s=for_s)
        _log(self.run)

    def require_lease(self) -> None:
        """Stop a run that another process took over because this one was not heard of for too long.

        Raises:
            LeaseLostError: When it was taken over.
        """
        # The heartbeat would tell us too late when this very process slept.
        if not self._rooms.journal.renew(self.run.run_id):
            self.lose()
        if self._lost.is_set():
            raise LeaseLostError(
                f"Run {self.run.run_id} was not heard of for too long and another process has taken it over.",
                hint=f"See what became of it: lakegate runs {self.run.run_id}",
                run_id=self.run.run_id,
                branch=self.run.branch or None,
            )

    def lose(self) -> None:
        """Note that the lease is gone."""
        self._lost.set()

    def _as_told(self, run: Run) -> Run:
        """Return the run as it ended, with what the target's history has told of it meanwhile."""
        known = self._rooms.journal.get(run.run_id) if run.status == "published" else None
        if known is None or known.status != "reverted":
            return run
        return run.model_copy(update={"status": known.status, "reverted_by": known.reverted_by})


@contextmanager
def running(
    rooms: Rooms,
    run: Run,
    *,
    begun: bool = False,
    anew: bool = False,
    park_s: float | None = None,
    deadline: Deadline = NEVER,
) -> Iterator[Progress]:
    """Hold the lease of ``run`` while the body works on it, and clean up when it fails.

    The body ends the run by :meth:`Progress.end`; a run that was not is failed, or parked when that is wanted.

    Args:
        rooms: The lake's rooms.
        run: The run.
        begun: Whether its lease is ours already.
        anew: See :meth:`lakegate.protocols.Journal.begin`.
        park_s: Park the run for so many seconds when the body leaves it without end, or fails in a way that another
            try may mend.
        deadline: When the body must have stopped; it may take as long as cancelling the engine's work does after that.
    """
    if not begun:
        rooms.journal.begin(run, anew=anew)
    progress = Progress(rooms, run, deadline)
    try:
        with (
            bound_to(run),
            _heartbeat(rooms, progress),
            _cleaned_up(rooms, progress, park_s),
            held_to(deadline, rooms, run.run_id),
        ):
            yield progress
        if park_s is not None and progress.run.finished_at is None:
            progress.park(park_s)
        if progress.run.status == "published":
            # So that the journal never holds a file for published without holding its commit, too: a target that is
            # reset later is then noticed. The next run would have to read this commit anyway.
            with suppress(LakegateError):
                sync(rooms, run.target)
    finally:
        # Last of all, when nothing that is slow or goes wrong can make a difference to the run.
        progress.tell()


@contextmanager
def _heartbeat(rooms: Rooms, progress: Progress) -> Iterator[None]:
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(rooms.lease_s / 3):
            try:
                if not rooms.journal.renew(progress.run.run_id):
                    progress.lose()
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
def _cleaned_up(rooms: Rooms, progress: Progress, park_s: float | None) -> Iterator[None]:
    try:
        yield
    except AuditFailedError as error:
        # A run that was rejected has ended: that is written down already.
        if progress.run.finished_at is None:
            _record_failure(rooms, progress, error, branch_kept=_drop_branch(rooms, progress.run.branch))
        raise
    except LeaseLostError:
        _tidy_up_after_others(rooms, progress.run)
        raise
    except (RetryableError, OutcomeUnknownError) as error:
        if park_s is None:
            _fail_retryably(rooms, progress, error)
        else:
            _park_retryably(rooms, progress, error, park_s)
        raise
    except AlreadyExistsError as error:
        _record_failure(rooms, progress, error, branch_kept=False)
        raise
    except LakegateError as error:
        _fail(rooms, progress, error)
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(rooms, progress)) from None
    except Exception as error:
        kept = _drop_branch(rooms, progress.run.branch)
        _record_failure(rooms, progress, LakegateError(f"Internal error: {error!r}"), branch_kept=kept)
        raise


def _fail_retryably(rooms: Rooms, progress: Progress, error: LakegateError) -> None:
    if isinstance(error, (ConflictError, OutcomeUnknownError)):
        # The data is staged and audited: what to do with it is the user's choice now.
        _record_failure(rooms, progress, error, branch_kept=_stands(rooms, progress.run.branch))
    else:
        _fail(rooms, progress, error)


def _fail(rooms: Rooms, progress: Progress, error: LakegateError) -> None:
    kept = _drop_branch(rooms, progress.run.branch)
    if kept:
        error.hint = " ".join(filter(None, (error.hint, _branch_hint(progress.run.branch))))
    error.context.setdefault("run_id", progress.run.run_id)
    _record_failure(rooms, progress, error, branch_kept=kept)


def _park_retryably(rooms: Rooms, progress: Progress, error: LakegateError, park_s: float) -> None:
    """Leave the run to another try of its step; what was half written goes now."""
    error.context.setdefault("run_id", progress.run.run_id)
    if not progress.run.staged:
        _drop_branch(rooms, progress.run.branch)
    # Else its lease runs out by itself.
    with suppress(LakegateError):
        progress.park(park_s, error)


def _tidy_up_after_others(rooms: Rooms, run: Run) -> None:
    """Take back what this process did after another one had settled the run, and nothing else."""
    with suppress(LakegateError):
        # Claims that were made too late would be nobody's; those that still count stand in the catalog's history.
        rooms.journal.release(run.run_id)
        settled = rooms.journal.get(run.run_id)
        if settled is not None and settled.finished_at is not None and run.branch and not settled.branch_kept:
            discard(rooms, run.branch, target=run.target)


def _interrupted(rooms: Rooms, progress: Progress) -> str:
    run = progress.run
    if run.branch:
        rooms.engine().cancel()
    publication = _find_publication(rooms, run)
    if publication is not None:
        kept = _drop_branch(rooms, run.branch)
        progress.end(status="published", publication=publication, branch_kept=kept)
        return f"Run {run.run_id} had been published already; see `lakegate runs {run.run_id}`."
    kept = _drop_branch(rooms, run.branch)
    _record_failure(rooms, progress, LakegateError("Interrupted by the user."), branch_kept=kept)
    if not run.branch:
        return "Nothing was published."
    return f"Nothing was published. {_branch_hint(run.branch) if kept else f'Branch {run.branch} was removed.'}"


def _find_publication(rooms: Rooms, run: Run) -> Publication | None:
    try:
        return find_publication(rooms, run)
    except LakegateError:
        return None


def _stands(rooms: Rooms, branch: str) -> bool:
    if not branch:
        return False
    try:
        rooms.catalog.get_ref(branch)
    except RetryableError:
        return True
    except LakegateError:
        return False
    return True


def _drop_branch(rooms: Rooms, branch: str) -> bool:
    """Try to drop ``branch``; return whether it may still stand."""
    try:
        if branch:
            discard(rooms, branch)
    except LakegateError:
        return True
    return False


def _branch_hint(branch: str) -> str:
    return f"Branch {branch} may still stand; drop it with: lakegate discard {branch}"


def _record_failure(rooms: Rooms, progress: Progress, error: LakegateError, *, branch_kept: bool) -> None:
    try:
        progress.end(status="failed", branch_kept=branch_kept, error=_record(error))
    except LakegateError as journal_error:
        # The first error is the one the user must see.
        rooms.narrator.note(f"The journal could not be written: {journal_error.message}")
        # Nobody would take back what was claimed after another process had settled the run.
        with suppress(LakegateError):
            rooms.journal.release(progress.run.run_id)


def _log(run: Run) -> None:
    told: dict[str, object] = {"status": run.status, "rows": run.publication.rows if run.publication else None}
    if run.failures:
        told["failed_checks"] = [result.name for result in run.failures]
    if run.error is not None:
        told |= {"code": run.error.code, "message": run.error.message}
    level = logging.WARNING if run.failures or run.error else logging.INFO
    with bound_to(run):
        _LOG.log(level, "Run %s: %s", run.run_id, run.status, extra={"facts": told})


def _record(error: LakegateError | None) -> RunError | None:
    return None if error is None else RunError.model_validate(error.to_dict())
