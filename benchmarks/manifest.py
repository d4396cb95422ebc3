"""The audit that reads no rows: 10 million of them against 100 thousand, in as many files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Figure, interleave
from benchmarks.ingest import COLUMNS, FROM_METADATA
from lakegate.checks import parse_checks, run_audit
from lakegate.components import Components
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.tables import AddedRows
from lakegate.spark.engine import SparkEngine

FILES = 16


def measure(components: Components, engine: SparkEngine, rounds: int) -> Iterator[Figure]:
    """Yield the ratio of the two audits."""
    medians = interleave(
        rounds,
        {
            "small": _audit(components, engine, "bench.small", 100_000),
            "large": _audit(components, engine, "bench.large", 10_000_000),
        },
    )
    detail = f"{medians['large'] * 1000:.0f} ms / {medians['small'] * 1000:.0f} ms, {FILES} files each"
    yield Figure("manifest audit, 10M rows / 100k rows", medians["large"] / medians["small"], 1.2, detail)


def _audit(components: Components, engine: SparkEngine, name: str, rows: int) -> Any:
    table = TableIdentifier.parse(name)
    engine.session.sql("CREATE NAMESPACE IF NOT EXISTS lakegate.bench")
    frame = engine.session.range(0, rows, 1, FILES).selectExpr(*COLUMNS)
    frame.writeTo(table.sql("lakegate")).using("iceberg").create()
    checks = [check for text in FROM_METADATA if "row_count" not in text for check in parse_checks(text)]
    catalog, reader = components.catalog, components.reader

    def refuse() -> Any:
        raise AssertionError("the manifests should have been enough")

    def audit() -> None:
        pointer = catalog.get_table(table, catalog.get_ref("main"))
        assert pointer is not None
        report = run_audit(
            run_id="bench",
            rows=AddedRows(table=table, ref="main", after_snapshot_id=None, snapshot_id=pointer.snapshot_id),
            schema=reader.metadata(pointer).table_schema,
            added=reader.added_files(pointer, (pointer.snapshot_id,)),
            checks=checks,
            engine=refuse,
            metadata_location=pointer.metadata_location,
        )
        assert report.passed
        assert report.rows == rows

    return audit
