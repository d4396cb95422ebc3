"""Show and test alert channels; alert on late tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import complete_configured
from lakegate.cli.output import Styled, echo_json, show_rows
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode
from lakegate.model.secrets import SecretReference
from lakegate.model.words import moment
from lakegate.progress import one_line

if TYPE_CHECKING:
    from lakegate.config import ChannelSettings
    from lakegate.model.run import Notification

_STYLES = {"failed": "red", "grouped": "dim"}
_complete_channels = complete_configured(lambda settings: (channel.name for channel in settings.notify.channels))


@group(
    "notify", examples=("lakegate admin notify list", "lakegate admin notify test ops", "lakegate admin notify late")
)
def notify() -> None:
    """Show and test alert channels, and send alerts about late tables.

    Configure channels in the [notify] section of the settings. `lakegate runs RUN` shows which alerts a run sent.
    """


@notify.command("list", examples=("lakegate admin notify list", "lakegate admin notify list -o json"))
def list_channels(app: App) -> None:
    """List the channels and their events, and whether their secrets are set. Secrets are never shown."""
    channels = app.settings().notify.channels
    if app.json:
        echo_json([{**channel.model_dump(mode="json"), "missing": _missing(channel)} for channel in channels])
        return
    rows = (
        (
            channel.name,
            channel.type,
            ", ".join(channel.events),
            ", ".join(channel.tables),
            channel.severity,
            ", ".join(f"{reference.place} ({_state(reference)})" for reference in _references(channel)),
        )
        for channel in channels
    )
    show_rows(("channel", "type", "events", "tables", "severity", "secrets"), rows, empty="No channels.")


@notify.command("test", examples=("lakegate admin notify test", "lakegate admin notify test ops -o json"))
@click.argument("channel", required=False, shell_complete=_complete_channels)
def test(app: App, /, *, channel: str | None) -> None:
    """Send a test message to CHANNEL, or to all channels.

    Exits with 3 if a message couldn't be delivered.
    """
    with app.lake() as lake:
        sent = lake.alerts.test(channel)
    if app.json:
        echo_json(sent)
    else:
        show_notifications(sent)
    raise click.exceptions.Exit(_exit_code(sent))


@notify.command("late", examples=("lakegate admin notify late", "lakegate admin notify late -o json"))
def late(app: App) -> None:
    """List late tables and send an alert for each.

    A table is late if nothing was published to it within the time set in notify.late. Run this from cron: it reports a
    late table once per period until something is published to it. Reads only the journal, and starts nothing. Exits
    with 3 if an alert couldn't be delivered.
    """
    with app.lake() as lake:
        found = lake.alerts.late()
    if app.json:
        echo_json(found)
    else:
        rows = (
            (
                one.table,
                one.expected_every,
                moment(one.last) or "never",
                one.run_id or "",
                ", ".join(f"{sent.channel}: {sent.outcome}" for sent in one.notifications),
            )
            for one in found
        )
        columns = ("table", "expected every", "last published", "run", "alerts")
        show_rows(columns, rows, empty="No table is late.")
        for one in found:
            for sent in one.notifications:
                if sent.outcome == "failed":
                    reason = one_line(sent.reason or "")
                    tell(f"Channel '{sent.channel}' didn't get the alert for {one.table}: {reason}")
    raise click.exceptions.Exit(_exit_code([sent for one in found for sent in one.notifications]))


def show_notifications(sent: Sequence[Notification], *, indent: int = 0) -> None:
    """Print which alerts were sent, and which failed."""
    rows = (
        Styled((one.channel, one.event, one.outcome, moment(one.at), one.reason or ""), _STYLES.get(one.outcome))
        for one in sent
    )
    show_rows(("channel", "event", "outcome", "at", "reason"), rows, indent=indent)


def _exit_code(sent: Sequence[Notification]) -> ExitCode:
    return ExitCode.RETRYABLE if any(one.outcome == "failed" for one in sent) else ExitCode.OK


def _references(channel: ChannelSettings) -> Iterator[SecretReference]:
    for reference in (channel.url, channel.token):
        if reference is not None:
            yield SecretReference.parse(reference)


def _state(reference: SecretReference) -> str:
    """Return whether the secret exists, as far as this machine can tell."""
    if reference.scheme == "env":
        return "set" if os.environ.get(reference.place) else "not set"
    if reference.scheme == "file":
        return "found" if Path(reference.place).is_file() else "not found"
    return "in AWS"


def _missing(channel: ChannelSettings) -> list[str]:
    return [reference.place for reference in _references(channel) if _state(reference).startswith("not")]
