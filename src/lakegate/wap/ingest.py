"""Ingest: the whole path of a batch, at once or step by step, as ARCHITECTURE.md lists it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from lakegate.context import Context
from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    NotReplayableError,
    SchemaError,
)
from lakegate.ledger.publication import EarlierAttemptError, find_publication
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.request import IngestRequest
from lakegate.model.run import Lease, Run
from lakegate.model.states import OPEN, RunStatus
from lakegate.wap import failpoints
from lakegate.wap.claims import ClaimedFiles, claim_files, published_already
from lakegate.wap.deadline import NEVER, Deadline, cancel_engine_at
from lakegate.wap.discard import discard_own, ref_exists
from lakegate.wap.modes import require_same_columns
from lakegate.wap.plan import plan
from lakegate.wap.publish import RejectedLateError, publish, require_untouched
from lakegate.wap.publish_lock import LOSSES_BEFORE_LOCK, holding_publish_lock
from lakegate.wap.quarantine import audit_and_quarantine
from lakegate.wap.recover import close, recover, running, settle_leased
from lakegate.wap.session import RunSession
from lakegate.wap.stage import NothingChangedError, kept_writing, stage

Stage = Literal["write", "audit", "publish"]
"""The last step to run."""
MakeRequest = Callable[[], IngestRequest]

_REACHED: Mapping[Stage, frozenset[RunStatus]] = {
    "write": frozenset({"staged", "audited"}),
    "audit": frozenset({"audited"}),
    "publish": frozenset(),
}
"""The open states in which a run is through a step."""
_ATTEMPTS = 4


def ingest(
    context: Context,
    request: IngestRequest,
    *,
    until: Stage = "publish",
    suspends: bool = False,
    retried: bool = False,
    deadline: Deadline = NEVER,
) -> Run:
    """Write, audit, and publish or reject one batch, without the files that are published already.

    Args:
        until: The last step to run now.
        suspends: Suspend the run for :func:`resume` after the step ``until``, or when a step fails that may be retried.
        retried: Whether a run of this id was started before, so that parts of it may be in progress or published.
        deadline: When to stop, even in the middle of a step.

    Returns:
        The run, as the journal has it: ``published``, ``rejected``, ``skipped`` when no file of the batch was new, or
        suspended.

    Raises:
        InputError: When the request can't be fulfilled. Nothing was written.
        DeadlineReachedError: When time ran out. If the run was started, it's suspended.
        LakegateError: When the run couldn't be finished. Its branch is dropped, unless the message names it.
        KeyboardInterrupt: When interrupted. The branch is dropped, too.
    """
    if request.batch.rows == 0:
        return _skip_empty(context, request)
    recover(context, deadline)
    deadline.require_time(request.run_id)
    base = sync(context, request.target)
    try:
        with cancel_engine_at(deadline, context, request.run_id):
            planned = plan(context, request, base=base).request
    except SchemaError:
        claimed = published_already(context, request)  # the table may have got other columns since
        if claimed is None:
            raise
        return _skip_published(context, request, claimed)
    run = Run.begun(planned, request if suspends else None)
    with running(context, run, anew=True, suspends=suspends, deadline=deadline) as session:
        session.order, session.is_retried = request, retried
        advance(context, session, until)
    return session.run


def resume(
    context: Context,
    run_id: str,
    *,
    until: Stage,
    table: TableIdentifier | None = None,
    request: MakeRequest | None = None,
    suspends: bool = True,
    deadline: Deadline = NEVER,
) -> Run:
    """Resume a run where it stopped, and take it through the step ``until``. No step is repeated.

    A run that failed, or whose branch was dropped, starts over; one that was cancelled does so only with a ``request``.
    A run that wasn't started in steps, and whose process
    died, is settled as :func:`~lakegate.wap.recover.recover` does.

    Args:
        until: The last step to run now.
        table: The table that the run must be about.
        request: Makes the request of a run that is unknown or failed; by default the failed run's own.
        suspends: See :func:`ingest`.

    Raises:
        NotFoundError: When the run doesn't exist and there is no ``request``.
        InputError: When the run is about another table.
        RetryableError: When another process keeps working on it.
        LakegateError: As for :func:`ingest`. If the step may be retried, the run is suspended.
    """
    _require_table(context, run_id, table)
    lease = _take_lease(context, run_id, deadline)
    if lease is not None and lease.run.finished_at is None and lease.run.status not in OPEN:
        lease = Lease(run=settle_leased(context, lease, deadline=deadline))  # its process died while it ended the run
    run = lease.run if lease is not None else None
    if run is not None and run.finished_at is not None:
        is_over = request is None and run.order is None  # it was cancelled, or never taken in steps
        if run.status != "failed" or is_over:
            return run
    if lease is None or run is None or run.finished_at is not None:
        if run is not None and run.branch_kept:
            discard_own(context, run)  # the branch of the first attempt would block the second
        made = _request_for(run_id, request, None if run is None else run.order)
        return ingest(context, made, until=until, suspends=suspends, retried=run is not None, deadline=deadline)
    if not run.is_stepwise and request is None:
        return settle_leased(context, lease, deadline=deadline)
    with running(context, run, token=lease.token, suspends=suspends, deadline=deadline) as session:
        session.order, session.is_retried = run.order or _request_for(run_id, request, None), True
        if run.is_stepwise and request is not None and not run.staged and context.changed_files(session.order.batch):
            session.order = request()  # files that changed before they were written: read their current version
            if session.order.batch.rows == 0:  # for instance, another run has taken all rows of the source
                discard_own(context, session.run)
                return session.end(status="skipped", branch="", branch_kept=False, detail=_no_rows(session.order))
        if not run.staged:
            # Start over: finding out how much a process wrote before it died isn't worth it.
            _start_over(context, session)
        advance(context, session, until)
    return session.run


def undo(context: Context, run_id: str, *, reason: str) -> Run:
    """End a run that nobody will resume, and drop what it wrote, unless it was published or its branch is kept.

    Raises:
        RetryableError: When another process is working on it, or the catalog is unavailable.
    """
    lease = _wait_for_lease(context, run_id)
    if lease is None:
        raise _unknown(run_id)
    return settle_leased(context, lease, reason=reason)


def _require_table(context: Context, run_id: str, table: TableIdentifier | None) -> None:
    known = context.journal.get(run_id)
    if table is not None and known is not None and known.tables[:1] != (str(table),):
        raise InputError(
            f"Run {run_id} belongs to {known.table or 'a transaction'}, not to {table}.",
            hint="Use another run id for each table.",
            run_id=run_id,
            table=str(table),
        )


def _take_lease(context: Context, run_id: str, deadline: Deadline) -> Lease | None:
    """Take the run's lease unless it has ended. Sync first if it's unknown or failed: it may be published after all."""
    lease = _wait_for_lease(context, run_id, deadline)
    if lease is not None and (lease.token is not None or lease.run.status != "failed"):
        return lease
    sync(context, lease.run.target if lease is not None else MAIN)
    return _wait_for_lease(context, run_id, deadline)


def _wait_for_lease(context: Context, run_id: str, deadline: Deadline = NEVER) -> Lease | None:
    """Take the run's lease; wait as long as a lease lasts, because its holder may have died."""
    return context.journal.resume(run_id, wait_s=min(context.lease_s * 1.2, deadline.left_s))


def _request_for(run_id: str, make: MakeRequest | None, own: IngestRequest | None) -> IngestRequest:
    made = make() if make is not None else own
    if made is None:
        raise _unknown(run_id)
    return made


def _unknown(run_id: str) -> NotFoundError:
    return NotFoundError(f"Run '{run_id}' doesn't exist or can't be resumed.", hint="lakegate runs", run_id=run_id)


def advance(context: Context, session: RunSession, until: Stage) -> None:
    """Take a run through the step ``until``, from whatever state it is in; or to its end, if it can't get there.

    If what it has staged becomes void because the target changed, it starts over. After two losses, the others wait.
    """
    attempt = 1
    with ExitStack() as locks:
        while session.run.status in OPEN and session.run.status not in _REACHED[until]:
            try:
                _STEPS[session.run.status](context, session)
            except (ConflictError, NotFoundError) as error:
                if attempt == _ATTEMPTS or not _is_void(context, session.run, error):
                    if isinstance(error, NotReplayableError) and not _request_of(session.run).mode.appends:
                        discard_own(context, session.run)  # it was computed from a table that has changed since
                    raise
                # A process with another journal may have published it, from the run stored on the branch.
                found = find_publication(context, session.run)
                if found is not None:
                    session.end(status="published", publication=found, branch_kept=found.branch_left)
                    return
                context.narrator.note(f"{error.message} Starting over on the current {session.run.target}.")
                if isinstance(error, NotReplayableError) and attempt >= LOSSES_BEFORE_LOCK:
                    locks.enter_context(_publish_locks(context, session, error))
                _start_over(context, session)
                attempt += 1
    if session.run.status not in OPEN and not session.ended:
        close(context, session)


def _publish_locks(context: Context, session: RunSession, lost: NotReplayableError) -> AbstractContextManager[None]:
    # It may have lost on a table that it only reads.
    tables = {str(lost.context.get("table", session.run.table)), str(_request_of(session.run).table)}
    return holding_publish_lock(context, session.run.target, tables, at_most_s=session.deadline.left_s)


def _plan(context: Context, session: RunSession) -> None:
    base = sync(context, session.run.target)
    planned = plan(context, _order_of(session), base=base).request
    session.move("planned", request=planned, reads=planned.reads, base=base.hash)


def _write(context: Context, session: RunSession) -> None:
    """Claim the files that no other run has, and write them to the run's branch."""
    planned = _request_of(session.run)
    claimed = claim_files(context, planned, session.token, session.deadline)
    if not claimed.files:
        _require_table_of(context, planned, claimed)
        skipped = {"skipped_files": claimed.skipped, "detail": _nothing_new(claimed)}
        session.end(status="skipped", branch="", branch_kept=False, **skipped)
        return
    batch = planned.batch.only(claimed.files)
    require_same_columns(context, planned, batch)
    request = planned.model_copy(update={"batch": batch, "replaces": claimed.replaces, "again": claimed.again})
    session.update(request=request, skipped_files=claimed.skipped)
    failpoints.reach("after-claim")
    try:
        with session.step("write"):
            staged = stage(context, request)
    except NothingChangedError as nothing:
        discard_own(context, session.run)
        session.end(status="skipped", branch="", branch_kept=False, detail=nothing.message)
        return
    session.move("staged", staged=(staged,), branch_kept=True)


def _audit(context: Context, session: RunSession) -> None:
    request, staged = _request_of(session.run), session.run.staged[0]
    with session.step("audit"):
        if session.is_retried:
            require_untouched(context, session.run)
        unstage = partial(session.move, "planned", staged=(), branch_kept=False)
        audited = audit_and_quarantine(context, request, staged, unstage=unstage)
        if session.run.status == "planned":  # rows were quarantined, and the others written again
            session.move("staged")  # and not with what is staged: another audit would see one of the two tables only
    session.move(
        "audited" if all(report.passed for report in audited.reports) else "rejected",
        branch_kept=True,
        staged=audited.staged,
        tables=tuple(str(one.table) for one in audited.staged),
        reports=audited.reports,
        detail=audited.over_limit,
    )


def publish_audited(context: Context, session: RunSession) -> None:
    """Publish a run that passed its audit, unless it fails a check against the current target."""
    try:
        with session.step("publish"):
            publication = publish(context, session.run, fresh=not session.is_retried, session=session)
    except RejectedLateError:
        session.move("rejected")
        return
    session.end(status="published", publication=publication, branch_kept=publication.branch_left)


_STEPS: Mapping[RunStatus, Callable[[Context, RunSession], None]] = {
    "created": _plan,
    "planned": _write,
    "staged": _audit,
    "audited": publish_audited,
}
"""The step that takes an ingest on from each open state."""


def _is_void(context: Context, run: Run, error: LakegateError) -> bool:
    """Return whether the staged data is void, so that only starting over helps."""
    if isinstance(error, EarlierAttemptError):
        return False
    if isinstance(error, ConflictError):
        # Before the run is staged, it only conflicts with an earlier attempt, or with a commit after its base.
        is_void = isinstance(error, (AlreadyPublishedError, NotReplayableError)) or not run.staged
        return is_void or kept_writing(context, run)
    return bool(run.staged) and not ref_exists(context, run.branch)


def _start_over(context: Context, session: RunSession) -> None:
    """Drop what was staged, and plan again on the current target."""
    order = _order_of(session)
    discard_own(context, session.run)
    context.journal.release(order.run_id, session.token)
    kept = order if session.run.is_stepwise else None
    forgotten = {"staged": (), "reports": (), "branch_kept": False, "detail": None}
    session.move("created", order=kept, tables=(str(order.table),), **forgotten)


def _order_of(session: RunSession) -> IngestRequest:
    if session.order is None:
        raise AssertionError("an ingest was asked for")
    return session.order


def _request_of(run: Run) -> IngestRequest:
    if run.request is None:
        raise AssertionError("an ingest has a request")
    return run.request


def _require_table_of(context: Context, request: IngestRequest, claimed: ClaimedFiles) -> None:
    """Refuse to skip files as published if another writer has dropped or renamed their table, rows and all."""
    if claimed.busy or context.catalog.get_ref_with_tables(request.target, [request.table])[1][request.table]:
        return
    last = context.journal.get(claimed.skipped[-1].run_id)
    commit = last.publication.commit[:12] if last is not None and last.publication is not None else "TIME"
    files = "The file was" if len(claimed.skipped) == 1 else f"All {len(claimed.skipped):,} files were"
    raise InputError(
        f"{files} already published, but {request.table} doesn't exist on {request.target} any more: another writer "
        "dropped or renamed it.",
        hint=f"Bring it back with lakegate table restore {request.table} --at {commit}, or, to ingest the files again, "
        f"also drop it there: lakegate table drop {request.table}",
        table=str(request.table),
        run_id=request.run_id,
    )


def _nothing_new(claimed: ClaimedFiles) -> str:
    runs = list(dict.fromkeys(known.run_id for known in claimed.skipped))
    what = "The file was" if len(claimed.skipped) == 1 else f"All {len(claimed.skipped):,} files were"
    by = f"run {runs[0]}" if len(runs) == 1 else f"run {runs[0]} and {len(runs) - 1:,} other(s)"
    happened = f"already published or claimed by {by}" if claimed.busy else f"already published by {by}"
    return f"{what} {happened}; nothing to do."


def _skip_published(context: Context, request: IngestRequest, claimed: ClaimedFiles) -> Run:
    _require_table_of(context, request, claimed)
    return _skip(context, request, detail=_nothing_new(claimed), skipped_files=claimed.skipped)


def _skip_empty(context: Context, request: IngestRequest) -> Run:
    return _skip(context, request, detail=_no_rows(request))


def _skip(context: Context, request: IngestRequest, **known: Any) -> Run:
    now = datetime.now(UTC)
    run = Run(
        run_id=request.run_id,
        tables=(str(request.table),),
        branch="",
        status="skipped",
        started_at=now,
        finished_at=now,
        **known,
    )
    context.journal.save(run)
    return run


def _no_rows(request: IngestRequest) -> str:
    count = len(request.batch.files)
    found = "The source file holds no rows" if count == 1 else f"The source {count} files hold no rows"
    return f"{found}; nothing to publish."
