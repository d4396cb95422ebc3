"""The program: launch DBOS, run or enqueue workflows, and stop without losing any."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowHandle
from dbos import error as dbos_errors
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

import lakegate
from lakegate.errors import ConfigurationError, InputError, LakegateError, OutcomeUnknownError, RetryableError
from lakegate.integrations.dbos import queues
from lakegate.integrations.dbos.configuration import DbosConfiguration, held_executor_id, recover_dead
from lakegate.integrations.dbos.workflows import Order, Outcome, cause_of, wap

_ACTIVE = ("PENDING", "ENQUEUED", "DELAYED")
_OWN_CODE = Path(lakegate.__file__).parent


@contextmanager
def launched(
    configuration: DbosConfiguration, *, listens: Sequence[str] = (), debug: bool = False, grace_s: int = 0
) -> Iterator[Sequence[str]]:
    """Launch DBOS, recover what earlier processes left pending, and shut DBOS down at the end.

    Yields the ids of recovered workflows that aren't on our queues.

    Args:
        listens: The queues whose workflows this process runs.
        debug: Whether to show tracebacks, and DBOS's own log.
        grace_s: Seconds to wait at the end for running workflows. Unfinished ones continue at the next start.

    Raises:
        RetryableError: If DBOS's database doesn't answer. Nothing was started.
        ConfigurationError: If DBOS refuses the configuration.
        OutcomeUnknownError: If the database fails later, while workflows are running.
    """
    is_launched = False
    base = str(configuration.dbos["executor_id"])
    with _logging(configuration, debug=debug), held_executor_id(configuration.locks, base) as executor_id:
        try:
            DBOS(config={**configuration.dbos, "executor_id": executor_id})
            DBOS.listen_queues(listens)
            DBOS.launch()
            is_launched = True
            recovered = [*pending(), *recover_dead(configuration.locks, base)]
            try:
                yield recovered
            finally:
                DBOS.destroy(workflow_completion_timeout_sec=grace_s)
        except SQLAlchemyError as error:
            DBOS.destroy()
            if not is_launched:
                raise _unreachable(configuration, error) from None
            raise OutcomeUnknownError(
                f"DBOS's database failed while workflows were running: {_first_line(error)}",
                hint="They continue at the next start. To see how far they got: lakegate runs --limit 3",
            ) from None
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
    with _logging(configuration):
        try:
            DBOS.migrate(url, schema=schema)
            client = DBOSClient(
                system_database_url=url,
                dbos_system_schema=schema,
                serializer=config["serializer"] or DBOSPortableJSONSerializer(),
                application_name=config["name"],
            )
            try:
                options = queues.enqueue_options(order, run_id=run_id, version=str(config["application_version"]))
                workflow: WorkflowHandle[Outcome] = client.enqueue(options, order)
                _require_same(workflow, order)
                return workflow.get_workflow_id(), workflow.get_status().status not in _ACTIVE
            finally:
                client.destroy()
        except SQLAlchemyError as error:
            raise _unreachable(configuration, error) from None


def run_one(order: Order, run_id: str, *, recovered: Sequence[str] = ()) -> Outcome:
    """Run a workflow, or wait for the existing one with this id; then wait for the recovered workflows.

    Args:
        recovered: The workflows that :func:`launched` recovered. They'd be interrupted if this process ended.

    Raises:
        InputError: If a workflow with this id already exists, for another order.
        LakegateError: If the workflow failed.
    """
    # If another process starts it at the same moment, or has, DBOS still starts it only once.
    with SetWorkflowID(run_id):
        workflow = DBOS.start_workflow(wap, order)
    _require_same(workflow, order)
    try:
        return result_of(workflow)
    except KeyboardInterrupt:
        recovered = ()  # like this one, they continue at the next start
        raise
    finally:
        for workflow_id in recovered:
            try:
                DBOS.retrieve_workflow(workflow_id).get_result()
            except Exception as error:  # noqa: BLE001 - its own caller reads the error from the database
                DBOS.logger.error(f"Recovered workflow {workflow_id} failed: {error}")


def result_of(workflow: WorkflowHandle[Outcome]) -> Outcome:
    """Wait for a workflow and return its result."""
    run_id = workflow.get_workflow_id()
    try:
        return workflow.get_result()
    except dbos_errors.DBOSAwaitedWorkflowCancelledError:
        hint = f"dbos workflow resume {run_id}"
        raise LakegateError(f"Workflow {run_id} was cancelled and its run undone.", hint=hint, run_id=run_id) from None
    except Exception as error:  # noqa: BLE001 - raised again, as lakegate's
        raise cause_of(error) from None


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
    return [one.workflow_id for one in own if one.queue_name not in queues.QUEUES]


def _unreachable(configuration: DbosConfiguration, error: SQLAlchemyError) -> LakegateError:
    place = make_url(str(configuration.dbos["system_database_url"])).set(query={}).render_as_string()
    return RetryableError(
        f"DBOS's database at {place} doesn't answer: {_first_line(error)}",
        hint="Nothing was started. Check system_database_url or, without one, the section [journal].",
    )


def _first_line(error: SQLAlchemyError) -> str:
    return (str(getattr(error, "orig", None) or error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _logging(configuration: DbosConfiguration, *, debug: bool = False) -> Iterator[None]:
    """Show only the lines of DBOS's log that matter to users: our own, with the run id, and problems in one line."""

    def is_shown(record: logging.LogRecord) -> bool:
        if debug or configuration.logs_all:
            return True
        if record.levelno < logging.WARNING and not Path(record.pathname).is_relative_to(_OWN_CODE):
            return False
        text = record.getMessage().strip().partition("\n")[0]
        if record.exc_info:
            text = f"{text.rstrip(':')}: {record.exc_info[1]}"
        run_id = getattr(record, "operationUUID", None)
        record.msg = text if run_id is None or run_id in text else f"{run_id}: {text}"
        record.args = record.exc_info = record.exc_text = None
        return True

    logger = logging.getLogger("dbos")
    # DBOS adds its own handler only if there's none.
    handler = logging.StreamHandler()
    handler.setLevel(configuration.dbos.get("console_log_level") or logging.NOTSET)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    handler.addFilter(is_shown)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
