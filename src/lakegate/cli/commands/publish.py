"""Publish an audited branch to main in one commit."""

from __future__ import annotations

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import branch_argument
from lakegate.cli.run_output import show_result


@command(
    "publish",
    makes_run=True,
    examples=(
        "lakegate publish wap/january",
        "lakegate publish wap/january -o json",
        'lakegate publish wap/january --accept "NULLs are right here: the meters were off"',
    ),
)
@branch_argument()
@click.option(
    "--accept",
    metavar="REASON",
    help="Publish even though the audit failed. The commit, the journal and the alert name you and the reason.",
)
def publish(app: App, /, *, branch: str, accept: str | None) -> None:
    """Publish BRANCH to main, with all its tables in one commit.

    The branch must pass the checks of its run and those in the settings. If it fails them, publishes nothing and exits
    with 1. A branch is never published twice. To override a failed audit, pass --accept with a reason.
    """
    with app.lake() as lake:
        show_result(app, lake.publish(branch, accept=accept))
