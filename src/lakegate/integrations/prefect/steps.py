"""The steps of a run as Prefect's tasks, and what a transaction of them does at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger
from prefect.states import Failed
from prefect.tasks import Task
from prefect.transactions import Transaction

from lakegate.errors import AuditFailedError, LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.integrations.prefect.report import RunLogNarrator, sentence, show_audit, show_publication, told
from lakegate.lake import IngestOptions, Lake, connect
from lakegate.model.run import Run

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

RETRY_DELAYS_S = [2.0, 10.0, 30.0, 60.0]
HOUR_S = 3600
MAY_PASS = (RetryableError, OutcomeUnknownError)


def may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Tell whether a step failed in a way that another try may mend."""
    return isinstance(state.data, MAY_PASS)


def retriable_task(
    name: str, *, timeout_s: float, task_run_name: str | None = None
) -> Callable[[Callable[_Parameters, _Result | State[Any]]], Task[_Parameters, _Result]]:
    """Return the decorator of a task that does something to the lake.

    Nothing is cached or persisted: what a step has done stands in the lake, and asking the lake again is how a step
    finds it. A result in Prefect's storage would be a second truth, and hold data.
    """
    decorate: Callable[..., Any] = task(
        name=name,
        retries=len(RETRY_DELAYS_S),
        retry_delay_seconds=RETRY_DELAYS_S,
        retry_jitter_factor=0.5,
        retry_condition_fn=may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
        timeout_seconds=timeout_s,
        task_run_name=task_run_name,
    )
    return decorate


@retriable_task("write", timeout_s=6 * HOUR_S)
def write(table: str, path: list[str], options: IngestOptions, home: str | None = None) -> Run | State[Any]:
    """Write files to the run's branch.

    Returns:
        The run: ``staged``, or ``skipped`` when there is nothing new; as it ended, when it has.

    Raises:
        AuditFailedError: When it had been rejected before.
        LakegateError: When that cannot be done.
    """
    run = _tried(home, lambda lake: lake.write(table, path, **options))
    if isinstance(run, Run):
        _require_passed(run)
    return run


@retriable_task("audit", timeout_s=2 * HOUR_S)
def audit(run_id: str, home: str | None = None, *, with_examples: bool = True) -> Run | State[Any]:
    """Audit what the run wrote, and show the report as artifacts.

    Returns:
        The run, ``staged``: its audit has passed.

    Raises:
        AuditFailedError: When a check failed. The run has ended, ``rejected``.
        LakegateError: When the audit cannot be done.
    """
    run = _tried(home, lambda lake: lake.audit_run(run_id))
    if isinstance(run, Run):
        show_audit(run, with_examples=with_examples)
        _require_passed(run)
    return run


@retriable_task("publish", timeout_s=HOUR_S)
def publish(run_id: str, home: str | None = None, *, with_examples: bool = True) -> Run | State[Any]:
    """Publish what the run wrote, once.

    Returns:
        The run, ``published``.

    Raises:
        AuditFailedError: When a check fails now that did not before, because the table it reads has changed.
        LakegateError: When it cannot be published.
    """
    run = _tried(home, lambda lake: lake.publish_run(run_id))
    if isinstance(run, Run) and run.status == "rejected":
        show_audit(run, with_examples=with_examples)
        _require_passed(run)
    return run


def stage_hooks(transaction: Transaction, run_id: str, home: str | None) -> None:
    """Let the transaction show its run's publication when it commits, and undo the run when it is rolled back.

    The hooks are the transaction's own, not a task's: Prefect calls the hooks of tasks that completed, so the task that
    failed, or was stopped in its middle, would clean up nothing.
    """

    def finish(_transaction: Transaction) -> None:
        with open_lake(home) as lake:
            show_publication(lake.run(run_id))

    def undo(_transaction: Transaction) -> None:
        undo_run(run_id, home)

    transaction.stage(run_id, on_rollback_hooks=[undo], on_commit_hooks=[finish])


def undo_run(run_id: str, home: str | None) -> None:
    """End a run that its flow gives up, and drop its branch; when that cannot be done now, say who will do it."""
    logger = get_run_logger()
    try:
        with open_lake(home) as lake:
            run = lake.cancel_run(run_id, reason="Its flow run was stopped.")
    except NotFoundError:
        return
    except LakegateError as error:
        logger.warning("%s Settle it with: lakegate recover %s", told(error), run_id)
    else:
        logger.info("Run %s is %s.", run_id, run.status)


def open_lake(home: str | None) -> Lake:
    """Open the project's lake, and tell the logs what it does."""
    return connect(home, narrator=RunLogNarrator())


def retried(step: Callable[[], _Result]) -> _Result | State[Any]:
    """Do what a task is about; return what went wrong as a state when there is another try.

    A task that raises has its transaction rolled back at once, *before* it is tried again, and with it the tasks before
    it (prefect 3.8, ``SyncTaskRunEngine.transaction_context``). A state is tried again without that.
    """
    try:
        return step()
    except MAY_PASS as error:
        if _is_last_try():
            raise
        return Failed(message=told(error), data=error)


def _tried(home: str | None, step: Callable[[Lake], Run]) -> Run | State[Any]:
    def in_lake() -> Run:
        with open_lake(home) as lake:
            return step(lake)

    return retried(in_lake)


def _is_last_try() -> bool:
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def _require_passed(run: Run) -> None:
    if run.status == "rejected":
        raise AuditFailedError(
            sentence(run), hint=f"lakegate runs {run.run_id}", run_id=run.run_id, branch=run.branch, table=run.table
        )
