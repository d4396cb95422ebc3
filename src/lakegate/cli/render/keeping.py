"""What keeping the lake in order shows: recovered runs, collected garbage, the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.runs import STYLES
from lakegate.cli.render.text import count, counted, moment, size

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.model.gc import CollectedFolder, ExpiredBranch, GcReport
    from lakegate.model.keeping import JournalStatus, RebuiltJournal
    from lakegate.model.run import Run


def show_recovered(app: App, runs: Sequence[Run]) -> None:
    """Print the runs that were settled, and how."""
    table = make_table("run", "table", "is now", "how", whole=("is now",))
    for run in runs:
        told = " ".join(filter(None, (run.detail, run.error.message if run.error else None)))
        add_row(table, run.run_id, run.table, run.status, told, style=STYLES.get(run.status))
    show(table)
    kept = [run for run in runs if run.branch_kept]
    if kept:
        next_commands(*((f"See why {run.run_id} failed its audit", app.command("runs", run.run_id)) for run in kept))


def tell_parked(app: App, parked: Mapping[str, datetime]) -> None:
    """Tell of the runs that were left alone, and until when. Narration: goes to stderr."""
    if not parked:
        return
    first, until = next(iter(parked.items()))
    if len(parked) == 1:
        told = f"1 run waits for its next step and is left alone until {moment(until)}."
    else:
        told = (
            f"{count(len(parked))} runs wait for their next step and are left alone, the first until {moment(until)}."
        )
    click.echo(told, err=True)
    click.echo(f"To finish or undo one now: {app.command('recover', first)}", err=True)


def gc_payload(report: GcReport) -> dict[str, Any]:
    """Return a collection's report for machines."""
    return {**report.model_dump(mode="json"), "files": report.files, "size_bytes": report.size_bytes}


def show_gc(report: GcReport, command: str) -> None:
    """Print what went, or would go and by which ``command``."""
    number = len(report.branches)
    totals = (
        f"{number:,} branch{'' if number == 1 else 'es'}, {counted(report.files, 'file')}, {size(report.size_bytes)}"
    )
    if report.dry_run:
        say(f"[bold]dry run[/]  would drop and delete {totals}; nothing was")
    else:
        say(f"[bold green]collected[/]  {totals}")
    kept = f"{count(report.reached_files)} old ones are needed, {count(report.young_files)} are too young"
    ignored = f", {count(report.ignored_files)} are not lakegate's to delete" if report.ignored_files else ""
    say(f"  [dim]files left alone: {kept}{ignored}[/]")
    _show_branches(report.branches)
    _show_folders(report.folders)
    for problem in report.problems:
        say("", f"  [yellow]kept[/]  {safe(problem.message)}")
        if problem.hint:
            say(f"    [cyan]{safe(problem.hint)}[/]")
    if report.dry_run and (report.branches or report.folders):
        next_commands(("Do it", command))


def _show_branches(branches: Sequence[ExpiredBranch]) -> None:
    if not branches:
        return
    table = make_table("branch", "run", "ended")
    for branch in branches:
        add_row(table, branch.branch, branch.run_id, moment(branch.finished_at))
    say("")
    show(table, indent=2)


def _show_folders(folders: Sequence[CollectedFolder]) -> None:
    if not folders:
        return
    table = make_table("folder", "files", "size", "such as", right=("files", "size"))
    for folder in folders:
        sample = folder.sample[0].removeprefix(f"{folder.folder}/") if folder.sample else ""
        add_row(table, folder.folder, count(folder.files), size(folder.size_bytes), sample)
    say("")
    show(table, indent=2)


def status_payload(status: JournalStatus) -> dict[str, Any]:
    """Return the journal's status for machines."""
    return status.model_dump(mode="json")


def show_journal_status(app: App, status: JournalStatus) -> None:
    """Print where the journal is and what it knows."""
    by_status = ", ".join(f"{count(number)} {name}" for name, number in sorted(status.runs.items()))
    facts = {
        "journal": status.location,
        "version": status.version,
        "runs": f"{count(sum(status.runs.values()))}" + (f" ({by_status})" if by_status else ""),
        "files": f"{count(status.files)} published",
        "newest": status.newest or "none",
        "main": f"known up to commit {status.synced}" if status.synced else "its history was not read yet",
    }
    say(*(f"[dim]{name:<8}[/] {safe(value)}" for name, value in facts.items()))
    if status.abandoned:
        say("", f"{counted(len(status.abandoned), 'run')} ended without a word: {safe(', '.join(status.abandoned))}")
        next_commands(("Finish or undo what they began", app.command("recover")))


def show_rebuilt(rebuilt: RebuiltJournal) -> None:
    """Print what the journal knows now."""
    known = f"{counted(rebuilt.runs, 'run')} and {counted(rebuilt.files, 'published file')}"
    say(
        f"[bold green]rebuilt[/]  {known} are known from {counted(rebuilt.commits, 'commit')}",
        f"  [dim]{safe(rebuilt.head.name)} up to commit {rebuilt.head.hash}[/]",
    )
