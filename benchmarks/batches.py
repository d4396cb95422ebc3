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
    """Yield the ratios for checks of the batch, and for a key that must be unique in a table partitioned by it.

    The last batches are the second ones of new tables, too: by then Spark is as warm for these.
    """
    session: Any = engine.session

    def write(number: int) -> Path:
        source = folder / f"batch-{number:03d}"
        write_parquet(session.range(number * _ROWS, (number + 1) * _ROWS, 1, 1).selectExpr(*_COLUMNS), source)
        return source

    def audit(table: str, name: str, source: Path) -> float:
        run = lake.ingest(table, source, checks=_CHECKS[name], partition_by=("batch",))
        assert run.report is not None
        return run.report.seconds

    first: dict[str, list[float]] = {name: [] for name in _CHECKS}
    last: dict[str, list[float]] = {name: [] for name in _CHECKS}
    sources = [write(0)]
    for number in range(1, batches + 1):
        sources.append(write(number))
        for name in _CHECKS:
            tables = [(f"bench.batches_{name}", last)]
            if number > batches - _COMPARED:
                tables.append((f"bench.batches_{name}_{number}", first))
                audit(tables[-1][0], name, sources[0])
            for table, times in tables[:: 1 if number % 2 else -1]:  # what comes second finds Spark warmer
                times[name].append(audit(table, name, sources[number]))
        progress(f"batch {number} of {batches}")
    for name, limit in _LIMITS.items():
        before, after = median(first[name]), median(last[name][-_COMPARED:])
        detail = f"{after * 1000:.0f} ms / {before * 1000:.0f} ms, batches of {_ROWS:,} rows"
        yield Figure(f"audit in {name} scope, batch {batches} / 1", after / before, limit, detail)
