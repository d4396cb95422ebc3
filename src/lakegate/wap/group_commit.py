"""Group commit: who holds a table's publish lock takes along the appends that wait for it, in one commit.

A run that has to wait offers itself in the journal's queue first. Whoever has the lock takes what is offered, rebases
it, and commits all at once; whatever can't be taken along (a conflict, a file that was published meanwhile) stays
behind and finds out why in its own turn. A run whose offer was taken asks the catalog whether it was published: the
queue never says so (docs/decisions/0060).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, chain, islice

from lakegate.errors import LakegateError, NewerFormatError, OutcomeUnknownError, RetryableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.journal import HistoryEvent, QueuedPublish
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import Run, StagedTable
from lakegate.wap import failpoints
from lakegate.wap.context import Context
from lakegate.wap.history import events_of, part_of_run, require_not_published, runs_of
from lakegate.wap.optimistic_commit import publish_lock

_MOST_RUNS = 32
"""Runs in one commit: the one that leads it must not wait for too many others."""
_MOST_FILES = 500
"""Source files of a run that is offered: a batch of thousands is worth a commit of its own."""
_MOST_FILES_TOGETHER = 2_000
"""Source files of all runs in one commit, which names them in its properties."""
MOST_COMMITS = 100
"""How far to read back for a run that waits, to see whether its files were published meanwhile."""
_LAST_LOOK_S = 10.0
"""How long to wait for the process that is publishing a run that is cancelled or discarded."""


def can_share(run: Run) -> bool:
    """Return whether a run's commit may be shared: it appends to one table, whatever others do.

    What it read or replaces, or was published against its checks, ties its commit to more than its own rows.
    """
    if len(run.staged) != 1 or run.reads or run.accepted is not None:
        return False
    staged, request = run.staged[0], run.request
    small = request is None or (not request.replaces and len(request.batch.files) <= _MOST_FILES)
    alone = not any(report.reads for report in run.reports)
    return small and alone and staged.only_adds and bool(staged.snapshot_ids)


def offer_of(run: Run, token: str, audit: str, seen: str) -> QueuedPublish:
    """Return what others need to know of a run to publish it."""
    needless: dict[str, object] = {
        "order": None,
        "reports": (),
        "checks": {},
        "steps": (),
        "skipped_files": (),
        "same_content_as": (),
    }
    return QueuedPublish(run=run.model_copy(update=needless), token=token, audit=audit, seen=seen)


@dataclass(slots=True)
class Turn:
    """How a run's wait for the publish lock ended.

    Attributes:
        taken: Whether another run took it along, or may have.
    """

    locked: bool = False
    queued: bool = False
    taken: bool = False


@contextmanager
def waiting_for_turn(
    context: Context, run: Run, offer: Callable[[], QueuedPublish] | None, wait_s: float
) -> Iterator[Turn]:
    """Wait until it is the run's turn to publish, or another run has taken it along; the body acts on that.

    Args:
        offer: What to offer while waiting; ``None`` for a run that nobody may take along.
        wait_s: How long to wait for the lock. Nothing but speed depends on it.

    Raises:
        OutcomeUnknownError: When the run was taken, and is cancelled before it is known what came of that.
    """
    turn = Turn()
    ours = False

    def wait() -> None:
        if offer is not None:
            turn.queued = True
            with suppress(LakegateError):  # then nobody takes it along
                context.journal.publishes.join(offer())
            failpoints.reach("queued")

    try:
        with publish_lock(context, run.target, run.tables, timeout_s=wait_s, waiting=wait) as turn.locked:
            if turn.queued:
                # Without the lock, nobody may take it once it continues alone.
                turn.taken = not (_is_waiting(context, run) if turn.locked else _withdrawn(context, run))
                turn.queued = turn.locked and not turn.taken
            if not turn.taken:
                ours = True
                yield turn
                return
    except BaseException as error:
        if turn.queued and not ours:
            try:
                withdrawn = _withdrawn(context, run)
            except BaseException:  # noqa: BLE001 - a second Ctrl-C
                raise _may_be_published(run) from error
            if not withdrawn:
                require_over(context, run, error)
        raise
    finally:
        if ours and turn.queued:
            with suppress(LakegateError):
                context.journal.publishes.leave(run.run_id)
    # Without the lock: the others needn't wait until this one has found its commit.
    yield turn


def require_over(context: Context, run: Run, error: BaseException) -> None:
    """Wait until whoever took ``run``, which ends by ``error``, has published it or given up."""
    try:
        with publish_lock(context, run.target, run.tables, timeout_s=_LAST_LOOK_S) as is_over:
            if is_over:
                return
    except BaseException:  # noqa: BLE001 - a second Ctrl-C
        raise _may_be_published(run) from error
    raise _may_be_published(run) from error


def _may_be_published(run: Run) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Another process has taken run {run.run_id} along to publish it to {run.table}, and hasn't reported back: "
        "it may or may not be published.",
        hint=f"In a minute: lakegate publish {run.branch} (it never publishes twice)",
        branch=run.branch,
        run_id=run.run_id,
    )


class BeingPublishedError(RetryableError):
    """Its owner, or whoever took a run along, is still at it, so nobody can say whether it'll be published."""


def require_nobody_publishes(context: Context, run: Run) -> None:
    """Wait until nobody publishes ``run`` any more who was about to before we had its lease.

    Its process may be stopped between its last look at its lease and its commit; or it may be dead, while another one
    is about to commit what it offered. Either has the publish lock; whoever takes the lock after us finds neither the
    offer nor its lease.

    Raises:
        BeingPublishedError: When that takes too long.
    """
    if run.branch and not run.staged:
        return  # there's nothing to publish yet; what has no branch commits to its target at once
    with publish_lock(context, run.target, run.tables, timeout_s=_LAST_LOOK_S) as is_over:
        if not is_over:
            look = f"Try again; to see whether it was published: lakegate runs {run.run_id}"
            busy = [table for table in run.tables if context.journal.is_locked(f"{run.target}/{table}")]
            raise BeingPublishedError(
                f"Run {run.run_id} is perhaps being published right now: somebody is publishing to {', '.join(busy)}."
                if busy
                else f"Whether run {run.run_id} is being published right now isn't known: nobody seems to be "
                f"publishing to {run.table}, but the journal gave us no publish lock to make sure of it.",
                hint=look
                if busy
                else f"{look}. If this process does much at the same time, raise journal.max_connections",
                run_id=run.run_id,
                branch=run.branch or None,
            )


def _is_waiting(context: Context, run: Run) -> bool:
    try:
        return context.journal.publishes.is_waiting(run.run_id)
    except LakegateError:
        return False


def _withdrawn(context: Context, run: Run) -> bool:
    try:
        return context.journal.publishes.leave(run.run_id)
    except LakegateError:
        return False


@dataclass(slots=True)
class Companions:
    """The runs that one run takes along in its commit.

    Attributes:
        run: The run that has the publish lock.
        taken: The runs that were taken from the queue, by id. They stay ours until they are published, or their lease
            is somebody else's.
    """

    context: Context
    run: Run
    turn: Turn
    taken: dict[str, QueuedPublish] = field(default_factory=dict)

    @property
    def table(self) -> TableIdentifier:
        """The table that all append to."""
        return self.run.staged[0].table

    def wants(self, offered: Sequence[QueuedPublish]) -> bool:
        """Return whether the queue is to be changed: others are on offer, or the run itself is."""
        return bool(offered) or self.turn.queued

    def offered(self) -> Sequence[QueuedPublish]:
        """Return the runs that could come along, longest waiting first."""
        with suppress(LakegateError):
            found = self.context.journal.publishes.waiting(self.run.target, str(self.table), limit=_MOST_RUNS)
            others = {one.run.run_id: one for one in found if one.run.run_id != self.run.run_id}
            return _limited([*(self.taken | others).values()], _files(self.run))
        return list(self.taken.values())

    def take(
        self, offered: Sequence[QueuedPublish], pointer: TablePointer, head: Ref, commits: Sequence[Commit]
    ) -> tuple[TablePointer, Sequence[QueuedPublish]]:
        """Take along the appends that fit on top of ``pointer``.

        Args:
            pointer: The table as the run that takes them leaves it.
            commits: Its newest commits, newest first.

        Returns:
            The table as all of them leave it, and the runs in it.
        """
        usable = self.unpublished(offered, head, commits)
        try:
            ours = self.context.journal.publishes.take(usable, taken=self.taken, own=self.run.run_id)
        except LakegateError:
            return pointer, ()
        self.turn.queued = False
        self.taken = {one.run.run_id: one for one in usable if one.run.run_id in ours}
        chosen = list(self.taken.values())
        if not chosen:
            return pointer, ()
        failpoints.reach("taken")
        sources = [(_staged(one).pointer, _staged(one).snapshot_ids) for one in chosen]
        own = len(self.run.staged[0].snapshot_ids)
        try:
            pointer, refused = self.context.editor.replay_each(sources, pointer, at_least=own)
        except Exception:  # noqa: BLE001 - whatever is wrong with one of them, it finds out on its own
            return pointer, ()
        return pointer, [one for place, one in enumerate(chosen) if place not in refused]

    def are_ours(self, chosen: Sequence[QueuedPublish]) -> bool:
        """Renew the leases of runs that were taken, directly before they're committed; return whether all have them."""
        if not chosen:
            return True
        with suppress(LakegateError):
            ours = self.context.journal.publishes.take(chosen, taken=self.taken, own=self.run.run_id)
            return all(one.run.run_id in ours for one in chosen)
        return False

    def unpublished(
        self, offered: Sequence[QueuedPublish], head: Ref, commits: Sequence[Commit]
    ) -> Sequence[QueuedPublish]:
        """Return the runs that aren't published yet, with source files that nobody has published since they looked."""
        found: list[QueuedPublish] = []
        group = [_event(self.run)]
        past = _Past(self.context, head, commits)
        for one in offered:
            try:
                since = past.since(one.seen)
                if since is None or any(one.run.run_id in commit.runs for commit in since):
                    continue
                # Few have a file in common with anybody, and those that wait may have begun long ago.
                names = _names(_event(one.run))
                near = [] if all(names.isdisjoint(commit.names) for commit in since) else since
                require_not_published(one.run, [*group, *(event for commit in near for event in commit.events)])
            except LakegateError:
                continue  # it finds out on its own
            found.append(one)
            group.insert(0, _event(one.run))
        return found


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit says of its runs, newest first, and all that it names their source files by."""

    commit: Commit
    runs: Collection[str]
    events: Sequence[HistoryEvent]
    names: frozenset[str]

    @classmethod
    def of(cls, commit: Commit) -> _Commit:
        events = events_of(commit)[::-1]
        return cls(commit, runs_of(commit), events, frozenset[str]().union(*map(_names, events)))


class _Past:
    """The target's commits, newest first; what the leader hasn't read is read once for all that wait, as needed."""

    def __init__(self, context: Context, head: Ref, commits: Sequence[Commit]) -> None:
        self._head = head.hash
        self._commits: list[_Commit] = []
        self._further: Iterator[Commit] = chain(
            commits, self._older(context, commits[-1].parent if commits else head.hash)
        )

    def since(self, seen: str) -> Sequence[_Commit] | None:
        """Return the commits after ``seen``, newest first; ``None`` if they can't be known at little cost."""
        if seen == self._head:
            return ()
        for place, one in enumerate(self._commits, 1):
            if one.commit.parent == seen:
                return self._commits[:place]
        for commit in self._further:
            try:
                self._commits.append(_Commit.of(commit))
            except NewerFormatError:
                self._further = iter(())  # what's before it isn't known to anybody
                raise
            if commit.parent == seen:
                return self._commits[:]
        return None

    @staticmethod
    def _older(context: Context, commit: str | None) -> Iterator[Commit]:
        if commit is not None:
            yield from islice(context.catalog.history(commit), MOST_COMMITS)


def _limited(offered: Sequence[QueuedPublish], files: int) -> Sequence[QueuedPublish]:
    """Return the first of them that one commit has room for, besides ``files`` source files."""
    together = accumulate((_files(one.run) for one in offered), initial=files)
    room = sum(number <= _MOST_FILES_TOGETHER for number in islice(together, 1, None))
    return offered[: min(room, _MOST_RUNS)]


def _files(run: Run) -> int:
    return 0 if run.request is None else len(run.request.batch.files)


def _staged(one: QueuedPublish) -> StagedTable:
    return one.run.staged[0]


def _names(event: HistoryEvent) -> frozenset[str]:
    """Return all that a run's source files go by: two runs without one in common have no file in common."""
    revived = (name for _, uri, version, _ in event.revives for name in (uri, version))
    return frozenset((*(name for file in event.files for name in file), *event.identities, *revived)) - {""}


def _event(run: Run) -> HistoryEvent:
    """Return what the history will say of a run that is about to be published."""
    part = part_of_run(run, "")
    return HistoryEvent(
        commit="",
        run_id=run.run_id,
        tables=run.tables,
        files=part.files,
        identities=part.identities,
        time=datetime.now(UTC),
    )
