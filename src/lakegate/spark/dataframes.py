"""Convert users' rows to Spark DataFrames, and DataFrames to Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError
from lakegate.frames import first_line, to_arrow
from lakegate.spark.failures import spark_errors
from lakegate.spark.sessions import is_connect

if TYPE_CHECKING:
    import pyarrow as pa


def to_frame(session: Any, rows: Any) -> Any:
    """Return ``rows`` as a DataFrame of ``session``; ``None`` for an empty list, which has no columns.

    Args:
        rows: A DataFrame of that very session; a pandas DataFrame (a named index becomes a column); a Polars DataFrame,
            a DuckDB relation, an Arrow table or any other Arrow stream (``__arrow_c_stream__``); or a list of dicts, in
            which missing keys are NULL.

    Raises:
        InputError: When it's something else, belongs to another session, or has values that Spark has no type for.
    """
    from pyspark.errors import PySparkTypeError, PySparkValueError
    from pyspark.sql import DataFrame

    if isinstance(rows, DataFrame):
        if rows.sparkSession is not session:
            raise InputError(
                "This DataFrame belongs to another Spark session than the transaction's.",
                hint="Create it with tx.table() or tx.sql(), or pass it as Arrow: frame.toArrow().",
            )
        return rows
    table = to_arrow(rows)
    if table is None:
        return None
    try:
        return session.createDataFrame(table, schema=_spark_schema(table))
    except (PySparkTypeError, PySparkValueError, ValueError, TypeError) as error:
        raise InputError(
            f"Spark can't read these rows: {first_line(error)}",
            hint="Nothing was written. Convert the column to a type that Spark has.",
        ) from error


def to_batches(frame: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return a DataFrame's schema, and its rows as Spark Connect streams them. A classic session sends all at once.

    Raises:
        LakegateError: When the query fails, also while the rows are read.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from lakegate.iceberg.scan import plain_schema

    with spark_errors("running the query", query=True):
        schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True)
        if any(pa.types.is_nested(kind) for kind in schema.types):
            schema = plain_schema(schema)
    return schema, _batches(frame, schema)


def _batches(frame: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with spark_errors("running the query", query=True):
        if not is_connect(frame.sparkSession):
            yield from frame.toArrow().cast(schema).to_batches()
            return
        client = frame.sparkSession.client
        plan = frame._plan  # noqa: SLF001 - like DataFrame.toLocalIterator, which would create a Row per row
        for part in client.to_table_as_iterator(plan.to_proto(client), plan.observations):
            if hasattr(part, "to_batches"):  # the first one is the schema
                yield from part.cast(schema).to_batches()


def _spark_schema(table: pa.Table) -> Any:
    # By default, Spark would read timestamps without a zone as instants.
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
