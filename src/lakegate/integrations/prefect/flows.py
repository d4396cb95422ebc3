"""Flows that ingest files into one table, backfill historical files chunk by chunk, and maintain tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
    show_chunks,
    write,
)
from lakegate.lake import IngestOptions
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, ChunkResult, DatedBy, Outcome
from lakegate.model.request import OnBusy, OnChanged, OnFailure
from lakegate.model.run import Run, RunError
from lakegate.progress import without_secrets

REJECTED = "Rejected"
"""Name of the failed state of a flow run whose audit failed."""
_DONE = {"published", "already", "empty"}


_stopped_by: ContextVar[list[LakegateError]] = ContextVar("stopped_by")


@contextmanager
def recording_error() -> Iterator[list[LakegateError]]:
    """Yield a list that gets the error of a :func:`wap_flow` that fails in the body.

    If the server is busy, Prefect returns the state as the server knows it: without its error.
    """
    errors: list[LakegateError] = []
    token = _stopped_by.set(errors)
    try:
        yield errors
    finally:
        _stopped_by.reset(token)


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
    run_id: str | None = None,
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
        run_id: A suspended run of this table to resume instead of starting a new one.

    Returns:
        The flow run's last state: ``Published``, ``Skipped`` (nothing new), ``Rejected`` (a failed state), ``Failed``
        or ``Cancelled``.
    """
    if run_id is not None and (problem := _resume_problem(table, run_id, home)) is not None:
        return _failed(problem)
    run_id = run_id or run_id_of(flow_run.get_id())
    options: IngestOptions = {
        "run_id": run_id,
        "branch": branch,
        "checks": checks or (),
        "partition_by": partition_by or (),
        "on_failure": on_failure,
        "on_changed": on_changed,
        "on_busy": on_busy,
    }
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


def _resume_problem(table: str, run_id: str, home: str | None) -> LakegateError | None:
    """Return why a run can't be resumed; ``None`` if it can. Checked first, since a failed flow run undoes its run."""
    try:
        with open_lake(home) as lake:
            run = lake.run(run_id)
    except LakegateError as error:
        return error
    if run.tables[:1] == (table,) and run.run_id == run_id:
        return None
    return InputError(
        f"Run {run.run_id} belongs to {run.table or 'a transaction'}, not to {table}; it was left unchanged.",
        hint=f"lakegate runs {run.run_id}",
        run_id=run_id,
        table=table,
    )


def _stopped(run_id: str, home: str | None, error: LakegateError) -> State[Any]:
    """Return the final state of a flow run that an error stopped. Its run may have been published anyway."""
    try:
        with open_lake(home) as lake:
            run = lake.run(run_id)
    except LakegateError:
        run = None
    if run is not None and run.run_id == run_id and run.status == "published":
        return _final_state(run)
    return _failed(error)


def _final_state(run: Run) -> State[Any]:
    if run.status not in ("published", "skipped", "reverted"):
        # For example, someone discarded it between two steps. Nothing was published.
        error = LakegateError(sentence(run), hint=f"lakegate runs {run.run_id}", run_id=run.run_id)
        return _failed(error)
    return Completed(name=run.status.capitalize(), message=sentence(run), data=run)


def _failed(error: LakegateError) -> State[Any]:
    _stopped_by.get([]).append(error)
    return Failed(name=REJECTED if isinstance(error, AuditFailedError) else None, message=error_line(error), data=error)


@retriable_task("chunk", timeout_s=9 * HOUR_S, task_run_name="{chunk.name}")
def ingest_chunk(chunk: BackfillChunk, backfill: Backfill, run_id: str) -> ChunkResult | State[Any]:
    """Ingest one chunk. If that raises, none of it was published."""
    result = returning_retryable(lambda: backfill.run(chunk, run_id=run_id))
    if isinstance(result, ChunkResult):
        get_run_logger().info("%s: %s, %d rows.", chunk.name, result.outcome, result.rows)
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
        table: ``namespace.table``; created by its first chunk if it doesn't exist.
        paths: Files, folders and patterns, with or without date fields: ``trips/%Y/%m/green_%Y-%m-%d*.parquet``.
        since: Start of the range: a date, month or time. Default: the oldest file.
        until: End of the range, inclusive. Default: the newest file.
        by: Where a file's time comes from: its ``path``, or when it was last ``modified``.
        chunk: Chunk size: ``hour``, ``day``, ``month``, ``year``, ``file`` or a number of files.
        parallel: Number of chunks to ingest at a time.
        checks: Checks of each chunk, in addition to those of the table's settings.
        on_failure: Keep or drop the branch of a rejected chunk: ``keep`` or ``drop``. Default: the settings.
        on_changed: Files published before with other content: ``refuse``, ``append`` or ``replace``. Default: settings.
        home: The project's folder, where the flow runs.

    Returns:
        ``Completed`` if the whole range is published, ``Incomplete`` (a failed state) if something is left, ``Failed``
        if it couldn't start.
    """
    options: IngestOptions = {
        "checks": checks or (),
        "on_failure": on_failure,
        "on_changed": on_changed,
    }
    listed = [paths] if isinstance(paths, str) else paths
    try:
        if parallel < 1:
            raise InputError(f"parallel must be at least 1, not {parallel}.")
        backfill = Backfill(partial(open_lake, home), table, listed, since, until, by=by, chunk=chunk, options=options)
        plan = backfill.plan()
        if plan.in_order:
            results = _run_in_order(backfill, plan.to_do)
        else:
            results = _run_parallel(backfill, plan.to_do, parallel, first_alone=plan.creates)
    except LakegateError as error:
        return Failed(message=error_line(error), data=error)
    show_chunks(table, results)
    return _backfill_state(results)


def _run_parallel(
    backfill: Backfill, chunks: Sequence[BackfillChunk], parallel: int, *, first_alone: bool
) -> list[ChunkResult]:
    """Ingest the chunks. For a new table, they run one by one until one is published and decides the columns."""
    results: list[ChunkResult] = []
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=parallel)
    with pool as runner:
        waiting = list(chunks)
        while first_alone and waiting and not any(one.outcome == "published" for one in results):
            results.append(_result(waiting[0], _submit(runner, backfill, waiting.pop(0))))
        futures = [(one, _submit(runner, backfill, one)) for one in waiting]
        results += [_result(one, future) for one, future in futures]
    return results


def _run_in_order(backfill: Backfill, chunks: Sequence[BackfillChunk]) -> list[ChunkResult]:
    """Ingest chunks one by one, since each may change rows of earlier ones; stop at the first that isn't published."""
    results: list[ChunkResult] = []
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=1)
    with pool as runner:
        for at, one in enumerate(chunks):
            results.append(_result(one, _submit(runner, backfill, one)))
            if results[-1].outcome not in _DONE or results[-1].left:
                results += [ChunkResult(chunk=left.name, outcome="later") for left in chunks[at + 1 :]]
                break
    return results


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
    counted = Counter(one.outcome for one in results)
    text = f"Chunks: {', '.join(f'{count} {outcome}' for outcome, count in counted.items())}." if counted else ""
    rows = sum(one.rows for one in results)
    if not counted:
        return Completed(message="Everything is already published.", data=list(results))
    if counted.keys() <= _DONE and not any(one.left for one in results):
        return Completed(message=f"{text} {rows:,} rows.", data=list(results))
    return Failed(name="Incomplete", message=f"{text} {rows:,} rows. To continue, run it again.")


@flow(name="lakegate-maintain", persist_result=False)
def maintain_flow(tables: list[str] | None = None, within: str | None = None, home: str | None = None) -> State[Any]:
    """Compact tables, rewrite manifests, expire snapshots and collect garbage, where the settings say it's due.

    Args:
        tables: Names or patterns, such as ``nyc.*``. Default: all tables.
        within: Start no new work after this long, such as ``1h``. Default: the settings.
        home: The project's folder, where the flow runs.

    Returns:
        ``Completed``; ``Incomplete`` (a failed state) if a step failed, ``Failed`` if it couldn't start.
    """
    try:
        with open_lake(home) as lake:
            report = lake.maintain(tables or (), within=within)
    except LakegateError as error:
        return Failed(message=error_line(error), data=error)
    counted = Counter(step.status for step in report.steps)
    text = (
        f"{report.tables} tables; steps: {', '.join(f'{n} {status}' for status, n in counted.items()) or 'none due'}."
    )
    if report.failures:
        why = "; ".join(f"{one.table}: {one.error.message}" for one in report.failures if one.error is not None)
        return Failed(name="Incomplete", message=without_secrets(f"{text} {why}"))
    return Completed(message=text, data=report)
