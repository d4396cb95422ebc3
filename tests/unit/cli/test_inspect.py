"""``lakegate inspect``: columns and first rows of files, without a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import InputError
from lakegate.lake import connect
from lakegate.model.batch import CsvOptions
from support.cli_support import invoke


def inspected(*arguments: str) -> dict[str, Any]:
    result = invoke(["inspect", *arguments, "-o", "json"], None)
    assert result.exit_code == 0, result.output
    payload: dict[str, Any] = json.loads(result.stdout)
    return payload


def columns(payload: dict[str, Any]) -> dict[str, str]:
    return {column["name"]: column["type"] for column in payload["columns"]}


def test_columns_and_rows_of_files_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text(
        '{"id": 1, "day": "2024-01-01", "tags": [{"n": 1.5}], "text": "[red]x[/]"}\n', encoding="utf-8"
    )
    payload = inspected("a.jsonl")
    assert columns(payload) == {"id": "long", "day": "date", "tags": "list<struct<n: double>>", "text": "string"}
    assert payload["sample"] == [{"id": 1, "day": "2024-01-01", "tags": [{"n": 1.5}], "text": "[red]x[/]"}]
    (tmp_path / "b.csv").write_text("id;day;zip\n1;2024-01-01;00501\n2;;-\n", encoding="utf-8-sig")
    payload = inspected("b.csv", "--delimiter", ";", "--null-value", "-", "-n", "5")
    assert columns(payload) == {"id": "long", "day": "date", "zip": "string"}
    assert payload["sample"][1] == {"id": "2", "day": None, "zip": None}
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("ns")), "none": pa.nulls(1)}), tmp_path / "c.parquet")
    assert columns(inspected("c.parquet", "--rows", "0")) == {"at": "timestamp", "none": "unknown"}
    pq.write_table(pa.table({"x": [float("nan"), None], "y": [[float("-inf")], None]}), tmp_path / "d.parquet")
    assert inspected("d.parquet")["sample"] == [{"x": "NaN", "y": ["-Infinity"]}, {"x": None, "y": None}]
    (tmp_path / "e.csv").write_text("x\n1.5\nNaN\n", encoding="utf-8")
    assert [row["x"] for row in inspected("e.csv")["sample"]] == ["1.5", "NaN"]
    shown = invoke(["inspect", "a.jsonl"], None).stdout
    assert "1 file, 1 row" in shown
    assert "[red]x[/]" in shown
    assert not (tmp_path / ".lakegate").exists()


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n", encoding="utf-8")
    result = invoke(["inspect", str(tmp_path / "a.jsonl")], None)
    assert result.exit_code == 2
    assert "line 1 is a number, not an object" in result.stderr


def test_options_for_csv_are_refused_with_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"fee": "1,5"}\n', encoding="utf-8")
    result = invoke(["inspect", "a.jsonl", "--decimal", ","], None)
    assert result.exit_code == 2
    assert "You passed options for CSV, but 'file://" in result.stderr
    with connect(tmp_path) as lake:
        with pytest.raises(InputError, match=r"a\.jsonl' is JSON"):
            lake.ingest("shop.fees", "a.jsonl", csv=CsvOptions(decimal=","))
        with pytest.raises(InputError, match="options for CSV"):
            lake.ingest("shop.fees", [{"fee": "1,5"}], csv=CsvOptions(types={"fee": "double"}))
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_python_api_inspects_files_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\n1;x\n", encoding="utf-8")
    with connect(tmp_path) as lake:
        found = lake.inspect(tmp_path / "a.csv", csv=CsvOptions(delimiter=";"))
    assert [column.type for column in found.columns] == ["long", "string"]
    assert found.rows == ({"a": "1", "b": "x"},)
