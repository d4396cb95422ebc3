"""Show the columns of source files and their first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import csv_from, csv_options, format_option
from lakegate.cli.output import cell, clip, count_fitting, echo_json, safe, say, show_rows, width_or
from lakegate.cli.run_output import left_out_payload, show_left_out
from lakegate.model.batch import CsvOptions
from lakegate.model.words import counted, size

if TYPE_CHECKING:
    from lakegate.sources.sample import SourceSample

_LONGEST = 24


@command(
    "inspect",
    examples=(
        "lakegate inspect events.jsonl.gz",
        "lakegate inspect 'orders/*.csv' --delimiter ';' --decimal ','",
        "lakegate inspect s3://landing/trips/ -o json",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@format_option()
@csv_options
@click.option(
    "--rows", "-n", type=click.IntRange(0, 1000), default=3, show_default=True, metavar="N", help="Rows to show."
)
def inspect(app: App, /, *, paths: tuple[str, ...], rows: int, **given: Any) -> None:
    """Show the columns that a table of these files would have, and the first rows.

    Writes nothing, and needs neither a lake nor Spark. PATH is a file, a folder or a pattern. Types are inferred from
    all values, not just the first ones.
    """
    from lakegate.sources.sample import inspect as inspect_files

    file_format = given.pop("format")
    csv = csv_from(given, CsvOptions())
    storage = app.settings().storage
    found = inspect_files(paths, format=file_format, csv=csv, storage=storage, narrator=app.narrator, rows=rows)
    _show(app, found)


def _show(app: App, found: SourceSample) -> None:
    if app.json:
        echo_json(_payload(found))
        return
    batch = found.batch
    files = counted(len(batch.files), "file")
    say(f"[bold]{safe(batch.format)}[/]  {files}, {counted(batch.rows, 'row')}, {size(batch.size_bytes)}")
    show_left_out(batch)
    say("")
    shown = [
        (one.name, one.type, *(clip(cell(row.get(one.name)), _LONGEST) for row in found.rows)) for one in found.columns
    ]
    rows = [f"row {number}" for number, _ in enumerate(found.rows, start=1)]
    width = width_or(0)
    if rows and width and count_fitting(("column", "type", rows[0]), [row[:3] for row in shown], width) < 3:
        show_rows(("column", "type"), (row[:2] for row in shown))
        say("")
        show_rows(("column", rows[0]), ((row[0], row[2]) for row in shown))
        return
    show_rows(("column", "type", *rows), shown, drop=rows[:0:-1])


def _payload(found: SourceSample) -> dict[str, Any]:
    batch = found.batch
    return {
        "format": batch.format,
        "files": [{"uri": file.uri, "rows": file.rows, "size_bytes": file.size_bytes} for file in batch.files],
        "rows": batch.rows,
        "size_bytes": batch.size_bytes,
        "columns": [{"name": column.name, "type": column.type} for column in found.columns],
        "sample": list(found.rows),
        "left_out": left_out_payload(batch),
    }
