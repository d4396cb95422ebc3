"""An upsert and replaced partitions against Spark's own MERGE and overwrite of the same rows, without checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Deliveries, Figure, Prepare, prepared, write_parquet
from benchmarks.ingest import COLUMNS
from lakegate.lake import Lake
from lakegate.model.request import ModeName
from lakegate.spark.engine import SparkEngine

ROWS = 5_000_000
_MERGE = (
    "MERGE INTO lakegate.bench.merged AS t USING changes AS s ON t.trip_id = s.trip_id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def measure(lake: Lake, engine: SparkEngine, folder: Path, rounds: int) -> Iterator[Figure]:
    """Yield a figure a mode. Every table has the same rows; a batch has half of its keys in them."""
    session: Any = engine.session
    all_rows, changes = folder / "all", folder / "changes"
    write_parquet(session.range(0, ROWS, 1, 4).selectExpr(*COLUMNS), all_rows)
    write_parquet(session.range(ROWS - ROWS // 10, ROWS + ROWS // 10, 1, 4).selectExpr(*COLUMNS), changes)
    for table in ("merged", "upserted", "overwritten", "replaced"):
        by = ["vendor"] if table in {"overwritten", "replaced"} else []
        lake.ingest(f"bench.{table}", all_rows, partition_by=by, checks=())
    deliveries = Deliveries(folder / "deliveries")

    def merge() -> None:
        session.read.parquet(changes.as_uri()).createOrReplaceTempView("changes")
        session.sql(_MERGE)

    def overwrite() -> None:
        session.read.parquet(changes.as_uri()).writeTo("lakegate.bench.overwritten").overwritePartitions()

    def ingest(table: str, mode: ModeName, *key: str) -> Prepare:
        def work(source: Path) -> None:
            assert lake.ingest(table, source, mode=mode, key=key).status == "published"

        return lambda: partial(work, deliveries.deliver(changes))

    medians = prepared(
        rounds,
        {
            "merge": lambda: merge,
            "upsert": ingest("bench.upserted", "upsert", "trip_id"),
            "overwrite": lambda: overwrite,
            "replace": ingest("bench.replaced", "replace-partitions"),
        },
    )
    for name, ours, plain in (
        ("ingest, upsert / MERGE", "upsert", "merge"),
        ("ingest, replace-partitions / overwrite", "replace", "overwrite"),
    ):
        detail = f"{medians[ours]:.2f} s / {medians[plain]:.2f} s, {ROWS // 5:,} rows x 9 into {ROWS:,}"
        yield Figure(name, medians[ours] / medians[plain], 1.20, detail)
