"""What a transaction of :class:`fakes.FakeLakehouse` writes with: lists of dicts and Arrow tables, no SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakegate.errors import InputError, QueryError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import REPLACE, CreateTable, Snapshot

if TYPE_CHECKING:
    from support.fakes import FakeLakehouse, Row, TableVersion

_TYPES = {bool: "boolean", int: "long", float: "double", str: "string"}
Files = dict[int, "Sequence[Row]"]


class FakeTransaction:
    """Implements :class:`lakegate.ports.EngineTransaction`. Each write is one snapshot and one commit."""

    def __init__(self, lakehouse: FakeLakehouse, branch: str, run_id: str) -> None:
        self._lakehouse = lakehouse
        self._branch = branch
        self._run_id = run_id
        self.closed = False
        self.before_writing: Callable[[TableIdentifier, Schema], None] = lambda *_: None

    def table(self, table: TableIdentifier) -> list[Row]:
        """Return the rows on the branch; of what is below a table (``nyc.trips.files``), those of the table."""
        pointer = self._pointer(table)
        if pointer is None and len(table.namespace) > 1:
            return self.table(TableIdentifier.parse(".".join(table.namespace)))
        if pointer is None:
            raise QueryError(f"The table or view {table} cannot be found.")
        version = self._lakehouse.versions[pointer.metadata_location]
        return [row for rows in version.rows.values() for row in rows]

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> None:
        given, before = self._given(table, rows, create)
        self._write(table, before, dict(before.rows), given)

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        given, before = self._given(table, rows, create)
        self._write(table, before, {}, given)

    def upsert(
        self,
        table: TableIdentifier,
        rows: Any,
        keys: Sequence[str],
        create: CreateTable | None,
        *,
        masked: Sequence[str] = (),
    ) -> None:
        self.masked = masked
        given, before = self._given(table, rows, create)
        names = [column.name for key in keys if (column := before.schema.find(key)) is not None]
        if not keys or len(names) != len(keys):
            raise InputError(f"There is no key {list(keys)} in {table}.")
        wanted = [_key(row, names) for row in given]
        if len(set(wanted)) != len(wanted) or any(value is None for key in wanted for value in key):
            raise InputError(f"The key {names} is NULL or not unique in the rows given for {table}.")
        kept, survivors = _without(before.rows, lambda row: _key(row, names) in set(wanted))
        self._write(table, before, kept, [*survivors, *given])

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        """Put all rows into one file, if they are in several."""
        pointer = self._pointer(table)
        assert pointer is not None
        if len(self._lakehouse.versions[pointer.metadata_location].rows) < 2:
            return
        self.overwrite(table, self.table(table), None)
        pointer = self._pointer(table)
        assert pointer is not None
        version = self._lakehouse.versions[pointer.metadata_location]
        *before, last = version.snapshots
        summary = {key: value for key, value in last.summary.items() if key != RUN_ID_PROPERTY}
        snapshots = (*before, last.model_copy(update={"operation": REPLACE, "summary": summary}))
        self._lakehouse.versions[pointer.metadata_location] = replace(version, snapshots=snapshots)

    def count(self, table: TableIdentifier, *, at: str) -> int:
        return len(self._lakehouse.rows_on(at, str(table)))

    def used_by(self, statement: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Of the statements ``TABLE a.t`` and ``DROP TABLE a.t``."""
        *verbs, name = statement.split()
        return ((), (TableIdentifier.parse(name),)) if "DROP" in verbs else ((TableIdentifier.parse(name),), ())

    def sql(self, statement: str) -> Any:
        return self.table(TableIdentifier.parse(statement.rsplit(maxsplit=1)[-1]))

    def fetch(self, query: str) -> Sequence[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.sql(query)]

    def close(self) -> None:
        self.closed = True

    def _pointer(self, table: TableIdentifier) -> TablePointer | None:
        return self._lakehouse.catalog.get_table(table, self._head())

    def _head(self) -> Ref:
        return self._lakehouse.catalog.get_ref(self._branch)

    def _given(
        self, table: TableIdentifier, rows: Any, create: CreateTable | None
    ) -> tuple[Sequence[Row], TableVersion]:
        from support.fakes import TableVersion

        listed = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
        if create is not None:
            self.before_writing(table, _schema(listed))
            return listed, TableVersion(schema=_schema(listed), location=create.location)
        pointer = self._pointer(table)
        if pointer is None:
            raise QueryError(f"The table or view {table} cannot be found.")
        before = self._lakehouse.versions[pointer.metadata_location]
        self.before_writing(table, before.schema)
        return [_fitted(row, before.schema, table) for row in listed], before

    def _write(self, table: TableIdentifier, before: TableVersion, kept: Files, added: Sequence[Row]) -> None:
        number = next(self._lakehouse.snapshot_ids)  # one count for the whole lakehouse
        removed = len(before.rows) - len(kept)
        operation = "append" if not removed else "overwrite" if added else "delete"
        snapshot = Snapshot(
            snapshot_id=number,
            parent_id=before.snapshots[-1].snapshot_id if before.snapshots else None,
            time=datetime.now(UTC),
            operation=operation,
            summary={
                RUN_ID_PROPERTY: self._run_id,
                "added-records": str(len(added)),
                "added-data-files": str(int(bool(added))),
                "deleted-data-files": str(removed),
                "deleted-records": str(sum(len(rows) for key, rows in before.rows.items() if key not in kept)),
            },
        )
        location = f"{before.location}/metadata/{number}"
        self._lakehouse.versions[location] = replace(
            before, snapshots=(*before.snapshots, snapshot), rows={**kept, **({number: added} if added else {})}
        )
        self._commit(table, location, number)

    def _commit(self, table: TableIdentifier, location: str, snapshot_id: int) -> None:
        pointer = self._pointer(table)
        moved = TablePointer(
            table=table,
            content_id=None if pointer is None else pointer.content_id,
            metadata_location=location,
            snapshot_id=snapshot_id,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        head = self._head()
        self._lakehouse.writes += 1
        self._lakehouse.catalog.commit(
            CommitRequest(branch=head.name, base=head.hash, message="transaction", puts=(moved,))
        )


def _schema(rows: Sequence[Row]) -> Schema:
    if not rows:
        raise InputError("A table cannot be created from no rows: they have no columns.")
    kinds = {name: next((type(row[name]) for row in rows if row[name] is not None), str) for name in rows[0]}
    return Schema(columns=tuple(Column(name=name, type=_TYPES[kind]) for name, kind in kinds.items()))


def _fitted(row: Row, schema: Schema, table: TableIdentifier) -> Row:
    fitted = {column.name: value for name, value in row.items() if (column := schema.find(name)) is not None}
    if len(fitted) != len(row) or len(fitted) != len(schema.names):
        raise SchemaError(f"The columns {list(row)} are not those of {table}: {list(schema.names)}.")
    return {name: fitted[name] for name in schema.names}


def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _without(files: Mapping[int, Sequence[Row]], goes: Callable[[Row], bool]) -> tuple[Files, list[Row]]:
    """Return the files without such a row, and the other rows of the files with one: copy-on-write."""
    kept = {number: rows for number, rows in files.items() if not any(map(goes, rows))}
    return kept, [row for number, rows in files.items() if number not in kept for row in rows if not goes(row)]
