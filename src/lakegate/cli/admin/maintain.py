"""Compact tables, expire snapshots and collect garbage as due."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_tables, span
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, show_rows
from lakegate.model.words import counted, size

if TYPE_CHECKING:
    from lakegate.model.maintenance import MaintenanceReport, MaintenanceStep

_STYLES = {"done": "green", "failed": "red", "left": "yellow"}


@command(
    "maintain",
    makes_run=True,
    examples=(
        "lakegate admin maintain --dry-run",
        "lakegate admin maintain 'nyc.*' --within 1h",
        "lakegate admin maintain --no-gc -o json",
    ),
)
@click.argument("tables", nargs=-1, metavar="[TABLE]...", shell_complete=complete_tables)
@click.option("--dry-run", is_flag=True, help="Show what is due. Changes nothing, and needs no Spark.")
@click.option(
    "--within",
    metavar="SPAN",
    type=span,
    help="Start no new work after this long, such as 1h. Default: maintenance.within.",
)
@click.option("--gc/--no-gc", default=None, help="Collect garbage afterwards, or don't. Default: maintenance.gc.")
def maintain(app: App, /, *, tables: tuple[str, ...], dry_run: bool, within: timedelta | None, gc: bool | None) -> None:
    """Compact tables, expire snapshots and collect garbage, where it's due.

    TABLE is a name or a pattern, such as 'nyc.*'. Default: all tables on main. The section maintenance of the settings,
    and each table's own, define when something is due.

    Each change to a table is a run of its own. You can stop it at any time: the next round
    continues. A table that fails doesn't hold up the others. Run it from cron, from lakegate watch (maintenance.every),
    or from an orchestrator. Only one process maintains a lake at a time.

    Exits with 0 if all is well, with 3 if what failed may succeed in the next round, and with 1 if it won't.
    """
    with app.lake() as lake:
        report = lake.maintenance.maintain(tables, dry_run=dry_run, within=within, gc=gc)
    if app.json:
        echo_json(report)
    else:
        _show(report)
        if dry_run and report.steps:
            next_commands(("Do it", app.command_without_dry_run()))
    raise click.exceptions.Exit(report.exit_code)


def _show(report: MaintenanceReport) -> None:
    tables = counted(report.tables, "table")
    done = [step for step in report.steps if step.status == "done"]
    if report.dry_run:
        say(f"[bold]dry run[/]  {counted(len(report.steps), 'step')} due for {tables}; nothing was changed")
    else:
        failed = f", [bold red]{len(report.failures)} failed[/]" if report.failures else ""
        say(f"[bold green]maintained[/]  {tables}: {counted(len(done), 'step')} done{failed}")
    if report.steps:
        rows = (
            Styled((step.table, step.action, step.status, _outcome(step)), _STYLES.get(step.status))
            for step in report.steps
        )
        say("")
        columns = ("table", "action", "status", "why")
        show_rows(columns, rows, whole=("action", "status"), cut="why", indent=2)
    for step in report.failures:
        if step.error is not None and step.error.hint:
            say(f"  [cyan]{safe(step.error.hint)}[/]")
    if report.gc is not None:
        verb = "would delete" if report.dry_run else "deleted"
        say("", f"gc {verb} {counted(report.gc.files, 'file')}, {size(report.gc.size_bytes)}")
    if any(step.status == "left" for step in report.steps):
        say("", "The next round will do the rest.")


def _outcome(step: MaintenanceStep) -> str:
    if step.error is not None:
        return step.error.message
    return f"{step.reason}; run {step.run_id}" if step.run_id else step.reason
