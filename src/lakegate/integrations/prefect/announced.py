"""Announced files that nobody took in: found again in Prefect's own records, and begun again.

Prefect gives an event to its automations once. A server that is busy (SQLite: "database is locked"), or a machine that
goes down, loses the flow run that should have come of it, and nothing tries again. The events themselves are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
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
"""How long an event may be on its way to its flow run."""
_SILENT = timedelta(minutes=15)
"""How long a flow run may show no sign of life. To be wrong is no harm: a file's content is published once."""
_TRIES = 3
_PAGE = 200

_File = tuple[str, str]
"""Table and path, as announced."""


def begin_again(lake: Lake, deployment: str, table: str | None) -> int:
    """Begin a flow run for each file that was announced within the last day, and that none has taken in.

    That is a file without a flow run since, or whose flow runs crashed, failed or fell silent; three are begun at most.
    One that was published, skipped, rejected or cancelled is left alone. When Prefect does not answer, a later look
    does it.

    Args:
        lake: The lake, whose journal knows what became of a flow run whose process died.
        deployment: The deployment of ``wap_flow`` that takes announced files in: ``lakegate-wap/NAME``.
        table: Only this table's files; by default every table's.

    Returns:
        How many were begun.
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
                logger.warning("%s was announced for %s, and not taken in: begun again.", file[1], file[0])
                parameters = {"table": file[0], "path": file[1]}
                # Two looks at the same time begin one flow run.
                key = f"{event.id}-{len(tried)}"
                client.create_flow_run_from_deployment(found.id, parameters=parameters, idempotency_key=key)
                begun += 1
    except (httpx.HTTPError, PrefectException, LakegateError) as error:
        logger.warning("Announced files were not looked through: %s", str(error) or type(error).__name__)
    return begun


def _announced(client: SyncPrefectClient, since: datetime, table: str | None) -> Mapping[_File, ReceivedEvent]:
    """Return the last event of each announced file, if it is not on its way yet."""
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
    for event in _events(client, asked):
        file = _file(event.payload)
        if file is not None and (file not in latest or latest[file].received < event.received):
            latest[file] = event
    return {file: event for file, event in latest.items() if since <= event.received < now - _GRACE}


def _events(client: SyncPrefectClient, asked: EventFilter) -> Iterator[ReceivedEvent]:
    page = client.read_events(asked, limit=50)
    while True:
        yield from page.events
        following = page.get_next_page_sync(client)
        if following is None:
            return
        page = following


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
    """Tell whether a flow run has ended, or will never end, without having decided on its file."""
    state = run.state
    if state is None:
        return False
    if state.is_crashed() or state.is_failed():
        return state.name != REJECTED
    if not (state.is_pending() or state.is_running()):
        return False
    try:
        # Its process died; the run was settled by somebody else.
        return lake.run(run_id_of(run.id)).status == "failed"
    except NotFoundError:
        return datetime.now(UTC) - state.timestamp > _SILENT


LANDED = "lakegate.file.landed"
"""Name of the event. Its payload is ``{"table": "nyc.trips", "path": "s3://bucket/trips.parquet"}``."""


def announce(table: str, path: str) -> None:
    """Tell Prefect that a file has landed, so that deployments with :func:`landed_trigger` take it in.

    It may be told more than once: the file's content is published once.

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
            f"Prefect did not take the event that {path} has landed: {str(error) or type(error).__name__}.",
            hint="Check PREFECT_API_URL, then announce it again.",
            table=name,
        ) from error


def landed_trigger(table: str | None = None, **parameters: Any) -> DeploymentEventTrigger:
    """Return the trigger of a deployment of ``wap_flow`` that takes in each file that is announced.

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
