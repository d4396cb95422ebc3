"""Expire: branches of rejected and failed runs, once their time is over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    NotFoundError,
    NotReplayableError,
    OutcomeUnknownError,
)
from lakegate.flow.published import new_snapshots
from lakegate.flow.rooms import Rooms
from lakegate.model.gc import ExpiredBranch, GcProblem
from lakegate.model.refs import Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run

_OVER = ("rejected", "failed", "published")
"""Published ones, too: their branch is dropped at once, but for when the catalog goes away with that."""

_USERS_CHOICE = {
    error.code for error in (ConflictError, AlreadyPublishedError, NotReplayableError, OutcomeUnknownError)
}
"""Errors of runs whose branch stays because the user may still do something with it."""


def expire_branches(
    rooms: Rooms, *, keep: timedelta, now: datetime, dry_run: bool
) -> tuple[list[ExpiredBranch], list[GcProblem]]:
    """Drop each branch that stands as a rejected or failed run left it, ``keep`` or longer ago.

    Args:
        rooms: What to work with.
        keep: How long branches are kept after their run ended.
        now: The time to reckon with.
        dry_run: Only tell which ones.

    Returns:
        The branches dropped, and those that were kept though their time is over.
    """
    dropped: list[ExpiredBranch] = []
    kept: list[GcProblem] = []
    for ref, run in _kept_branches(rooms):
        if run.finished_at is None or run.finished_at > now - keep:
            continue
        if not _stands_as_left(rooms, ref, run):
            kept.append(_moved(ref, run))
            continue
        if not dry_run:
            try:
                rooms.catalog.delete_ref(ref)
            except ConflictError:
                kept.append(_moved(ref, run))
                continue
            except NotFoundError:
                pass
            rooms.journal.save(run.model_copy(update={"branch_kept": False}))
        dropped.append(
            ExpiredBranch(
                branch=ref.name,
                run_id=run.run_id,
                finished_at=run.finished_at,
                age_s=(now - run.finished_at).total_seconds(),
            )
        )
    return dropped, kept


def drop_left_branches(rooms: Rooms) -> tuple[Ref, ...]:
    """Drop the branches that runs meant to drop at their end and could not, as the catalog was away.

    Returns:
        The branches dropped. One that somebody else has written to meanwhile is left alone.

    Raises:
        CatalogUnavailableError: When the catalog is away.
    """
    dropped = []
    for ref, run in _kept_branches(rooms):
        if not _was_to_go(run) or not _stands_as_left(rooms, ref, run):
            continue
        try:
            rooms.catalog.delete_ref(ref)
        except (ConflictError, NotFoundError):
            continue
        rooms.journal.save(run.model_copy(update={"branch_kept": False}))
        dropped.append(ref)
    return tuple(dropped)


def _was_to_go(run: Run) -> bool:
    if run.status == "failed":
        return run.kind != "branch" and run.error is not None and run.error.code not in _USERS_CHOICE
    return run.status == "published"


def _kept_branches(rooms: Rooms) -> Iterator[tuple[Ref, Run]]:
    # By branch: there are few of those, but ever more runs in the journal.
    for ref in list(rooms.catalog.list_refs()):
        if ref.kind != "branch" or ref.name == "main":
            continue
        run = rooms.journal.find_by_branch(ref.name)
        if run is not None and run.status in _OVER and run.branch_kept:
            yield ref, run


def _stands_as_left(rooms: Rooms, ref: Ref, run: Run) -> bool:
    """Tell whether nobody but the run wrote to its branch."""
    if run.staged:
        return ref.hash in {staged.head for staged in run.staged}
    base = run.base or (run.request.base if run.request else None)
    return base is not None and (ref.hash == base or _only_of(rooms, ref, run, base))


def _only_of(rooms: Rooms, ref: Ref, run: Run, base: str) -> bool:
    """Tell whether all that the branch has and ``base`` has not are snapshots of the run, which failed in between."""
    for difference in rooms.catalog.diff(Ref(name=base, hash=base, kind="detached"), ref):
        if difference.kind == "namespace":
            continue
        if difference.kind != "table" or difference.right is None:
            return False
        written = new_snapshots(rooms, difference.left, difference.right)
        if not written or any(snapshot.summary.get(RUN_ID_PROPERTY) != run.run_id for snapshot in written):
            return False
    return True


def _moved(ref: Ref, run: Run) -> GcProblem:
    return GcProblem(
        subject=ref.name,
        message=f"Branch {ref.name} of run {run.run_id} is kept: it no longer stands as that run left it.",
        hint=f"If it is not needed any more: lakegate discard {ref.name}",
    )
