"""Arrow types that Spark and Iceberg know. Apart from PyIceberg, which takes longer to import than most queries run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types

_PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("large_string", "string_view"), pa.string()),
    **dict.fromkeys(("large_binary", "binary_view"), pa.binary()),
    # Spark and Iceberg have no unsigned numbers.
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the :func:`plain_type` of each column, without metadata."""
    return pa.schema([_plain_field(field) for field in schema])


def plain_type(kind: Any) -> Any:
    """Return the plain type for the same values: no large or view types, no dictionaries, only signed integers.

    ``uint64`` stays, because no signed type is wide enough. Nested fields become nullable: Arrow can't cast a NULL
    struct that has a required field.

    Example:
        >>> plain_type(pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))
        ListType(list<item: string>)
        >>> plain_type(pa.struct([("n", pa.uint32())]))
        StructType(struct<n: int64>)
    """
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_nullable_field(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _nullable_field(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_nullable_field(kind.field(at)) for at in range(kind.num_fields)])
    return _PLAIN.get(str(kind), kind)


def _nullable_field(field: Any) -> Any:
    return pa.field(field.name, plain_type(field.type))


def _plain_field(field: Any) -> Any:
    return pa.field(field.name, plain_type(field.type), nullable=field.nullable)
