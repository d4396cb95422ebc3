"""``lakegate notify``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import output_option
from lakegate.cli.render import notify as render
from lakegate.cli.render.console import echo_json
from lakegate.errors import ExitCode, LakegateError

if TYPE_CHECKING:
    from lakegate.model.run import Notification


def _channels(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    try:
        channels = ctx.ensure_object(App).settings().notify.channels
    except LakegateError:
        return []
    return [channel.name for channel in channels if channel.name.startswith(incomplete)]


@group("notify", examples=("lakegate notify list", "lakegate notify test ops", "lakegate notify late"))
def notify() -> None:
    """Show and try out who is told of runs and files; tell of tables that are late.

    Who is told of what stands in the settings, section [notify]. What came of it is shown by `lakegate runs RUN`.
    """


@notify.command("list", examples=("lakegate notify list", "lakegate notify list -o json"))
@output_option()
@pass_app
def list_channels(app: App, /, *, output: str) -> None:
    """Show the channels, what each is told of, and whether its secrets are set. Secrets are never shown."""
    channels = app.settings().notify.channels
    if output == "json":
        echo_json([render.channel_payload(channel) for channel in channels])
    else:
        render.show_channels(channels)


@notify.command("test", examples=("lakegate notify test", "lakegate notify test ops -o json"))
@click.argument("channel", required=False, shell_complete=_channels)
@output_option()
@pass_app
def test(app: App, /, *, channel: str | None, output: str) -> None:
    """Send a test message to CHANNEL, or to all channels.

    Exits with 3 when one could not be told.
    """
    with app.lake() as lake:
        told = lake.notify_test(channel)
    if output == "json":
        echo_json([one.model_dump(mode="json") for one in told])
    else:
        render.show_notifications(told)
    raise click.exceptions.Exit(_ending(told))


@notify.command("late", examples=("lakegate notify late", "lakegate notify late -o json"))
@output_option()
@pass_app
def late(app: App, /, *, output: str) -> None:
    """Show the tables to which nothing was published in the time that notify.late expects, and tell of them.

    For cron. Each table is told of once in that time, until something is published. Then tells how many messages were
    counted for which an earlier one stood, when its time is over. Only the journal is asked, nothing is started. Exits
    with 3 when a channel could not be told of a table.
    """
    with app.lake() as lake:
        found = lake.notify_late()
    if output == "json":
        echo_json([table.model_dump(mode="json") for table in found])
    else:
        render.show_late(found)
    raise click.exceptions.Exit(_ending([one for table in found for one in table.notifications]))


def _ending(told: Sequence[Notification]) -> ExitCode:
    return ExitCode.RETRYABLE if any(one.outcome == "failed" for one in told) else ExitCode.OK
