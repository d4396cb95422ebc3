"""The program: launch DBOS, run or enqueue workflows and backfills, and stop without losing any."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowHandle
from dbos import error as dbos_errors
from sqlalchemy.exc import SQLAlchemyError

from lakegate.errors import ConfigurationError, InputError, LakegateError, OutcomeUnknownError, RetryableError
from lakegate.integrations.dbos.configuration import DbosConfiguration, held_executor_id, location_of, recover_dead
from lakegate.integrations.dbos.queues import BACKFILL, QUEUES, enqueue_options
from lakegate.integrations.dbos.queues import enqueue as enqueue_in_process
from lakegate.integrations.dbos.workflows import Order, Outcome, error_class, wap
from lakegate.lake import Lake
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, DatedBy
from lakegate.loading.file_outcomes import find_run, has_published

_LOGGER = "dbos"
_ACTIVE = ("PENDING", "ENQUEUED", "DELAYED")
_REFUSALS = (
    *("authentication failed", "no password supplied", "does not exist", "permission denied"),
    *("certificate verify failed", "does not match host name", "does not support SSL"),
)


@contextmanager
def launched(
    configuration: DbosConfiguration, *, queues: Sequence[str] = (), debug: bool = False, grace_s: int = 0
) -> Iterator[Sequence[str]]:
    """Launch DBOS, recover what earlier processes left pending, and shut DBOS down at the end.

    Yields the ids of recovered workflows that aren't on our queues.

    Args:
        debug: Whether to show tracebacks, and DBOS's own log.
        grace_s: Seconds to wait at the end for running workflows. Unfinished ones continue at the next start.

    Raises:
        RetryableError: If DBOS's database doesn't answer. Nothing was started.
        ConfigurationError: If the database refuses the connection, or DBOS refuses the configuration.
        OutcomeUnknownError: If the database fails later, while workflows are running.
    """
    is_launched = False
    url = str(configuration.dbos["system_database_url"])
    level = configuration.dbos.get("console_log_level") or logging.NOTSET
    base = str(configuration.dbos["executor_id"])
    with (
        _logging(level, quiet=not (debug or configuration.logs_all), tracebacks=debug),
        held_executor_id(configuration.locks, base) as executor_id,
    ):
        try:
            DBOS(config={**configuration.dbos, "executor_id": executor_id})
            DBOS.listen_queues(queues)
            DBOS.launch()
            is_launched = True
            recovered = [*pending(), *recover_dead(configuration.locks, base)]
            try:
                yield recovered
            finally:
                DBOS.destroy(workflow_completion_timeout_sec=grace_s)
        except SQLAlchemyError as error:
            DBOS.destroy()
            raise (_lost_database if is_launched else _database_error)(error, url) from None
        except dbos_errors.DBOSInitializationError as error:
            raise ConfigurationError(f"DBOS couldn't be launched: {error}") from None


def enqueue(configuration: DbosConfiguration, order: Order, run_id: str) -> tuple[str, bool]:
    """Enqueue a run from outside: this process itself runs and recovers nothing.

    Returns:
        The workflow's id: ``run_id``, or that of an existing workflow for the same order; and whether it has ended,
        since DBOS runs each id only once.
    """
    config = configuration.dbos
    url, schema = str(config["system_database_url"]), config.get("dbos_system_schema") or "dbos"
    with _logging(logging.NOTSET, quiet=True, tracebacks=False):
        try:
            DBOS.migrate(url, schema=schema)
            client = DBOSClient(
                system_database_url=url,
                dbos_system_schema=schema,
                serializer=config["serializer"] or DBOSPortableJSONSerializer(),
                application_name=config["name"],
            )
            try:
                options = enqueue_options(order, run_id=run_id, version=str(config["application_version"]))
                workflow: WorkflowHandle[Outcome] = client.enqueue(options, order)
                _require_same(workflow, order)
                return workflow.get_workflow_id(), workflow.get_status().status not in _ACTIVE
            finally:
                client.destroy()
        except SQLAlchemyError as error:
            raise _database_error(error, url) from None


def run_one(order: Order, run_id: str, *, recovered: Sequence[str] = ()) -> Outcome:
    """Run a workflow, or wait for the existing one with this id; then wait for the recovered workflows.

    Args:
        recovered: The workflows that :func:`launched` recovered. They'd be interrupted if this process ended.

    Raises:
        InputError: If a workflow with this id already exists, for another order.
        LakegateError: If the workflow failed.
    """
    try:
        if DBOS.get_workflow_status(run_id) is not None:
            workflow: WorkflowHandle[Outcome] = DBOS.retrieve_workflow(run_id)
        else:
            # If another process starts it at the same moment, DBOS still starts it only once.
            with SetWorkflowID(run_id):
                workflow = DBOS.start_workflow(wap, order)
        _require_same(workflow, order)
        return result_of(workflow)
    except KeyboardInterrupt:
        recovered = ()  # like this one, they continue at the next start
        raise
    finally:
        for workflow_id in recovered:
            if workflow_id != run_id:
                _wait(workflow_id)


def result_of(workflow: WorkflowHandle[Outcome]) -> Outcome:
    """Wait for a workflow and return its result."""
    run_id = workflow.get_workflow_id()
    try:
        return workflow.get_result()
    except LakegateError:
        raise
    except dbos_errors.DBOSAwaitedWorkflowCancelledError:
        hint = f"dbos workflow resume {run_id}"
        raise LakegateError(f"Workflow {run_id} was cancelled and its run undone.", hint=hint, run_id=run_id) from None
    except Exception as error:
        code = getattr(error, "code", None)
        if not isinstance(code, str):
            raise
        # An error read back from the database has only its code and message.
        raise error_class(code)(str(error), hint=f"lakegate runs {run_id}", run_id=run_id) from None


_ALLOW_NEXT = frozenset({"published", "skipped"})
"""Statuses after which the next chunk may start, if chunks run in order."""


class ChunkOutcome(TypedDict):
    """A chunk's outcome.

    Attributes:
        chunk: Its name: a period, or its file's name.
        outcome: The outcome of its run; ``None`` if the run failed.
        error: Why it failed, or left files out, in the form of :meth:`lakegate.errors.LakegateError.to_dict`.
    """

    chunk: str
    run_id: str
    outcome: Outcome | None
    error: dict[str, object] | None


def backfill(
    opener: Callable[[], Lake],
    table: str,
    paths: Sequence[str],
    since: str | None = None,
    until: str | None = None,
    *,
    by: DatedBy = "path",
    chunk: str | None = None,
    checks: Sequence[str] = (),
) -> Iterator[ChunkOutcome]:
    """Enqueue the chunks that aren't published yet, and yield each one's outcome, oldest first.

    A chunk that an earlier backfill left on the queue isn't enqueued twice. For a new table, chunks run one by one
    until one is published and decides the columns.

    Args:
        paths: Files, folders and patterns, with or without date fields, such as ``trips/%Y-%m-%d.parquet``.
        since: Start of the range: a date, month or time.
        until: End of the range, inclusive.
        chunk: Chunk size; see :class:`lakegate.loading.backfill.Backfill`.
        checks: Checks in addition to those of the table's settings.
    """
    plan = Backfill(opener, table, paths, since, until, by=by, chunk=chunk).plan()
    to_do = list(plan.to_do)
    is_new = plan.creates and not plan.in_order
    while is_new and to_do:
        first = to_do.pop(0)
        ended = _ended(first, _queued(first, checks), opener)
        yield ended
        is_new = _status(ended) != "published"
    if plan.in_order:
        # Each chunk may change rows of earlier ones, so the first that isn't published stops the rest.
        for one in to_do:
            ended = _ended(one, _queued(one, checks), opener)
            yield ended
            if ended["error"] is not None or _status(ended) not in _ALLOW_NEXT:
                return
        return
    queued = [(one, _queued(one, checks)) for one in to_do]
    for one, workflow in queued:
        yield _ended(one, workflow, opener)


def _status(ended: ChunkOutcome) -> str:
    return "failed" if ended["outcome"] is None else ended["outcome"]["status"]


def _queued(chunk: BackfillChunk, checks: Sequence[str]) -> WorkflowHandle[Outcome]:
    paths = [file.uri for file in chunk.to_do]
    order = Order(table=chunk.table, paths=paths, checks=list(checks), on_busy="skip")
    return enqueue_in_process(order, queue=BACKFILL)


def _ended(chunk: BackfillChunk, workflow: WorkflowHandle[Outcome], opener: Callable[[], Lake]) -> ChunkOutcome:
    ended = ChunkOutcome(chunk=chunk.name, run_id=workflow.get_workflow_id(), outcome=None, error=None)
    try:
        outcome = result_of(workflow)
        ended["outcome"] = outcome
        _require_none_left(outcome, opener)
    except LakegateError as error:
        ended["error"] = {**error.to_dict(), "exit_code": int(error.exit_code)}
    return ended


def _require_none_left(outcome: Outcome, opener: Callable[[], Lake]) -> None:
    """Raise if the run left out files that other runs hold and haven't published."""
    if not outcome.get("skipped"):
        return
    with opener() as lake:
        run = find_run(lake, outcome["run_id"])
        left = 0 if run is None else sum(not has_published(lake, known.run_id) for known in run.skipped_files)
    if left:
        raise RetryableError(
            f"Other runs hold {left:,} of its files, and haven't published them.",
            hint="When they have ended, run the backfill again.",
            run_id=outcome["run_id"],
        )


def serve() -> None:
    """Process the queues until SIGTERM or Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


def _require_same(workflow: WorkflowHandle[Outcome], order: Order) -> None:
    """Refuse another order with the same id: DBOS runs an id only once, so the order would silently be dropped."""
    begun = workflow.get_status().input
    known: Order = begun["args"][0] if begun else order
    if known["table"] == order["table"] and list(known["paths"]) == list(order["paths"]):
        return
    run_id = workflow.get_workflow_id()
    raise InputError(
        f"Run {run_id} was already started, with {', '.join(known['paths'])} for {known['table']}.",
        hint="Pass another --run_id, or none.",
        run_id=run_id,
        table=known["table"],
    )


def pending() -> Sequence[str]:
    """Return the ids of workflows that DBOS recovers at its launch: those of this executor and version."""
    states, version = ["PENDING", "ENQUEUED"], DBOS.application_version
    own = DBOS.list_workflows(status=states, executor_id=DBOS.executor_id, app_version=version, load_input=False)
    return [one.workflow_id for one in own if one.queue_name not in QUEUES]


def _wait(workflow_id: str) -> None:
    try:
        DBOS.retrieve_workflow(workflow_id).get_result()
    except Exception as error:  # noqa: BLE001 - its own caller reads the error from the database
        DBOS.logger.error(f"Recovered workflow {workflow_id} failed: {error}")


def _lost_database(error: SQLAlchemyError, url: str) -> LakegateError:
    return OutcomeUnknownError(
        f"DBOS's database at {location_of(url)} failed while workflows were running: {_said(error)}",
        hint="They continue at the next start. To see how far they got: lakegate runs --limit 3",
    )


def _said(error: SQLAlchemyError) -> str:
    message = str(getattr(error, "orig", None) or error).strip().splitlines()
    return message[0] if message else type(error).__name__


def _database_error(error: SQLAlchemyError, url: str) -> LakegateError:
    text, place = _said(error), location_of(url)
    if any(words in text for words in _REFUSALS):
        return ConfigurationError(
            f"DBOS's database at {place} refused the connection: {text}",
            hint="Check system_database_url or, without one, the section [journal].",
        )
    return RetryableError(
        f"DBOS's database at {place} doesn't answer: {text}", hint="Nothing was started; retry when it answers."
    )


@contextmanager
def _logging(level: str | int, *, quiet: bool, tracebacks: bool) -> Iterator[None]:
    """Show only the lines of DBOS's log that matter to users: our own, prefixed with the run id, and problems."""
    logger = logging.getLogger(_LOGGER)
    # DBOS adds its own handler only if there's none.
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    handler.addFilter(_ReadableFilter(quiet=quiet, tracebacks=tracebacks))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _ReadableFilter(logging.Filter):
    """Drops DBOS's own messages, and reduces tracebacks to their last line."""

    def __init__(self, *, quiet: bool, tracebacks: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._tracebacks = tracebacks

    def filter(self, record: logging.LogRecord) -> bool:
        own = "lakegate" in Path(record.pathname).parts
        if self._quiet and not own and record.levelno < logging.WARNING:
            return False
        if not self._tracebacks:
            message = record.getMessage()
            if record.exc_info:
                message = f"{message.rstrip(':')}: {record.exc_info[1]}"
            record.msg = message.strip().splitlines()[0] if message.strip() else message
            record.args = record.exc_info = record.exc_text = None
        run_id = getattr(record, "operationUUID", None)
        if run_id and run_id not in record.getMessage():
            record.msg, record.args = f"{run_id}: {record.getMessage()}", None
        return True
