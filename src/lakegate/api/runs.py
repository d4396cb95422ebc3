"""Find and recover the runs that callers name."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.components import Components
from lakegate.errors import InputError, NotFoundError
from lakegate.model.run import Run
from lakegate.upkeep.branches import drop_orphaned_branches
from lakegate.wap.recover import recover, recover_now

_SHORTEST_PREFIX = len("20260131T0705")


def get_run(components: Components, run_id: str) -> Run:
    """Return the run with this id, or the only one whose id starts with it."""
    exact = components.journal.get(run_id)
    runs = [exact] if exact is not None else components.journal.find(run_id)
    if len(runs) == 1:
        return runs[0]
    message = f"Several runs start with '{run_id}'." if runs else f"Run '{run_id}' doesn't exist."
    raise NotFoundError(message, hint="lakegate runs", run_id=run_id)


def full_run_id(components: Components, run_id: str) -> str:
    """Return the full id of a run to change. A prefix of a few digits, such as today's date, isn't enough."""
    full_id = get_run(components, run_id).run_id
    if full_id != run_id and len(run_id) < _SHORTEST_PREFIX:
        raise InputError(
            f"'{run_id}' is too short to choose a run to change, even though only {full_id} starts with it.",
            hint=f"If you mean that one, pass its id, or at least: {full_id[:_SHORTEST_PREFIX]}",
            run_id=full_id,
        )
    return full_id


def recover_runs(components: Components, run_ids: Sequence[str]) -> Sequence[Run]:
    """Finish or undo these runs, or all whose process died."""
    context = components.context
    if run_ids:
        full_ids = dict.fromkeys(full_run_id(components, run_id) for run_id in run_ids)
        return tuple(recover_now(context, run_id) for run_id in full_ids)
    recovered = recover(context)
    drop_orphaned_branches(context)
    return recovered
