"""Show what a ref changes since it branched off another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.commands.query import print_table
from lakegate.cli.options import SHOWN_COUNT, complete_refs, complete_tables
from lakegate.cli.output import cell, count_at_most, echo_json, safe, say, say_wrapped, show_rows
from lakegate.cli.wrapping import tell
from lakegate.model.rows import json_safe, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lakegate.lake import Lake
    from lakegate.model.refs import TableDifference, TablePointer
    from lakegate.table import Query

_SAMPLE = 5
_TITLES = {"added": "Rows added", "removed": "Rows removed", "changed": "Rows changed"}


@command(
    "diff",
    examples=(
        "lakegate diff main wap/january",
        "lakegate diff before-fix main --table nyc.trips --rows",
        "lakegate diff main wap/january --rows 20 --key trip_id",
        "lakegate diff main wap/january --two-way",
        "lakegate diff main wap/january -o json",
    ),
)
@click.argument("left", shell_complete=complete_refs)
@click.argument("right", shell_complete=complete_refs)
@click.option("--table", metavar="TABLE", help="Only this table.", shell_complete=complete_tables)
@click.option(
    "--rows",
    type=SHOWN_COUNT,
    is_flag=False,
    flag_value=_SAMPLE,
    metavar="[N]",
    help=f"Show up to N rows that were added, removed or changed; {_SAMPLE} by default. Needs Spark.",
)
@click.option("--key", multiple=True, metavar="COLUMN", help="Column that identifies a row, with --rows. Repeatable.")
@click.option("--two-way", is_flag=True, help="Compare LEFT and RIGHT as they are now.")
def diff(
    app: App,
    /,
    *,
    left: str,
    right: str,
    table: str | None,
    rows: int | None,
    key: tuple[str, ...],
    two_way: bool,
) -> None:
    """Show what RIGHT changes since it branched off LEFT (branches, tags or commits): tables, columns, rows.

    What changed on LEFT since then isn't shown; with --two-way it is, as what RIGHT lacks. Without a --key, a changed
    row counts as one removed and one added.
    """
    if key and rows is None:
        raise click.UsageError("--key needs --rows.")
    with app.lake() as lake:
        found = [one for one in lake.diff(left, right, two_way=two_way) if table is None or one.table == table]
        if table is not None and not found:
            lake.table(table, ref=right)  # raises if it doesn't exist
        payloads = [_payload(lake, one, right) for one in found]
        samples = {}
        if rows is not None:
            for one in found:
                if one.kind == "table":
                    with app.narrator.step(f"Comparing the rows of {one.table}"):
                        samples[one.table] = _samples(lake, one, right, rows, key)
    if app.json:
        echo_json(
            [{**p, **({"rows": _as_json(samples[p["table"]])} if p["table"] in samples else {})} for p in payloads]
        )
        return
    if not found:
        tell(_same(app, left, right, table, two_way=two_way))
        return
    since = f"compared with {safe(left)}" if two_way else f"since commit {found[0].base[:12]} of {safe(left)}"
    say_wrapped(f"[dim]Changes on {safe(right)} {since}[/]", indent=0)
    numbers = ("before", "after", "difference")
    lines = (
        (p["table"], p["change"], *_row_counts(p)) if p["kind"] == "table" else (p["table"], p["kind"], "", "", "")
        for p in payloads
    )
    show_rows(("table", "change", *numbers), lines, right=numbers, whole=("change", *numbers))
    for one in found:
        say(*(f"  [yellow]{safe(one.table)}: {safe(change)}[/]" for change in one.schema_changes))
    for name, sample in samples.items():
        _show_sample(name, sample, rows or 0)


def _same(app: App, left: str, right: str, table: str | None, *, two_way: bool) -> str:
    """Return why there is nothing to show."""
    if two_way or left == right:
        what = "the same tables" if table is None else f"table {table}"
        return f"{left} and {right} have {what} in the same state."
    what = "no table" if table is None else f"nothing in table {table}"
    command = app.command("diff", left, right, "--two-way")
    return f"{right} changes {what} since it branched off {left}. To compare the two as they are now: {command}"


def _payload(lake: Lake, difference: TableDifference, right: str) -> dict[str, Any]:
    """Return a difference for JSON output. A side without the table is null."""

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
        "base": difference.base,
        "left": side(difference.base, difference.left),
        "right": side(right, difference.right),
        "schema_changes": difference.schema_changes,
    }


def _row_counts(payload: dict[str, Any]) -> list[str]:
    sides = [payload["left"], payload["right"]]
    left, right = (0 if side is None else side["rows"] for side in sides)
    shown = ("–" if side is None else count_at_most(side["rows"], side["rows_at_most"]) for side in sides)
    return [*shown, "" if left is None or right is None else f"{right - left:+,}"]


def _samples(
    lake: Lake, difference: TableDifference, right: str, rows: int, key: tuple[str, ...]
) -> dict[str, pa.Table]:
    """Return, for each kind of difference that has rows, up to one more than ``rows``."""
    found = lake.diff_rows(difference.table, difference.base, right, key=key, two_way=True)
    queries: dict[str, Query | None] = {kind: getattr(found, kind) for kind in _TITLES}
    read = {kind: query.limit(rows + 1).to_arrow() for kind, query in queries.items() if query is not None}
    return {kind: some for kind, some in read.items() if some.num_rows}


def _as_json(sample: dict[str, pa.Table]) -> dict[str, Any]:
    return {kind: [json_safe(row) for row in rows_of(rows)] for kind, rows in sample.items()}


def _show_sample(table: str, sample: dict[str, pa.Table], rows: int) -> None:
    if not sample:
        say("", f"{safe(table)}: no row was added, removed or changed.")
    for kind, found in sample.items():
        first = f", the first {rows:,}" if found.num_rows > rows else ""
        say("", f"[bold]{_TITLES[kind]}[/] in {safe(table)}{first}")
        shown = found.slice(0, rows)
        print_table(_changes(shown) if kind == "changed" else shown, counts=False, whole=True)


def _changes(found: pa.Table) -> pa.Table:
    """Return changed rows as text: equal values once, and others as ``before → after``."""
    import pyarrow as pa

    pairs = [(row["before"], row["after"]) for row in rows_of(found)]
    names = [field.name for field in found.schema.field("after").type]

    def text(before: dict[str, Any], after: dict[str, Any], name: str) -> str:
        now = cell(after[name])
        was = next((cell(value) for key, value in before.items() if key.lower() == name.lower()), now)
        return now if was == now else f"{was} → {now}"

    texts = {name: [text(before, after, name) for before, after in pairs] for name in names}
    # Changed columns come first, after the column that most likely identifies the row.
    order = sorted(names, key=lambda name: name != names[0] and not any(" → " in one for one in texts[name]))
    return pa.table([pa.array(texts[name], pa.string()) for name in order], names=order)
