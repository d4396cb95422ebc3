"""On a host of ``examples/cluster``: a large append through lakegate, beside the same append and scan by Spark alone.

    cluster exec client-1 env PYTHONPATH=CHECKOUT python -m benchmarks.cluster ROWS

Spark makes the rows. After ``cluster kill worker-2``, it's what one worker does. ``--csv ROWS`` measures instead what a
client reads itself, against Parquet that Spark reads.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import lakegate
from lakegate.credentials.secret import Secret
from lakegate.lake import Lake
from lakegate.spark.sessions import end_session, remote_sessions

_STORE = "http://store.lake.test:8333"
_COLUMNS = (
    "id, id % 1000 AS zone, cast(id % 7 AS int) AS passengers, id % 90 / 2.0D AS fare, id % 13 / 4.0D AS tip, "
    "concat('z', id % 265) AS code, timestamp_seconds(1700000000 + id % 60000000) AS at, date_add(DATE'2024-01-01', "
    "cast(id % 365 AS int)) AS day, id * 7 AS key, id % 2 = 0 AS shared"
)
_ALL = ", ".join(
    f"max({name})" for name in ("id", "zone", "passengers", "fare", "tip", "code", "at", "day", "key", "shared")
)
_CHECKS = (
    *(f"not_null({name})" for name in ("id", "zone", "fare", "code", "at")),
    *("accepted_range(fare, min=0, max=45)", "accepted_range(passengers, min=0, max=6)", "row_count(min=1)"),
    *("match_regex(code, 'z[0-9]+')", "expression_is_true('fare + tip < 100')", "accepted_range(tip, min=0)"),
    *("not_in_future(at)", "length_between(code, min=2, max=4)", "casing(code, 'lower')", "unique(id)"),
)


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("--csv", action="store_true")
    given = parser.parse_args()
    with lakegate.connect() as lake:
        (_files if given.csv else _append)(lake, given.rows)
    print(f"client, most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


@contextmanager
def _timed(what: str, rows: int) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took = time.perf_counter() - began
    print(f"{what}: {took:.1f} s, {rows / took / 1e6:.2f} M rows/s", flush=True)


def _append(lake: Lake, rows: int) -> None:
    table, query = f"scale.r{rows}_{time.time_ns()}", f"SELECT {_COLUMNS} FROM range({rows})"
    with _bare(lake) as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS bare.scale")
        warm = query.replace(f"range({rows})", "range(2000000)")  # else the first of all would pay for new JVMs
        spark.sql(f"CREATE TABLE bare.{table}_warm USING iceberg AS {warm}")
        spark.sql(f"SELECT {_ALL} FROM bare.{table}_warm").collect()
        with _timed("append, Spark alone", rows):
            spark.sql(f"CREATE TABLE bare.{table} USING iceberg AS {query}")
        with _timed("scan of all columns, Spark alone", rows):
            spark.sql(f"SELECT {_ALL} FROM bare.{table}").collect()
        spark.sql(f"DROP TABLE bare.{table}")
    with lake.transaction("first") as first:
        first.append(table, first.sql("SELECT * FROM (" + query.replace(f"range({rows})", "range(-10, 0)") + ")"))
    with lake.transaction("many") as many:
        with _timed("append, lakegate", rows):
            many.append(table, many.sql(query))
        with lake.transaction("beside") as beside:  # so that the large one is published after it, by new metadata
            beside.append(table, beside.sql(query.replace(f"range({rows})", "range(-20, -10)")))
        many.check(table, *_CHECKS)
        began = time.perf_counter()
    print(f"audit by {len(_CHECKS)} checks, and publish: {time.perf_counter() - began:.1f} s", flush=True)
    publication = many.run.publication
    replayed = publication is not None and publication.replayed
    print(f"{many.run.status}, replayed: {replayed}, {lake.table(table).rows:,} rows", flush=True)
    by = [result.evidence for report in many.run.reports for result in report.results]
    print(f"evidence: { {kind: by.count(kind) for kind in set(by)} }", flush=True)


@contextmanager
def _bare(lake: Lake) -> Iterator[Any]:
    """Yield a session of ours with Iceberg's own catalog on a branch that lakegate doesn't look at."""
    engine, catalog = lake.settings.engine, lake.settings.catalog
    if "bare" not in [ref.name for ref in lake.branches.list()]:
        lake.branches.create("bare")
    prefix = "spark.sql.catalog.bare"
    session: Any = remote_sessions(
        engine.url or "", token=Secret(engine.token or "", setting="engine.token"), tls=True, ca_file=engine.ca_file
    )(
        {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
            f"{prefix}.uri": catalog.uri or "",
            f"{prefix}.ref": "bare",
            f"{prefix}.warehouse": "s3://lake/bare",
            f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{prefix}.s3.endpoint": _STORE,
            f"{prefix}.s3.path-style-access": "true",
            f"{prefix}.client.region": "us-east-1",
        }
    )
    try:
        yield session
    finally:
        end_session(session)


def _files(lake: Lake, rows: int) -> None:
    numbers = pa.array(range(rows), pa.int64())
    table = pa.table({"id": numbers, "fare": numbers.cast(pa.float64()), "code": numbers.cast(pa.string())})
    name, store = f"t{time.time_ns()}", boto3.client("s3", endpoint_url=_STORE)
    pq.write_table(table, f"{name}.parquet")
    pyarrow.csv.write_csv(table, f"{name}.csv")
    lake.query("SELECT 1").to_arrow()  # a session
    for ending in ("parquet", "csv"):
        file = Path(f"{name}.{ending}")
        store.upload_file(str(file), "landing", file.name)
        print(f"{ending}: {file.stat().st_size / 1e6:.0f} MB")
        with _timed(f"ingest of {ending}", rows):
            lake.ingest(f"scale.{name}_{ending}", f"s3://landing/{file.name}", checks=["not_null(id)"])


if __name__ == "__main__":
    main()
