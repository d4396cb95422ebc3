"""Row filters: the rows they keep are those that SQL keeps, by the word of another engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.expressions.visitors import bind, extract_field_ids, inclusive_projection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakegate.errors import InputError
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.iceberg.where import parse_where
from lakegate.table import Table
from support.iceberg_tables import iceberg_tables, pointer_to

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "i", IntegerType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d", DoubleType()),
    NestedField(5, "p", DecimalType(9, 2)),
    NestedField(6, "name", StringType()),
    NestedField(7, "ts", TimestampType()),
    NestedField(8, "tz", TimestamptzType()),
    NestedField(9, "day", DateType()),
    NestedField(10, "ok", BooleanType()),
    NestedField(11, "place", StructType(NestedField(12, "zone", IntegerType()))),
    NestedField(13, "日付 ok", LongType()),
    NestedField(14, "raw", BinaryType()),
    NestedField(15, "a.b", LongType()),
)
LAST = (date.max, time.max)
SPEC = PartitionSpec(PartitionField(6, 1000, IdentityTransform(), "name"))


def row(number: int, **values: Any) -> dict[str, Any]:
    empty = {field.name: None for field in SCHEMA.fields}
    return {**empty, "id": number, **values}


ROWS = [
    row(0),
    row(1, i=1, f=0.1, d=0.1, p=Decimal("1.55"), name="New York", ok=True),
    row(2, i=-(2**31), f=float("nan"), d=float("nan"), p=Decimal("-1.56"), name="it's", ok=False),
    row(3, i=2**31 - 1, f=0.5, d=-0.0, p=Decimal("9999999.99"), name="100%_x", place={"zone": 4}),
    row(4, i=2, f=float("inf"), d=1e308, p=Decimal("1.56"), name="", place={"zone": None}, ts=datetime(2024, 1, 31)),
    row(5, ts=datetime(2024, 1, 31, 7, 0, 0, 1), tz=datetime(2024, 1, 31, 7, tzinfo=UTC), day=date(2024, 1, 31)),
    row(
        6, ts=datetime(1969, 12, 31, 23, 59), tz=datetime(1969, 12, 31, tzinfo=UTC), day=date(1969, 12, 31), name="new"
    ),
]
FILTERS = """
i > 1 | i = 1.5 | i != 1.5 | i < 1.5 | i >= -1.5 | NOT i < 1.5 | i < 3000000000 | i > -3000000000 | i <> 3000000000
f > 0.1 | f = 0.1 | f <= 0.1 | NOT f <= 0.1 | f = 0.5 | f >= 0.5 | f < 1e30
d > 0 | d >= 0 | d = 0 | d != 0.1 | NOT (d < 5) | NOT d > 5 | isnan(d)
d IN (0.1, 7) | d NOT IN (0.1, 7) | d IN (0, 7) | d NOT IN (0, 7)
p = 1.55 | p < 1.555 | p > 1.555 | p >= -1.555 | p != 1.555
p < 1e12 | p > -1e12 | p IN (1.555, 1.56) | p NOT IN (1.555)
name = 'it''s' | name != 'it''s' | NOT name = '' | name LIKE 'New%'
name NOT LIKE 'New%'
name LIKE '' | name LIKE '%'
name LIKE 'new' | name NOT LIKE '%' | startswith(name, 'Ne') | name IN ('new', '') | NOT name IN ('new', '')
ts >= '2024-01-31' | ts > '2024-01-31 07:00:00' | ts = TIMESTAMP '2024-01-31 00:00:00' | ts < '1970-01-01'
ts NOT BETWEEN '2024-01-01' AND '2024-01-31' | tz = '2024-01-31 08:00:00+01:00' | tz < '2024-01-31T07:00:00Z'
day = '2024-01-31' | day <> DATE '2024-01-31' | day BETWEEN '1969-01-01' AND '1970-01-01'
ok | NOT ok | ok = true | ok IS TRUE | ok IS NOT TRUE | ok IS FALSE | NOT (ok IS FALSE) | ok <> false
name IS NULL | name IS NOT NULL | NOT name IS NULL | place.zone = 4 | place.zone IS NULL | place.zone > 1
i = 1 OR name = 'new' AND d IS NULL | (i = 1 OR name = 'new') AND d IS NULL | NOT (i = 1 OR NOT (name = 'new'))
true | false | NOT true | 1 < i | 2 >= i | ID = 3 -- a comment
""".replace("\n", "|").split("|")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with iceberg_tables(tmp_path_factory.mktemp("where")) as tables:
        made = tables.create(schema=SCHEMA, spec=SPEC)
        made.append(pa.Table.from_pylist(ROWS, schema=made.schema().as_arrow()))
        yield Table(pointer_to(made), IcebergTableReader())


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.sql("CREATE MACRO startswith(text, prefix) AS starts_with(text, prefix)")
        connection.register("given", pa.Table.from_pylist(ROWS, schema=SCHEMA.as_arrow()))
        # Not in Arrow's memory: Arrow would filter it, by rules of its own. A 32-bit float is compared as in Spark.
        connection.sql("CREATE TABLE rows AS SELECT * REPLACE (f::DOUBLE AS f) FROM given")
        yield connection


def kept_ids(table: Table, text: str) -> list[int]:
    found: list[Any] = table.to_arrow(columns=["id"], where=text)["id"].to_pylist()
    return sorted(found)


def test_a_filter_keeps_the_rows_that_sql_keeps(table: Table, oracle: duckdb.DuckDBPyConnection) -> None:
    asked = [text.strip() for text in FILTERS if text.strip()]
    kept = {text: kept_ids(table, text) for text in asked}
    sql = {
        text: [n for (n,) in oracle.sql(f"SELECT id FROM rows WHERE {text}\n ORDER BY id").fetchall()] for text in asked
    }
    assert kept == sql
    assert len({tuple(ids) for ids in kept.values()}) > 25


def test_names_are_found_whatever_their_case_and_letters(table: Table) -> None:
    kept = table.to_arrow(columns=["ID"], where="`日付 OK` IS NULL AND NAME = 'new'")
    assert kept.to_pydict() == {"id": [6]}


def test_null_is_not_nan_as_spark_has_it(table: Table) -> None:
    assert kept_ids(table, "NOT isnan(d)") == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("isnan(d)", [1]),
        ("d != 5", [1]),
        ("d > 5", [1]),
        ("d >= 5", [0, 1, 2]),
        ("NOT isnan(d)", [0, 2]),
        ("id > 0 AND d != 5", [1]),
        ("id > 5 OR f > 5", [1]),
    ],
)
def test_nan_is_found_beside_a_single_other_value(tmp_path: Path, text: str, kept: list[int]) -> None:
    # Arrow's bounds of such a row group are 5.0 and 5.0.
    rows = [row(0, f=5.0, d=5.0), row(1, f=float("nan"), d=float("nan")), row(2, f=5.0, d=5.0)]
    with iceberg_tables(tmp_path) as tables:
        made = tables.create(schema=SCHEMA)
        made.append(pa.Table.from_pylist(rows, schema=made.schema().as_arrow()))
        assert kept_ids(Table(pointer_to(made), IcebergTableReader()), text) == kept


def test_times_are_compared_with_the_ends_of_the_calendar(tmp_path: Path) -> None:
    ends = [datetime.combine(day, at) for day, at in ((date.min, time.min), (date(2026, 1, 31), time()), LAST)]
    rows = [row(at, ts=end, tz=end.replace(tzinfo=UTC), day=end.date()) for at, end in enumerate(ends)]
    spec = PartitionSpec(*(PartitionField(one, 1000 + one, MonthTransform(), f"m{one}") for one in (7, 8, 9)))
    with iceberg_tables(tmp_path) as tables:
        made = tables.create(schema=SCHEMA)
        made.append(pa.Table.from_pylist(rows, schema=made.schema().as_arrow()))
        table = Table(pointer_to(made), IcebergTableReader())
        for column in ("day", "ts", "tz"):
            last = "9999-12-31" if column == "day" else "9999-12-31 23:59:59.999999"
            for text, kept in {
                f"{column} < '0001-01-01' OR {column} > '{last}'": [],
                f"{column} > '0001-01-01' AND {column} < '{last}'": [1],
                f"NOT ({column} >= '{last}' OR {column} <= '0001-01-01')": [1],
            }.items():
                assert kept_ids(table, text) == kept
                inclusive_projection(SCHEMA, spec)(parse_where(text, SCHEMA))  # looked for the day before year 1


def test_a_long_list_and_a_long_chain_are_fine(table: Table) -> None:
    chain = " OR ".join(f"id = {number}" for number in range(3, 1_500))
    listed = f"id IN ({', '.join(map(str, range(3, 1_500)))})"
    for text in (chain, listed):
        assert table.to_arrow(where=text).num_rows == 4


def test_files_that_the_filter_rules_out_are_not_opened(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("lakegate.iceberg.files.TableFiles.open", _noting(opened))
    assert table.to_arrow(where="name >= 'i'").num_rows == 2
    assert sum(path.endswith(".parquet") for path in opened) == 2


def _noting(opened: list[str]) -> Any:
    from lakegate.iceberg.files import TableFiles

    original = TableFiles.open

    def noting(files: TableFiles, location: str) -> Any:
        opened.append(location)
        return original(files, location)

    return noting


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae = 'x'", "no column 'nmae'"),
        ("name = 5", "has type string: put the value in quotes"),
        ("id = 'x'", "text 'x'; leave out the quotes"),
        ("ok = 1", "can't be compared with 1"),
        ("ts = '2024'", "write it as 2024-01-31"),
        ("ts = '2024-02-30'", "day is out of range"),
        ("ts = '2024-01-31 00:00:00Z'", "has no time zone"),
        ("day = '2024-01-31 07:00'", "it has a time of day"),
        ("f < 1e39", r"1e\+39 is out of its range"),
        ("d < 1e999999999", "larger than any number"),
        ("d < 1e99999999999999999999", "has too large an exponent"),
        ("id > 1e-99999999999999999999", "has too large an exponent"),
        ("tz < '9999-12-31 23:59:59-05:00'", "date value out of range"),
        ("raw = 'x'", "only IS NULL and IS NOT NULL work"),
        ("place = 1", "Compare one of its fields: place.zone"),
        ("`a.b` = 1", "has a dot"),
        ("i = NULL", "use IS NULL"),
        ("i NOT IN (1, NULL)", "use IS NULL"),
        ("i = id", "'id' isn't a value"),
        ("'i' = 1", "expected a column, not '1'"),
        ("upper(name) = 'X'", r"it calls upper\(\)"),
        ("name LIKE '%x'", "isn't a prefix"),
        ("i IN (SELECT 1)", "'SELECT' isn't a value"),
        ("i =", "expected a value at the end"),
        ("i = 1 name", "expected AND, OR or the end, not 'name' at line 1, column 7"),
        ("i = 1; DROP TABLE t", "more than one statement"),
        ("i", "a comparison after 'i'"),
        ("i = 1.2.3", "'1.2.3' isn't a number"),
        ("(i = 1", "never closed"),
        ("(" * 101 + "ok" + ")" * 101, "more than 100 levels deep"),
        ("name IS 1", "NULL or NOT NULL"),
        ("name = 'x", "never closed"),
        ("", "it's empty"),
    ],
)
def test_a_filter_that_cannot_be_used_says_why(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_where(text, SCHEMA)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tags IS NOT NULL", "'tags': it's a list"),
        ("tags.element = 'x'", "'tags': it's a list"),
        ("places.value IS NULL", "'places': it's a map"),
        ("trip.stops IS NULL", "'trip.stops': it's a list"),
    ],
)
def test_lists_and_maps_cannot_be_compared(text: str, says: str) -> None:
    schema = Schema(
        NestedField(1, "tags", ListType(10, StringType())),
        NestedField(2, "places", MapType(11, StringType(), 12, LongType())),
        NestedField(3, "trip", StructType(NestedField(13, "stops", ListType(14, StringType())))),
    )
    with pytest.raises(InputError, match=says):
        parse_where(text, schema)


def test_a_column_whose_name_has_dots_is_found_as_one_without_quotes() -> None:
    nested = StructType(NestedField(3, "at.utc", LongType(), required=False))
    schema = Schema(NestedField(1, "trip.id", LongType()), NestedField(2, "stop", nested))
    for text, column in (("trip.id > 1", 1), ("TRIP.ID > 1", 1), ("stop.at.utc > 1", 3)):
        assert extract_field_ids(bind(schema, parse_where(text, schema), case_sensitive=True)) == {column}


def test_the_nearest_column_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_where("nmae = 'x'", SCHEMA)
    assert str(caught.value.hint).startswith("Did you mean 'name'?")
