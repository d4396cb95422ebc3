"""Read tables and queries, and compare what two refs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from lakegate.api.refs import find_ref, get_table, resolve_ref
from lakegate.components import Components
from lakegate.errors import ConfigurationError, InputError, LakegateError, NotFoundError, QueryError, RetryableError
from lakegate.model.identifiers import TableIdentifier, is_commit_hash
from lakegate.model.refs import MAIN, Ref, TableAt, TableDifference
from lakegate.model.tables import AddedRows, Rows, TableMetadata
from lakegate.model.words import did_you_mean
from lakegate.points import unknown_table
from lakegate.table import Query, RowDifference
from lakegate.wap.stage import changes_between, find_common_ancestor

if TYPE_CHECKING:
    from lakegate.snippets import Snippet


def read_tables(
    components: Components, ref: str, on_unreadable: Callable[[str, LakegateError], object] | None
) -> Sequence[TableMetadata]:
    """Return the metadata of all tables on a ref; see :meth:`lakegate.Lake.tables`."""
    at = find_ref(components, ref)
    pointers = components.catalog.list_tables(at)
    if ref == MAIN and components.settings.catalog.is_target:  # where others may have changed all of them
        names = [pointer.table for pointer in pointers]
        pointers = components.catalog.list_tables(resolve_ref(components, ref, reads=lambda: names))
    tables = []
    for pointer in sorted(pointers, key=lambda pointer: pointer.table.parts):
        try:
            tables.append(components.reader.metadata(pointer))
        except LakegateError as error:
            if on_unreadable is None or isinstance(error, (ConfigurationError, RetryableError)):
                raise
            on_unreadable(str(pointer.table), error)
    return tables


def plan_query(components: Components, sql: str, ref: str, at: str | datetime | None) -> Query:
    """Plan a query; see :meth:`lakegate.Lake.query`."""
    from lakegate.spark.failures import unknown_table as table_in
    from lakegate.spark.guard import query_text
    from lakegate.spark.statement import referenced_tables

    query_text(sql)  # before Spark is started for it
    reads = referenced_tables(sql) if ref == MAIN and at is None else ()
    resolved = resolve_ref(components, ref, at, reads=lambda: list(map(TableIdentifier.stored, reads or ())))
    engine = components.engine
    try:
        planned = engine.query(sql, resolved)
    except QueryError as error:
        unknown = table_in(error)
        if unknown is None:
            raise
        known = (str(pointer.table) for pointer in components.catalog.list_tables(resolved))
        hint = did_you_mean(unknown, known) + (error.hint or "")
        raise QueryError(error.message, hint=hint, detail=error.detail) from error
    return Query(planned, engine.fetch, engine.stream, reads=reads, commit=resolved.hash)


def write_snippet(
    components: Components,
    table: str,
    engine: str,
    *,
    ref: str,
    at: str | datetime | None,
    rest: str | None,
    rest_token: bool,
) -> Snippet:
    """Return what to paste into another engine; see :meth:`lakegate.Lake.snippet`."""
    from lakegate.snippets import SnippetTarget, write_snippet

    resolved = resolve_ref(components, ref, at)
    try:
        metadata = get_table(components, table, resolved.hash).metadata  # of that very commit, wherever main is by now
    except NotFoundError as error:
        raise unknown_table(components.catalog, table, resolved) from error
    target = SnippetTarget(
        table=metadata.table,
        ref=resolved,
        metadata_location=metadata.metadata_location,
        warehouse=components.warehouse,
        storage=components.settings.storage,
    )
    return write_snippet(engine, target, rest=rest, has_token=rest_token)


def compare_tables(components: Components, left: str, right: str, *, two_way: bool) -> Sequence[TableDifference]:
    """Return the tables that ``right`` changes, and how it changes their columns; see :meth:`lakegate.Lake.diff`."""
    start, end = _sides(components, find_ref(components, left), find_ref(components, right), two_way=two_way)
    return [
        one.model_copy(
            update={"schema_changes": changes_between(components.reader, one.left, one.right), "base": start.hash}
        )
        if one.kind == "table"
        else one.model_copy(update={"base": start.hash})
        for one in components.catalog.diff(start, end)
    ]


def _sides(components: Components, left: Ref, right: Ref, *, two_way: bool) -> tuple[Ref, Ref]:
    """Return the two states to compare: by default, ``right`` with what it had in common with ``left``."""
    return (left if two_way else find_common_ancestor(components.catalog, left, right)), right


def compare_rows(
    components: Components,
    table: str,
    left: str,
    right: str,
    left_at: str | datetime | None,
    key: Sequence[str],
    *,
    two_way: bool,
) -> RowDifference:
    """Return the rows of a table that ``right`` changes; see :meth:`lakegate.Lake.diff_rows`."""
    identifier, catalog, reader = TableIdentifier.parse(table), components.catalog, components.reader
    refs = _sides(components, resolve_ref(components, left, left_at), find_ref(components, right), two_way=two_way)
    before, after = (catalog.get_table(identifier, Ref(name=ref.hash, hash=ref.hash, kind="detached")) for ref in refs)
    if before is None and after is None:
        raise NotFoundError(
            f"Table {table} exists neither on {left} nor on {right}.", hint="lakegate table list", table=table
        )
    columns = changes_between(reader, before, after)
    renamed = {change.before: change.column for change in columns if change.before and change.change == "renamed"}
    for pointer, names, ref in ((before, renamed, refs[0]), (after, {}, refs[1])):
        if key and pointer is not None:
            known = reader.metadata(pointer).table_schema.names
            _require_key(key, [names.get(name, name) for name in known], f"{table} on {ref.name}")
    if before == after:
        return RowDifference(None, None)

    def rows(wanted: Rows) -> Query:
        engine = components.engine
        return Query(engine.read(wanted), engine.fetch, engine.stream)

    # Spark needs a branch beside the hash. For a bare commit, any branch does.
    old, new = (
        TableAt(table=identifier, ref=MAIN if is_commit_hash(ref.name) else ref.name, hash=ref.hash) for ref in refs
    )
    change = reader.change(before, after, evolves=True)
    if before is None or after is None:
        return RowDifference(rows(new) if before is None else None, rows(old) if after is None else None)
    if change.only_adds:
        added = AddedRows(
            table=identifier,
            ref=new.ref,
            hash=new.hash,
            after_snapshot_id=change.parent_snapshot_id,
            snapshot_id=after.snapshot_id,
        )
        return RowDifference(rows(added), None)
    # A column that was dropped and added again, or that has a default, changes what rows hold, without a snapshot.
    changes_values = change.reason and any(one.change in ("added", "dropped", "retyped") for one in columns)
    if change.kind == "expire" or (change.kind == "metadata" and not changes_values):
        return RowDifference(None, None)
    engine = components.engine
    compared = engine.compare(old, new, key, renamed=renamed)
    return RowDifference(*(Query(one, engine.fetch, engine.stream) for one in compared))


def _require_key(key: Sequence[str], columns: Sequence[str], where: str) -> None:
    unknown = next((name for name in key if name.lower() not in map(str.lower, columns)), None)
    if unknown is not None:
        hint = f"Its columns: {', '.join(columns)}."
        raise InputError(f"{where} has no column '{unknown}'.", hint=hint, column=unknown)
