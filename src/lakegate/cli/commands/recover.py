"""``lakegate recover``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.keeping import show_recovered, tell_parked
from lakegate.cli.render.runs import journal_payload


@command("recover", examples=("lakegate recover", "lakegate recover 20260131T0705", "lakegate recover -o json"))
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=completions.runs)
@output_option()
@pass_app
def recover(app: App, /, *, runs: tuple[str, ...], output: str) -> None:
    """Finish or undo every run whose process died in the middle.

    The catalog is asked what became of each: one that was published is noted, one that had passed its audit is
    published, any other is undone. Every ingest does this first, so there is seldom something left to do. Safe at any
    time, and beside runs that are under way.

    A run that an orchestrator takes in steps waits between them, and is left alone until its time is over
    (journal.park_s). Name it, by its id or the beginning of it, to finish or undo it now.
    """
    with app.lake() as lake:
        settled = lake.recover(runs)
        parked = {} if runs else lake.parked()
    if output == "json":
        echo_json([journal_payload(run) for run in settled])
    elif settled:
        show_recovered(app, settled)
    else:
        click.echo("Nothing to recover.", err=True)
    tell_parked(app, parked)
