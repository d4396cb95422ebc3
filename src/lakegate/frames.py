"""Convert users' rows to Arrow: frames of other libraries, tables and readers, lists of dicts, generators."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError
from lakegate.table import Query, Table

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (
    "a Spark DataFrame, a pandas or Polars frame, a DuckDB relation, an Arrow table, reader or dataset, a list of "
    "dicts, or a list or generator of these"
)
_SCALARS = ((str, "a string"), ((bytes, bytearray, memoryview), "bytes"), (bool, "true or false"), (Number, "a number"))


def are_rows(given: object) -> bool:
    """Return whether ``given`` is rows rather than names of files.

    Example:
        >>> are_rows("a.csv"), are_rows(["a.csv", "b.csv"]), are_rows([{"id": 1}])
        (False, False, True)
    """
    if isinstance(given, (str, Path)):
        return False
    if isinstance(given, Sequence):
        return any(isinstance(each, Mapping) or _is_frame(each) for each in given)
    return not isinstance(given, (set, frozenset))


def spark_frame(given: object) -> Any:
    """Return ``given`` if it's a Spark DataFrame, or the DataFrame of a query; ``None`` for anything else."""
    if isinstance(given, Query):
        return given.dataframe
    kind = type(given)
    return given if kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" else None


def to_batches(rows: Any) -> tuple[pa.Schema, Iterator[Any]]:
    """Return the schema of ``rows`` and their batches, with few in memory if the library allows it.

    Raises:
        InputError: When their type is unknown, or there are none, so that the columns are unknown.
    """
    import pyarrow as pa

    from lakegate.iceberg.arrow_types import plain_schema

    rows = rows.to_batches() if isinstance(rows, Table) else _reader_of_dataset(rows)
    if isinstance(rows, pa.RecordBatchReader) or (not _is_known(rows) and hasattr(rows, "__arrow_c_stream__")):
        try:
            reader = rows if isinstance(rows, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(rows)
        except pa.ArrowInvalid:  # one column, such as a Series
            raise _unknown_type(rows) from None
        _require_no_list_views(reader.schema)
        return plain_schema(reader.schema), reader
    are_parts = isinstance(rows, Sequence) and not isinstance(rows, str) and any(map(_is_frame, rows))
    if not isinstance(rows, Iterable) or _is_known(rows) or (isinstance(rows, (Sequence, Mapping)) and not are_parts):
        table = _require_rows(to_arrow(rows))
        return table.schema, iter(table.to_batches())
    parts = iter(rows)
    first = next(parts, None)
    if first is None:
        raise _no_rows()
    if isinstance(first, Mapping):
        table = _require_rows(to_arrow([first, *parts]))
        return table.schema, iter(table.to_batches())
    tables = (converted for part in chain([first], parts) if (converted := to_arrow(part)) is not None)
    head = _require_rows(next(tables, None))
    numbered = enumerate(chain([head], tables), start=1)
    return head.schema, (_cast_part(part, head.schema, number) for number, part in numbered)


def to_arrow(rows: Any) -> pa.Table | None:
    """Return ``rows`` as an Arrow table with types that Spark has; ``None`` for an empty list.

    Raises:
        InputError: When their type is unknown, or their library can't convert them to Arrow.
    """
    import pyarrow as pa

    from lakegate.iceberg.arrow_types import plain_schema

    if isinstance(rows, Sequence) and not isinstance(rows, str) and all(isinstance(row, Mapping) for row in rows):
        return _arrow_of_dicts(rows) if rows else None
    try:
        table = _arrow(rows)
        _require_no_list_views(table.schema)
        return table.cast(plain_schema(table.schema))
    except NotImplementedError as error:
        if not isinstance(error, pa.ArrowException):
            raise _unknown_type(rows) from None
        raise _not_convertible(rows, error) from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _not_convertible(rows, error) from error


def _require_no_list_views(schema: pa.Schema) -> None:
    """Refuse list views, of which Arrow's own cast (25.0.1) makes invalid or wrong lists."""
    for field in schema:
        if _has_list_views(field.type):
            raise InputError(
                f"Column '{field.name}' has list views ({field.type}), which can't be written.",
                hint="Make them lists in the library that made them.",
            )


def _has_list_views(kind: Any) -> bool:
    from pyarrow import types

    parts = [kind.field(at).type for at in range(kind.num_fields)] if types.is_nested(kind) else []
    return types.is_list_view(kind) or types.is_large_list_view(kind) or any(map(_has_list_views, parts))


def _is_frame(given: Any) -> bool:
    """Return whether ``given`` is a frame of a library other than Spark, rather than a row or a column."""
    return _is_known(given) or hasattr(given, "__arrow_c_stream__") or _reader_of_dataset(given) is not given


def _reader_of_dataset(rows: Any) -> Any:
    """Return a reader of an Arrow dataset or scanner; anything else unchanged."""
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(rows, datasets.Dataset):
        rows = rows.scanner()
    return rows.to_reader() if datasets is not None and isinstance(rows, datasets.Scanner) else rows


def _is_known(rows: Any) -> bool:
    """Return whether :func:`to_arrow` converts ``rows`` as a whole, although they may be iterable or a stream."""
    import pyarrow as pa

    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    return (
        isinstance(rows, (pa.Table, pa.RecordBatch))
        or (pandas is not None and isinstance(rows, pandas.DataFrame))
        or (polars is not None and isinstance(rows, (polars.DataFrame, polars.LazyFrame)))
    )


def _cast_part(table: pa.Table, schema: pa.Schema, number: int) -> pa.Table:
    import pyarrow as pa

    hint = "Give every part the same columns, with types that fit those of the first."
    different = {*table.column_names} ^ {*schema.names}
    if different:
        listed = ", ".join(f"'{name}'" for name in sorted(different))
        raise InputError(f"Part {number} and part 1 have different columns: {listed}.", hint=hint)
    try:
        found = table.select(schema.names)
        for mine, first in zip(found.schema, schema, strict=True):
            if not _casts_safely(mine.type, first.type):
                raise InputError(
                    f"Part {number} and part 1 have different columns: '{mine.name}' is {mine.type}, not {first.type}.",
                    hint="The first part has no value to infer its type from: give it a type (pa.table with a schema)."
                    if pa.types.is_null(first.type)
                    else hint,
                )
        return found.cast(schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        problem = f"Part {number} and part 1 have different columns."
        raise InputError(problem, hint=hint, detail=first_line(error)) from error


def _casts_safely(narrow: Any, wide: Any) -> bool:  # noqa: PLR0911 - a line for each type
    """Return whether a cast keeps every value that fits and fails on any other."""
    from pyarrow import types

    if narrow == wide or types.is_null(narrow):
        return True
    if types.is_integer(narrow):
        return types.is_integer(wide) or types.is_floating(wide)
    if types.is_floating(narrow):
        return types.is_floating(wide) and narrow.bit_width <= wide.bit_width
    if types.is_decimal(narrow):
        return types.is_decimal(wide)
    if types.is_timestamp(narrow):
        return types.is_timestamp(wide) and (narrow.tz is None) == (wide.tz is None)
    if types.is_list(narrow):
        return types.is_list(wide) and _casts_safely(narrow.value_type, wide.value_type)
    if types.is_struct(narrow) and types.is_struct(wide) and narrow.num_fields == wide.num_fields:
        return all(a.name == b.name and _casts_safely(a.type, b.type) for a, b in zip(narrow, wide, strict=True))
    return False


def _require_rows(table: pa.Table | None) -> pa.Table:
    if table is None:
        raise _no_rows()
    return table


def _no_rows() -> InputError:
    return InputError("There are no rows, so the columns are unknown.", hint=f"Pass {KINDS}, with at least one row.")


def _arrow(rows: Any) -> pa.Table:
    import pyarrow as pa

    rows = _reader_of_dataset(rows)
    if isinstance(rows, pa.Table):
        return rows
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        if rows.columns.nlevels > 1:
            raise InputError(
                f"The frame's column names have {rows.columns.nlevels} levels; a table's have one.",
                hint="Join them: frame.columns = ['_'.join(map(str, names)) for names in frame.columns]",
            )
        for name in (name for name, kind in zip(rows.columns, rows.dtypes, strict=True) if kind.kind == "O"):
            if rows.columns.is_unique:
                _require_one_kind(str(name), rows[name])
        return _require_plain_columns(pa.Table.from_pandas(_with_index(rows), preserve_index=False))
    if polars is not None and isinstance(rows, (polars.DataFrame, polars.LazyFrame)):
        frame = rows.lazy().collect()
        for name, kind in frame.schema.items():
            if kind == polars.Object:  # Polars would return their addresses
                raise InputError(f"Column '{name}' has Python objects.", hint="Give it a type of Polars.")
        # Arrow can't convert all of Polars' newest types, such as categories of string views.
        found: pa.Table = frame.to_arrow(compat_level=polars.CompatLevel.oldest())
        return found
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise NotImplementedError


def _with_index(frame: Any) -> Any:
    """Return a pandas frame with the named levels of its index as columns: a group-by puts its keys there.

    An unnamed index of numbers only counts rows, and is dropped. Anything else is data that must not be lost. So an
    unnamed level is refused, and so is one with the name of a column that has different values.
    """
    import pandas as pd

    named = []
    for level, name in enumerate(frame.index.names):
        values = frame.index.get_level_values(level)
        if name is None and len(frame) and (frame.index.nlevels > 1 or values.dtype.kind not in "iu"):
            example = "'name'" if frame.index.nlevels == 1 else "['first', 'second']"
            raise InputError(
                "The frame's index has no name, so its values would be lost."
                if frame.index.nlevels == 1
                else f"Level {level + 1} of the frame's index has no name, so its values would be lost.",
                hint=f"To keep it as a column: frame.rename_axis({example}). To drop it: frame.reset_index(drop=True)",
            )
        if name is not None and name not in frame.columns:
            named.append(name)
        elif name is not None and frame.columns.is_unique and not values.equals(pd.Index(frame[name])):
            raise InputError(
                f"The frame has an index and a column called '{name}' with different values, so one would be lost.",
                hint="To keep both: frame.rename_axis('another_name'). To drop the index: frame.reset_index(drop=True)",
            )
    return frame.reset_index(level=named) if named else frame


def _require_plain_columns(table: pa.Table) -> pa.Table:
    """Refuse pandas' periods and intervals, which a file would hold as plain numbers."""
    for field in table.schema:
        kind = getattr(field.type, "extension_name", "")
        if kind.startswith("pandas."):
            raise InputError(
                f"Column '{field.name}' has values of type {kind}.", hint="Convert them to times or to text."
            )
    return table


def _arrow_of_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    pandas = sys.modules.get("pandas")
    missing = () if pandas is None else (id(pandas.NaT), id(pandas.NA))  # frame.to_dict("records") has them
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        if str(name) in columns:  # 1 and "1"
            raise InputError(f"Two keys of the rows are both written as '{name}'.", hint="Rename one of them.")
        values = [None if id(value := row.get(name)) in missing else value for row in rows]
        _require_one_kind(str(name), values)
        try:
            columns[str(name)] = pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"The values of '{name}' aren't of one type.", detail=first_line(error)) from error
    return pa.table(columns)


def _require_one_kind(name: str, values: Iterable[Any]) -> None:
    """Refuse values of several types that Arrow would convert to one, losing information."""
    seen = set(map(type, values)) - {type(None)}
    if len(seen) <= 1 and not any(issubclass(kind, (Mapping, list, tuple, dt.datetime)) for kind in seen):
        return
    first: dict[str, tuple[str, int]] = {}
    for number, value in enumerate(values, start=1):
        for at, kind in _kinds(value, name):
            known, row = first.setdefault(at, (kind, number))
            if kind != known:
                raise InputError(
                    f"The values of '{at}' aren't of one type: row {row} has {known}, row {number} {kind}.",
                    hint="Make them one type first.",
                )


def _kinds(value: Any, at: str) -> Iterator[tuple[str, str]]:
    plain = next((words for kinds, words in _SCALARS if isinstance(value, kinds)), None)
    if plain is not None:
        if value == value:  # noqa: PLR0124 - pandas' NaN isn't a value
            yield at, plain
    elif isinstance(value, dt.datetime):
        if value == value:  # noqa: PLR0124 - pandas' NaT is a time, too, and equals nothing
            yield at, "a time without a zone" if value.tzinfo is None else "a time with a zone"
    elif isinstance(value, dt.date):
        yield at, "a date"
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _kinds(part, f"{at}.{name}")
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _kinds(part, f"{at}[]")


def _unknown_type(rows: object) -> InputError:
    return InputError(f"Can't write rows of type {type(rows).__name__}.", hint=f"Pass {KINDS}.")


def _not_convertible(rows: object, error: Exception) -> InputError:
    library = type(rows).__module__.partition(".")[0].strip("_")
    return InputError(f"Can't convert this {library} {type(rows).__name__} to Arrow.", detail=first_line(error))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    # For a pandas column, Arrow gives the reason first and then the column.
    has_parts = len(error.args) > 1 and all(isinstance(part, str) for part in error.args)
    message = ": ".join(reversed(error.args)) if has_parts else str(error)
    return (message.splitlines() or [type(error).__name__])[0]
