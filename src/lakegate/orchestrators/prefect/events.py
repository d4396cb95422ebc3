"""A file has landed: the event that says so, and the trigger that takes the file in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from prefect.events import DeploymentEventTrigger, Event, Resource
from prefect.exceptions import PrefectException

from lakegate.errors import RetryableError
from lakegate.model.identifiers import TableIdentifier

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
