"""Ingest new files: a flow for a schedule, a trigger for announced files, and the deployments of both.

Prefect passes an event to its automations only once, so an event may be lost. The scheduled flow finds its file by
looking at the files themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, State
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger, Event, Resource
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed
from prefect.types.entrypoint import EntrypointType

from lakegate.config import find_home
from lakegate.errors import LakegateError, RetryableError
from lakegate.integrations.intake import ingest_new
from lakegate.integrations.prefect.flows import REJECTED, run_id_of, wap_flow
from lakegate.integrations.prefect.steps import error_line, open_lake
from lakegate.lake import Lake
from lakegate.loading.routes import absolute
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestOptions, OnChanged, OnFailure
from lakegate.model.run import Run

LANDED = "lakegate.file.landed"
"""Name of the event. Its payload is ``{"table": "nyc.trips", "path": "s3://bucket/trips.parquet"}``."""


@flow(name="lakegate-intake", persist_result=False)
def intake_flow(
    paths: str | list[str],
    table: str | None = None,
    routes: list[str] | None = None,
    checks: list[str] | None = None,
    on_failure: OnFailure | None = None,
    on_changed: OnChanged | None = None,
    settle_s: float = 5.0,
    max_files: int = 100,
    home: str | None = None,
) -> State[Any]:
    """Ingest new files in chunks, each in a :func:`wap_flow` of its own.

    Args:
        paths: Files, folders, patterns or prefixes.
        table: The table for all files. Pass either this or ``routes``.
        routes: Patterns that map files to tables: ``landing/{namespace}/{table}/*.parquet``.
        checks, on_failure, on_changed, home: As for ``wap_flow``.
        settle_s: Seconds for which a file must stay unchanged before it is ingested.
        max_files: Maximum number of files in a chunk.

    Returns:
        ``Completed`` with the number of chunks by outcome; ``Failed`` if the lake is unavailable or a path can't be
        listed.
    """
    try:
        outcomes = ingest_new(
            partial(open_lake, home),
            [paths] if isinstance(paths, str) else paths,
            table=table,
            routes=routes or (),
            options=IngestOptions(checks=checks or (), on_failure=on_failure, on_changed=on_changed),
            settle_s=settle_s,
            max_files=max_files,
            log=get_run_logger().warning,
            ingest=partial(_ingest_in_flow, home),
        )
    except LakegateError as error:
        return Failed(message=error_line(error), data=error)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    return Completed(message=f"Chunks: {counts}." if counts else "Nothing new.", data=outcomes)


def _ingest_in_flow(home: str | None, lake: Lake, table: str, uris: Sequence[str], options: IngestOptions) -> Run:
    """Ingest a chunk by write, audit and publish as tasks. Returns the run, also a rejected one; raises its error."""
    if options.run_id is not None:  # another process, with a time limit, has suspended it
        return lake.intake.ingest(table, uris, options)
    state: State[Any] = wap_flow(
        table=table,
        path=list(uris),
        checks=[str(check) for check in options.checks],
        on_failure=options.on_failure,
        on_changed=options.on_changed,
        on_busy=options.on_busy,
        home=home,
        return_state=True,
    )
    if state.is_completed() or state.name == REJECTED:
        return lake.run(run_id_of(state.state_details.flow_run_id))
    error = state.result(raise_on_failure=False)
    if isinstance(error, LakegateError):
        raise error
    raise RetryableError(f"The flow run that ingests {len(uris)} files into {table} is {state.name}.", table=table)


def deployments(
    paths: Sequence[str],
    *,
    table: str | None,
    routes: list[str] | None,
    name: str,
    interval_s: float,
    checks: list[str],
    on_failure: str | None,
    home: str | None,
) -> list[RunnerDeployment]:
    """Return the deployment that looks for new files on a schedule, and the one that ingests announced files.

    A scheduled flow run that's due while another one is running is cancelled: the next one finds the same files.
    Other arguments are as for :func:`intake_flow`.

    Args:
        interval_s: Seconds between two scheduled flow runs.
    """
    folder = str(Path(home).absolute() if home else find_home())
    shared: dict[str, Any] = {"home": folder, "checks": checks or None, "on_failure": on_failure}
    where = {
        "paths": [absolute(path) for path in paths],
        "table": table,
        "routes": None if routes is None else [absolute(route) for route in routes],
    }
    made = [
        intake_flow.to_deployment(
            name,
            parameters={**shared, **where},
            interval=interval_s,
            concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
            entrypoint_type=EntrypointType.MODULE_PATH,
        ),
        wap_flow.to_deployment(
            name,
            parameters=shared,
            triggers=[landed_trigger(table, **shared)],
            entrypoint_type=EntrypointType.MODULE_PATH,
        ),
    ]
    return cast("list[RunnerDeployment]", made)


def announce(table: str, path: str) -> None:
    """Announce to Prefect that a file has landed, so that deployments with :func:`landed_trigger` ingest it.

    You may announce a file more than once: it is published once.

    Args:
        table: ``namespace.table`` that the file belongs to.
        path: The file, as the machine that runs the flow names it.

    Raises:
        IdentifierError: If ``table`` isn't a valid table name.
        RetryableError: If Prefect didn't accept the event.
    """
    name = str(TableIdentifier.parse(table))
    event = Event(
        event=LANDED,
        occurred=datetime.now(UTC),
        resource=Resource({"prefect.resource.id": f"lakegate.table.{name}", "prefect.resource.name": name}),
        payload={"table": name, "path": path},
    )
    try:
        with get_client(sync_client=True) as client:
            # Not Prefect's emit_event, which sends in the background and only logs failures.
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectException) as error:
        raise RetryableError(
            f"Prefect didn't accept the event that {path} has landed: {str(error) or type(error).__name__}.",
            hint="Check PREFECT_API_URL, then announce the file again.",
            table=name,
        ) from error


def landed_trigger(table: str | None = None, **parameters: Any) -> DeploymentEventTrigger:
    """Return the trigger with which a deployment of ``wap_flow`` ingests each announced file.

    Args:
        table: Only this table's files; by default every table's.
        **parameters: More parameters of the flow, the same for every file.

    Example:
        >>> landed_trigger("nyc.trips", on_failure="drop").match.model_dump()
        {'prefect.resource.id': 'lakegate.table.nyc.trips'}
    """
    name = "*" if table is None else str(TableIdentifier.parse(table))
    payload = {
        key: {"__prefect_kind": "jinja", "template": f"{{{{ event.payload.{key} }}}}"} for key in ("table", "path")
    }
    return DeploymentEventTrigger(
        name=f"lakegate: a file has landed ({name})",
        expect={LANDED},
        match={"prefect.resource.id": f"lakegate.table.{name}"},
        threshold=1,
        within=timedelta(0),
        parameters={**parameters, **payload},
    )
