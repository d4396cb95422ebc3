"""``lakegate revert``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import output_option
from lakegate.cli.render.console import echo_json, next_commands
from lakegate.cli.render.runs import journal_payload
from lakegate.cli.render.undo import show_undoing


@command(
    "revert",
    examples=(
        "lakegate revert 20260131T070509-1a2b3c4d",
        "lakegate revert 20260131T0705 --dry-run",
        "lakegate revert 20260131T0705 --cascade",
    ),
)
@click.argument("run", shell_complete=completions.published_runs)
@click.option("--cascade", is_flag=True, help="Undo the runs, too, that depend on it.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone; change nothing.")
@output_option()
@pass_app
def revert(app: App, /, *, run: str, cascade: bool, dry_run: bool, output: str) -> None:
    """Undo what RUN (its id, or the start of it) published, in one commit across its tables.

    What was published later stays, unless it depends on RUN: then nothing is undone, or all of it with --cascade. The
    source files may be ingested again.
    """
    with app.lake() as lake:
        undoing = lake.revert(run, cascade=cascade, dry_run=dry_run)
    if output == "json":
        echo_json(journal_payload(undoing))
        return
    show_undoing(app, undoing, "reverted", undoing.table)
    if dry_run:
        next_commands(("Do it", app.command("revert", run, *(["--cascade"] if cascade else []))))
