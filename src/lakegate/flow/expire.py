"""Expire: branches of rejected and failed runs, once their time is over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from lakegate.errors import ConflictError, NotFoundError
from lakegate.flow.rooms import Rooms
from lakegate.model.gc import ExpiredBranch, GcProblem
from lakegate.model.refs import Ref
from lakegate.model.run import Run

_OVER = ("rejected", "failed", "published")
"""Published ones, too: their branch is dropped at once, but for when the catalog goes away with that."""


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
        if ref.hash not in _heads(run):
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


def _kept_branches(rooms: Rooms) -> Iterator[tuple[Ref, Run]]:
    # By branch: there are few of those, but ever more runs in the journal.
    for ref in list(rooms.catalog.list_refs()):
        if ref.kind != "branch" or ref.name == "main":
            continue
        run = rooms.journal.find_by_branch(ref.name)
        if run is not None and run.status in _OVER and run.branch_kept:
            yield ref, run


def _heads(run: Run) -> set[str]:
    """Return where the branch stands if nobody but the run wrote to it."""
    if run.staged:
        return {staged.head for staged in run.staged}
    return set() if run.request is None else {run.request.base}


def _moved(ref: Ref, run: Run) -> GcProblem:
    return GcProblem(
        subject=ref.name,
        message=f"Branch {ref.name} of run {run.run_id} is kept: it no longer stands as that run left it.",
        hint=f"If it is not needed any more: lakegate discard {ref.name}",
    )
