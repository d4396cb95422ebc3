"""Recover: finish or undo the runs whose process died, by what the catalog says of them."""

from __future__ import annotations

from contextlib import suppress

from lakegate.errors import CatalogUnavailableError, LakegateError, OutcomeUnknownError
from lakegate.flow.discard import discard
from lakegate.flow.publish import RejectedLateError, find_publication, publish
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress
from lakegate.model.run import Run, RunError


def recover(rooms: Rooms) -> tuple[Run, ...]:
    """Settle every run whose lease ran out: published ones are noted, audited ones published, the rest undone.

    Safe to call at any time, by any number of processes: each run is settled by one of them.

    Returns:
        The runs as they ended.

    Raises:
        CatalogUnavailableError: When the catalog is away; what is left is settled next time.
    """
    return tuple(settle(rooms, run) for run in rooms.journal.abandoned() if rooms.journal.take_over(run.run_id))


def settle(rooms: Rooms, run: Run, *, publishes: bool = True, reason: str | None = None) -> Run:
    """End a run whose lease is ours, by what the catalog says of it.

    Args:
        rooms: The lake's rooms.
        run: The run.
        publishes: Whether to publish what has passed its audit; else that goes, too.
        reason: Why the rest is undone; default: its process died.

    Raises:
        CatalogUnavailableError: When the catalog is away; the run is left to whoever comes next.
    """
    try:
        return _settle(rooms, run, publishes=publishes, reason=reason)
    except BaseException:
        # So that the next one to come may try again, though this very process lives on.
        with suppress(LakegateError):
            rooms.journal.abandon(run.run_id)
        raise


def _settle(rooms: Rooms, run: Run, *, publishes: bool, reason: str | None) -> Run:
    progress = Progress(rooms, run)
    doing = f"Recovering run {run.run_id}, whose process ended without a word"
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
        return _undone(rooms, progress, LakegateError(reason or "Its process ended before the audit was done."))


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
    if run.branch:
        discard(rooms, run.branch)


def _stands(rooms: Rooms, run: Run) -> bool:
    return any(ref.name == run.branch for ref in rooms.catalog.list_refs())
