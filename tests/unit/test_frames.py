"""Rows of every library, in batches: what counts as rows, and errors in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

from lakegate.errors import InputError, SourceError
from lakegate.frames import are_rows, to_batches
from lakegate.sources.copies import write

TABLE = pa.table({"id": [1, 2], "name": ["a", None]})
ORDERS = pd.DataFrame({"day": ["a", "a", "b"], "shop": [1, 1, 2], "total": [1, 2, 3]})


def parts() -> Iterator[Any]:
    yield TABLE.slice(0, 1)
    yield pl.DataFrame({"name": [None], "id": [2]}, schema={"name": pl.String, "id": pl.Int64})


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        TABLE.to_reader(max_chunksize=1),
        TABLE.to_batches()[0],
        TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        pl.from_arrow(TABLE),
        TABLE.to_pylist(),
        tuple(TABLE.to_pylist()),
        iter(TABLE.to_pylist()),
        [{"id": 1, "name": "a"}, {"id": 2}],
        parts(),
        [*parts()],
        TABLE.to_batches(max_chunksize=1),
        pa.dataset.dataset(TABLE),
        pa.dataset.dataset(TABLE).scanner(),
        pa.table({"id": pa.array([1, 2]), "name": pa.array(["a", None]).dictionary_encode()}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_come_in_batches(rows: Any) -> None:
    assert are_rows(rows)
    schema, batches = to_batches(rows)
    assert (
        pa.Table.from_batches(
            [each for part in batches for each in (part.to_batches() if isinstance(part, pa.Table) else [part])]
        )
        .cast(schema)
        .to_pylist()
        == TABLE.to_pylist()
    )


@pytest.mark.parametrize("given", ["a.csv", Path("a.csv"), ["a.csv"], (Path("a"), "b"), []])
def test_file_names_are_not_rows(given: Any) -> None:
    assert not are_rows(given)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (5, "Can't write rows of type int"),
        (iter(()), "There are no rows"),
        (iter(["a.csv"]), "Can't write rows of type str"),
        ([{"id": 1}, {"id": "x"}], "aren't of one type"),
        ({"id": [1]}, "Can't write rows of type dict"),
        (pd.Series([1]), "Can't write rows of type Series"),
        (pl.Series([1]), "Can't write rows of type Series"),
        (pd.DataFrame({"id": [2**70]}), "DataFrame to Arrow"),
        (pd.DataFrame({"p": pd.period_range("2024-01", periods=1, freq="M")}), "'p' has values of type pandas.period"),
        (pd.DataFrame({"x": [1]}, index=pd.date_range("2024-01-01", periods=1)), "index has no name"),
        (pd.DataFrame({"x": [1]}, index=["a"]), "index has no name"),
        (pd.DataFrame({"x": [1]}, index=pd.MultiIndex.from_tuples([(2024, 1)])), "Level 1 of the frame's index"),
        (pd.DataFrame({"id": [1]}, index=pd.Index([7], name="id")), "an index and a column called 'id'"),
        (pd.DataFrame({"id": [1]}, index=pd.RangeIndex(1, name="id")), "an index and a column called 'id'"),
        (ORDERS.groupby("day").agg({"total": ["min", "max"]}), "names have 2 levels"),
        (pd.DataFrame({"z": [1 + 2j]}), "DataFrame to Arrow"),
        (pa.table({"l": pa.array([[1]], pa.list_view(pa.int64()))}), "Column 'l' has list views"),
        (
            pa.table({"s": [{"l": None}]}, pa.schema([("s", pa.struct([("l", pa.large_list_view(pa.int64()))]))])),
            "'s' has",
        ),
    ],
)
def test_anything_but_rows_is_refused(rows: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        to_batches(rows)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (ORDERS.groupby("day").total.sum().to_frame(), [{"day": "a", "total": 3}, {"day": "b", "total": 3}]),
        (ORDERS.groupby(["day", "shop"]).sum().tail(1), [{"day": "b", "shop": 2, "total": 3}]),
        (ORDERS.set_index("day", drop=False).tail(1), [{"day": "b", "shop": 2, "total": 3}]),
        (pd.DataFrame({"id": [0, 1]}, index=pd.RangeIndex(2, name="id")), [{"id": 0}, {"id": 1}]),
        (ORDERS[ORDERS.total > 2], [{"day": "b", "shop": 2, "total": 3}]),
        (ORDERS.head(0).astype({"day": str}), []),
        (pd.DataFrame({"x": pd.Series([], dtype="int64")}, index=pd.Index([], dtype="object")), []),
    ],
)
def test_an_index_with_a_name_is_a_column(frame: pd.DataFrame, expected: list[dict[str, Any]]) -> None:
    _, batches = to_batches(frame)
    assert [row for part in batches for row in part.to_pylist()] == expected


def test_missing_values_in_records_of_a_pandas_frame_are_null() -> None:
    at = dt.datetime(2026, 1, 31)
    frame = pd.DataFrame({"at": [pd.NaT, at], "n": pd.array([1, None], dtype="Int64")})
    _, batches = to_batches(frame.to_dict("records"))
    assert [row for batch in batches for row in batch.to_pylist()] == [{"at": None, "n": 1}, {"at": at, "n": None}]


def test_parts_have_the_columns_of_the_first() -> None:
    _, batches = to_batches(iter([TABLE, TABLE.rename_columns(["id", "other"])]))
    with pytest.raises(InputError, match="Part 2 and part 1 have different columns"):
        list(batches)


AWARE = dt.datetime(2024, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=5)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5)),
        (dt.datetime(2024, 1, 1, 5), AWARE),
        ("x", b"y"),
        (1, "x"),
        (True, 2),
        ([dt.date(2024, 1, 1)], [None, dt.datetime(2024, 1, 1, 5)]),
        ({"at": AWARE}, {"at": dt.datetime(2024, 1, 1, 5)}),
    ],
)
def test_values_of_two_types_are_refused_by_row(one: Any, other: Any) -> None:
    for rows in ([{"v": one}, {"v": None}, {"v": other}], pd.DataFrame({"v": [one, None, other]}, dtype=object)):
        with pytest.raises(InputError, match=r"The values of 'v.*' aren't of one type: row 1 has .*, row 3"):
            to_batches(rows)


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        ({"a": [1]}, {"a": [1], "c": [2]}, "different columns: 'c'"),
        ({"a": [1]}, {"a": ["007"]}, "'a' is string, not int64"),
        ({"a": [AWARE]}, {"a": [dt.datetime(2024, 1, 1)]}, "'a' is timestamp"),
        ({"a": [1.5]}, {"a": [2**53 + 1]}, "Part 2 and part 1 have different columns"),
        ({"a": [None]}, {"a": [1]}, "'a' is int64, not null"),
    ],
)
def test_parts_lose_nothing(first: Any, later: Any, words: str) -> None:
    _, batches = to_batches(iter([pa.table(first), pa.table(later)]))
    with pytest.raises(InputError, match=words) as refused:
        list(batches)
    assert str(2**53 + 1) not in refused.value.message


def test_a_value_that_cannot_be_written_is_quoted_in_the_detail(tmp_path: Path) -> None:
    batches = [pa.record_batch({"n": [3_000_000_000]})]
    with pytest.raises(SourceError, match=r"^A value can't be written\.$") as refused:
        write(batches, pa.schema([("n", pa.int32())]), tmp_path / "copies" / "a.parquet")
    assert "3000000000" in str(refused.value.detail)


def test_parts_may_have_narrower_types_and_another_order() -> None:
    schema, batches = to_batches(iter([[], pa.table({"a": [1.5], "b": ["x"]}), pa.table({"b": [None], "a": [1]})]))
    assert [row for part in batches for row in part.to_pylist()] == [{"a": 1.5, "b": "x"}, {"a": 1.0, "b": None}]
    assert schema.names == ["a", "b"]
