"""Names of columns and tables that mean something to Spark, to Iceberg or to lakegate itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate import checks
from lakegate.errors import InputError, QueryError, SchemaError
from lakegate.lake import Lake
from lakegate.model.identifiers import quote
from lakegate.model.schema import RESERVED_COLUMNS
from support.e2e_support import unchanged

pytestmark = pytest.mark.jvm

ODD_NAMES: tuple[str, ...] = (
    "rows",
    "ROWS_0",
    "__lakegate_key_0",
    "count",
    "found",
    "met",
    "k0",
    "total",
    "c0",
    "target",
    "source",
)
KEY_NAMES = ("rows", "__lakegate_key_0", "tick`s", "a.b", "select", "\U0001f600")
ODD_NAMES += ("a.b", "tick`s", "two words", "it's", 'qu"oted', "\U0001f600", "select", "NULL", "ünïcode", "1st", "a,b")


def _write(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_columns_called_like_metadata_are_refused_wherever_they_come_in(
    lake: Lake, namespace: str, tmp_path: Path
) -> None:
    old = f"{namespace}.old"
    lake.ingest(old, _write(tmp_path / "old.parquet", id=[1], pos=[1]))
    with unchanged(lake):
        for number, name in enumerate(sorted(RESERVED_COLUMNS)):
            file = _write(tmp_path / f"{number}.parquet", **{"id": [1], name.title(): [1]})
            with pytest.raises(SchemaError, match=rf"{number}\.parquet.*'{name.title()}'.*metadata column") as caught:
                lake.ingest(f"{namespace}.new", file)
            assert caught.value.hint == f"Rename it in the file, for example to '{name.title().lstrip('_')}'."
        csv = tmp_path / "a.csv"
        csv.write_text("id,_FILE\n1,2\n")
        with pytest.raises(SchemaError, match=r"a\.csv.*'_FILE'"):
            lake.ingest(f"{namespace}.new", csv)
        rows = pa.table({"id": [1], "_pos": [1]})
        new = f"{namespace}.new"
        attempts: dict[str, Callable[[Any], Any]] = {
            "append": lambda tx: tx.append(new, rows),
            "overwrite": lambda tx: tx.overwrite(old, rows),
            "upsert": lambda tx: tx.upsert(new, rows, keys=["id"]),
            "create": lambda tx: tx.sql(f"CREATE TABLE {new} (id INT, `_pos` INT) USING iceberg"),
            "select": lambda tx: tx.sql(f"CREATE TABLE {new} USING iceberg AS SELECT id, pos AS _Pos FROM {old}"),
            "add": lambda tx: tx.sql(f"ALTER TABLE {old} ADD COLUMN _spec_id INT"),
            "rename": lambda tx: tx.sql(f"ALTER TABLE {old} RENAME COLUMN pos TO _file"),
        }
        for attempt, change in attempts.items():
            with pytest.raises((SchemaError, QueryError), match=r"(?i)metadata column"), lake.transaction() as tx:
                change(tx)
                tx.sql(f"SELECT '{attempt}'")
        with pytest.raises(InputError, match=r"partition by 'two words'"):
            lake.ingest(new, _write(tmp_path / "words.parquet", **{"two words": [1]}), partition_by=["two words"])
    nested = _write(tmp_path / "nested.parquet", s=[{"_pos": 7, "_file": 8}])
    assert lake.ingest(f"{namespace}.nested", nested, checks=["unique(s)"]).status == "published"
    assert lake.query(f"SELECT s._pos, s._file FROM {namespace}.nested").to_arrow().to_pylist() == [
        {"_pos": 7, "_file": 8}
    ]


def _failing(run: Any) -> dict[str, tuple[int, list[Any]]]:
    return {r.name: (r.failing_rows, [example.get(r.columns[0]) for example in r.examples]) for r in run.report.results}


def test_columns_of_any_name_are_checked_shown_and_merged(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table, other = f"{namespace}.t", f"{namespace}.other"
    first = {name: pa.array([1, 2, 3], pa.int64()) for name in ODD_NAMES}
    assert lake.ingest(table, _write(tmp_path / "1.parquet", **first)).status == "published"
    assert lake.ingest(other, _write(tmp_path / "2.parquet", **first)).status == "published"

    second = {name: pa.array([3, 4, 4, None, 9], pa.int64()) for name in ODD_NAMES}
    file = _write(tmp_path / "3.parquet", **second)
    asked = [
        check
        for name in KEY_NAMES[1:]
        for check in (
            checks.in_range(name, 3, 4, name=f"{name} in_range"),
            checks.not_null(name, name=f"{name} not_null", severity="warn"),
            checks.accepted_values(name, [3, 4, 9], name=f"{name} accepted"),
            checks.sql(f"{quote(name)} = 8", name=f"{name} sql"),
        )
    ]
    asked += [checks.unique(name, name=f"{name} unique") for name in KEY_NAMES[:3]]
    asked += [checks.unique(KEY_NAMES[2], scope="table", name="one in table")]
    asked += [checks.unique(*KEY_NAMES[:3], scope="table", name="three in table")]
    asked += [checks.relationships(*KEY_NAMES[:3], to=other, to_columns=KEY_NAMES[:3], name="three parents")]
    asked += [checks.unique("rows", "ROWS_0", name="rows together"), checks.unique(*ODD_NAMES, name="all together")]
    run = lake.ingest(table, file, checks=asked, on_failure="drop", on_rejected="return")
    found = _failing(run)
    shown = {kind: (failing, sorted(map(str, values))) for kind, (failing, values) in found.items()}
    for name in KEY_NAMES[1:]:
        assert {kind: shown[f"{name} {kind}"] for kind in ("not_null", "in_range", "accepted", "sql")} == {
            "not_null": (1, ["None"]),
            "in_range": (1, ["9"]),
            "accepted": (0, []),
            "sql": (0, []),
        }, name
    for name in KEY_NAMES[:3]:
        assert shown[f"{name} unique"] == (2, ["4", "4"]), name
    assert shown["one in table"] == shown["three in table"] == (3, ["3", "4", "4"])
    assert shown["three parents"] == (3, ["4", "4", "9"])
    assert run.report is not None
    assert not [result.name for result in run.report.failures if not result.examples]
    together = next(result for result in run.report.results if result.name == "rows together")
    assert [(row["rows"], row["ROWS_0"]) for row in together.examples] == [(4, 4), (4, 4)]

    with lake.transaction() as tx:
        changed = {name: pa.array([3, 5], pa.int64()) for name in ODD_NAMES}
        tx.upsert(table, pa.table(changed), keys=KEY_NAMES[1:3])
        tx.upsert(table, pa.table({**changed, "rows": pa.array([30, 50], pa.int64())}), keys=ODD_NAMES[1:])
    rows = lake.query(f"SELECT * FROM {table}").to_arrow().to_pylist()
    assert sorted((row["rows"], row["select"]) for row in rows) == [(1, 1), (2, 2), (30, 3), (50, 5)]
