"""1,000 checks of 2,000 columns, in the passes that share them, against the same work in one plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.audits import audit_of
from benchmarks.harness import Figure, interleave
from lakegate.components import Components
from lakegate.model.identifiers import TableIdentifier
from lakegate.spark import scans
from lakegate.spark.engine import SparkEngine

_COLUMNS = 2_000
_ROWS = 10_000
_FEWER = 20
"""How many times as narrow and as long the other table is, with as many values: one plan holds its checks well."""
_CHECKS = ("not_null(c{n})", "in_range(c{n}, 0, 96)", "sql('c{n} > 96')", "accepted_values(c{n}, [{all}])")


def measure(components: Components, engine: SparkEngine, rounds: int) -> Iterator[Figure]:
    """Yield the ratios of audits in which nothing fails, and no metrics answer anything."""
    session: Any = engine.session
    session.sql("CREATE NAMESPACE IF NOT EXISTS lakegate.bench")
    audits: dict[str, Callable[[], object]] = {}
    for name, columns, rows in (("wide", _COLUMNS, _ROWS), ("narrow", _COLUMNS // _FEWER, _ROWS * _FEWER)):
        table = TableIdentifier.parse(f"bench.{name}")
        made = (f"id * {n + 1} % 97 AS c{n}" for n in range(columns))
        writer = session.range(0, rows, 1, 2).selectExpr(*made).writeTo(table.sql("lakegate")).using("iceberg")
        writer.tableProperty("write.metadata.metrics.default", "none").create()
        values = ", ".join(map(str, range(97)))
        texts = [_CHECKS[n // 2 % len(_CHECKS)].format(n=n, all=values) for n in range(0, columns, 2)]
        audits[name] = audit_of(components, table, rows, texts)
    audits["one plan"] = _in_one_plan(audits["wide"])
    medians = interleave(rounds, audits)
    for name, limit, other in (("in one plan", 3.0, "one plan"), ("as many values of 100", None, "narrow")):
        ratio = medians["wide"] / medians[other]
        detail = f"{medians['wide']:.1f} s / {medians[other]:.1f} s, {_ROWS:,} rows"
        yield Figure(f"audit, 1,000 checks, 2,000 columns / {name}", ratio, limit, detail)


def _in_one_plan(audit: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        kept = scans.PREDICATES_PER_PASS
        scans.PREDICATES_PER_PASS = _COLUMNS
        try:
            return audit()
        finally:
            scans.PREDICATES_PER_PASS = kept

    return run
