"""What is known of a table's files, column by column: bounds, counts, partition values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import (
    LongType,
    StringType,
)

from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.tables import ColumnStatistics
from support.iceberg_tables import pointer_to
from support.pyiceberg_catalog import DictCatalog
from support.written_tables import NOON, append, catalog_below, create, trips


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[DictCatalog]:
    with catalog_below(tmp_path) as catalog:
        yield catalog


@pytest.fixture
def reader() -> IcebergTableReader:
    return IcebergTableReader()


def test_bounds_and_counts_of_every_type(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    low = {
        "flag": False,
        "small": -5,
        "big": -(2**62),
        "single": -1.5,
        "double": -2.25,
        "money": Decimal("-12345.67"),
        "day": date(1969, 12, 31),
        "at": time(0, 0, 1),
        "stamp": datetime(1969, 7, 20, 20, 17, 40, 1),
        "moment": datetime(2026, 1, 31, tzinfo=UTC),
        "text": "Ä",
        "raw": b"\x00\xff",
        "fix": b"ab",
    }
    high = {
        "flag": True,
        "small": 7,
        "big": 2**62,
        "single": 0.5,
        "double": 1e300,
        "money": Decimal("0.01"),
        "day": date(2026, 1, 31),
        "at": time(23, 59, 59, 999999),
        "stamp": NOON,
        "moment": datetime(2026, 2, 1, tzinfo=UTC),
        "text": "Ö",
        "raw": b"\x01",
        "fix": b"zz",
    }
    columns: list[tuple[str, pa.DataType]] = [
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.time64("us")),
        ("stamp", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("fix", pa.binary(2)),
    ]
    schema = pa.schema(columns)
    rows = pa.Table.from_pylist([low, high, dict.fromkeys(low)], schema=schema)
    table = create(iceberg, rows)
    append(table, rows)
    (file,) = reader.files(pointer_to(table))
    assert file.rows == 3
    assert file.size_bytes == local_size(file.path)
    assert {name: column.lower for name, column in file.columns.items()} == low
    assert {name: column.upper for name, column in file.columns.items()} == high
    assert [type(column.lower) for column in file.columns.values()] == [type(value) for value in low.values()]
    assert {(column.value_count, column.null_count) for column in file.columns.values()} == {(3, 1)}


def local_size(location: str) -> int:
    return Path(location.removeprefix("file://")).stat().st_size


def test_metrics_that_are_missing_stay_unknown(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    properties = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.region": "none",
    }
    table = create(iceberg, trips([]), properties)
    append(table, trips([1, None]))
    (file,) = reader.files(pointer_to(table))
    counted = file.columns["id"]
    assert (counted.value_count, counted.null_count, counted.lower, counted.upper) == (2, 1, None, None)
    region = file.columns["region"]
    assert replace(region, size_bytes=None) == ColumnStatistics()
    assert (region.size_bytes or 0) > 0


def test_columns_are_found_by_id_after_renames_promotions_and_additions(
    iceberg: DictCatalog, reader: IcebergTableReader
) -> None:
    rows = pa.table({"number": pa.array([3, 4], pa.int32()), "ratio": pa.array([0.5, 1.5], pa.float32())})
    table = create(iceberg, rows)
    append(table, rows)
    with table.update_schema() as update:
        update.rename_column("number", "id")
        update.update_column("number", LongType())
        update.add_column("later", StringType())
    pointer = pointer_to(table)
    (file,) = reader.files(pointer)
    assert list(file.columns) == ["id", "ratio", "later"]
    assert (file.columns["id"].lower, file.columns["id"].upper) == (3, 4)
    assert file.columns["later"] == ColumnStatistics()
    old = pointer.model_copy(update={"schema_id": 0})
    assert reader.metadata(old).table_schema.names == ("number", "ratio")


def test_each_manifest_is_read_by_its_own_partition_spec(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    table = create(iceberg, trips([]))
    append(table, trips([1], "none"))
    with table.update_spec() as update:
        update.add_identity("region")
    append(table, pa.concat_tables([trips([2], "north"), trips([3], "south")]))
    with table.update_spec() as update:
        update.remove_field("region")
        update.add_identity("id")
    append(table, trips([4], "west"))
    with table.update_schema() as update:
        update.rename_column("region", "area")
    by_id = {file.columns["id"].lower: file for file in reader.files(pointer_to(table))}
    assert (dict(by_id[1].partition), dict(by_id[1].identity_values)) == ({}, {})
    assert (dict(by_id[2].partition), dict(by_id[2].identity_values)) == ({"region": "north"}, {"area": "north"})
    assert dict(by_id[3].identity_values) == {"area": "south"}
    assert dict(by_id[4].partition) == {"id": 4}
    assert dict(by_id[4].identity_values) == {"id": 4}


def test_nan_bounds_nothing(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    rows = pa.table({"x": [1.5, math.nan, None], "only": [math.nan] * 3})
    table = create(iceberg, rows)
    append(table, rows)
    (file,) = reader.files(pointer_to(table))
    for column in file.columns.values():
        assert column.lower is None or not math.isnan(column.lower)
        assert column.upper is None or not math.isnan(column.upper)
    assert file.columns["x"].null_count == 1
