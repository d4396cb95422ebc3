"""Show the journal of runs, or rebuild it from the catalog."""

from __future__ import annotations

from lakegate.cli.app import App, group
from lakegate.cli.output import echo_json, next_commands, safe, say, short_hash
from lakegate.model.words import count, counted


@group("journal", examples=("lakegate admin journal status", "lakegate admin journal rebuild"))
def journal() -> None:
    """Show the journal of runs, or rebuild it from the catalog's history.

    The catalog is the source of truth for what's published. The journal caches that, and tracks runs in progress.
    """


@journal.command("status", examples=("lakegate admin journal status", "lakegate admin journal status -o json"))
def status(app: App) -> None:
    """Show where the journal is and what it holds. Starts nothing."""
    with app.lake() as lake:
        found = lake.maintenance.journal_status()
    if app.json:
        echo_json(found)
        return
    by_status = ", ".join(f"{count(number)} {name}" for name, number in sorted(found.runs.items()))
    facts = {
        "journal": found.location,
        "version": found.version,
        "runs": f"{count(sum(found.runs.values()))}" + (f" ({by_status})" if by_status else ""),
        "files": f"{count(found.files)} published",
        "newest": found.newest or "none",
        "main": f"read up to commit {short_hash(found.synced)}" if found.synced else "history not read yet",
    }
    say(*(f"[dim]{name:<8}[/] {safe(value)}" for name, value in facts.items()))
    if found.abandoned:
        died = counted(len(found.abandoned), "run")
        say("", f"{died} left unfinished by a process that died: {safe(', '.join(found.abandoned))}")
        next_commands(("Finish or undo them", app.command("admin", "recover")))


@journal.command("rebuild", examples=("lakegate admin journal rebuild", "lakegate admin journal rebuild -o json"))
def rebuild(app: App) -> None:
    """Rebuild the journal from main's history.

    Use it after the journal was lost, or restored from an old backup. Runs that it still has keep all their details.
    Other runs get what their commits record.
    """
    with app.lake() as lake:
        found = lake.maintenance.rebuild_journal()
    if app.json:
        echo_json(found)
        return
    known = f"{counted(found.runs, 'run')} and {counted(found.files, 'published file')}"
    rejected = f", and {counted(found.rejected, 'rejected run')} from branches" if found.rejected else ""
    say(
        f"[bold green]rebuilt[/]  {known} from {counted(found.commits, 'commit')}{rejected}",
        f"  [dim]{safe(found.head.name)} up to commit {short_hash(found.head.hash)}[/]",
    )
    if found.lost:
        say("", f"  [yellow]not rebuilt[/]  {safe(found.lost)}")
