"""The past that an undoing looks at: what each commit did to each table, and which runs of it still stand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from lakegate.flow.history import (
    FILES_PROPERTY,
    KIND_PROPERTY,
    READS_PROPERTY,
    REVERTS_PROPERTY,
    TABLES_PROPERTY,
    decode_files,
)
from lakegate.flow.published import find_commit, new_snapshots
from lakegate.flow.rooms import Rooms
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import Snapshot

FileVersion = tuple[str, str]
"""URI and version of a source file."""


def run_of(commit: Commit) -> str | None:
    """Return the run that made ``commit``; ``None`` when it is not lakegate's."""
    return commit.properties.get(RUN_ID_PROPERTY)


def kind_of(commit: Commit) -> str | None:
    """Return ``revert`` or ``restore`` for a commit that undoes, else ``None``."""
    return commit.properties.get(KIND_PROPERTY)


def undone_by(commit: Commit) -> tuple[str, ...]:
    """Return the runs whose rows ``commit`` took away."""
    return tuple(commit.properties.get(REVERTS_PROPERTY, "").split())


def tables_of(commit: Commit) -> tuple[str, ...]:
    """Return the tables that a commit of lakegate wrote to."""
    named_ones = tuple(commit.properties.get(TABLES_PROPERTY, "").split())
    return named_ones or tuple(str(pointer.table) for pointer in commit.puts)


def tables_read_by(commit: Commit) -> tuple[str, ...]:
    """Return the tables that the run of ``commit`` relied on."""
    return tuple(commit.properties.get(READS_PROPERTY, "").split())


def files_of(commit: Commit) -> frozenset[FileVersion]:
    """Return URI and version of the source files that ``commit`` published."""
    return frozenset(decode_files(commit.properties.get(FILES_PROPERTY, "")))


def named(commit: Commit) -> str:
    """Return how messages name ``commit``: its run, or its hash when it is not lakegate's."""
    run_id = run_of(commit)
    return f"run {run_id}" if run_id else f"commit {commit.hash[:12]} ({commit.message})"


@dataclass(frozen=True)
class Change:
    """What one commit did to one table.

    Attributes:
        before: The table before it; ``None`` when it did not exist.
        after: The table after it; ``None`` when the commit dropped it.
    """

    rooms: Rooms
    commit: Commit
    table: TableIdentifier
    before: TablePointer | None
    after: TablePointer | None

    @cached_property
    def snapshots(self) -> Sequence[Snapshot]:
        """The snapshots it added, oldest first."""
        return [] if self.after is None else new_snapshots(self.rooms, self.before, self.after)

    @cached_property
    def appended(self) -> bool:
        """Whether all it did was to append rows to a table that may have been there before."""
        same = self.before is None or (self.after is not None and self.after.content_id == self.before.content_id)
        return same and bool(self.snapshots) and all(snapshot.operation == "append" for snapshot in self.snapshots)

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of :attr:`snapshots`."""
        return tuple(snapshot.snapshot_id for snapshot in self.snapshots)

    @property
    def deletes_rows(self) -> bool:
        """Whether it added delete files, which take rows out of data files that stay."""
        return any(int(snapshot.summary.get("added-delete-files", 0)) for snapshot in self.snapshots)


class Past:
    """The commits of a branch from ``first`` up to ``head``.

    Args:
        rooms: The lake's rooms.
        head: The branch at the commit that is looked at.
        first: Where it begins, with its operations; ``None`` for the commits after ``since``.
        since: Hash of the commit before the first one.
    """

    def __init__(self, rooms: Rooms, head: Ref, *, first: Commit | None = None, since: str | None = None) -> None:
        self._rooms = rooms
        self.head = head
        until = since if first is None else first.hash
        later = reversed(list(rooms.catalog.history(head.hash, until=until, operations=True)))
        self.commits: tuple[Commit, ...] = (*(() if first is None else (first,)), *later)
        self._known = {run_id: commit for commit in self.commits if (run_id := run_of(commit))}
        self._undoers: dict[str, list[Commit]] = {}
        for commit in self.commits:
            self._learn(commit)

    def changes(self, table: TableIdentifier) -> list[Change]:
        """Return what was done to ``table``, oldest first."""
        found: list[Change] = []
        for commit in self.commits:
            if str(table) not in commit.tables:
                continue
            before = found[-1].after if found else self._before(commit, table)
            after = next((pointer for pointer in commit.puts if pointer.table == table), None)
            found.append(Change(self._rooms, commit, table, before, after))
        return found

    def undoer(self, run_id: str, table: TableIdentifier | str, *, without: Collection[str] = ()) -> str | None:
        """Return the run by which ``run_id`` is undone in ``table``; ``None`` when it stands.

        What was undone stands again once the run that undid it is undone itself.

        Args:
            run_id: The run.
            table: One of its tables.
            without: Runs to take for undone now.
        """
        if run_id in without:
            return run_id
        for commit in self._undoers.get(run_id, ()):
            by = run_of(commit) or ""
            if str(table) in tables_of(commit) and self.undoer(by, table, without=without) is None:
                return by
        return None

    def stands(self, commit: Commit, table: TableIdentifier | str, *, without: Collection[str] = ()) -> bool:
        """Return whether what a commit did to ``table`` is still there; see :meth:`undoer`."""
        return self.undoer(run_of(commit) or "", table, without=without) is None

    def changed_by(self, table: TableIdentifier, without: Collection[str]) -> tuple[list[str], list[Commit]]:
        """Return what undoing the runs ``without`` does to the standing of others in ``table``.

        Returns:
            Runs that stand now and will not any more, and the commits of those that will again.
        """
        gone, back = [], []
        for run_id in self._undoers:
            commit = self._known.get(run_id)
            if run_id in without or commit is None or str(table) not in tables_of(commit):
                continue
            now, then = self.stands(commit, table), self.stands(commit, table, without=without)
            if now and not then:
                gone.append(run_id)
            elif then and not now:
                back.append(commit)
        return gone, back

    def undone_commits(self, commit: Commit, table: TableIdentifier) -> list[Commit]:
        """Return the commits whose rows in ``table`` the given one took away."""
        undone = (self._known[run_id] for run_id in undone_by(commit))
        return [one for one in undone if str(table) in tables_of(one)]

    def _learn(self, commit: Commit) -> None:
        """Note which runs ``commit`` undid, and which ones those had undone in their time."""
        for run_id in undone_by(commit):
            self._undoers.setdefault(run_id, []).append(commit)
            if run_id not in self._known:
                self._known[run_id] = find_commit(self._rooms, run_id, self.head)
                self._learn(self._known[run_id])

    def _before(self, commit: Commit, table: TableIdentifier) -> TablePointer | None:
        if commit.parent is None:
            return None
        parent = Ref(name=commit.parent, hash=commit.parent, kind="detached")
        return self._rooms.catalog.get_tables([table], parent)[table]
