"""Query results as a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.render.console import make_table, null, show, width_or
from lakegate.cli.render.text import cell, clip, json_safe, plain
from lakegate.errors import QueryError

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1000
"""Rows that a table shows; more are for ``--output csv`` and ``json``."""
_WIDEST_CELL = 80
_BATCH = 1000


def require_distinct(columns: Sequence[str]) -> None:
    """Refuse columns of one name, of which a JSON object could hold only the last.

    Raises:
        QueryError: Naming the first such column.
    """
    repeated = next((name for name in columns if list(columns).count(name) > 1), None)
    if repeated is not None:
        raise QueryError(
            f"The query returns several columns called '{repeated}'; a JSON object cannot hold them.",
            hint="Name them apart with AS, or use --output csv.",
            column=repeated,
        )


def print_table(result: pa.Table) -> None:
    """Print the first rows as a table, and on standard error how many there are."""
    names = [plain(name) for name in result.column_names]
    right = [name for name, field in zip(names, result.schema, strict=True) if _is_number(field.type)]
    table = make_table(*names, right=right)
    widest = min(_WIDEST_CELL, width_or(_WIDEST_CELL))
    for row in _rows(result.slice(0, TABLE_ROWS)):
        table.add_row(*(null(clip(cell(value), widest)) for value in row))
    show(table)
    if result.num_rows > TABLE_ROWS:
        click.echo(f"{TABLE_ROWS:,} of {result.num_rows:,} rows shown; --output csv prints them all.", err=True)
    elif sys.stderr.isatty():
        click.echo(f"{result.num_rows:,} row{'' if result.num_rows == 1 else 's'}", err=True)


def print_json(result: pa.Table) -> None:
    """Print a JSON array of objects, one row on each line."""
    names = result.column_names
    separator = "["
    for row in _rows(result):
        record = dict(zip(names, map(json_safe, row), strict=True))
        click.echo(f"{separator}\n{json.dumps(record, ensure_ascii=False)}", nl=False)
        separator = ","
    click.echo("\n]" if result.num_rows else "[]")


def print_csv(result: pa.Table) -> None:
    """Print CSV (RFC 4180, LF): a header, then the rows; NULL is an empty field."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in _rows(result):
        writer.writerow(["" if value is None else _csv_field(value) for value in row])


def _csv_field(value: Any) -> Any:
    safe = json_safe(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(safe, bool):
        return str(safe).lower()
    return json.dumps(safe, ensure_ascii=False) if isinstance(safe, (list, dict)) else safe


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in result.to_batches(max_chunksize=_BATCH):
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
