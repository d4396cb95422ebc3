"""Who is told of runs, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.render.console import add_row, make_table, rows_or_nothing, say, show
from lakegate.cli.render.text import moment
from lakegate.model.references import SecretReference

if TYPE_CHECKING:
    from lakegate.model.channels import ChannelSettings
    from lakegate.model.notices import LateTable
    from lakegate.model.run import Notification

_STYLES = {"failed": "red", "grouped": "dim"}


def channel_payload(channel: ChannelSettings) -> dict[str, Any]:
    """Return a channel for machines: its settings, and which variables or files that it refers to are not there."""
    return {**channel.model_dump(mode="json"), "missing": _missing(channel)}


def show_channels(channels: Sequence[ChannelSettings]) -> None:
    """Print the channels."""
    table = make_table("channel", "type", "events", "tables", "severity", "secrets")
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
    rows_or_nothing(table, rows, empty="No channels.")


def show_notifications(told: Sequence[Notification]) -> None:
    """Print what came of telling."""
    _show(told, indent=0)


def show_told(told: Sequence[Notification]) -> None:
    """Print who was told of a run, among the other things that are known of it."""
    if told:
        say("")
        _show(told, indent=2)


def show_late(found: Sequence[LateTable]) -> None:
    """Print the tables that are late, and who was told."""
    if not found:
        click.echo("No table is late.", err=True)
        return
    table = make_table("table", "expected every", "last published", "run", "told")
    for late in found:
        told = ", ".join(f"{one.channel}: {one.outcome}" for one in late.notifications)
        add_row(table, late.table, late.expected_every, moment(late.last) or "never", late.run_id or "", told)
    show(table)
    for late in found:
        for one in late.notifications:
            if one.outcome == "failed":
                click.echo(f"Channel '{one.channel}' was not told of {late.table}: {one.reason}", err=True)


def _show(told: Sequence[Notification], *, indent: int) -> None:
    table = make_table("channel", "told of", "outcome", "at", "reason")
    for one in told:
        cells = (one.channel, one.event, one.outcome, moment(one.at), one.reason or "")
        add_row(table, *cells, style=_STYLES.get(one.outcome))
    show(table, indent=indent)


def _references(channel: ChannelSettings) -> Iterator[SecretReference]:
    for reference in (channel.url, channel.token, channel.secret):
        if reference is not None:
            yield SecretReference.parse(reference)


def _state(reference: SecretReference) -> str:
    """Tell whether there is something at the place, as far as that can be told without asking another machine."""
    if reference.scheme == "env":
        return "set" if os.environ.get(reference.place) else "not set"
    if reference.scheme == "file":
        return "there" if Path(reference.place).is_file() else "not there"
    return "in AWS"


def _missing(channel: ChannelSettings) -> list[str]:
    return [reference.place for reference in _references(channel) if _state(reference).startswith("not")]
