"""Run SQL against any branch, tag, commit or time."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App
from lakegate.cli.commandline import command
from lakegate.cli.options import at_option, ref_option
from lakegate.cli.output import cell, clip, counted, make_table, null, show, width_or
from lakegate.cli.streams import as_json, lost_output
from lakegate.errors import QueryError
from lakegate.model.rows import csv_field, json_safe, values_of
from lakegate.progress import one_line

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE_ROWS = 1000
_WIDEST_CELL = 80
_BATCH = 1000


@command(
    "query",
    formats=("table", "json", "csv"),
    examples=(
        "lakegate query 'SELECT count(*) FROM nyc.trips'",
        "lakegate query 'SELECT * FROM nyc.trips WHERE fare < 0' --ref wap/january",
        "lakegate query 'SELECT * FROM nyc.trips' --at 2026-01-31T07:00:00Z -o csv > trips.csv",
        "cat report.sql | lakegate query - -o json",
    ),
)
@click.argument("sql")
@ref_option()
@at_option()
def query(app: App, /, *, sql: str, ref: str, at: str | None) -> None:
    """Run the query SQL. Pass '-' to read it from standard input.

    Table names such as nyc.trips refer to the tables on --ref. The table format shows the first 1,000 rows; json and
    csv print all of them.
    """
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise click.UsageError("The query is empty.")
    with app.lake() as lake:
        asked = lake.query(text, ref=ref, at=at)
        if app.json:
            _require_distinct(asked.columns)
        result = asked.to_arrow()
    if app.json:
        print_json(result)
    elif app.output == "csv":
        print_csv(result)
    else:
        print_table(result)


def _require_distinct(columns: Sequence[str]) -> None:
    """Refuse columns of the same name: a JSON object would hold only the last one."""
    repeated = next((name for name in columns if list(columns).count(name) > 1), None)
    if repeated is not None:
        raise QueryError(
            f"The query returns several columns named '{repeated}'; a JSON object can't hold them.",
            hint="Rename them with AS, or use --output csv.",
            column=repeated,
        )


def print_table(result: pa.Table) -> None:
    """Print the first rows as a table, and on standard error how many there are."""
    names = [one_line(name) for name in result.column_names]
    right = [name for name, field in zip(names, result.schema, strict=True) if _is_number(field.type)]
    table = make_table(*names, right=right)
    widest = min(_WIDEST_CELL, width_or(_WIDEST_CELL))
    for row in _rows(result.slice(0, _TABLE_ROWS)):
        table.add_row(*(null(clip(cell(value), widest)) for value in row))
    show(table)
    if result.num_rows > _TABLE_ROWS:
        click.echo(
            f"Showing {_TABLE_ROWS:,} of {result.num_rows:,} rows. To print all of them, pass --output csv.", err=True
        )
    elif sys.stderr.isatty():
        click.echo(counted(result.num_rows, "row"), err=True)


def print_json(result: pa.Table) -> None:
    """Print a JSON array of objects, one row on each line."""
    names = result.column_names
    separator = "["
    for row in _rows(result):
        record = dict(zip(names, map(json_safe, row), strict=True))
        click.echo(f"{separator}\n{as_json(record)}", nl=False)
        separator = ","
    click.echo("\n]" if result.num_rows else "[]")


def print_csv(result: pa.Table) -> None:
    """Print CSV (RFC 4180, LF): a header, then the rows; NULL is an empty field.

    It's UTF-8 whatever the terminal's encoding: CSV has no escapes for characters that another encoding lacks.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in _rows(result):
        writer.writerow([csv_field(value) for value in row])


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in result.to_batches(max_chunksize=_BATCH):
        if lost_output() is not None:
            return
        columns = [values_of(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
