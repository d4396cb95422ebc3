"""Group commit: the run with a table's publish lock also commits the appends that wait for the lock.

A run that has to wait first enters the journal's publish queue. The leader, which has the lock, takes the queued runs,
rebases them, and commits them together with its own. A run that can't be included, because of a conflict or because one
of its files was published in the meantime, publishes by itself later, and raises that error then. A run that was taken
from the queue learns from the catalog whether it was published, never from the queue (docs/decisions/0060).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, chain, islice

from lakegate.errors import LakegateError, NewerFormatError, OutcomeUnknownError, RetryableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import HistoryEvent, QueuedPublish, Run, StagedTable
from lakegate.wap import failpoints
from lakegate.wap.context import Context
from lakegate.wap.history import events_of, part_of_run, require_not_published, runs_of
from lakegate.wap.optimistic_commit import publish_lock

_MOST_RUNS = 32
"""Maximum number of runs in one commit, because the leader has to rebase them all."""
_MOST_FILES = 500
"""Maximum number of source files of a queued run: a batch of thousands is worth a commit of its own."""
_MOST_FILES_TOGETHER = 2_000
"""Maximum number of source files in one commit, because its properties name them all."""
MOST_COMMITS = 100
"""How many commits to read back for a queued run, to see whether its files have been published since."""
_SETTLE_TIMEOUT_S = 10.0
"""How long to wait for a process that is publishing a run that is cancelled or discarded."""


def can_share(run: Run) -> bool:
    """Return whether a run may share a commit: it only appends to one table, and depends on no other rows.

    A run that read or replaces something, or that is published although its audit failed, needs its own commit.
    """
    if len(run.staged) != 1 or run.reads or run.accepted is not None:
        return False
    staged, request = run.staged[0], run.request
    small = request is None or (not request.replaces and len(request.batch.files) <= _MOST_FILES)
    alone = not any(report.reads for report in run.reports)
    return small and alone and staged.only_adds and bool(staged.snapshot_ids)


def queue_entry(run: Run, token: str, audit: str, seen: str) -> QueuedPublish:
    """Return a run's entry for the publish queue: what another process needs to publish it."""
    omitted: dict[str, object] = {
        "order": None,
        "reports": (),
        "checks": {},
        "steps": (),
        "skipped_files": (),
        "same_content_as": (),
    }
    return QueuedPublish(run=run.model_copy(update=omitted), token=token, audit=audit, seen=seen)


@dataclass(slots=True)
class LockWait:
    """How a run's wait for the publish lock ended.

    Attributes:
        queued: Whether the run is in the publish queue.
        taken: Whether another run's commit includes this run, or may include it.
    """

    locked: bool = False
    queued: bool = False
    taken: bool = False


@contextmanager
def waiting_for_lock(
    context: Context, run: Run, make_entry: Callable[[], QueuedPublish] | None, wait_s: float
) -> Iterator[LockWait]:
    """Wait for the publish lock, or until another run's commit may include this run; the body acts on that.

    Args:
        make_entry: Makes the run's queue entry when it has to wait; ``None`` for a run that can't share a commit.
        wait_s: How long to wait for the lock. Only speed depends on it.

    Raises:
        OutcomeUnknownError: When another process took the run from the queue, and this one is cancelled before it
            knows the outcome.
    """
    lock_wait = LockWait()
    ours = False

    def wait() -> None:
        if make_entry is not None:
            lock_wait.queued = True
            with suppress(LakegateError):  # then it isn't queued, and nobody else publishes it
                context.journal.publishes.join(make_entry())
            failpoints.reach("queued")

    try:
        with publish_lock(context, run.target, run.tables, timeout_s=wait_s, waiting=wait) as lock_wait.locked:
            if lock_wait.queued:
                # Without the lock, leave the queue first: nobody may take a run that continues alone.
                lock_wait.taken = not (_is_queued(context, run) if lock_wait.locked else _leave_queue(context, run))
                lock_wait.queued = lock_wait.locked and not lock_wait.taken
            if not lock_wait.taken:
                ours = True
                yield lock_wait
                return
    except BaseException as error:
        if lock_wait.queued and not ours:
            try:
                withdrawn = _leave_queue(context, run)
            except BaseException:  # noqa: BLE001 - a second Ctrl-C
                raise _may_be_published(run) from error
            if not withdrawn:
                require_settled(context, run, error)
        raise
    finally:
        if ours and lock_wait.queued:
            with suppress(LakegateError):
                context.journal.publishes.leave(run.run_id)
    # The lock is released here: others needn't wait while this run looks for its commit.
    yield lock_wait


def require_settled(context: Context, run: Run, error: BaseException) -> None:
    """Wait until the process that took ``run`` from the queue has published it or given up.

    Args:
        error: Why this process stops working on the run; the cause of an error raised here.
    """
    try:
        with publish_lock(context, run.target, run.tables, timeout_s=_SETTLE_TIMEOUT_S) as is_over:
            if is_over:
                return
    except BaseException:  # noqa: BLE001 - a second Ctrl-C
        raise _may_be_published(run) from error
    raise _may_be_published(run) from error


def _may_be_published(run: Run) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Another process is publishing run {run.run_id} to {run.table} together with its own, and hasn't reported "
        "back: the run may or may not be published.",
        hint=f"Wait a minute, then: lakegate publish {run.branch} (it never publishes twice)",
        branch=run.branch,
        run_id=run.run_id,
    )


class BeingPublishedError(RetryableError):
    """Its owner or another process may be publishing a run right now, so the run's outcome is unknown."""


def require_nobody_publishes(context: Context, run: Run) -> None:
    """Wait for any process that began to publish ``run`` before we had its lease.

    The run's process may be stopped between checking its lease and committing. Or it's dead, while another process is
    about to commit the run from the queue. Either holds the publish lock. Whoever takes the lock after us finds
    neither the queue entry nor the lease.

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


def _is_queued(context: Context, run: Run) -> bool:
    with suppress(LakegateError):
        return context.journal.publishes.is_waiting(run.run_id)
    return False


def _leave_queue(context: Context, run: Run) -> bool:
    with suppress(LakegateError):
        return context.journal.publishes.leave(run.run_id)
    return False


@dataclass(slots=True)
class CommitGroup:
    """The queued runs that the leader of a group commit includes.

    Attributes:
        run: The leader: the run that has the publish lock.
        lock_wait: How the leader got the lock.
        taken: The runs taken from the queue, by id. They stay ours until they're published or lose their lease.
    """

    context: Context
    run: Run
    lock_wait: LockWait
    taken: dict[str, QueuedPublish] = field(default_factory=dict)

    @property
    def table(self) -> TableIdentifier:
        """The table that all of them append to."""
        return self.run.staged[0].table

    def changes_queue(self, queued_runs: Sequence[QueuedPublish]) -> bool:
        """Return whether the queue has to change: other runs are waiting in it, or the leader itself is."""
        return bool(queued_runs) or self.lock_wait.queued

    def queued_runs(self) -> Sequence[QueuedPublish]:
        """Return the runs that could be included, longest waiting first."""
        with suppress(LakegateError):
            found = self.context.journal.publishes.waiting(self.run.target, str(self.table), limit=_MOST_RUNS)
            others = {one.run.run_id: one for one in found if one.run.run_id != self.run.run_id}
            return _limited([*(self.taken | others).values()], _files(self.run))
        return list(self.taken.values())

    def take(
        self, queued_runs: Sequence[QueuedPublish], pointer: TablePointer, head: Ref, commits: Sequence[Commit]
    ) -> tuple[TablePointer, Sequence[QueuedPublish]]:
        """Take queued runs, and rebase those that fit onto ``pointer``.

        Args:
            pointer: The table as the leader leaves it.
            commits: The target's newest commits, newest first.

        Returns:
            The table with the rows of all of them, and the included runs.
        """
        usable = self.unpublished(queued_runs, head, commits)
        try:
            ours = self.context.journal.publishes.take(usable, taken=self.taken, own=self.run.run_id)
        except LakegateError:
            return pointer, ()
        self.lock_wait.queued = False
        self.taken = {one.run.run_id: one for one in usable if one.run.run_id in ours}
        chosen = list(self.taken.values())
        if not chosen:
            return pointer, ()
        failpoints.reach("taken")
        sources = [(_staged(one).pointer, _staged(one).snapshot_ids) for one in chosen]
        own = len(self.run.staged[0].snapshot_ids)
        is_ours = not any(_staged(one).by_anyone for one in chosen)
        try:
            pointer, refused = self.context.editor.rebase_each(sources, pointer, at_least=own, is_ours=is_ours)
        except Exception:  # noqa: BLE001 - whatever is wrong with a run, its own process finds out
            return pointer, ()
        return pointer, [one for place, one in enumerate(chosen) if place not in refused]

    def renew_leases(self, chosen: Sequence[QueuedPublish]) -> bool:
        """Renew the leases of included runs right before the commit; return whether all still have theirs."""
        if not chosen:
            return True
        with suppress(LakegateError):
            ours = self.context.journal.publishes.take(chosen, taken=self.taken, own=self.run.run_id)
            return all(one.run.run_id in ours for one in chosen)
        return False

    def unpublished(
        self, queued_runs: Sequence[QueuedPublish], head: Ref, commits: Sequence[Commit]
    ) -> Sequence[QueuedPublish]:
        """Return the runs that aren't published yet, and whose source files nobody has published in the meantime."""
        found: list[QueuedPublish] = []
        group = [_event(self.run)]
        history = _TargetHistory(self.context, head, commits)
        for one in queued_runs:
            try:
                since = history.since(one.seen)
                if since is None or any(one.run.run_id in commit.runs for commit in since):
                    continue
                if _staged(one).before is None and any(event.renames for commit in since for event in commit.events):
                    continue  # the table that it creates may have got its name from a rename
                # Comparing names first is cheap: few runs share a file, and a queued run may have begun long ago.
                names = _names(_event(one.run))
                near = [] if all(names.isdisjoint(commit.names) for commit in since) else since
                require_not_published(one.run, [*group, *(event for commit in near for event in commit.events)])
            except LakegateError:
                continue  # the run's own process will see this error
            found.append(one)
            group.insert(0, _event(one.run))
        return found


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit's runs and their events, newest first, with all names of their source files."""

    commit: Commit
    runs: Collection[str]
    events: Sequence[HistoryEvent]
    names: frozenset[str]

    @classmethod
    def of(cls, commit: Commit) -> _Commit:
        events = events_of(commit)[::-1]
        return cls(commit, runs_of(commit), events, frozenset[str]().union(*map(_names, events)))


class _TargetHistory:
    """The target's commits, newest first. Those that the leader hasn't read are read when needed, once for all runs."""

    def __init__(self, context: Context, head: Ref, commits: Sequence[Commit]) -> None:
        self._head = head.hash
        self._commits: list[_Commit] = []
        self._further: Iterator[Commit] = chain(
            commits, self._older(context, commits[-1].parent if commits else head.hash)
        )

    def since(self, seen: str) -> Sequence[_Commit] | None:
        """Return the commits after ``seen``, newest first; ``None`` if it's too far back."""
        if seen == self._head:
            return ()
        for place, one in enumerate(self._commits, 1):
            if one.commit.parent == seen:
                return self._commits[:place]
        for commit in self._further:
            try:
                self._commits.append(_Commit.of(commit))
            except NewerFormatError:
                self._further = iter(())  # we can't read past it
                raise
            if commit.parent == seen:
                return self._commits[:]
        return None

    @staticmethod
    def _older(context: Context, commit: str | None) -> Iterator[Commit]:
        if commit is not None:
            yield from islice(context.catalog.history(commit), MOST_COMMITS)


def _limited(queued_runs: Sequence[QueuedPublish], files: int) -> Sequence[QueuedPublish]:
    """Return as many of the queued runs as fit into a commit that already has ``files`` source files."""
    together = accumulate((_files(one.run) for one in queued_runs), initial=files)
    room = sum(number <= _MOST_FILES_TOGETHER for number in islice(together, 1, None))
    return queued_runs[: min(room, _MOST_RUNS)]


def _files(run: Run) -> int:
    return 0 if run.request is None else len(run.request.batch.files)


def _staged(one: QueuedPublish) -> StagedTable:
    return one.run.staged[0]


def _names(event: HistoryEvent) -> frozenset[str]:
    """Return all names of a run's source files: runs without a name in common have no file in common."""
    revived = (name for _, uri, version, _ in event.revives for name in (uri, version))
    identities = (*event.identities, *event.revived_identities)
    return frozenset((*(name for file in event.files for name in file), *identities, *revived)) - {""}


def _event(run: Run) -> HistoryEvent:
    """Return the history event of a run that is about to be published."""
    part = part_of_run(run, "")
    return HistoryEvent(
        commit="",
        run_id=run.run_id,
        tables=run.tables,
        files=part.files,
        identities=part.identities,
        time=datetime.now(UTC),
    )
