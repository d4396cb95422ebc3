"""Decode manifest entries: bounds, counts and partition values as Python values (Iceberg spec, "Manifests").

A value that can't be decoded is unknown (``None``, or left out of the partition values): never an error or a guess.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from pyiceberg import transforms, types
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import IcebergType, PrimitiveType

from lakegate.model.tables import ColumnStatistics, DataFile
from lakegate.model.types import struct_text

_Convert: TypeAlias = Callable[[Any], Any]

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH = _EPOCH_UTC.replace(tzinfo=None)
"""The epoch of Iceberg's ``timestamp``, which has no zone."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_UNDECODABLE = (ValueError, TypeError, ArithmeticError, LookupError, struct.error)
_UNKNOWN = ColumnStatistics()
_NO_COUNTS: Mapping[int, int] = {}
_NO_BOUNDS: Mapping[int, bytes] = {}


class FileDecoder:
    """Turns the entries of one manifest into :class:`~lakegate.model.tables.DataFile` values.

    Args:
        schema: Schema for the names and types of columns, which are matched by field id.
        spec: The manifest's partition spec; ``None`` leaves partition values out.
    """

    def __init__(self, schema: IcebergSchema, spec: PartitionSpec | None) -> None:
        self._columns = [
            (field.field_id, field.name, _bound_decoder(field.field_type))
            for field in schema.fields
            if isinstance(field.field_type, PrimitiveType)
        ]
        fields = spec.fields if spec is not None else ()
        self._partition = [_partition_decoder(field, schema) for field in fields]

    def decode(self, file: IcebergDataFile) -> DataFile:
        """Decode an entry, with its metrics by column name."""
        partition, identity = self._partition_values(file)
        return DataFile(
            path=file.file_path,
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            partition=partition,
            identity_values=identity,
            columns=self._statistics(file),
        )

    def _statistics(self, file: IcebergDataFile) -> dict[str, ColumnStatistics]:
        values = file.value_counts or _NO_COUNTS
        nulls = file.null_value_counts or _NO_COUNTS
        nans = file.nan_value_counts or _NO_COUNTS
        sizes = file.column_sizes or _NO_COUNTS
        # ORC's days before 1582-10-15 are of another calendar, and Avro files have no bounds.
        bounded = file.file_format == FileFormat.PARQUET
        lower = (bounded and file.lower_bounds) or _NO_BOUNDS
        upper = (bounded and file.upper_bounds) or _NO_BOUNDS
        measured = values.keys() | nulls.keys() | nans.keys() | sizes.keys() | lower.keys() | upper.keys()
        return {
            name: ColumnStatistics(
                value_count=values.get(field_id),
                null_count=nulls.get(field_id),
                nan_count=nans.get(field_id),
                lower=decode(lower.get(field_id)),
                upper=decode(upper.get(field_id)),
                size_bytes=sizes.get(field_id),
            )
            if field_id in measured
            else _UNKNOWN
            for field_id, name, decode in self._columns
        }

    def _partition_values(self, file: IcebergDataFile) -> tuple[dict[str, Any], dict[str, Any]]:
        partition: dict[str, Any] = {}
        identity: dict[str, Any] = {}
        for position, (name, column, convert) in enumerate(self._partition):
            try:
                stored = file.partition[position]
                value = None if stored is None else convert(stored)
            except _UNDECODABLE:
                continue
            partition[name] = value
            if column is not None:
                identity[column] = value
        return partition, identity


def type_text(iceberg_type: IcebergType) -> str:
    """Format a type as the Iceberg spec spells it, with nested types but no field ids.

    Example:
        >>> type_text(types.ListType(1, types.DecimalType(10, 2))), type_text(types.TimestamptzType())
        ('list<decimal(10, 2)>', 'timestamptz')
    """
    if isinstance(iceberg_type, types.StructType):
        return struct_text((field.name, type_text(field.field_type)) for field in iceberg_type.fields)
    if isinstance(iceberg_type, types.ListType):
        return f"list<{type_text(iceberg_type.element_type)}>"
    if isinstance(iceberg_type, types.MapType):
        return f"map<{type_text(iceberg_type.key_type)}, {type_text(iceberg_type.value_type)}>"
    return str(iceberg_type)


def partition_text(spec: PartitionSpec, schema: IcebergSchema) -> tuple[str, ...]:
    """Format the partition fields as users write them: ``days(pickup)``, ``bucket(16, id)``, ``region``.

    Dropped fields, which format version 1 keeps as ``void``, are left out.
    """
    return tuple(
        _transform_text(field, schema.find_column_name(field.source_id) or f"#{field.source_id}")
        for field in spec.fields
        if not isinstance(field.transform, transforms.VoidTransform)
    )


def _transform_text(field: PartitionField, column: str) -> str:
    transform = field.transform
    match transform:
        case transforms.IdentityTransform():
            return column
        case transforms.BucketTransform():
            return f"bucket({transform.num_buckets}, {column})"
        case transforms.TruncateTransform():
            return f"truncate({transform.width}, {column})"
        case transforms.TimeTransform():
            return f"{transform}s({column})"
        case _:
            return f"{transform}({column})"


def _partition_decoder(field: PartitionField, schema: IcebergSchema) -> tuple[str, str | None, _Convert]:
    """Return a field's name, the top-level column it equals (identity transforms only), and its value converter."""
    source = schema.find_type(field.source_id) if schema.find_column_name(field.source_id) else None
    if not isinstance(source, PrimitiveType):
        return field.name, None, lambda value: value
    if isinstance(field.transform, (transforms.YearTransform, transforms.MonthTransform, transforms.HourTransform)):
        # The spec counts from 1970. People read 2025-11, not 670.
        return field.name, None, partial(field.transform.to_human_string, source)
    is_identity = isinstance(field.transform, transforms.IdentityTransform)
    column = next((one.name for one in schema.fields if is_identity and one.field_id == field.source_id), None)
    # A day is an int in the spec, but a date in Java and PyIceberg. Show it as a date.
    result = source if is_identity else field.transform.result_type(source)
    return field.name, column, _CONVERSIONS.get(type(result), _refuse)


def _bound_decoder(iceberg_type: PrimitiveType) -> Callable[[bytes | None], Any]:
    convert = _CONVERSIONS.get(type(iceberg_type), _refuse)

    def decode(bound: bytes | None) -> Any:
        if bound is None:
            return None
        try:
            return convert(from_bytes(iceberg_type, bound))
        except _UNDECODABLE:
            return None

    return decode


def _number(value: float) -> float:
    if math.isnan(value):
        raise ValueError("NaN bounds nothing")
    return value


def _refuse(value: Any) -> Any:
    # Nanoseconds don't fit into a datetime, and an upper bound truncated to microseconds would be too low.
    raise TypeError(type(value).__name__)


_CONVERSIONS: Mapping[type[IcebergType], _Convert] = {
    types.BooleanType: bool,
    types.IntegerType: int,
    types.LongType: int,
    types.FloatType: _number,
    types.DoubleType: _number,
    types.DecimalType: Decimal,
    types.DateType: lambda days: date.fromordinal(_EPOCH_DAY + days),
    types.TimeType: lambda micros: (_EPOCH + timedelta(microseconds=micros)).time(),
    types.TimestampType: lambda micros: _EPOCH + timedelta(microseconds=micros),
    types.TimestamptzType: lambda micros: _EPOCH_UTC + timedelta(microseconds=micros),
    types.StringType: str,
    types.BinaryType: bytes,
    types.FixedType: bytes,
    types.UUIDType: lambda value: value if isinstance(value, UUID) else UUID(bytes=bytes(value)),
}
