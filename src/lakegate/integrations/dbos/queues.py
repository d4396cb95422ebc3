"""Queues and the schedule: how many workflows at once, and none of them twice."""

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
"""Queue of the schedule's own workflows, which are short: none of them waits behind an ingest."""
BACKFILL = "lakegate-backfill"
QUEUES = (QUEUE, LOOKS, BACKFILL)
_MAX_CHUNKS = 100
"""Chunks that one workflow takes in: what a workflow has done is read again when it is recovered."""


class Watch(TypedDict, total=False):
    """Where a schedule looks for new files. It is stored in DBOS's tables.

    Attributes:
        paths: Folders, patterns, prefixes.
        table: The table that all files go to; without it, ``routes`` decide.
        routes: Patterns as :class:`lakegate.loading.routes.Routes` takes them.
        checks: Checks beside those of the tables' settings.
        settle_s: Seconds for which a file must have been left unchanged; default 5.
        max_files: Files in a run, at most; default 100.
    """

    paths: Required[Sequence[str]]
    table: str | None
    routes: Sequence[str]
    checks: Sequence[str]
    settle_s: float
    max_files: int


def register(*, concurrency: int = 4, parallel: int = 4) -> None:
    """Make the queues known to the launched DBOS.

    Args:
        concurrency: Ingests that one process runs at a time.
        parallel: Chunks of backfills that all processes together run at a time.
    """
    DBOS.register_queue(LOOKS, worker_concurrency=1, on_conflict="always_update")
    DBOS.register_queue(QUEUE, worker_concurrency=concurrency, on_conflict="always_update")
    DBOS.register_queue(BACKFILL, global_concurrency=parallel, on_conflict="always_update")


def enqueue(order: Order, *, run_id: str | None = None, queue: str = QUEUE) -> WorkflowHandle[Outcome]:
    """Put a run on a queue; the same order for the same table, waiting or under way, is not put there twice.

    Args:
        order: What to do.
        run_id: Id of the run and of its workflow; default a new one.
        queue: One of those that :func:`register` makes known.

    Returns:
        The workflow; the one that is there already when there is one.

    Raises:
        IdentifierError: When table or run id are not allowed.
    """
    options = enqueuing(order, run_id=run_id, queue=queue, version=DBOS.application_version)
    return DBOS.enqueue_workflow_with_options(options, order)


def enqueuing(order: Order, *, run_id: str | None, version: str, queue: str = QUEUE) -> EnqueueOptions:
    """Return the options with which :func:`enqueue` does so; ``DBOSClient.enqueue`` takes them from outside.

    Args:
        order: What to do.
        run_id: Id of the run and of its workflow; default a new one.
        version: Version of the application that is to do it.
        queue: One of those that :func:`register` makes known.

    Raises:
        IdentifierError: When table or run id are not allowed.
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
    """Look for new files whenever ``cron`` says, from now on and after a restart; in the place of what it said before.

    Args:
        cron: Minute, hour, day, month, weekday, in UTC; seconds may stand before them.
        watch: Where to look.
        name: Name of the schedule; default made from the table.

    Returns:
        The name of the schedule, for ``DBOS.pause_schedule`` and ``DBOS.delete_schedule``.
    """
    chosen = name or schedule_name(watch.get("table"))
    DBOS.apply_schedules(
        [{"schedule_name": chosen, "workflow_fn": look, "schedule": cron, "context": watch, "queue_name": LOOKS}]
    )
    return chosen


def schedule_name(table: str | None) -> str:
    """Return the name of a table's schedule; ``None`` is that of routes."""
    return f"lakegate-{table or 'routes'}"


def unschedule(name: str) -> None:
    """End a schedule; what is on the queue stays there. Without one of this name, nothing happens."""
    DBOS.delete_schedule(name)


@DBOS.workflow(name="lakegate.look")
def look(scheduled_at: datetime, watch: Watch) -> None:  # noqa: ARG001 - DBOS gives a schedule's workflow the time
    """Find the tables that there are new files for, and have each taken care of by one workflow.

    A table that is still being taken care of since an earlier look is left to that.
    """
    for table in tables_with_new_files(watch):
        with SetEnqueueOptions(deduplication_id=table, duplication_policy="return-existing"):
            DBOS.enqueue_workflow(QUEUE, take_new, table, watch)


@DBOS.workflow(name="lakegate.take_new")
def take_new(table: str, watch: Watch) -> dict[str, int]:
    """Take in what is new for one table, chunk by chunk, each by a :func:`wap` of its own.

    Returns:
        How many runs ended how.
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
            # The chunks to come would meet the same.
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
    """Return the next files to take in together, if there are any.

    What is in ``taken`` and comes again at once has met trouble, or another run: it is left to the next look.
    """
    with opened_lake() as lake:
        intake = intake_of(lake, watch)
        for chunk in intake.scan().chunks:
            if chunk.table == table and chunk not in taken and intake.is_free(chunk):
                return NextChunk(run_id=chunk.run_id or new_run_id(), chunk=asdict(chunk))
    return None


@DBOS.step(name="lakegate.note", retries_allowed=True, max_attempts=8, should_retry=may_succeed_again)
def note(chunk: NextChunk, watch: Watch, error: tuple[str, str] | None, *, others_worked: bool) -> None:
    """Write down what became of the files, so that a bad one is not tried for ever."""
    with opened_lake() as lake:
        run = find_run(lake, chunk["run_id"])
        known = None if error is None else _error(*error)
        intake_of(lake, watch).note(_chunk(chunk), run, known, others_worked=others_worked)


def intake_of(lake: Lake, watch: Watch) -> Intake:
    """Return what looks for the files of ``watch``."""
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
        # What is wrong with it is found file by file; nobody looks at the branch of all of them.
        order["on_failure"] = "drop"
    if files.run_id is not None:
        order["run_id"] = files.run_id
    try:
        # A workflow of a run that was begun elsewhere gets an id made of this one's: there may be a second such.
        with nullcontext() if files.run_id is not None else SetWorkflowID(chunk["run_id"]):
            return wap(order), None
    except Exception as error:  # noqa: BLE001 - other files wait
        DBOS.logger.error(f"Run {chunk['run_id']} failed: {error}")
        # Read again from the database, an error is known by its code alone.
        return None, (str(getattr(error, "code", "error")), str(error))


def _is_away(error: LakegateError) -> bool:
    return may_succeed_again(error) and not isinstance(error, EngineError)


def _chunk(chunk: NextChunk) -> Chunk:
    given = chunk["chunk"]
    return Chunk(**{**given, "uris": tuple(given["uris"]), "stamps": tuple(given["stamps"])})


def _error(code: str, message: str) -> LakegateError:
    return error_class(code)(message)


def error_class(code: str) -> type[LakegateError]:
    """Return the error of lakegate's that has a code; the root of all when none has.

    Example:
        >>> error_class("conflict").__name__, error_class("unheard-of").__name__
        ('ConflictError', 'LakegateError')
    """
    known = (one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, LakegateError))
    return next((one for one in known if one.code == code), LakegateError)
