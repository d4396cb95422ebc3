"""Compact a table on a branch, and prove that no row changed before it's published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from lakegate.errors import AuditFailedError, InputError, LakegateError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.refs import Ref
from lakegate.model.run import PARTITIONS_LEFT_PROPERTY, Run
from lakegate.model.schema import Schema
from lakegate.model.words import unknown_column
from lakegate.wap.context import Context
from lakegate.wap.transaction import Transaction

_ZORDER = re.compile(r"zorder\s*\(\s*(?P<columns>.*?)\s*\)", re.IGNORECASE | re.DOTALL)
_TERM = re.compile(
    r"(?P<column>.+?)(?P<order>\s+(?:asc|desc))?(?P<nulls>\s+nulls\s+(?:first|last))?", re.IGNORECASE | re.DOTALL
)


def optimize(
    context: Context,
    tx: Transaction,
    table: TableIdentifier,
    *,
    sort: str | None = None,
    where: str | None = None,
) -> None:
    """Compact the table on the transaction's branch.

    Args:
        sort: Sort order of the rows in SQL (:func:`sort_order`).
        where: A validated condition that limits what is compacted. All rows are compared nevertheless: rewritten files
            also contain rows that don't match it.

    Raises:
        AuditFailedError: When the compaction changed rows.
    """
    head = context.catalog.get_ref(tx.branch)
    tx.engine.compact(table, sort=sort, where=where)
    pointer = context.catalog.get_table(table, head)
    if pointer is None or context.catalog.get_ref(tx.branch).hash == head.hash:
        return  # nothing to compact, so nothing to compare
    found = context.reader.metadata(pointer)
    # If the partitioning has changed, a compaction moves rows from old partitions to new ones.
    by_partition = bool(found.partition_by) and not context.reader.has_other_specs(pointer)
    row_ids = found.format_version > 2  # version 3 is the first with row ids
    before = tx.engine.fingerprint(table, by_partition=by_partition, row_ids=row_ids, at=head.hash)
    after = tx.engine.fingerprint(table, by_partition=by_partition, row_ids=row_ids)
    for part in sorted(before.keys() | after.keys()):
        then, now = before.get(part), after.get(part)
        if not _is_same(then, now):
            raise AuditFailedError(
                f"The compaction of {table} isn't published: it changed rows ({part or 'of the table'}, "
                f"{then} before, {now} after).",
                hint="Nothing was changed. Please report this.",
                table=str(table),
                branch=tx.branch,
            )


def partitions_left(context: Context, run: Run, table: TableIdentifier) -> int:
    """Return how many partitions a compaction skipped because other runs rewrote them meanwhile."""
    if run.publication is None:
        return 0
    commit = Ref(name=run.publication.commit, hash=run.publication.commit, kind="detached")
    with suppress(LakegateError):  # the compaction is published, even if this can't be read
        pointer = context.catalog.get_table(table, commit)
        snapshot = None if pointer is None else context.reader.metadata(pointer).snapshot
        return 0 if snapshot is None else int(snapshot.summary.get(PARTITIONS_LEFT_PROPERTY, 0))
    return 0


def _is_same(then: Sequence[Any] | None, now: Sequence[Any] | None) -> bool:
    """Return whether rows are the same. Rows from before an upgrade to version 3 may have got their ids since."""
    return then == now or bool(then and now and then[-1] is None and then[:-1] == now[:-1])


def sort_order(text: str, schema: Schema, table: TableIdentifier) -> str:
    """Return a sort order, such as ``a, b desc nulls last`` or ``zorder(a, b)``, with the table's columns quoted."""
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
                f"{term.strip()!r} isn't a sort order.",
                hint="Write --sort 'pickup, zone desc', or --sort 'zorder(pickup, zone)'.",
                table=str(table),
            )
        words = " ".join(filter(None, (match["order"], match["nulls"]))).split()
        yield " ".join((_column(match["column"], schema, table), *(word.upper() for word in words)))


def _column(text: str, schema: Schema, table: TableIdentifier) -> str:
    name = text.strip().strip("`")
    found = schema.find(name)
    if found is None:
        raise unknown_column(f"{table} has no column '{name}' to sort by.", name, schema.names, table=str(table))
    return quote(found.name)
