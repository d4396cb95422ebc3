"""Ingest: the whole way of a batch. Reads like the diagram in ARCHITECTURE.md."""

from __future__ import annotations

from datetime import UTC, datetime

from lakegate.errors import AlreadyPublishedError, NotReplayableError
from lakegate.flow import faults
from lakegate.flow.audit import audit
from lakegate.flow.claims import Share, claim_files
from lakegate.flow.discard import discard
from lakegate.flow.history import sync
from lakegate.flow.plan import plan
from lakegate.flow.publish import RejectedLateError, publish
from lakegate.flow.recover import recover
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress, running
from lakegate.flow.stage import stage
from lakegate.model.plan import IngestOrder
from lakegate.model.refs import Ref
from lakegate.model.run import Run, WriteRequest

_ATTEMPTS = 3


def ingest(rooms: Rooms, order: IngestOrder) -> Run:
    """Write, audit, and publish or reject one batch; leave out the files that are published already.

    Returns:
        The run: ``published``, ``rejected``, or ``skipped`` when no file of the batch was new. It is in the journal.

    Raises:
        InputError: When what is wanted cannot be done. Nothing was written.
        LakegateError: When the run could not be finished. Its branch is dropped, unless the message names it.
        KeyboardInterrupt: When interrupted; likewise.
    """
    recover(rooms)
    base = sync(rooms, order.target)
    request = plan(rooms, order, base=base).request
    with running(rooms, _started(request)) as progress:
        for attempt in range(1, _ATTEMPTS + 1):
            share = claim_files(rooms, order, base)
            if not share.files:
                return _skipped(progress, share)
            request = request.model_copy(update={"batch": request.batch.only(share.files), "replaces": share.replaces})
            progress.update(request=request, base=request.base, skipped_files=share.skipped)
            faults.reach("after-claim")
            try:
                return _write_audit_publish(rooms, progress, request)
            except (AlreadyPublishedError, NotReplayableError) as error:
                if attempt == _ATTEMPTS:
                    raise
                rooms.narrator.note(f"{error.message.split(';')[0]}; doing it again on top of that.")
                base, request = _begin_again(rooms, progress, order)
        raise AssertionError("the last attempt returns or raises")


def _started(request: WriteRequest) -> Run:
    return Run(
        run_id=request.run_id,
        tables=(str(request.table),),
        branch=request.branch,
        status="running",
        started_at=datetime.now(UTC),
        target=request.target,
        base=request.base,
        request=request,
    )


def _write_audit_publish(rooms: Rooms, progress: Progress, request: WriteRequest) -> Run:
    with progress.step("write"):
        staged = stage(rooms, request)
    progress.update(status="staged", staged=(staged,), branch_kept=True)
    with progress.step("audit"):
        report = audit(rooms, staged, request.checks, replaces=request.replaces)
    progress.update(reports=(report,))
    if not report.passed:
        return _rejected(rooms, progress)
    try:
        with progress.step("publish"):
            publication = publish(
                rooms,
                progress.run,
                fresh=True,
                require_lease=progress.require_lease,
                note_reports=progress.note_reports,
            )
    except RejectedLateError as error:
        progress.update(reports=error.reports)
        return _rejected(rooms, progress)
    return progress.end(status="published", publication=publication, branch_kept=publication.branch_left)


def _begin_again(rooms: Rooms, progress: Progress, order: IngestOrder) -> tuple[Ref, WriteRequest]:
    """Drop what was staged and plan anew on what the target is now."""
    discard(rooms, order.branch, target=order.target)
    rooms.journal.release(order.run_id)
    base = sync(rooms, order.target)
    progress.update(status="running", staged=(), reports=(), branch_kept=False)
    return base, plan(rooms, order, base=base).request


def _rejected(rooms: Rooms, progress: Progress) -> Run:
    request = progress.run.request
    keep = request is None or request.on_failure == "keep"
    if not keep:
        discard(rooms, progress.run.branch)
    return progress.end(status="rejected", branch_kept=keep)


def _skipped(progress: Progress, share: Share) -> Run:
    return progress.end(status="skipped", branch="", branch_kept=False, skipped_files=share.skipped, detail=_why(share))


def _why(share: Share) -> str:
    runs = list(dict.fromkeys(known.run_id for known in share.skipped))
    what = "The file was" if len(share.skipped) == 1 else f"All {len(share.skipped):,} files were"
    by = f"run {runs[0]}" if len(runs) == 1 else f"runs {runs[0]} and {len(runs) - 1:,} other(s)"
    happened = f"left to or already published by {by}" if share.busy else f"already published by {by}"
    return f"{what} {happened}; nothing to do."
