"""One pass over rows that counts, for each of many predicates, the rows that meet it, and may prove a key unique.

An aggregate for each predicate makes methods that Java doesn't compile but interprets: thirteen of them took twice the
time that they take here. So the predicates are answered in a projection of their own, some to a number, a bit for each,
and the aggregation counts bits. Where there are more than a plan can hold well, several passes share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lakegate.errors import EngineError
from lakegate.model.identifiers import quote
from lakegate.model.tables import IntegerKey, ScanResult
from lakegate.spark.sessions import is_connect

_BITS = 16
"""Predicates answered to one number: so many make a method that Java still compiles."""
_PASS = 256
"""Predicates answered in one pass."""


def count(frame: Any, predicates: Sequence[str], key: IntegerKey | None = None) -> ScanResult:
    """Count the rows of ``frame`` that meet each predicate, and try to prove ``key`` unique.

    Raises:
        EngineError: When two passes saw different numbers of rows.
    """
    parts = [predicates[start : start + _PASS] for start in range(0, len(predicates), _PASS)] or [()]
    passes = [_pass(frame, part, key if number == 0 else None) for number, part in enumerate(parts)]
    if len({one.total for one in passes}) > 1:
        seen = " and ".join(f"{one.total:,}" for one in passes)
        raise EngineError(f"Passes over the same rows saw {seen} of them.", hint="Run it again.")
    failing = tuple(number for one in passes for number in one.failing)
    return ScanResult(total=passes[0].total, failing=failing, is_unique=passes[0].is_unique)


def _pass(frame: Any, predicates: Sequence[str], key: IntegerKey | None) -> ScanResult:
    parts = [predicates[start : start + _BITS] for start in range(0, len(predicates), _BITS)]
    answers = [
        " | ".join(f"IF({predicate}, {1 << bit}, 0)" for bit, predicate in enumerate(part)) + f" AS answers_{number}"
        for number, part in enumerate(parts)
    ]
    bits = [(number, 1 << bit) for number, part in enumerate(parts) for bit in range(len(part))]
    counts = [f"count_if((answers_{number} & {bit}) != 0)" for number, bit in bits]
    if key is not None:
        return _by_bucket(frame, answers, counts, key)
    rows = frame.selectExpr(*answers) if answers else frame
    total, *failing = rows.selectExpr("count(1)", *counts).collect()[0]
    return ScanResult(total=total, failing=tuple(failing))


def _by_bucket(frame: Any, answers: Sequence[str], counts: Sequence[str], key: IntegerKey) -> ScanResult:
    """Count per 32,768 neighbouring integers of the key, with a bitmap for these; then add up.

    Spark sorts the rows for this, which hold no more than bits by then.
    """
    if is_connect(frame):
        from pyspark.sql.connect.functions import expr
    else:
        from pyspark.sql.functions import expr
    present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
    rows = frame.selectExpr(
        f"bitmap_bucket_number({key.sql}) AS bucket",
        f"bitmap_bit_position({key.sql}) AS position",
        f"{present} AS is_present",
        *answers,
    )
    wanted = ["count(1)", "count_if(is_present)", "bitmap_count(bitmap_construct_agg(position))", *counts]
    grouped = rows.groupBy("bucket").agg(*(expr(f"{sql} AS c{index}") for index, sql in enumerate(wanted)))
    total, keys, distinct, *failing = grouped.selectExpr(*_sums(len(wanted))).collect()[0]
    return ScanResult(total=total, failing=tuple(failing), is_unique=True if keys == distinct else None)


def _sums(count: int) -> Iterator[str]:
    return (f"coalesce(sum(c{index}), 0)" for index in range(count))
