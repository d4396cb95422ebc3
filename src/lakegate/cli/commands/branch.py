"""List, create, reset and delete branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import at_option, branch_argument, complete_refs, ref_option
from lakegate.cli.output import echo_json, safe, say, short_hash, show_rows
from lakegate.model.words import moment

if TYPE_CHECKING:
    from lakegate.model.refs import Ref
    from lakegate.model.run import RunLine


@group(
    "branch",
    examples=(
        "lakegate branch",
        "lakegate branch create january --from main --at 2026-01-31T07:00:00Z",
        "lakegate branch reset january --to main",
        "lakegate branch delete january",
    ),
    default="list",
)
def branch() -> None:
    """List, create, reset and delete branches."""


@branch.command("list", examples=("lakegate branch list", "lakegate branch list -o json"))
def list_branches(app: App) -> None:
    """List branches, their commits and the runs that wrote them."""
    with app.lake() as lake:
        refs, runs = lake.branches.list(), lake.branches.runs()
    found = [(ref, *runs.get(ref.name, (None, None))) for ref in refs]
    if app.json:
        echo_json(
            [
                {
                    **ref.model_dump(),
                    "run_id": line and line.run_id,
                    "status": line and line.status,
                    "superseded_by": by,
                }
                for ref, line, by in found
            ]
        )
        return
    rows = (
        (
            ref.name,
            short_hash(ref.hash),
            "" if line is None else f"superseded by {by}" if by else _status(line),
        )
        for ref, line, by in found
    )
    show_rows(("name", "commit", "run"), rows, whole=("commit",), drop=("commit",), empty="No branches.")


def _status(line: RunLine) -> str:
    return f"{line.status}, kept until {moment(line.branch_until)}" if line.branch_until else line.status


@branch.command("create", examples=("lakegate branch create january", "lakegate branch create fix --from wap/january"))
@click.argument("name")
@ref_option("--from", "source", text="Branch, tag or commit to start from.")
@at_option("Start from REF as of this time, tag or commit; see lakegate query --help.")
def create_branch(app: App, /, *, name: str, source: str, at: str | None) -> None:
    """Create the branch NAME. No data is copied."""
    with app.lake() as lake:
        show_changed_ref(app, lake.branches.create(name, source=source, at=at), "created", "at")


@branch.command(
    "reset", examples=("lakegate branch reset january --to main", "lakegate branch reset dev --to main --at 2026-01-31")
)
@branch_argument("name")
@click.option(
    "--to", required=True, metavar="REF", help="Branch, tag or commit to point to.", shell_complete=complete_refs
)
@at_option("Point to REF as of this time, tag or commit; see lakegate query --help.")
@click.option("--force", is_flag=True, help="Allow main, which loses everything published since.")
def reset_branch(app: App, /, *, name: str, to: str, at: str | None, force: bool) -> None:
    """Point the branch NAME to another commit. Commits only on this branch become unreachable.

    To undo a publish on main, use `lakegate revert` or `lakegate table restore` instead: they keep the history.
    """
    with app.lake() as lake:
        show_changed_ref(app, lake.branches.reset(name, to=to, at=at, force=force), "reset", "to")


@branch.command("delete", examples=("lakegate branch delete january",))
@branch_argument("name")
def delete_branch(app: App, /, *, name: str) -> None:
    """Delete the branch NAME. Commits only on this branch become unreachable."""
    with app.lake() as lake:
        show_deleted_ref(app, lake.branches.delete(name))


def show_refs(app: App, refs: Sequence[Ref], *, empty: str) -> None:
    """Print branches or tags with the commits they point to; ``empty`` if there are none."""
    if app.json:
        echo_json(refs)
    else:
        rows = ((ref.name, ref.kind, short_hash(ref.hash)) for ref in refs)
        show_rows(("name", "kind", "commit"), rows, whole=("commit",), drop=("kind",), empty=empty)


def show_changed_ref(app: App, ref: Ref, done: str, preposition: str) -> None:
    """Print that a branch or tag was created or reset."""
    if app.json:
        echo_json(ref)
    else:
        say(f"[bold green]{done}[/]  {ref.kind} {safe(ref.name)} {preposition} commit {short_hash(ref.hash)}")


def show_deleted_ref(app: App, ref: Ref) -> None:
    """Print which branch or tag was deleted, and how to restore it."""
    if app.json:
        echo_json(ref)
        return
    say(f"[bold yellow]deleted[/]  {ref.kind} {safe(ref.name)}, which was at commit {short_hash(ref.hash)}")
    say(f"  [dim]To restore it: {safe(app.command(ref.kind, 'create', ref.name, '--from', short_hash(ref.hash)))}[/]")
