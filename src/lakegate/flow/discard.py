"""Discard: the branch goes, and with it all that was written to it."""

from __future__ import annotations

from lakegate.errors import AlreadyExistsError, InputError, NotFoundError
from lakegate.flow.rooms import Rooms
from lakegate.model.refs import Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run


def discard(rooms: Rooms, branch: str, *, target: str = "main", seen: Ref | None = None) -> bool:
    """Drop ``branch``. Its data files stay until they are collected; no reference reaches them.

    Args:
        rooms: The lake's rooms.
        branch: Its name.
        target: The branch that must not be dropped.
        seen: It is dropped only if it still stands there; by default wherever it stands.

    Returns:
        Whether there was a branch to drop.

    Raises:
        InputError: When ``branch`` is ``target``.
        ConflictError: When something was committed to the branch at this very moment, or since it was ``seen``.
    """
    if branch == target:
        raise InputError(
            f"'{branch}' is what everyone reads; it cannot be discarded.",
            hint="`lakegate branch list` shows the branches.",
            branch=branch,
        )
    try:
        ref = seen or rooms.catalog.get_ref(branch)
        if ref.kind != "branch":
            raise InputError(
                f"'{branch}' is not a branch.", hint="`lakegate branch list` shows the branches.", branch=branch
            )
        rooms.catalog.delete_ref(ref)
    except NotFoundError:
        return False
    return True


def discard_own(rooms: Rooms, run: Run) -> None:
    """Drop the branch of a run that is begun again, as far as the run made it.

    Raises:
        AlreadyExistsError: When a branch of that name holds something else.
    """
    if run.branch and (run.run_id in run.branch or _is_own(rooms, run)):
        discard(rooms, run.branch, target=run.target)


def _is_own(rooms: Rooms, run: Run) -> bool:
    try:
        commits = list(rooms.catalog.history(run.branch, until=run.base, operations=True))
    except NotFoundError:
        return False
    written = {commit.properties.get(RUN_ID_PROPERTY) for commit in commits if not commit.puts}
    for pointer in (pointer for commit in commits for pointer in commit.puts):
        found = rooms.reader.snapshots(pointer)
        written.add(found[-1].summary.get(RUN_ID_PROPERTY) if found else run.run_id)
    if written <= {run.run_id}:
        return True
    raise AlreadyExistsError(
        f"Branch '{run.branch}' was meant for run {run.run_id} and holds something else.",
        hint=f"Look at it, then drop it: lakegate discard {run.branch}",
        branch=run.branch,
        run_id=run.run_id,
    )


def discard_run(rooms: Rooms, branch: str, *, target: str = "main") -> Run | None:
    """Drop ``branch`` as :func:`discard` does, and note it of the run that wrote it.

    Returns:
        The run: ``discarded``, unless it was published before; ``None`` when the journal knows none.

    Raises:
        NotFoundError: When there is no such branch.
    """
    if not discard(rooms, branch, target=target):
        raise NotFoundError(f"There is no branch '{branch}'.", hint="lakegate branch list", branch=branch)
    run = rooms.journal.find_by_branch(branch)
    if run is None:
        return None
    # What was published stays so, or reverted, whatever becomes of a branch that could not be dropped then.
    status = "discarded" if run.publication is None else run.status
    discarded = run.model_copy(update={"status": status, "branch_kept": False})
    rooms.journal.save(discarded)
    return discarded
