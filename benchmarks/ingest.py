"""A warm ingest of 5 million rows against the plain Spark append of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Deliveries, Figure, Prepare, prepared, write_parquet
from lakegate.lake import Lake
from lakegate.spark.engine import SparkEngine

ROWS = 5_000_000
COLUMNS = (
    "id AS trip_id",
    "cast(id % 3 AS int) AS vendor",
    "timestamp_ntz'2024-01-01 00:00:00' + make_dt_interval(0, 0, 0, cast(id % 2678400 AS int)) AS pickup",
    "cast(1 + id % 6 AS int) AS passengers",
    "pmod(hash(id), 30000) / 100.0D AS distance",
    "cast(pmod(hash(id, 1), 20000) / 100 AS decimal(10, 2)) AS fare",
    "element_at(array('card', 'cash', 'free'), cast(1 + id % 3 AS int)) AS payment",
    "concat('zone-', id % 263) AS zone",
    "id % 17 = 0 AS airport",
)
FROM_METADATA = (
    *(
        f"not_null({name})"
        for name in ("trip_id", "vendor", "pickup", "passengers", "distance", "fare", "payment", "zone", "airport")
    ),
    "in_range(vendor, 0, 2)",
    "in_range(passengers, 1, 6)",
    "in_range(distance, 0, 300)",
    "in_range(fare, 0, 200)",
    "in_range(pickup, '2024-01-01', '2024-02-01')",
    f"row_count(min={ROWS}, max={ROWS})",
)
MIXED = (
    *(f"not_null({name})" for name in ("trip_id", "pickup", "passengers", "zone")),
    "in_range(passengers, 1, 6)",
    "in_range(distance, 0, 300)",
    "in_range(trip_id, 0)",
    "accepted_values(payment, ['card', 'cash', 'free'])",
    "accepted_values(vendor, [0, 1, 2])",
    "matches(zone, '^zone-[0-9]+$')",
    "sql('fare < 0')",
    "sql('distance > 250 AND fare < 0')",
    "sql('passengers > 6 OR passengers < 1')",
    "sql('airport AND distance < 0')",
    "row_count(min=1)",
)


def measure(lake: Lake, engine: SparkEngine, folder: Path, rounds: int) -> Iterator[Figure]:
    """Yield the two figures that are promised, and what a uniqueness check adds."""
    source = folder / "five-million"
    session: Any = engine.session
    if not source.exists():
        write_parquet(session.range(0, ROWS, 1, 4).selectExpr(*COLUMNS), source)
    lake.ingest("bench.plain", source)
    deliveries = Deliveries(folder / "deliveries")

    def plain() -> None:
        session.read.parquet(source.as_uri()).writeTo("lakegate.bench.plain").append()

    def ingest(table: str, checks: tuple[str, ...]) -> Prepare:
        def prepare() -> Any:
            return partial(_ingest, lake, table, deliveries.deliver(source), checks)

        return prepare

    medians = prepared(
        rounds,
        {
            "plain": lambda: plain,
            "metadata": ingest("bench.metadata", FROM_METADATA),
            "mixed": ingest("bench.mixed", MIXED),
            "unique": ingest("bench.unique", (*MIXED, "unique(trip_id)")),
        },
    )
    base = medians["plain"]
    for key, name, limit in (
        ("mixed", "ingest, 15 checks / plain append", 1.30),
        ("metadata", "ingest, 15 checks from metadata / plain append", 1.06),
        ("unique", "ingest, 15 checks and unique / plain append", None),
    ):
        yield Figure(name, medians[key] / base, limit, f"{medians[key]:.2f} s / {base:.2f} s, {ROWS:,} rows x 9")


def _ingest(lake: Lake, table: str, source: Path, checks: tuple[str, ...]) -> None:
    run = lake.ingest(table, source, checks=checks)
    assert run.status == "published"
    assert run.report is not None
    evidence = {result.evidence for result in run.report.results}
    assert ("scan" in evidence) == (checks is not FROM_METADATA), evidence
