"""What the manifests' entries tell of data files."""

from __future__ import annotations

import uuid
from datetime import date

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    VoidTransform,
)
from pyiceberg.types import (
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from lakegate.iceberg.column_metrics import FileDecoder
from lakegate.model.tables import ColumnStatistics
from support.iceberg_tables import data_file


def one_column(column_type: IcebergType) -> IcebergSchema:
    return IcebergSchema(NestedField(1, "c", column_type, required=False))


@pytest.mark.parametrize(
    ("column_type", "bound"),
    [
        (TimestampType(), b"\x01"),
        (TimestampType(), b"\xff" * 7 + b"\x7f"),
        (TimestampNanoType(), b"\x00" * 8),
        (StringType(), b"\xff\xfe"),
        (LongType(), b"\x00" * 3),
    ],
    ids=str,
)
def test_bounds_that_cannot_be_decoded_are_unknown(column_type: IcebergType, bound: bytes) -> None:
    decoder = FileDecoder(one_column(column_type), None)
    decoded = decoder.decode(data_file(lower_bounds={1: bound}, upper_bounds={1: bound}, value_counts={1: 1}))
    assert decoded.columns["c"] == ColumnStatistics(value_count=1)


def test_bounds_of_a_uuid_are_a_uuid() -> None:
    value = uuid.UUID(int=7)
    decoded = FileDecoder(one_column(UUIDType()), None).decode(data_file(lower_bounds={1: value.bytes}))
    assert decoded.columns["c"].lower == value


def test_only_identity_partitions_tell_values() -> None:
    schema = IcebergSchema(
        NestedField(1, "at", TimestampType(), required=False),
        NestedField(2, "id", UUIDType(), required=False),
        NestedField(3, "who", StructType(NestedField(4, "name", StringType(), required=False)), required=False),
        NestedField(5, "event", StructType(NestedField(6, "at", TimestampType(), required=False)), required=False),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "day"),
        PartitionField(1, 1001, MonthTransform(), "month"),
        PartitionField(2, 1002, BucketTransform(16), "bucket"),
        PartitionField(2, 1003, IdentityTransform(), "id"),
        PartitionField(1, 1004, VoidTransform(), "gone"),
        PartitionField(4, 1005, IdentityTransform(), "name"),
        PartitionField(99, 1006, IdentityTransform(), "dropped"),
        PartitionField(1, 1007, IdentityTransform(), "at"),
        PartitionField(6, 1008, DayTransform(), "event_day"),
        PartitionField(6, 1009, MonthTransform(), "event_month"),
    )
    value = uuid.UUID(int=7)
    unreadable = 2**62
    decoded = FileDecoder(schema, spec).decode(
        data_file([20484, 672, 3, value, None, "ann", 1, unreadable, 20484, 672])
    )
    assert decoded.partition == {
        "day": date(2026, 1, 31),
        "month": "2026-01",
        "bucket": 3,
        "id": value,
        "gone": None,
        "name": "ann",
        "dropped": 1,
        "event_day": date(2026, 1, 31),
        "event_month": "2026-01",
    }
    assert decoded.identity_values == {"id": value}
