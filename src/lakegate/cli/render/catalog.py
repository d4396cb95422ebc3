"""References, commits and differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.render.console import make_table, rows_or_nothing, safe, say
from lakegate.cli.render.text import count, moment

if TYPE_CHECKING:
    from lakegate.model.refs import Commit, Ref, TableDifference, TablePointer


def show_refs(refs: Sequence[Ref], *, empty: str = "No branches.") -> None:
    """Print branches or tags with the commits they point at; the sentence ``empty`` when there are none."""
    table = make_table("name", "kind", "commit")
    rows_or_nothing(table, ((ref.name, ref.kind, ref.hash) for ref in refs), empty=empty)


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
