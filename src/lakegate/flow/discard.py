"""Discard: the branch goes, and with it all that was written to it."""

from __future__ import annotations

from datetime import UTC, datetime

from lakegate.errors import AlreadyExistsError, InputError, NotFoundError, RetryableError
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


def is_named_for(branch: str, table: object, run_id: str) -> bool:
    """Tell whether ``branch`` has the name that is given to the branch of such a run, and to no other.

    Example:
        >>> is_named_for("wap/nyc.trips_2024", "nyc.trips", "2024"), is_named_for("backfill-2024", "nyc.trips", "2024")
        (True, False)
    """
    return branch.endswith(f"/{table}_{run_id}")


def discard_own(rooms: Rooms, run: Run) -> None:
    """Drop the branch of a run that is begun again or undone, as far as the run made it.

    Raises:
        AlreadyExistsError: When a branch of that name holds something else.
    """
    named = any(is_named_for(run.branch, table, run.run_id) for table in run.tables)
    if run.branch and (named or _is_own(rooms, run)):
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
        The run: ``discarded``, unless it was published before; ``None`` when the journal knows none. One that waited
        for its next step has ended.

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
    if run.finished_at is None and _takes(rooms, run):
        discarded = discarded.model_copy(update={"finished_at": datetime.now(UTC), "order": None})
        rooms.journal.end(discarded)
    else:
        rooms.journal.save(discarded)
    return discarded


def _takes(rooms: Rooms, run: Run) -> bool:
    """Take the lease of a run that nobody works on; ``False`` when somebody does, who will notice by himself."""
    try:
        taken = rooms.journal.resume(run.run_id)
    except RetryableError:
        return False
    return taken is not None and taken.finished_at is None
