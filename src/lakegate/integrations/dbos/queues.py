"""Queues and schedules: limit concurrent workflows, and avoid duplicates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from typing import Any, Required, TypedDict

from dbos import DBOS, EnqueueOptions, SetEnqueueOptions, SetWorkflowID, WorkflowHandle
from sqlalchemy.exc import SQLAlchemyError

from lakegate.errors import ConfigurationError, EngineError
from lakegate.integrations import leaving_out_secrets
from lakegate.integrations.dbos.workflows import (
    WAP,
    Order,
    Outcome,
    error_class,
    may_succeed_again,
    open_lake,
    wap,
)
from lakegate.lake import IngestOptions, Lake
from lakegate.loading.file_outcomes import find_run
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, FileLoader
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.run import new_run_id
from lakegate.progress import without_secrets

QUEUE = "lakegate"
SCANS = "lakegate-looks"
"""Queue for the schedule's own short workflows, which must not wait for an ingest."""
BACKFILL = "lakegate-backfill"
QUEUES = (QUEUE, SCANS, BACKFILL)
_PARALLEL = 4
_MAX_CHUNKS = 100
"""Maximum number of chunks in one workflow, since recovery replays everything that the workflow did."""


class ScheduledScan(TypedDict, total=False):
    """Where a schedule looks for new files. Stored in DBOS's tables.

    Attributes:
        table: The table for all files; if missing, ``routes`` decide.
        routes: Patterns, see :class:`lakegate.loading.routes.Routes`.
        settle_s: Seconds for which a file must stay unchanged before it's ingested; default 5.
        max_files: Maximum number of files in a run; default 100.
    """

    paths: Required[Sequence[str]]
    table: str | None
    routes: Sequence[str]
    checks: Sequence[str]
    settle_s: float
    max_files: int


def register(*, concurrency: int = 4, parallel: int | None = None) -> None:
    """Register the queues with the launched DBOS, for all processes: running ones follow within a second.

    Args:
        concurrency: Maximum number of concurrent ingests in one process.
        parallel: See :func:`register_backfill`.
    """
    DBOS.register_queue(SCANS, worker_concurrency=1, on_conflict="always_update")
    DBOS.register_queue(QUEUE, worker_concurrency=concurrency, on_conflict="always_update")
    register_backfill(parallel)


def register_backfill(parallel: int | None) -> None:
    """Register the queue for backfills alone.

    Args:
        parallel: Maximum number of concurrent backfill chunks in all processes together; ``None`` to leave it as it is,
            at first 4.
    """
    if parallel is None:
        DBOS.register_queue(BACKFILL, global_concurrency=_PARALLEL, on_conflict="never_update")
    else:
        DBOS.register_queue(BACKFILL, global_concurrency=parallel, on_conflict="always_update")


def enqueue(order: Order, *, run_id: str | None = None, queue: str = QUEUE) -> WorkflowHandle[Outcome]:
    """Enqueue a run, unless the same order is already waiting or in progress.

    Args:
        run_id: Id of the run and its workflow; by default a new one.
        queue: One of :data:`QUEUES`.

    Returns:
        The new workflow, or the existing one for the same order.
    """
    options = enqueue_options(order, run_id=run_id, queue=queue, version=DBOS.application_version)
    return DBOS.enqueue_workflow_with_options(options, order)


def enqueue_options(order: Order, *, run_id: str | None, version: str, queue: str = QUEUE) -> EnqueueOptions:
    """Return the options of :func:`enqueue`, also for ``DBOSClient.enqueue`` from outside."""
    table = str(TableIdentifier.parse(order["table"]))
    digest = hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "workflow_name": WAP,
        "queue_name": queue,
        "workflow_id": validate_run_id(run_id or new_run_id()),
        "app_version": version,
        "deduplication_id": f"{table}:{digest}",
        "duplication_policy": "return-existing",
    }


def schedule(cron: str, watch: ScheduledScan, *, name: str | None = None) -> str:
    """Look for new files on a schedule that survives restarts. Replaces an earlier schedule with this name.

    Args:
        cron: Minute, hour, day, month, weekday, in UTC; seconds may come before them.
        name: Name of the schedule; by default derived from the table.

    Returns:
        The name of the schedule, for ``DBOS.pause_schedule`` and ``DBOS.delete_schedule``.
    """
    chosen = name or schedule_name(watch.get("table"))
    DBOS.apply_schedules(
        [
            {
                "schedule_name": chosen,
                "workflow_fn": find_new_files,
                "schedule": cron,
                "context": watch,
                "queue_name": SCANS,
            }
        ]
    )
    return chosen


def schedule_name(table: str | None) -> str:
    """Return the name of a table's schedule; with ``None``, of the schedule with routes."""
    return f"lakegate-{table or 'routes'}"


@DBOS.workflow(name="lakegate.look")
def find_new_files(scheduled_at: datetime, watch: ScheduledScan) -> None:  # noqa: ARG001 - DBOS gives a schedule's workflow the time
    """Find the tables with new files, and enqueue a workflow for each, unless an earlier one is still running."""
    for table in tables_with_new_files(watch):
        with SetEnqueueOptions(deduplication_id=table, duplication_policy="return-existing"):
            DBOS.enqueue_workflow(QUEUE, ingest_new, table, watch)


@DBOS.workflow(name="lakegate.take_new")
def ingest_new(table: str, watch: ScheduledScan) -> dict[str, int]:
    """Ingest a table's new files chunk by chunk, each in its own :func:`wap`.

    Returns:
        The number of runs by status.

    Raises:
        ConfigurationError: If the settings are wrong. Doesn't count as a try of the files.
    """
    ended: dict[str, int] = {}
    taken: list[Chunk] = []
    while len(taken) < _MAX_CHUNKS:
        chunk = next_chunk(table, watch, taken)
        if chunk is None:
            break
        taken.append(_chunk(chunk))
        outcome, error = _ingest(chunk, watch)
        problem = None if error is None else error_class(error[0])(error[1])
        if isinstance(problem, ConfigurationError):
            raise problem  # the files aren't to blame
        save_outcomes(chunk, watch, error)
        status = "failed" if outcome is None else outcome["status"]
        ended[status] = ended.get(status, 0) + 1
        if problem is not None and may_succeed_again(problem) and not isinstance(problem, EngineError):
            break  # the lake is unreachable, so other chunks would fail too
    return ended


class NextChunk(TypedDict):
    """A :class:`lakegate.loading.file_outcomes.Chunk` as JSON, and the id of the run to start or resume for it."""

    run_id: str
    chunk: dict[str, Any]


@DBOS.step(name="lakegate.tables_with_new_files", retries_allowed=True, max_attempts=3, should_retry=may_succeed_again)
def tables_with_new_files(watch: ScheduledScan) -> list[str]:
    """Return the tables with new files that are ready to ingest."""
    with leaving_out_secrets(), open_lake() as lake:
        return list(dict.fromkeys(chunk.table for chunk in open_loader(lake, watch).scan().chunks))


@DBOS.step(name="lakegate.next_chunk", retries_allowed=True, max_attempts=3, should_retry=may_succeed_again)
def next_chunk(table: str, watch: ScheduledScan, taken: Sequence[Chunk]) -> NextChunk | None:
    """Return the next chunk to ingest; ``None`` if there is none.

    If a scan finds a chunk of ``taken`` again, it failed or another run holds it, so it's left to the next schedule.
    """
    with leaving_out_secrets(), open_lake() as lake:
        loader = open_loader(lake, watch)
        for chunk in loader.scan().chunks:
            if chunk.table == table and chunk not in taken and loader.is_free(chunk):
                return NextChunk(run_id=chunk.run_id or new_run_id(), chunk=asdict(chunk))
    return None


@DBOS.step(name="lakegate.note", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def save_outcomes(chunk: NextChunk, watch: ScheduledScan, error: tuple[str, str] | None) -> None:
    """Save the outcomes of the files, so that a bad one isn't retried forever."""
    with leaving_out_secrets(), open_lake() as lake:
        run = find_run(lake, chunk["run_id"])
        known = None if error is None else error_class(error[0])(error[1])
        open_loader(lake, watch).save_outcomes(_chunk(chunk), run, known)


def open_loader(lake: Lake, watch: ScheduledScan) -> FileLoader:
    """Return the loader for a schedule's files."""
    table = watch.get("table")
    return FileLoader(
        lake,
        list(watch["paths"]),
        Routes.to(table) if table else Routes(list(watch.get("routes", ()))),
        options=IngestOptions(checks=list(watch.get("checks", ()))),
        settle_s=watch.get("settle_s", 5.0),
        max_files=watch.get("max_files", 100),
    )


def _ingest(chunk: NextChunk, watch: ScheduledScan) -> tuple[Outcome | None, tuple[str, str] | None]:
    files = _chunk(chunk)
    order = Order(table=files.table, paths=files.uris, checks=watch.get("checks", ()), on_busy="skip")
    if not files.alone:
        # After a failure, the files are retried one by one, each with a branch of its own, so nobody needs this one.
        order["on_failure"] = "drop"
    if files.run_id is not None:
        order["run_id"] = files.run_id
    try:
        # A resumed run's workflow gets an id derived from this one's, since the run may be resumed several times.
        with nullcontext() if files.run_id is not None else SetWorkflowID(chunk["run_id"]):
            return wap(order), None
    except SQLAlchemyError:
        raise  # DBOS couldn't save something, which says nothing about the files
    except Exception as error:  # noqa: BLE001 - other files are waiting
        DBOS.logger.error(f"Run {chunk['run_id']} failed: {without_secrets(str(error))}")
        # An error read back from the database has only its code and message.
        return None, (str(getattr(error, "code", "error")), str(error))


def _chunk(chunk: NextChunk) -> Chunk:
    given = chunk["chunk"]
    return Chunk(given["table"], tuple((uri, stamp) for uri, stamp in given["files"]), given["run_id"])
