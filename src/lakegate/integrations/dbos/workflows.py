"""Write, audit and publish as the steps of a durable workflow, whose id is the run's id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Required, TypedDict

from dbos import DBOS, PortableWorkflowError
from dbos import error as dbos_errors
from sqlalchemy.exc import SQLAlchemyError

from lakegate import errors
from lakegate.errors import LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.integrations import leaving_out_secrets
from lakegate.lake import Lake, connect
from lakegate.model.request import IngestOptions, ModeName, OnBusy, OnChanged, OnFailure
from lakegate.model.run import Run
from lakegate.model.states import OPEN
from lakegate.ports import Narrator, Step
from lakegate.progress import SilentNarrator, without_secrets

WAP = "lakegate.wap"
"""Name of the workflow, for enqueuing it from outside."""
_MAX_FAILURES = 20


class Order(TypedDict, total=False):
    """What a workflow ingests. Stored in DBOS's tables, so it has names and paths, never data or secrets.

    Attributes:
        table: ``namespace.table``.
    """

    table: Required[str]
    paths: Required[Sequence[str]]
    checks: Sequence[str]
    branch: str
    partition_by: Sequence[str]
    on_failure: OnFailure
    on_changed: OnChanged
    on_busy: OnBusy
    mode: ModeName
    key: Sequence[str]
    delete_when: str


class Outcome(TypedDict):
    """A run's outcome: what each step and the workflow return, and DBOS stores as JSON.

    Attributes:
        run_id: Also the workflow's id.
        status: ``published``, ``rejected`` or ``skipped`` at the end; ``staged`` and ``audited`` between steps;
            ``failed`` if the run was undone.
        branch: Its branch, which a rejected run keeps unless ``on_failure`` is ``drop``.
        failures: Why it was rejected: at most 20 checks with their numbers of failing rows, but no values.
        skipped: Number of files that it left to other runs, or that were published before.
    """

    run_id: str
    status: str
    table: str
    branch: str
    rows: int
    failures: list[str]
    detail: str | None
    skipped: int


LakeOpener = Callable[[Narrator], Lake]


def connect_lake(narrator: Narrator) -> Lake:
    """Open the lake of the current folder."""
    return connect(narrator=narrator, orchestrator="dbos")


_opener: LakeOpener = connect_lake


def use_lake(opener: LakeOpener) -> None:
    """Set how steps open the lake. The default is :func:`lakegate.connect` with the current folder's settings."""
    global _opener  # noqa: PLW0603 - workflows are global too, and their arguments must survive in a database
    _opener = opener


def open_lake() -> Lake:
    """Open the lake for one step; see :func:`use_lake`."""
    return _opener(_DbosNarrator())


class _DbosNarrator(SilentNarrator):
    """Logs through DBOS, which adds the workflow's id to each line."""

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        DBOS.logger.info(without_secrets(text))
        with super().step(text) as step:
            yield step

    def note(self, text: str) -> None:
        DBOS.logger.info(without_secrets(text))


def may_succeed_again(error: BaseException) -> bool:
    """Return whether retrying a failed step may help. The lake knows what was already done."""
    return isinstance(error, (RetryableError, OutcomeUnknownError))


_step = partial(DBOS.step, retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)


@_step(name="lakegate.write")
def write(run_id: str, order: Order) -> Outcome:
    """Write the files to a branch; see :meth:`lakegate.Lake.write`."""
    given: dict[str, Any] = {name: value for name, value in order.items() if name not in ("table", "paths")}
    options = IngestOptions(run_id=run_id, **given)
    with leaving_out_secrets(), open_lake() as lake:
        return outcome_of(lake.intake.write(order["table"], list(order["paths"]), options))


@_step(name="lakegate.audit")
def audit(run_id: str) -> Outcome:
    """Audit the branch; see :meth:`lakegate.Lake.audit_run`."""
    with leaving_out_secrets(), open_lake() as lake:
        return outcome_of(lake.audit_run(run_id))


@_step(name="lakegate.publish")
def publish(run_id: str) -> Outcome:
    """Publish the branch, which passed its audit; see :meth:`lakegate.Lake.publish_run`."""
    with leaving_out_secrets(), open_lake() as lake:
        return outcome_of(lake.publish_run(run_id))


@_step(name="lakegate.undo")
def undo(run_id: str, reason: str) -> Outcome | None:
    """Undo a run; see :meth:`lakegate.Lake.cancel_run`. Returns ``None`` if it doesn't exist."""
    return _undo(run_id, reason)


@DBOS.workflow(name=WAP)
def wap(order: Order) -> Outcome:
    """Write files to a branch, audit them, and publish them, or not at all.

    The workflow's id is the run's id. Set it with ``SetWorkflowID`` (ASCII letters, digits, ``.``, ``_``, ``-``), so
    that starting the workflow twice runs it only once. A rejection is a result. If a run fails, it's undone and its
    error is raised.
    """
    run_id = str(DBOS.workflow_id)
    try:
        outcome = write(run_id, order)
        # If the workflow was forked from a later step, it continues the run that the original's first step started.
        run_id = outcome["run_id"]
        for step in (audit, publish):
            if outcome["status"] in OPEN:
                outcome = step(run_id)
    except (dbos_errors.DBOSWorkflowCancelledError, dbos_errors.DBOSWorkflowConflictIDError):
        # The workflow was cancelled, or another process took it over. DBOS runs no more of its steps here.
        if _is_cancelled(str(DBOS.workflow_id)):
            _undo_cancelled(run_id)
        raise
    except Exception as error:
        cause = cause_of(error)
        if isinstance(cause, (dbos_errors.DBOSException, SQLAlchemyError)):
            # DBOS itself stopped or couldn't save something. It will recover the workflow.
            raise
        # What it said, which may quote values that the settings hide, is in the run, without them.
        ended = _try_undo(undo, run_id, f"Its DBOS workflow failed ({type(cause).__name__}).")
        if ended is None or ended["status"] != "published":
            raise cause from None
        # The run is published; only the response got lost.
        return ended
    return outcome


def outcome_of(run: Run) -> Outcome:
    """Return a run's outcome or current status in the form that DBOS stores."""
    detail = run.error.message if run.error is not None else run.detail
    return Outcome(
        run_id=run.run_id,
        status=run.status,
        table=run.table,
        branch=run.branch,
        rows=sum(staged.rows for staged in run.staged),
        failures=[f"{r.check}: {r.failing_rows:,} of {r.total_rows:,} rows" for r in run.failures[:_MAX_FAILURES]],
        detail=detail,
        skipped=len(run.skipped_files),
    )


def _try_undo(undoing: Callable[[str, str], Outcome | None], run_id: str, reason: str) -> Outcome | None:
    try:
        return undoing(run_id, reason)
    except Exception as error:  # noqa: BLE001 - the first error is the one to report
        said = without_secrets(str(cause_of(error)))
        DBOS.logger.error(f"Run {run_id} wasn't undone; recovery publishes it if it passed its audit: {said}")
        return None


def _is_cancelled(workflow_id: str) -> bool:
    # In a fresh context, since in the workflow's own context this call would count as a step.
    status = Context().run(DBOS.get_workflow_status, workflow_id)
    return status is not None and status.status == "CANCELLED"


def undo_cancelled_runs() -> None:
    """Undo the runs of workflows that were cancelled while no process ran them.

    Otherwise recovery would publish those that passed their audit. If the journal or catalog can't be reached, the next
    start does it.
    """
    suspended: Collection[str] = ()
    with suppress(LakegateError), open_lake() as lake:
        suspended = lake.maintenance.suspended_runs().keys()
    for run_id in filter(_is_cancelled, suspended):
        _undo_cancelled(run_id)


def _undo_cancelled(run_id: str) -> None:
    _try_undo(_undo, run_id, "Its DBOS workflow was cancelled.")


def _undo(run_id: str, reason: str) -> Outcome | None:
    with leaving_out_secrets(), open_lake() as lake:
        try:
            return outcome_of(lake.cancel_run(run_id, reason=reason))
        except NotFoundError:
            return None


def cause_of(error: Exception) -> Exception:
    """Return a step's last error instead of the error that counts its attempts, or that DBOS has read back."""
    if isinstance(error, dbos_errors.DBOSMaxStepRetriesExceeded) and error.errors:
        return error.errors[-1]
    if not isinstance(error, PortableWorkflowError):
        return error
    # Another process raised it. DBOS only has its name, message and code.
    if error.name == dbos_errors.DBOSMaxStepRetriesExceeded.__name__:
        return RetryableError(error.message)
    classes = (one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, LakegateError))
    return next((one(error.message) for one in classes if one.code == error.code), error)
