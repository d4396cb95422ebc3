"""Uniqueness by bitmaps, against counting in plain Python, on files and manifests that Spark wrote."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from lakegate.checks import parse_checks, run_audit
from lakegate.components import Components
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.tables import AddedRows
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import CATALOG

pytestmark = pytest.mark.jvm

ROWS = 3_000
NULL_SHARE = 0.1
_EPOCH = date(1970, 1, 1)
KINDS: dict[str, tuple[str, Any]] = {
    # Spark's type, and the n-th value of the column.
    "long": ("bigint", lambda n: n - 1_000),
    "low": ("bigint", lambda n: n - 2**63),
    "high": ("bigint", lambda n: 2**63 - 1 - n),
    "sparse": ("bigint", lambda n: n * 1_000_003),
    "int": ("int", lambda n: -(2**31) + 7 * n),
    "short": ("smallint", lambda n: n - 2**15),
    "byte": ("tinyint", lambda n: n % 256 - 128),
    "day": ("date", lambda n: date(1500, 1, 1) + timedelta(days=n)),
    "money": ("decimal(9, 2)", lambda n: Decimal(n - 1_500).scaleb(-2)),
    "cents": ("decimal(15, 2)", lambda n: Decimal(999_999_999_999_999 - n).scaleb(-2)),
    "whole": ("decimal(18, 0)", lambda n: Decimal(-999_999_999_999_999_999 + n)),
    "wide": ("decimal(38, 4)", lambda n: Decimal(n).scaleb(-4)),
    "word": ("string", lambda n: f"key-{n}"),
    "flag": ("boolean", lambda n: n % 2 == 0),
}
NOT_DENSE = [("sparse",), ("wide",), ("word",), ("int", "low"), ("word", "flag")]
IN_TABLE = [("long",), ("low",), ("sparse",), ("money",), ("day",), ("short", "flag")]
SHOWN = [("long",), ("short", "flag")]
UNIQUE = ("low", "day")
"""Columns that repeat nothing unless all do."""
EARLIER = 500
"""Rows that are in the table before."""
COMPOSITES = [("short", "flag"), ("low", "flag"), ("byte", "day"), ("flag", "money", "byte"), *NOT_DENSE[-2:]]


def _numbers(r: random.Random, repeats: str) -> list[int | None]:
    """Return which values a column has: each once but for one, or half of them twice, and some NULLs."""
    numbers: list[int | None] = [*range(ROWS)]
    r.shuffle(numbers)
    for _ in range({"none": 0, "one": 1, "many": ROWS // 2}[repeats]):
        numbers[r.randrange(ROWS)] = numbers[r.randrange(ROWS)]
    if r.random() < 0.5:
        numbers = [None if r.random() < NULL_SHARE else number for number in numbers]
    return numbers


def _shared(keys: Sequence[tuple[Any, ...]], known: Sequence[tuple[Any, ...]] = ()) -> int:
    found, there = Counter(key for key in keys if None not in key), set(known)
    return sum(count for key, count in found.items() if count > 1 or key in there)


@pytest.mark.parametrize("repeats", ["one", "many"])
def test_bitmaps_and_counting_agree(components: Components, namespace: str, repeats: str) -> None:
    r = random.Random(f"bitmaps {repeats}")
    values = {
        name: [
            None if number is None else make(number)
            for number in _numbers(r, "none" if repeats == "one" and name in UNIQUE else repeats)
        ]
        for name, (_, make) in KINDS.items()
    }
    engine = cast("SparkEngine", components.engine)
    spark: Any = engine.session
    table = TableIdentifier(namespace=(namespace,), name="keys")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.`{namespace}`")
    columns = ", ".join(
        f"`{name}` {'int' if kind in ('smallint', 'tinyint') else kind}" for name, (kind, _) in KINDS.items()
    )
    spark.sql(f"CREATE TABLE {table.sql(CATALOG)} ({columns}) USING iceberg")
    whole = pa.table(values)
    heads = []
    for part in (whole.slice(0, EARLIER), whole.slice(EARLIER)):
        frame = spark.createDataFrame(part)
        frame.selectExpr(*(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, (kind, _) in KINDS.items())).repartition(
            3
        ).writeTo(table.sql(CATALOG)).append()
        heads.append(components.catalog.get_ref("main"))
    pointer = components.catalog.get_table(table, heads[-1])
    assert pointer is not None
    before, _ = components.reader.snapshots(pointer)
    every = [(name,) for name in KINDS] + COMPOSITES
    keys = every[::3] if repeats == "many" else every  # those that repeat are counted, by a query each
    # Beside them, rows that fail, and a predicate that is neither true nor false.
    # Only some show examples, each of which is a query of its own.
    texts = [f"unique({', '.join(key)}{', examples=0' * (key not in SHOWN)})" for key in keys]
    texts += ["sql('long < 5')", "sql('flag', examples=0)"]
    texts += [f"unique({', '.join(key)}, scope='table'{', examples=0' * (key not in SHOWN)})" for key in IN_TABLE]
    report = run_audit(
        run_id="r1",
        rows=AddedRows(table=table, ref="main", after_snapshot_id=before.snapshot_id, snapshot_id=pointer.snapshot_id),
        others=lambda _: (TableAt(table=table, ref="main", hash=heads[0].hash),),
        schema=components.reader.metadata(pointer).table_schema,
        added=components.reader.added_files(pointer, (pointer.snapshot_id,)),
        checks=[check for text in texts for check in parse_checks(text)],
        engine=lambda: engine,
        metadata_location=pointer.metadata_location,
        explain=True,
    )
    rows = {key: list(zip(*(values[name] for name in key), strict=True)) for key in (*keys, *IN_TABLE)}
    wanted = [_shared(rows[key][EARLIER:]) for key in keys]
    wanted += [sum(value is not None and value < 5 for value in values["long"][EARLIER:])]
    wanted += [sum(map(bool, values["flag"][EARLIER:]))]
    wanted += [_shared(rows[key][EARLIER:], rows[key][:EARLIER]) for key in IN_TABLE]
    assert dict(zip(texts, wanted, strict=True)) == {
        text: result.failing_rows for text, result in zip(texts, report.results, strict=True)
    }
    methods = {one.method for one in report.explanations}
    assert "grouping" in methods
    assert repeats == "many" or "bitmaps" in methods
