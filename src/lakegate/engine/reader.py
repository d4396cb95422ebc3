"""Source files as Spark DataFrames."""

from __future__ import annotations

from typing import Any

from lakegate.engine.types import spark_type
from lakegate.model.batch import Batch, CsvOptions
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema

_ARROW_TO_SPARK = {
    "bool": "boolean",
    "int64": "bigint",
    "double": "double",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
    "string": "string",
}


def read_batch(session: Any, batch: Batch) -> Any:
    """Return the batch as a DataFrame with the types it will be written with."""
    if batch.format == "csv":
        return _read_csv(session, batch)
    frame = session.read.parquet(*map(spark_path, batch.uris))
    if not any(column.type.startswith("timestamp[ns") for column in batch.columns):
        return frame
    return frame.selectExpr(*(_microseconds(column.name, column.type) for column in batch.columns))


def cast_to(frame: Any, schema: Schema, source: Schema) -> Any:
    """Return ``frame`` with the columns of ``schema``, by name, in its order and types.

    ``source`` is the frame's own schema, so that columns that fit already are left alone.
    """
    expressions = []
    for column in schema.columns:
        name = quote(column.name)
        found = source.find(column.name)
        target = spark_type(column.type)
        if found is None:
            expressions.append(f"CAST(NULL AS {target}) AS {name}")
        elif target is None or found.type == column.type:
            expressions.append(f"{quote(found.name)} AS {name}")
        else:
            expressions.append(f"CAST({quote(found.name)} AS {target}) AS {name}")
    return frame.selectExpr(*expressions)


def spark_path(uri: str) -> str:
    """Return a file URI as a path that Spark reads literally: it takes every path for a glob."""
    return uri


def _read_csv(session: Any, batch: Batch) -> Any:
    schema = ", ".join(f"{quote(column.name)} {_ARROW_TO_SPARK[column.type]}" for column in batch.columns)
    options = _csv_options(batch.csv or CsvOptions(), multiline=batch.multiline)
    return session.read.schema(schema).options(**options).csv(list(map(spark_path, batch.uris)))


def _csv_options(csv: CsvOptions, *, multiline: bool) -> dict[str, str]:
    return {
        "mode": "FAILFAST",
        "header": str(csv.header).lower(),
        "enforceSchema": "false",
        "sep": csv.delimiter,
        "quote": csv.quote,
        "escape": csv.quote,
        "encoding": csv.encoding,
        "nullValue": csv.null_values[0] if csv.null_values else "",
        "multiLine": str(multiline).lower(),
    }


def _microseconds(name: str, arrow_type: str) -> str:
    column = quote(name)
    if not arrow_type.startswith("timestamp[ns"):
        return column
    micros = f"timestamp_micros({column} DIV 1000)"
    return f"{micros} AS {column}" if "tz=" in arrow_type else f"CAST({micros} AS TIMESTAMP_NTZ) AS {column}"
