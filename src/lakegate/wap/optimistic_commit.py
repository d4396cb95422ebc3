"""Optimistic commits: rebase onto a branch's current head, commit, and retry when a concurrent commit got in first."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MappingProxyType

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.errors import (
    AuditFailedError,
    ConflictError,
    LakegateError,
    LeaseLostError,
    NotReplayableError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable
from lakegate.telemetry.metrics import RETRIES, WAIT_SECONDS, measure
from lakegate.wap import failpoints
from lakegate.wap.context import Context
from lakegate.wap.history import published_to, renames_in

_LONGEST_PAUSE_S = 1.0
_LOCK_TIMEOUT_S = 30.0
_SHORTEST_POLL_S = 0.01
_LONGEST_POLL_S = 0.5
_COMPACTION, _CHANGE = "compaction of ", "change of "
"""The locks that give a run priority on a table. A run that changes rows holds both, in this order; a compaction holds
only the first."""
_SETTLES = (ConflictError, AuditFailedError, LeaseLostError)
"""Errors after which a commit without an answer can't be made any more, because something that it changes or relies on
has changed; or after which another process finds out whether it was made."""
_PRIORITY: ContextVar[Mapping[str, ExitStack]] = ContextVar("lakegate_goes_first", default=MappingProxyType({}))
"""The tables on which the current work has priority (``target/table``), with its locks."""

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
    confirm: Callable[[CommitRequest], CommitRequest | str] | None = None,
) -> str:
    """Commit what ``build`` returns for the head of ``target``, exactly once, and return the commit's hash.

    Args:
        run_id: Run id in the commit's properties, by which a commit is found if its answer was lost.
        build: Called for each attempt.
        unknown: The error to raise if we can't find out whether a commit without an answer was made.
        read_head: Returns the branch at its head, for callers that read more in the same request.
        confirm: Called right before each commit, and returns what to commit. Raises if another process has taken the
            run over.
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
                    built = confirm(built)
                    if isinstance(built, str):
                        return built
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
    waiting: Callable[[], object] | None = None,
) -> Iterator[bool]:
    """Wait for the publish lock of each table, always in the same order; yield whether we got them all.

    The locks save retries, and whoever cancels a run waits for them.

    Args:
        waiting: Called before waiting for a lock that another process holds.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        locks = (
            context.journal.lock(f"{target}/{table}", timeout_s=min(timeout_s, _LOCK_TIMEOUT_S), waiting=waiting)
            for table in sorted(tables)
        )
        locked = [stack.enter_context(lock) for lock in locks]
        measure(WAIT_SECONDS, time.monotonic() - began, queue="publish")
        yield all(locked)


@contextmanager
def with_priority(
    context: Context, target: str, table: str, *, compacts: bool = False, at_most_s: float = math.inf
) -> Iterator[None]:
    """Give the body priority on a table, to retry a run that lost to concurrent commits.

    Meanwhile, other runs wait in :func:`wait_for_priority_runs`. If we already have priority on the table, this does
    nothing. If we have priority on another table, this doesn't wait: the run with priority here may be waiting for us.

    Args:
        compacts: Whether appends needn't wait, because the run can be rebased onto them.
        at_most_s: Longest wait for another run with priority. After that, the body starts anyway: only speed depends
            on it.
    """
    key, held_locks = f"{target}/{table}", _PRIORITY.get()
    if key in held_locks:
        yield
        return
    until = time.monotonic() + (0.0 if held_locks else min(at_most_s, context.publish_within_s))
    with ExitStack() as held:
        for name in (_COMPACTION, *(() if compacts else (_CHANGE,))):
            left_s = max(until - time.monotonic(), 0.0)
            held.enter_context(context.journal.lock(name + key, timeout_s=left_s))
        before = _PRIORITY.set({**held_locks, key: held})
        try:
            yield
        finally:
            _PRIORITY.reset(before)


def give_up_priority() -> None:
    """Give up our priority, because we're about to wait for another run."""
    for held in _PRIORITY.get().values():
        held.close()


def wait_for_priority_runs(
    context: Context, target: str, tables: Sequence[str], *, appends: bool = False, at_most_s: float = math.inf
) -> bool:
    """Wait for runs that have priority on ``tables``; return whether there were any.

    Call it before anything that could make such a run lose again: before each publish, and before a run that can't be
    rebased reads the target. Only the progress of those runs depends on it, so the wait is bounded. A run that itself
    has priority on any table doesn't wait: others wait for it.

    Args:
        appends: Whether the caller only appends, so that compactions can be rebased onto its commit.
    """
    waited: list[str] = []
    until = time.monotonic() + min(at_most_s, context.publish_within_s / 2)
    for table in sorted(tables):
        key, pause_s = f"{target}/{table}", _SHORTEST_POLL_S
        while not _PRIORITY.get() and _is_held(context, (_CHANGE if appends else _COMPACTION) + key):
            if table not in waited:
                waited.append(table)
                context.narrator.note(
                    f"Waiting for a run that changes {table}: it has lost to concurrent commits, so it goes first."
                )
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)
    return bool(waited)


def _is_held(context: Context, name: str) -> bool:
    # Poll, because a thread that waits for a file lock can't be cancelled; few runs wait here.
    with suppress(LakegateError):  # only speed depends on it
        return context.journal.is_locked(name)
    return False


def rebase(context: Context, run: Run, staged: StagedTable, now: TablePointer | None, head: Ref) -> TablePointer:
    """Rebase a staged table onto its state on the target, ``now``; return the state to commit."""
    expired = _expired_snapshots(context, staged, now)
    if expired is None:
        pointer = _rebased(context, run, staged, now)
    else:
        # A new table is put without a content id, an existing one with the target's.
        left_out = _unaudited_snapshots(context, staged) | expired
        pointer = context.editor.trim_snapshots(staged.pointer, at_least=len(staged.snapshot_ids), without=left_out)
        pointer = pointer.model_copy(update={"content_id": now.content_id if now else None})
    for run_id in run.request.replaces if run.request is not None else ():
        paths = published_to(context, run_id, head, pointer.table)
        pointer = context.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: run.run_id})
    return pointer


def _expired_snapshots(context: Context, staged: StagedTable, now: TablePointer | None) -> frozenset[int] | None:
    """Return the snapshots that expired on the target since the run began; ``None`` if the table changed otherwise.

    Appends don't need this, because they're always rebased.
    """
    if now == staged.before:
        return frozenset()
    if staged.only_adds or staged.before is None or now is None:
        return None
    if context.reader.change(staged.before, now).kind != "expire":
        return None
    there = {one.snapshot_id for one in context.reader.snapshots(now)}
    return frozenset(one.snapshot_id for one in context.reader.snapshots(staged.before)) - there


def _rebased(context: Context, run: Run, staged: StagedTable, now: TablePointer | None) -> TablePointer:
    try:
        if staged.compacted and now is not None and staged.before is not None:
            return context.editor.rebase_compaction(staged.pointer, staged.before, now)
        if not staged.only_adds:
            did = staged.reason or "it changed rows"
            reason = f"this run did more than add rows to it: {did}"
        elif now is None:
            reason = "it no longer exists"
        elif staged.before is None and _is_renamed(context, staged):
            reason = "another table was renamed to it"
        else:
            return context.editor.rebase(staged.pointer, staged.snapshot_ids, now, is_ours=not staged.by_anyone)
    except NotReplayableError as error:
        raise not_replayable(context, run, staged.table, error.message.rstrip(".")) from error
    raise not_replayable(context, run, staged.table, reason)


def _is_renamed(context: Context, staged: StagedTable) -> bool:
    """Return whether a table that this run creates got its name from a rename: that table may have the run's files."""
    commits = context.catalog.history(staged.target, until=staged.base)
    return any(str(staged.table) in pair for commit in commits for pair in renames_in(commit))


def _unaudited_snapshots(context: Context, staged: StagedTable) -> frozenset[int]:
    """Return the branch's own snapshots with rows that no check has read.

    If published, anybody could read them by their ids. For an append, they're the snapshots that the current one
    doesn't descend from, such as rolled-back ones. For any other change, they're all but the current one: they may hold
    rows that were deleted before the audit.
    """
    there = {one.snapshot_id: one.parent_id for one in context.reader.snapshots(staged.pointer)}
    known = () if staged.before is None else (one.snapshot_id for one in context.reader.snapshots(staged.before))
    own = there.keys() - set(known)
    if not staged.only_adds:
        return frozenset(own - {staged.pointer.snapshot_id})
    unaudited = own - set(staged.snapshot_ids)
    at: int | None = staged.pointer.snapshot_id
    while unaudited and at is not None:
        unaudited.discard(at)
        at = there.pop(at, None)
    return frozenset(unaudited)


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
