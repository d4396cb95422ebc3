"""Rows of files to write as parquet, and decompressed streams."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lakegate.errors import SourceError
from lakegate.model.batch import SourceColumn
from lakegate.sources.csv_types import Inference
from lakegate.sources.files import Located, shown
from lakegate.sources.inspection import is_gzip, is_zstandard

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one file. They can be read once.

    Attributes:
        schema: The columns as they'll be written; :mod:`lakegate.sources.parquet` says which types are supported.
        columns: The columns with their inferred types: text that only has dates is text in ``schema`` and a date here.
        types: For CSV, the inferred types of the columns, once all batches were read. For JSON, those of text.
    """

    schema: pa.Schema
    columns: tuple[SourceColumn, ...]
    batches: Iterator[pa.Table]
    types: list[Inference] = field(default_factory=list)


@contextmanager
def decompressed(file: Located, on_read: Callable[[int], None]) -> Iterator[BinaryIO]:
    """Open a file for reading, and decompress it if its name says so.

    Args:
        on_read: Called with the number of (compressed) bytes of the file after each read.
    """
    path = shown(file.path)
    with file.open() as raw:
        counted = cast("BinaryIO", _Counted(raw, on_read))
        stream = counted
        if is_gzip(file.name):
            stream = cast("BinaryIO", gzip.GzipFile(fileobj=counted))
        elif is_zstandard(file.name):
            import pyarrow as pa

            stream = cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(cast("Any", counted), mode="r"), "zstd"))
        try:
            yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"'{path}' is damaged gzip ({error})."
            raise SourceError(message, hint="Copy or compress it again.", path=path) from error
        except OSError as error:
            if not is_zstandard(file.name) or error.errno is not None:
                raise
            message = f"'{path}' is damaged zstd ({error})."
            raise SourceError(message, hint="Copy or compress it again.", path=path) from error


class _Counted:
    """A stream that reports how much was read."""

    closed = False

    def __init__(self, raw: Any, on_read: Callable[[int], None]) -> None:
        self._raw = raw
        self._on_read = on_read

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._raw.read(size)
        self._on_read(len(block))
        return block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with types that both parquet and Spark have, and timestamps in microseconds."""
    import pyarrow as pa

    from lakegate.iceberg.arrow_types import plain_schema

    return pa.schema([pa.field(field.name, _in_micros(field.type)) for field in plain_schema(schema)])


def _in_micros(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_micros(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _in_micros(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_in_micros(kind.key_type), _in_micros(kind.item_type))
    return kind


def columns_of(schema: pa.Schema) -> tuple[SourceColumn, ...]:
    """Return the columns of a schema with declared types."""
    return tuple(SourceColumn(name=field.name, type=str(field.type)) for field in schema)
