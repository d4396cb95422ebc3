"""Which source file, and which row of it, failing rows are from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakegate
from lakegate.model.checks import CheckResult

pytestmark = pytest.mark.jvm


def csv(folder: Path, name: str, rows: Sequence[str], header: str = "id,day,fare") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def places(result: CheckResult) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(unquote(one.file).rpartition("/")[2], one.rows, one.first_rows) for one in result.files]


def test_of_four_files_the_bad_one_is_named_first(lake: lakegate.Lake, namespace: str, tmp_path: Path) -> None:
    days = [f"2026-01-0{1 + n % 9}" for n in range(40)]
    for number in range(3):
        csv(tmp_path, f"good {number}.csv", [f"{number * 100 + n},{days[n]},{n}" for n in range(40)])
    csv(tmp_path, "bad.csv", [f"{900 + n},{days[n]},{-n if n % 3 == 2 else n}" for n in range(40)])
    csv(tmp_path, "also.csv", ["2000,2026-01-01,1", "7,2026-01-02,-1"], header="id,day,fare")
    checks = ["in_range(fare, min=0)", "unique(id)", "row_count(max=1)"]

    run = lake.ingest(f"{namespace}.trips", str(tmp_path), checks=checks, partition_by=["day"], on_rejected="return")

    low, twice, many = run.reports[0].results
    assert places(low) == [("bad.csv", 13, (3, 6, 9, 12, 15)), ("also.csv", 1, (2,))]
    assert low.where_from == "bad.csv: 13 of 14 failing rows (rows 3, 6, 9, 12, 15 …); also.csv: 1 (row 2)."
    first = low.examples[0]
    assert (first["_row"], first["id"], first["_file"]) == (3, 902, (tmp_path / "bad.csv").as_uri())
    assert [row["_row"] for row in low.examples] == list(range(3, 33, 3))
    assert sorted(places(twice)) == [("also.csv", 1, (2,)), ("good 0.csv", 1, (8,))]
    assert {row["id"] for row in twice.examples} == {7}
    assert (many.verdict, many.files) == ("fail", ())

    again = lake.audit(f"{namespace}.trips", branch=run.branch)  # the copies of the files are gone

    assert again.results[0].files == low.files


def test_rows_of_parquet_keep_their_numbers_across_row_groups(
    lake: lakegate.Lake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.orders"
    for name, bad in (("a b.parquet", {7}), ("ç=%41.parquet", {1, 8, 9})):
        ids = [None if n in bad else n for n in range(10)]
        pq.write_table(pa.table({"ID": pa.array(ids, pa.int32())}), tmp_path / name, row_group_size=3)
    lake.ingest(table, [{"id": 1, "note": "x"}])

    run = lake.ingest(table, tmp_path, checks=["not_null(id)"], schema="evolve", on_rejected="return")

    (result,) = run.reports[0].results
    assert result.where_from == "ç=%41.parquet: 3 of 4 failing rows (rows 2, 9, 10); a b.parquet: 1 (row 8)."
    published = lake.ingest(
        table, tmp_path, checks=["not_null(id, severity='quarantine')"], schema="evolve", on_rejected="return"
    )
    assert published.reports[0].results[0].files == result.files


def test_files_are_not_named_where_rows_come_from_elsewhere(
    lake: lakegate.Lake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.items"
    lake.ingest(table, [{"id": 1, "n": -1}])
    frame = lake.ingest(table, [{"id": 2, "n": -1}], checks=["in_range(n, min=0)"], on_rejected="return")
    path = csv(tmp_path, "one.csv", ["3,-5"], header="id,n")
    checks = ["in_range(n, min=0)"]
    upserted = lake.ingest(table, path, checks=checks, mode="upsert", key=["id"], on_rejected="return")

    for run in (frame, upserted):
        assert run.reports[0].results[0].verdict == "fail"
        assert run.reports[0].results[0].files == ()


def test_a_trial_names_the_users_file_and_row(lake: lakegate.Lake, tmp_path: Path) -> None:
    contract = tmp_path / "t.yaml"
    contract.write_text("{version: 1, table: nyc.t, checks: [not_null: id, in_range: {column: fare, min: 0}]}")
    data = tmp_path / "in"
    data.mkdir()
    csv(data, "good.csv", ["1,2026-01-01,1"])
    csv(data, "bad.csv", [",2026-01-01,1", "4,2026-01-01,-1"])

    trial = lake.contracts.test(contract, data)

    absent, low = trial.report.results
    assert (places(absent), places(low)) == ([("bad.csv", 1, (1,))], [("bad.csv", 1, (2,))])
    assert low.examples[0]["_file"] == (data / "bad.csv").as_uri()
