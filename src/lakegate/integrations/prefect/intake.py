"""Ingest new files: a flow for a schedule, a trigger for announced files, and the deployments of both.

Prefect passes an event to its automations only once, so an event may be lost. The scheduled flow finds its file by
looking at the files themselves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
from prefect import flow, serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, State
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger, Event, Resource
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from prefect.types.entrypoint import EntrypointType

from lakegate.config import find_home
from lakegate.errors import ConfigurationError, EngineError, InputError, LakegateError, RetryableError
from lakegate.integrations.prefect.flows import REJECTED, recording_error, run_id_of, wap_flow
from lakegate.integrations.prefect.steps import RETRYABLE_ERRORS, error_line, open_lake
from lakegate.lake import Lake
from lakegate.loading.file_outcomes import find_run
from lakegate.loading.routes import Routes, absolute
from lakegate.loading.scan import Chunk, FileLoader, Scan
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import OnChanged, OnFailure

_MAX_SETTLES = 3
"""How many times ``settle_s`` to wait for files that are being written. The next flow run finds the rest."""
_CONCURRENCY = 4
"""Maximum number of concurrent flow runs in a serving process."""


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
    """Ingest new files, each chunk in its own :func:`wap_flow`.

    The journal records which files were published, rejected or given up. Concurrent or crashed flow runs are therefore
    harmless: each file is published once.

    Args:
        paths: Files, folders, patterns or prefixes.
        table: The table for all files. Pass either this or ``routes``.
        routes: Patterns that map files to tables: ``landing/{namespace}/{table}/*.parquet``.
        checks: Checks of each chunk, in addition to those of the tables' settings.
        on_failure: Keep or drop the branch of a rejected chunk: ``keep`` or ``drop``. Default: the settings.
        on_changed: Files published before with other content: ``refuse``, ``append`` or ``replace``. Default: settings.
        settle_s: Seconds for which a file must stay unchanged before it is ingested.
        max_files: Maximum number of files in a chunk.
        home: The project's folder, where the flow runs.

    Returns:
        ``Completed`` with the number of chunks by outcome; ``Failed`` if the lake is unavailable or a path can't be
        listed.
    """
    given = {
        "checks": checks,
        "on_failure": on_failure,
        "on_changed": on_changed,
        "on_busy": "skip",
    }
    listed = [paths] if isinstance(paths, str) else paths
    try:
        with open_lake(home) as lake:
            loader = FileLoader(lake, listed, _routes(table, routes), settle_s=settle_s, max_files=max_files)
            ended = _ingest_all(lake, loader, settle_s, {**given, "home": home})
    except LakegateError as error:
        return Failed(message=error_line(error), data=error)
    counts = ", ".join(f"{count} {name.lower()}" for name, count in sorted(ended.items()))
    return Completed(message=f"Chunks: {counts}." if counts else "Nothing new.", data=dict(ended))


def _routes(table: str | None, routes: list[str] | None) -> Routes:
    if (table is None) == (not routes):
        raise InputError("Pass either a table for all files, or routes.")
    return Routes(routes or ()) if table is None else Routes.to(table)


def _ingest_all(lake: Lake, loader: FileLoader, settle_s: float, parameters: dict[str, Any]) -> Counter[str]:
    ended: Counter[str] = Counter()
    deadline = time.monotonic() + _MAX_SETTLES * settle_s
    while True:
        found = loader.scan()
        _log_scan(found)
        for chunk in filter(loader.is_free, found.chunks):
            ended[_ingest(lake, loader, chunk, parameters)] += 1
        if found.chunks:
            continue
        if not found.settling or found.due_s is None or time.monotonic() + found.due_s > deadline:
            return ended
        time.sleep(found.due_s)


def _log_scan(found: Scan) -> None:
    logger = get_run_logger()
    logger.info(
        "%d chunks to ingest, %d files being written, %d to be retried, %d done.",
        *(len(found.chunks), found.settling, found.waiting, found.done),
    )
    for file, why in found.unrouted:
        logger.warning("%s: %s", file, why)


def _ingest(lake: Lake, loader: FileLoader, chunk: Chunk, parameters: dict[str, Any]) -> str:
    """Ingest a chunk, resuming its suspended run if there is one; return the name of the flow run's final state.

    Raises:
        RetryableError: If the lake is unavailable, so that other chunks would fail too. (An engine that fails at this
            chunk may succeed for others, so that isn't raised.)
        OutcomeUnknownError: If the catalog didn't answer a commit.
        ConfigurationError: If the settings are wrong.
    """
    # After a failure, the files are retried one by one, each with a branch of its own, so nobody needs this one.
    given = parameters if chunk.alone else {**parameters, "on_failure": "drop"}
    with recording_error() as errors:
        state: State[Any] = wap_flow(
            table=chunk.table, path=list(chunk.uris), run_id=chunk.run_id, **given, return_state=True
        )
    if _is_repeated(state):
        return state.name or "Failed"  # its run may be of other files; the next scan finds what it left
    # Not the state's own: from a busy server, it may lack it. Of a completed run, the journal knows more anyway.
    error = errors[-1] if errors else None
    if isinstance(error, ConfigurationError):
        raise error
    run = find_run(lake, chunk.run_id or run_id_of(state.state_details.flow_run_id))
    is_in_journal = state.is_completed() or state.name == REJECTED
    loader.save_outcomes(chunk, run, None if is_in_journal else error)
    if isinstance(error, RETRYABLE_ERRORS) and not isinstance(error, EngineError):
        raise error
    return state.name or "Failed"


def _is_repeated(state: State[Any]) -> bool:
    """Return whether Prefect did a flow run again that was in progress when an earlier attempt of ours died."""
    flow_run_id = state.state_details.flow_run_id
    if flow_run_id is None or (flow_run.get_run_count() or 1) == 1:
        return False
    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run_id).run_count > 1


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
    one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    made = [
        intake_flow.to_deployment(
            name,
            parameters={
                **shared,
                "paths": [absolute(path) for path in paths],
                "table": table,
                "routes": None if routes is None else [absolute(route) for route in routes],
            },
            interval=interval_s,
            concurrency_limit=one_at_a_time,
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


def serve_flows(paths: Sequence[str], **given: Any) -> None:
    """Serve :func:`deployments` until the process is stopped."""
    serve(*deployments(paths, **given), limit=_CONCURRENCY)


LANDED = "lakegate.file.landed"
"""Name of the event. Its payload is ``{"table": "nyc.trips", "path": "s3://bucket/trips.parquet"}``."""


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
    return DeploymentEventTrigger(
        name=f"lakegate: a file has landed ({name})",
        expect={LANDED},
        match={"prefect.resource.id": f"lakegate.table.{name}"},
        threshold=1,
        within=timedelta(0),
        parameters={**parameters, "table": _of_payload("table"), "path": _of_payload("path")},
    )


def _of_payload(key: str) -> dict[str, str]:
    return {"__prefect_kind": "jinja", "template": f"{{{{ event.payload.{key} }}}}"}
