"""``lakegate diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import branch_argument, output_option
from lakegate.cli.render.catalog import difference_payload, show_differences
from lakegate.cli.render.console import echo_json

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.refs import TableDifference


@command("diff", examples=("lakegate diff main wap/january", "lakegate diff main wap/january -o json"))
@branch_argument("left")
@branch_argument("right")
@output_option()
@pass_app
def diff(app: App, /, *, left: str, right: str, output: str) -> None:
    """Show which tables differ between the references LEFT and RIGHT, and by how many rows."""
    with app.lake() as lake:
        differences = lake.diff(left, right)
        payloads = [difference_payload(one, _rows(lake, one, left, right)) for one in differences]
    if output == "json":
        echo_json(payloads)
    else:
        show_differences(payloads, left, right)


def _rows(lake: Lake, difference: TableDifference, left: str, right: str) -> dict[str, int | None]:
    if difference.kind != "table":
        return {}
    sides = {"left": (left, difference.left), "right": (right, difference.right)}
    return {
        side: lake.table(difference.table, ref=ref).rows
        for side, (ref, pointer) in sides.items()
        if pointer is not None
    }
