"""Maps each key to one integer, to prove a key unique with bitmaps.

If there are as many distinct integers as keys, no key occurs twice, *whatever* function made the integers. So within a
batch, a wrong bound costs time but never changes a verdict: if the numbers differ, the keys themselves are counted.
With ``scope='table'``, bounds also decide which rows of the table are read (:func:`within_bounds`). There, the verdict
relies on them, as with every answer from manifests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from lakegate.checks.columns import ColumnType, Family, literal
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles, IntegerKey

BITS_A_ROW = 256
"""Maximum average distance between keys. For keys further apart, grouping by the keys is cheaper."""
_DENSE = 4
"""Maximum average distance between keys at which most groups of 64 possible keys hold several."""
_ALWAYS = 1 << 22
"""Bitmaps of up to this many bits (half a megabyte) are always small enough."""
_ORDERED = 2
"""Keys are in order if the ranges of all files add up to at most this many times the whole range."""
_EXACT_DOUBLES = 15
"""Decimal digits that a double holds exactly."""
_LONG_DIGITS = 18
_EPOCH = date(1970, 1, 1).toordinal()
_GREGORIAN = date(1583, 1, 1).toordinal()


def integer_key(columns: Sequence[str], schema: Schema, added: AddedFiles) -> IntegerKey | None:
    """Return how to turn a key into one integer; ``None`` if that wouldn't prove uniqueness more cheaply.

    Args:
        columns: The key's columns, spelled as in ``schema``.
        added: The files that hold the rows. Their bounds show how far apart the keys are.

    Example:
        >>> from lakegate.model.schema import Column
        >>> from lakegate.model.tables import ColumnStatistics, DataFile
        >>> known = {"id": ColumnStatistics(value_count=9, null_count=0, lower=1, upper=9)}
        >>> files = AddedFiles((DataFile(path="f", rows=9, size_bytes=1, columns=known),), complete=True)
        >>> integer_key(["id"], Schema(columns=(Column(name="id", type="long"),)), files).sql
        'CAST(`id` AS BIGINT)'
    """
    found = _judged(columns, schema, added)
    return None if isinstance(found, str) else found


def why_not(columns: Sequence[str], schema: Schema, added: AddedFiles) -> str | None:
    """Return why :func:`integer_key` returns ``None`` for a key, in one sentence; ``None`` if it doesn't."""
    found = _judged(columns, schema, added)
    return found if isinstance(found, str) else None


def within_bounds(columns: Sequence[str], schema: Schema, added: AddedFiles) -> str:
    """Return SQL that is true for every row with a key in ``added``, if :func:`integer_key` supports the key."""
    types = _types(schema)
    ends = ((name, types[name], _range(name, types[name], added)) for name in columns)
    return " AND ".join(_between(name, kind, *found) for name, kind, found in ends if found) or "TRUE"


def _types(schema: Schema) -> dict[str, ColumnType]:
    return {column.name: ColumnType.parse(column.type) for column in schema.columns}


def _between(column: str, kind: ColumnType, low: int, high: int) -> str:
    if kind.family is Family.INTEGER:
        return f"{quote(column)} BETWEEN {_long(low)} AND {_long(high)}"
    if kind.family is Family.DECIMAL:
        ends: list[Decimal | date] = [Decimal(end).scaleb(-kind.scale) for end in (low, high)]
    # In ORC files, statistics of dates before the Gregorian calendar are off by days.
    elif kind.family is Family.DATE and low + _EPOCH >= _GREGORIAN:
        ends = [date.fromordinal(end + _EPOCH) for end in (low, high)]
    else:
        return "TRUE"
    return f"{quote(column)} BETWEEN {' AND '.join(literal(end, kind) for end in ends)}"


def _judged(columns: Sequence[str], schema: Schema, added: AddedFiles) -> IntegerKey | str:
    if not added.complete or not set(columns) <= set(schema.names):
        why = "one is a field of a struct" if added.complete else added.gap
        return f"Manifests don't say how far apart its keys are: {why}."
    types = _types(schema)
    parts: list[tuple[str, tuple[int, int]]] = []
    for name in columns:
        kind = types[name]
        number = _as_integer(name, kind)
        if number is None:
            return f"Column '{name}' is {kind.text}, which can't be mapped to integers."
        ends = _range(name, kind, added)
        if ends is None:
            return f"Manifests don't say how far apart its keys are: bounds of '{name}' are missing."
        parts.append((number, ends))
    spans = [high - low + 1 for _, (low, high) in parts]
    bits = math.prod(spans)
    if reason := _unsuitable(bits, _fewest_keys(columns, added), added.rows):
        return reason
    is_dense = bits <= _DENSE * added.rows
    is_ordered = _overlaps(columns[0], types[columns[0]], added) <= _ORDERED * spans[0]
    if len(parts) == 1:
        return IntegerKey(columns=tuple(columns), sql=parts[0][0], is_ordered=is_ordered, is_dense=is_dense)
    combined = "0L"
    for (sql, (low, _)), span in zip(parts, spans, strict=True):
        # With try_, values outside their file's bounds don't end the audit.
        combined = f"try_add(try_multiply({combined}, {span}L), try_subtract({sql}, {_long(low)}))"
    return IntegerKey(columns=tuple(columns), sql=combined, is_ordered=is_ordered, is_dense=is_dense)


def _unsuitable(bits: int, keys: int, rows: int) -> str | None:
    """Return why bitmaps of ``bits`` bits don't suit ``keys`` keys in ``rows`` rows; ``None`` if they do."""
    if bits < keys:
        return f"There are {keys:,} keys but only {bits:,} possible values, so rows share keys and must be counted."
    if bits > max(_ALWAYS, BITS_A_ROW * rows):
        return f"Its keys are too far apart for bitmaps: {rows:,} rows among {bits:,} possible keys."
    return None


def _as_integer(column: str, kind: ColumnType) -> str | None:
    """Return a column's values as ``BIGINT``, distinct for distinct values."""
    name = quote(column)
    match kind.family:
        case Family.INTEGER | Family.BOOLEAN:
            return f"CAST({name} AS BIGINT)"
        case Family.DATE:
            return f"CAST(unix_date({name}) AS BIGINT)"
        case Family.DECIMAL if kind.scale == 0 and kind.precision <= _LONG_DIGITS:
            return f"CAST({name} AS BIGINT)"
        case Family.DECIMAL if kind.precision <= _EXACT_DOUBLES:
            # Multiplying decimals would create a BigDecimal for each row.
            return f"floor(CAST({name} AS DOUBLE) * {10**kind.scale}D + 0.5D)"
        case _:
            return None


def _range(column: str, kind: ColumnType, added: AddedFiles) -> tuple[int, int] | None:
    """Return the smallest and largest integer in a column; ``None`` if a file doesn't record them."""
    low = high = None
    for file in added.files:
        found = file.columns.get(column)
        if not file.rows or (found is not None and found.null_count == file.rows):
            continue
        if found is None or not kind.holds(found.lower) or not kind.holds(found.upper):
            return None
        ends = _integer(found.lower, kind), _integer(found.upper, kind)
        low = ends[0] if low is None else min(low, ends[0])
        high = ends[1] if high is None else max(high, ends[1])
    return None if low is None or high is None or low > high else (low, high)


def _overlaps(column: str, kind: ColumnType, added: AddedFiles) -> int:
    """Return the sum of the files' own ranges of a column."""
    found = (file.columns.get(column) for file in added.files if file.rows)
    ends = ((one.lower, one.upper) for one in found if one is not None and one.lower is not None)
    return sum(_integer(high, kind) - _integer(low, kind) + 1 for low, high in ends)


def _integer(value: Any, kind: ColumnType) -> int:
    if isinstance(value, date):
        return value.toordinal() - _EPOCH
    return int(value.scaleb(kind.scale)) if isinstance(value, Decimal) else int(value)


def _fewest_keys(columns: Sequence[str], added: AddedFiles) -> int:
    """Return a lower bound for the number of keys without NULL."""
    nulls = [file.columns[name].null_count for name in columns for file in added.files if file.rows]
    return max(0, added.rows - sum(count or 0 for count in nulls)) if None not in nulls else 0


def _long(number: int) -> str:
    return f"{number}L" if number >= -(2**63) + 1 else "CAST('-9223372036854775808' AS BIGINT)"
