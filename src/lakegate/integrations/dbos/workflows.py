"""Write, audit and publish as steps of one durable workflow, whose id is the run's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from typing import Required, TypedDict, cast
from weakref import WeakValueDictionary

from dbos import DBOS
from dbos import error as dbos_errors
from sqlalchemy.exc import SQLAlchemyError

from lakegate.errors import InputError, LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.lake import IngestOptions, Lake, connect
from lakegate.model.checks import CheckResult
from lakegate.model.request import OnBusy, OnChanged, OnFailure, OnSameContent
from lakegate.model.run import Run
from lakegate.ports import Narrator, Step
from lakegate.progress import SilentNarrator

WAP = "lakegate.wap"
"""Name of the workflow, for those who enqueue it from outside."""
_MAX_FAILURES = 20


class Order(TypedDict, total=False):
    """What a workflow is asked to do. It is stored in DBOS's tables: names and paths, never contents or secrets.

    Attributes:
        table: ``namespace.table``.
        paths: Files, globs or folders.
        run_id: A run of this table that somebody else left between two steps, to go on with; by default there is a new
            one, of the workflow's id.
    """

    table: Required[str]
    paths: Required[Sequence[str]]
    checks: Sequence[str]
    branch: str
    partition_by: Sequence[str]
    on_failure: OnFailure
    on_changed: OnChanged
    on_busy: OnBusy
    on_same_content: OnSameContent
    run_id: str


class Outcome(TypedDict):
    """What became of a run: what a step and the workflow return, and DBOS stores. Small, and survives JSON.

    Attributes:
        run_id: Also the workflow's id, unless the order said which.
        status: ``published``, ``rejected`` or ``skipped`` at the end; ``staged`` between steps; ``failed`` when it was
            undone.
        table: Its table.
        branch: Its branch; stands after a rejection unless ``on_failure`` says otherwise.
        rows: Rows written.
        failures: Why it was rejected: at most 20 checks with their numbers of failing rows, no values.
        detail: Why it was skipped or undone, in one sentence.
    """

    run_id: str
    status: str
    table: str
    branch: str
    rows: int
    failures: list[str]
    detail: str | None


LakeOpener = Callable[[Narrator], Lake]


def _connect(narrator: Narrator) -> Lake:
    return connect(narrator=narrator)


_opener: LakeOpener = _connect


def use_lake(opener: LakeOpener) -> None:
    """Have the steps open their lake so, each time; by default :func:`lakegate.connect` with what is found here."""
    global _opener  # noqa: PLW0603 - workflows are global too, and what they are given must survive in a database
    _opener = opener


def opened_lake() -> Lake:
    """Open the lake for one step, as :func:`use_lake` says."""
    return _opener(LogNarrator())


class LogNarrator(SilentNarrator):
    """Tells DBOS's log what goes on, which adds the workflow's id to each line."""

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Tell of ``text`` when it begins."""
        DBOS.logger.info(text)
        with super().step(text) as step:
            yield step

    def note(self, text: str) -> None:
        """Tell one finished fact."""
        DBOS.logger.info(text)


class _Turn:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def may_succeed_again(error: BaseException) -> bool:
    """Tell whether a step that failed so is worth calling again; the lake then finds what was done."""
    return isinstance(error, (RetryableError, OutcomeUnknownError))


_turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
_turns_lock = threading.Lock()


@contextmanager
def turn_at(run_id: str) -> Iterator[Lake]:
    """Open the lake for a step of a run, alone in this process.

    DBOS begins a workflow again that it takes for dead, here as well, and lets the slower one's results go. Between
    processes the run's lease sees to it that only one works on it.
    """
    with _turns_lock:
        turn = _turns.setdefault(run_id, _Turn())
    with turn.lock, opened_lake() as lake:
        yield lake


@DBOS.step(name="lakegate.write", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def write(run_id: str, order: Order) -> Outcome:
    """Write the files to a branch; see :meth:`lakegate.Lake.write`."""
    options = {key: value for key, value in order.items() if key not in ("table", "paths")}
    with turn_at(run_id) as lake:
        given = cast("IngestOptions", {**options, "run_id": run_id})
        return outcome_of(lake.write(order["table"], list(order["paths"]), **given))


@DBOS.step(name="lakegate.audit", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def audit(run_id: str) -> Outcome:
    """Audit what was written; see :meth:`lakegate.Lake.audit_run`."""
    with turn_at(run_id) as lake:
        return outcome_of(lake.audit_run(run_id))


@DBOS.step(name="lakegate.publish", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def publish(run_id: str) -> Outcome:
    """Publish what passed its audit; see :meth:`lakegate.Lake.publish_run`."""
    with turn_at(run_id) as lake:
        return outcome_of(lake.publish_run(run_id))


@DBOS.step(name="lakegate.undo", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def undo(run_id: str, reason: str) -> Outcome | None:
    """End a run that is given up; see :meth:`lakegate.Lake.cancel_run`. ``None`` when it never came to a run."""
    return _undo(run_id, reason)


@DBOS.workflow(name=WAP)
def wap(order: Order) -> Outcome:
    """Write files to a branch, audit them, and publish them, or not at all.

    The workflow's id is the run's id, unless the order names a run: set it with ``SetWorkflowID`` (ASCII letters,
    digits, ``.``, ``_``, ``-``), so that starting it twice is once. A rejected audit is a result. What could not be
    done is undone, and raised.

    Raises:
        LakegateError: When a step failed for good.
    """
    # Forked from a later step, the workflow goes on with the run that its first step began.
    run_id = order.get("run_id", str(DBOS.workflow_id))
    try:
        outcome = write(run_id, order)
        run_id = outcome["run_id"]
        for step in (audit, publish):
            if outcome["status"] != "staged":
                break
            outcome = step(run_id)
    except (dbos_errors.DBOSWorkflowCancelledError, dbos_errors.DBOSWorkflowConflictIDError):
        # No further step is given to a workflow that was cancelled, or that another process has taken over.
        if _is_cancelled(str(DBOS.workflow_id)):
            _undo_cancelled(run_id)
        raise
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, (dbos_errors.DBOSException, SQLAlchemyError)):
            # DBOS itself stopped, or could not write something down; the workflow is recovered, and goes on.
            raise
        if "run_id" in order and isinstance(cause, InputError):
            # Its step has ended the run, or it is not one of this table: then it is not ours to undo.
            raise cause from None
        ended = _undone(run_id, cause)
        if ended is None or ended["status"] != "published":
            raise cause from None
        # Only the answer to its publish was lost.
        return ended
    return outcome


def outcome_of(run: Run) -> Outcome:
    """Return what DBOS stores of a run."""
    detail = run.error.message if run.error is not None else run.detail
    return Outcome(
        run_id=run.run_id,
        status=run.status,
        table=run.table,
        branch=run.branch,
        rows=sum(staged.rows for staged in run.staged),
        failures=[_failure(result) for result in run.failures[:_MAX_FAILURES]],
        detail=detail,
    )


def _failure(result: CheckResult) -> str:
    return f"{result.check}: {result.failing_rows:,} of {result.total_rows:,} rows"


def _undone(run_id: str, cause: Exception) -> Outcome | None:
    try:
        return undo(run_id, f"Its DBOS workflow failed: {cause}")
    except Exception as error:  # noqa: BLE001 - the first failure is the one to tell
        _tell_left(run_id, error)
        return None


def _is_cancelled(workflow_id: str) -> bool:
    # Asked in the workflow's own context, it would be a step.
    status = Context().run(DBOS.get_workflow_status, workflow_id)
    return status is not None and status.status == "CANCELLED"


def _undo_cancelled(run_id: str) -> None:
    try:
        _undo(run_id, "Its DBOS workflow was cancelled.")
    except LakegateError as error:
        _tell_left(run_id, error)


def _undo(run_id: str, reason: str) -> Outcome | None:
    with turn_at(run_id) as lake:
        try:
            return outcome_of(lake.cancel_run(run_id, reason=reason))
        except NotFoundError:
            return None


def _tell_left(run_id: str, error: Exception) -> None:
    DBOS.logger.error(f"Run {run_id} could not be undone; `lakegate recover` settles it later: {_cause(error)}")


def _cause(error: Exception) -> Exception:
    """Return what a step failed with at last, instead of the number of its attempts."""
    if isinstance(error, dbos_errors.DBOSMaxStepRetriesExceeded) and error.errors:
        return error.errors[-1]
    return error
