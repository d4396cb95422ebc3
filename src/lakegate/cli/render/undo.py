"""What an undoing did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakegate.cli.render.console import next_commands, safe, say
from lakegate.cli.render.runs import show_undone

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.model.run import Run


def show_undoing(app: App, run: Run, word: str, what: str) -> None:
    """Print what became of the tables, and of which runs.

    Args:
        app: The invocation.
        run: The undoing.
        word: What was done, as participle.
        what: To what.
    """
    if run.publication is None:
        say(f"[bold yellow]nothing changed[/]  {safe(run.detail or '')}")
    else:
        say(
            f"[bold green]{word}[/]  {safe(what)} in commit {run.publication.commit[:12]}",
            f"  [dim]run {run.run_id}[/]",
        )
    for reverted in run.reverts:
        say(f"  [dim]undoes run[/] {safe(reverted)}")
    show_undone(run)
    if run.publication is not None:
        next_commands(
            ("See it in the history", app.command("log", "--limit", "5")),
            ("Look at the run", app.command("runs", run.run_id)),
        )
