"""Show what's running of the local stack."""

from __future__ import annotations

from lakegate.cli.app import App, redact
from lakegate.cli.commandline import command
from lakegate.cli.output import Styled, duration, echo_json, safe, say, show_rows, size

_STYLES = {"running": "green", "stopped": "yellow", "unresponsive": "red"}


@command("status", examples=("lakegate status", "lakegate status -o json"))
def status(app: App) -> None:
    """Show what's running of the local stack. Starts nothing."""
    show_services(app)


def show_services(app: App) -> None:
    """Print the local stack's services, without the token in Spark's address."""
    services = app.stack().status()
    if app.json:
        payloads = [
            {
                "name": service.name,
                "state": service.state,
                "pid": service.pid,
                "port": service.port,
                "uptime_s": service.uptime_s,
                "memory_bytes": service.memory_bytes,
                "address": None if service.address is None else redact(service.address),
                "log": str(service.log),
            }
            for service in services
        ]
        echo_json({"home": str(app.folder()), "services": payloads})
        return
    rows = (
        Styled(
            (
                service.name,
                service.state,
                "" if service.pid is None else str(service.pid),
                "" if service.uptime_s is None else duration(service.uptime_s),
                size(service.memory_bytes),
                redact(service.address or ""),
            ),
            _STYLES.get(service.state),
        )
        for service in services
    )
    show_rows(("service", "state", "pid", "up", "memory", "address"), rows, right=("pid", "up", "memory"))
    for service in services:
        if service.state == "unresponsive":
            say(f"[red]{safe(service.name)}[/] isn't responding. See its log: {safe(service.log)}")
