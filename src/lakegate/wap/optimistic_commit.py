"""One commit on a branch's current head: rebase onto it, and retry while others are faster."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from types import FrameType, MappingProxyType

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.errors import ConflictError, LakegateError, NotReplayableError, OutcomeUnknownError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable
from lakegate.telemetry.metrics import RETRIES, WAIT_SECONDS, measure
from lakegate.wap import failpoints
from lakegate.wap.context import Context
from lakegate.wap.history import published_to

_LONGEST_PAUSE_S = 1.0
_LOCK_TIMEOUT_S = 30.0
_SHORTEST_POLL_S = 0.01
_LONGEST_POLL_S = 0.5
_COMPACTION, _CHANGE = "compaction of ", "change of "
"""Locks of a table: a run that changes rows holds both, in this order, a compaction the first."""
_OURS: ContextVar[Mapping[str, ExitStack]] = ContextVar("lakegate_goes_first", default=MappingProxyType({}))
"""The tables of targets on which what runs now goes first, with its locks."""

Build = Callable[[Ref], CommitRequest | str]
"""From the branch's head: what to commit on top of it, or the hash of the commit when it turns out to be there."""


class _Moved(Exception):  # noqa: N818 - not an error: somebody was faster, so we try again
    """The branch moved between looking and committing."""

    def __init__(self, conflict: ConflictError) -> None:
        super().__init__(conflict.message)
        self.conflict = conflict


def commit_on_head(
    context: Context,
    target: str,
    run_id: str,
    build: Build,
    *,
    unknown: OutcomeUnknownError,
    look: Callable[[], Ref] | None = None,
    confirm: Callable[[CommitRequest], CommitRequest | str] | None = None,
) -> str:
    """Commit what ``build`` makes of the head of ``target``, once, and return the commit's hash.

    Args:
        run_id: Run id in the commit's properties, which finds a commit whose answer was lost.
        build: Called for each attempt.
        unknown: The error to raise when the catalog went away with the commit and hasn't come back.
        look: Returns the branch at its head, for callers that read more in the same request.
        confirm: Called directly before each commit; raises when another process has taken the run over, and returns
            what to commit.
    """
    unanswered_since: str | None = None
    retrying = Retrying(
        retry=retry_if_exception_type(_Moved),
        stop=stop_after_attempt(context.publish_attempts) | stop_after_delay(context.publish_within_s),
        wait=wait_random_exponential(multiplier=0.02, max=_LONGEST_PAUSE_S),
        reraise=True,
    )
    try:
        for attempt in retrying:
            with attempt:
                head = look() if look else context.catalog.get_ref(target)
                built = _own_commit(context, head.hash, run_id, unanswered_since) or build(head)
                if isinstance(built, str):
                    return built
                failpoints.reach("before-commit")
                # As late as possible: whoever took the run over relies on us not committing any more.
                if confirm is not None:
                    built = confirm(built)
                    if isinstance(built, str):
                        return built
                failpoints.reach("confirmed")
                try:
                    with _interrupts_deferred():
                        return context.catalog.commit(built).hash
                except ConflictError as conflict:
                    measure(RETRIES)
                    raise _Moved(conflict) from conflict
                except OutcomeUnknownError as error:
                    unanswered_since = unanswered_since or head.hash
                    try:
                        own = _own_commit(context, target, run_id, unanswered_since)
                    except LakegateError:
                        raise unknown from error
                    if own is not None:
                        return own
                    raise _Moved(ConflictError(error.message, hint=error.hint, **error.context)) from error
    except _Moved as moved:
        raise moved.conflict from None
    raise AssertionError("tenacity ends by returning or raising")


def _own_commit(context: Context, ref: str, run_id: str, since: str | None) -> str | None:
    """Return the run's commit since ``since``, if one may be there whose answer was lost."""
    commits = () if since is None else context.catalog.history(ref, until=since, run_id=run_id)
    return next((commit.hash for commit in commits), None)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Act on Ctrl-C and SIGTERM when the body is done, because only then it is known whether it committed.

    A second signal acts at once.
    """
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
    """Queue up with concurrent publishes for each table, in one order for all; yield whether we are next for all.

    It saves retries, and whoever calls a run off waits for it. ``waiting`` is called once for each lock that another
    process holds, before waiting for it.
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
def going_first(
    context: Context, target: str, table: str, *, compacts: bool = False, at_most_s: float = math.inf
) -> Iterator[None]:
    """Have all others wait in :func:`let_beaten_runs_pass` while the body does a beaten run's work once more.

    In a body that goes first already, it does nothing. In one that goes first on another table, it doesn't wait:
    whoever goes first here may wait for that one.

    Args:
        compacts: Whether appends needn't wait, because the run is rebased onto them.
        at_most_s: How long to wait for another such run, at most. If that takes longer, the body begins all the same:
            only speed depends on it.
    """
    place, ours = f"{target}/{table}", _OURS.get()
    if place in ours:
        yield
        return
    until = time.monotonic() + (0.0 if ours else min(at_most_s, context.publish_within_s))
    with ExitStack() as held:
        for name in (_COMPACTION, *(() if compacts else (_CHANGE,))):
            left_s = max(until - time.monotonic(), 0.0)
            held.enter_context(context.journal.lock(name + place, timeout_s=left_s))
        before = _OURS.set({**ours, place: held})
        try:
            yield
        finally:
            _OURS.reset(before)


def step_aside() -> None:
    """Let others pass: what goes first is about to wait for one of them."""
    for held in _OURS.get().values():
        held.close()


def let_beaten_runs_pass(
    context: Context, target: str, tables: Sequence[str], *, appends: bool = False, at_most_s: float = math.inf
) -> bool:
    """Wait for runs on ``tables`` that others have beaten before and that begin anew; return whether there were any.

    Called before what would beat them again: before each publish, and before what isn't rebased reads the target.
    Only those runs' progress depends on it, so the wait is bounded, and there's none for what goes first itself, on
    whichever table: others wait for it.

    Args:
        appends: Whether compactions can be rebased onto what is done next.
    """
    waited: list[str] = []
    until = time.monotonic() + min(at_most_s, context.publish_within_s / 2)
    for table in sorted(tables):
        place, pause_s = f"{target}/{table}", _SHORTEST_POLL_S
        while not _OURS.get() and _is_held(context, (_CHANGE if appends else _COMPACTION) + place):
            if table not in waited:
                waited.append(table)
                context.narrator.note(
                    f"Waiting for a run that changes {table}: it lost to others before, and goes first now."
                )
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)
    return bool(waited)


def _is_held(context: Context, name: str) -> bool:
    # Asked again and again: a thread that waits for a file's lock can't be called off, and few wait here.
    with suppress(LakegateError):  # only speed depends on it
        return context.journal.is_locked(name)
    return False


def rebase(context: Context, run: Run, staged: StagedTable, now: TablePointer | None, head: Ref) -> TablePointer:
    """Return what to commit for a staged table whose state on the target is ``now``."""
    forgotten = _forgotten(context, staged, now)
    if forgotten is None:
        pointer = _replayed(context, run, staged, now)
    else:
        # A table that the target lacks must be put without an id, one that it has with the target's.
        aside = _written_aside(context, staged) | forgotten
        pointer = context.editor.trim_snapshots(staged.pointer, at_least=len(staged.snapshot_ids), without=aside)
        pointer = pointer.model_copy(update={"content_id": now.content_id if now else None})
    for run_id in run.request.replaces if run.request is not None else ():
        paths = published_to(context, run_id, head, pointer.table)
        pointer = context.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: run.run_id})
    return pointer


def _forgotten(context: Context, staged: StagedTable, now: TablePointer | None) -> frozenset[int] | None:
    """Return the snapshots that a table has forgotten since the run began; ``None`` if more than that happened to it.

    An append needn't know: it's replayed whatever happened.
    """
    if now == staged.before:
        return frozenset()
    if staged.only_adds or staged.before is None or now is None:
        return None
    if context.reader.change(staged.before, now).kind != "expire":
        return None
    there = {one.snapshot_id for one in context.reader.snapshots(now)}
    return frozenset(one.snapshot_id for one in context.reader.snapshots(staged.before)) - there


def _replayed(context: Context, run: Run, staged: StagedTable, now: TablePointer | None) -> TablePointer:
    if staged.compacted and now is not None and staged.before is not None:
        try:
            return context.editor.replay_rewrite(staged.pointer, staged.before, now)
        except NotReplayableError as error:
            raise not_replayable(context, run, staged.table, error.message.rstrip(".")) from error
    if not staged.only_adds:
        did = staged.reason or "it changed rows"
        raise not_replayable(context, run, staged.table, f"this run did more than add rows to it: {did}")
    if now is None:
        raise not_replayable(context, run, staged.table, "it no longer exists")
    try:
        return context.editor.replay(staged.pointer, staged.snapshot_ids, now)
    except NotReplayableError as error:
        raise not_replayable(context, run, staged.table, error.message.rstrip(".")) from error


def _written_aside(context: Context, staged: StagedTable) -> frozenset[int]:
    """Return the branch's own snapshots with rows that no check looked at.

    Anybody could read them on the target by their ids. They're those that the current one doesn't descend from, such as
    rolled-back ones; and of a change that did more than append, all but the current one: what it held in between, and
    deleted before the audit.
    """
    there = {one.snapshot_id: one.parent_id for one in context.reader.snapshots(staged.pointer)}
    known = () if staged.before is None else (one.snapshot_id for one in context.reader.snapshots(staged.before))
    own = there.keys() - set(known)
    if not staged.only_adds:
        return frozenset(own - {staged.pointer.snapshot_id})
    aside = own - set(staged.snapshot_ids)
    at: int | None = staged.pointer.snapshot_id
    while aside and at is not None:
        aside.discard(at)
        at = there.pop(at, None)
    return frozenset(aside)


def not_replayable(context: Context, run: Run, table: TableIdentifier, reason: str) -> NotReplayableError:
    """Return the error of a table that moved on the target, naming the commit that moved it."""
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
