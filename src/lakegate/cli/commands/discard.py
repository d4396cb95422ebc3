"""Drop a branch and everything written to it."""

from __future__ import annotations

from lakegate.cli.app import App, command
from lakegate.cli.options import branch_argument
from lakegate.cli.output import echo_json, next_commands, safe, say
from lakegate.model.refs import MAIN


@command("discard", makes_run=True, examples=("lakegate discard wap/january",))
@branch_argument()
def discard(app: App, /, *, branch: str) -> None:
    """Drop BRANCH and everything written to it. Doesn't touch main."""
    with app.lake() as lake:
        run = lake.discard(branch)
        if run is not None:
            app.remember_outcome(run)
    # Its commit may have been applied although no response came.
    published = run.publication if run is not None and run.status == "published" else None
    if app.json:
        run_id, table, tables = (run.run_id, run.table, list(run.tables)) if run else (None, None, [])
        about = {"branch": branch, "status": "discarded", "run_id": run_id, "table": table, "tables": tables}
        echo_json({**about, "commit": published.commit if published else None})
        return
    of_run = f"  [dim]run {run.run_id} of {safe(run.table)}[/]" if run else ""
    say(f"[bold yellow]discarded[/]  branch {safe(branch)}{of_run}")
    if run is not None and published is not None:
        say(f"  [yellow]The run was published before, in commit {published.commit[:12]}: {MAIN} keeps its rows.[/]")
        next_commands(("Undo that", app.command("revert", run.run_id)))
