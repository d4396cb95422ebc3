"""Rows of a table, read without an engine. PyIceberg writes the tables; its own writer of deletes is missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from lakegate.errors import InputError, NotFoundError
from lakegate.iceberg.files import local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.iceberg.scan import parse_filter
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from lakegate.table import Table
from support.iceberg_tables import (
    IcebergTables,
    append,
    delete_by_vectors,
    iceberg_tables,
    pointer_to,
    vector_blob,
)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(tmp_path) as opened:
        yield opened


def opened(pointer: TablePointer) -> Table:
    return Table(pointer, IcebergTableReader())


def ids(table: Table, **options: Any) -> list[int]:
    found: list[Any] = table.to_arrow(columns=["id"], **options)["id"].to_pylist()
    return found


def test_rows_come_as_whatever_library_asks_for_them(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, [1, 2], "north")
    append(made, [3], "south")
    table = opened(pointer_to(made))
    rows = [{"id": 3, "region": "south"}]
    wanted: dict[str, Any] = {"columns": ["id", "region"], "where": "region = 'south'"}
    assert table.to_arrow(**wanted).to_pylist() == rows
    assert table.to_pandas(**wanted).to_dict("records") == rows
    assert table.to_polars(**wanted).equals(pl.DataFrame(rows))
    relation = table.to_duckdb(**wanted)
    for _ in range(2):  # a stream would have no rows left the second time
        assert relation.fetchall() == [(3, "south")]
    batches = table.to_batches()
    assert [str(field.type) for field in batches.schema] == ["int64", "string"]
    assert sum(batch.num_rows for batch in batches) == 3
    assert table.metadata_location == made.metadata_location


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("a", pa.int64())])),
        pa.map_(pa.string(), pa.struct([("a", pa.int64())])),
        pa.list_(pa.list_(pa.struct([("a", pa.int64())]))),
        pa.struct([("l", pa.list_(pa.struct([("a", pa.int64())])))]),
    ],
)
def test_a_column_in_which_pyiceberg_loses_nulls_is_refused(tables: IcebergTables, kind: pa.DataType) -> None:
    rows = pa.table({"id": [1], "v": pa.array([None], kind)})
    made = tables.catalog.create_table("nyc.nested", rows.schema)
    made.append(rows)
    table = opened(pointer_to(made))
    assert ids(table) == [1]
    with pytest.raises(InputError, match="column 'v', in which PyIceberg would read a NULL list or map") as caught:
        table.to_arrow()
    assert "lakegate query" in str(caught.value.hint)


def test_the_reasons_in_a_quarantine_table_are_never_null_and_so_are_read(tables: IcebergTables) -> None:
    reason = pa.struct([pa.field("check", pa.string())])
    rows = pa.table({"_reasons": pa.array([[{"check": "low"}]], pa.list_(reason))})
    table = tables.catalog.create_table("nyc.reasons", rows.schema)
    table.append(rows)
    pointer = pointer_to(table)
    aside = pointer.model_copy(update={"table": TableIdentifier.parse("nyc.trips__quarantine")})
    assert IcebergTableReader().read_rows(aside).read_all().to_pylist() == rows.to_pylist()
    with pytest.raises(InputError, match="column '_reasons', in which PyIceberg would read a NULL list"):
        IcebergTableReader().read_rows(pointer)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("n > 5", [3]),
        ("N != 5 AND id > 0", [2, 3]),
        ("n IN (5, 7)", [1, 3]),
        ("NOT (n = 5 OR id = 3)", [2]),
        ("n IS NAN", [2]),
        ("n BETWEEN 1 AND 6", [1]),
        ("name LIKE 'New%'", [1]),
        ("name IS NULL OR 'x' = name", [2, 3]),
        ("at >= '2024-01-31T00:00:00'", [1]),
    ],
)
def test_a_filter_is_read_by_pyiceberg(tables: IcebergTables, where: str, found: list[int]) -> None:
    rows: dict[str, Any] = {
        "id": [1, 2, 3],
        "n": [5.0, math.nan, 7.0],
        "name": ["New York", None, "x"],
        "at": pa.array([datetime(2024, 1, 31), None, datetime(2023, 1, 1)], pa.timestamp("us")),
    }
    made = tables.catalog.create_table("nyc.filtered", pa.table(rows).schema)
    made.append(pa.table(rows))
    assert ids(opened(pointer_to(made)), where=where) == found


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("tags IS NULL", "list"),
        ("place IS NOT NULL", "struct"),
        ("dot.ted = 1", "has a dot"),
        ("u IS NULL", "uuid"),
    ],
)
def test_a_column_by_which_pyiceberg_cannot_filter_is_refused(where: str, says: str) -> None:
    schema = Schema(
        NestedField(1, "tags", ListType(10, StringType())),
        NestedField(2, "place", StructType(NestedField(11, "zone", LongType()))),
        NestedField(3, "dot.ted", LongType()),
        NestedField(4, "u", UUIDType()),
    )
    with pytest.raises(InputError, match=says):
        parse_filter(where, schema)


def test_columns_come_as_asked_for_and_a_limit_ends_early(
    tables: IcebergTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tables.create()
    for number in range(4):
        append(made, [number * 2, number * 2 + 1])
    table = opened(pointer_to(made))
    assert table.to_arrow(columns=["Region", "id"]).column_names == ["region", "id"]
    assert len(ids(table)) == 8
    for path in [local_path(file.path) for file in table.files()][2:]:
        path.unlink()
    assert len(ids(table, limit=3)) == 3
    assert ids(table, limit=0) == []
    with pytest.raises(NotFoundError, match=r"Data file .*\.parquet of table nyc.trips doesn't exist"):
        ids(table)


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        ({"columns": ["regoin"]}, "no column 'regoin'", "Did you mean 'region'? Its columns: id, region."),
        ({"columns": []}, "No column is selected", "Leave out"),
        ({"columns": ["id", "ID"]}, "'id' is selected twice", ""),
        ({"where": "regoin = 'x'"}, "name regoin", "Its columns: id, region."),
        ({"where": "id = 'x'"}, "Could not convert x into a long", "fare > 10"),
        ({"where": "upper(region) = 'X'"}, "isn't a comparison", "lake.query()"),
        ({"where": "id = 1; DROP TABLE t"}, "isn't a comparison", "lake.query()"),
        ({"where": ""}, "isn't a comparison", "fare > 10"),
        ({"where": "region LIKE '%x'"}, "at the end of a string", "name LIKE 'New%'"),
        ({"limit": -1}, "limit is -1", ""),
        ({"limit": 1.5}, "limit is 1.5", ""),
        ({"columns": [5]}, "must be text", "columns=["),
        ({"where": 5}, "must be text", "where="),
    ],
)
def test_what_is_asked_wrongly_is_said_before_a_row_is_read(
    tables: IcebergTables, options: dict[str, Any], says: str, hint: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        opened(pointer_to(tables.create())).to_batches(**options)
    assert hint in str(caught.value.hint)


def test_the_state_is_the_one_that_the_catalog_names(tables: IcebergTables) -> None:
    made = tables.create()
    first = append(made, [1])
    old = pointer_to(made)
    append(made, [2])
    with made.update_schema() as update:
        update.rename_column("region", "area")
        update.add_column("note", StringType())
    append(made, [3])
    now = pointer_to(made)
    assert opened(now).to_arrow(where="note IS NULL AND area = 'north'").column_names == ["id", "area", "note"]
    assert sorted(ids(opened(now))) == [1, 2, 3]
    # Each of both parts may be older than what the metadata file has for current.
    assert ids(opened(now.model_copy(update={"snapshot_id": first}))) == [1]
    before = opened(now.model_copy(update={"schema_id": old.schema_id})).to_arrow()
    assert before.column_names == ["id", "region"]
    assert before["region"].to_pylist().count("north") == 2
    assert opened(now.model_copy(update={"snapshot_id": -1})).to_arrow().num_rows == 0


def test_deleted_rows_are_left_out(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, range(10))
    append(made, range(10, 20))
    table = opened(pointer_to(made))
    file = next(file for file in table.files() if min(_ids_in(file.path)) == 0)
    deletes = pa.table({"file_path": [file.path] * 2, "pos": pa.array([0, 7], pa.int64())})
    with_deletes = opened(_deleting(made, DataFileContent.POSITION_DELETES, deletes))
    assert sorted(ids(with_deletes)) == [1, 2, 3, 4, 5, 6, *range(8, 20)]
    assert ids(with_deletes, where="id IN (0, 7, 8)") == [8]


def test_rows_that_a_deletion_vector_deletes_are_left_out(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, range(10))
    append(made, range(10, 20))
    made.append(pa.table({"id": [20], "region": ["n"]}, schema=made.schema().as_arrow()))
    by_first = {min(_ids_in(file.path)): file.path for file in opened(pointer_to(made)).files()}
    vectors = [(by_first[0], vector_blob([0, 7]), 2), (by_first[10], vector_blob(range(10)), 10)]
    delete_by_vectors(made, vectors)
    assert sorted(ids(opened(pointer_to(made)))) == [1, 2, 3, 4, 5, 6, 8, 9, 20]
    assert ids(opened(pointer_to(made)), where="id IN (0, 7, 8, 11)") == [8]


def test_a_missing_file_of_deletion_vectors_is_named(tables: IcebergTables) -> None:
    made = tables.create()
    append(made, range(10))
    (file,) = opened(pointer_to(made)).files()
    delete_by_vectors(made, [(file.path, vector_blob([0, 7]), 2)]).unlink()
    with pytest.raises(NotFoundError, match=r"Delete file .*\.puffin of table nyc.trips doesn't exist"):
        ids(opened(pointer_to(made)))


@pytest.mark.parametrize(("change", "says"), [("equality deletes", "has equality deletes"), ("avro", "format AVRO")])
def test_what_only_spark_reads_is_refused(tables: IcebergTables, change: str, says: str) -> None:
    made = tables.create()
    append(made, range(10))
    if change == "equality deletes":
        pointer = _deleting(made, DataFileContent.EQUALITY_DELETES, pa.table({"id": [3]}))
    else:
        pointer = _rewritten(made, DataFileContent.DATA, FileFormat.AVRO, pa.table({"id": [3]}))
    with pytest.raises(InputError, match=says) as caught:
        opened(pointer).to_arrow(where="id > 100")
    assert "lakegate query" in str(caught.value.hint)


def test_deletes_in_a_partition_of_nan_are_refused(tables: IcebergTables) -> None:
    share = NestedField(2, "share", DoubleType(), required=False)
    schema = Schema(NestedField(1, "id", LongType(), required=False), share)
    made = tables.create(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "share")))
    made.append(pa.table({"id": [1], "share": [0.5]}))
    rows = pa.table({"id": [2, 3], "share": [math.nan, math.nan]}, schema=made.schema().as_arrow())
    full = _rewritten(made, DataFileContent.DATA, FileFormat.PARQUET, rows, Record(math.nan))
    assert sorted(ids(opened(full))) == [1, 2, 3]
    (path,) = (file.path for file in opened(full).files() if file.rows == 2)
    places = pa.table({"file_path": [path, "file:///another.parquet"], "pos": pa.array([0, 0], pa.int64())})
    kind = DataFileContent.POSITION_DELETES
    deleting = _rewritten(tables.at(full), kind, FileFormat.PARQUET, places, Record(math.nan))
    with pytest.raises(InputError, match="deletes in a partition of NaN") as caught:
        ids(opened(deleting))
    assert "lakegate query" in str(caught.value.hint)


def _ids_in(path: str) -> list[int]:
    found: list[Any] = pq.read_table(local_path(path))["id"].to_pylist()
    return found


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _deleting(table: IcebergTable, content: DataFileContent, rows: pa.Table) -> TablePointer:
    return _rewritten(table, content, FileFormat.PARQUET, rows)


def _rewritten(
    table: IcebergTable, content: DataFileContent, kind: FileFormat, rows: pa.Table, partition: Record | None = None
) -> TablePointer:
    """Return the table with one more file in its newest snapshot."""
    pointer = pointer_to(table)
    folder = local_path(table.location())
    file, manifest, listing = (folder / f"{uuid4()}.{suffix}" for suffix in ("parquet", "avro", "avro"))
    pq.write_table(rows, file)
    entry = DataFile.from_args(
        content=content,
        file_path=file.as_uri(),
        file_format=kind,
        partition=partition or Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=file.stat().st_size,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    entry.spec_id = 0
    made = ManifestWriterV2 if content is DataFileContent.DATA else _DeleteManifest
    out = table.io.new_output(manifest.as_uri())
    with made(table.spec(), table.schema(), out, pointer.snapshot_id, "null") as writer:
        added = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=pointer.snapshot_id, data_file=entry
        )
        writer.add_entry(added)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    number = snapshot.sequence_number
    out = table.io.new_output(listing.as_uri())
    with write_manifest_list(2, out, pointer.snapshot_id, snapshot.parent_snapshot_id, number, "null") as lines:
        lines.add_manifests([*snapshot.manifests(table.io), writer.to_manifest_file()])
    document = json.loads(local_path(table.metadata_location).read_text())
    for known in document["snapshots"]:
        if known["snapshot-id"] == pointer.snapshot_id:
            known["manifest-list"] = listing.as_uri()
    return _stored(table, document)


def _stored(table: IcebergTable, document: dict[str, Any]) -> TablePointer:
    location = local_path(table.location()) / f"{uuid4()}.metadata.json"
    location.write_text(json.dumps(document))
    return pointer_to(table).model_copy(update={"metadata_location": location.as_uri()})


_WIDENED = {
    "i < 3000000000": [1, 3, 4],
    "i > -3000000000": [1, 3, 4],
    "NOT (i > 3000000000)": [1, 3, 4],
    "i BETWEEN -3000000000 AND 3000000000 AND id > 0": [1, 3, 4],
    "i IN (3000000000, 1)": [1],
    "i IS NULL": [2],
    "f < 5": [1, 4],
    "NOT (f >= 5)": [1, 4],
    "f > -5": [1, 4],
    "f != 0.3": [1, 3, 4],
    "f > 0.3": [1],  # 0.3 as a float is a little more than 0.3
    "f = 0.3": [],
    "d < 1000000": [1, 4],
    "d != 1000000": [1, 4],
    "d = 1.25": [1],
}


@pytest.mark.parametrize("where", _WIDENED)
def test_a_filter_keeps_its_meaning_where_a_column_was_widened(tables: IcebergTables, where: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "i", IntegerType(), required=False),
        NestedField(3, "f", FloatType(), required=False),
        NestedField(4, "d", DecimalType(4, 2), required=False),
    )
    made = tables.create(schema=schema)
    rows: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "i": [1, None, 2**31 - 1, -5],
        "f": [0.3, None, float("nan"), -1.0],
        "d": [Decimal("1.25"), None, None, Decimal("-3.50")],
    }
    made.append(pa.table(rows, schema=made.schema().as_arrow()))
    with made.update_schema() as change:
        change.update_column("i", LongType())
        change.update_column("f", DoubleType())
        change.update_column("d", DecimalType(18, 2))
    table = opened(pointer_to(made))
    assert ids(table, where=where) == _WIDENED[where]
    assert table.to_arrow(where=where).column_names == ["id", "i", "f", "d"]
    assert table.to_arrow(where=where, limit=1).num_rows == min(1, len(_WIDENED[where]))
    document = json.loads(local_path(made.metadata_location).read_text())
    expired = {**document, "schemas": document["schemas"][-1:]}  # as Iceberg's expire_snapshots leaves it, if asked to
    assert ids(opened(_stored(made, expired)), where=where) == _WIDENED[where]


@pytest.mark.parametrize(
    ("kind", "default", "where", "found"),
    [
        ("date", "2024-02-03", "d = '2024-02-03'", [1, 2]),
        ("date", "2024-02-03", "d < '2024-01-01' OR id = 2", [2]),
        ("timestamp", "2024-02-03T10:11:12.5", "d > '2024-02-03T00:00:00'", [1, 2]),
        ("timestamptz", "2024-02-03T10:11:12.5+00:00", "d <= '2024-02-03T10:11:12+00:00'", []),
        ("decimal(9, 2)", "14.20", "d = 14.20", [1, 2]),
        ("int", 5, "d IS NULL", []),
    ],
)
def test_a_filter_finds_the_default_of_rows_from_before_a_column(
    tables: IcebergTables, kind: str, default: object, where: str, found: list[int]
) -> None:
    made = tables.create()
    append(made, [1, 2])
    document = json.loads(local_path(made.metadata_location).read_text())
    (schema,) = document["schemas"]
    column = {"id": 3, "name": "d", "required": False, "type": kind, "initial-default": default}
    schemas = [schema, {**schema, "schema-id": 1, "fields": [*schema["fields"], column]}]
    changed = {"format-version": 3, "next-row-id": 2, "schemas": schemas, "current-schema-id": 1, "last-column-id": 3}
    pointer = _stored(made, {**document, **changed}).model_copy(update={"schema_id": 1})
    assert ids(opened(pointer), where=where) == found
