"""Historical files, chunk by chunk, several at a time: a flow that continues where it stopped."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from lakegate.errors import InputError, LakegateError
from lakegate.integrations.prefect.flows import run_id_of
from lakegate.integrations.prefect.report import show_chunks, told
from lakegate.integrations.prefect.steps import HOUR_S, MAY_PASS, open_lake, retriable_task, retried
from lakegate.lake import IngestOptions
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, ChunkResult, DatedBy, Outcome
from lakegate.model.request import OnChanged, OnFailure, OnSameContent
from lakegate.model.run import RunError

_DONE = {"published", "already", "empty"}


@retriable_task("chunk", timeout_s=9 * HOUR_S, task_run_name="{chunk.name}")
def take_chunk(chunk: BackfillChunk, backfill: Backfill, run_id: str) -> ChunkResult | State[Any]:
    """Ingest one chunk.

    Raises:
        LakegateError: It can't be ingested. Nothing of it was published.
    """
    result = retried(lambda: backfill.run(chunk, run_id=run_id))
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
    on_same_content: OnSameContent | None = None,
    home: str | None = None,
) -> State[Any]:
    """Ingest the files of a time range in chunks, oldest first, several at a time.

    Run it again to continue: published files are skipped, whoever published them. A chunk that fails stops no other.

    Args:
        table: ``namespace.table``; created by its first chunk if it doesn't exist.
        paths: Files, folders, patterns; also with a date in them: ``trips/%Y/%m/green_%Y-%m-%d*.parquet``.
        since: Start of the range: a date, month or time. Default: the oldest file.
        until: End of the range, inclusive. Default: the newest file.
        by: What dates a file: its ``path``, or when it was last ``modified``.
        chunk: What one run ingests: ``hour``, ``day``, ``month``, ``year``, ``file`` or a number of files.
        parallel: Number of chunks to ingest at a time.
        checks: Checks of each chunk, beside those of the table's settings.
        on_failure: Keep or drop the branch of a rejected chunk: ``keep`` or ``drop``. Default: the settings.
        on_changed: A file published before with other content: ``refuse``, ``append`` or ``replace``. Likewise.
        on_same_content: A file with the bytes of another one: ``append``, ``skip`` or ``refuse``. Likewise.
        home: The project's folder, where the flow runs.

    Returns:
        ``Completed`` if the whole range is published, ``Incomplete`` (a failed state) if something is left, ``Failed``
        if it couldn't start.
    """
    options: IngestOptions = {
        "checks": checks or (),
        "on_failure": on_failure,
        "on_changed": on_changed,
        "on_same_content": on_same_content,
    }
    listed = [paths] if isinstance(paths, str) else paths
    try:
        if parallel < 1:
            raise InputError(f"parallel must be at least 1, not {parallel}.")
        backfill = Backfill(partial(open_lake, home), table, listed, since, until, by=by, chunk=chunk, options=options)
        plan = backfill.plan()
        results = _take_all(backfill, plan.to_do, parallel, first_alone=plan.creates)
    except LakegateError as error:
        return Failed(message=told(error), data=error)
    show_chunks(table, results)
    return _ended(results)


def _take_all(
    backfill: Backfill, chunks: Sequence[BackfillChunk], parallel: int, *, first_alone: bool
) -> list[ChunkResult]:
    """Ingest the chunks; those of a new table one by one until one has determined the table's columns."""
    results: list[ChunkResult] = []
    pool: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=parallel)
    with pool as runner:
        waiting = list(chunks)
        while first_alone and waiting and not any(one.outcome == "published" for one in results):
            results.append(_result(waiting[0], _submit(runner, backfill, waiting.pop(0))))
        futures = [(one, _submit(runner, backfill, one)) for one in waiting]
        results += [_result(one, future) for one, future in futures]
    return results


def _submit(runner: ThreadPoolTaskRunner[Any], backfill: Backfill, chunk: BackfillChunk) -> PrefectFuture[Any]:
    # When a flow run is retried, a chunk with other files to ingest is another run.
    asked = "\n".join((chunk.name, *(file.uri for file in chunk.to_do)))
    run_id = f"{run_id_of(flow_run.get_id())}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    return runner.submit(take_chunk, parameters={"chunk": chunk, "backfill": backfill, "run_id": run_id})


def _result(chunk: BackfillChunk, future: PrefectFuture[Any]) -> ChunkResult:
    result = future.result(raise_on_failure=False)
    if isinstance(result, ChunkResult):
        return result
    error = result if isinstance(result, LakegateError) else LakegateError(f"Internal error: {result!r}")
    outcome: Outcome = "later" if isinstance(error, MAY_PASS) else "failed"
    return ChunkResult(chunk=chunk.name, outcome=outcome, error=RunError.model_validate(error.to_dict()))


def _ended(results: Sequence[ChunkResult]) -> State[Any]:
    counted = Counter(one.outcome for one in results)
    said = f"Chunks: {', '.join(f'{count} {outcome}' for outcome, count in counted.items())}." if counted else ""
    rows = sum(one.rows for one in results)
    if not counted:
        return Completed(message="Everything is already published.", data=list(results))
    if counted.keys() <= _DONE and not any(one.left for one in results):
        return Completed(message=f"{said} {rows:,} rows.", data=list(results))
    return Failed(name="Incomplete", message=f"{said} {rows:,} rows. To continue, run it again.")
