"""Onto: the state that a run gives a table, on top of the state that the target has it in."""

from __future__ import annotations

from dataclasses import dataclass

from lakegate.errors import NotReplayableError
from lakegate.flow.published import published_files
from lakegate.flow.rivals import not_replayable
from lakegate.flow.rooms import Rooms
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable


@dataclass(frozen=True, slots=True)
class Onto:
    """A table as a commit is to put it, and whether its files were replayed onto a newer state."""

    pointer: TablePointer
    replayed: bool


def put_onto(rooms: Rooms, run: Run, staged: StagedTable, now: TablePointer | None, head: Ref) -> Onto:
    """Return what to commit for ``staged`` where the target has its table at ``now``.

    Raises:
        NotReplayableError: When the table changed in a way that the run cannot be put on top of.
    """
    moved = now != staged.before
    if moved:
        pointer = _replayed(rooms, run, staged, now)
    else:
        # A table that the target lacks must be put without an id, one that it has with the target's.
        pointer = rooms.editor.trimmed(staged.pointer, at_least=len(staged.snapshot_ids))
        pointer = pointer.model_copy(update={"content_id": now.content_id if now else None})
    if run.request is not None and run.request.replaces:
        pointer = _without_replaced(rooms, run, pointer, head)
    return Onto(pointer, replayed=moved)


def _replayed(rooms: Rooms, run: Run, staged: StagedTable, now: TablePointer | None) -> TablePointer:
    if staged.change != "append":
        raise not_replayable(rooms, run, staged.table, "this run did more than append to it")
    if str(staged.table) in run.reads:
        raise not_replayable(rooms, run, staged.table, "this run has read it")
    if now is None:
        raise not_replayable(rooms, run, staged.table, "it is not there any more")
    try:
        return rooms.editor.replay(staged.pointer, staged.snapshot_ids, now)
    except NotReplayableError as error:
        raise not_replayable(rooms, run, staged.table, error.message.rstrip(".")) from error


def _without_replaced(rooms: Rooms, run: Run, pointer: TablePointer, head: Ref) -> TablePointer:
    assert run.request is not None  # noqa: S101 - for the type checker; the caller asked
    for run_id in run.request.replaces:
        paths = published_files(rooms, run_id, head).get(pointer.table, frozenset())
        pointer = rooms.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: run.run_id})
    return pointer
