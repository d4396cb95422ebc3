"""Rows of every library, in batches: what is taken for rows, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakegate.errors import InputError
from lakegate.frames import are_rows, to_batches

TABLE = pa.table({"id": [1, 2], "name": ["a", None]})


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
        parts(),
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
def test_names_of_files_are_no_rows(given: Any) -> None:
    assert not are_rows(given)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (5, "Can't write rows of type int"),
        (iter(()), "There are no rows"),
        (iter(["a.csv"]), "Can't write rows of type str"),
        ([{"id": 1}, {"id": 1, "x": 2}], "Row 2 has other keys"),
        ([{"id": 1}, {"id": "x"}], "not of one type"),
    ],
)
def test_what_is_no_rows_is_refused(rows: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        to_batches(rows)


def test_parts_have_the_columns_of_the_first() -> None:
    _, batches = to_batches(iter([TABLE, TABLE.rename_columns(["id", "other"])]))
    with pytest.raises(InputError, match="Part 2 has other columns than part 1"):
        list(batches)
