"""Recover: finish or undo the runs whose process died, by what the catalog says of them."""

from __future__ import annotations

from contextlib import suppress

from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.flow.deadline import NEVER, Deadline
from lakegate.flow.discard import discard, discard_own
from lakegate.flow.publish import RejectedLateError, find_publication, publish
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress
from lakegate.flow.telling import tell
from lakegate.model.run import Run, RunError
from lakegate.narration import bound_to


def recover(rooms: Rooms, deadline: Deadline = NEVER) -> tuple[Run, ...]:
    """Settle every run whose lease ran out: published ones are noted, audited ones published, the rest undone.

    Safe to call at any time, by any number of processes: each run is settled by one of them. Runs that wait for their
    next step are left alone until their time is over.

    Args:
        rooms: The lake's rooms.
        deadline: When to begin with no further run. One that was begun is settled: cut off, it would be undone.

    Returns:
        The runs as they ended.

    Raises:
        CatalogUnavailableError: When the catalog is away; what is left is settled next time.
    """
    settled = []
    for run in rooms.journal.abandoned():
        if deadline.is_over:
            break
        if rooms.journal.take_over(run.run_id):
            settled.append(settle(rooms, run))
    return tuple(settled)


def recover_now(rooms: Rooms, run_id: str) -> Run:
    """Settle one run, also when it waits for its next step; one that has ended is returned as it is.

    Raises:
        NotFoundError: When there is no such run.
        RetryableError: When a process works on it, or the catalog is away.
    """
    run = rooms.journal.resume(run_id)
    if run is None:
        raise NotFoundError(f"There is no run '{run_id}'.", hint="lakegate runs", run_id=run_id)
    return run if run.finished_at is not None else settle(rooms, run)


def settle(rooms: Rooms, run: Run, *, publishes: bool = True, reason: str | None = None) -> Run:
    """End a run whose lease is ours, by what the catalog says of it.

    Args:
        rooms: The lake's rooms.
        run: The run.
        publishes: Whether to publish what has passed its audit; else that goes, too.
        reason: Why the rest is undone; default: nobody brought it to its audit.

    Raises:
        CatalogUnavailableError: When the catalog is away; the run is left to whoever comes next.
    """
    try:
        with bound_to(run, step="recover"):
            ended = _settle(rooms, run, publishes=publishes, reason=reason)
    except BaseException:
        # So that the next one to come may try again, though this very process lives on.
        with suppress(LakegateError):
            rooms.journal.abandon(run.run_id)
        raise
    with bound_to(ended, step="recover"):
        return tell(rooms, ended, recovered=publishes)


def _settle(rooms: Rooms, run: Run, *, publishes: bool, reason: str | None) -> Run:
    progress = Progress(rooms, run)
    why = "which waited for its next step" if run.order else "whose process ended without a word"
    doing = f"Recovering run {run.run_id}, {why}"
    with rooms.narrator.step(doing if publishes else f"Undoing run {run.run_id}"):
        publication = find_publication(rooms, run)
        if publication is not None:
            _drop(rooms, run)
            return progress.end(
                status="published", publication=publication, branch_kept=False, detail="Had been published; noted."
            )
        if run.reports and not all(report.passed for report in run.reports):
            return _rejected(rooms, progress)
        if publishes and run.staged and len(run.staged) == len(run.reports):
            return _published(rooms, progress)
        return _undone(rooms, progress, LakegateError(reason or _given_up(run)))


def _given_up(run: Run) -> str:
    if run.order is None:
        return "Its process ended before the audit was done."
    last = f" Its last try failed: {run.error.message}" if run.error is not None else ""
    return f"Its audit was not done, and nobody took its next step.{last}"


def _rejected(rooms: Rooms, progress: Progress) -> Run:
    run = progress.run
    keep = run.request is None or run.request.on_failure == "keep"
    if not keep:
        _drop(rooms, run)
    return progress.end(status="rejected", branch_kept=keep and _stands(rooms, run), detail="Its audit had failed.")


def _published(rooms: Rooms, progress: Progress) -> Run:
    try:
        publication = publish(rooms, progress.run, fresh=True)
    except RejectedLateError as error:
        progress.update(reports=error.reports)
        return _rejected(rooms, progress)
    except (CatalogUnavailableError, OutcomeUnknownError):
        raise
    except LakegateError as error:
        return _undone(rooms, progress, error)
    return progress.end(
        status="published",
        publication=publication,
        branch_kept=publication.branch_left,
        detail="Had passed its audit; published.",
    )


def _undone(rooms: Rooms, progress: Progress, reason: LakegateError) -> Run:
    _drop(rooms, progress.run)
    return progress.end(
        status="failed",
        branch_kept=False,
        error=RunError.model_validate(reason.to_dict()),
        detail="Undone: nothing of it was published.",
    )


def _drop(rooms: Rooms, run: Run) -> None:
    if run.branch and run.request is None:
        discard(rooms, run.branch)
        return
    # A name that the user chose may have become somebody else's branch since.
    with suppress(AlreadyExistsError):
        discard_own(rooms, run)


def _stands(rooms: Rooms, run: Run) -> bool:
    return any(ref.name == run.branch for ref in rooms.catalog.list_refs())
