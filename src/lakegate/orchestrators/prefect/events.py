"""A file has landed: the event that says so, and the trigger that takes the file in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prefect.events import DeploymentEventTrigger, emit_event

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
        RetryableError: When Prefect takes no events here.
    """
    name = str(TableIdentifier.parse(table))
    sent = emit_event(
        event=LANDED,
        resource={"prefect.resource.id": f"lakegate.table.{name}", "prefect.resource.name": name},
        payload={"table": name, "path": path},
    )
    if sent is None:
        raise RetryableError(
            f"Prefect did not take the event that {path} has landed.", hint="Check PREFECT_API_URL.", table=name
        )


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
