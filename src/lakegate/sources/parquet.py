"""Parquet files, by their footers alone: their columns, and which types Spark and Iceberg can't take.

What is refused was tried on Spark 4.1: it stops at these types with ``PARQUET_TYPE_ILLEGAL``, or, for durations,
silently reads a bare number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from lakegate.errors import InputError, SchemaError, SourceError
from lakegate.model.batch import SourceColumn
from lakegate.sources.files import Located, shown
from lakegate.sources.inspection import name_problems, reserved_name_problems, unreadable
from lakegate.sources.parquet_footer import END_BYTES, chunks
from lakegate.storage.objects import ReplacedError

_FIRST_READ_BYTES = 64 << 10
# Logical types that Spark refuses and that Arrow may show as plain bytes.
_REFUSED_LOGICAL_TYPES = frozenset({"UUID", "INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY"})
_MAX_DECIMAL_PRECISION = 38
# The type ids of `pyarrow.lib` have no public predicate for these.
_REFUSED_WORDS = (
    "uuid",
    "run_end_encoded",
    "dense_union",
    "sparse_union",
    "month_interval",
    "day_time_interval",
    "month_day_nano_interval",
)


@dataclass(frozen=True, slots=True)
class ParquetInspection:
    """One parquet file, its columns in order with their Arrow types as text."""

    file: Located
    rows: int
    columns: tuple[SourceColumn, ...]


def inspect_parquet(file: Located) -> tuple[ParquetInspection | None, Sequence[InputError]]:
    """Return rows and columns of ``file``, and what is wrong with it; reads the footer only.

    A footer that can be read and column chunks that lie inside the file are taken for an undamaged file: pages carry
    their own checksums at best, and the engine reads them all anyway.
    """
    path = shown(file.path)
    try:
        footer = _footer(file)
        metadata = pq.read_metadata(pa.BufferReader(footer))
        _require_whole(footer, file, path)
        schema = metadata.schema.to_arrow_schema()
    except SourceError as error:
        return None, (error,)
    except (PermissionError, FileNotFoundError, ReplacedError) as error:
        return None, (unreadable(path, error),)
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        message = f"'{path}' is damaged: its parquet footer cannot be read ({first_line})."
        return None, (SourceError(message, hint="Copy or download it again.", path=path),)
    leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    problems = [
        *name_problems(path, schema.names),
        *reserved_name_problems(path, schema.names),
        *_field_name_problems(path, schema),
    ] or list(_type_problems(path, leaves, schema))
    # Spark reads the old INT96 timestamps as instants in microseconds.
    instants = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    instant = pa.timestamp("us", tz="UTC")
    columns = tuple(
        SourceColumn(name=field.name, type=str(instant if field.name in instants else normalise(field.type)))
        for field in schema
    )
    return ParquetInspection(file, metadata.num_rows, columns), problems


def _footer(file: Located) -> bytes:
    """Return the footer, with its length and the magic bytes behind it."""
    with file.open() as stream:
        stream.seek(max(file.size_bytes - _FIRST_READ_BYTES, 0))
        tail = stream.read(_FIRST_READ_BYTES)
        length = int.from_bytes(tail[-END_BYTES:][:4], "little") + END_BYTES
        if length > file.size_bytes:
            raise ValueError("it is longer than the file itself")
        if length > len(tail):
            stream.seek(file.size_bytes - length)
            tail = stream.read(length)
    return tail[-length:]


def _require_whole(footer: bytes, file: Located, path: str) -> None:
    """Check that no column is encrypted, and that all data lies inside the file: nothing was cut out of the middle."""
    for chunk in chunks(footer):
        if chunk.encrypted:
            column = f"column '{chunk.column}'" if chunk.column else "a column"
            message = f"'{path}' is encrypted in parts ({column})."
            raise SourceError(message, hint="Write it without encryption.", path=path)
        if chunk.end > file.size_bytes:
            message = f"'{path}' is damaged: its footer names data beyond its end (column '{chunk.column}')."
            raise SourceError(message, hint="Copy or download it again.", path=path)


def _type_problems(path: str, leaves: Sequence[Any], schema: pa.Schema) -> Iterator[SchemaError]:
    logical = ((leaf.path.split(".")[0], _logical_type(leaf)) for leaf in leaves)
    refused = {name: kind.lower() for name, kind in logical if kind in _REFUSED_LOGICAL_TYPES}
    for field in schema:
        instead = refusal(field.type)
        if instead is not None or field.name in refused:
            text = refused.get(field.name, str(field.type)) if instead is None else str(field.type)
            yield SchemaError(
                f"'{path}': column '{field.name}' has type {text}, which Spark and Iceberg don't support.",
                hint=instead or "Write it as a string.",
                path=path,
            )


def _logical_type(leaf: Any) -> str:
    logical = str(leaf.logical_type.type)
    return str(leaf.converted_type) if logical in {"NONE", "UNKNOWN"} else logical


def _field_name_problems(path: str, schema: pa.Schema) -> Iterator[SchemaError]:
    for field in schema:
        for names in _nested_names(field.type):
            for problem in name_problems(path, names):
                message = f"{problem.message} They are inside '{field.name}'."
                yield SchemaError(message, hint=problem.hint, path=path)


def _nested_names(data_type: Any) -> Iterator[list[str]]:
    if types.is_struct(data_type):
        yield [field.name for field in data_type]
        for field in data_type:
            yield from _nested_names(field.type)
    elif is_any_list(data_type):
        yield from _nested_names(data_type.value_type)
    elif types.is_map(data_type):
        yield from _nested_names(data_type.key_type)
        yield from _nested_names(data_type.item_type)


def normalise(data_type: pa.DataType) -> pa.DataType:
    """Return one type for all those that Spark reads alike.

    Large and view variants, dictionaries, fixed-size lists, names of list items and time zones make no difference to
    Spark: a parquet file keeps none of them, only Arrow's own copy of the schema beside it does.

    Example:
        >>> str(normalise(pa.list_(pa.field("item", pa.dictionary(pa.int32(), pa.large_string())))))
        'list<element: string>'
        >>> str(normalise(pa.timestamp("us", tz="America/New_York")))
        'timestamp[us, tz=UTC]'
    """
    if isinstance(data_type, pa.BaseExtensionType) and not _is_refused(data_type):
        return normalise(data_type.storage_type)
    if types.is_dictionary(data_type):
        return normalise(data_type.value_type)
    same = next((same for is_kind, same in _SAME_TO_SPARK if is_kind(data_type)), None)
    if same is not None:
        return same
    if types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, tz="UTC")
    if types.is_decimal(data_type) and data_type.precision <= _MAX_DECIMAL_PRECISION:
        return pa.decimal128(data_type.precision, data_type.scale)
    nested: pa.DataType = _normalise_nested(data_type)
    return nested


def _normalise_nested(data_type: Any) -> Any:
    if is_any_list(data_type):
        return pa.list_(pa.field("element", normalise(data_type.value_type)))
    if types.is_map(data_type):
        return pa.map_(normalise(data_type.key_type), normalise(data_type.item_type))
    if types.is_struct(data_type):
        return pa.struct([pa.field(field.name, normalise(field.type)) for field in data_type])
    return data_type


def is_any_list(data_type: pa.DataType) -> bool:
    """Return whether it is a list of whatever layout."""
    variants = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    return any(is_kind(data_type) for is_kind in (*variants, types.is_large_list_view))


def refusal(data_type: pa.DataType, *, nested: bool = False) -> str | None:
    """Return what to write instead of a type that cannot be taken; ``None`` when it can.

    Args:
        nested: Whether it is inside a list, map or struct.

    Example:
        >>> refusal(pa.int64()), refusal(pa.list_(pa.time64("us")))
        (None, 'Write it as a string or as a number of seconds.')
    """
    if types.is_decimal(data_type) and data_type.precision > _MAX_DECIMAL_PRECISION:
        return f"Write it with at most {_MAX_DECIMAL_PRECISION} digits."
    if types.is_timestamp(data_type) and data_type.unit == "ns" and nested:
        return "Write it with microseconds: nanoseconds are converted in top-level columns only."
    instead = next((instead for is_kind, instead in _REFUSED if is_kind(data_type)), None)
    return instead or _nested_refusal(data_type)


def _is_refused(data_type: pa.DataType) -> bool:
    return str(data_type).removeprefix("extension<arrow.").startswith(_REFUSED_WORDS)


_SAME_TO_SPARK: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (types.is_large_string, pa.string()),
    (types.is_string_view, pa.string()),
    (types.is_large_binary, pa.binary()),
    (types.is_binary_view, pa.binary()),
    (types.is_fixed_size_binary, pa.binary()),
    (types.is_date64, pa.date32()),
)
_REFUSED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (types.is_time, "Write it as a string or as a number of seconds."),
    (types.is_duration, "Write it as a number and name the unit in the column's name."),
    (types.is_float16, "Write it as float."),
    (_is_refused, "Write it as a string."),
)


def _nested_refusal(data_type: Any) -> str | None:
    if types.is_dictionary(data_type):
        return refusal(data_type.value_type)
    if is_any_list(data_type):
        return refusal(data_type.value_type, nested=True)
    if types.is_map(data_type):
        return refusal(data_type.key_type, nested=True) or refusal(data_type.item_type, nested=True)
    if types.is_struct(data_type):
        return next((found for field in data_type if (found := refusal(field.type, nested=True))), None)
    return None
