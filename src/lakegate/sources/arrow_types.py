"""Arrow types as Spark and Iceberg see them: which are the same, and which cannot be taken at all.

What is refused was tried on Spark 4.1: it stops at these types with ``PARQUET_TYPE_ILLEGAL``, or, for durations,
silently reads a bare number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types

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


def normalise(data_type: pa.DataType) -> pa.DataType:
    """Return the type that stands for all types Spark reads alike.

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
    """Tell whether it is a list of whatever layout."""
    return any(
        predicate(data_type)
        for predicate in (
            types.is_list,
            types.is_large_list,
            types.is_fixed_size_list,
            types.is_list_view,
            types.is_large_list_view,
        )
    )


def refusal(data_type: pa.DataType, *, nested: bool = False) -> str | None:
    """Return what to write instead of a type that cannot be taken; ``None`` when it can.

    Args:
        data_type: The type.
        nested: Whether it stands inside a list, map or struct.

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
