"""Run SQL against any branch, tag, commit or time."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.cells import cell_len
from rich.text import Text

from lakegate.cli.app import App, command
from lakegate.cli.options import at_option, ref_option
from lakegate.cli.output import cell, clip, count_fitting, make_table, null, show, width_or, writing
from lakegate.cli.streams import as_json, lost_output
from lakegate.cli.wrapping import tell
from lakegate.errors import QueryError
from lakegate.model.rows import json_safe, values_of, write_csv_row
from lakegate.model.words import counted, size
from lakegate.progress import one_line

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"\w+")
_TABLE = re.compile(r"\w[\w-]*(\.\w[\w-]*)+")
_TABLE_ROWS = 1000
_WIDEST_CELL = 80
_BATCH = 1000
_GAP = 3
_MORE_WIDTH = len("… 1000 more")


@command(
    "query",
    formats=("table", "vertical", "json", "csv", "parquet"),
    examples=(
        "lakegate query 'SELECT count(*) FROM nyc.trips'",
        "lakegate query 'SELECT * FROM nyc.trips WHERE fare < 0' --ref wap/january",
        "lakegate query 'SELECT * FROM nyc.trips LIMIT 3' -o vertical",
        "lakegate query 'SELECT * FROM nyc.trips' --at 2026-01-31T07:00:00Z -o csv > trips.csv",
        "lakegate query 'SELECT * FROM nyc.trips' -o parquet --file trips.parquet",
        "cat report.sql | lakegate query - -o json",
    ),
)
@click.argument("sql")
@ref_option()
@at_option()
@click.option(
    "--file",
    "-f",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the rows to this file (csv, json or parquet). Default: standard output.",
)
def query(app: App, /, *, sql: str, ref: str, at: str | None, file: Path | None) -> None:
    """Run the query SQL. Pass '-' to read it from standard input.

    Table names such as nyc.trips refer to the tables on --ref. A table shows the first 1,000 rows and, on a terminal,
    the columns that fit: first those that the query names. The format vertical shows every column, on lines of its own.
    The formats json, csv and parquet write all rows.
    """
    text = _from_stdin() if sql == "-" else sql
    _require_sql(text)
    is_shown = app.output in ("table", "vertical")
    if file is not None and is_shown:
        raise click.UsageError("--file needs --output csv, json or parquet.")
    if app.output == "parquet" and file is None and sys.stdout.isatty():
        raise click.UsageError("Can't print Parquet on a terminal. Pass --file, or redirect the output to a file.")
    with app.lake() as lake, app.narrator.step("Running the query"):
        planned = lake.query(text, ref=ref, at=at)
        if app.json:
            _require_distinct(planned.columns)
        # Don't fetch rows of a large result that the table won't show.
        result = (planned.limit(_TABLE_ROWS + 1) if is_shown else planned).to_arrow()
    if file is not None:
        _write_file(app, result, file)
    elif app.output == "parquet":
        click.echo(_parquet(result), nl=False)
    else:
        print_result(app, result, text)


def _from_stdin() -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff")  # a byte order mark
    except UnicodeDecodeError as error:
        raise click.UsageError(f"The query on standard input isn't text in {error.encoding.upper()}.") from None


def _require_sql(text: str) -> None:
    """Refuse text that isn't a query, and suggest the right command."""
    if not text.strip():
        raise click.UsageError("The query is empty.")
    if os.path.isfile(text):  # noqa: PTH113 - a query may be longer than a path
        raise click.UsageError(f"'{text}' is a file. To run the query in it: lakegate query - < {quote(text)}")
    if _TABLE.fullmatch(text.strip()):
        raise click.UsageError(f"'{text}' isn't SQL. To see a table's rows: lakegate table rows {text.strip()}")


def _require_distinct(columns: Sequence[str]) -> None:
    """Refuse columns with the same name: a JSON object would keep only the last one."""
    repeated = next((name for name in columns if list(columns).count(name) > 1), None)
    if repeated is not None:
        raise QueryError(
            f"The query returns several columns named '{repeated}', and a JSON object can have only one.",
            hint="Rename them with AS, or use --output csv.",
            column=repeated,
        )


def print_result(app: App, result: pa.Table, sql: str = "") -> None:
    """Print rows in the format of ``--output``. Columns that ``sql`` names come first if not all fit."""
    if app.json:
        print_json(result)
    elif app.output == "csv":
        print_csv(result)
    elif app.output == "vertical":
        _print_vertical(result)
        _print_count(result.num_rows)
    else:
        print_table(result, first=frozenset(_NAME.findall(sql)))


def print_table(result: pa.Table, *, first: Collection[str] = (), counts: bool = True, whole: bool = False) -> None:
    """Print the first rows as a table, and their number on standard error.

    On a terminal, columns that don't fit are left out and counted, those in ``first`` last. A single row that doesn't
    fit is printed vertically, and if ``whole``, so are all.
    """
    names = [one_line(name) for name in result.column_names]
    width = width_or(0)
    widest = (
        min(_WIDEST_CELL, max(width - (0 if len(names) == 1 else _MORE_WIDTH + _GAP), 1)) if width else _WIDEST_CELL
    )
    rows = [[clip(cell(value), widest) for value in row] for row in _rows(result.slice(0, _TABLE_ROWS))]
    order = list(range(len(names)))
    fitting = count_fitting(names, rows, width, note=_MORE_WIDTH + _GAP) if width else len(names)
    if fitting < len(names):
        order.sort(key=lambda at: result.column_names[at] not in first)
        moved = [[row[at] for at in order] for row in rows]
        fitting = count_fitting([names[at] for at in order], moved, width, note=_MORE_WIDTH + _GAP)
    if fitting < len(names) and (whole or len(rows) == 1):
        _print_vertical(result)
    else:
        right = [name for name, field in zip(names, result.schema, strict=True) if _is_number(field.type)]
        left_out = [f"… {len(names) - fitting} more"] if fitting < len(names) else []
        table = make_table(*(names[at] for at in order[:fitting]), *left_out, right=right)
        for row in rows:
            table.add_row(*(null(row[at]) for at in order[:fitting]), *("…" for _ in left_out))
        if left_out:
            tell("To see all columns, pass --output vertical, json, csv or parquet, or select fewer.")
        show(table)
    if counts or result.num_rows > _TABLE_ROWS:
        _print_count(result.num_rows)


def _print_vertical(result: pa.Table) -> None:
    """Print each of the first rows as lines of a column and its value."""
    width = width_or(0)
    labels = [clip(one_line(name), width // 2 or _WIDEST_CELL) for name in result.column_names]
    room = max(width - max(map(cell_len, labels), default=0) - _GAP, 1) if width else None
    for number, row in enumerate(_rows(result.slice(0, _TABLE_ROWS)), start=1):
        table = make_table("column", "value" if result.num_rows == 1 else f"row {number:,}")
        for label, value in zip(labels, map(cell, row), strict=True):
            table.add_row(Text(label), null(value if room is None else clip(value, room)))
        show(table)


def _print_count(rows: int) -> None:
    if rows > _TABLE_ROWS:
        tell(f"Showing the first {_TABLE_ROWS:,} rows. To print all of them, pass --output csv.")
    elif sys.stderr.isatty():
        tell(counted(rows, "row"))


def _write_file(app: App, result: pa.Table, file: Path) -> None:
    with writing(file, "rows") as draft:
        if app.output == "parquet":
            draft.write_bytes(_parquet(result))
        else:
            with draft.open("w", encoding="utf-8", newline="") as text:
                (_write_json if app.json else _write_csv)(result, text)
        written = f" ({size(draft.stat().st_size)})" if draft.is_file() else ""
    if not app.quiet:
        tell(f"Wrote {counted(result.num_rows, 'row')} to {file}{written}.")


def print_json(result: pa.Table) -> None:
    """Print a JSON array of objects, one row on each line."""
    _write_json(result, sys.stdout)


def print_csv(result: pa.Table) -> None:
    """Print CSV (RFC 4180, LF): a header, then the rows; NULL is an empty field.

    The encoding is UTF-8 whatever the terminal's is: CSV has no escapes for characters that another encoding lacks.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    _write_csv(result, sys.stdout)


def _write_json(result: pa.Table, file: TextIO) -> None:
    names = result.column_names
    separator = "["
    for row in _rows(result):
        record = dict(zip(names, map(json_safe, row), strict=True))
        file.write(f"{separator}\n{as_json(record)}")
        separator = ","
    file.write("\n]\n" if result.num_rows else "[]\n")


def _write_csv(result: pa.Table, file: TextIO) -> None:
    write_csv_row(result.column_names, file)
    for row in _rows(result):
        write_csv_row(row, file)


def _parquet(result: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(result, buffer, compression="zstd")
    return buffer.getvalue()


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in result.to_batches(max_chunksize=_BATCH):
        if lost_output() is not None:
            return
        columns = [values_of(column) for column in batch.columns]
        yield from zip(*columns, strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
