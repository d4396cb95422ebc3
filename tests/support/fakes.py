"""A lakehouse in memory: rows in SQLite, snapshots in a list, the catalog of ``lakegate.testing.memory``.

What it shares with the real one is held by the contract suites in ``tests/contract``.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import pyarrow as pa
import pytest

from lakegate.context import Context
from lakegate.iceberg.lineage import TableState, classify
from lakegate.journal.journal import Journal
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.maintenance import Flaw, NeededFile, TableLayout
from lakegate.model.refs import NO_SNAPSHOT, CommitRequest, Ref, TableAt, TablePointer
from lakegate.model.request import WriteMode
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import (
    OWN_BATCH,
    AddedFiles,
    AddedRows,
    ColumnStatistics,
    DataFile,
    IntegerKey,
    Rows,
    ScanResult,
    SchemaVersion,
    Snapshot,
    TableChange,
    TableMetadata,
    WriteTarget,
)
from lakegate.ports import Step
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog
from lakegate.wap import failpoints
from support.fakes_editor import TableEdits
from support.fakes_keys import KeyLookups, added_groups
from support.fakes_quarantine import SettingAside
from support.fakes_transaction import FakeTransaction
from support.memory_journal import MemoryDatabase

Row = Mapping[str, Any]
TYPES = {int: ("int64", "long"), float: ("double", "double"), str: ("string", "string"), bool: ("bool", "boolean")}


@dataclass(frozen=True)
class TableVersion:
    """What a metadata file would hold."""

    schema: Schema
    location: str
    snapshots: tuple[Snapshot, ...] = ()
    rows: Mapping[int, Sequence[Row]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


class Died(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class _Process:
    number: int

    def identity(self) -> str:
        return str(self.number)

    def is_alive(self, identity: str) -> bool | None:
        return identity == str(self.number)


class FakeLakehouse(KeyLookups, SettingAside, TableEdits):
    """Engine and table reader over one memory; hands out :class:`~lakegate.context.Context`."""

    shares_files = True

    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        self._processes = 0
        self.database = MemoryDatabase()
        self.journal = Journal(self.database, holder=_Process(0))
        self.versions: dict[str, TableVersion] = {}
        self.sources: dict[str, Sequence[Row]] = {}
        self.changed_sources: Sequence[SourceFile] = ()
        self.writes = 0
        self.scans = 0
        self.cancelled = False
        self.gone: set[str] = set()
        self.layouts: dict[str, TableLayout] = {}
        self.publish_attempts = 40
        self.masked: tuple[str, ...] = ()
        self.snapshot_ids = itertools.count(1)

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.catalog,
            reader=self,
            editor=self,
            engine=lambda: self,
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse="mem://warehouse",
            changed_files=lambda _: self.changed_sources,
            publish_attempts=self.publish_attempts,
            masked=self.masked,
        )

    def copy(self) -> Self:
        """Return another lakehouse with the same content: a tenth of the time that it takes to publish it again."""
        number = next(self.snapshot_ids)
        self.snapshot_ids = itertools.count(number)
        other = copy(self)
        other.snapshot_ids = itertools.count(number)
        other.catalog = self.catalog.copy()
        other.database = MemoryDatabase(like=self.database)
        other.journal = Journal(other.database, holder=_Process(self._processes))
        other.versions, other.sources, other.layouts = dict(self.versions), dict(self.sources), dict(self.layouts)
        other.gone = set(self.gone)
        return other

    def lose_journal(self) -> None:
        """Go on with an empty journal."""
        self.database = MemoryDatabase()
        self.journal = Journal(self.database, holder=_Process(self._processes))

    def kill(self) -> None:
        """Go on as another process, to which the one before is dead."""
        self._processes += 1
        self.journal = Journal(self.database, holder=_Process(self._processes))

    def dies_at(self, monkeypatch: pytest.MonkeyPatch, point: str, work: Callable[[], object]) -> None:
        """Do ``work`` until it comes to ``point`` of the flow, and go no further: no clean-up, as after SIGKILL."""

        def reach(reached: str) -> None:
            if reached == point:
                raise Died

        with monkeypatch.context() as patch:
            patch.setattr(failpoints, "reach", reach)
            with pytest.raises(Died):
                work()
        self.kill()

    def batch(self, name: str, rows: Sequence[Row], *, version: str = "1") -> Batch:
        """Register ``rows`` as a source file and return the batch of it."""
        uri = f"file:///{name}.parquet"
        self.sources[uri] = rows
        columns = tuple(SourceColumn(name=key, type=TYPES[_kind(rows, key)][0]) for key in rows[0])
        file = SourceFile(uri=uri, size_bytes=len(rows), version=version, rows=len(rows))
        return Batch(format="parquet", files=(file,), columns=columns)

    # Engine ---------------------------------------------------------------------------------------------------------

    def source_schema(self, batch: Batch) -> Schema:
        rows = self.sources[batch.uris[0]]
        return Schema(columns=tuple(Column(name=key, type=TYPES[_kind(rows, key)][1]) for key in rows[0]))

    def append(self, batch: Batch, target: WriteTarget, step: Step | None = None) -> None:
        self.writes += 1
        branch = self.catalog.get_ref(target.ref)
        pointer = self.catalog.get_table(target.table, branch)
        rows = [row for uri in batch.uris for row in self.sources[uri]]
        before = self._before(pointer, batch, target)
        snapshot = Snapshot(
            snapshot_id=next(self.snapshot_ids),
            parent_id=before.snapshots[-1].snapshot_id if before.snapshots else None,
            time=datetime.now(UTC),
            operation="append",
            summary={**target.snapshot_properties, "added-records": str(len(rows)), "added-data-files": "1"},
        )
        location = f"{before.location}/metadata/{snapshot.snapshot_id}"
        self.versions[location] = TableVersion(
            schema=before.schema,
            location=before.location,
            snapshots=(*before.snapshots, snapshot),
            rows={**before.rows, snapshot.snapshot_id: rows},
            properties=before.properties,
        )
        moved = TablePointer(
            table=target.table,
            content_id=None if pointer is None else pointer.content_id,
            metadata_location=location,
            snapshot_id=snapshot.snapshot_id,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        self.catalog.commit(CommitRequest(branch=branch.name, base=branch.hash, message="append", puts=(moved,)))

    def analyze(self, schema: Schema, predicates: Sequence[Any], queries: Sequence[str]) -> None:
        pass

    def write(self, batch: Batch, target: WriteTarget, mode: WriteMode, step: Step | None = None) -> None:
        if mode.appends:
            self.append(batch, target, step)
            return
        rows = [row for uri in batch.uris for row in self.sources[uri]]
        writing = self.transaction(target.ref, target.snapshot_properties[RUN_ID_PROPERTY])
        if mode.name == "overwrite":
            writing.overwrite(target.table, rows, target.create)
        else:
            assert mode.name == "upsert", mode
            writing.upsert(target.table, rows, mode.key, target.create)

    def count_failing(
        self,
        rows: AddedRows,
        predicates: Sequence[str],
        *,
        key: IntegerKey | None = None,
    ) -> ScanResult:
        self.scans += 1
        counts = "".join(f", coalesce(sum(CASE WHEN {p} THEN 1 ELSE 0 END), 0)" for p in predicates)
        total, *failing = self.select(rows, f"SELECT count(*){counts} FROM batch")[0]
        if key is not None and key.others:
            is_unique = self.count_known(rows, key.columns, key.others).failing[0] == 0
        else:
            is_unique = key is not None and self.count_duplicates(rows, key.columns).failing == (0,)
        return ScanResult(total=total, failing=tuple(failing), is_unique=is_unique or None)

    def aggregate(self, rows: Rows, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
        if not isinstance(rows, AddedRows):
            assert not expressions
            return len(self.rows_on(rows.hash, str(rows.table))), ()
        total, *values = self.select(rows, f"SELECT {', '.join(['count(*)', *expressions])} FROM batch")[0]
        return total, tuple(values)

    def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
        (failing,) = self.select(rows, f"SELECT count(*) FROM ({sql})")[0]
        return ScanResult(total=self.select(rows, "SELECT count(*) FROM batch")[0][0], failing=(failing,))

    def query_examples(self, rows: AddedRows, sql: str, limit: int) -> tuple[dict[str, Any], ...]:
        found = self.select(rows, f"SELECT * FROM ({sql}) LIMIT {limit}")
        return tuple({f"c{index}": value for index, value in enumerate(row)} for row in found)

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        names = ", ".join(map(quote, columns))
        present = " AND ".join(f"{quote(c)} IS NOT NULL" for c in columns)
        groups = f"SELECT count(*) n FROM batch WHERE {present} GROUP BY {names}"
        sql = f"SELECT coalesce(sum(n), 0) FROM ({groups}) WHERE n > 1"
        duplicated = self.select(rows, sql)[0][0]
        return ScanResult(total=self.select(rows, "SELECT count(*) FROM batch")[0][0], failing=(duplicated,))

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        sql = f"SELECT *, 'mem://file' AS _file FROM batch WHERE {predicate} LIMIT {limit}"
        return tuple(dict(row) for row in self.select(rows, sql))

    def transaction(self, branch: str, run_id: str) -> FakeTransaction:
        return FakeTransaction(self, branch, run_id)

    def query(self, sql: str, ref: Ref) -> Any:
        raise NotImplementedError

    def read(self, wanted: Rows) -> Any:
        raise NotImplementedError

    def compare(
        self, before: TableAt, after: TableAt, key: Sequence[str], *, renamed: Mapping[str, str]
    ) -> Sequence[Any]:
        raise NotImplementedError

    def fetch(self, frame: Any) -> Any:
        raise NotImplementedError

    def stream(self, frame: Any) -> Any:
        raise NotImplementedError

    def cancel(self) -> None:
        self.cancelled = True

    def reconnect(self) -> None:
        pass

    def close(self) -> None:
        pass

    # Table reader ---------------------------------------------------------------------------------------------------

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        version = self.versions[pointer.metadata_location]
        snapshot = version.snapshots[-1] if version.snapshots else None
        if snapshot is not None:
            totals = {"total-records": str(sum(map(len, version.rows.values()))), "total-delete-files": "0"}
            snapshot = snapshot.model_copy(update={"summary": {**totals, **snapshot.summary}})
        return TableMetadata(
            table=pointer.table,
            metadata_location=pointer.metadata_location,
            location=version.location,
            table_schema=version.schema,
            partition_by=(),
            properties=dict(version.properties),
            snapshot=snapshot,
            uuid=version.location,
            updated_at=max((one.time for one in version.snapshots), default=None),
        )

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        return self.versions[pointer.metadata_location].snapshots

    def schemas(self, pointer: TablePointer) -> Sequence[SchemaVersion]:
        schema = self.versions[pointer.metadata_location].schema
        return [SchemaVersion(schema_id=0, table_schema=schema, field_ids=tuple(range(1, len(schema.columns) + 1)))]

    def change(
        self,
        before: TablePointer | None,
        after: TablePointer | None,
        *,
        evolves: bool = False,
        compacted: bool = False,
    ) -> TableChange:
        then, now = (None if pointer is None else self._state(pointer) for pointer in (before, after))
        return classify(then, now, lambda _: True, evolves=evolves, compacted=compacted)

    def require_loadable(self, pointer: TablePointer, branch: str, before: TablePointer | None = None) -> None:
        assert pointer.metadata_location in self.versions, branch

    def _state(self, pointer: TablePointer) -> TableState:
        version = self.versions[pointer.metadata_location]
        current = None if pointer.snapshot_id == NO_SNAPSHOT else pointer.snapshot_id
        contents = {one.snapshot_id: one.parent_id for one in version.snapshots}  # rebasing changes the parent
        return TableState(version.location, current, version.snapshots, version.schema, contents=contents)

    def layout(
        self, pointer: TablePointer, *, small_bytes: int, at_least: int, data_files: int = 0, delete_files: int = 0
    ) -> TableLayout:
        assert small_bytes > at_least > 1
        assert data_files > 1
        assert delete_files > 0
        return self.layouts.get(str(pointer.table), TableLayout())

    def outdated_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> int:
        return sum(one.time < before for one in self.versions[pointer.metadata_location].snapshots[:-at_least])

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        version = self.versions[pointer.metadata_location]
        return iter(_data_file(snapshot_id, rows) for snapshot_id, rows in version.rows.items())

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        rows = self.versions[pointer.metadata_location].rows
        return AddedFiles(files=tuple(_data_file(i, rows[i]) for i in snapshot_ids if i in rows), complete=True)

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        del walked
        yield from (file.path for file in self.files(pointer))
        yield pointer.metadata_location

    def new_files(self, before: TablePointer | None, pointer: TablePointer) -> Iterator[str]:
        known = () if before is None else set(self.reach(before))
        home = self.versions[pointer.metadata_location].location
        return (f"{home}/{path.removeprefix('mem://')}" for path in self.reach(pointer) if path not in known)

    def has_other_specs(self, pointer: TablePointer) -> bool:
        return False

    def read_rows(self, pointer: TablePointer, *, columns: Sequence[str] | None = None, **_: Any) -> Any:
        version = self.versions[pointer.metadata_location]
        rows = [row for rows in version.rows.values() for row in rows]
        table = pa.Table.from_pylist(rows)
        if "_released_by" in table.column_names:  # of which none may have one
            table = table.set_column(
                table.column_names.index("_released_by"), "_released_by", table["_released_by"].cast(pa.string())
            )
        return (table if columns is None else table.select(columns)).to_reader()

    def inspect(self, pointer: TablePointer, walked: set[str]) -> Iterator[NeededFile | Flaw]:
        yield from (NeededFile(path, "file") for path in self.reach(pointer, walked))

    def footer_flaws(self, files: Sequence[NeededFile]) -> Iterator[Flaw | None]:
        raise NotImplementedError

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        gone = {_name(path) for path in self.gone}
        return [path for path in paths if _name(path) in gone]

    # For tests ------------------------------------------------------------------------------------------------------

    def pointer(self, ref: str = "main", table: str = "nyc.trips") -> TablePointer:
        """Return a table that there is on a branch, or at a commit."""
        found = self.catalog.get_table(TableIdentifier.parse(table), self.catalog.get_ref(ref))
        assert found is not None
        return found

    def rows_on(self, ref: str, table: str) -> list[Row]:
        """Return all rows of a table on a branch."""
        pointer = self.catalog.get_table(TableIdentifier.parse(table), self.catalog.get_ref(ref))
        version = None if pointer is None else self.versions[pointer.metadata_location]
        return [] if version is None else [row for rows in version.rows.values() for row in rows]

    def _before(self, pointer: TablePointer | None, batch: Batch, target: WriteTarget) -> TableVersion:
        if pointer is not None:
            return self.versions[pointer.metadata_location]
        assert target.create is not None
        create = target.create
        return TableVersion(
            schema=self.source_schema(batch), location=create.location, properties={**create.properties}
        )

    def select(self, rows: AddedRows, sql: str) -> list[sqlite3.Row]:
        pointer = self.catalog.get_table(rows.table, self.catalog.get_ref(rows.hash or rows.ref))
        assert pointer is not None
        version = self.versions[pointer.metadata_location]
        wanted = [row for _, group in added_groups(version, rows) for row in group]
        with sqlite3.connect(":memory:") as connection:
            connection.row_factory = sqlite3.Row
            connection.execute(f"CREATE TABLE batch ({', '.join(map(quote, version.schema.names))})")
            marks = ", ".join("?" * len(version.schema.names))
            values = [[row.get(name) for name in version.schema.names] for row in wanted]  # new columns are NULL
            connection.executemany(f"INSERT INTO batch VALUES ({marks})", values)
            connection.execute(f"CREATE TEMP VIEW {OWN_BATCH} AS SELECT * FROM batch")
            found = connection.execute(sql).fetchall()
        connection.close()
        return found


def _kind(rows: Sequence[Row], key: str) -> type:
    return next((type(row[key]) for row in rows if row[key] is not None), str)


def _name(path: str) -> tuple[str, ...]:
    """Return what tells a file from others, wherever its table is: rows keep their ids when they're rebased."""
    return tuple(path.rsplit("/", 2)[1:])


def _data_file(snapshot_id: int, rows: Sequence[Row]) -> DataFile:
    columns = {
        key: ColumnStatistics(value_count=len(rows), null_count=sum(row[key] is None for row in rows))
        for key in (rows[0] if rows else ())
    }
    return DataFile(path=f"mem://data/{snapshot_id}", rows=len(rows), size_bytes=len(rows), columns=columns)
