"""Rows that users hand over, as Arrow: frames of other libraries, tables and readers, lists of dicts, generators."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError
from lakegate.table import Query, Table

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (
    "a Spark DataFrame, a pandas or Polars frame, a DuckDB relation, an Arrow table or reader, a list of dicts, or a "
    "generator of these"
)


def are_rows(given: object) -> bool:
    """Return whether what was handed over is rows, and not the names of files.

    Example:
        >>> are_rows("a.csv"), are_rows(["a.csv", "b.csv"]), are_rows([{"id": 1}])
        (False, False, True)
    """
    if isinstance(given, (str, Path)):
        return False
    if isinstance(given, Sequence):
        return any(isinstance(each, Mapping) for each in given)
    return not isinstance(given, (set, frozenset))


def spark_frame(given: object) -> Any:
    """Return a DataFrame of Spark, of any kind of session, or that of a query; ``None`` for anything else."""
    if isinstance(given, Query):
        return given.dataframe
    is_one = type(given).__module__.startswith("pyspark.sql") and type(given).__name__ == "DataFrame"
    return given if is_one else None


def to_batches(rows: Any) -> tuple[pa.Schema, Iterator[Any]]:
    """Return the schema of ``rows`` and their batches, few of them in memory where the library allows it.

    Raises:
        InputError: When they are of an unknown kind, or there are none, so that nothing says what the columns are.
    """
    import pyarrow as pa

    from lakegate.iceberg.scan import plain_schema

    if isinstance(rows, Table):
        rows = rows.to_batches()
    if isinstance(rows, pa.RecordBatchReader) or (not _is_known(rows) and hasattr(rows, "__arrow_c_stream__")):
        reader = rows if isinstance(rows, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(rows)
        return plain_schema(reader.schema), iter(reader)
    if not isinstance(rows, Iterable) or _is_known(rows) or isinstance(rows, Sequence):
        table = _some(to_arrow(rows))
        return table.schema, iter(table.to_batches())
    parts = iter(rows)
    first = next(parts, None)
    if first is None:
        raise _no_rows()
    if isinstance(first, Mapping):
        table = _some(to_arrow([first, *parts]))
        return table.schema, iter(table.to_batches())
    head = _some(to_arrow(first))
    others = (made for part in parts if (made := to_arrow(part)) is not None)
    tables = chain([head], others)
    return head.schema, (_same(one, head.schema, number) for number, one in enumerate(tables, start=1))


def to_arrow(rows: Any) -> pa.Table | None:
    """Return ``rows`` as an Arrow table of types that Spark has; ``None`` for an empty list.

    Raises:
        InputError: When they're of an unknown kind, or their library can't turn them into Arrow.
    """
    import pyarrow as pa

    from lakegate.iceberg.scan import plain_schema

    if isinstance(rows, Sequence) and not isinstance(rows, str) and all(isinstance(row, Mapping) for row in rows):
        return _arrow_of_dicts(rows) if rows else None
    try:
        table = _arrow(rows)
        return table.cast(plain_schema(table.schema))
    except NotImplementedError as error:
        if not isinstance(error, pa.ArrowException):
            raise InputError(f"Can't write rows of type {type(rows).__name__}.", hint=f"Hand over {KINDS}.") from None
        raise _unwritable(rows, error) from error
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _unwritable(rows, error) from error


def _is_known(rows: Any) -> bool:
    """Return whether :func:`to_arrow` takes it as a whole, though it may be iterable or a stream."""
    import pyarrow as pa

    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    return (
        isinstance(rows, (pa.Table, pa.RecordBatch))
        or (pandas is not None and isinstance(rows, pandas.DataFrame))
        or (polars is not None and isinstance(rows, (polars.DataFrame, polars.LazyFrame)))
    )


def _same(table: pa.Table, schema: pa.Schema, number: int) -> pa.Table:
    import pyarrow as pa

    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"Part {number} has other columns than part 1: {first_line(error)}",
            hint="Give every part the same columns, in types that the first one's hold.",
        ) from error


def _some(table: pa.Table | None) -> pa.Table:
    if table is None:
        raise _no_rows()
    return table


def _no_rows() -> InputError:
    return InputError("There are no rows, and so no columns either.", hint=f"Hand over {KINDS}, with at least one row.")


def _arrow(rows: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if polars is not None and isinstance(rows, (polars.DataFrame, polars.LazyFrame)):
        frame = rows.lazy().collect()
        for name, kind in frame.schema.items():
            if kind == polars.Object:  # of which Polars hands out the addresses
                raise TypeError(f"column '{name}' holds Python objects")
        # Of its newest types, such as categories of string views, Arrow can convert but some.
        found: pa.Table = frame.to_arrow(compat_level=polars.CompatLevel.oldest())
        return found
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise NotImplementedError


def _arrow_of_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    names = rows[0].keys()
    for number, row in enumerate(rows, start=1):
        if row.keys() != names:
            different = ", ".join(f"'{name}'" for name in sorted(map(str, row.keys() ^ names)))
            raise InputError(
                f"Row {number} has other keys than row 1: {different}.",
                hint="Give every row all columns; None where there is no value.",
            )
    columns = {}
    for name in names:
        try:
            columns[str(name)] = pa.array([row[name] for row in rows])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"The values of '{name}' are not of one type: {first_line(error)}") from error
    return pa.table(columns)


def _unwritable(rows: object, error: Exception) -> InputError:
    library = type(rows).__module__.partition(".")[0].strip("_")
    return InputError(f"This {type(rows).__name__} of {library} can't be written: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Return the first line of an error's words."""
    return (str(error).splitlines() or [type(error).__name__])[0]
