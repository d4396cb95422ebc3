"""CSV, JSON lines, and columns that may change, against Spark's own read and write, and against ``strict``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq

from benchmarks.harness import Deliveries, Figure, Prepare, prepared, write_parquet
from benchmarks.ingest import COLUMNS
from lakegate.lake import Lake
from lakegate.model.request import SchemaMode
from lakegate.spark.engine import SparkEngine

ROWS = 1_000_000


def measure(lake: Lake, engine: SparkEngine, folder: Path, rounds: int) -> Iterator[Figure]:
    """Yield a figure each for CSV, JSON lines, and ``evolve``."""
    session: Any = engine.session
    rows = session.range(0, ROWS, 1, 1).selectExpr(*COLUMNS)
    parquet, lines, texts = folder / "parquet", folder / "lines", folder / "csv"
    write_parquet(rows, parquet)
    lines.mkdir(parents=True)
    texts.mkdir()
    pc.write_csv(pq.read_table(parquet), texts / "rows.csv")
    with (lines / "rows.jsonl").open("w", encoding="utf-8") as file:
        for row in rows.toLocalIterator():
            file.write(json.dumps(row.asDict() | {"pickup": row.pickup.isoformat(), "fare": float(row.fare)}) + "\n")
    lake.ingest("bench.json", lines)
    lake.ingest("bench.csv", texts)
    for table in ("strict", "evolved"):
        lake.ingest(f"bench.{table}", parquet)
    deliveries = Deliveries(folder / "deliveries")

    def plain() -> None:
        session.read.json(lines.as_uri()).writeTo("lakegate.bench.plain_json").append()

    def plain_csv() -> None:
        options = {"header": "true", "inferSchema": "true"}
        session.read.options(**options).csv(texts.as_uri()).writeTo("lakegate.bench.plain_csv").append()

    def ingest(table: str, source: Path, schema: SchemaMode) -> Prepare:
        def work(delivered: Path) -> None:
            assert lake.ingest(table, delivered, schema=schema).status == "published"

        return lambda: partial(work, deliveries.deliver(source))

    session.read.json(lines.as_uri()).limit(0).writeTo("lakegate.bench.plain_json").create()
    header = session.read.option("header", "true").option("inferSchema", "true").csv(texts.as_uri())
    header.limit(0).writeTo("lakegate.bench.plain_csv").create()
    medians = prepared(
        rounds,
        {
            "plain": lambda: plain,
            "plain csv": lambda: plain_csv,
            "csv": ingest("bench.csv", texts, "strict"),
            "json": ingest("bench.json", lines, "strict"),
            "strict": ingest("bench.strict", parquet, "strict"),
            "evolve": ingest("bench.evolved", parquet, "evolve"),
        },
    )
    for name, ours, other, limit in (
        ("ingest, CSV / Spark's read and append", "csv", "plain csv", 1.30),
        ("ingest, JSON lines / Spark's read and append", "json", "plain", 1.30),
        ("ingest, evolve / strict", "evolve", "strict", 1.10),
    ):
        detail = f"{medians[ours]:.2f} s / {medians[other]:.2f} s, {ROWS:,} rows x 9"
        yield Figure(name, medians[ours] / medians[other], limit, detail)
