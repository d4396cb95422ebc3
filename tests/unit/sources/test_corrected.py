from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import InputError
from lakegate.model.rows import write_csv
from lakegate.sources.corrected import read_rows

FIELDS: dict[str, Any] = {"id": pa.int64(), "code": pa.string(), "gone": pa.list_(pa.string())}
SCHEMA = pa.schema(FIELDS)


def test_text_is_read_as_the_table_has_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('code,id,gone,more\n0123,1,[],x\n"",,[],""\n')
    found = read_rows(path, SCHEMA, ignore={"gone"})
    assert found.to_pylist() == [{"code": "0123", "id": 1, "more": "x"}, {"code": "", "id": None, "more": ""}]


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int8()), "gone": [["x"]]}), path)
    assert read_rows(path, SCHEMA, ignore={"gone"}).schema.field("id").type == pa.int8()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "id\nx\n", "can't be read"),
        ("a.parquet", "x", "can't be read"),
        ("a.txt", "", "neither"),
        ("b.csv", None, "exist"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words):
        read_rows(tmp_path / name, SCHEMA, ignore=())


def test_what_a_query_writes_is_read_back_as_it_was(tmp_path: Path) -> None:
    fields: list[Any] = [("id", pa.int64()), ("raw", pa.binary()), ("note", pa.string()), ("fee", pa.decimal128(18, 8))]
    fees = [Decimal("0.00000000"), Decimal("1E-8"), None]
    values: Any = [[1, None, 3], [b"\xff\0", b"", None], ["", None, 'a "b",\n'], fees]
    rows = pa.table(values, schema=pa.schema(fields))
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv(rows, file)
    assert read_rows(path, rows.schema, ignore=()).to_pylist() == rows.to_pylist()
    assert "E-8" not in path.read_text(encoding="utf-8")  # an ingest would take it for a number to round


def test_lists_need_parquet_and_hidden_values_are_not_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,gone\n+49 170,[]\n")
    with pytest.raises(InputError, match="'gone' has type list") as refused:
        read_rows(path, SCHEMA, ignore=())
    assert "parquet" in (refused.value.hint or "")
    for hides in (True, False):
        with pytest.raises(InputError, match="conversion error") as refused:
            read_rows(path, SCHEMA, ignore={"gone"}, hides=hides)
        assert ("+49" in refused.value.message) is not hides
