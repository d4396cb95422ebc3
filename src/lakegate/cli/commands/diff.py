"""Show which tables differ between two references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakegate.cli.app import App
from lakegate.cli.commandline import command
from lakegate.cli.options import branch_argument
from lakegate.cli.output import count_at_most, echo_json, show_rows

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.refs import TableDifference, TablePointer


@command("diff", examples=("lakegate diff main wap/january", "lakegate diff main wap/january -o json"))
@branch_argument("left")
@branch_argument("right")
def diff(app: App, /, *, left: str, right: str) -> None:
    """Show which tables differ between the references LEFT and RIGHT, and by how many rows."""
    with app.lake() as lake:
        payloads = [_payload(lake, difference, left, right) for difference in lake.diff(left, right)]
    if app.json:
        echo_json(payloads)
        return
    numbers = (f"rows on {left}", f"rows on {right}", "difference")
    rows = (
        (p["table"], p["change"], *_row_counts(p)) if p["kind"] == "table" else (p["table"], p["kind"], "", "", "")
        for p in payloads
    )
    empty = f"{left} and {right} hold the same tables in the same state."
    show_rows(("table", "change", *numbers), rows, right=numbers, empty=empty)


def _payload(lake: Lake, difference: TableDifference, left: str, right: str) -> dict[str, Any]:
    """Return one difference for machines; a side where the table does not exist is null."""

    def side(ref: str, pointer: TablePointer | None) -> dict[str, Any] | None:
        if pointer is None:
            return None
        table = lake.table(difference.table, ref=ref) if difference.kind == "table" else None
        return {
            "snapshot_id": pointer.snapshot_id,
            "metadata_location": pointer.metadata_location,
            "rows": table and table.rows,
            "rows_at_most": table and table.rows_at_most,
        }

    return {
        "table": difference.table,
        "kind": difference.kind,
        "change": difference.change,
        "left": side(left, difference.left),
        "right": side(right, difference.right),
    }


def _row_counts(payload: dict[str, Any]) -> list[str]:
    sides = [payload["left"], payload["right"]]
    left, right = (0 if side is None else side["rows"] for side in sides)
    shown = ("–" if side is None else count_at_most(side["rows"], side["rows_at_most"]) for side in sides)
    return [*shown, "" if left is None or right is None else f"{right - left:+,}"]
