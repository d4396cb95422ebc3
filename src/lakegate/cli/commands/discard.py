"""Drop a branch and everything written to it."""

from __future__ import annotations

from lakegate.cli.app import App, command
from lakegate.cli.options import branch_argument
from lakegate.cli.output import echo_json, safe, say


@command("discard", makes_run=True, examples=("lakegate discard wap/january",))
@branch_argument()
def discard(app: App, /, *, branch: str) -> None:
    """Drop BRANCH and everything written to it. Doesn't touch main."""
    with app.lake() as lake:
        run = lake.discard(branch)
        if run is not None:
            app.remember_outcome(run)
    if app.json:
        run_id, table, tables = (run.run_id, run.table, list(run.tables)) if run else (None, None, [])
        echo_json({"branch": branch, "status": "discarded", "run_id": run_id, "table": table, "tables": tables})
    else:
        of_run = f"  [dim]run {run.run_id} of {safe(run.table)}[/]" if run else ""
        say(f"[bold yellow]discarded[/]  branch {safe(branch)}{of_run}")
