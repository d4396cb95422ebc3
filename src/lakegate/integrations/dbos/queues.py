"""Queues and schedules: limit concurrent workflows, and avoid duplicates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Required, TypedDict

from dbos import DBOS, EnqueueOptions, ScheduleInput, SetEnqueueOptions, WorkflowHandle

from lakegate.integrations import intake
from lakegate.integrations.dbos.workflows import WAP, Order, Outcome, open_lake
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.request import IngestOptions
from lakegate.model.run import new_run_id

QUEUE = "lakegate"
SCANS = "lakegate-looks"
"""Queue for the schedule's own short workflows, which must not wait for an ingest."""
QUEUES = (QUEUE, SCANS)


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


def register(*, concurrency: int = 4) -> None:
    """Register the queues with the launched DBOS, for all processes: running ones follow within a second.

    Args:
        concurrency: Maximum number of concurrent ingests in one process.
    """
    DBOS.register_queue(SCANS, worker_concurrency=1)
    DBOS.register_queue(QUEUE, worker_concurrency=concurrency, on_conflict="always_update")


def enqueue(order: Order, *, run_id: str | None = None) -> WorkflowHandle[Outcome]:
    """Enqueue a run, unless the same order is already waiting or in progress.

    Args:
        run_id: Id of the run and its workflow; by default a new one.

    Returns:
        The new workflow, or the existing one for the same order.
    """
    options = enqueue_options(order, run_id=run_id, version=DBOS.application_version)
    return DBOS.enqueue_workflow_with_options(options, order)


def enqueue_options(order: Order, *, run_id: str | None, version: str) -> EnqueueOptions:
    """Return the options of :func:`enqueue`, also for ``DBOSClient.enqueue`` from outside."""
    table = str(TableIdentifier.parse(order["table"]))
    digest = hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "workflow_name": WAP,
        "queue_name": QUEUE,
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
    wanted: ScheduleInput = {
        "schedule_name": chosen,
        "workflow_fn": find_new_files,
        "schedule": cron,
        "context": watch,
        "queue_name": SCANS,
    }
    DBOS.apply_schedules([wanted])
    return chosen


def schedule_name(table: str | None) -> str:
    """Return the name of a table's schedule; with ``None``, of the schedule with routes."""
    return f"lakegate-{table or 'routes'}"


@DBOS.workflow(name="lakegate.look")
def find_new_files(scheduled_at: datetime, watch: ScheduledScan) -> None:  # noqa: ARG001 - DBOS gives a schedule's workflow the time
    """Enqueue a workflow that ingests new files, unless an earlier one of this schedule is still running."""
    with SetEnqueueOptions(deduplication_id=schedule_name(watch.get("table")), duplication_policy="return-existing"):
        DBOS.enqueue_workflow(QUEUE, ingest_new, watch)


@DBOS.workflow(name="lakegate.take_new")
def ingest_new(watch: ScheduledScan) -> dict[str, int]:
    """Ingest new files chunk by chunk.

    Returns:
        The number of runs by status.

    Raises:
        LakegateError: If the settings are wrong, or the lake is unreachable.
    """
    return _ingest_new(watch)


@DBOS.step(name="lakegate.take_new")
def _ingest_new(watch: ScheduledScan) -> dict[str, int]:
    return intake.ingest_new(
        open_lake,
        list(watch["paths"]),
        table=watch.get("table"),
        routes=list(watch.get("routes", ())),
        options=IngestOptions(checks=list(watch.get("checks", ()))),
        settle_s=watch.get("settle_s", 5.0),
        max_files=watch.get("max_files", 100),
        log=DBOS.logger.warning,
    )
