"""``lakegate publish``."""

from __future__ import annotations

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import branch_argument, output_option
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.runs import run_payload, show_run


@command("publish", examples=("lakegate publish wap/january", "lakegate publish wap/january -o json"))
@branch_argument()
@output_option()
@pass_app
def publish(app: App, /, *, branch: str, output: str) -> None:
    """Publish BRANCH to main, all its tables in one commit.

    Only what passed its audit is published; one that failed exits with 1. It never publishes twice.
    """
    with app.lake() as lake:
        run = lake.publish(branch)
    if output == "json":
        echo_json(run_payload(run))
    else:
        show_run(app, run)
