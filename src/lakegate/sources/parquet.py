"""Inspect parquet files by their footers alone: their columns, and types that Spark or Iceberg doesn't support.

Spark 4.1 fails on the refused types with ``PARQUET_TYPE_ILLEGAL`` or, for durations, silently reads a bare number.

Only the schema and the number of rows are read: Arrow's API for column chunks terminates the process
(``std::terminate``) if a chunk is encrypted, or if a byte in some statistics is damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from lakegate.errors import InputError, SchemaError, SourceError
from lakegate.model.batch import SourceColumn
from lakegate.model.types import UNKNOWN, struct_text, unknown_as_string
from lakegate.sources.files import Located, shown
from lakegate.sources.footer import CODECS, codecs_of
from lakegate.sources.inspection import name_problems, reserved_name_problems, unreadable
from lakegate.storage.objects import ReplacedError, first_line

_PLAIN = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "uint64": "decimal(20, 0)",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "null": UNKNOWN,
}
_FIRST_READ_BYTES = 64 << 10
# Logical types that Spark refuses, and that Arrow may show as plain bytes.
_REFUSED_LOGICAL_TYPES = frozenset({"UUID", "INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY"})
_TEXTS = frozenset({"ENUM", "JSON"})
"""Logical types that Arrow may show as plain bytes, but Spark reads as text."""
_READABLE_CODECS = frozenset({0, 1, 2, 5, 6, 7})
_MAX_DECIMAL_PRECISION = 38
# PyArrow has no public predicates for these types.
_REFUSED_WORDS = (
    "uuid",
    "run_end_encoded",
    "dense_union",
    "sparse_union",
    "month_interval",
    "day_time_interval",
    "month_day_nano_interval",
)
END_BYTES = 8
"""Size of what follows the footer: its length, and the magic bytes."""


@dataclass(frozen=True, slots=True)
class ParquetInspection:
    """An inspected parquet file: its columns in order, with their Arrow types as text."""

    file: Located
    rows: int
    columns: tuple[SourceColumn, ...]


def inspect_parquet(file: Located) -> tuple[ParquetInspection | None, Sequence[InputError]]:
    """Return the rows and columns of ``file``, and its problems, reading only the footer.

    A file counts as undamaged if its footer can be read. The engine reads all its data anyway.
    """
    path = shown(file.path)
    try:
        footer = _footer(file)
        metadata = pq.read_metadata(pa.BufferReader(footer))
        schema = metadata.schema.to_arrow_schema()
    except SourceError as error:
        return None, (error,)
    except (PermissionError, FileNotFoundError, ReplacedError) as error:
        return None, (unreadable(path, error),)
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        reason = first_line(str(error) or type(error).__name__)
        if "Map keys" in reason:
            message = f"'{path}' has a map whose keys may be NULL, which no table can have."
            return None, (SourceError(message, hint="Write the file with keys that are required.", path=path),)
        if isinstance(error, pa.ArrowNotImplementedError):
            message = f"'{path}' has a column of a type that can't be read ({reason})."
            return None, (SourceError(message, hint="Write the column in another type.", path=path),)
        message = f"'{path}' is damaged: its parquet footer can't be read ({reason})."
        return None, (SourceError(message, hint="Copy or download it again.", path=path),)
    leaves = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    problems: list[InputError] = [*_codec_problems(path, footer), *schema_problems(path, schema, leaves)]
    # Spark reads deprecated INT96 timestamps as instants in microseconds.
    instants = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    declared: dict[str, pa.DataType] = {leaf.path: pa.string() for leaf in leaves if _logical_type(leaf) in _TEXTS}
    declared |= dict.fromkeys(instants, pa.timestamp("us", tz="UTC"))
    columns = tuple(
        SourceColumn(
            name=field.name,
            type=str(declared.get(field.name) or normalise(field.type)),
            inferred=_with_unknown(field.type),
        )
        for field in schema
    )
    return ParquetInspection(file, metadata.num_rows, columns), problems


def schema_problems(path: str, schema: pa.Schema, leaves: Sequence[Any] = ()) -> Iterator[SchemaError]:
    """Yield the problems with the names of columns; if there are none, those with their types.

    Args:
        leaves: The columns of the parquet footer, which distinguishes some types that Arrow doesn't.
    """
    names = [
        *name_problems(path, schema.names),
        *reserved_name_problems(path, schema.names),
        *_field_name_problems(path, schema),
    ]
    yield from names or _full_name_problems(path, schema)
    yield from () if names else _type_problems(path, leaves, schema)


def _codec_problems(path: str, footer: bytes) -> Iterator[SourceError]:
    for number in sorted(codecs_of(footer) - _READABLE_CODECS):
        name = CODECS[number] if number < len(CODECS) else "an unknown codec"
        yield SourceError(
            f"'{path}' is compressed with {name}, which Spark can't read.",
            hint="Write it with Zstandard, Snappy or gzip.",
            path=path,
        )


def _footer(file: Located) -> bytes:
    """Return the footer, including its length and the magic bytes."""
    with file.open() as stream:
        stream.seek(max(file.size_bytes - _FIRST_READ_BYTES, 0))
        tail = stream.read(_FIRST_READ_BYTES)
        length = int.from_bytes(tail[-END_BYTES:][:4], "little") + END_BYTES
        if length > file.size_bytes:
            raise ValueError("it's longer than the file itself")
        if length > len(tail):
            stream.seek(file.size_bytes - length)
            tail = stream.read(length)
    return tail[-length:]


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


def _full_name_problems(path: str, schema: pa.Schema) -> Iterator[SchemaError]:
    """Yield an error for each column ``a.b`` beside a column ``a`` with a field ``b``: their full names are equal."""
    found = Counter(name.lower() for field in schema for name in _full_names(field.name, field.type))
    for name, number in found.items():
        if number > 1:
            yield SchemaError(
                f"'{path}': both a column and a field of a struct have the full name '{name}'. Iceberg can't tell them "
                "apart.",
                hint="Rename one of them, without the dot.",
                path=path,
            )


def _parts(data_type: Any) -> list[tuple[str, Any]]:
    """Return the names and types of a nested type's direct parts; nothing for other types."""
    if types.is_struct(data_type):
        return [(field.name, field.type) for field in data_type]
    if is_any_list(data_type):
        return [("element", data_type.value_type)]
    return [("key", data_type.key_type), ("value", data_type.item_type)] if types.is_map(data_type) else []


def _full_names(name: str, data_type: Any) -> Iterator[str]:
    yield name
    for part, kind in _parts(data_type):
        yield from _full_names(f"{name}.{part}", kind)


def _nested_names(data_type: Any) -> Iterator[list[str]]:
    if types.is_struct(data_type):
        yield [field.name for field in data_type]
    for _, kind in _parts(data_type):
        yield from _nested_names(kind)


def normalise(data_type: Any) -> Any:  # noqa: PLR0911 - a line for each type
    """Return the representative of all types that Spark reads the same way.

    Large and view variants, dictionaries, fixed-size lists, names of list items and time zones make no difference to
    Spark. Parquet itself doesn't have them; only Arrow's copy of the schema in the file does.

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
    if is_any_list(data_type):
        return pa.list_(pa.field("element", normalise(data_type.value_type)))
    if types.is_map(data_type):
        return pa.map_(normalise(data_type.key_type), normalise(data_type.item_type))
    if types.is_struct(data_type):
        return pa.struct([pa.field(field.name, normalise(field.type)) for field in data_type])
    return data_type


def _with_unknown(kind: pa.DataType) -> str | None:
    """Return the Iceberg type of a nested type with parts of unknown type; ``None`` for any other type."""
    if not types.is_nested(kind) or "null" not in str(kind):
        return None
    name = type_name(kind)
    return name if unknown_as_string(name) != name else None


def is_any_list(data_type: pa.DataType) -> bool:
    """Return whether a type is a list in any layout."""
    variants = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    return any(is_kind(data_type) for is_kind in (*variants, types.is_large_list_view))


def type_name(kind: Any) -> str:  # noqa: PLR0911 - a line for each type
    """Return Iceberg's name of an Arrow type.

    Example:
        >>> type_name(pa.list_(pa.struct([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])))
        'list<struct<at: timestamptz, n: long>>'
    """
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_dictionary(kind):
        return type_name(kind.value_type)
    if is_any_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if types.is_struct(kind):
        return struct_text((field.name, type_name(field.type)) for field in kind)
    text = str(kind).removeprefix("large_").removesuffix("_view")
    return _PLAIN.get(text, "binary" if text.startswith("fixed_size_binary") else text)


def refusal(data_type: Any, *, nested: bool = False) -> str | None:
    """Return what to write instead of an unsupported type; ``None`` if the type is supported.

    Example:
        >>> refusal(pa.int64()), refusal(pa.list_(pa.time64("us")))
        (None, 'Write it as a string or as a number of seconds.')
    """
    if types.is_decimal(data_type) and data_type.precision > _MAX_DECIMAL_PRECISION:
        return f"Write it with at most {_MAX_DECIMAL_PRECISION} digits."
    if types.is_timestamp(data_type) and data_type.unit == "ns" and nested:
        return "Write it with microseconds: lakegate only converts nanoseconds in top-level columns."
    instead = next((instead for is_kind, instead in _REFUSED if is_kind(data_type)), None)
    if instead is None and types.is_dictionary(data_type):
        return refusal(data_type.value_type)
    inner = (refusal(kind, nested=True) for _, kind in _parts(data_type))
    return instead or next(filter(None, inner), None)


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
