"""Profiles rows column by column, and proposes a contract that these rows, and others like them, pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute
from pyarrow import types

from lakegate.contracts.document import comment, one_line
from lakegate.contracts.model import VERSION
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema, is_masked
from lakegate.model.types import nested_fields
from lakegate.model.words import counted

pc: Any = pyarrow.compute  # its stubs have a hundred overloads for each function
_ACCEPTED = 12
"""A column with up to this many distinct texts may get ``accepted_values``."""
_TIMES_EACH = 20
"""With this many rows for each distinct text, the list of texts is probably complete."""
_KEY_ROWS = 50
"""With this many rows, it's no coincidence that all values differ."""
_KEY_WORDS = ("id", "key", "uuid", "guid", "code", "number", "no", "nr")
_KEY_TYPES = ("int", "long", "string", "uuid")
_FEW_NULLS = 0.05
_LONGEST_VALUE = 60
_NUMBERS = ("int", "long", "float", "double")
MOST_VALUES = 50
"""Distinct values to count for each column. A column with more has no list of values."""
MOST_KEYS = 5_000_000
"""Up to this many rows, a profile says whether a column's values all differ."""
_LONGEST_SHOWN = 40


@dataclass(slots=True)
class ColumnProfile:
    """Facts about one column.

    Attributes:
        low: Its smallest value, NULL and NaN aside; ``None`` if there is none, or its type has no order.
        high: Its largest value.
        values: Number of occurrences of each value, for up to :data:`MOST_VALUES` values; ``None`` if there are more.
        is_unique: Whether all values differ, NULL aside; ``None`` if unknown.
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

    @property
    def present(self) -> int:
        """Number of values that aren't NULL."""
        return self.rows - self.nulls

    def without_values(self) -> ColumnProfile:
        """Return the profile without the column's values."""
        return replace(self, low=None, high=None, values=None)


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

    def finish(self) -> ColumnProfile:
        profile = self.profile
        if profile.is_unique:
            values = pa.chunked_array(self._chunks) if self._chunks else None
            profile.is_unique = values is not None and pc.count_distinct(values).as_py() == len(values)
        if profile.values is not None and not profile.values:
            profile.values = None
        self._chunks.clear()
        return profile

    def _bounds(self, present: Any) -> None:
        profile, kind = self.profile, present.type
        has_bounds = not (types.is_boolean(kind) or types.is_binary(kind) or types.is_large_binary(kind))
        if not has_bounds or not self._is_bounded:
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


def shown(value: object) -> str:
    """Return a value as one line for a comment."""
    if isinstance(value, (date, datetime)):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    text = str(value) if isinstance(value, (int, float, Decimal, bool)) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def propose(
    table: TableIdentifier,
    columns: Sequence[ColumnProfile],
    *,
    source: str,
    partition_by: Sequence[str] = (),
    schema: str | None = None,
    masked: Sequence[str] = (),
) -> str:
    """Return a contract's text.

    Args:
        source: Where the rows came from, for the comment at the top.
        schema: Path of the JSON Schema for editors, relative to the contract.
        masked: Patterns of columns whose values mustn't be shown. They get no checks that contain values.
    """
    rows = columns[0].rows if columns else 0
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines += [
        f"# Proposed from {counted(rows, 'row')} of {comment(source)}, all of which pass. Review and correct it.",
        f"version: {VERSION}",
        f"table: {one_line(str(table))}",
        "# owner: who looks after the table",
        "# freshness: 1d",
    ]
    if partition_by:
        lines.append(f"partition_by: [{', '.join(map(one_line, partition_by))}]")
    if columns:
        lines.append("columns:")
    for column in columns:
        hides = is_masked(masked, column.name, nested_fields(column.type))
        lines += [f"  {line}" for line in _column(column.without_values() if hides else column)]
    if rows:
        lines += ["checks:", "  - row_count: {min: 1}"]
    return "\n".join(lines) + "\n"


def _column(column: ColumnProfile) -> Iterator[str]:
    yield f"- name: {one_line(column.name)}"
    if column.type != "unknown":
        yield f"  type: {one_line(column.type)}"
    yield from (f"  # {comment(fact)}" for fact in _facts(column))
    if "${" in column.name:  # no check can name it, because Spark replaces ${…}
        return
    if column.rows and not column.nulls:
        yield "  required: true"
    checks = list(_checks(column))
    if checks:
        yield "  checks:"
        for text, why in checks:
            yield f"    - {text}  # {comment(why)}"


def _facts(column: ColumnProfile) -> Iterator[str]:
    if not column.rows:
        return
    yield f"{_share(column.nulls, column.rows)} NULL" if column.nulls else "never NULL"
    if column.low is not None:
        yield f"from {shown(column.low)} to {shown(column.high)}" + (f", {column.nans:,} NaN" if column.nans else "")
    if column.is_unique and column.present > 1:
        yield "all values differ"
    elif column.values is not None:
        common = sorted(column.values.items(), key=lambda one: -one[1])
        listed = ", ".join(f"{shown(value)} ({count:,})" for value, count in common[:5])
        more = f" and {len(common) - 5} more" if len(common) > 5 else ""
        yield f"{len(common)} different: {listed}{more}"


def _checks(column: ColumnProfile) -> Iterator[tuple[str, str]]:
    if column.nulls and column.nulls <= column.rows * _FEW_NULLS:
        most = math.ceil(column.nulls * 200 / column.rows)
        yield (
            f'not_null: {{tolerance: "{most}%", severity: warn}}',
            f"{_share(column.nulls, column.rows)} NULL; twice that, rounded up",
        )
    if _is_key(column):
        yield "unique", f"all {column.present:,} values differ"
        return
    listed = _listed(column)
    if listed is not None:
        yield f"accepted_values: [{', '.join(map(one_line, listed))}]", f"all that occur in {column.present:,} rows"
        return
    least = _least(column)
    if least is not None:
        yield f"in_range: {{min: {one_line(least)}, severity: warn}}", f"{shown(column.low)} to {shown(column.high)}"


def _is_key(column: ColumnProfile) -> bool:
    words = column.name.lower().replace("-", "_").split("_")
    named = words[-1] in _KEY_WORDS or column.name.endswith(("Id", "ID")) or "uuid" in words
    return bool(
        column.is_unique and not column.nulls and column.present >= _KEY_ROWS and named and column.type in _KEY_TYPES
    )


def _listed(column: ColumnProfile) -> list[str] | None:
    values = column.values
    if column.type != "string" or values is None or len(values) > _ACCEPTED:
        return None
    if column.present < _TIMES_EACH * len(values) or max(map(len, values)) > _LONGEST_VALUE:
        return None
    return sorted(values) if all(value.isprintable() and value for value in values) else None


def _least(column: ColumnProfile) -> int | str | None:
    """Return a lower limit that similar rows will probably keep; ``None`` if there is none.

    There is no upper one: amounts grow, and new dates are later. Errors are often negative, or dates long ago.
    """
    low = column.low
    if low is None or column.nans:
        return None
    if isinstance(low, (date, datetime)):
        zoned = low.astimezone(UTC) if isinstance(low, datetime) and low.tzinfo is not None else low
        return f"{zoned.year:04}-01-01"
    is_number = column.type in _NUMBERS or column.type.startswith("decimal")
    return 0 if is_number and low >= 0 and math.isfinite(column.high) else None


def _share(part: int, whole: int) -> str:
    share = Decimal(part) * 100 / whole
    rounded = share.quantize(Decimal("0.1"), ROUND_FLOOR)
    return f"{rounded} %" if rounded else "less than 0.1 %"
