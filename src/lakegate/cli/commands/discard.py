"""``lakegate discard``."""

from __future__ import annotations

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import branch_argument, output_option
from lakegate.cli.render.console import echo_json, safe, say

_FACTS = ("run_id", "table", "tables")


@command("discard", examples=("lakegate discard wap/january",))
@branch_argument()
@output_option()
@pass_app
def discard(app: App, /, *, branch: str, output: str) -> None:
    """Drop BRANCH and all that was written to it. Main is not touched."""
    with app.lake() as lake:
        run = lake.discard(branch)
    if output == "json":
        facts = (run.run_id, run.table, list(run.tables)) if run else (None, None, [])
        echo_json({"branch": branch, "status": "discarded", **dict(zip(_FACTS, facts, strict=True))})
    else:
        told = f"  [dim]run {run.run_id} of {safe(run.table)}[/]" if run else ""
        say(f"[bold yellow]discarded[/]  branch {safe(branch)}{told}")
