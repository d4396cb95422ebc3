"""List, create and delete tags."""

from __future__ import annotations

import click

from lakegate.cli.app import App, group
from lakegate.cli.commands.branch import show_changed_ref, show_deleted_ref, show_refs
from lakegate.cli.options import at_option, complete_tags, ref_option


@group(
    "tag",
    examples=(
        "lakegate tag",
        "lakegate tag create january-closed",
        "lakegate tag create before-fix --at 2026-01-31T07:00:00Z",
        "lakegate tag delete before-fix",
    ),
    default="list",
)
def tag() -> None:
    """List, create and delete tags: names of commits that never move."""


@tag.command("list", examples=("lakegate tag list", "lakegate tag list -o json"))
def list_tags(app: App) -> None:
    """List tags and the commits they name."""
    with app.lake() as lake:
        show_refs(app, lake.tags.list(), empty="No tags.")


@tag.command("create", examples=("lakegate tag create january-closed", "lakegate tag create v1 --from wap/january"))
@click.argument("name")
@ref_option("--from", "source", text="Branch, tag or commit to tag.")
@at_option("Tag REF as of this time, tag or commit; see lakegate query --help.")
def create_tag(app: App, /, *, name: str, source: str, at: str | None) -> None:
    """Create the tag NAME. You can read from it like from a branch, and gc keeps every file it needs."""
    with app.lake() as lake:
        show_changed_ref(app, lake.tags.create(name, source=source, at=at), "created", "at")


@tag.command("delete", examples=("lakegate tag delete before-fix",))
@click.argument("name", shell_complete=complete_tags)
def delete_tag(app: App, /, *, name: str) -> None:
    """Delete the tag NAME. The commit stays in the history of its branches."""
    with app.lake() as lake:
        show_deleted_ref(app, lake.tags.delete(name))
