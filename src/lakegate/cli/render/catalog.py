"""References, commits and differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lakegate.cli.render.console import echo_json, make_table, rows_or_nothing, safe, say
from lakegate.cli.render.text import count, moment

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.model.refs import Commit, Ref, TableDifference, TablePointer


def print_refs(refs: Sequence[Ref], output: str, *, empty: str) -> None:
    """Print branches or tags with the commits they point at; the sentence ``empty`` when there are none."""
    if output == "json":
        echo_json([ref.model_dump(mode="json") for ref in refs])
        return
    table = make_table("name", "kind", "commit")
    rows_or_nothing(table, ((ref.name, ref.kind, ref.hash) for ref in refs), empty=empty)


def print_changed_ref(ref: Ref, output: str, *, done: Literal["created", "reset"]) -> None:
    """Print what became of a branch or tag."""
    if output == "json":
        echo_json(ref.model_dump(mode="json"))
    else:
        where = "to" if done == "reset" else "at"
        say(f"[bold green]{done}[/]  {ref.kind} {safe(ref.name)} {where} commit {ref.hash}")


def print_deleted_ref(app: App, ref: Ref, output: str) -> None:
    """Print that a branch or tag is gone, and how to have it back."""
    if output == "json":
        echo_json(ref.model_dump(mode="json"))
        return
    say(f"[bold yellow]deleted[/]  {ref.kind} {safe(ref.name)}, which was at commit {ref.hash}")
    again = app.command(ref.kind, "create", ref.name, "--at", ref.hash)
    say(f"  [dim]It can be had back: {safe(again)}[/]")


def show_commits(commits: Iterable[Commit]) -> None:
    """Print commits as they come, each with its full hash, which ``--at`` takes."""
    for commit in commits:
        say(f"[yellow]commit {commit.hash}[/]", f"  [dim]{moment(commit.time)}  {safe(commit.author)}[/]")
        say(*(f"  {safe(line)}" for line in commit.message.splitlines() or [""]))
        if commit.tables:
            say(f"  [dim]tables: {safe(', '.join(commit.tables))}[/]")
        say(*(f"  [dim]{safe(key)}: {safe(value)}[/]" for key, value in sorted(commit.properties.items())), "")


def difference_payload(difference: TableDifference, rows: Mapping[str, int | None]) -> dict[str, Any]:
    """Return one difference for machines; a side where the table does not exist is null.

    Args:
        difference: What differs.
        rows: Rows of the table on each side where it exists, by ``left`` and ``right``.
    """

    def side(name: str, pointer: TablePointer | None) -> dict[str, Any] | None:
        if pointer is None:
            return None
        return {
            "snapshot_id": pointer.snapshot_id,
            "metadata_location": pointer.metadata_location,
            "rows": rows.get(name),
        }

    return {
        "table": difference.table,
        "kind": difference.kind,
        "change": difference.change,
        "left": side("left", difference.left),
        "right": side("right", difference.right),
    }


def show_differences(payloads: Sequence[dict[str, Any]], left: str, right: str) -> None:
    """Print differences as :func:`difference_payload` gives them."""
    numbers = (f"rows on {left}", f"rows on {right}", "difference")
    table = make_table("table", "change", *numbers, right=numbers)
    rows = ((p["table"], p["change"] if p["kind"] == "table" else p["kind"], *_row_counts(p)) for p in payloads)
    rows_or_nothing(table, rows, empty=f"{left} and {right} hold the same tables in the same state.")


def _row_counts(payload: dict[str, Any]) -> tuple[str, str, str]:
    if payload["kind"] != "table":
        return ("", "", "")
    left, right = (0 if payload[side] is None else payload[side]["rows"] for side in ("left", "right"))
    difference = "" if left is None or right is None else f"{right - left:+,}"
    return (_present(payload["left"], left), _present(payload["right"], right), difference)


def _present(side: object, rows: int | None) -> str:
    return "–" if side is None else count(rows)
