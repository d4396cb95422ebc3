"""Upserts: refuse duplicate and NULL keys, then ``MERGE`` the rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.schema import is_masked
from lakegate.spark.scans import collect_rows

_EXAMPLES = 5


def require_unique(
    frame: Any, keys: Sequence[str], table: TableIdentifier, branch: str, *, masked: Sequence[str] = ()
) -> None:
    """Check that the keys of a frame are unique and not NULL.

    Args:
        masked: Patterns of columns whose values must not be shown.

    Raises:
        InputError: When they aren't; it shows examples.
    """
    aliases = [f"k{index}" for index in range(len(keys))]
    null = " OR ".join(f"{alias} IS NULL" for alias in aliases)
    columns = (f"{quote(key)} AS {alias}" for key, alias in zip(keys, aliases, strict=True))
    grouped = frame.selectExpr(*columns).groupBy(*aliases).count()
    wrong = [tuple(row.values()) for row in collect_rows(grouped.where(f"count > 1 OR {null}").limit(_EXAMPLES))]
    if not wrong:
        return
    has_null = any(value is None for row in wrong for value in row[:-1])
    hidden = [is_masked(masked, key) for key in keys]
    examples = ", ".join(
        f"({', '.join(map(_shown, row[:-1], hidden))}) in {row[-1]:,} row{'' if row[-1] == 1 else 's'}" for row in wrong
    )
    what = "is NULL" if has_null else "isn't unique"
    named = ", ".join(f"'{key}'" for key in keys)
    raise InputError(
        f"The key {named} {what} in the rows given for {table} on branch {branch}: {examples}.",
        hint="Nothing was written. Drop these rows, or keep one row per key.",
        table=str(table),
        branch=branch,
    )


def merge(
    session: Any, table: str, frame: Any, keys: Sequence[str], changed: Sequence[str], deletes: str | None = None
) -> None:
    """Merge a frame's rows into a table: update the columns ``changed`` where the keys match, insert the other rows.

    Args:
        table: The table's name in SQL.
        deletes: A column that is true in rows that delete the row with their key.
    """
    view = f"lakegate_rows_{uuid.uuid4().hex}"
    columns = [name for name in frame.columns if name != deletes]
    frame.createOrReplaceTempView(view)
    try:
        session.sql(_statement(table, view, columns, keys, changed, deletes))
    finally:
        with suppress(Exception):
            session.catalog.dropTempView(view)


def _statement(
    table: str, view: str, columns: Sequence[str], keys: Sequence[str], changed: Sequence[str], deletes: str | None
) -> str:
    same = " AND ".join(f"target.{quote(key)} = source.{quote(key)}" for key in keys)
    sets = ", ".join(f"target.{quote(name)} = source.{quote(name)}" for name in changed)
    delete = "" if deletes is None else f"WHEN MATCHED AND source.{deletes} THEN DELETE "
    update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
    new = "" if deletes is None else f"AND NOT source.{deletes} "
    values = ", ".join(f"source.{quote(name)}" for name in columns)
    insert = f"WHEN NOT MATCHED {new}THEN INSERT ({', '.join(map(quote, columns))}) VALUES ({values})"  # noqa: S608 - all quoted
    return f"MERGE INTO {table} AS target USING {view} AS source ON {same} {delete}{update}{insert}"


def _shown(value: object, hidden: bool = False) -> str:  # noqa: FBT001, FBT002 - given by map()
    return "NULL" if value is None else "•••" if hidden else str(value)
