"""Checked columns: their Iceberg types, values as SQL literals, and what file metrics prove about them.

This is the only place where values enter SQL.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from enum import Enum
from typing import Any, Self, TypeAlias

from lakegate.model.identifiers import quote
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile
from lakegate.model.types import type_words

TypedValue: TypeAlias = bool | int | float | Decimal | date | datetime | str

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_TOO_FINE = re.compile(r"\.\d{7,}")
_BEYOND = Decimal("1e40")  # no Iceberg decimal or integer gets there
_ENOUGH_DIGITS = 128  # for numbers up to _BEYOND with 38 decimals
_INTEGER_BITS = {"int": 32, "long": 64}
_WHOLE_DIGITS = {"int": 10, "long": 20}  # of the decimals that Spark casts them to
_MOST_DIGITS = 38  # of a Spark decimal; a comparison that needs more loses fraction digits
_NOT_GROUPABLE = frozenset({"map", "variant", "geometry", "geography", "unknown"})
_NESTED = ("struct<", "list<", "map<", "variant", "geometry", "geography", "unknown")


class Family(Enum):
    """Types with the same literals and the same comparison."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TEXT = "text"
    OTHER = "other"


_FAMILIES = {
    "boolean": Family.BOOLEAN,
    "int": Family.INTEGER,
    "long": Family.INTEGER,
    "float": Family.FLOATING,
    "double": Family.FLOATING,
    "date": Family.DATE,
    "timestamp": Family.TIMESTAMP,
    "timestamptz": Family.TIMESTAMPTZ,
    "string": Family.TEXT,
    "uuid": Family.TEXT,  # Spark reads Iceberg's uuid as text
}
NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOATING})
_PYTHON_TYPES = {
    Family.BOOLEAN: bool,
    Family.INTEGER: int,
    Family.FLOATING: float,
    Family.DECIMAL: Decimal,
    Family.DATE: date,
    Family.TIMESTAMP: datetime,
    Family.TIMESTAMPTZ: datetime,
    Family.TEXT: str,
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """An Iceberg type (spec, "Schemas and Data Types").

    Example:
        >>> kind = ColumnType.parse("decimal(10, 2)")
        >>> kind.family.value, kind.limits
        ('decimal', (Decimal('-99999999.99'), Decimal('99999999.99')))
    """

    text: str
    family: Family
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """Parse a type. Types without literals get the family :attr:`Family.OTHER`."""
        if match := _DECIMAL.fullmatch(text):
            return cls(text, Family.DECIMAL, int(match[1]), int(match[2]))
        return cls(text, _FAMILIES.get(text, Family.OTHER))

    @property
    def single(self) -> bool:
        """Whether it's a 32-bit float."""
        return self.text == "float"

    @property
    def nested(self) -> bool:
        """Whether manifests have no usable metrics for it."""
        return self.text.startswith(_NESTED)

    @property
    def groupable(self) -> bool:
        """Whether the engine can group by it."""
        return not type_words(self.text) & _NOT_GROUPABLE

    @property
    def limits(self) -> tuple[Decimal, Decimal]:
        """Smallest and largest value of an integer or decimal type."""
        if self.family is Family.INTEGER:
            half = 2 ** (_INTEGER_BITS[self.text] - 1)
            return Decimal(-half), Decimal(half - 1)
        greatest = Decimal((0, (9,) * self.precision, -self.scale))
        return greatest.copy_negate(), greatest

    def holds(self, value: object) -> bool:
        """Return whether ``value``, as decoded from a manifest, has this type."""
        if type(value) is not _PYTHON_TYPES.get(self.family):
            return False
        if isinstance(value, datetime):
            return (value.tzinfo is not None) == (self.family is Family.TIMESTAMPTZ)
        return not (isinstance(value, Decimal) and not value.is_finite())


def compare_exactly(left: ColumnType, right: ColumnType) -> bool:
    """Return whether Spark compares values of the two types without rounding either."""
    families = {left.family, right.family}
    if families <= {Family.INTEGER, Family.DECIMAL}:
        whole = max(_WHOLE_DIGITS.get(one.text, one.precision - one.scale) for one in (left, right))
        return whole + max(left.scale, right.scale) <= _MOST_DIGITS
    if families == {Family.INTEGER, Family.FLOATING}:
        return {left.text, right.text} == {"int", "double"}
    return len(families) == 1 and (Family.OTHER not in families or left.text == right.text)


def exact_number(value: object, column: ColumnType) -> Decimal:
    """Return a user's number exactly as written. Text is only accepted for decimal columns.

    Raises:
        ValueError: With the reason, if it isn't a finite number.
    """
    if isinstance(value, str) and column.family is Family.DECIMAL:
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal("NaN")
        if number.is_finite():
            return number
    elif isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    elif isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    raise ValueError(f"{value!r} isn't a number")


def quantized(number: Decimal, column: ColumnType, rounding: str, *, steps: int = 0) -> Decimal:
    """Round ``number`` to a value of an integer or decimal type, then add ``steps`` of the type's smallest units.

    Numbers too large for any such type become ones that are just too large.
    """
    with localcontext(prec=_ENOUGH_DIGITS):
        step = Decimal(1).scaleb(-column.scale)
        return max(min(number, _BEYOND), -_BEYOND).quantize(step, rounding) + steps * step


def to_float(value: object, column: ColumnType) -> float:
    """Return a number as ``column`` would store it: rounded to 32 bits for ``float``, unless it's out of range.

    Raises:
        ValueError: With the reason, if it isn't a finite number.
    """
    number = float(exact_number(value, column))
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is out of range for {column.text}")
    rounded = rounded_to_single(number) if column.single else None
    return number if rounded is None else rounded


def rounded_to_single(number: float) -> float | None:
    """Return the nearest 32-bit float; ``None`` if ``number`` is out of range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None


def typed(value: object, column: ColumnType) -> TypedValue:
    """Convert a user's value to one that can occur in ``column``.

    Raises:
        ValueError: With the reason, if that's impossible.

    Example:
        >>> typed("2024-01-31", ColumnType.parse("timestamptz"))
        datetime.datetime(2024, 1, 31, 0, 0, tzinfo=datetime.timezone.utc)
    """
    match column.family:
        case Family.BOOLEAN if isinstance(value, bool):
            return value
        case Family.TEXT if isinstance(value, str):
            return value
        case Family.FLOATING:
            return to_float(value, column)
        case Family.INTEGER | Family.DECIMAL:
            return _on_grid(value, column)
        case Family.DATE:
            return _to_date(value)
        case Family.TIMESTAMP | Family.TIMESTAMPTZ:
            return _to_timestamp(value, zoned=column.family is Family.TIMESTAMPTZ)
    raise ValueError(f"{value!r} isn't a {'text' if column.family is Family.TEXT else 'truth value'}")


def _on_grid(value: object, column: ColumnType) -> int | Decimal:
    exact = exact_number(value, column)
    low, high = column.limits
    if not low <= exact <= high or exact != quantized(exact, column, ROUND_FLOOR):
        raise ValueError(f"{value!r} can't occur in a column of type {column.text}")
    return int(exact) if column.family is Family.INTEGER else exact


def _to_date(value: object) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise ValueError(f"{value!r} isn't a date such as '2024-01-31'")


def _to_timestamp(value: object, *, zoned: bool) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) and not _TOO_FINE.search(value) else None
        if moment is not None and zoned:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ValueError(f"{value!r} isn't a time such as '2024-01-31T23:59:59' (at most 6 decimals)")
    if moment.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone, but the column has none")
    return moment


def literal(value: TypedValue, column: ColumnType) -> str:
    """Return a value from :func:`typed` as a literal of ``column``'s type.

    Example:
        >>> literal(0.5, ColumnType.parse("float")), literal(Decimal("1.5"), ColumnType.parse("decimal(5, 2)"))
        ('0.5F', "CAST('1.5' AS DECIMAL(5, 2))")
    """
    if isinstance(value, (bool, int)):
        return str(value).upper()
    if isinstance(value, float):
        # A bound beyond 32 bits stays a double: as a float it would be infinite.
        return f"{value!r}F" if column.single and rounded_to_single(value) == value else f"{value!r}D"
    if isinstance(value, Decimal):
        # If the precisions differ, Spark compares in a type that holds both, and may round.
        return f"CAST('{value:f}' AS DECIMAL({column.precision}, {column.scale}))"
    return sql_string(value) if isinstance(value, str) else _moment_literal(value)


def _moment_literal(value: date) -> str:
    if not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    word = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
    return f"{word} '{value.isoformat(' ')}'"


class QuotedColumn(str):  # noqa: SLOT000 - a str subclass can't have the slots of its attributes before 3.13
    """What a check's function gets for a :data:`ColumnName`: the quoted name, with the column's type."""

    name: str
    type: ColumnType

    def __new__(cls, name: str, type_: str, path: Sequence[str] = ()) -> Self:
        """Quote ``name``, or the parts of the ``path`` that leads to a field of a struct."""
        quoted = super().__new__(cls, ".".join(map(quote, path)) if path else quote(name))
        quoted.name = name
        quoted.type = ColumnType.parse(type_)
        return quoted


def count_nulls(added: AddedFiles, column: QuotedColumn) -> int | None:
    """Return the number of NULLs; ``None`` if a file doesn't record it, or the column is nested."""
    return _sum_of(added, column, lambda metrics: metrics.null_count)


def count_nans(added: AddedFiles, column: QuotedColumn) -> int | None:
    """Return the number of NaN; ``None`` if a file doesn't record it, or the column is nested."""
    return _sum_of(added, column, lambda metrics: metrics.nan_count)


def _sum_of(added: AddedFiles, column: QuotedColumn, count: Callable[[ColumnStatistics], int | None]) -> int | None:
    found = [] if column.type.nested else [metrics_of(file, column.name) for file in added.files if file.rows]
    counts = [number for item in found if item is not None and (number := count(item)) is not None]
    return sum(counts) if len(counts) == len(found) and not column.type.nested else None


def none_outside(
    added: AddedFiles,
    column: QuotedColumn,
    *,
    one: Callable[[Any], bool],
    bounds: Callable[[Any, Any], bool],
) -> int | None:
    """Return 0 if metrics prove that every value except NULL is allowed, else ``None``: they can't prove a failure.

    Args:
        added: Complete evidence.
        one: Returns whether a single value is allowed; used for identity partitions.
        bounds: Returns whether everything between a lower and an upper bound is allowed; ``None`` is an unknown bound.
            Not called for text, whose bounds are truncated, or for floats that may contain NaN, which bounds ignore.
    """
    return 0 if all(_file_proves(file, column, one, bounds) for file in added.files if file.rows) else None


def metrics_of(file: DataFile, column: str) -> ColumnStatistics | None:
    """Return a column's metrics if its counts are known and match the file's rows. A missing count isn't zero."""
    found = file.columns.get(column)
    if found is None or found.value_count != file.rows or found.null_count is None:
        return None
    return found if 0 <= found.null_count <= file.rows else None


def _file_proves(
    file: DataFile, column: QuotedColumn, one: Callable[[Any], bool], bounds: Callable[[Any, Any], bool]
) -> bool:
    name, kind = column.name, column.type
    if name in file.identity_values:
        value = file.identity_values[name]
        if value is None or (kind.holds(value) and one(value)):
            return True
    found = metrics_of(file, name)
    if found is None:
        return False
    if found.null_count == file.rows:
        return True
    if kind.family in (Family.TEXT, Family.OTHER) or (kind.family is Family.FLOATING and found.nan_count != 0):
        return False
    low, high = found.lower, found.upper
    if kind.holds(low) and kind.holds(high) and low > high:
        return False  # another writer added a file with unsigned numbers, whose bounds don't describe what is read
    return bounds(low, high)
