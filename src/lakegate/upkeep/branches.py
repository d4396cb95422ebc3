"""Drop the branches of runs that have ended, if nobody else has written to them since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from lakegate.context import Context
from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    NotFoundError,
    NotReplayableError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.model.maintenance import ExpiredBranch, GcProblem
from lakegate.model.refs import MAIN, Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.wap.branches import is_unchanged_since
from lakegate.wap.discard import is_own

_ORPHANING = ("failed", "published")
_EXPIRING = ("rejected", *_ORPHANING)
"""Includes published runs: their branch is dropped at once, unless the catalog becomes unavailable just then."""
_LEFT_TO_USER = {
    error.code for error in (ConflictError, AlreadyPublishedError, NotReplayableError, OutcomeUnknownError)
}
"""Errors of failed runs whose branch is kept because the user may still publish it."""


def expire_branches(
    context: Context, *, keep: timedelta, now: datetime, dry_run: bool
) -> tuple[list[ExpiredBranch], list[GcProblem]]:
    """Drop the branches of runs that were rejected or failed ``keep`` or longer ago, if nobody has changed them since.

    Returns:
        The dropped branches, and a problem for each that is kept although it has expired.
    """
    dropped: list[ExpiredBranch] = []
    kept: list[GcProblem] = []
    for ref, run in _kept_branches(context, context.catalog.list_refs()):
        if run.finished_at is None or run.finished_at > now - keep:
            continue
        hint = f"If nobody needs it any more: lakegate discard {ref.name}"
        try:
            # If somebody tried to publish it by name, the run records the branch with their changes as its own.
            touched = (run.adopted and run.status != "published") or not _is_untouched(context, ref, run)
        except NotFoundError as error:  # a file of its tables is missing
            problem = f"Branch {ref.name} of run {run.run_id} is kept: {error.message}"
            kept.append(GcProblem(subject=ref.name, message=problem, hint=hint))
            continue
        if not touched and not dry_run:
            try:
                if not _drop(context, ref, run):
                    continue
            except ConflictError:
                touched = True
        if touched:
            why = "somebody began to publish it by name" if run.adopted else "somebody else has since written to it"
            problem = f"Branch {ref.name} of run {run.run_id} is kept: {why}."
            kept.append(GcProblem(subject=ref.name, message=problem, hint=hint))
            continue
        age_s = (now - run.finished_at).total_seconds()
        dropped.append(ExpiredBranch(branch=ref.name, run_id=run.run_id, finished_at=run.finished_at, age_s=age_s))
    return dropped, kept


def drop_orphaned_branches(context: Context) -> tuple[Ref, ...]:
    """Drop the branches that runs couldn't drop when they ended, as the catalog was unavailable; name and return them.

    Branches that somebody else has written to since are kept.
    """
    dropped = []
    # Start from the journal: there may be thousands of branches that others need.
    for run in filter(_is_orphaned, context.journal.with_branch(_ORPHANING)):
        try:
            ref = context.catalog.get_ref(run.branch)
        except NotFoundError:
            with suppress(RetryableError):
                context.journal.amend(run, branch_kept=False)
            continue
        newest = context.journal.find_by_branch(run.branch)
        is_newest = newest is not None and newest.run_id == run.run_id
        # Keep it if a file is missing: that file might show that somebody else has written to the branch.
        with suppress(ConflictError, NotFoundError):
            is_ours = is_newest and ref.kind == "branch" and _is_untouched(context, ref, run)
            if is_ours and _drop(context, ref, run):
                dropped.append(ref)
                context.narrator.note(f"Branch {ref.name} is dropped. Run {run.run_id} couldn't drop it when it ended.")
    return tuple(dropped)


def _drop(context: Context, ref: Ref, run: Run) -> bool:
    """Drop the branch of a run that has ended; return whether it's dropped.

    Holds the run's lease, so that nobody publishes the branch.
    """
    try:
        lease = context.journal.resume(run.run_id, ended=True)
    except RetryableError:
        return False
    if lease is None or lease.token is None:
        return False
    now, kept = lease.run, True
    try:
        if now.status == run.status and now.finished_at is not None:
            with suppress(NotFoundError):
                context.catalog.delete_ref(ref)
            kept = False
    finally:
        if now.finished_at is None:
            context.journal.abandon(run.run_id, lease.token)
        else:
            context.journal.end(now.model_copy(update={"branch_kept": now.branch_kept and kept}), lease.token)
    return not kept


def _is_orphaned(run: Run) -> bool:
    if not run.branch_kept:
        return False  # its record can't be read
    if run.status == "failed":
        return not run.is_users_branch and run.error is not None and run.error.code not in _LEFT_TO_USER
    return run.status == "published"


def _kept_branches(context: Context, refs: Iterable[Ref]) -> Iterator[tuple[Ref, Run]]:
    """Yield the branches of runs that have ended, each with its newest run."""
    # Start from the branches: there are few of them, and ever more runs in the journal.
    branches = {ref.name: ref for ref in refs if ref.kind == "branch" and ref.name != MAIN}
    for name, line in context.journal.pages.by_branch(branches).items():
        run = context.journal.get(line.run_id) if line.status in _EXPIRING else None
        if run is not None and run.status in _EXPIRING and run.branch_kept:
            yield branches[name], run


def _is_untouched(context: Context, ref: Ref, run: Run) -> bool:
    """Return whether only the run itself wrote to its branch."""
    if run.staged:
        return is_unchanged_since(context, ref, run.staged[0].head, run.run_id)
    base = run.base or (run.request.base if run.request else None)
    if base is None or not is_own(context, run):
        return False
    if ref.hash == base:
        return True
    # The run failed during its write: everything that the branch adds to its base must be snapshots of the run.
    for difference in context.catalog.diff(Ref.detached(base), ref):
        if difference.kind == "namespace":
            continue
        if difference.kind != "table" or difference.right is None:
            return False
        written = context.reader.change(difference.left, difference.right).written
        if not written or any(snapshot.summary.get(RUN_ID_PROPERTY) != run.run_id for snapshot in written):
            return False
    return True
