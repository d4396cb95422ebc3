"""What it takes to undo runs: for each of their tables the steps from its state now, and the runs that are in the way.

Runs are undone one by one, newest first, on the states that this gives. Nothing is written here: a state is the set of
data files that would be live in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakegate.errors import NotRevertableError
from lakegate.flow.published import added_paths
from lakegate.flow.rooms import Rooms
from lakegate.flow.undo_past import (
    Change,
    Past,
    files_of,
    kind_of,
    named,
    run_of,
    tables_of,
    tables_read_by,
)
from lakegate.model.files import DataFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, TablePointer


@dataclass(frozen=True, slots=True)
class Reset:
    """Start from an earlier state of the table."""

    pointer: TablePointer


@dataclass(frozen=True, slots=True)
class Replay:
    """Append again what a later commit appended."""

    source: TablePointer
    snapshot_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Take data files out."""

    paths: frozenset[str]


Step = Reset | Replay | Drop


@dataclass(slots=True)
class TablePlan:
    """How one table comes to stand.

    Attributes:
        now: Its state at the head.
        before: The data files it has now, by path.
        live: The data files it will have.
        steps: The way there.
        dropped: Whether it goes altogether.
    """

    now: TablePointer
    before: Mapping[str, DataFile]
    live: dict[str, DataFile]
    steps: list[Step] = field(default_factory=list)
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """All of one undoing.

    Attributes:
        runs: Runs to undo, newest first.
        tables: What becomes of each table.
        revived: Commits of runs that stand again, because what had replaced their files goes.
    """

    runs: tuple[str, ...]
    tables: Mapping[TableIdentifier, TablePlan]
    revived: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class Dependent:
    """A later commit without which a run cannot be undone, or not rightly."""

    commit: Commit
    table: TableIdentifier
    what: str

    def __str__(self) -> str:
        return f"{named(self.commit)} {self.what} {self.table}"


def plan_undo(rooms: Rooms, past: Past, run_id: str, *, cascade: bool) -> UndoPlan:
    """Return how to undo ``run_id``, whose commit is the first of ``past``.

    Args:
        rooms: The lake's rooms.
        past: Its commit and all later ones.
        run_id: The run.
        cascade: Whether to undo the runs, too, that depend on it.

    Raises:
        NotRevertableError: When later runs depend on it and ``cascade`` is not set, or when one of those cannot be
            undone.
    """
    undone = {run_id: past.commits[0]}
    dependents: list[Dependent] = []
    while True:
        draft = _Draft(rooms, past, list(undone.values()))
        plan = draft.plan()
        if not draft.dependents:
            break
        for one in draft.dependents:
            undone[_cascadable(run_id, one)] = one.commit
        dependents += draft.dependents
    if dependents and not cascade:
        raise _depended_on(run_id, dependents)
    return plan


class _Draft:
    """Plans the undoing of certain commits, and collects what is in the way of it."""

    def __init__(self, rooms: Rooms, past: Past, commits: Sequence[Commit]) -> None:
        self._rooms = rooms
        self._past = past
        self._order = {commit.hash: at for at, commit in enumerate(past.commits)}
        self._commits = sorted(commits, key=lambda commit: -self._order[commit.hash])
        self._runs = [run_id for commit in self._commits if (run_id := run_of(commit))]
        self._tables: dict[TableIdentifier, TablePlan] = {}
        self._changes: dict[TableIdentifier, list[Change]] = {}
        self._found: dict[str, Dependent] = {}

    @property
    def dependents(self) -> list[Dependent]:
        """The commits in the way, newest first."""
        return sorted(self._found.values(), key=lambda one: -self._order[one.commit.hash])

    def plan(self) -> UndoPlan:
        """Return the plan; of no use while there are dependents."""
        for commit in self._commits:
            for table in (TableIdentifier.parse(name) for name in tables_of(commit)):
                if self._past.stands(commit, table):
                    self._undo(self._change(commit, table))
        return UndoPlan(tuple(self._runs), self._tables, () if self._found else self._revived())

    def _undo(self, change: Change) -> None:
        state = self._state(change)
        self._find_readers(change)
        later = [one for one in self._later(change) if self._counts(change, one)]
        if change.before is None and not later:
            state.live, state.steps, state.dropped = {}, [], True
        elif change.before is None or change.appended:
            self._drop(change, later, state)
        else:
            self._rebuild(change, later, state)

    def _drop(self, change: Change, later: Sequence[Change], state: TablePlan) -> None:
        """Take the run's data files out of the state."""
        paths = self._paths(change)
        missing = paths - state.live.keys()
        in_the_way = [one for one in later if one.deletes_rows] if self._has_delete_files(state.now) else []
        if missing:
            rewriting = (one for one in later if not one.appended)
            in_the_way += [one for one in rewriting if not missing <= self._live(one.after).keys()]
        self._depend(in_the_way, "changed the rows it published to")
        if missing and not in_the_way:
            raise _refused(change, f"its data files are not in {change.table} any more")
        state.live = {path: file for path, file in state.live.items() if path not in paths}
        if state.steps and isinstance(state.steps[-1], Drop):
            paths |= state.steps.pop().paths  # type: ignore[union-attr]  # it is one
        state.steps.append(Drop(paths))

    def _rebuild(self, change: Change, later: Sequence[Change], state: TablePlan) -> None:
        """Go back to the state before the run, and append again what was appended since."""
        assert change.before is not None  # noqa: S101 - for the type checker; the caller asked
        self._depend([one for one in later if not one.appended], "changed what it left of")
        state.live = dict(self._live(change.before))
        state.steps = [Reset(change.before)]
        for one in later:
            if one.after is not None and one.appended:
                state.steps.append(Replay(one.after, one.snapshot_ids))
                state.live.update(self._live(one.after, added_by=one))

    def _has_delete_files(self, pointer: TablePointer) -> bool:
        snapshot = self._rooms.reader.metadata(pointer).snapshot
        return snapshot is not None and bool(int(snapshot.summary.get("total-delete-files", 0)))

    def _paths(self, change: Change) -> frozenset[str]:
        if change.appended:
            return added_paths(self._rooms, change.before, _there(change))
        return frozenset(self._live(change.after))

    def _counts(self, change: Change, later: Change) -> bool:
        """Return whether ``later`` has a part in the table's state without what is undone, now or before."""
        if not self._past.stands(later.commit, later.table, without=self._runs):
            return False
        if kind_of(later.commit) != "revert":
            return True
        return self._undoes_before(change, later)

    def _undoes_before(self, change: Change, later: Change) -> bool:
        """Return whether a revert took rows away that were there before ``change``."""
        since = {one.commit.hash for one in self._later(change)} | {change.commit.hash}
        undone = self._past.undone_commits(later.commit, later.table)
        return any(commit.hash not in since for commit in undone)

    def _find_readers(self, change: Change) -> None:
        for commit in self._past.commits[self._order[change.commit.hash] + 1 :]:
            if str(change.table) in tables_read_by(commit) and self._relies(commit):
                self._found.setdefault(commit.hash, Dependent(commit, change.table, "relies on its rows in"))

    def _relies(self, commit: Commit) -> bool:
        return any(self._past.stands(commit, written, without=self._runs) for written in tables_of(commit))

    def _depend(self, changes: Sequence[Change], what: str) -> None:
        for one in changes:
            self._found.setdefault(one.commit.hash, Dependent(one.commit, one.table, what))

    def _revived(self) -> tuple[Commit, ...]:
        """Return the commits of runs that stand again, because what had replaced their files goes."""
        found: dict[str, Commit] = {}
        for table in self._tables:
            _, back = self._past.changed_by(table, self._runs)
            for commit in back:
                self._require_new(commit, table)
                found[commit.hash] = commit
        return tuple(found.values())

    def _require_new(self, back: Commit, table: TableIdentifier) -> None:
        for later in self._past.commits:
            again = files_of(back) & files_of(later)
            if later.hash == back.hash or not again or str(table) not in tables_of(later):
                continue
            if self._past.stands(later, table, without=self._runs):
                raise NotRevertableError(
                    f"Run {self._runs[-1]} cannot be undone: that would bring back {min(again)[0]}, which "
                    f"{named(later)} has published to {table} since.",
                    hint=f"Undo that one first: lakegate revert {run_of(later)}",
                    run_id=self._runs[-1],
                    table=str(table),
                    other_run_id=run_of(later),
                )

    def _state(self, change: Change) -> TablePlan:
        if change.table not in self._tables:
            now = self._changes_of(change.table)[-1].after
            if now is None:
                raise _refused(change, f"{change.table} was dropped since; create it anew, or restore it first")
            self._tables[change.table] = TablePlan(now, self._live(now), dict(self._live(now)))
        return self._tables[change.table]

    def _live(self, pointer: TablePointer | None, *, added_by: Change | None = None) -> dict[str, DataFile]:
        if pointer is None:
            return {}
        if added_by is None:
            return {file.path: file for file in self._rooms.reader.files(pointer)}
        added = self._rooms.reader.added_files(pointer, added_by.snapshot_ids)
        return {file.path: file for file in added.files}

    def _later(self, change: Change) -> Iterator[Change]:
        after = self._order[change.commit.hash]
        return (one for one in self._changes_of(change.table) if self._order[one.commit.hash] > after)

    def _change(self, commit: Commit, table: TableIdentifier) -> Change:
        return next(one for one in self._changes_of(table) if one.commit.hash == commit.hash)

    def _changes_of(self, table: TableIdentifier) -> list[Change]:
        if table not in self._changes:
            self._changes[table] = self._past.changes(table)
        return self._changes[table]


def _there(change: Change) -> TablePointer:
    assert change.after is not None  # noqa: S101 - for the type checker; what appended left a table
    return change.after


def _refused(change: Change, reason: str) -> NotRevertableError:
    return NotRevertableError(
        f"Run {run_of(change.commit)} cannot be undone: {reason}.",
        hint=f"lakegate table restore {change.table} --at TIME puts the table back as it was at a time.",
        run_id=run_of(change.commit),
        table=str(change.table),
    )


def _cascadable(run_id: str, one: Dependent) -> str:
    """Return the dependent's run, which can be undone together with ``run_id``."""
    dependent = run_of(one.commit)
    if dependent is not None and kind_of(one.commit) is None:
        return dependent
    reason = "was not published by lakegate" if dependent is None else "undid runs itself"
    raise NotRevertableError(
        f"Run {run_id} cannot be undone: {one}, and {reason}.",
        hint=f"lakegate table restore {one.table} --at TIME puts the table back as it was at a time.",
        run_id=run_id,
        table=str(one.table),
        commit=one.commit.hash,
    )


def _depended_on(run_id: str, dependents: Sequence[Dependent]) -> NotRevertableError:
    runs = list(dict.fromkeys(run_of(one.commit) for one in dependents))
    return NotRevertableError(
        f"Run {run_id} cannot be undone alone: {'; '.join(map(str, dependents))}.",
        hint=f"To undo them together: lakegate revert {run_id} --cascade",
        run_id=run_id,
        tables=list(dict.fromkeys(str(one.table) for one in dependents)),
        dependents=runs,
    )
