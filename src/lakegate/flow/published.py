"""Published: what a run's commit brought to the target, read back from the catalog."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.errors import NotFoundError
from lakegate.flow.rooms import Rooms
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.tables import Snapshot


def find_commit(rooms: Rooms, run_id: str, target: Ref) -> Commit:
    """Return the commit by which ``run_id`` was published in the history of ``target``, with its tables.

    Raises:
        NotFoundError: When there is none.
    """
    for commit in rooms.catalog.history(target.hash, run_id=run_id, operations=True):
        return commit
    raise NotFoundError(
        f"Run {run_id} was not published: '{target.name}' has no commit of it.",
        hint=f"lakegate runs {run_id}",
        run_id=run_id,
        ref=target.name,
    )


def published_files(rooms: Rooms, run_id: str, target: Ref) -> dict[TableIdentifier, frozenset[str]]:
    """Return the paths of the data files that a run's commit added to each of its tables."""
    commit = find_commit(rooms, run_id, target)
    before = before_commit(rooms, commit)
    return {pointer.table: added_paths(rooms, before[pointer.table], pointer) for pointer in commit.puts}


def before_commit(rooms: Rooms, commit: Commit) -> Mapping[TableIdentifier, TablePointer | None]:
    """Return how the tables that ``commit`` changed stood before it."""
    tables = [pointer.table for pointer in commit.puts]
    if commit.parent is None:
        return dict.fromkeys(tables)
    return rooms.catalog.get_tables(tables, Ref(name=commit.parent, hash=commit.parent, kind="detached"))


def new_snapshots(rooms: Rooms, before: TablePointer | None, after: TablePointer) -> list[Snapshot]:
    """Return the snapshots, oldest first, that a table has at ``after`` and did not have at ``before``."""
    known = set() if before is None else {snapshot.snapshot_id for snapshot in rooms.reader.snapshots(before)}
    return [snapshot for snapshot in rooms.reader.snapshots(after) if snapshot.snapshot_id not in known]


def added_paths(rooms: Rooms, before: TablePointer | None, after: TablePointer) -> frozenset[str]:
    """Return the paths of the data files that a table got on the way from ``before`` to ``after``."""
    snapshots = [snapshot.snapshot_id for snapshot in new_snapshots(rooms, before, after)]
    return frozenset(file.path for file in rooms.reader.added_files(after, snapshots).files)
