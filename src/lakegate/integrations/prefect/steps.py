"""The steps of a run as Prefect tasks, the hooks of their transaction, and the artifacts that Prefect shows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import httpx
from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.states import Failed
from prefect.tasks import Task
from prefect.transactions import Transaction

from lakegate.errors import AuditFailedError, LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.integrations import leaving_out_secrets
from lakegate.lake import Lake, connect
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run, changed_rows
from lakegate.ports import Step
from lakegate.progress import SilentNarrator, without_secrets

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

RETRY_DELAYS_S = [2.0, 10.0, 30.0, 60.0]
HOUR_S = 3600
RETRYABLE_ERRORS = (RetryableError, OutcomeUnknownError)


def may_succeed_again(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether retrying a failed step may help."""
    return isinstance(state.data, RETRYABLE_ERRORS)


def retriable_task(
    name: str, *, timeout_s: float, task_run_name: str | None = None
) -> Callable[[Callable[_Parameters, _Result | State[Any]]], Task[_Parameters, _Result]]:
    """Return the decorator for a task that changes the lake.

    Nothing is cached or persisted: the lake records what was done. A result in Prefect's storage would be a second
    source of truth, and contain data.

    Args:
        task_run_name: Template of a task run's name; by default ``name``.
    """
    decorate: Callable[..., Any] = task(
        name=name,
        retries=len(RETRY_DELAYS_S),
        retry_delay_seconds=RETRY_DELAYS_S,
        retry_jitter_factor=0.5,
        retry_condition_fn=may_succeed_again,
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
        The run: ``staged``, ``skipped`` if there's nothing new, or finished if an earlier try finished it.

    Raises:
        AuditFailedError: If the run was already rejected.
    """
    return _run_step(home, lambda lake: lake.intake.write(table, path, options))


@retriable_task("audit", timeout_s=2 * HOUR_S)
def audit(run_id: str, home: str | None = None) -> Run | State[Any]:
    """Audit what the run wrote, and show the report as an artifact.

    Raises:
        AuditFailedError: If a check failed. The run has ended as ``rejected``.
    """

    def audited(lake: Lake) -> Run:
        run = lake.audit_run(run_id)
        show_audit(run)
        return run

    return _run_step(home, audited)


@retriable_task("publish", timeout_s=HOUR_S)
def publish(run_id: str, home: str | None = None) -> Run | State[Any]:
    """Publish what the run wrote. Idempotent.

    Raises:
        AuditFailedError: If a check that passed now fails, because a table that it reads has changed.
    """

    def published(lake: Lake) -> Run:
        run = lake.publish_run(run_id)
        if run.status == "rejected":
            show_audit(run)
        return run

    return _run_step(home, published)


def add_hooks(transaction: Transaction, run_id: str, home: str | None) -> None:
    """Log the publish when the transaction commits, and undo the run when it's rolled back.

    These are hooks of the transaction, not of a task: Prefect calls only completed tasks' hooks, so a task that failed
    or was stopped wouldn't clean up.
    """

    def finish(_transaction: Transaction) -> None:
        with open_lake(home) as lake:
            run = lake.run(run_id)
        if run.publication is not None:
            text = "%s Commit %s. To undo it: lakegate revert %s"
            get_run_logger().info(text, sentence(run), run.publication.commit[:12], run_id)

    def undo(_transaction: Transaction) -> None:
        logger = get_run_logger()
        try:
            with open_lake(home) as lake:
                run = lake.cancel_run(run_id, reason="Its flow run was stopped.")
        except NotFoundError:
            return
        except LakegateError as error:
            text = "%s To undo the run, or to publish it if it passed its audit: lakegate admin recover %s"
            logger.warning(text, error_line(error), run_id)
        else:
            logger.info("Run %s is %s.", run_id, run.status)

    transaction.stage(run_id, on_rollback_hooks=[undo], on_commit_hooks=[finish])


def open_lake(home: str | None) -> Lake:
    """Open the project's lake, with a narrator that writes to Prefect's logs."""
    return connect(home, narrator=RunLogNarrator(), orchestrator="prefect")


def returning_retryable(step: Callable[[], _Result]) -> _Result | State[Any]:
    """Run a task's step. While attempts are left, return a retryable error as a failed state.

    When a task raises, Prefect rolls back its transaction, including earlier tasks, *before* it retries the task
    (prefect 3.8, ``SyncTaskRunEngine.transaction_context``). It retries a returned failed state without a rollback.
    """
    try:
        with leaving_out_secrets():
            return step()
    except RETRYABLE_ERRORS as error:
        if _is_last_try():
            raise
        return Failed(message=error_line(error), data=error)


def _run_step(home: str | None, step: Callable[[Lake], Run]) -> Run | State[Any]:
    def in_lake() -> Run:
        with open_lake(home) as lake:
            run = step(lake)
        if run.status == "rejected":
            raise AuditFailedError(
                sentence(run), hint=f"lakegate runs {run.run_id}", run_id=run.run_id, branch=run.branch, table=run.table
            )
        return run

    return returning_retryable(in_lake)


def _is_last_try() -> bool:
    context = TaskRunContext.get()
    return context is None or context.task_run.run_count > context.task.retries


def show_audit(run: Run) -> None:
    """Create an artifact of each audit report, without rows, since it goes into Prefect's database.

    A failure is only logged, and doesn't affect the run.
    """
    for report in run.reports:
        key = f"lakegate-{re.sub(r'[^a-z0-9]+', '-', report.table.lower()).strip('-')}-audit"
        columns = {"check", "verdict", "severity", "failing_rows", "total_rows", "evidence"}
        table = [result.model_dump(mode="json", include=columns) for result in report.results]
        try:
            create_table_artifact(table=table, key=key, description=sentence(run))
        except (httpx.HTTPError, PrefectException, OSError) as error:
            get_run_logger().warning("Couldn't create the report's artifact: %s", error)


def sentence(run: Run) -> str:
    """Return a run's outcome in one sentence."""
    if run.status == "published" and run.publication is not None:
        return f"Published {changed_rows(run.publication.rows, run.publication.rows_removed)} to {run.table}."
    if run.status == "rejected":
        failed = "; ".join(f"{one.name}: {one.failing_rows:,} of {one.total_rows:,} rows" for one in run.failures)
        left = f"The batch stays on branch {run.branch}." if run.branch_kept else "Its branch was dropped."
        return f"The audit of {run.table} failed, nothing was published. {failed}. {left}"
    if run.status == "skipped":
        return run.detail or "Nothing to publish."
    if run.status == "audited":
        return f"The audit of {run.table} passed."
    return f"Run {run.run_id} into {run.table} is {run.status}."


def error_line(error: LakegateError) -> str:
    """Return an error as one line, without secrets: what happened, and what to do about it."""
    return without_secrets(" ".join(filter(None, (error.message, error.hint))))


class RunLogNarrator(SilentNarrator):
    """Logs to the current task or flow, without secrets, and without progress, which would bury the other lines."""

    def __init__(self) -> None:
        self._logger: logging.Logger | logging.LoggerAdapter[logging.Logger] = get_run_logger()

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Log ``text`` at the start, and the duration at the end."""
        started, shown = monotonic(), without_secrets(text)
        self._logger.info("%s …", shown)
        with super().step(text) as step:
            yield step
        self._logger.info("%s: done in %.1f s", shown, monotonic() - started)

    def note(self, text: str) -> None:
        """Log ``text``."""
        self._logger.info("%s", without_secrets(text))
