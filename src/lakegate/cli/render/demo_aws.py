"""What ``lakegate demo --aws`` shows at its end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from lakegate.cli.demo_aws.slack import text_of
from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.runs import run_payload
from lakegate.cli.render.text import count, duration
from lakegate.local.ministack import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from lakegate.cli.demo_aws.tour import Tour
    from lakegate.cli.demo_aws.waiting import Fate

_STYLES = {"published": "green", "rejected": "red", "dead-lettered": "yellow"}


def tour_payload(tour: Tour, table: str) -> dict[str, Any]:
    """Return what was to be seen, for machines."""
    return {
        "home": str(tour.home),
        "endpoint": tour.endpoint,
        "bucket": tour.bucket,
        "files": [_fate_payload(fate) for fate in tour.fates],
        "alert": list(text_of(tour.alert)),
        "table": table,
        "rows_on_main": tour.rows,
    }


def _fate_payload(fate: Fate) -> dict[str, Any]:
    letter = fate.letter
    return {
        "file": fate.file.kind,
        "uri": fate.uri,
        "outcome": fate.outcome,
        "run": None if fate.run is None else run_payload(fate.run),
        "dead_letter": letter and {"event": letter.event, "received": letter.received, "queue": letter.queue},
        "seconds": fate.seconds,
    }


def show_tour(tour: Tour, table: str) -> None:
    """Print what was to be seen, and what can be looked at now."""
    say(f"[bold]Three files were uploaded to[/] s3://{safe(tour.bucket)}/landing/{safe(table.replace('.', '/'))}/")
    fates = make_table("file", "which is", "outcome", "after", "to be seen at", right=("after",))
    for fate in tour.fates:
        seen_at = f"run {fate.run.run_id}" if fate.run else "the dead-letter queue"
        style = _STYLES[fate.outcome]
        add_row(fates, fate.file.kind, fate.file.about, fate.outcome, duration(fate.seconds), seen_at, style=style)
    show(fates, indent=2)
    say("", "[bold]Slack was told[/] (a stand-in on this machine)")
    say(*(f"  [red]│[/] {safe(line)}" for line in text_of(tour.alert)))
    for letter in (fate.letter for fate in tour.fates if fate.letter):
        say("", "[bold]In the dead-letter queue[/]", f"  {safe(letter.event)} of {safe(letter.key)}")
        say(f"  [dim]The function was given it {letter.received} times, and could not read the file.[/]")
    say(
        "", f"[bold]On main[/] {safe(table)} has {count(tour.rows)} rows; none of them is of a file that was not right."
    )
    _show_next(tour, table)


def _show_next(tour: Tour, table: str) -> None:
    def command(*words: str) -> str:
        return shlex.join(["lakegate", "--home", str(tour.home), *words])

    rejected = next(fate.run.run_id for fate in tour.fates if fate.outcome == "rejected" and fate.run)
    next_commands(
        ("See all runs, the function's and yours", command("runs")),
        ("See why one was rejected", command("runs", rejected)),
        (
            "Read the bucket from here (MiniStack checks no credentials)",
            f"export AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRET_KEY}",
        ),
        ("Look at the table", command("table", "show", table)),
        ("Read the function's log", shlex.join(["less", str(tour.log)])),
        ("Stop it all; files, tables and runs stay", command("down")),
    )
