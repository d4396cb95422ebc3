"""Announced files, and those that Prefect lost: found in its own records, and restarted.

Prefect hands an event to its automations once. A server that is busy (SQLite: "database is locked"), or a machine that
goes down, loses the flow run that the event should start, and nothing retries it. The events themselves are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.events import EventPage
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events import DeploymentEventTrigger, Event, Resource
from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter, EventResourceFilter
from prefect.events.schemas.events import ReceivedEvent
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger

from lakegate.errors import LakegateError, NotFoundError, RetryableError
from lakegate.integrations.prefect.flows import REJECTED, run_id_of
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier

_BACK = timedelta(days=1)
_GRACE = timedelta(seconds=30)
"""How long an event may take to start its flow run."""
_SILENT = timedelta(minutes=15)
"""How long a flow run may go without a sign of life. A mistake does no harm: a file is published once."""
_TRIES = 3
_PAGE = 200

_File = tuple[str, str]
"""Table and path, as announced."""


def begin_again(lake: Lake, deployment: str, table: str | None) -> int:
    """Start a flow run for each file that was announced within the last day and that no flow run ingested.

    That is a file without a flow run since, or whose flow runs crashed, failed or fell silent; at most three are
    started. A file that was published, skipped, rejected or cancelled is left alone. If Prefect doesn't answer, the
    next flow run of the schedule does this.

    Args:
        lake: The lake, whose journal knows how a flow run ended whose process died.
        deployment: The deployment of ``wap_flow`` that ingests announced files: ``lakegate-wap/NAME``.
        table: Only this table's files; by default every table's.

    Returns:
        The number of flow runs started.
    """
    logger = get_run_logger()
    begun = 0
    try:
        with get_client(sync_client=True) as client:
            found = client.read_deployment_by_name(deployment)
            since = max(datetime.now(UTC) - _BACK, found.created or datetime.min.replace(tzinfo=UTC))
            announced = _announced(client, since, table)
            runs = _flow_runs(client, found.id, since) if announced else {}
            for file, event in announced.items():
                tried = [run for run in runs.get(file, ()) if run.created and run.created >= event.received]
                if len(tried) >= _TRIES or not all(_came_to_nothing(lake, run) for run in tried):
                    continue
                logger.warning("%s was announced for %s but not ingested; restarting it.", file[1], file[0])
                parameters = {"table": file[0], "path": file[1]}
                # Two callers at the same time start one flow run.
                key = f"{event.id}-{len(tried)}"
                client.create_flow_run_from_deployment(found.id, parameters=parameters, idempotency_key=key)
                begun += 1
    except (httpx.HTTPError, PrefectException, LakegateError) as error:
        logger.warning("Couldn't look for announced files: %s", str(error) or type(error).__name__)
    return begun


def _announced(client: SyncPrefectClient, since: datetime, table: str | None) -> Mapping[_File, ReceivedEvent]:
    """Return the last event of each announced file, unless it is so recent that its flow run may still start."""
    now = datetime.now(UTC)
    prefix = "lakegate.table."
    resource = EventResourceFilter(id_prefix=[prefix]) if table is None else EventResourceFilter(id=[prefix + table])
    asked = EventFilter(
        # By the senders' clocks, which may be fast.
        occurred=EventOccurredFilter(since=since, until=now + _BACK),
        event=EventNameFilter(name=[LANDED]),
        resource=resource,
    )
    latest: dict[_File, ReceivedEvent] = {}
    for event in chain.from_iterable(page.events for page in _pages(client, asked)):
        file = _file(event.payload)
        if file is not None and (file not in latest or latest[file].received < event.received):
            latest[file] = event
    return {file: event for file, event in latest.items() if since <= event.received < now - _GRACE}


def _pages(client: SyncPrefectClient, asked: EventFilter) -> Iterator[EventPage]:
    page: EventPage | None = client.read_events(asked, limit=50)
    while page is not None:
        yield page
        page = page.get_next_page_sync(client)


def _flow_runs(client: SyncPrefectClient, deployment_id: Any, since: datetime) -> Mapping[_File, Sequence[FlowRun]]:
    of_files: dict[_File, list[FlowRun]] = {}
    offset = 0
    while True:
        page = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id])),
            flow_run_filter=FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime(after_=since)),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=_PAGE,
            offset=offset,
        )
        for run in page:
            file = _file(run.parameters)
            if file is not None:
                of_files.setdefault(file, []).append(run)
        if len(page) < _PAGE:
            return of_files
        offset += _PAGE


def _file(named: Mapping[str, Any]) -> _File | None:
    table, path = named.get("table"), named.get("path")
    return (table, path) if isinstance(table, str) and isinstance(path, str) else None


def _came_to_nothing(lake: Lake, run: FlowRun) -> bool:
    """Return whether a flow run ended, or never will, without an outcome for its file."""
    state = run.state
    if state is None:
        return False
    if state.is_crashed() or state.is_failed():
        return state.name != REJECTED
    if not (state.is_pending() or state.is_running()):
        return False
    try:
        # Its process died; another one recovered the run.
        return lake.run(run_id_of(run.id)).status == "failed"
    except NotFoundError:
        return datetime.now(UTC) - state.timestamp > _SILENT


LANDED = "lakegate.file.landed"
"""Name of the event. Its payload is ``{"table": "nyc.trips", "path": "s3://bucket/trips.parquet"}``."""


def announce(table: str, path: str) -> None:
    """Announce to Prefect that a file has landed, so that deployments with :func:`landed_trigger` ingest it.

    You may announce a file more than once: it is published once.

    Args:
        table: ``namespace.table`` that the file belongs to.
        path: The file, as the machine that runs the flow names it.

    Raises:
        IdentifierError: When ``table`` cannot name a table.
        RetryableError: When Prefect did not take the event.
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
            # Prefect's emit_event sends in the background, and merely logs what does not arrive.
            client.request("POST", "/events", json=[event.model_dump(mode="json")])
    except (httpx.HTTPError, PrefectException) as error:
        raise RetryableError(
            f"Prefect didn't accept the event that {path} has landed: {str(error) or type(error).__name__}.",
            hint="Check PREFECT_API_URL, then announce it again.",
            table=name,
        ) from error


def landed_trigger(table: str | None = None, **parameters: Any) -> DeploymentEventTrigger:
    """Return the trigger of a deployment of ``wap_flow`` that ingests each announced file.

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
