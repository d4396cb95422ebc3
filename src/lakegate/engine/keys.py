"""Keys of a batch looked up in other rows: what ``unique(…, scope='table')`` and ``relationships`` ask.

Of the other rows only the key columns are read, and as few rows as their metrics allow: a filter by the batch's
smallest and greatest key lets Iceberg skip partitions, files and row groups. What is left goes through a semi join with
the batch's distinct keys, the side that Spark broadcasts as long as it is small. All is said by names and SQL text
(decision 0003), so it runs on Spark Connect and on classic sessions alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

from lakegate.errors import CheckError
from lakegate.model.identifiers import quote
from lakegate.model.tables import Rows, ScanResult

_EXACT_AS_TEXT = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz", "boolean")
_LONGEST_BOUND = 1_000  # characters; a longer text makes a longer plan and skips no more

_KNOWN = "found OR count > 1"
_FOUND = "found"
_ORPHAN = "NOT found"


class KeyLookup:
    """The keys of ``batch``, grouped, and which of them occur in ``others``. NULL in a key is no key.

    Args:
        batch: DataFrame of the batch.
        columns: Its key columns.
        others: DataFrames of the rows to look in.
        other_columns: Their columns to compare with, in the order of ``columns``.
    """

    def __init__(self, batch: Any, columns: Sequence[str], others: Sequence[Any], other_columns: Sequence[str]) -> None:
        # Names that no column of the batch has: examples hold these beside all of its columns.
        self._names = [f"__lakegate_key_{index}" for index in range(len(columns))]
        self._present = " AND ".join(f"{name} IS NOT NULL" for name in self._names)
        self._batch = batch
        self._named = self._selected(columns)
        self._others = [frame.selectExpr(*self._selected(other_columns)) for frame in others]

    def count_known(self) -> ScanResult:
        """Count the rows whose key occurs in the others or more than once here, and those whose key the others have."""
        return self._count(_KNOWN, _FOUND)

    def count_orphans(self) -> ScanResult:
        """Count the rows whose key the others lack."""
        return self._count(_ORPHAN)

    def known(self, limit: int) -> list[Any]:
        """Return up to ``limit`` of the rows whose key occurs in the others or more than once here."""
        return self._rows(_KNOWN, limit)

    def orphans(self, limit: int) -> list[Any]:
        """Return up to ``limit`` of the rows whose key the others lack."""
        return self._rows(_ORPHAN, limit)

    def _count(self, *conditions: str) -> ScanResult:
        cases = (f"CASE WHEN {self._present} AND ({condition}) THEN count END" for condition in conditions)
        sums = (f"coalesce(sum({case}), 0)" for case in ("count", *cases))
        total, *failing = self._judged.selectExpr(*sums).collect()[0]
        return ScanResult(total=total, failing=tuple(failing))

    def _rows(self, condition: str, limit: int) -> list[Any]:
        failing = self._judged.where(f"{self._present} AND ({condition})").select(*self._names)
        rows = self._batch.selectExpr("*", "_file", *self._named)
        found: list[Any] = rows.join(failing, self._names, "left_semi").drop(*self._names).limit(limit).collect()
        return found

    @cached_property
    def _keys(self) -> Any:
        return self._batch.selectExpr(*self._named)

    @cached_property
    def _judged(self) -> Any:
        """Each key once, with its number of rows of the batch (``count``) and whether others have it (``found``)."""
        grouped = self._keys.groupBy(*self._names).count()
        bounds = self._bounds() if self._others else None
        if bounds is None:
            return grouped.selectExpr("*", "FALSE AS found")
        wanted = grouped.where(self._present).select(*self._names)
        parts = [frame.where(bounds).join(wanted, self._names, "left_semi") for frame in self._others]
        met = reduce(lambda left, right: left.union(right), parts).distinct().selectExpr("*", "TRUE AS met")
        return grouped.join(met, self._names, "left").selectExpr(*self._names, "count", "met IS NOT NULL AS found")

    def _bounds(self) -> str | None:
        """Return the predicate of rows that may have one of the batch's keys; ``None`` when it has no keys."""
        types = [field.dataType.simpleString() for field in self._keys.schema.fields]
        bounded = {name: kind for name, kind in zip(self._names, types, strict=True) if _comparable_as_text(kind)}
        ends = (f"CAST({end}({name}) AS STRING)" for name in bounded for end in ("min", "max"))
        keys, *texts = self._keys.where(self._present).selectExpr("count(1)", *ends).collect()[0]
        if not keys:
            return None
        return " AND ".join(self._ranges(bounded, texts)) or "TRUE"

    def _ranges(self, bounded: dict[str, str], texts: Sequence[str]) -> Iterator[str]:
        lows_and_highs = iter(texts)
        for name, kind in bounded.items():
            low, high = next(lows_and_highs), next(lows_and_highs)
            if max(len(low), len(high)) <= _LONGEST_BOUND:
                yield f"{name} BETWEEN {_literal(low, kind)} AND {_literal(high, kind)}"

    def _selected(self, columns: Sequence[str]) -> list[str]:
        return [f"{quote(column)} AS {name}" for column, name in zip(columns, self._names, strict=True)]


def require_columns(frame: Any, rows: Rows, columns: Sequence[str]) -> Any:
    """Return ``frame``, which reads ``rows``, if it has all of ``columns``.

    Raises:
        CheckError: Naming the table and the column that is missing.
    """
    known = {name.lower() for name in frame.columns}
    missing = next((column for column in columns if column.lower() not in known), None)
    if missing is None:
        return frame
    raise CheckError(
        f"{rows.table} on {rows.ref} has no column '{missing}', which a check compares with.",
        hint=f"Its columns: {', '.join(frame.columns)}.",
        table=str(rows.table),
        column=missing,
    )


def _comparable_as_text(kind: str) -> bool:
    # Floats are left out: Iceberg takes no NaN in a filter.
    return kind == "string" or kind.partition("(")[0] in _EXACT_AS_TEXT


def text_literal(text: str) -> str:
    """Return ``text`` for Spark SQL, in hexadecimal, so that nothing in it has to be quoted.

    Spark folds it to a constant before it plans the scan.
    """
    return f"CAST(unhex('{text.encode().hex()}') AS STRING)"


def _literal(text: str, kind: str) -> str:
    return f"CAST({text_literal(text)} AS {kind})"
