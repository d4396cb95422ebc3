"""Compact a table on a branch, and prove that no row changed before it's published."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakegate.errors import AuditFailedError, InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.schema import Schema
from lakegate.model.words import did_you_mean
from lakegate.wap.transaction import Transaction

_ZORDER = re.compile(r"zorder\s*\(\s*(?P<columns>.*?)\s*\)", re.IGNORECASE | re.DOTALL)
_TERM = re.compile(
    r"(?P<column>.+?)(?P<order>\s+(?:asc|desc))?(?P<nulls>\s+nulls\s+(?:first|last))?", re.IGNORECASE | re.DOTALL
)


def optimize(
    tx: Transaction, table: TableIdentifier, *, by_partition: bool, sort: str | None = None, where: str | None = None
) -> None:
    """Compact the table on the transaction's branch.

    Args:
        tx: The transaction.
        table: The table.
        by_partition: Whether rows are compared partition by partition; not where the partitioning has changed, because
            then a compaction moves rows from old partitions to new ones.
        sort: Order of the rows in SQL (:func:`sort_order`).
        where: A validated condition that limits what is compacted. It doesn't limit what is compared: whole files are
            rewritten, with rows that it's false for.

    Raises:
        AuditFailedError: When the rows aren't the same as before.
    """
    before = tx.engine.fingerprint(table, by_partition=by_partition)
    tx.engine.compact(table, sort=sort, where=where)
    after = tx.engine.fingerprint(table, by_partition=by_partition)
    if after != before:
        parts = sorted(part for part in before.keys() | after.keys() if before.get(part) != after.get(part))
        raise AuditFailedError(
            f"The compaction of {table} is not published: it changed rows ({parts[0] or 'of the table'}, "
            f"{before.get(parts[0])} before, {after.get(parts[0])} after).",
            hint="Nothing was changed. Please report this.",
            table=str(table),
            branch=tx.branch,
        )


def sort_order(text: str, schema: Schema, table: TableIdentifier) -> str:
    """Return an order of rows, ``a, b desc nulls last`` or ``zorder(a, b)``, with the table's columns, quoted.

    Raises:
        SchemaError: When the table has no such column.
        InputError: When it's no order.
    """
    zorder = _ZORDER.fullmatch(text.strip())
    terms = (zorder["columns"] if zorder else text).split(",")
    if zorder:
        return f"zorder({', '.join(_column(term, schema, table) for term in terms)})"
    return ", ".join(_terms(terms, schema, table))


def _terms(terms: list[str], schema: Schema, table: TableIdentifier) -> Iterator[str]:
    for term in terms:
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise InputError(
                f"{term.strip()!r} isn't an order of rows.",
                hint="Write --sort 'pickup, zone desc', or --sort 'zorder(pickup, zone)'.",
                table=str(table),
            )
        words = " ".join(filter(None, (match["order"], match["nulls"]))).split()
        yield " ".join((_column(match["column"], schema, table), *(word.upper() for word in words)))


def _column(text: str, schema: Schema, table: TableIdentifier) -> str:
    name = text.strip().strip("`")
    found = schema.find(name)
    if found is None:
        raise SchemaError(
            f"{table} has no column '{name}' to sort by.",
            hint=f"{did_you_mean(name, schema.names)}Columns: {', '.join(schema.names)}.",
            table=str(table),
            column=name,
        )
    return quote(found.name)
