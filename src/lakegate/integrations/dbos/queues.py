"""Queues and the schedule: how many workflows run at a time, and none of them twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from typing import Any, Required, TypedDict

from dbos import DBOS, EnqueueOptions, SetEnqueueOptions, SetWorkflowID, WorkflowHandle

from lakegate import errors
from lakegate.errors import EngineError, LakegateError
from lakegate.integrations.dbos.workflows import WAP, Order, Outcome, may_succeed_again, opened_lake, wap
from lakegate.lake import IngestOptions, Lake
from lakegate.loading.file_outcomes import find_run
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, Intake
from lakegate.model.identifiers import TableIdentifier, validate_run_id
from lakegate.model.run import new_run_id

QUEUE = "lakegate"
LOOKS = "lakegate-looks"
"""Queue of the schedule's own short workflows, which must not wait behind an ingest."""
BACKFILL = "lakegate-backfill"
QUEUES = (QUEUE, LOOKS, BACKFILL)
_MAX_CHUNKS = 100
"""Maximum number of chunks of one workflow: recovery reads again what a workflow has done."""


class Watch(TypedDict, total=False):
    """Where a schedule looks for new files. It is stored in DBOS's tables.

    Attributes:
        table: Table of all files; without it, ``routes`` decide.
        routes: Patterns, see :class:`lakegate.loading.routes.Routes`.
        settle_s: Seconds for which a file must stay unchanged before it is ingested; default 5.
        max_files: Maximum number of files in a run; default 100.
    """

    paths: Required[Sequence[str]]
    table: str | None
    routes: Sequence[str]
    checks: Sequence[str]
    settle_s: float
    max_files: int


def register(*, concurrency: int = 4, parallel: int = 4) -> None:
    """Register the queues with the launched DBOS.

    Args:
        concurrency: Maximum number of concurrent ingests in one process.
        parallel: Maximum number of concurrent backfill chunks in all processes together.
    """
    DBOS.register_queue(LOOKS, worker_concurrency=1, on_conflict="always_update")
    DBOS.register_queue(QUEUE, worker_concurrency=concurrency, on_conflict="always_update")
    DBOS.register_queue(BACKFILL, global_concurrency=parallel, on_conflict="always_update")


def enqueue(order: Order, *, run_id: str | None = None, queue: str = QUEUE) -> WorkflowHandle[Outcome]:
    """Enqueue a run, unless the same order is already waiting or in progress.

    Args:
        run_id: Id of the run and its workflow; by default a new one.
        queue: One of :data:`QUEUES`.

    Returns:
        The workflow, which may be the existing one.
    """
    options = enqueuing(order, run_id=run_id, queue=queue, version=DBOS.application_version)
    return DBOS.enqueue_workflow_with_options(options, order)


def enqueuing(order: Order, *, run_id: str | None, version: str, queue: str = QUEUE) -> EnqueueOptions:
    """Return the options of :func:`enqueue`, also for ``DBOSClient.enqueue`` from outside.

    Args:
        run_id: Id of the run and its workflow; by default a new one.
        queue: One of :data:`QUEUES`.
    """
    table = str(TableIdentifier.parse(order["table"]))
    said = hashlib.sha256(json.dumps(order, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "workflow_name": WAP,
        "queue_name": queue,
        "workflow_id": validate_run_id(run_id or new_run_id()),
        "app_version": version,
        "deduplication_id": f"{table}:{said}",
        "duplication_policy": "return-existing",
    }


def schedule(cron: str, watch: Watch, *, name: str | None = None) -> str:
    """Look for new files on a schedule, also after a restart. Replaces an earlier schedule of this name.

    Args:
        cron: Minute, hour, day, month, weekday, in UTC; seconds may come before them.
        name: Name of the schedule; by default derived from the table.

    Returns:
        The name of the schedule, for ``DBOS.pause_schedule`` and ``DBOS.delete_schedule``.
    """
    chosen = name or schedule_name(watch.get("table"))
    DBOS.apply_schedules(
        [{"schedule_name": chosen, "workflow_fn": look, "schedule": cron, "context": watch, "queue_name": LOOKS}]
    )
    return chosen


def schedule_name(table: str | None) -> str:
    """Return the name of a table's schedule, or of one with routes for ``None``."""
    return f"lakegate-{table or 'routes'}"


def unschedule(name: str) -> None:
    """End a schedule, if it exists; what is on the queue stays there."""
    DBOS.delete_schedule(name)


@DBOS.workflow(name="lakegate.look")
def look(scheduled_at: datetime, watch: Watch) -> None:  # noqa: ARG001 - DBOS gives a schedule's workflow the time
    """Find the tables with new files, and enqueue a workflow for each, unless an earlier one is still running."""
    for table in tables_with_new_files(watch):
        with SetEnqueueOptions(deduplication_id=table, duplication_policy="return-existing"):
            DBOS.enqueue_workflow(QUEUE, take_new, table, watch)


@DBOS.workflow(name="lakegate.take_new")
def take_new(table: str, watch: Watch) -> dict[str, int]:
    """Ingest the new files of a table, chunk by chunk, each by its own :func:`wap`.

    Returns:
        The number of runs by status.
    """
    ended: dict[str, int] = {}
    taken: list[Chunk] = []
    while len(taken) < _MAX_CHUNKS:
        chunk = next_chunk(table, watch, taken)
        if chunk is None:
            break
        taken.append(_chunk(chunk))
        outcome, error = _taken(chunk, watch)
        note(chunk, watch, error, others_worked=bool(ended.keys() - {"failed"}))
        status = "failed" if outcome is None else outcome["status"]
        ended[status] = ended.get(status, 0) + 1
        if error is not None and _is_away(_error(*error)):
            # Other chunks would fail, too.
            break
    return ended


class NextChunk(TypedDict):
    """A :class:`lakegate.loading.file_outcomes.Chunk` as JSON, and the id of the run that ingests or resumes it."""

    run_id: str
    chunk: dict[str, Any]


@DBOS.step(name="lakegate.tables_with_new_files", retries_allowed=True, max_attempts=3, should_retry=may_succeed_again)
def tables_with_new_files(watch: Watch) -> list[str]:
    """List the paths and return the tables that settled new files go to."""
    with opened_lake() as lake:
        return list(dict.fromkeys(chunk.table for chunk in intake_of(lake, watch).scan().chunks))


@DBOS.step(name="lakegate.next_chunk", retries_allowed=True, max_attempts=3, should_retry=may_succeed_again)
def next_chunk(table: str, watch: Watch, taken: Sequence[Chunk]) -> NextChunk | None:
    """Return the next files to ingest together, if there are any.

    A chunk of ``taken`` that is found again has failed or belongs to another run; it's left to the next schedule.
    """
    with opened_lake() as lake:
        intake = intake_of(lake, watch)
        for chunk in intake.scan().chunks:
            if chunk.table == table and chunk not in taken and intake.is_free(chunk):
                return NextChunk(run_id=chunk.run_id or new_run_id(), chunk=asdict(chunk))
    return None


@DBOS.step(name="lakegate.note", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def note(chunk: NextChunk, watch: Watch, error: tuple[str, str] | None, *, others_worked: bool) -> None:
    """Record the outcomes of the files, so that a bad one isn't tried forever."""
    with opened_lake() as lake:
        run = find_run(lake, chunk["run_id"])
        known = None if error is None else _error(*error)
        intake_of(lake, watch).save_outcomes(_chunk(chunk), run, known, others_worked=others_worked)


def intake_of(lake: Lake, watch: Watch) -> Intake:
    """Return the scan for new files of ``watch``."""
    table = watch.get("table")
    return Intake(
        lake,
        list(watch["paths"]),
        Routes.to(table) if table else Routes(list(watch.get("routes", ()))),
        options=IngestOptions(checks=list(watch.get("checks", ()))),
        settle_s=watch.get("settle_s", 5.0),
        max_files=watch.get("max_files", 100),
    )


def _taken(chunk: NextChunk, watch: Watch) -> tuple[Outcome | None, tuple[str, str] | None]:
    files = _chunk(chunk)
    order = Order(table=files.table, paths=files.uris, checks=watch.get("checks", ()), on_busy="skip")
    if not files.alone:
        # After a failure, its files are ingested one by one, and nobody looks at the branch of all of them.
        order["on_failure"] = "drop"
    if files.run_id is not None:
        order["run_id"] = files.run_id
    try:
        # The workflow of a resumed run gets an id derived from this one's: the run may be resumed again.
        with nullcontext() if files.run_id is not None else SetWorkflowID(chunk["run_id"]):
            return wap(order), None
    except Exception as error:  # noqa: BLE001 - other files wait
        DBOS.logger.error(f"Run {chunk['run_id']} failed: {error}")
        # Once it's read back from the database, only an error's code is left.
        return None, (str(getattr(error, "code", "error")), str(error))


def _is_away(error: LakegateError) -> bool:
    return may_succeed_again(error) and not isinstance(error, EngineError)


def _chunk(chunk: NextChunk) -> Chunk:
    given = chunk["chunk"]
    return Chunk(**{**given, "uris": tuple(given["uris"]), "stamps": tuple(given["stamps"])})


def _error(code: str, message: str) -> LakegateError:
    return error_class(code)(message)


def error_class(code: str) -> type[LakegateError]:
    """Return lakegate's error with a code; the root of all errors if there is none.

    Example:
        >>> error_class("conflict").__name__, error_class("unheard-of").__name__
        ('ConflictError', 'LakegateError')
    """
    known = (one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, LakegateError))
    return next((one for one in known if one.code == code), LakegateError)
