"""Made-up files: the same for the same arguments, whole or not there at all."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import AlreadyExistsError, InputError
from lakegate.sources import discover, generate, synthetic
from lakegate.sources.synthetic import Block, draw, trip_schema
from support.examples import examples


def test_files_and_columns(tmp_path: Path) -> None:
    paths = generate(tmp_path, files=3, rows=1_000)
    assert [path.name for path in paths] == ["trips-0001.parquet", "trips-0002.parquet", "trips-0003.parquet"]
    batch = discover([str(tmp_path)])
    assert batch.rows == 3_000
    types = {column.name: column.type for column in batch.columns}
    assert types["trip_id"] == "int64"
    assert types["pickup"] == "timestamp[us]"
    assert types["fare_amount"] == "decimal128(10, 2)"
    assert types["stops"] == "list<element: string>"
    table = pq.read_table(tmp_path)
    assert len(set(table["trip_id"].to_pylist())) == 3_000
    assert all(column.null_count == 0 for column in table.columns)
    pickups: list[Any] = table["pickup"].to_pylist()
    dropoffs: list[Any] = table["dropoff"].to_pylist()
    assert all(late > early for early, late in zip(pickups, dropoffs, strict=True))
    assert [moment.date() for moment in pickups] == table["pickup_date"].to_pylist()


def test_csv_leaves_out_what_it_cannot_hold_and_reads_back(tmp_path: Path) -> None:
    generate(tmp_path, files=2, rows=2_000, format="csv", null_rate=0.1, null_columns=("zone", "pickup"))
    batch = discover([str(tmp_path)])
    assert batch.rows == 4_000
    types = {column.name: column.type for column in batch.columns}
    assert types["pickup"] == "timestamp[us]"
    assert types["airport"] == "bool"
    assert types["pickup_date"] == "date32[day]"
    assert "stops" not in types


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32), file=st.integers(0, 5), index=st.integers(0, 5), rows=st.integers(0, 500))
def test_a_block_is_the_same_whenever_it_is_drawn(seed: int, file: int, index: int, rows: int) -> None:
    schema = trip_schema("parquet")
    block = Block(seed, file, index, rows, first_id=1)
    plain, again = draw(block, schema, {}), draw(block, schema, {})
    assert plain.equals(again)
    holes = draw(block, schema, {"zone": 0.5})
    for value, kept in zip(plain["zone"], holes["zone"], strict=True):
        assert not kept.is_valid or kept == value
    assert holes.drop_columns(["zone"]).equals(plain.drop_columns(["zone"]))


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"files": 2, "rows": 3_000, "null_rate": 0.2}
    first = [path.read_bytes() for path in generate(tmp_path / "a", **arguments)]
    assert first == [path.read_bytes() for path in generate(tmp_path / "b", **arguments)]
    assert first != [path.read_bytes() for path in generate(tmp_path / "c", **arguments, seed=8)]


def test_rows_over_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 100)
    (path,) = generate(tmp_path, files=1, rows=250)
    assert pq.read_table(path)["trip_id"].to_pylist() == list(range(1, 251))


@pytest.mark.parametrize("rate", [1e-12, 0.3, 1.0])
def test_nulls_where_asked_and_nowhere_else(tmp_path: Path, rate: float) -> None:
    for path in generate(tmp_path, files=2, rows=500, null_rate=rate, null_columns=("stops", "airport")):
        nulls = {name: pq.read_table(path)[name].null_count for name in trip_schema("parquet").names}
        assert nulls.pop("stops") >= 1
        assert nulls.pop("airport") >= 1
        assert set(nulls.values()) == {0}


def test_the_default_column_of_nulls(tmp_path: Path) -> None:
    (path,) = generate(tmp_path, files=1, rows=1_000, null_rate=0.5)
    assert 300 < pq.read_table(path)["passenger_count"].null_count < 700


def test_no_rows(tmp_path: Path) -> None:
    for file_format in ("parquet", "csv"):
        generate(tmp_path / file_format, rows=0, null_rate=0.5, format=file_format)
        assert discover([str(tmp_path / file_format)]).rows == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"files": 0}, "Can't write 0 files"),
        ({"rows": -1}, "Can't write -1 rows"),
        ({"null_rate": 1.5}, "NULL rate 1.5"),
        ({"null_rate": float("nan")}, "NULL rate nan"),
        ({"seed": -1}, "Seed -1"),
        ({"null_columns": ["pasenger_count"]}, "no column 'pasenger_count'"),
        ({"null_columns": ["stops"], "format": "csv"}, "csv files have no column 'stops'"),
    ],
)
def test_arguments_out_of_range(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        generate(tmp_path / "new", **arguments)
    assert caught.value.hint
    assert not (tmp_path / "new").exists()


def test_the_nearest_column_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        generate(tmp_path, null_columns=["pasenger_count"])
    assert caught.value.hint == "Did you mean 'passenger_count'?"


def test_nothing_is_replaced_unless_asked(tmp_path: Path) -> None:
    first = generate(tmp_path, files=1, rows=10)[0].read_bytes()
    with pytest.raises(AlreadyExistsError, match=r"trips-0001\.parquet' already exists\."):
        generate(tmp_path, files=2, rows=20)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [first]
    generate(tmp_path, files=2, rows=20, overwrite=True)
    assert discover([str(tmp_path)]).rows == 40
    with pytest.raises(AlreadyExistsError, match=r"trips-0001\.parquet' and 1 more already exist\."):
        generate(tmp_path, files=2, rows=20)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        with pytest.raises(InputError, match="isn't a folder"):
            generate(folder, rows=1)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_file_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 10)
    calls = 0

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise error
        return draw(*arguments)

    monkeypatch.setattr(synthetic, "draw", failing)
    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        generate(tmp_path, files=2, rows=30)
    assert [path.name for path in tmp_path.iterdir()] == ["trips-0001.parquet"]
