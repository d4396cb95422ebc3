"""Rows that users hand over, as a Spark DataFrame: frames of other libraries, Arrow, lists of dicts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = (
    "a Spark DataFrame of this transaction, a pandas or Polars frame, a DuckDB relation, an Arrow table, or a list of "
    "dicts"
)


def to_frame(session: Any, rows: Any) -> Any:
    """Return ``rows`` as a DataFrame of ``session``; ``None`` for an empty list, which has no columns.

    Args:
        rows: A DataFrame of that very session; a pandas frame (its index is left out); a Polars frame, a DuckDB
            relation, an Arrow table, or whatever else is an Arrow stream (``__arrow_c_stream__``); or a list of dicts
            that all have the same keys.

    Raises:
        InputError: When it is something else, of another session, or holds values that Spark has no type for.
    """
    from pyspark.errors import PySparkTypeError, PySparkValueError
    from pyspark.sql import DataFrame

    if isinstance(rows, DataFrame):
        if rows.sparkSession is not session:
            raise InputError(
                "This DataFrame belongs to another Spark session than the transaction's.",
                hint="Make it with tx.table() or tx.sql(), or hand it over as Arrow: frame.toArrow().",
            )
        return rows
    table = to_arrow(rows)
    if table is None:
        return None
    try:
        return session.createDataFrame(table, schema=_spark_schema(table))
    except (PySparkTypeError, PySparkValueError, ValueError, TypeError) as error:
        raise InputError(f"Spark can't take these rows: {_first_line(error)}", hint="Convert the column.") from error


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
            raise InputError(f"Can't write rows of type {type(rows).__name__}.", hint=f"Hand over {_KINDS}.") from None
        raise _unwritable(rows, error) from error
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _unwritable(rows, error) from error


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
            raise InputError(f"The values of '{name}' are not of one type: {_first_line(error)}") from error
    return pa.table(columns)


def _unwritable(rows: object, error: Exception) -> InputError:
    library = type(rows).__module__.partition(".")[0].strip("_")
    return InputError(f"This {type(rows).__name__} of {library} can't be written: {_first_line(error)}")


def _spark_schema(table: pa.Table) -> Any:
    # Left to itself, Spark would take times without a zone for instants.
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema, prefer_timestamp_ntz=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
