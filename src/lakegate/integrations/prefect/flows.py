"""Flows that ingest files into one table, and backfill historical files chunk by chunk."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import httpx
from prefect import flow, tags
from prefect.client.schemas.objects import State
from prefect.concurrency._asyncio import ConcurrencySlotAcquisitionError
from prefect.exceptions import PrefectException
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.transactions import transaction

from lakegate.errors import AuditFailedError, InputError, LakegateError, RetryableError
from lakegate.integrations.prefect.steps import (
    HOUR_S,
    RETRYABLE_ERRORS,
    add_hooks,
    audit,
    error_line,
    open_lake,
    publish,
    retriable_task,
    returning_retryable,
    sentence,
    write,
)
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, BackfillPlan, ChunkResult, DatedBy, Outcome
from lakegate.model.request import IngestOptions, OnBusy, OnChanged, OnFailure
from lakegate.model.run import Run, RunError
from lakegate.progress import without_secrets

REJECTED = "Rejected"
"""Name of the failed state of a flow run whose audit failed."""
_DONE = {"published", "already", "empty"}


def run_id_of(flow_run_id: UUID | str | None) -> str:
    """Return the run id that belongs to a flow run of :func:`wap_flow`."""
    return f"prefect-{flow_run_id}"


@flow(name="lakegate-wap", flow_run_name="{table}", persist_result=False)
def wap_flow(
    table: str,
    path: str | list[str],
    branch: str | None = None,
    checks: list[str] | None = None,
    partition_by: list[str] | None = None,
    on_failure: OnFailure | None = None,
    on_changed: OnChanged | None = None,
    on_busy: OnBusy | None = None,
    home: str | None = None,
) -> State[Any]:
    """Write files to a branch, audit them, and publish them to main, or not at all.

    The run's id is ``prefect-<flow run id>``, so retrying the flow run continues the run. Tasks that fail with a
    retryable error are retried up to four times. Called from Python, it returns the run or raises its error.

    Args:
        table: ``namespace.table``; created if it doesn't exist.
        path: Files, folders or patterns; Parquet or CSV.
        branch: New branch to write to. Default: one named after the run.
        checks: Checks of the batch, such as ``not_null(id)``, in addition to those of the table's settings.
        partition_by: Partitioning of a new table, such as ``days(pickup)``.
        on_failure: Keep or drop the branch of a rejected batch: ``keep`` or ``drop``. Default: the settings.
        on_changed: Files published before with other content: ``refuse``, ``append`` or ``replace``. Default: settings.
        on_busy: For files that other runs are ingesting: ``wait`` or ``skip``. Default: the settings.
        home: The project's folder, where the flow runs. Default: the nearest one upwards from the working folder.

    Returns:
        The flow run's last state: ``Published``, ``Skipped`` (nothing new), ``Rejected`` (a failed state), ``Failed``
        or ``Cancelled``.
    """
    run_id = run_id_of(flow_run.get_id())
    options = IngestOptions(
        run_id=run_id,
        branch=branch,
        checks=checks or (),
        partition_by=partition_by or (),
        on_failure=on_failure,
        on_changed=on_changed,
        on_busy=on_busy,
    )
    paths = [path] if isinstance(path, str) else path
    try:
        # A concurrency limit on this tag, if there is one, limits the steps that work on the table.
        with tags(f"lakegate:{table}"), transaction(logger=get_run_logger()) as steps:
            add_hooks(steps, run_id, home)
            run = write(table, paths, options, home)
            if run.status == "staged":
                run = audit(run_id, home)
                run = publish(run_id, home)
    except LakegateError as error:
        return _stopped(run_id, home, error)
    except (httpx.HTTPError, PrefectException, ConcurrencySlotAcquisitionError) as error:
        unreachable = RetryableError(
            f"Prefect's server didn't answer between two steps ({type(error).__name__}).",
            hint=f"Check the run's status: lakegate runs {run_id}. Then run the flow again.",
        )
        return _stopped(run_id, home, unreachable)
    return _final_state(run)


def _stopped(run_id: str, home: str | None, error: LakegateError) -> State[Any]:
    """Return the final state of a flow run that an error stopped. Its run may have been published anyway."""
    with suppress(LakegateError), open_lake(home) as lake:
        run = lake.run(run_id)
        if run.status == "published":
            return _final_state(run)
    return Failed(name=REJECTED if isinstance(error, AuditFailedError) else None, message=error_line(error), data=error)


def _final_state(run: Run) -> State[Any]:
    if run.status in ("published", "skipped", "reverted"):
        return Completed(name=run.status.capitalize(), message=sentence(run), data=run)
    # For example, someone discarded it between two steps. Nothing was published.
    error = LakegateError(sentence(run), hint=f"lakegate runs {run.run_id}", run_id=run.run_id)
    return Failed(message=error_line(error), data=error)


@retriable_task("chunk", timeout_s=9 * HOUR_S, task_run_name="{chunk.name}")
def ingest_chunk(chunk: BackfillChunk, backfill: Backfill, run_id: str) -> ChunkResult | State[Any]:
    """Ingest one chunk. If that raises, none of it was published."""
    result = returning_retryable(lambda: backfill.run(chunk, run_id=run_id))
    if isinstance(result, ChunkResult):
        why = without_secrets(result.error.message) if result.error else "; ".join(result.failed_checks)
        level = logging.INFO if result.outcome in _DONE else logging.WARNING
        get_run_logger().log(level, "%s: %s, %d rows. %s", chunk.name, result.outcome, result.rows, why)
    return result


@flow(name="lakegate-backfill", flow_run_name="{table}", persist_result=False)
def backfill_flow(
    table: str,
    paths: str | list[str],
    since: str | None = None,
    until: str | None = None,
    by: DatedBy = "path",
    chunk: str | None = None,
    parallel: int = 4,
    checks: list[str] | None = None,
    on_failure: OnFailure | None = None,
    on_changed: OnChanged | None = None,
    home: str | None = None,
) -> State[Any]:
    """Ingest the files of a time range in chunks, oldest first, several at a time.

    Run it again to continue: files that are already published are skipped. A failed chunk doesn't stop the others.

    Args:
        table, checks, on_failure, on_changed, home: As for :func:`wap_flow`.
        paths, since, until, by, chunk: As for :class:`lakegate.loading.backfill.Backfill`.
        parallel: Number of chunks to ingest at a time.

    Returns:
        ``Completed`` if the whole range is published, ``Incomplete`` (a failed state) if something is left, ``Failed``
        if it couldn't start.
    """
    options = IngestOptions(checks=checks or (), on_failure=on_failure, on_changed=on_changed)
    listed = [paths] if isinstance(paths, str) else paths
    try:
        if parallel < 1:
            raise InputError(f"parallel must be at least 1, not {parallel}.")
        backfill = Backfill(partial(open_lake, home), table, listed, since, until, by=by, chunk=chunk, options=options)
        results = _run_chunks(backfill, backfill.plan(), parallel)
    except LakegateError as error:
        return Failed(message=error_line(error), data=error)
    return _backfill_state(results)


def _run_chunks(backfill: Backfill, plan: BackfillPlan, parallel: int) -> list[ChunkResult]:
    """Ingest the chunks, several at a time.

    For a new table, they run one by one until one is published and decides the columns. If each may change rows of
    earlier ones, they all run one by one, and the first that isn't published stops the rest.
    """
    results: list[ChunkResult] = []
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=parallel)
    with pool as runner:
        waiting = list(plan.to_do)
        alone = plan.in_order or plan.creates
        while alone and waiting:
            result = _result(waiting[0], _submit(runner, backfill, waiting.pop(0)))
            results.append(result)
            if plan.in_order and (result.outcome not in _DONE or result.left):
                return [*results, *(ChunkResult(chunk=chunk.name, outcome="later") for chunk in waiting)]
            alone = plan.in_order or result.outcome != "published"
        futures = [(chunk, _submit(runner, backfill, chunk)) for chunk in waiting]
        return results + [_result(chunk, future) for chunk, future in futures]


def _submit(runner: ThreadPoolTaskRunner[Any], backfill: Backfill, chunk: BackfillChunk) -> PrefectFuture[Any]:
    # The id includes the files: if a retried flow run finds other files for a chunk, that's another run.
    content = "\n".join((chunk.name, *(file.uri for file in chunk.to_do)))
    run_id = f"{run_id_of(flow_run.get_id())}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return runner.submit(ingest_chunk, parameters={"chunk": chunk, "backfill": backfill, "run_id": run_id})


def _result(chunk: BackfillChunk, future: PrefectFuture[Any]) -> ChunkResult:
    result = future.result(raise_on_failure=False)
    if isinstance(result, ChunkResult):
        return result
    error = result if isinstance(result, LakegateError) else LakegateError(f"Internal error: {result!r}")
    outcome: Outcome = "later" if isinstance(error, RETRYABLE_ERRORS) else "failed"
    return ChunkResult(chunk=chunk.name, outcome=outcome, error=RunError.model_validate(error.to_dict()))


def _backfill_state(results: Sequence[ChunkResult]) -> State[Any]:
    if not results:
        return Completed(message="Everything is already published.", data=[])
    counts = Counter(result.outcome for result in results)
    rows = sum(result.rows for result in results)
    text = f"Chunks: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}. {rows:,} rows."
    if counts.keys() <= _DONE and not any(result.left for result in results):
        return Completed(message=text, data=list(results))
    return Failed(name="Incomplete", message=f"{text} To continue, run it again.")
