"""1,000 checks of 2,000 columns, against the same work in one piece: as many values and answers in a narrow table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.audits import audit_of
from benchmarks.harness import Figure, interleave
from lakegate.components import Components
from lakegate.model.identifiers import TableIdentifier
from lakegate.spark.engine import SparkEngine

_COLUMNS = 2_000
_ROWS = 5_000
_FEWER = 20
"""How many times as narrow and as long the other table is: one plan holds its columns and checks."""
_CHECKS = ("not_null(c{n})", "in_range(c{n}, 0, 96)", "sql('c{n} > 96')", "accepted_values(c{n}, [{all}])")


def measure(components: Components, engine: SparkEngine, rounds: int) -> Iterator[Figure]:
    """Yield the ratio of the two audits; nothing fails in either."""
    session: Any = engine.session
    session.sql("CREATE NAMESPACE IF NOT EXISTS lakegate.bench")
    audits: dict[str, Callable[[], object]] = {}
    for name, columns, rows in (("wide", _COLUMNS, _ROWS), ("narrow", _COLUMNS // _FEWER, _ROWS * _FEWER)):
        table = TableIdentifier.parse(f"bench.{name}")
        made = (f"id * {n + 1} % 97 AS c{n}" for n in range(columns))
        # Only the first hundred columns would have metrics; these answer nothing in either table.
        writer = session.range(0, rows, 1, 2).selectExpr(*made).writeTo(table.sql("lakegate")).using("iceberg")
        writer.tableProperty("write.metadata.metrics.default", "none").create()
        values = ", ".join(map(str, range(97)))
        texts = [_CHECKS[n // 2 % len(_CHECKS)].format(n=n, all=values) for n in range(0, columns, 2)]
        audits[name] = audit_of(components, table, rows, texts)
    medians = interleave(rounds, audits)
    detail = f"{medians['wide']:.1f} s / {medians['narrow']:.1f} s, {_ROWS:,} rows x {_COLUMNS:,} / {_FEWER}"
    yield Figure("audit, 1,000 checks of 2,000 columns / one piece", medians["wide"] / medians["narrow"], 3.0, detail)
