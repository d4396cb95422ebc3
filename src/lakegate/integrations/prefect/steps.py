"""The steps of a run as Prefect's tasks, and what their transaction does at its end."""

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
    """Return whether retrying a failed step may help."""
    return isinstance(state.data, MAY_PASS)


def retriable_task(
    name: str, *, timeout_s: float, task_run_name: str | None = None
) -> Callable[[Callable[_Parameters, _Result | State[Any]]], Task[_Parameters, _Result]]:
    """Return the decorator of a task that changes the lake.

    Nothing is cached or persisted: a step finds in the lake what was done. A result in Prefect's storage would be a
    second source of truth, and hold data.

    Args:
        name: The task's name.
        timeout_s: Maximum seconds of one attempt.
        task_run_name: Template of a task run's name; by default ``name``.
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
        The run: ``staged``, ``skipped`` if there is nothing new, or as it ended if it has.

    Raises:
        AuditFailedError: The run was already rejected.
        LakegateError: The files can't be written.
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
        AuditFailedError: A check failed. The run has ended as ``rejected``.
        LakegateError: The audit can't run.
    """
    run = _tried(home, lambda lake: lake.audit_run(run_id))
    if isinstance(run, Run):
        show_audit(run, with_examples=with_examples, link=_link(home, run))
        _require_passed(run)
    return run


@retriable_task("publish", timeout_s=HOUR_S)
def publish(run_id: str, home: str | None = None, *, with_examples: bool = True) -> Run | State[Any]:
    """Publish what the run wrote, once.

    Returns:
        The run, ``published``.

    Raises:
        AuditFailedError: A check that passed fails now, because a table that it reads has changed.
        LakegateError: The run can't be published.
    """
    run = _tried(home, lambda lake: lake.publish_run(run_id))
    if isinstance(run, Run) and run.status == "rejected":
        show_audit(run, with_examples=with_examples, link=_link(home, run))
        _require_passed(run)
    return run


def _link(home: str | None, run: Run) -> str | None:
    with open_lake(home) as lake:
        return lake.settings.link_to(run.run_id, run.table, run.branch)


def stage_hooks(transaction: Transaction, run_id: str, home: str | None) -> None:
    """Show the run's publication when the transaction commits, and undo the run when it is rolled back.

    The hooks are the transaction's own, not a task's: Prefect calls the hooks of completed tasks only, so a task that
    failed or was stopped would clean up nothing.

    Args:
        transaction: The transaction of the run's tasks.
        run_id: The run.
        home: The project's folder.
    """

    def finish(_transaction: Transaction) -> None:
        with open_lake(home) as lake:
            run = lake.run(run_id)
            show_publication(run, link=lake.settings.link_to(run.run_id, run.table, run.branch))

    def undo(_transaction: Transaction) -> None:
        logger = get_run_logger()
        try:
            with open_lake(home) as lake:
                run = lake.cancel_run(run_id, reason="Its flow run was stopped.")
        except NotFoundError:
            return
        except LakegateError as error:
            logger.warning("%s To undo the run: lakegate recover %s", told(error), run_id)
        else:
            logger.info("Run %s is %s.", run_id, run.status)

    transaction.stage(run_id, on_rollback_hooks=[undo], on_commit_hooks=[finish])


def open_lake(home: str | None) -> Lake:
    """Open the project's lake, with a narrator that writes to Prefect's logs."""
    return connect(home, narrator=RunLogNarrator(), orchestrator="prefect")


def retried(step: Callable[[], _Result]) -> _Result | State[Any]:
    """Run a task's step; return a retryable error as a failed state while attempts are left.

    When a task raises, Prefect rolls its transaction back at once, *before* it retries the task, and with it the tasks
    before (prefect 3.8, ``SyncTaskRunEngine.transaction_context``). It retries a failed state without that.
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
