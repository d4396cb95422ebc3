"""``lakegate log``."""

from __future__ import annotations

from itertools import islice

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import limit_option, output_option
from lakegate.cli.render.catalog import show_commits
from lakegate.cli.render.console import echo_json


@command("log", examples=("lakegate log", "lakegate log wap/january --limit 5", "lakegate log -o json"))
@click.argument("ref", default="main", shell_complete=completions.refs)
@limit_option(20)
@output_option()
@pass_app
def log(app: App, /, *, ref: str, limit: int, output: str) -> None:
    """Show the commits of REF (a branch, tag or commit; main when left out), newest first."""
    with app.lake() as lake:
        commits = lake.log(ref, limit=limit + 1)
        shown = islice(commits, limit)
        if output == "json":
            echo_json([commit.model_dump(mode="json") for commit in shown])
        else:
            show_commits(shown)
        if next(commits, None) is not None:
            click.echo(f"There are earlier commits; --limit {10 * limit} shows more.", err=True)
