"""Openings: other engines write to a branch through the gate for a while; then it's sealed, audited, and published.

An opening is a run. While it's ``created``, whoever holds its token may write to its branch. The seal moves it to
``planned``, and then commits to the branch. The gate commits only on top of a head that it read before it looked
whether the opening is open. So a write is either below the seal's commit, and audited, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    ConflictError,
    InputError,
    NotFoundError,
    NotReplayableError,
)
from lakegate.ledger.sync import sync
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.opening import Opening
from lakegate.model.refs import Ref
from lakegate.model.run import Lease, OpenTime, Run, StagedTable
from lakegate.wap.audit import ConfiguredChecks
from lakegate.wap.branches import store_run
from lakegate.wap.discard import ref_exists
from lakegate.wap.publish import require_untouched
from lakegate.wap.recover import close, recover, running
from lakegate.wap.session import RunSession, to_run_error
from lakegate.wap.written import audit_written, publish_written, stage_written

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal

_SEAL_ATTEMPTS = 20


class ClosedError(InputError):
    """An opening has ended."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to open.

    Attributes:
        name: The user's name for what is written.
        checks: Checks for tables, in addition to those of their contracts and settings.
        open_s: Seconds after which the opening expires, unless it's sealed before.
    """

    run_id: str
    name: str | None
    branch: str
    target: str
    checks: Mapping[TableIdentifier, Sequence[Check]]
    open_s: float


def open_branch(context: Context, order: Order) -> Run:
    """Make a branch that a writer may write to through the gate, until :func:`seal` or its deadline.

    Raises:
        AlreadyExistsError: When the branch exists.
    """
    with _begun(context, order) as session:
        pass  # what fails until here ends the run: nobody has its token
    context.journal.suspend(session.run, session.token, for_s=order.open_s)
    return session.run


@contextmanager
def opened(context: Context, order: Order, configured: ConfiguredChecks) -> Iterator[RunSession]:
    """Open a branch as :func:`open_branch` does while the body works, then do what :func:`seal` does.

    If the body fails, or this process dies, nothing is published; the branch stays.

    Args:
        configured: Returns the checks of a table's contract and settings.
    """
    with _begun(context, order) as session:
        try:
            with session.step("write"):
                yield session
        finally:
            session.run = _with_uses(context, session.run)
        _seal(context, session, configured)


@contextmanager
def _begun(context: Context, order: Order) -> Iterator[RunSession]:
    validate_ref_name(order.branch)
    recover(context)
    if ref_exists(context, order.branch):
        drop = "" if order.branch == order.target else f", or drop it: lakegate discard {order.branch}"
        raise AlreadyExistsError(
            f"Branch '{order.branch}' exists already.",
            hint=f"Choose another name{drop}",
            branch=order.branch,
        )
    base = sync(context, order.target)
    now = datetime.now(UTC)
    run = Run(
        run_id=order.run_id,
        kind="gate",
        name=order.name,
        tables=(),
        branch=order.branch,
        status="created",
        started_at=now,
        target=order.target,
        base=base.hash,
        checks={str(table): tuple(checks) for table, checks in order.checks.items()},
        branch_kept=True,
        opening=OpenTime(deadline=now + timedelta(seconds=order.open_s)),
    )
    with running(context, run) as session:
        context.require_writable()
        store_run(context, session.run, context.catalog.create_branch(order.branch, base))
        yield session


class JournalOpenings:
    """Implements :class:`lakegate.ports.Openings`: an opening is a run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def get(self, opening_id: str) -> Opening | None:
        """Return an opening as it is at this moment."""
        run = self._journal.get(opening_id)
        if run is None or run.opening is None or run.base is None:
            return None
        return Opening(
            opening_id=run.run_id,
            branch=run.branch,
            base=run.base,
            deadline=run.opening.deadline,
            is_sealed=run.status != "created" or run.finished_at is not None,
        )

    def note_use(self, opening_id: str, *, reads: Sequence[str] = (), client: str | None = None) -> None:
        """Remember which published tables a writer has read, and what the client that wrote calls itself."""
        run = self._journal.get(opening_id)
        if run is not None:
            self._journal.note(run, lambda known: _used(known, reads, client))


def _used(run: Run, reads: Sequence[str], client: str | None) -> Run:
    opening = run.opening
    if opening is not None and client is not None:
        opening = opening.model_copy(update={"writers": tuple(dict.fromkeys([*opening.writers, client]))})
    return run.model_copy(update={"reads": tuple(dict.fromkeys([*run.reads, *reads])), "opening": opening})


def renew(context: Context, run_id: str, *, open_s: float) -> Run:
    """Give an opening ``open_s`` more seconds from now, with the same token."""
    lease = _lease(context, run_id)
    if lease.token is None or lease.run.status != "created" or lease.run.opening is None:
        if lease.token is not None:
            context.journal.abandon(run_id, lease.token)
        raise closed(lease.run)
    deadline = datetime.now(UTC) + timedelta(seconds=open_s)
    return _put_back(context, lease.run, lease.token, deadline=deadline)


def make_stream(context: Context, run_id: str) -> Run:
    """Let what is written to an open branch be published slice by slice, so that it can't be sealed any more."""
    run = context.journal.get(run_id)
    if run is not None and run.status == "created" and run.opening is not None and run.opening.is_stream:
        return run
    lease = _lease(context, run_id)
    if lease.token is None:
        raise closed(lease.run)
    if lease.run.status != "created":
        context.journal.abandon(run_id, lease.token)
        raise closed(lease.run)
    return _put_back(context, lease.run, lease.token, is_stream=True)


def _put_back(context: Context, run: Run, token: str, **changes: object) -> Run:
    """Leave an opening to its writer again, until its deadline."""
    if run.opening is None:
        raise AssertionError("an opening has a deadline")
    opening = run.opening.model_copy(update=changes)
    run = run.model_copy(update={"opening": opening})
    left = opening.deadline - datetime.now(UTC)
    context.journal.suspend(run, token, for_s=max(left.total_seconds(), 0.0))
    return run


def seal(context: Context, run_id: str, configured: ConfiguredChecks) -> Run:
    """Let nobody write to the branch of an opening any more, then audit each table, and publish all of them or nothing.

    If this was interrupted, calling it again continues. A run that has ended is returned as it is.

    Args:
        configured: Returns the checks of a table's contract and settings.

    Returns:
        The run: ``published``, ``rejected``, or ``skipped`` if nothing was written.

    Raises:
        ClosedError: When the opening expired, failed, or was discarded.
        ConflictError: When a table changed on the target in a way that rules out a rebase. The branch stays.
        InputError: When something was written that can't be published, such as a dropped table: the branch stays. Or
            when it's a stream, which stays open.
        NotFoundError: When there's no such opening.
    """
    lease = _lease(context, run_id)
    if lease.token is None:
        if lease.run.status in {"failed", "discarded"}:
            raise closed(lease.run)
        return lease.run
    if lease.run.opening is not None and lease.run.opening.is_stream:
        _put_back(context, lease.run, lease.token)
        raise _not_sealable(lease.run)
    with running(context, lease.run, token=lease.token, suspends=True) as session:
        _seal(context, session, configured)
    return session.run


def _seal(context: Context, session: RunSession, configured: ConfiguredChecks) -> None:
    if session.run.status == "created":
        used = _with_uses(context, session.run)
        session.move("planned", reads=used.reads, opening=used.opening)
    if session.run.status == "planned":
        _close_branch(context, session)
        _stage(context, session, configured)
    elif session.run.staged:
        require_untouched(context, session.run)
    audit_written(context, session)
    try:
        publish_written(context, session)
    except NotReplayableError as error:  # the writer must write again
        session.move("failed", error=to_run_error(error), branch_kept=True)
        close(context, session)
        raise


def _with_uses(context: Context, run: Run) -> Run:
    """Return an opening with what the gate has noted about it meanwhile."""
    used = context.journal.get(run.run_id) or run
    return run.model_copy(update={"reads": used.reads, "opening": used.opening})


@retry(retry=retry_if_exception_type(ConflictError), stop=stop_after_attempt(_SEAL_ATTEMPTS), reraise=True)
def _close_branch(context: Context, session: RunSession) -> None:
    """Commit to the branch, so that a commit on top of an earlier head is refused."""
    store_run(context, session.run, context.catalog.get_ref(session.run.branch))


def _stage(context: Context, session: RunSession, configured: ConfiguredChecks) -> None:
    run = session.run

    def require_asked(staged: Sequence[StagedTable]) -> None:
        written = {str(one.table) for one in staged}
        unknown = [table for table in run.checks if table not in written]
        if staged and unknown:
            raise InputError(
                f"Checks were asked for on {', '.join(unknown)}, but nothing was written to it on branch {run.branch}.",
                hint=f"lakegate diff {run.target} {run.branch}",
                tables=unknown,
                branch=run.branch,
            )

    tables = [one.table for one in context.catalog.diff(_base(run), context.catalog.get_ref(run.branch))]
    stage_written(
        context,
        session,
        _base(run),
        lambda table: checks_of(run, table, configured),
        reads=[name for name in run.reads if name not in set(map(str, tables))],
        require=require_asked,
        nothing=f"No table was changed on {run.branch}. Did the writer use the gate?",
        by_anyone=True,
    )


def checks_of(run: Run, table: TableIdentifier, configured: ConfiguredChecks) -> Sequence[Check]:
    """Return the checks of a table: those of its contract and settings, and those that the opening asked for."""
    given = (*configured(table), *run.checks.get(str(table), ()))
    return tuple({str(check): check for check in given}.values())


def _base(run: Run) -> Ref:
    if run.base is None:
        raise AssertionError("an opening has a base")
    return Ref.detached(run.base)


def _lease(context: Context, run_id: str) -> Lease:
    lease = context.journal.resume(run_id, wait_s=context.lease_s * 1.2)
    if lease is None or lease.run.opening is None:
        if lease is not None and lease.token is not None:
            context.journal.abandon(run_id, lease.token)
        raise NotFoundError(f"Run '{run_id}' isn't an opening of the gate.", hint="lakegate gate status", run_id=run_id)
    return lease


def closed(run: Run) -> ClosedError:
    """Return the error for an opening that has ended."""
    why = f": {run.error.message}" if run.error is not None else "."
    return ClosedError(
        f"The opening of {run.branch} has ended ({run.status}){why}",
        hint=f"lakegate runs {run.run_id}",
        branch=run.branch,
        run_id=run.run_id,
    )


def _not_sealable(run: Run) -> InputError:
    return InputError(
        f"Branch {run.branch} is a stream: it's published slice by slice while its writer goes on, and never sealed.",
        hint=f"To end it, stop its writer, publish the rest with lakegate watch --branch {run.branch} --once, then: "
        f"lakegate discard {run.branch}",
        branch=run.branch,
        run_id=run.run_id,
    )
