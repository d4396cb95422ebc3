"""The life of the program: launch DBOS, wait for workflows, and stop without losing one."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowHandle
from dbos import error as dbos_errors
from sqlalchemy.exc import SQLAlchemyError

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.integrations.dbos.configuration import Configuration, held_executor_id, place_of, recover_dead
from lakegate.integrations.dbos.queues import QUEUES, enqueuing, error_class
from lakegate.integrations.dbos.workflows import Order, Outcome, wap

_LOGGER = "dbos"
_NOT_LET_IN = ("authentication failed", "no password supplied", "does not exist", "permission denied")


@contextmanager
def launched(
    configuration: Configuration, *, queues: Sequence[str] = (), debug: bool = False, grace_s: int = 0
) -> Iterator[Sequence[str]]:
    """Launch DBOS, which begins with recovering what processes before this one left pending; end it in order.

    Yields the ids of the workflows that were recovered and are on no queue of ours.

    Args:
        configuration: What DBOS is given.
        queues: The queues to work off.
        debug: Whether to show tracebacks, and DBOS's own log.
        grace_s: Seconds to wait at the end for workflows that are under way; they go on at the next start.

    Raises:
        RetryableError: When DBOS's database does not answer.
        ConfigurationError: When it does not let us in, or DBOS cannot do with the configuration.
    """
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
            recovered = [*_pending(), *recover_dead(configuration.locks, base)]
            try:
                yield recovered
            finally:
                DBOS.destroy(workflow_completion_timeout_sec=grace_s)
        except SQLAlchemyError as error:
            DBOS.destroy()
            raise _explained(error, url) from None
        except dbos_errors.DBOSInitializationError as error:
            raise ConfigurationError(f"DBOS cannot be launched: {error}") from None


def enqueue(configuration: Configuration, order: Order, run_id: str) -> str:
    """Put a run on the queue from outside: this process runs and recovers nothing.

    Returns:
        The id of the workflow: ``run_id``, or that of the one that is there already for the same order.

    Raises:
        InputError: When there is a workflow of this id already, with another order.
        RetryableError: When DBOS's database does not answer.
        ConfigurationError: When it does not let us in.
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
                options = enqueuing(order, run_id=run_id, version=str(config["application_version"]))
                workflow: WorkflowHandle[Outcome] = client.enqueue(options, order)
                _require_same(workflow, order)
                return workflow.get_workflow_id()
            finally:
                client.destroy()
        except SQLAlchemyError as error:
            raise _explained(error, url) from None


def run_one(order: Order, run_id: str, *, recovered: Sequence[str] = ()) -> Outcome:
    """Run one workflow to its end, or wait for the one that has this id; then for those that were recovered.

    Args:
        order: What to do.
        run_id: Id of the run and of its workflow.
        recovered: Workflows that :func:`launched` began to recover: they end with this process.

    Raises:
        InputError: When there is a workflow of this id already, with another order.
        LakegateError: What the workflow ended with.
    """
    try:
        workflow = _started(order, run_id)
        _require_same(workflow, order)
        return result_of(workflow)
    finally:
        for workflow_id in recovered:
            if workflow_id != run_id:
                _wait(workflow_id)


def result_of(workflow: WorkflowHandle[Outcome]) -> Outcome:
    """Wait for a workflow, and return its result.

    Raises:
        LakegateError: What it ended with, in this process or in another one.
    """
    run_id = workflow.get_workflow_id()
    try:
        return workflow.get_result()
    except LakegateError:
        raise
    except dbos_errors.DBOSAwaitedWorkflowCancelledError:
        hint = f"dbos workflow resume {run_id}"
        raise LakegateError(f"Workflow {run_id} was cancelled, and its run undone.", hint=hint, run_id=run_id) from None
    except Exception as error:
        code = getattr(error, "code", None)
        if not isinstance(code, str):
            raise
        # The database knows its code and what it said.
        raise error_class(code)(str(error), hint=f"lakegate runs {run_id}", run_id=run_id) from None


def serve(stop: threading.Event | None = None) -> None:
    """Work until SIGTERM or Ctrl-C comes."""
    until = stop or threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: until.set())
    until.wait()


def _started(order: Order, run_id: str) -> WorkflowHandle[Outcome]:
    if DBOS.get_workflow_status(run_id) is not None:
        return DBOS.retrieve_workflow(run_id)
    # Should another process start it in this very moment, DBOS starts it once all the same.
    with SetWorkflowID(run_id):
        return DBOS.start_workflow(wap, order)


def _require_same(workflow: WorkflowHandle[Outcome], order: Order) -> None:
    """Make sure that the workflow is about these files: started twice is once, and other files would be left out.

    Raises:
        InputError: When it is not.
    """
    begun = workflow.get_status().input
    known: Order = begun["args"][0] if begun else order
    if known["table"] == order["table"] and list(known["paths"]) == list(order["paths"]):
        return
    run_id = workflow.get_workflow_id()
    raise InputError(
        f"Run {run_id} was begun before, with {', '.join(known['paths'])} for {known['table']}.",
        hint="Give another --run_id, or none.",
        run_id=run_id,
        table=known["table"],
    )


def _pending() -> Sequence[str]:
    own = DBOS.list_workflows(status=["PENDING", "ENQUEUED"], executor_id=DBOS.executor_id, load_input=False)
    return [one.workflow_id for one in own if one.queue_name not in QUEUES]


def _wait(workflow_id: str) -> None:
    try:
        DBOS.retrieve_workflow(workflow_id).get_result()
    except Exception as error:  # noqa: BLE001 - its own caller is told of it by the database
        DBOS.logger.error(f"Workflow {workflow_id}, which was recovered, failed: {error}")


def _explained(error: SQLAlchemyError, url: str) -> LakegateError:
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    text = said[0] if said else type(error).__name__
    place = place_of(url)
    if any(words in text for words in _NOT_LET_IN):
        return ConfigurationError(
            f"DBOS's database at {place} does not let us in: {text}", hint="Look at system_database_url."
        )
    return RetryableError(
        f"DBOS's database at {place} does not answer: {text}", hint="Nothing was begun; try again when it does."
    )


@contextmanager
def _logging(level: str | int, *, quiet: bool, tracebacks: bool) -> Iterator[None]:
    """Have DBOS's log say what concerns a user: our own lines, with the run they belong to, and what goes wrong."""
    logger = logging.getLogger(_LOGGER)
    # DBOS adds a handler of its own only where there is none.
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    handler.addFilter(_Readable(quiet=quiet, tracebacks=tracebacks))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Readable(logging.Filter):
    """Drops DBOS's own informations, and turns tracebacks into the sentence at their end."""

    def __init__(self, *, quiet: bool, tracebacks: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._tracebacks = tracebacks

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is shown."""
        own = "lakegate" in Path(record.pathname).parts
        if self._quiet and not own and record.levelno < logging.WARNING:
            return False
        if not self._tracebacks:
            said = record.getMessage()
            if record.exc_info:
                said = f"{said.rstrip(':')}: {record.exc_info[1]}"
            record.msg = said.strip().splitlines()[0] if said.strip() else said
            record.args = record.exc_info = record.exc_text = None
        run_id = getattr(record, "operationUUID", None)
        if run_id and run_id not in record.getMessage():
            record.msg, record.args = f"{run_id}: {record.getMessage()}", None
        return True
