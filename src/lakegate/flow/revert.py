"""Revert: a publish is undone as one commit across its tables, and later publishes stay.

What a run appended goes by taking its data files out; what it did else, by going back to the state before it and
appending again what others appended since. Runs that depend on it go with it, or it stays.
"""

from __future__ import annotations

from functools import partial

from lakegate.errors import InputError, NotReplayableError, NotRevertableError
from lakegate.flow.published import find_commit
from lakegate.flow.rooms import Rooms
from lakegate.flow.undo_commit import Undoing, undo
from lakegate.flow.undo_past import Past, kind_of, tables_of
from lakegate.flow.undo_plan import Drop, Replay, Reset, TablePlan, plan_undo
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, UndoneTable


def revert(
    rooms: Rooms, run_id: str, *, new_run_id: str, target: str = "main", cascade: bool = False, dry_run: bool = False
) -> Run:
    """Undo what ``run_id`` published, in one commit; its source files may be ingested again.

    Args:
        rooms: The lake's rooms.
        run_id: The run to undo.
        new_run_id: Id of the undoing, which is a run itself.
        target: Branch that it was published to.
        cascade: Undo the runs, too, that depend on it.
        dry_run: Change nothing; return what would be done.

    Returns:
        The new run, ``published``; ``skipped`` for a dry run.

    Raises:
        NotRevertableError: When other runs depend on it, or its data was changed since by others than lakegate.
        InputError: When it was reverted before, or is an undoing itself.
        NotFoundError: When it was not published.
        ConflictError: When the target never stood still.
        OutcomeUnknownError: When the catalog went away with the commit and has not come back.
    """

    def look(head: Ref) -> Undoing:
        commit = find_commit(rooms, run_id, head)
        past = Past(rooms, head, first=commit)
        _require_standing(past, commit, run_id)
        plan = plan_undo(rooms, past, run_id, cascade=cascade)
        return Undoing(
            message=f"Revert {commit.message!r}" + (f" and {len(plan.runs) - 1} more" if len(plan.runs) > 1 else ""),
            reverts=plan.runs,
            undone=tuple(_told(table, one) for table, one in plan.tables.items()),
            states={
                table: None if one.dropped else partial(_apply, rooms, run_id, new_run_id, one)
                for table, one in plan.tables.items()
            },
            revived=plan.revived,
        )

    text = f"Reverting run {run_id}"
    return undo(rooms, look, run_id=new_run_id, kind="revert", target=target, text=text, dry_run=dry_run)


def _require_standing(past: Past, commit: Commit, run_id: str) -> None:
    tables = tables_of(commit)
    kind = kind_of(commit)
    if kind is not None:
        again = "The source files that it took away can be ingested again; or"
        raise InputError(
            f"Run {run_id} is a {kind}; it cannot be reverted itself.",
            hint=f"{again} go back to before it: lakegate table restore {tables[0]} --at {commit.parent}",
            run_id=run_id,
        )
    by = [past.undoer(run_id, table) for table in tables]
    if all(by):
        raise InputError(
            f"Run {run_id} was undone already, by run {by[0]}.",
            hint="Its source files can be ingested again.",
            run_id=run_id,
            reverted_by=by[0],
        )


def _told(table: TableIdentifier, plan: TablePlan) -> UndoneTable:
    rows_before, rows = (sum(file.rows for file in files.values()) for files in (plan.before, plan.live))
    return UndoneTable(
        table=str(table),
        rows=rows - rows_before,
        data_files=len(plan.live) - len(plan.before),
        dropped=plan.dropped,
    )


def _apply(rooms: Rooms, run_id: str, new_run_id: str, plan: TablePlan) -> TablePointer:
    """Write the metadata of the state that is planned, and return where it is."""
    pointer = plan.now
    try:
        for step in plan.steps:
            match step:
                case Reset(before):
                    pointer = before.model_copy(update={"content_id": plan.now.content_id})
                case Replay(source, snapshot_ids):
                    pointer = rooms.editor.replay(source, snapshot_ids, pointer)
                case Drop(paths):
                    pointer = rooms.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: new_run_id})
    except NotReplayableError as error:
        raise NotRevertableError(
            f"Run {run_id} cannot be undone: {error.message}",
            hint=f"lakegate table restore {plan.now.table} --at TIME puts the table back as it was at a time.",
            run_id=run_id,
            table=str(plan.now.table),
        ) from error
    return pointer
