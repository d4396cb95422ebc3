"""What the engine asks Iceberg for, by a session that only writes it down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.tables import AddedRows
from lakegate.spark.engine import SparkEngine
from lakegate.spark.failures import LOSES
from lakegate.spark.reader import with_fields

TRIPS = TableIdentifier.parse("nyc.trips")


class _Reader:
    """A reader, and the DataFrame that it gives."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.filters: list[str] = []
        self.selected: list[tuple[str, ...]] = []

    dtypes = (("id", "bigint"),)
    columns = ("id",)

    def option(self, name: str, value: str) -> _Reader:
        self.options[name] = value
        return self

    def table(self, _: str) -> _Reader:
        return self

    def where(self, predicate: str) -> _Reader:
        self.filters.append(predicate)
        return self

    def selectExpr(self, *columns: str) -> _Reader:
        self.selected.append(columns)
        return self

    def collect(self) -> list[Any]:
        return [(0, None)]


def test_no_filter_is_pushed_down_on_files_that_others_measured() -> None:
    reader = _Reader()
    engine = SparkEngine(lambda _: SimpleNamespace(read=reader), lambda _: {}, shares_files=True)
    engine.aggregate(
        AddedRows(table=TRIPS, ref="main", after_snapshot_id=1, snapshot_id=2, where="id > 0"), ["max(id)"]
    )
    assert reader.filters == ["coalesce(CAST((id > 0) AS STRING), '') = 'true'"]


def test_no_filter_on_an_opaque_column_is_pushed_down() -> None:
    reader = _Reader()
    engine = SparkEngine(lambda _: SimpleNamespace(read=reader), lambda _: {}, shares_files=True)
    rows = TableAt(table=TRIPS, ref="main", hash="ab", without=("f",), where="id > 0", opaque=("id",))
    engine.aggregate(rows, ["max(id)"])
    assert reader.filters == ["_file NOT IN ('f')", "id > 0"]
    assert reader.selected[0] == ("element_at(array(`id`), 1) AS `id`",)


def test_structs_get_the_fields_they_lack_and_lose_none() -> None:
    kinds = {
        "grown": (StructType().add("id", "long"), StructType().add("id", "long").add("version", "string")),
        "fixed": (StructType().add("fee", DecimalType(2, 1)), StructType().add("fee", "double").add("id", "long")),
        "misspelt": (StructType().add("verzion", "string"), StructType().add("version", "string")),
    }
    rows, table = (
        SimpleNamespace(
            schema=StructType([StructField(name, kind[at]) for name, kind in kinds.items()]),
            selectExpr=lambda *columns: columns,
        )
        for at in (0, 1)
    )
    grown, fixed, misspelt = with_fields(rows, table, fills=True)
    assert "CAST(NULL AS string)" in grown
    assert "CAST(`fixed`.`fee` AS double)" in fixed
    assert misspelt == "`misspelt`"  # which Spark refuses


@pytest.mark.parametrize(
    ("own", "there", "fails"),
    [
        (DoubleType(), LongType(), True),
        (DecimalType(4, 3), DecimalType(9, 2), True),
        (DoubleType(), DecimalType(9, 2), True),
        (TimestampNTZType(), DateType(), True),
        (LongType(), FloatType(), True),
        (IntegerType(), LongType(), False),
        (DecimalType(4, 2), DecimalType(9, 2), False),
        (DoubleType(), FloatType(), True),  # if it becomes infinite
        (StringType(), IntegerType(), False),  # which Spark refuses
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_rows_of_a_user_are_never_rounded(own: DataType, there: DataType, *, nested: bool, fails: bool) -> None:
    def frame(kind: DataType) -> Any:
        struct = StructType().add("a", kind)
        schema = StructType().add("s", struct) if nested else struct
        return SimpleNamespace(schema=schema, selectExpr=lambda *columns: columns)

    (column,) = with_fields(frame(own), frame(there), fills=False)
    assert (LOSES in column) == fails
    if not fails:
        assert column == ("`s`" if nested else "`a`")


@pytest.mark.parametrize(
    ("beside", "there"),
    [
        (LongType(), IntegerType()),
        (LongType(), DecimalType(9, 2)),
        (LongType(), StringType()),
        (TimestampNTZType(), TimestampType()),
        (NullType(), StringType()),
        (NullType(), StructType().add("x", IntegerType())),
        (VariantType(), VariantType()),
        (MapType(IntegerType(), IntegerType()), MapType(LongType(), IntegerType())),
    ],
)
def test_no_field_is_rounded_because_spark_converts_another(beside: DataType, there: DataType) -> None:
    def frame(number: DataType, other: DataType) -> Any:
        schema = StructType().add("s", StructType().add("a", number).add("b", other))
        return SimpleNamespace(schema=schema, selectExpr=lambda *columns: columns)

    (column,) = with_fields(frame(DoubleType(), beside), frame(LongType(), there), fills=False)
    assert LOSES in column


def test_no_value_of_a_map_is_rounded_because_its_keys_are_converted() -> None:
    def frame(key: DataType, value: DataType) -> Any:
        schema = StructType().add("m", MapType(key, value))
        return SimpleNamespace(schema=schema, selectExpr=lambda *columns: columns)

    (column,) = with_fields(frame(IntegerType(), DoubleType()), frame(LongType(), LongType()), fills=False)
    assert LOSES in column
    assert "transform_keys(`m`, (k0, v0) -> CAST(k0 AS bigint))" in column
