"""The local stack's services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.app import redact
from lakegate.cli.render.console import add_row, make_table, safe, say, show
from lakegate.cli.render.text import duration, size

if TYPE_CHECKING:
    from lakegate.local.state import ServiceStatus

_STYLES = {"running": "green", "stopped": "yellow", "unresponsive": "red"}


def service_payload(service: ServiceStatus) -> dict[str, Any]:
    """Return one service for machines; an address is shown without its token."""
    return {
        "name": service.name,
        "state": service.state,
        "pid": service.pid,
        "port": service.port,
        "uptime_s": service.uptime_s,
        "memory_bytes": service.memory_bytes,
        "address": None if service.address is None else redact(service.address),
        "log": str(service.log),
    }


def show_services(services: Sequence[ServiceStatus]) -> None:
    """Print the services with where they listen and log."""
    table = make_table("service", "state", "pid", "up", "memory", "address", right=("pid", "up", "memory"))
    for service in services:
        add_row(
            table,
            service.name,
            service.state,
            "" if service.pid is None else str(service.pid),
            "" if service.uptime_s is None else duration(service.uptime_s),
            size(service.memory_bytes),
            redact(service.address or ""),
            style=_STYLES.get(service.state),
        )
    show(table)
    for service in services:
        if service.state == "unresponsive":
            say(f"[red]{safe(service.name)}[/] does not answer; see {safe(service.log)}")
