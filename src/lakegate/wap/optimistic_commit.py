"""Optimistic commits: rebase onto a branch's current head, commit, and retry when a concurrent commit got in first."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MappingProxyType

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.context import Context
from lakegate.errors import (
    AuditFailedError,
    ConflictError,
    LakegateError,
    LeaseLostError,
    NotReplayableError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.ledger.publication import published_to
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable
from lakegate.telemetry.metrics import RETRIES, WAIT_SECONDS, measure
from lakegate.wap import failpoints

LOSSES_BEFORE_LOCK = 2
"""How often a run may lose to others until it holds the publish lock while it's written again."""
_LONGEST_PAUSE_S = 1.0
_LOCK_TIMEOUT_S = 60.0
_SETTLE_TIMEOUT_S = 10.0
"""How long to wait for a process that is publishing a run that is cancelled or discarded."""
_NESTED_TIMEOUT_S = 1.0
"""How long to wait for a lock while we hold another one, whose waiters may hold the first."""
_SETTLES = (ConflictError, AuditFailedError, LeaseLostError)
"""Errors after which a commit without an answer can't be made any more, because something that it changes or relies on
has changed; or after which another process finds out whether it was made."""
_HELD: ContextVar[Mapping[str, ExitStack]] = ContextVar("lakegate_publish_locks", default=MappingProxyType({}))
"""The publish locks that the current work holds while it writes a run again (``target/table``)."""

Build = Callable[[Ref], CommitRequest | str]
"""Takes the branch's head, and returns the commit to make on top of it, or the hash of a commit that exists already."""


class _HeadMoved(Exception):  # noqa: N818 - not an error: somebody was faster, so we try again
    """The branch moved between reading its head and committing, or a commit got no answer.

    Attributes:
        error: The error to raise if there's no further attempt.
    """

    def __init__(self, error: LakegateError) -> None:
        super().__init__(error.message)
        self.error = error


class UnansweredCommitInterrupt(KeyboardInterrupt):
    """Interrupted while a commit had no answer: it may be made later."""


def commit_on_head(
    context: Context,
    target: str,
    run_id: str,
    build: Build,
    *,
    unknown: OutcomeUnknownError,
    read_head: Callable[[], Ref] | None = None,
    confirm: Callable[[], None] | None = None,
) -> str:
    """Commit what ``build`` returns for the head of ``target``, exactly once, and return the commit's hash.

    Args:
        run_id: Run id in the commit's properties, by which a commit is found if its answer was lost.
        build: Called for each attempt.
        unknown: The error to raise if we can't find out whether a commit without an answer was made.
        read_head: Returns the branch at its head, for callers that read more in the same request.
        confirm: Called right before each commit; raises if another process has taken the run over.
    """
    unanswered = _Unanswered(context, target, run_id, unknown)
    retrying = Retrying(
        retry=retry_if_exception_type(_HeadMoved),
        stop=stop_after_attempt(context.publish_attempts) | stop_after_delay(context.publish_within_s),
        wait=wait_random_exponential(multiplier=0.02, max=_LONGEST_PAUSE_S),
        reraise=True,
    )
    with unanswered.reported():
        for attempt in retrying:
            with attempt:
                head = read_head() if read_head else context.catalog.get_ref(target)
                built = unanswered.find(head.hash) or build(head)
                if isinstance(built, str):
                    return built
                failpoints.reach("before-commit")
                # As late as possible: a process that takes the run over relies on us not to commit after that.
                if confirm is not None:
                    confirm()
                failpoints.reach("confirmed")
                try:
                    with _interrupts_deferred(), unanswered.noted(head):
                        return context.catalog.commit(built).hash
                except ConflictError as conflict:
                    measure(RETRIES)
                    return unanswered.settle(conflict)
                except OutcomeUnknownError:
                    return unanswered.settle(unknown)
    raise AssertionError("tenacity ends by returning or raising")


@dataclass(slots=True)
class _Unanswered:
    """A run's commits that got no answer.

    Attributes:
        unknown: The error to raise if we can't find out whether one of them was made.
        since: The head before the first of them; ``None`` if there's none.
    """

    context: Context
    target: str
    run_id: str
    unknown: OutcomeUnknownError
    since: str | None = None

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Replace errors and interrupts of the body after which one of the commits may still be made."""
        try:
            yield
        except _HeadMoved as moved:
            raise moved.error from None
        except LakegateError as error:
            if self.since is None or isinstance(error, _SETTLES):
                raise
            raise self.unknown from error
        except KeyboardInterrupt as interrupt:
            if self.since is None:
                raise
            raise UnansweredCommitInterrupt from interrupt

    @contextmanager
    def noted(self, head: Ref) -> Iterator[None]:
        """Remember the body's commit on ``head`` if it gets no answer."""
        try:
            yield
        except (OutcomeUnknownError, KeyboardInterrupt):
            self.since = self.since or head.hash
            raise

    def settle(self, error: LakegateError) -> str:
        """Return the hash of the commit that was made. If none was, try again; after the last try, raise ``error``."""
        own = self.find(self.target)
        if own is None:
            raise _HeadMoved(error)
        return own

    def find(self, ref: str) -> str | None:
        """Return the hash of the commit that was made, if it's in the history of ``ref``."""
        if self.since is None:
            return None
        commits = self.context.catalog.history(ref, until=self.since, run_id=self.run_id)
        return next((commit.hash for commit in commits), None)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM after the body, when we know whether it committed. A second signal isn't deferred."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    current = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in current.items() if callable(handler)}
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if received:
            handlers[signal.Signals(number)](number, frame)
        received.append(number)

    try:
        for number in handlers:
            signal.signal(number, defer)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[signal.Signals(received[0])](received[0], None)


@contextmanager
def publish_lock(
    context: Context,
    target: str,
    tables: Sequence[str],
    *,
    timeout_s: float = math.inf,
) -> Iterator[bool]:
    """Wait for the publish lock of each table, always in the same order; yield whether we have them all.

    The locks save retries, let a run that lost to others publish in peace (:func:`holding_publish_lock`), and whoever
    cancels a run waits for them. Nothing else depends on them, so the wait is bounded.
    """
    began, held = time.monotonic(), _HELD.get()
    wait_s = min(timeout_s, context.publish_within_s, _NESTED_TIMEOUT_S if held else _LOCK_TIMEOUT_S)
    with ExitStack() as stack:
        keys = [f"{target}/{table}" for table in sorted(tables)]
        locked = [key in held or stack.enter_context(context.journal.lock(key, timeout_s=wait_s)) for key in keys]
        measure(WAIT_SECONDS, time.monotonic() - began, queue="publish")
        yield all(locked)


@contextmanager
def holding_publish_lock(
    context: Context, target: str, tables: Iterable[str], *, at_most_s: float = math.inf
) -> Iterator[None]:
    """Hold the publish locks of tables while the body writes a run again that lost to others: nobody starves.

    The others wait in :func:`publish_lock`. If a lock isn't to be had within ``at_most_s``, the body starts anyway.
    """
    with ExitStack() as stack:
        before = _HELD.get()
        until = time.monotonic() + min(at_most_s, context.publish_within_s)
        for key in sorted({f"{target}/{table}" for table in tables} - before.keys()):
            left_s = min(until - time.monotonic(), _NESTED_TIMEOUT_S if before else math.inf)
            if stack.enter_context(context.journal.lock(key, timeout_s=max(left_s, 0.0))):
                _HELD.set({**_HELD.get(), key: stack})
        try:
            yield
        finally:
            _HELD.set(before)


def give_up_publish_locks() -> None:
    """Release the locks of :func:`holding_publish_lock`: we're about to wait for a run that may need them."""
    for stack in _HELD.get().values():
        stack.close()
    _HELD.set({})


class BeingPublishedError(RetryableError):
    """Its owner may be publishing a run right now, so the run's outcome is unknown."""


def require_nobody_publishes(context: Context, run: Run) -> None:
    """Wait for any process that began to publish ``run`` before we had its lease.

    The run's process may be stopped between checking its lease and committing. It holds the publish lock then. Whoever
    takes the lock after us finds the lease lost.

    Raises:
        BeingPublishedError: When that takes too long.
    """
    if run.branch and not run.staged:
        return  # nothing to publish yet; only a run without a branch commits straight to its target
    with publish_lock(context, run.target, run.tables, timeout_s=_SETTLE_TIMEOUT_S) as is_over:
        if not is_over:
            look = f"Try again; to see whether it was published: lakegate runs {run.run_id}"
            busy = [table for table in run.tables if context.journal.is_locked(f"{run.target}/{table}")]
            raise BeingPublishedError(
                f"A process that is publishing to {', '.join(busy)} may be publishing run {run.run_id} right now."
                if busy
                else f"Can't tell whether run {run.run_id} is being published right now: nobody seems to be "
                f"publishing to {run.table}, but we couldn't get the publish lock to make sure.",
                hint=look
                if busy
                else f"{look}. If this process does much at the same time, raise journal.max_connections",
                run_id=run.run_id,
                branch=run.branch or None,
            )


def rebase(context: Context, run: Run, staged: StagedTable, now: TablePointer | None, head: Ref) -> TablePointer:
    """Rebase a staged table onto its state on the target, ``now``; return the state to commit."""
    if now == staged.before or _only_expired(context, staged, now):
        # Anybody can read the snapshots in a table's metadata by their ids. Those that a change went through may hold
        # rows that were deleted before the audit.
        audited = staged.snapshot_ids if staged.only_adds else ()
        pointer = context.editor.as_audited(staged.pointer, now, {*audited, staged.pointer.snapshot_id})
        # A new table is put without a content id, an existing one with the target's.
        pointer = pointer.model_copy(update={"content_id": now.content_id if now else None})
    else:
        pointer = _rebased(context, run, staged, now)
    for run_id in run.request.replaces if run.request is not None else ():
        paths = published_to(context, run_id, head, pointer.table)
        pointer = context.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: run.run_id})
    return pointer


def _only_expired(context: Context, staged: StagedTable, now: TablePointer | None) -> bool:
    """Return whether nothing but an expiry of snapshots happened on the target since a run began that changed rows.

    Appends don't need this, because they're always rebased.
    """
    if staged.only_adds or staged.before is None or now is None:
        return False
    return context.reader.change(staged.before, now).kind == "expire"


def _rebased(context: Context, run: Run, staged: StagedTable, now: TablePointer | None) -> TablePointer:
    try:
        if not staged.only_adds:
            did = staged.reason or "it changed rows"
            reason = f"this run did more than add rows to it: {did}"
        elif now is None:
            reason = "it no longer exists"
        else:
            return context.editor.rebase(staged.pointer, staged.snapshot_ids, now, is_ours=not staged.by_anyone)
    except NotReplayableError as error:
        raise not_replayable(context, run, staged.table, error.message.rstrip(".")) from error
    raise not_replayable(context, run, staged.table, reason)


def not_replayable(context: Context, run: Run, table: TableIdentifier, reason: str) -> NotReplayableError:
    """Return the error for a table that changed on the target, naming the commit that changed it."""
    commits = context.catalog.history(run.target, until=run.base, operations=True)
    other = next((commit for commit in commits if str(table) in commit.tables), None)
    by = f" (commit {other.hash[:12]}: {other.message})" if other else ""
    hint = f"Drop the branch, then write it again on the current {run.target}: lakegate discard {run.branch}"
    if run.request is not None and not run.request.mode.appends:
        hint = (
            f"Ingest the files again when fewer runs publish to {table}. If the run's branch is still there, drop it "
            f"first: lakegate discard {run.branch}"
        )
    if run.kind in ("transaction", "maintenance"):
        hint = f"Run the transaction again on the current {run.target}; lake.transact(work) does that for you."
    return NotReplayableError(
        f"{table} changed on {run.target} after this run started{by}, and {reason}; nothing was published.",
        hint=hint,
        table=str(table),
        branch=run.branch,
        run_id=run.run_id,
        commit=other.hash if other else None,
    )
