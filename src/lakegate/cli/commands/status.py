"""Show which servers of the local stack are running."""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from typing import TYPE_CHECKING, cast

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import Styled, echo_json, safe, say, show_rows
from lakegate.errors import InputError
from lakegate.local import process
from lakegate.model.words import duration, size
from lakegate.progress import redact

if TYPE_CHECKING:
    from lakegate.catalogs.target import TargetCatalog

_STYLES = {"running": "green", "stopped": "yellow", "unresponsive": "red"}


@command("status", examples=("lakegate status", "lakegate status --all", "lakegate status --target"))
@click.option("--all", "every", is_flag=True, help="Show the running servers of all your projects on this machine.")
@click.option("--target", "of_target", is_flag=True, help="Show what your Iceberg catalog can do, and what it can't.")
def status(app: App, /, *, every: bool, of_target: bool) -> None:
    """Show which servers of the local stack are running. Starts nothing.

    With --target, it asks the catalog. If lakegate doesn't know the product, it creates a table of its own there, and
    drops it.
    """
    if every:
        _show_everywhere(app)
    elif of_target:
        _show_catalog(app)
    else:
        show_services(app)


def _show_everywhere(app: App) -> None:
    """Print the running servers of all projects. Each takes a gigabyte or more."""
    servers = sorted(process.find_servers(), key=lambda server: (server.home, server.name))
    started = [process.create_time(server.pid) for server in servers]
    sizes = [process.memory_bytes(server.pid) for server in servers]
    seen = [
        (server, max(0.0, time.time() - at), held)
        for server, at, held in zip(servers, started, sizes, strict=True)
        if at  # otherwise, it has just ended
    ]
    if app.json:
        echo_json(
            [
                {"home": one.home, "name": one.name, "pid": one.pid, "uptime_s": up, "memory_bytes": held}
                for one, up, held in seen
            ]
        )
        return
    rows = ((one.home, one.name, one.pid, duration(up), size(held)) for one, up, held in seen)
    columns, right = ("folder", "service", "pid", "up", "memory"), ("pid", "up", "memory")
    show_rows(columns, rows, right=right, whole=right, drop=("up", "memory", "pid"), empty="Nothing is running.")
    if seen:
        say("", f"To stop one: [cyan]lakegate --home {safe(shlex.quote(seen[0][0].home))} down[/]")


def _show_catalog(app: App) -> None:
    if not app.settings().catalog.is_target:
        raise InputError("Nessie has branches of its own: everything that lakegate promises holds there.")
    with closing(app.components()) as components:
        catalog = cast("TargetCatalog", components.catalog)
        found, identity = catalog.capabilities(), catalog.identity()
    if app.json:
        echo_json({"catalog": identity, **found.model_dump(mode="json"), "described": found.described()})
    else:
        say(safe(identity or ""))
        show_rows(("", "what lakegate can do there"), found.described().items())


def show_services(app: App) -> None:
    """Print the local stack's services, without the token in Spark's address."""
    services = app.stack().status()
    if app.json:
        payloads = [
            {**service.model_dump(mode="json"), "address": service.address and redact(service.address)}
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
    columns = ("service", "state", "pid", "up", "memory", "address")
    show_rows(columns, rows, right=("pid", "up", "memory"), whole=("address",), drop=("pid", "memory", "up"))
    for service in services:
        if service.state == "unresponsive":
            say(f"[red]{safe(service.name)}[/] isn't responding. See its log: {safe(service.log)}")
