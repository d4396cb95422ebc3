"""Inspect source files, without a lake or Spark: the columns of a table of them, and their first rows."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lakegate.config import StorageSettings
from lakegate.errors import SchemaError, SourceError
from lakegate.model.base import Value
from lakegate.model.batch import Batch, CsvOptions, FileFormat, SourceColumn
from lakegate.model.rows import json_safe, rows_of
from lakegate.model.schema import Column, Schema, merged
from lakegate.ports import Narrator
from lakegate.sources.discovery import discover, require_csv
from lakegate.sources.files import Located, find, from_uri, shown
from lakegate.sources.inspection import unreadable
from lakegate.sources.parquet import type_name
from lakegate.storage.objects import ReplacedError, first_line, is_remote


class SourceSample(Value):
    """The columns and first rows of files, as :meth:`lakegate.Lake.inspect` returns them.

    Attributes:
        batch: The files, with their row counts and sizes.
        columns: The columns that a table of them would have. One without any value has type ``unknown``.
        rows: The first rows of the first file that has any, as JSON-safe values. Text in CSV and JSON is unchanged.
    """

    batch: Batch
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...] = ()


def inspect(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,
    csv: CsvOptions | None = None,
    storage: StorageSettings | None = None,
    narrator: Narrator | None = None,
    rows: int = 3,
) -> SourceSample:
    """Return the columns and the first rows of files.

    Args:
        paths: Files, globs and folders, as for :func:`lakegate.sources.discover`.
        format: The format of the files; ``None`` to detect it from their names and first bytes.
        csv: How to read CSV files.
        storage: How to reach the object stores; ``None`` for the variables and profiles of their own tools.
        narrator: Gets the progress if there are many or large files.
        rows: Maximum number of rows to return.

    Raises:
        LakegateError: As for :func:`lakegate.sources.discover`, and when the first rows can't be read.
    """
    stores = storage or StorageSettings()
    with tempfile.TemporaryDirectory(prefix="lakegate-") as folder:
        batch = discover(
            paths, format=format, csv=csv, storage=stores, narrator=narrator, may_differ=True, copies=Path(folder)
        )
        require_csv(csv, batch)
        if batch.format == "csv":
            columns = tuple(Column(name=each.name, type=type_name(_arrow_type(each))) for each in batch.columns)
        else:
            columns = _declared(batch, stores)
        found = _first_rows(batch, stores, rows)
    return SourceSample(batch=batch, columns=columns, rows=tuple(found))


def _declared(batch: Batch, storage: StorageSettings) -> tuple[Column, ...]:
    """Return the columns of all files. If types differ, use one that holds both, or else the first file's."""
    schemas = []
    for part in batch.parts():
        with _parquet(part.read_uris[0], storage) as found:
            declared = {field.name.lower(): field.type for field in found.schema_arrow}
        types = (c.inferred or type_name(_arrow_type(c, declared[c.name.lower()])) for c in part.columns)
        named = (Column(name=c.name, type=kind) for c, kind in zip(part.columns, types, strict=True))
        schemas.append(Schema(columns=tuple(named)))
    try:
        return merged(schemas).columns
    except SchemaError:
        first = {column.name.lower(): column for schema in reversed(schemas) for column in schema.columns}
        return tuple(first[column.name.lower()] for column in batch.columns)


def _arrow_type(column: SourceColumn, declared: Any = None) -> Any:
    """Return a column's type: the one inferred from its text, or else the declared one."""
    inferred: dict[str, Any] = {
        "null": pa.null(),
        "bool": pa.bool_(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "date32[day]": pa.date32(),
        "timestamp[us]": pa.timestamp("us"),
        "timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"),
    }
    if column.type.startswith("decimal128("):
        precision, scale = column.type.removeprefix("decimal128(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return inferred[column.type] if declared is None or column.type in inferred else declared


def _located(uri: str, storage: StorageSettings) -> Located:
    found = find(uri, storage)
    if found is None:
        raise FileNotFoundError(uri)
    return found


@contextmanager
def _parquet(uri: str, storage: StorageSettings) -> Iterator[Any]:
    path = shown(uri if is_remote(uri) else from_uri(uri))
    try:
        with _located(uri, storage).open() as stream:
            yield pq.ParquetFile(cast("Any", stream), page_checksum_verification=True)
    except (PermissionError, FileNotFoundError, ReplacedError) as error:
        raise unreadable(path, error) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = first_line(str(error) or type(error).__name__)
        message = f"'{path}' is damaged: its rows can't be read ({reason})."
        raise SourceError(message, hint="Copy or download it again.", path=path) from error


def _first_rows(batch: Batch, storage: StorageSettings, limit: int) -> list[dict[str, Any]]:
    file = next((file for file in batch.files if file.rows), None)
    if file is None:
        return []
    with _parquet(file.copy_uri or file.uri, storage) as found:
        first = next(found.iter_batches(batch_size=limit or 1), None)
        rows = [] if first is None else rows_of(first.slice(0, limit))
    if batch.format == "csv":
        return [{name: spelled(value) for name, value in row.items()} for row in rows]
    return [json_safe(_with_words(row)) for row in rows]


def _with_words(value: Any) -> Any:
    """Return a value with the names of numbers that JSON lacks, such as ``NaN``, which isn't NULL."""
    if isinstance(value, dict):
        return {name: _with_words(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_words(one) for one in value]
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else str(value).replace("nan", "NaN").replace("inf", "Infinity")


def spelled(value: Any) -> str | None:
    """Return the text of a value in CSV from the value in its copy."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(_with_words(value))
