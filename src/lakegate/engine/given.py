"""Rows that a user hands over, whatever they are held in, as a DataFrame of our session."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = "a Spark DataFrame of this transaction, a pyarrow.Table, a pandas DataFrame or a list of dicts"


def given_frame(session: Any, rows: Any) -> Any:
    """Return ``rows`` as a DataFrame of ``session``; ``None`` for an empty list, which has no columns.

    Args:
        session: The transaction's session.
        rows: A DataFrame of that very session, an Arrow table, a pandas frame (its index is left out), or a list of
            dicts that all have the same keys.

    Raises:
        InputError: When it is something else, of another session, or holds values that Spark has no type for.
    """
    from pyspark.errors import PySparkTypeError, PySparkValueError  # noqa: PLC0415 - heavy
    from pyspark.sql import DataFrame  # noqa: PLC0415

    if isinstance(rows, DataFrame):
        if rows.sparkSession is not session:
            raise InputError(
                "This DataFrame belongs to another Spark session than the transaction's.",
                hint="Make it with tx.table() or tx.sql(), or hand it over as Arrow: frame.toArrow().",
            )
        return rows
    table = _arrow(rows)
    if table is None:
        return None
    try:
        return session.createDataFrame(table, schema=_spark_schema(table))
    except (PySparkTypeError, PySparkValueError, ValueError, TypeError) as error:
        raise InputError(f"Spark cannot take these rows: {_first_line(error)}", hint="Convert the column.") from error


def _arrow(rows: Any) -> pa.Table | None:
    import pyarrow as pa  # noqa: PLC0415 - heavy

    if isinstance(rows, pa.Table):
        return rows
    pandas = sys.modules.get("pandas")
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        return _arrow_of_dicts(rows) if rows else None
    try:
        if pandas is not None and isinstance(rows, pandas.DataFrame):
            return pa.Table.from_pandas(rows, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"This pandas frame cannot be written: {_first_line(error)}") from error
    raise InputError(f"Rows of type {type(rows).__name__} cannot be written.", hint=f"Hand over {_KINDS}.")


def _arrow_of_dicts(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - heavy

    names = rows[0].keys()
    for number, row in enumerate(rows, start=1):
        if row.keys() != names:
            different = ", ".join(f"'{name}'" for name in sorted(map(str, row.keys() ^ names)))
            raise InputError(
                f"Row {number} of the given rows has other keys than row 1: {different}.",
                hint="Give every row all columns; None where there is no value.",
            )
    columns = {}
    for name in names:
        try:
            columns[str(name)] = pa.array([row[name] for row in rows])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"The values of '{name}' are not of one type: {_first_line(error)}") from error
    return pa.table(columns)


def _spark_schema(table: pa.Table) -> Any:
    # Left to itself, Spark would take times without a zone for instants.
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - heavy

    return from_arrow_schema(table.schema, prefer_timestamp_ntz=True)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
