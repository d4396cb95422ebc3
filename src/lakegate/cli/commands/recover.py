"""``lakegate recover``."""

from __future__ import annotations

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.keeping import show_recovered
from lakegate.cli.render.runs import journal_payload


@command("recover", examples=("lakegate recover", "lakegate recover -o json"))
@output_option()
@pass_app
def recover(app: App, /, *, output: str) -> None:
    """Finish or undo every run whose process died in the middle.

    The catalog is asked what became of each: one that was published is noted, one that had passed its audit is
    published, any other is undone. Every ingest does this first, so there is seldom something left to do. Safe at any
    time, and beside runs that are under way.
    """
    with app.lake() as lake:
        runs = lake.recover()
    if output == "json":
        echo_json([journal_payload(run) for run in runs])
    elif runs:
        show_recovered(app, runs)
    else:
        click.echo("Nothing to recover.", err=True)
