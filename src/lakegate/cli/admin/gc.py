"""Drop old rejected branches and files that nothing references."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import span
from lakegate.cli.output import echo_json, next_commands, safe, say, show_rows
from lakegate.model.words import count, counted, moment, size

if TYPE_CHECKING:
    from lakegate.model.maintenance import GcReport


@command(
    "gc",
    examples=(
        "lakegate admin gc --dry-run",
        "lakegate admin gc",
        "lakegate admin gc --keep-rejected 30d --grace 12h -o json",
    ),
)
@click.option("--dry-run", is_flag=True, help="Show what would be dropped and deleted. Changes nothing.")
@click.option(
    "--keep-rejected",
    metavar="SPAN",
    type=span,
    help="How long to keep branches of rejected and failed runs, such as 7d. Default: ingest.keep_rejected.",
)
@click.option(
    "--grace",
    metavar="SPAN",
    type=span,
    help="Don't delete files younger than this, such as 1d. Default: gc.keep.",
)
def gc(app: App, /, *, dry_run: bool, keep_rejected: timedelta | None, grace: timedelta | None) -> None:
    """Drop expired branches of rejected runs, and delete files that no branch or tag references.

    Deletes only what no branch or tag has needed for gc.keep (3 days by default), and nothing that a process may still
    be writing. The warehouse must not be shared with another catalog.

    It also deletes the reports of runs older than journal.keep_detail, if you set it.
    """
    with app.lake() as lake:
        report = lake.maintenance.gc(dry_run=dry_run, keep_rejected=keep_rejected, grace=grace)
    if app.json:
        echo_json({**report.model_dump(mode="json"), "files": report.files, "size_bytes": report.size_bytes})
        return
    _show(report)
    if dry_run and (report.branches or report.folders):
        next_commands(("Do it", app.command_without_dry_run()))


def _show(report: GcReport) -> None:
    branches = counted(len(report.branches), "branch", "branches")
    totals = f"{branches}, {counted(report.files, 'file')}, {size(report.size_bytes)}"
    if report.dry_run:
        say(f"[bold]dry run[/]  would delete {totals}; nothing was deleted")
    else:
        say(f"[bold green]deleted[/]  {totals}")
    kept = f"{count(report.reached_files)} old but referenced, {count(report.young_files)} too young"
    ignored = f", {count(report.ignored_files)} not written by lakegate" if report.ignored_files else ""
    say(f"  [dim]files kept: {kept}{ignored}[/]")
    if report.expired_runs:
        say(f"  [dim]deleted the reports of {counted(report.expired_runs, 'old run')}[/]")
    if report.branches:
        say("")
        rows = ((one.branch, one.run_id, moment(one.finished_at)) for one in report.branches)
        show_rows(("branch", "run", "ended"), rows, indent=2)
    if report.folders:
        say("")
        folders = (
            (
                one.folder,
                count(one.files),
                size(one.size_bytes),
                one.sample[0].removeprefix(f"{one.folder}/") if one.sample else "",
            )
            for one in report.folders
        )
        show_rows(("folder", "files", "size", "such as"), folders, right=("files", "size"), indent=2)
    for problem in report.problems:
        say("", f"  [yellow]kept[/]  {safe(problem.message)}")
        if problem.hint:
            say(f"    [cyan]{safe(problem.hint)}[/]")
