"""Undo what a run published, in one commit."""

from __future__ import annotations

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_published_runs
from lakegate.cli.output import next_commands
from lakegate.cli.run_output import show_revert


@command(
    "revert",
    makes_run=True,
    examples=(
        "lakegate revert 20260131T070509-1a2b3c4d",
        "lakegate revert 20260131T0705 --dry-run",
    ),
)
@click.argument("run", shell_complete=complete_published_runs)
@click.option("--dry-run", is_flag=True, help="Show what would be undone. Changes nothing.")
def revert(app: App, /, *, run: str, dry_run: bool) -> None:
    """Undo what RUN published, in one commit across its tables.

    RUN is a run id, or a prefix of one at least as long as 20260131T0705. Later publishes stay. If some of them depend
    on RUN or changed its rows, nothing is undone; lakegate table restore then goes back to the state before. You can
    ingest the source files again.
    """
    with app.lake() as lake:
        reverted = lake.revert(run, dry_run=dry_run)
        show_revert(app, reverted, "reverted", reverted.table)
    if dry_run and not app.json:
        next_commands(("Do it", app.command_without_dry_run()))
