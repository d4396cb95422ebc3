"""Cost follows the batch: the audit of the last of many equal batches into one table, against that of the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Figure, progress, write_parquet
from lakegate.lake import Lake
from lakegate.spark.engine import SparkEngine

BATCHES = 100
_ROWS = 50_000
_COMPARED = 5
_COLUMNS = (
    "id AS trip_id",
    f"cast(id DIV {_ROWS} AS int) AS batch",
    "cast(1 + id % 6 AS int) AS passengers",
    "concat('zone-', id % 263) AS zone",
)
_CHECKS = {
    "batch": ("unique(trip_id)", "matches(zone, '^zone-[0-9]+$')", "in_range(passengers, 1, 6)"),
    "table": ("unique(trip_id, scope='table')", "matches(zone, '^zone-[0-9]+$')"),
}
_LIMITS = {"batch": 1.2, "table": 2.0}


def measure(lake: Lake, engine: SparkEngine, folder: Path, batches: int = BATCHES) -> Iterator[Figure]:
    """Yield the ratios for checks of the batch, and for a key that must be unique in a table partitioned by it."""
    session: Any = engine.session
    taken: dict[str, list[float]] = {name: [] for name in _CHECKS}
    for number in range(batches + 1):  # the first one isn't counted
        source = folder / f"batch-{number:03d}"
        write_parquet(session.range(number * _ROWS, (number + 1) * _ROWS, 1, 1).selectExpr(*_COLUMNS), source)
        for name, checks in _CHECKS.items():
            run = lake.ingest(f"bench.batches_{name}", source, checks=checks, partition_by=("batch",))
            assert run.report is not None
            if number:
                taken[name].append(run.report.seconds)
        progress(f"batch {number} of {batches}")
    for name, seconds in taken.items():
        first, last = median(seconds[:_COMPARED]), median(seconds[-_COMPARED:])
        detail = f"{last * 1000:.0f} ms / {first * 1000:.0f} ms, batches of {_ROWS:,} rows"
        yield Figure(f"audit in {name} scope, batch {batches} / 1", last / first, _LIMITS[name], detail)
