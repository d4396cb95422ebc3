"""Ingest: the whole way of a batch. Reads like the diagram in ARCHITECTURE.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from lakegate.errors import AlreadyExistsError, ConflictError, LakegateError, OutcomeUnknownError
from lakegate.flow.audit import audit
from lakegate.flow.discard import discard
from lakegate.flow.publish import find_publication, publish
from lakegate.flow.rooms import Rooms
from lakegate.flow.stage import stage
from lakegate.model.plan import IngestPlan
from lakegate.model.run import Publication, Run, RunError


def ingest(rooms: Rooms, plan: IngestPlan) -> Run:
    """Write, audit, and publish or reject one batch.

    Returns:
        The run, ``published`` or ``rejected``. It is in the journal, whatever happens.

    Raises:
        LakegateError: When the run could not be finished. Its branch is dropped, unless the message names it.
        KeyboardInterrupt: When interrupted; likewise.
    """
    request = plan.request
    run = Run(
        run_id=request.run_id,
        table=str(request.table),
        branch=request.branch,
        status="running",
        started_at=datetime.now(UTC),
        request=request,
    )
    rooms.journal.save(run)
    with _cleaned_up(rooms, run) as progress:
        staged = stage(rooms, request)
        progress.run = run.model_copy(update={"status": "staged", "staged": staged, "branch_kept": True})
        rooms.journal.save(progress.run)

        report = audit(rooms, staged, request.checks)
        progress.run = progress.run.model_copy(update={"report": report})
        if not report.passed:
            return _reject(rooms, progress.run)

        publication = publish(rooms, [staged], [report])
        return finish(rooms, progress.run, status="published", publication=publication, branch_kept=False)


def finish(rooms: Rooms, run: Run, **changes: object) -> Run:
    """Return ``run`` with ``changes`` and the time it ended, and write it to the journal."""
    finished = run.model_copy(update={"finished_at": datetime.now(UTC), **changes})
    rooms.journal.save(finished)
    return finished


def _reject(rooms: Rooms, run: Run) -> Run:
    keep = run.request is None or run.request.on_failure == "keep"
    if not keep:
        discard(rooms, run.branch)
    return finish(rooms, run, status="rejected", branch_kept=keep)


class _Progress:
    """The run as far as it has come, for the one who cleans up."""

    def __init__(self, run: Run) -> None:
        self.run = run


@contextmanager
def _cleaned_up(rooms: Rooms, run: Run) -> Iterator[_Progress]:
    progress = _Progress(run)
    try:
        yield progress
    except (ConflictError, OutcomeUnknownError) as error:
        # The data is staged and audited: what to do with it is the user's choice now.
        _record_failure(rooms, progress.run, error, branch_kept=True)
        raise
    except AlreadyExistsError as error:
        _record_failure(rooms, progress.run, error, branch_kept=False)
        raise
    except LakegateError as error:
        kept = _drop_branch(rooms, run.branch)
        if kept:
            error.hint = " ".join(filter(None, (error.hint, _branch_hint(run.branch))))
        error.context.setdefault("run_id", run.run_id)
        _record_failure(rooms, progress.run, error, branch_kept=kept)
        raise
    except Exception as error:
        kept = _drop_branch(rooms, run.branch)
        _record_failure(rooms, progress.run, LakegateError(f"Internal error: {error!r}"), branch_kept=kept)
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(rooms, progress.run)) from None


def _interrupted(rooms: Rooms, run: Run) -> str:
    rooms.engine().cancel()
    publication = _find_publication(rooms, run)
    if publication is not None:
        kept = _drop_branch(rooms, run.branch)
        finish(rooms, run, status="published", publication=publication, branch_kept=kept)
        return f"Run {run.run_id} had been published already; see `lakegate runs {run.run_id}`."
    kept = _drop_branch(rooms, run.branch)
    error = LakegateError("Interrupted by the user.")
    _record_failure(rooms, run, error, branch_kept=kept)
    return f"Nothing was published. {_branch_hint(run.branch) if kept else f'Branch {run.branch} was removed.'}"


def _find_publication(rooms: Rooms, run: Run) -> Publication | None:
    if run.staged is None:
        return None
    try:
        return find_publication(rooms, run.staged, [run.staged])
    except LakegateError:
        return None


def _drop_branch(rooms: Rooms, branch: str) -> bool:
    """Try to drop ``branch``; return whether it may still stand."""
    try:
        discard(rooms, branch)
    except LakegateError:
        return True
    return False


def _branch_hint(branch: str) -> str:
    return f"Branch {branch} may still stand; drop it with: lakegate discard {branch}"


def _record_failure(rooms: Rooms, run: Run, error: LakegateError, *, branch_kept: bool) -> None:
    try:
        record = RunError.model_validate(error.to_dict())
        finish(rooms, run, status="failed", branch_kept=branch_kept, error=record)
    except LakegateError as journal_error:
        # The first error is the one the user must see.
        rooms.narrator.note(f"The journal could not be written: {journal_error.message}")
