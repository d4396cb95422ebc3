"""``lakegate branch``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import at_option, branch_argument, from_option, output_option
from lakegate.cli.render.catalog import print_changed_ref, print_deleted_ref, print_refs


@group(
    "branch",
    examples=(
        "lakegate branch list",
        "lakegate branch create january --from main --at 2026-01-31T07:00:00Z",
        "lakegate branch reset january --to main",
        "lakegate branch delete january",
    ),
)
def branch() -> None:
    """List, create, reset and delete branches."""


@branch.command("list", examples=("lakegate branch list", "lakegate branch list -o json"))
@output_option()
@pass_app
def list_branches(app: App, /, *, output: str) -> None:
    """List branches with the commits they point at."""
    with app.lake() as lake:
        refs = lake.branches()
    print_refs(refs, output, empty="No branches.")


@branch.command("create", examples=("lakegate branch create january", "lakegate branch create fix --from wap/january"))
@click.argument("name")
@from_option("Where it starts.")
@at_option("Start at this time (2026-01-31T07:00:00Z) or commit of it.")
@output_option()
@pass_app
def create_branch(app: App, /, *, name: str, source: str, at: str | None, output: str) -> None:
    """Create the branch NAME. No data is copied."""
    with app.lake() as lake:
        ref = lake.create_branch(name, source=source, at=at)
    print_changed_ref(ref, output, done="created")


@branch.command(
    "reset", examples=("lakegate branch reset january --to main", "lakegate branch reset dev --to main --at 2026-01-31")
)
@branch_argument("name")
@click.option(
    "--to",
    required=True,
    metavar="REF",
    help="Where it is to stand: a branch, tag or commit.",
    shell_complete=completions.refs,
)
@at_option("As REF was at this time (2026-01-31T07:00:00Z), or at this commit of it.")
@click.option("--force", is_flag=True, help="Reset main, too: it loses what was published since.")
@output_option()
@pass_app
def reset_branch(app: App, /, *, name: str, to: str, at: str | None, force: bool, output: str) -> None:
    """Point the branch NAME at another commit. What was committed only there is reached by it no more.

    To undo a publish on main, prefer `lakegate revert` and `lakegate table restore`: they keep the history.
    """
    with app.lake() as lake:
        ref = lake.reset_branch(name, to=to, at=at, force=force)
    print_changed_ref(ref, output, done="reset")


@branch.command("delete", examples=("lakegate branch delete january",))
@branch_argument("name")
@output_option()
@pass_app
def delete_branch(app: App, /, *, name: str, output: str) -> None:
    """Delete the branch NAME and what was committed only there."""
    with app.lake() as lake:
        ref = lake.delete_branch(name)
    print_deleted_ref(app, ref, output)
