"""Discard: drop a branch, with everything that was written to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    ConflictError,
    InputError,
    NotFoundError,
)
from lakegate.model.refs import MAIN, Commit, Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.points import require_branch

T = TypeVar("T")
_MOST_LATE_COMMITS = 20


def discard(context: Context, branch: str, *, target: str = MAIN, seen: Ref | None = None) -> bool:
    """Drop ``branch``; return whether it existed. ``gc`` deletes its data files later.

    Args:
        seen: The branch at the head that it must still have; by default, any head will do.

    Raises:
        InputError: When ``branch`` is ``target``.
        ConflictError: When something was committed to the branch since it was ``seen``.
    """
    if branch == target:
        raise InputError(
            f"'{branch}' is what everyone reads; it can't be dropped.",
            hint="To see the branches: lakegate branch list",
            branch=branch,
        )

    def drop() -> None:
        ref = seen or context.catalog.get_ref(branch)
        require_branch(ref)
        context.catalog.delete_ref(ref)

    try:
        drop() if seen is not None else retry_on_late_commits(drop)
    except NotFoundError:
        return False
    return True


def retry_on_late_commits(move: Callable[[], T]) -> T:
    """Read a branch and drop or move it; try again when something is committed to it in between.

    The engine or the catalog may still finish, and commit, what a killed process had started there.
    """
    return Retrying(
        retry=retry_if_exception_type(ConflictError), stop=stop_after_attempt(_MOST_LATE_COMMITS), reraise=True
    )(move)


def ref_exists(context: Context, branch: str) -> bool:
    """Return whether a branch or tag exists. ``""``, the branch of a run without one, doesn't."""
    with suppress(NotFoundError):
        return bool(branch and context.catalog.get_ref(branch))
    return False


def is_named_for(branch: str, table: object, run_id: str) -> bool:
    """Return whether ``branch`` has the name that lakegate gives the branch of this run.

    Example:
        >>> is_named_for("wap/nyc.trips_2024", "nyc.trips", "2024"), is_named_for("backfill-2024", "nyc.trips", "2024")
        (True, False)
    """
    return branch.endswith(f"/{table}_{run_id}")


def discard_own(context: Context, run: Run) -> None:
    """Drop the branch of a run that is restarted or given up, if the run created it.

    Raises:
        AlreadyExistsError: When nothing shows that the run created the branch of that name.
        NotFoundError: When the branch stays because a file is missing that would show it.
    """

    def drop() -> None:
        # Read its head first, so that a commit made during the check isn't dropped unseen.
        ref = context.catalog.get_ref(run.branch)
        if not is_own(context, run):
            raise AlreadyExistsError(
                f"Branch '{run.branch}' exists, and nothing shows that run {run.run_id} created it.",
                hint=f"Look at it, then drop it: lakegate discard {run.branch}",
                branch=run.branch,
                run_id=run.run_id,
            )
        discard(context, run.branch, target=run.target, seen=ref)

    if run.branch:
        try:
            retry_on_late_commits(drop)
        except NotFoundError:
            if ref_exists(context, run.branch):
                raise


def is_own(context: Context, run: Run) -> bool:
    """Return whether a run created its branch: by a name that only this run uses, or by what it committed there.

    A branch whose name the user chose may belong to somebody else.
    """
    named = any(is_named_for(run.branch, table, run.run_id) for table in run.tables)
    if named or (run.request is None and run.branch.endswith(f"_{run.run_id}")):  # a transaction's id is always new
        return True
    commits = list(context.catalog.history(run.branch, until=run.base, operations=True))
    if not commits:
        return True  # when the run began, there was no branch of that name
    heads = {one.head for one in run.staged if not (run.request is None or run.adopted or one.by_anyone)}
    staged = next((place for place, commit in enumerate(commits) if commit.hash in heads), None)
    if staged is not None:  # up to there, the run made all commits: those that change columns name no run
        return staged == 0 or made_all_commits(context, run.run_id, commits[:staged])
    published = {commit.hash for commit in context.catalog.history(run.target, until=run.base)}
    if any(commit.hash in published for commit in commits):
        return False  # it was made from a later head of the target, perhaps with the run's own publish
    if run.request is None:  # a transaction: the commits of its statements don't name the run
        return (commits[-1].parent, commits[-1].properties.get(RUN_ID_PROPERTY)) == (run.base, run.run_id)
    return made_all_commits(context, run.run_id, commits)


def made_all_commits(context: Context, run_id: str, commits: Iterable[Commit]) -> bool:
    """Return whether the run made all of ``commits``, in any of its processes; ``False`` if there are none."""
    written: set[str | None] = set()
    for commit in commits:
        named = commit.properties.get(RUN_ID_PROPERTY)
        written |= {named} if named or not commit.puts else set()
        for pointer in () if named else commit.puts:
            found = context.reader.snapshots(pointer)
            # A table without snapshots may be somebody else's; the run's own tables are in folders named after it.
            made = found or context.reader.metadata(pointer).location.rstrip("/").endswith(f"_{run_id}")
            written.add(found[-1].summary.get(RUN_ID_PROPERTY) if found else run_id if made else None)
    return written == {run_id}
