"""Rows of other libraries become Arrow that Spark takes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType, VariantType

from lakegate.errors import InputError, SchemaError
from lakegate.frames import to_arrow
from lakegate.spark.dataframes import require_arrow_types

ROWS: list[dict[str, Any]] = [
    {"n": 1, "s": "x", "t": datetime(2024, 1, 1), "d": date(2024, 1, 31), "p": Decimal("1.50"), "l": ["a"]},
    {"n": None, "s": None, "t": None, "d": None, "p": None, "l": None},
]
WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "Arrow table": lambda table: table,
    "Arrow batch": lambda table: table.combine_chunks().to_batches()[0],
    "Arrow reader": pa.Table.to_reader,
    "Polars": pl.from_arrow,
    "Polars, lazy": lambda table: pl.DataFrame(table).lazy(),
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "DuckDB": duckdb.from_arrow,
    "dicts": pa.Table.to_pylist,
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_the_same_from_every_library(way: str) -> None:
    given = pa.Table.from_pylist(ROWS)
    found = to_arrow(WAYS[way](given))
    assert found is not None
    assert found.to_pylist() == ROWS
    types = {field.name: str(field.type).partition("<")[0] for field in found.schema}
    assert types == {
        "n": "int64",
        "s": "string",
        "t": "timestamp[us]",
        "d": "date32[day]",
        "p": "decimal128(3, 2)",
        "l": "list",
    }


def test_categories_views_and_unsigned_numbers_become_what_spark_has() -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["p", "q"], dtype=pl.Categorical),
            "e": pl.Series(["p", "q"], dtype=pl.Enum(["p", "q"])),
            "u": pl.Series([1, 2**32 - 1], dtype=pl.UInt32),
            "s": [{"k": "v"}, None],
        }
    )
    found = to_arrow(frame)
    assert found is not None
    assert [str(field.type) for field in found.schema] == ["string", "string", "int64", "struct<k: string>"]
    assert found.to_pylist()[1] == {"c": "q", "e": "q", "u": 2**32 - 1, "s": None}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("text", "Can't write rows of type str"),
        (7, "Can't write rows of type int"),
        ([1, 2], "Can't write rows of type list"),
        (pd.DataFrame({"x": [1, "a"]}), "row 1 has a number, row 2 a string"),
        (pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}), "Column 'x' has Python objects"),
    ],
)
def test_what_cannot_be_written_is_said(rows: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        to_arrow(rows)


def test_an_empty_list_has_no_columns() -> None:
    assert to_arrow([]) is None


@pytest.mark.parametrize("wrapped", [lambda kind: kind, ArrayType, lambda kind: StructType([StructField("s", kind)])])
def test_variants_are_not_ingested_as_bytes(wrapped: Callable[[DataType], DataType]) -> None:
    def frame(kind: DataType) -> Any:
        return SimpleNamespace(schema=StructType([StructField("v", wrapped(kind))]))

    require_arrow_types(frame(StringType()))
    with pytest.raises(SchemaError, match="Column 'v' has values of type variant"):
        require_arrow_types(frame(VariantType()))
