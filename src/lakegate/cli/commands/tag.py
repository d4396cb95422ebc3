"""``lakegate tag``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import at_option, from_option, output_option
from lakegate.cli.render.catalog import print_changed_ref, print_deleted_ref, print_refs


@group(
    "tag",
    examples=(
        "lakegate tag list",
        "lakegate tag create january-closed",
        "lakegate tag create before-fix --at 2026-01-31T07:00:00Z",
        "lakegate tag delete before-fix",
    ),
)
def tag() -> None:
    """List, create and delete tags: names of commits that never move."""


@tag.command("list", examples=("lakegate tag list", "lakegate tag list -o json"))
@output_option()
@pass_app
def list_tags(app: App, /, *, output: str) -> None:
    """List tags with the commits they name."""
    with app.lake() as lake:
        refs = lake.tags()
    print_refs(refs, output, empty="No tags.")


@tag.command("create", examples=("lakegate tag create january-closed", "lakegate tag create v1 --from wap/january"))
@click.argument("name")
@from_option("What to name a commit of.")
@at_option("Name its commit at this time (2026-01-31T07:00:00Z), or this commit of it.")
@output_option()
@pass_app
def create_tag(app: App, /, *, name: str, source: str, at: str | None, output: str) -> None:
    """Create the tag NAME. It can be read like a branch, and keeps what it names from being collected."""
    with app.lake() as lake:
        ref = lake.create_tag(name, source=source, at=at)
    print_changed_ref(ref, output, done="created")


@tag.command("delete", examples=("lakegate tag delete before-fix",))
@click.argument("name", shell_complete=completions.tags)
@output_option()
@pass_app
def delete_tag(app: App, /, *, name: str, output: str) -> None:
    """Delete the tag NAME. The commit itself stays in the history of branches."""
    with app.lake() as lake:
        ref = lake.delete_tag(name)
    print_deleted_ref(app, ref, output)
