"""Show, retry and test notifications of publishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import complete_configured, complete_tables, limit_option
from lakegate.cli.output import Styled, clip, echo_json, next_commands, safe, say, show_rows
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode, NotFoundError
from lakegate.model.words import count, counted, moment

if TYPE_CHECKING:
    from lakegate.model.downstream import Delivery, DownstreamStatus

_STYLES = {"failed": "red", "skipped": "yellow", "superseded": "dim"}
_SHOWN = 20
_TABLES_WIDTH = 40
_MOST_REASONS = 5
_complete = complete_configured(lambda settings: settings.downstream)


@group(
    "downstream",
    examples=(
        "lakegate admin downstream status",
        "lakegate admin downstream test dbt",
        "lakegate admin downstream retry",
    ),
)
def downstream() -> None:
    """Show which notifications of publishes other systems got, and retry or skip those that couldn't be delivered.

    Configure systems in sections [downstream.NAME] of the settings. Each run that ends notifies them of what was
    published, reverted or restored. If a system is down, that changes no run: what it misses is queued in the journal
    and sent by the next run, `lakegate watch`, `lakegate admin recover` or `lakegate admin downstream retry`.
    """


@downstream.command(
    "status",
    examples=(
        "lakegate admin downstream status",
        "lakegate admin downstream status dbt",
        "lakegate admin downstream status -o json",
    ),
)
@click.argument("name", required=False, shell_complete=_complete)
@limit_option(_SHOWN)
def status(app: App, /, *, name: str | None, limit: int) -> None:
    """Show what is queued for each system and what was sent. For one NAME, also show its latest deliveries.

    Reads only the journal. Exits with 3 as long as there's a delivery that was given up.
    """
    with app.lake() as lake:
        found = [one for one in lake.downstream.status() if name in (None, one.name)]
        deliveries = lake.downstream.deliveries(downstream=name, limit=limit) if name is not None else ()
    if name is not None and not found:
        raise NotFoundError(f"Downstream '{name}' isn't known.", hint=app.command("admin", "downstream", "status"))
    if app.json:
        echo_json(found if name is None else {**found[0].model_dump(mode="json"), "deliveries": deliveries})
    else:
        _show_systems(app, found)
        if deliveries:
            say("")
            show_deliveries(deliveries)
    raise click.exceptions.Exit(ExitCode.RETRYABLE if any(one.failed for one in found) else ExitCode.OK)


@downstream.command(
    "retry", examples=("lakegate admin downstream retry", "lakegate admin downstream retry dbt -o json")
)
@click.argument("name", required=False, shell_complete=_complete)
def retry(app: App, /, *, name: str | None) -> None:
    """Send everything queued for NAME, or for all systems, now.

    Also sends what was given up. Exits with 3 if something couldn't be sent.
    """
    with app.lake() as lake:
        tried = lake.downstream.retry(name)
    _end(app, tried, "Nothing is queued.")


@downstream.command(
    "skip", examples=("lakegate admin downstream skip dbt", "lakegate admin downstream skip dbt --delivery 17")
)
@click.argument("name", shell_complete=_complete)
@click.option("--delivery", type=int, metavar="NUMBER", help="Skip this delivery instead.  [default: the oldest]")
@click.option("--reason", default="Skipped by hand.", show_default=True, help="Why, in one sentence.")
def skip(app: App, /, *, name: str, delivery: int | None, reason: str) -> None:
    """Skip the oldest delivery queued for NAME for good.

    The deliveries behind it can then be sent.
    """
    with app.lake() as lake:
        skipped = lake.downstream.skip(name, delivery=delivery, reason=reason)
    if app.json:
        echo_json(skipped)
    else:
        show_deliveries(skipped)
        next_commands(("Send what was queued behind it", app.command("admin", "downstream", "retry", name)))


@downstream.command(
    "send", examples=("lakegate admin downstream send glue", "lakegate admin downstream send glue nyc.trips")
)
@click.argument("name", shell_complete=_complete)
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=complete_tables)
def send(app: App, /, *, name: str, tables: tuple[str, ...]) -> None:
    """Send NAME the current state of all tables on main, or of each TABLE.

    Use it for a system that's new in the settings, or after another writer changed main. Exits with 3 if something
    couldn't be sent.
    """
    with app.lake() as lake:
        tried = lake.downstream.send(name, tables)
    _end(app, tried, f"Downstream '{name}' subscribes to none of these tables.")


@downstream.command("test", examples=("lakegate admin downstream test", "lakegate admin downstream test dbt -o json"))
@click.argument("name", required=False, shell_complete=_complete)
def test(app: App, /, *, name: str | None) -> None:
    """Check that NAME, or every system, can be reached with its settings. Changes nothing there.

    A webhook gets a test event. Exits with 3 if a system can't be reached.
    """
    with app.lake() as lake:
        checks = lake.downstream.test(name)
    if app.json:
        echo_json(checks)
    else:
        rows = (
            Styled((one.name, one.type, "works" if one.works else "fails", one.detail), None if one.works else "red")
            for one in checks
        )
        show_rows(("downstream", "type", "", "detail"), rows)
    raise click.exceptions.Exit(ExitCode.OK if all(one.works for one in checks) else ExitCode.RETRYABLE)


@downstream.command("policy", examples=("lakegate admin downstream policy glue",), formats=())
@click.argument("name", shell_complete=_complete)
def policy(app: App, /, *, name: str) -> None:
    """Print the IAM policy for updating NAME, a Glue Data Catalog."""
    with app.lake() as lake:
        echo_json(lake.downstream.policy(name))


@downstream.command("forget", examples=("lakegate admin downstream forget old-hook",))
@click.argument("name", shell_complete=_complete)
def forget(app: App, /, *, name: str) -> None:
    """Stop queuing for NAME, which is no longer in the settings.

    Skips what is queued. Without this command, the journal keeps queuing, because the settings of another machine may
    still have NAME.
    """
    with app.lake() as lake:
        skipped = lake.downstream.forget(name)
    if app.json:
        echo_json({"name": name, "skipped": skipped})
    else:
        say(f"{safe(name)} is forgotten; {counted(skipped, 'delivery', 'deliveries')} skipped.")


def show_deliveries(deliveries: Sequence[Delivery], *, indent: int = 0) -> None:
    """Print deliveries, and below them the reasons of those that failed."""
    rows = (
        Styled(
            (
                one.delivery_id,
                one.downstream,
                one.kind,
                clip(", ".join(one.tables), _TABLES_WIDTH),
                one.state,
                count(one.tries),
                moment(one.ended_at or (one.next_at if one.tries else one.queued_at)),
            ),
            _STYLES.get(one.state, "yellow" if one.reason else None),
        )
        for one in deliveries
    )
    columns = ("number", "downstream", "event", "tables", "state", "tries", "time")
    show_rows(columns, rows, right=("number", "tries"), whole=("time",), indent=indent)
    unsent = [one for one in deliveries if one.reason and one.state in ("failed", "pending")]
    for one in unsent[:_MOST_REASONS]:
        say(f"{'':{indent}}[yellow]{one.delivery_id}[/]: {safe(one.reason or '')}")


def _show_systems(app: App, systems: Sequence[DownstreamStatus]) -> None:
    rows = [
        Styled(
            (
                one.name,
                one.type or "unknown here",
                count(one.pending),
                count(one.failed),
                count(one.sent),
                moment(one.oldest),
            ),
            "red" if one.failed else "yellow" if one.reason or one.type is None else None,
        )
        for one in systems
    ]
    columns = ("downstream", "type", "queued", "given up", "sent", "queued since")
    numbers = ("queued", "given up", "sent")
    show_rows(columns, rows, right=numbers, whole=("queued since",), empty="No downstream systems.")
    waiting = [one for one in systems if one.reason and one.type is not None]
    unknown = [one for one in systems if one.type is None]
    if any(one.reason for one in systems):
        say("")
    for one in systems:
        if one.reason:
            say(f"[yellow]{safe(one.name)}[/]: {safe(one.reason)}")
    commands = [
        *(
            (f"Send to {one.name} after fixing it", app.command("admin", "downstream", "retry", one.name))
            for one in waiting
        ),
        *(
            (f"Or skip the oldest for {one.name}", app.command("admin", "downstream", "skip", one.name))
            for one in waiting[:1]
        ),
        *(
            (f"Stop queuing for {one.name}", app.command("admin", "downstream", "forget", one.name))
            for one in unknown[:1]
        ),
    ]
    next_commands(*commands)


def _end(app: App, tried: Sequence[Delivery], empty: str) -> None:
    if app.json:
        echo_json(tried)
    elif tried:
        show_deliveries(tried)
    else:
        tell(empty)
    unsent = any(one.state in ("pending", "failed") for one in tried)
    raise click.exceptions.Exit(ExitCode.RETRYABLE if unsent else ExitCode.OK)
