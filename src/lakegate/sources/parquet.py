"""Parquet files, by their footers alone (Apache Parquet format, "File format")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from lakegate.errors import SchemaError
from lakegate.model.batch import SourceColumn
from lakegate.sources.arrow_types import is_any_list, normalise, refusal
from lakegate.sources.inspection import Inspection
from lakegate.sources.located import Located
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem, ProblemError, unreadable
from lakegate.sources.schemas import name_problems
from lakegate.storage.errors import ReplacedError

# Logical types that Spark refuses and that Arrow may show as plain bytes.
_REFUSED_LOGICAL_TYPES = frozenset({"UUID", "INTERVAL", "VARIANT", "GEOMETRY", "GEOGRAPHY"})


def inspect_parquet(file: Located) -> tuple[Inspection | None, tuple[Problem, ...]]:
    """Return rows and columns of ``file``, and what is wrong with it; reads the footer only.

    A footer that can be read and column chunks that lie inside the file are taken for an undamaged file: pages carry
    their own checksums at best, and the engine reads them all anyway.
    """
    path = shown(file.path)
    try:
        with file.open() as stream:
            metadata = pq.read_metadata(stream)
        schema = metadata.schema.to_arrow_schema()
        _require_whole(metadata, file, path)
    except ProblemError as error:
        return None, (error.problem,)
    except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
        return None, (_unreadable(path, error),)
    problems = [*name_problems(path, schema.names), *_field_name_problems(path, schema)]
    if not problems:
        problems.extend(_type_problems(path, metadata, schema))
    instants = _int96_columns(metadata)
    columns = tuple(
        SourceColumn(name=field.name, type=_type_text(field.type, is_instant=field.name in instants))
        for field in schema
    )
    return Inspection(file, metadata.num_rows, columns), tuple(problems)


def _require_whole(metadata: Any, file: Located, path: str) -> None:
    """Check that the first and last row groups lie inside the file, so that nothing was cut out of the middle."""
    for index in {0, metadata.num_row_groups - 1} if metadata.num_row_groups else set():
        group = metadata.row_group(index)
        for position in range(group.num_columns):
            chunk = group.column(position)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            if start + chunk.total_compressed_size > file.size_bytes:
                raise ProblemError(
                    Problem(
                        f"'{path}' is damaged: its footer names data beyond its end (column '{chunk.path_in_schema}').",
                        "Copy or download it again.",
                        path,
                    )
                )


def _unreadable(path: str, error: Exception) -> Problem:
    if isinstance(error, (PermissionError, FileNotFoundError, ReplacedError)):
        return unreadable(path, error)
    first_line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return Problem(
        f"'{path}' is damaged: its parquet footer cannot be read ({first_line}).", "Copy or download it again.", path
    )


def _type_problems(path: str, metadata: Any, schema: pa.Schema) -> Iterator[Problem]:
    refused = _refused_by_logical_type(metadata)
    for field in schema:
        instead = refusal(field.type)
        text = refused.get(field.name, str(field.type)) if instead is None else str(field.type)
        if instead is not None or field.name in refused:
            yield Problem(
                f"'{path}': column '{field.name}' has type {text}, which Spark and Iceberg cannot hold.",
                instead or "Write it as a string.",
                path,
                SchemaError,
            )


def _refused_by_logical_type(metadata: Any) -> dict[str, str]:
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    named = ((leaf.path.split(".")[0], _logical_type(leaf)) for leaf in leaves)
    return {name: kind.lower() for name, kind in named if kind in _REFUSED_LOGICAL_TYPES}


def _logical_type(leaf: Any) -> str:
    logical = str(leaf.logical_type.type)
    return str(leaf.converted_type) if logical in {"NONE", "UNKNOWN"} else logical


def _int96_columns(metadata: Any) -> frozenset[str]:
    """Return the columns of the old INT96 timestamps, which Spark reads as instants in microseconds."""
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    return frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")


def _type_text(data_type: pa.DataType, *, is_instant: bool) -> str:
    return str(pa.timestamp("us", tz="UTC") if is_instant else normalise(data_type))


def _field_name_problems(path: str, schema: pa.Schema) -> Iterator[Problem]:
    for field in schema:
        for names in _nested_names(field.type):
            yield from (
                Problem(f"{problem.message} They stand inside '{field.name}'.", problem.hint, path, SchemaError)
                for problem in name_problems(path, names)
            )


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
