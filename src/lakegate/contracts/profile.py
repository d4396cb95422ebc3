"""Profiles rows column by column, as the basis of a proposed contract. Reads Arrow batches, without an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyarrow import types

from lakegate.model.schema import Schema

pc: Any = pyarrow.compute  # its stubs have a hundred overloads for each function
MOST_VALUES = 50
"""Distinct values to count for each column. A column with more has no list of values."""
MOST_KEYS = 5_000_000
"""Up to this many rows, a profile says whether a column's values all differ."""
PATTERNS: Mapping[str, str] = {
    "a UUID": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    "an e-mail address": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+){1,99}",
    "a date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "a URL": r"https?://[!-~]+",
    "digits": r"[0-9]+",
    "capital letters": r"[A-Z]+",
}
"""What texts may look like. The patterns mean the same in Python and Java."""


@dataclass(slots=True)
class ColumnProfile:
    """Facts about one column.

    Attributes:
        low: Its smallest value, NULL and NaN aside; ``None`` if there is none, or its type has no order.
        high: Its largest value.
        values: Number of occurrences of each value, for up to :data:`MOST_VALUES` values; ``None`` if there are more.
        is_unique: Whether all values differ, NULL aside; ``None`` if unknown.
        patterns: Names of the :data:`PATTERNS` that all its text matches.
        lengths: Lengths of its shortest and longest text.
    """

    name: str
    type: str
    rows: int = 0
    nulls: int = 0
    nans: int = 0
    low: Any = None
    high: Any = None
    values: dict[Any, int] | None = field(default_factory=dict)
    is_unique: bool | None = True
    patterns: tuple[str, ...] = ()
    lengths: tuple[int, int] | None = None

    @property
    def present(self) -> int:
        """Number of values that aren't NULL."""
        return self.rows - self.nulls

    def without_values(self) -> ColumnProfile:
        """Return the profile without the column's values, or what they look like."""
        return replace(self, low=None, high=None, values=None, patterns=(), lengths=None)


def profile(batches: Iterable[pa.RecordBatch], schema: Schema) -> tuple[ColumnProfile, ...]:
    """Profile all rows in one pass."""
    columns = [_Column(ColumnProfile(column.name, column.type)) for column in schema.columns]
    for batch in batches:
        for column in columns:
            column.add(batch.column(batch.schema.get_field_index(column.profile.name)))
    return tuple(column.finish() for column in columns)


class _Column:
    """One column while its batches arrive."""

    def __init__(self, profile: ColumnProfile) -> None:
        self.profile = profile
        self._chunks: list[Any] = []
        self._is_bounded = True
        self._patterns: dict[str, Callable[[str], object]] | None = None

    def add(self, values: Any) -> None:
        profile = self.profile
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        profile.rows += len(values)
        profile.nulls += values.null_count
        present = values.drop_null()
        if types.is_floating(values.type):
            is_nan = pc.is_nan(present)
            profile.nans += pc.sum(is_nan).as_py() or 0
            present = present.filter(pc.invert(is_nan))
        if not len(present):
            return
        if types.is_nested(values.type):
            profile.values = profile.is_unique = None
            return
        self._bounds(present)
        self._count(present)
        if types.is_string(values.type) or types.is_large_string(values.type):
            self._match_patterns(present)

    def finish(self) -> ColumnProfile:
        profile = self.profile
        profile.patterns = tuple(self._patterns or ())
        if profile.is_unique:
            values = pa.chunked_array(self._chunks) if self._chunks else None
            profile.is_unique = values is not None and pc.count_distinct(values).as_py() == len(values)
        if profile.values is not None and not profile.values:
            profile.values = None
        self._chunks.clear()
        return profile

    def _bounds(self, present: Any) -> None:
        profile = self.profile
        if types.is_boolean(present.type) or types.is_binary(present.type) or types.is_large_binary(present.type):
            return
        if not self._is_bounded:
            return
        try:
            ends = pc.min_max(present)
            low, high = ends["min"].as_py(), ends["max"].as_py()
        except (pa.ArrowException, ValueError, OverflowError):  # what Python's dates can't hold
            self._is_bounded, profile.low, profile.high = False, None, None
            return
        profile.low = low if profile.low is None or low < profile.low else profile.low
        profile.high = high if profile.high is None or high > profile.high else profile.high

    def _count(self, present: Any) -> None:
        profile = self.profile
        if profile.is_unique:
            self._chunks.append(present)
            if profile.present > MOST_KEYS:
                profile.is_unique = None
                self._chunks.clear()
        if profile.values is None:
            return
        try:
            for one in pc.value_counts(present).to_pylist():
                profile.values[one["values"]] = profile.values.get(one["values"], 0) + one["counts"]
                if len(profile.values) > MOST_VALUES:
                    profile.values = None
                    return
        except (ValueError, OverflowError):
            profile.values = None

    def _match_patterns(self, present: Any) -> None:
        profile = self.profile
        sizes = pc.min_max(pc.utf8_length(present))
        low, high = sizes["min"].as_py(), sizes["max"].as_py()
        known = profile.lengths or (low, high)
        profile.lengths = (min(known[0], low), max(known[1], high))
        if self._patterns is None:
            self._patterns = {name: re.compile(pattern).fullmatch for name, pattern in PATTERNS.items()}
        if not self._patterns:
            return
        texts = pc.unique(present).to_pylist()
        for name, matches in list(self._patterns.items()):
            if not all(map(matches, texts)):
                del self._patterns[name]


def shown(value: object) -> str:
    """Return a value as one line for a comment."""
    if isinstance(value, (date, datetime)):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    text = str(value) if isinstance(value, (int, float, Decimal, bool)) else repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


_LONGEST = 40
