"""Users' rows as DataFrames, upserts of them, and DataFrames as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakegate.errors import InputError, SchemaError
from lakegate.frames import first_line, to_arrow
from lakegate.spark.failures import spark_errors
from lakegate.spark.sessions import is_connect

if TYPE_CHECKING:
    import pyarrow as pa

_EXAMPLES = 5
_WITHOUT_ARROW_TYPE = {"variant": "to_json(v)", "geometry": "hex(st_asbinary(g))", "geography": "hex(st_asbinary(g))"}
"""Types that Arrow lacks, by Spark's names, with an expression that converts a value."""


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
    from pyspark.sql.pandas.types import from_arrow_schema

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
        # By default, Spark would read timestamps without a zone as instants.
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return session.createDataFrame(table, schema=schema)
    except (PySparkTypeError, PySparkValueError, ValueError, TypeError) as error:
        raise InputError(
            "Spark can't read these rows.",
            hint="Nothing was written. Convert the column to a type that Spark has.",
            detail=first_line(error),
        ) from error


def require_arrow_types(frame: Any) -> None:
    """Refuse columns whose type Arrow lacks. PySpark would turn their values into structs of bytes.

    Raises:
        SchemaError: It names the column.
    """
    for field in frame.schema.fields:
        found = next((kind for kind in _type_names(field.dataType) if kind in _WITHOUT_ARROW_TYPE), None)
        if found is not None:
            raise SchemaError(
                f"Column '{field.name}' has values of type {found}, which an ingest would write as bytes.",
                hint=f"Convert them in the query, to text for example: {_WITHOUT_ARROW_TYPE[found]}. Or write the rows "
                "with SQL in a transaction.",
                column=field.name,
            )


def _type_names(kind: Any) -> Iterator[str]:
    """Yield the names of a Spark type and of all types in it."""
    yield kind.typeName()
    inner = (getattr(kind, name, None) for name in ("elementType", "keyType", "valueType"))
    for part in (*(one for one in inner if one is not None), *(one.dataType for one in getattr(kind, "fields", ()))):
        yield from _type_names(part)


def to_batches(frame: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return a DataFrame's schema, and its rows as Spark Connect streams them. A classic session sends all at once.

    Raises:
        LakegateError: When the query fails, also while the rows are read.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from lakegate.iceberg.arrow_types import plain_schema

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
