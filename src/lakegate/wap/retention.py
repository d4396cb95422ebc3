"""How far back a state may be made current again: ``gc`` keeps files for ``gc.keep`` after anything needed them.

A revert, a restore, a new branch or a new tag goes back at most that far. So all of them can run at the same time as
``gc`` without knowing of it (:mod:`lakegate.upkeep.reachable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from lakegate.context import Context
from lakegate.errors import ConflictError, InputError, NotFoundError
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.run import Run
from lakegate.model.words import counted, duration

_TABLES_AT_ONCE = 8
_SHOWN = 3


def is_kept(context: Context, superseded_at: datetime) -> bool:
    """Return whether ``gc`` still keeps the files of a state that another one took the place of at that time."""
    return superseded_at > datetime.now(UTC) - context.keep


def too_old(context: Context, what: str) -> InputError:
    """Return the error for a state that ``gc`` may have deleted files of."""
    days = context.keep.days
    span = counted(days, "day") if timedelta(days=days) == context.keep else duration(context.keep.total_seconds())
    return InputError(
        f"{what} is too old: earlier states are kept for {span} (gc.keep). Nothing was changed.",
        hint="`lakegate log` shows the commits since then. To keep states for longer, set gc.keep, or tag them: "
        "lakegate tag create NAME",
    )


def require_kept(context: Context, at: Ref) -> None:
    """Check that ``gc`` keeps the files of a commit while the caller makes a branch or tag point at it.

    Raises:
        InputError: When the commit was the head of ``main`` longer than ``gc.keep`` ago, or files of it don't exist.
    """
    if any(ref.hash == at.hash for ref in context.catalog.list_refs()):
        return
    own = next(iter(context.catalog.history(at.hash)), None)
    if own is not None and not is_kept(context, own.time):
        later = list(context.catalog.history(MAIN, until=at.hash))
        if not later or later[-1].parent != at.hash or not is_kept(context, later[-1].time):
            raise too_old(context, f"Commit {at.hash[:12]}")
    states = list(context.catalog.list_tables(at))
    now = context.catalog.get_tables([state.table for state in states], context.catalog.get_ref(MAIN))
    require_files(context, None, [(now[state.table], state) for state in states])


class StagedFilesGoneError(ConflictError):
    """Something has deleted files that a run staged."""


def require_files(
    context: Context, run: Run | None, states: Sequence[tuple[TablePointer | None, TablePointer]]
) -> None:
    """Check that the files of states exist, so that making them current can't make their tables unreadable.

    Args:
        run: The run that staged the states on its branch; without one or its branch, they're earlier states.
        states: Each with a state whose files are there for sure, if there's one: they aren't looked up.

    Raises:
        StagedFilesGoneError: Naming the missing files that the run staged.
        InputError: Naming the missing files of an earlier state.
    """
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        for (_, state), lost in zip(states, pool.map(lambda pair: _lost_files(context, *pair), states), strict=True):
            if lost is not None:
                raise (
                    _files_gone(state, lost) if run is None or not run.branch else _staged_files_gone(run, state, lost)
                )


def _lost_files(context: Context, before: TablePointer | None, state: TablePointer) -> str | None:
    """Return which files a state lacks, as a sentence; ``None`` if they're all there."""
    if before is not None and before.metadata_location == state.metadata_location:
        return None
    try:
        missing = context.reader.missing(_new_files(context, before, state))
    except NotFoundError as error:
        return error.message
    if not missing:
        return None
    more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    return f"{', '.join(sorted(missing)[:_SHOWN])}{more} can't be found."


def _new_files(context: Context, before: TablePointer | None, state: TablePointer) -> list[str]:
    if before is not None:
        with suppress(NotFoundError, InputError):  # if the state before is damaged, look all files up
            return list(context.reader.new_files(before, state))
    return list(context.reader.reach(state))


def _files_gone(state: TablePointer, what: str) -> InputError:
    return InputError(
        f"That state of {state.table} needs files that don't exist any more: {what} Nothing was changed.",
        hint="You can go back as far as gc.keep at most; `lakegate log` shows the commits since then.",
        table=str(state.table),
        path=state.metadata_location,
    )


def _staged_files_gone(run: Run, state: TablePointer, what: str) -> StagedFilesGoneError:
    again = "Ingest the files again" if run.request is not None else "Write it again"
    return StagedFilesGoneError(
        f"Branch {run.branch} isn't published: {state.table} needs files there that don't exist any more: {what} "
        "Nothing was published.",
        hint=f"Something else has deleted them, perhaps a clean-up of the object store. {again}, and drop this "
        f"branch: lakegate discard {run.branch}",
        table=str(state.table),
        branch=run.branch,
        run_id=run.run_id,
        path=state.metadata_location,
    )
