"""Ingest: the whole way of a batch, at once or step by step. Reads like the diagram in ARCHITECTURE.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    NotReplayableError,
    RetryableError,
)
from lakegate.flow import faults
from lakegate.flow.audit import audit
from lakegate.flow.claims import Share, claim_files
from lakegate.flow.deadline import NEVER, Deadline
from lakegate.flow.discard import discard, discard_own
from lakegate.flow.history import sync
from lakegate.flow.plan import plan
from lakegate.flow.publish import RejectedLateError, publish
from lakegate.flow.recover import recover, settle
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress, running
from lakegate.flow.stage import stage, wrote_since
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.order import IngestOrder
from lakegate.model.refs import Ref
from lakegate.model.run import Run, WriteRequest

Stage = Literal["write", "audit", "publish"]
"""How far a run is brought."""

_ATTEMPTS = 3
_POLL_S = 0.2


def ingest(
    rooms: Rooms,
    order: IngestOrder,
    *,
    until: Stage = "publish",
    parks: bool = False,
    again: bool = False,
    deadline: Deadline = NEVER,
) -> Run:
    """Write, audit, and publish or reject one batch; leave out the files that are published already.

    Args:
        rooms: The lake's rooms.
        order: What is wanted.
        until: How far to go now.
        parks: Leave the run to :func:`go_on` when ``until`` is reached, and when the step may be tried again.
        again: Whether a run of this id was begun before, so that something of it may be under way or published.
        deadline: When to stop, wherever the run is then.

    Returns:
        The run: ``published``, ``rejected``, or ``skipped`` when no file of the batch was new; or as it is parked. It
        is in the journal.

    Raises:
        InputError: When what is wanted cannot be done. Nothing was written.
        DeadlineReachedError: When the time is over. The run, if it was begun, is parked.
        LakegateError: When the run could not be finished. Its branch is dropped, unless the message names it.
        KeyboardInterrupt: When interrupted; likewise.
    """
    if order.batch.rows == 0:
        return _skip_empty(rooms, order)
    recover(rooms, deadline)
    deadline.require_time(order.run_id)
    base = sync(rooms, order.target)
    request = plan(rooms, order, base=base).request
    run = _started(request, order if parks else None)
    park_s = rooms.park_s if parks else None
    with running(rooms, run, anew=True, park_s=park_s, deadline=deadline) as progress:
        _advance(rooms, progress, order, until, base, again=again, deadline=deadline)
    return progress.run


def go_on(
    rooms: Rooms,
    run_id: str,
    *,
    until: Stage,
    table: TableIdentifier | None = None,
    order: Callable[[], IngestOrder] | None = None,
    parks: bool = True,
    deadline: Deadline = NEVER,
) -> Run:
    """Bring a run as far as ``until``, from wherever it stopped: called again, it finds what was done.

    A run that failed, or whose branch somebody took away, is begun again. One that was not begun in steps, and whose
    process died, is settled.

    Args:
        rooms: The lake's rooms.
        run_id: The run.
        until: How far to go now.
        table: The table that it must be of.
        order: Makes the order of a run that is not known yet, or failed; by default the failed run's own.
        parks: See :func:`ingest`.
        deadline: Likewise.

    Raises:
        NotFoundError: When there is no such run, and no ``order``.
        InputError: When the run is one of another table.
        RetryableError: When another process works on it all the time.
        LakegateError: As :func:`ingest`. The run of a step that may be tried again is parked.
    """
    _require_of(rooms, run_id, table)
    run = _take(rooms, run_id, deadline)
    if run is not None and run.finished_at is not None and run.status != "failed":
        return run
    if run is None or run.finished_at is not None:
        wanted = _order_again(rooms, run_id, run, order)
        return ingest(rooms, wanted, until=until, parks=parks, again=run is not None, deadline=deadline)
    if run.order is None and order is None:
        return settle(rooms, run)
    park_s = rooms.park_s if parks else None
    with running(rooms, run, begun=True, park_s=park_s, deadline=deadline) as progress:
        wanted = _wanted(rooms, run, order)
        # What a process that died had not finished writing is not worth finding out.
        base = Ref(name=run.target, hash=run.base or "") if run.staged else _begin_again(rooms, progress, wanted)
        _advance(rooms, progress, wanted, until, base, again=True, deadline=deadline)
    return progress.run


def undo(rooms: Rooms, run_id: str, *, reason: str) -> Run:
    """End a run that will not be gone on with: what it wrote goes, unless it was published or is kept for looking at.

    Raises:
        NotFoundError: When there is no such run.
        RetryableError: When another process works on it, or the catalog is away.
    """
    run = _resume(rooms, run_id, NEVER)
    if run is None:
        raise _unknown(run_id)
    if run.finished_at is not None:
        return run
    if not run.failures:
        # Should we not get to the end of this: who comes next must not publish it for having passed.
        rooms.journal.save(run.model_copy(update={"reports": ()}))
    return settle(rooms, run, publishes=False, reason=reason)


def _require_of(rooms: Rooms, run_id: str, table: TableIdentifier | None) -> None:
    known = rooms.journal.get(run_id)
    if table is not None and known is not None and known.tables != (str(table),):
        raise InputError(
            f"Run {run_id} is one of {known.table or 'a transaction'}, not of {table}.",
            hint="Give the runs of each table ids of their own.",
            run_id=run_id,
            table=str(table),
        )


def _take(rooms: Rooms, run_id: str, deadline: Deadline) -> Run | None:
    """Take the run's lease, unless it has ended; one of unknown or bad end may turn out to be published."""
    run = _resume(rooms, run_id, deadline)
    if run is not None and run.status != "failed":
        return run
    sync(rooms, run.target if run is not None else "main")
    return _resume(rooms, run_id, deadline)


def _resume(rooms: Rooms, run_id: str, deadline: Deadline) -> Run | None:
    """Take the run's lease; wait for as long as one lasts whose process on another machine may have died."""
    until = min(time.monotonic() + rooms.lease_s * 1.2, deadline.at)
    while True:
        try:
            return rooms.journal.resume(run_id)
        except RetryableError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_S)


def _wanted(rooms: Rooms, run: Run, order: Callable[[], IngestOrder] | None) -> IngestOrder:
    """Return the order to go on with: a new one where files of the run's own have changed before they were written."""
    if run.order is not None and (order is None or run.staged or not rooms.changed_files(run.order.batch)):
        return run.order
    return _order_again(rooms, run.run_id, None, order)


def _order_again(rooms: Rooms, run_id: str, failed: Run | None, order: Callable[[], IngestOrder] | None) -> IngestOrder:
    if failed is not None and failed.branch_kept:
        # What is left of it would be in the way of its own second beginning.
        discard_own(rooms, failed)
    if order is not None:
        return order()
    if failed is not None and failed.order is not None:
        return failed.order
    raise _unknown(run_id)


def _unknown(run_id: str) -> NotFoundError:
    return NotFoundError(f"There is no run '{run_id}' that could be gone on with.", hint="lakegate runs", run_id=run_id)


def _started(request: WriteRequest, order: IngestOrder | None) -> Run:
    return Run(
        run_id=request.run_id,
        tables=(str(request.table),),
        branch=request.branch,
        status="running",
        started_at=datetime.now(UTC),
        target=request.target,
        base=request.base,
        order=order,
        request=request,
    )


def _advance(
    rooms: Rooms,
    progress: Progress,
    order: IngestOrder,
    until: Stage,
    base: Ref,
    *,
    again: bool,
    deadline: Deadline,
) -> Run:
    """Bring the run as far as ``until``; begin it again when the target moved so that what was staged is void."""
    for attempt in range(1, _ATTEMPTS + 1):
        if not progress.run.staged:
            share = claim_files(rooms, order, base, deadline)
            if not share.files:
                return _skipped(progress, share)
            _note_share(progress, share)
            faults.reach("after-claim")
        try:
            return _write_audit_publish(rooms, progress, until, again=again)
        except (ConflictError, NotFoundError) as error:
            if attempt == _ATTEMPTS or not _is_void(rooms, progress.run, error):
                raise
            rooms.narrator.note(f"{error.message.split(';')[0]}; doing it again on top of that.")
            base = _begin_again(rooms, progress, order)
    raise AssertionError("the last attempt returns or raises")


def _is_void(rooms: Rooms, run: Run, error: LakegateError) -> bool:
    """Tell whether what was staged is worth nothing any more, so that only beginning again helps."""
    if isinstance(error, ConflictError):
        return isinstance(error, (AlreadyPublishedError, NotReplayableError)) or wrote_since(rooms, run)
    return bool(run.staged) and not any(ref.name == run.branch for ref in rooms.catalog.list_refs())


def _note_share(progress: Progress, share: Share) -> None:
    request = _request(progress.run)
    request = request.model_copy(update={"batch": request.batch.only(share.files), "replaces": share.replaces})
    progress.update(request=request, base=request.base, skipped_files=share.skipped)


def _write_audit_publish(rooms: Rooms, progress: Progress, until: Stage, *, again: bool) -> Run:
    if not progress.run.staged:
        with progress.step("write"):
            staged = stage(rooms, _request(progress.run))
        progress.update(status="staged", staged=(staged,), branch_kept=True)
    if until == "write":
        return progress.run
    if not progress.run.reports:
        request = _request(progress.run)
        with progress.step("audit"):
            if again:
                # Engines say each in words of their own that a branch is gone.
                rooms.catalog.get_ref(progress.run.branch)
            report = audit(rooms, progress.run.staged[0], request.checks, replaces=request.replaces)
        progress.update(reports=(report,))
    if not all(report.passed for report in progress.run.reports):
        return _rejected(rooms, progress)
    if until == "audit":
        return progress.run
    try:
        with progress.step("publish"):
            publication = publish(
                rooms,
                progress.run,
                fresh=not again,
                require_lease=progress.require_lease,
                note_reports=progress.note_reports,
            )
    except RejectedLateError as error:
        progress.update(reports=error.reports)
        return _rejected(rooms, progress)
    return progress.end(status="published", publication=publication, branch_kept=publication.branch_left)


def _begin_again(rooms: Rooms, progress: Progress, order: IngestOrder) -> Ref:
    """Drop what was staged and plan anew on what the target is now; return that."""
    discard_own(rooms, progress.run)
    rooms.journal.release(order.run_id)
    base = sync(rooms, order.target)
    kept = order if progress.run.order is not None else None
    progress.update(status="running", staged=(), reports=(), branch_kept=False, order=kept)
    progress.update(request=plan(rooms, order, base=base).request)
    return base


def _rejected(rooms: Rooms, progress: Progress) -> Run:
    request = progress.run.request
    keep = request is None or request.on_failure == "keep"
    if not keep:
        discard(rooms, progress.run.branch)
    return progress.end(status="rejected", branch_kept=keep)


def _request(run: Run) -> WriteRequest:
    if run.request is None:
        raise AssertionError("an ingest has a request")
    return run.request


def _skipped(progress: Progress, share: Share) -> Run:
    return progress.end(status="skipped", branch="", branch_kept=False, skipped_files=share.skipped, detail=_why(share))


def _skip_empty(rooms: Rooms, order: IngestOrder) -> Run:
    now = datetime.now(UTC)
    files = "file holds" if len(order.batch.files) == 1 else f"{len(order.batch.files)} files hold"
    run = Run(
        run_id=order.run_id,
        tables=(str(order.table),),
        branch="",
        status="skipped",
        started_at=now,
        finished_at=now,
        detail=f"The source {files} no rows; nothing to publish.",
    )
    rooms.journal.save(run)
    return run


def _why(share: Share) -> str:
    runs = list(dict.fromkeys(known.run_id for known in share.skipped))
    what = "The file was" if len(share.skipped) == 1 else f"All {len(share.skipped):,} files were"
    by = f"run {runs[0]}" if len(runs) == 1 else f"runs {runs[0]} and {len(runs) - 1:,} other(s)"
    happened = f"left to or already published by {by}" if share.busy else f"already published by {by}"
    return f"{what} {happened}; nothing to do."
