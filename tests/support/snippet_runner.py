"""Runs snippets as they are printed, each in its own engine, and prints what the engine then says of the table.

A program of its own: engines start threads, warn, and keep what they once read. Standard input is a JSON object of
snippets by name, each with ``engine``, ``text`` and the ``name`` that it gives the table.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import duckdb
import pyarrow as pa


def main() -> None:
    """Run them all."""
    out = sys.stdout
    sys.stdout = sys.stderr  # snippets print their first rows
    answers = {name: _rows(snippet) for name, snippet in json.load(sys.stdin).items()}
    json.dump({name: facts(rows) for name, rows in answers.items()}, out, default=str)


def facts(rows: pa.Table) -> dict[str, Any]:
    """Return figures of all columns: rows, NULLs, and sums and ends of those with an order."""
    found: dict[str, Any] = {"rows": rows.num_rows}
    names = [f"x{number}" for number in range(rows.num_columns)]
    asked = []
    for name, kind in zip(names, rows.schema.types, strict=True):
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        asked.append(f"count({name}), {f'coalesce(sum({name}), 0)' if is_number else '0'}, min({name}), max({name})")
    with duckdb.connect() as connection:
        connection.register("given", rows.rename_columns(names))
        (figures,) = connection.sql(f"SELECT {', '.join(asked)} FROM given").fetchall()
    for at, name in enumerate(rows.column_names):
        count, total, low, high = figures[4 * at : 4 * at + 4]
        # Floats are summed in another order elsewhere.
        found[name] = [count, round(float(total), 2), str(low), str(high)]
    return found


def _rows(snippet: dict[str, str]) -> Any:
    engine, text, name = snippet["engine"], snippet["text"], snippet["name"]
    if engine == "duckdb":
        with duckdb.connect() as connection:
            connection.execute(text)
            return connection.execute(f"SELECT * FROM {name}").fetch_arrow_table()
    values: dict[str, Any] = {}
    exec(text, values)  # noqa: S102 - as its reader would
    table = values[name]
    if engine == "pyiceberg":
        return table.scan().to_arrow()
    if engine == "polars":
        return table.collect().to_arrow()
    rows = table.toArrow()
    values["spark"].stop()  # the next one would get this session, with this catalog
    return rows


if __name__ == "__main__":
    main()
