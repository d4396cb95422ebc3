"""``lakegate runs``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import limit_option, output_option
from lakegate.cli.render import runs as render
from lakegate.cli.render.console import echo_json

STATUSES = ("running", "staged", "published", "rejected", "discarded", "skipped", "failed")


@command(
    "runs",
    examples=("lakegate runs", "lakegate runs --table nyc.trips --status rejected", "lakegate runs 20260131T0705"),
)
@click.argument("run", required=False, shell_complete=completions.runs)
@click.option("--table", metavar="TABLE", help="Only runs of this table.", shell_complete=completions.tables)
@click.option("--status", type=click.Choice(STATUSES), help="Only runs that stand so.")
@limit_option(50)
@output_option()
@pass_app
def runs(app: App, /, *, run: str | None, table: str | None, status: str | None, limit: int, output: str) -> None:
    """List runs, newest first; or show one RUN (its id, or the start of it) with its audit report."""
    if run is not None and (table or status):
        raise click.UsageError("--table and --status choose from the list; they do not go with a RUN.")
    with app.lake() as lake:
        if run is not None:
            one = lake.run(run)
            if output == "json":
                echo_json(render.journal_payload(one))
            else:
                render.show_journal(app, one)
            return
        found = lake.runs(table=table, status=status, limit=limit)
    if output == "json":
        echo_json([render.journal_payload(one) for one in found])
    elif found:
        render.show_runs(found)
    else:
        click.echo("No runs.", err=True)
