"""Read Avro container files with fastavro (``pip install 'lakegate[avro]'``), in the types of their schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from lakegate.errors import SchemaError, SourceError, missing_package
from lakegate.sources.files import Located, shown
from lakegate.sources.rows import Rows, columns_of
from lakegate.storage.objects import first_line

_ROWS_AT_ONCE = 20_000
_PLAIN: Mapping[str, Any] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
# With any other base type, a logical type is ignored (Avro's specification, "Logical Types").
_LOGICAL: Mapping[tuple[str, str], Any] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
    ("string", "uuid"): pa.string(),
}
_DECIMALS = frozenset({"bytes", "fixed"})
_NOT_BYTES = frozenset({"big-decimal", "duration"})
"""Values that are stored as bytes, which mean nothing without their logical type."""
_MISSING_CODEC = re.compile(r"^(\w+) codec is supported but you need to install .*?(\w+)\W*$")
_MOST_DIGITS = 38
_WIDER = (("int", "long"), ("float", "double"), ("int", "double"))


def read(file: Located, on_read: Callable[[int], None]) -> Rows:
    """Read the records of ``file``."""
    try:
        import fastavro
    except ImportError as error:
        raise missing_package("Reading Avro files needs", "fastavro", "avro") from error

    path = shown(file.path)

    def damaged(error: Exception) -> SourceError:
        reason = first_line(str(error) or type(error).__name__)
        missing = _MISSING_CODEC.search(reason)
        if missing is not None:
            codec, package = missing[1], missing[2]
            message = f"'{path}' is compressed with {codec}, which needs {package}, and that isn't installed."
            return SourceError(message, hint=f"pip install {package}", path=path)
        return SourceError(f"'{path}' is a damaged Avro file: {reason}.", hint="Copy or write it again.", path=path)

    fields = _Fields(path)
    with file.open() as stream:
        try:
            declared = fastavro.reader(stream).writer_schema
        except Exception as error:
            raise damaged(error) from error
    schema = fields.schema(declared)

    def tables() -> Iterator[pa.Table]:
        with file.open() as stream:
            try:
                records = cast("Iterator[Any]", fastavro.reader(stream))
                while rows := list(islice(records, _ROWS_AT_ONCE)):
                    spelled = [_spelled(row) for row in rows] if fields.has_uuid else rows
                    yield pa.Table.from_pylist(spelled, schema=schema)
            except Exception as error:
                raise damaged(error) from error
        on_read(file.size_bytes)

    columns = columns_of(schema)
    nulls = {field.name: pa.string() for field in schema if pa.types.is_null(field.type)}
    settled = pa.schema([pa.field(field.name, nulls.get(field.name, field.type)) for field in schema])
    return Rows(schema=settled, columns=columns, batches=(table.cast(settled) for table in tables()))


class _Fields:
    """Converts an Avro schema to Arrow types."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._named: dict[str, Any] = {}
        self.has_uuid = False

    def schema(self, declared: Any) -> pa.Schema:
        """Return the columns of a file's records."""
        if not isinstance(declared, dict) or declared.get("type") != "record":
            raise _refused(self._path, "", "isn't a record")
        return pa.schema(list(self.type_of(declared, "", ())))

    def type_of(self, declared: Any, name: str, within: tuple[str, ...]) -> Any:
        """Return the Arrow type for a part of the schema; ``within`` are the names of the enclosing records."""
        if isinstance(declared, list):
            return self._union(declared, name, within)
        if isinstance(declared, str):
            if declared in within:
                raise _refused(self._path, name, f"is recursive ({declared})")
            known = _PLAIN.get(declared)
            return self.type_of(self._named[declared], name, within) if known is None else known
        if isinstance(declared["type"], (dict, list)):
            return self.type_of(declared["type"], name, within)
        if "name" in declared:
            self._named[declared["name"]] = declared
        kind, logical = declared["type"], declared.get("logicalType")
        if logical == "decimal" and kind in _DECIMALS:
            digits = declared.get("precision", 0)  # fastavro reads schemas that lack it, but not their values
            if not 0 < digits <= _MOST_DIGITS:
                raise _refused(self._path, name, f"is a decimal with {digits} digits")
            return pa.decimal128(digits, declared.get("scale", 0))
        if kind in _DECIMALS and logical in _NOT_BYTES:
            raise _refused(self._path, name, f"is a {logical}")
        self.has_uuid |= logical == "uuid"
        known = _LOGICAL.get((kind, str(logical)))
        return self._nested(declared, name, within) if known is None else known

    def _nested(self, declared: dict[str, Any], name: str, within: tuple[str, ...]) -> Any:
        kind = declared["type"]
        if kind == "record":
            inner = (*within, str(declared.get("name")))
            parts = [(each["name"], self.type_of(each["type"], each["name"], inner)) for each in declared["fields"]]
            return pa.struct(parts)
        if kind == "array":
            return pa.list_(pa.field("element", self.type_of(declared["items"], name, within)))
        if kind == "map":
            return pa.map_(pa.string(), self.type_of(declared["values"], name, within))
        return self.type_of(kind, name, within)

    def _union(self, branches: list[Any], name: str, within: tuple[str, ...]) -> Any:
        kinds = [branch for branch in branches if branch != "null"]
        if len(kinds) == 1:
            return self.type_of(kinds[0], name, within)
        if not kinds:
            return pa.null()
        plain = {kind for kind in kinds if isinstance(kind, str)}
        for narrow, wide in _WIDER:
            if len(plain) == len(kinds) and plain == {narrow, wide}:
                return _PLAIN[wide]
        raise _refused(self._path, name, "is a union of several types")


def _refused(path: str, name: str, what: str) -> SchemaError:
    subject = f"'{path}': field '{name}'" if name else f"The schema of '{path}'"
    return SchemaError(
        f"{subject} {what}. Tables don't support that.", hint="Write it as one type, such as text.", path=path
    )


def _spelled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _spelled(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_spelled(part) for part in value]
    return str(value) if isinstance(value, UUID) else value
