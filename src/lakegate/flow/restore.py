"""Restore: a table, or a whole branch, is put back as it was at a time or commit."""

from __future__ import annotations

from functools import partial

from lakegate.errors import InputError, NotFoundError
from lakegate.flow.history import sync
from lakegate.flow.rooms import Rooms
from lakegate.flow.undo_commit import Undoing, undo
from lakegate.flow.undo_past import Past, run_of
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import Run, UndoneTable


def restore_table(rooms: Rooms, table: TableIdentifier, at: Ref, *, new_run_id: str, target: str = "main") -> Run:
    """Put ``table`` back as it was at a commit, by one commit on top of all others.

    Whatever was done to it since is gone from it, whoever did it, and whatever relies on that. What the runs since then
    wrote to other tables stays. The source files that the table loses may be ingested again.

    Args:
        rooms: The lake's rooms.
        table: The table.
        at: A commit in the history of ``target``.
        new_run_id: Id of the restoring, which is a run itself.
        target: The branch.

    Returns:
        The new run: ``published``, or ``skipped`` when the table stands so already.

    Raises:
        NotFoundError: When there was no such table then.
        InputError: When the commit is not in the history of ``target``.
        ConflictError: When the target never stood still.
        OutcomeUnknownError: When the catalog went away with the commit and has not come back.
    """
    then = rooms.catalog.get_table(table, at)
    if then is None:
        raise NotFoundError(
            f"There was no table {table} at commit {at.hash[:12]}.",
            hint=f"lakegate log {target} shows which commits changed it.",
            table=str(table),
            commit=at.hash,
        )

    def look(head: Ref) -> Undoing:
        now = rooms.catalog.get_table(table, head)
        state = then.model_copy(update={"content_id": None if now is None else now.content_id})
        told = _told(rooms, table, now, then)
        if now is not None and now.metadata_location == then.metadata_location:
            return Undoing("", (), (told,), nothing=f"{table} stands as at commit {at.hash[:12]}; nothing to do.")
        past = Past(rooms, head, since=at.hash)
        _require_in_history(past, at, target)
        runs, revived = _lost_and_regained(past, table)
        return Undoing(
            message=f"Restore {table} as at commit {at.hash[:12]}",
            reverts=runs,
            undone=(told,),
            states={table: partial(_same, state)},
            revived=revived,
        )

    text = f"Restoring {table}"
    return undo(rooms, look, run_id=new_run_id, kind="restore", target=target, text=text)


def reset_branch(rooms: Rooms, name: str, to: Ref, *, force: bool = False, main: str = "main") -> Ref:
    """Point a branch at another commit. What was committed only there is reached by it no more.

    Args:
        rooms: The lake's rooms.
        name: The branch.
        to: Where it is to stand.
        force: Needed for ``main``.
        main: The branch that everyone reads.

    Raises:
        NotFoundError: When there is no such branch.
        InputError: When it is a tag, or is ``main`` without ``force``.
        ConflictError: When something was committed to it at this very moment.
    """
    ref = rooms.catalog.get_ref(name)
    if ref.kind != "branch":
        raise InputError(f"'{name}' is not a branch.", hint="lakegate branch list", ref=name)
    if name == main and not force:
        raise InputError(
            f"Resetting '{name}' throws commits out of its history, published runs of others among them.",
            hint="lakegate revert RUN undoes one publish, lakegate table restore TABLE --at TIME one table, and both "
            "keep the history. If that is not enough: --force",
            branch=name,
        )
    moved = rooms.catalog.assign_ref(ref, to)
    if name == main:
        sync(rooms, main)
    return moved


def _told(rooms: Rooms, table: TableIdentifier, now: TablePointer | None, then: TablePointer) -> UndoneTable:
    after = rooms.reader.metadata(then)
    before = None if now is None else rooms.reader.metadata(now)
    return UndoneTable(
        table=str(table),
        rows=(after.rows or 0) - ((before.rows or 0) if before else 0),
        data_files=(after.data_files or 0) - ((before.data_files or 0) if before else 0),
    )


def _require_in_history(past: Past, at: Ref, target: str) -> None:
    if not past.commits or past.commits[0].parent != at.hash:
        raise InputError(
            f"Commit {at.hash[:12]} is not in the history of '{target}'.",
            hint=f"lakegate log {target}",
            commit=at.hash,
            ref=target,
        )


def _lost_and_regained(past: Past, table: TableIdentifier) -> tuple[tuple[str, ...], tuple[Commit, ...]]:
    """Return the runs that stand in ``table`` no more, newest first, and the commits of those that stand again."""
    runs = [run_id for change in past.changes(table) if (run_id := run_of(change.commit))]
    gone, back = past.changed_by(table, runs)
    inside = {commit.hash for commit in past.commits}
    return (*reversed(runs), *gone), tuple(commit for commit in back if commit.hash not in inside)


def _same(pointer: TablePointer) -> TablePointer:
    return pointer
