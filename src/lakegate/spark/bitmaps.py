"""Scans that also prove a key to be unique, by a bitmap for each 32,768 neighbouring integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakegate.model.identifiers import quote
from lakegate.model.tables import IntegerKey, ScanResult
from lakegate.spark.sessions import is_connect

_BITS = 48
"""Predicates whose answers travel in one number."""


def counted_by_bucket(frame: Any, predicates: Sequence[str], key: IntegerKey) -> ScanResult:
    """Count the rows of ``frame`` that meet each predicate, grouped by the key's bitmap; then add up the groups.

    Spark sorts the rows for this. So the predicates are answered before, a bit for each, and only bits are sorted.
    """
    if is_connect(frame):
        from pyspark.sql.connect.functions import expr
    else:
        from pyspark.sql.functions import expr
    parts = [predicates[start : start + _BITS] for start in range(0, len(predicates), _BITS)]
    answers = (
        " | ".join(f"IF({predicate}, {1 << bit}L, 0L)" for bit, predicate in enumerate(part)) + f" AS answers_{number}"
        for number, part in enumerate(parts)
    )
    present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
    rows = frame.selectExpr(
        f"bitmap_bucket_number({key.sql}) AS bucket",
        f"bitmap_bit_position({key.sql}) AS position",
        f"{present} AS is_present",
        *answers,
    )
    counts = [
        f"count_if((answers_{number} & {1 << bit}L) != 0)"
        for number, part in enumerate(parts)
        for bit in range(len(part))
    ]
    wanted = ["count(1)", "count_if(is_present)", "bitmap_count(bitmap_construct_agg(position))", *counts]
    grouped = rows.groupBy("bucket").agg(*(expr(f"{sql} AS c{index}") for index, sql in enumerate(wanted)))
    sums = grouped.selectExpr(*(f"coalesce(sum(c{index}), 0)" for index in range(len(wanted))))
    total, keys, distinct, *failing = sums.collect()[0]
    return ScanResult(total=total, failing=tuple(failing), is_unique=True if keys == distinct else None)
