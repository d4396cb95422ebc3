"""Ranges of values, compared the same way whether by file metrics or by the engine."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from lakegate.audits.column_types import ColumnType, Family, exact_number, quantized, typed
from lakegate.audits.literals import literal

_ON_GRID = (Family.INTEGER, Family.DECIMAL)


@dataclass(frozen=True, slots=True)
class Range:
    """What ``in_range`` allows in one column; an end that is ``None`` is open to everything.

    For integers and decimals the ends are moved onto values that the type has (``x < 6.5`` is ``x <= 6``), so that
    every comparison is exact.
    """

    column: ColumnType
    lower: Any
    upper: Any
    inclusive: bool

    @classmethod
    def of(cls, column: ColumnType, lower: object, upper: object, *, inclusive: bool) -> Range:
        """Make a range of ends as the user wrote them.

        Raises:
            ValueError: With the reason, when an end does not fit the type or no value lies between them.
        """
        if column.family in _ON_GRID:
            return cls._on_grid(column, lower, upper, inclusive=inclusive)
        low = None if lower is None else typed(lower, column)
        high = None if upper is None else typed(upper, column)
        made = cls(column, low, high, inclusive)
        if low is not None and high is not None and not made._below(low, high):
            raise ValueError(f"no value lies between {lower!r} and {upper!r}")
        return made

    @classmethod
    def _on_grid(cls, column: ColumnType, lower: object, upper: object, *, inclusive: bool) -> Range:
        smallest, greatest = column.limits
        low = smallest if lower is None else _first(exact_number(lower, column), column, inclusive=inclusive)
        high = greatest if upper is None else _last(exact_number(upper, column), column, inclusive=inclusive)
        if max(low, smallest) > min(high, greatest):
            raise ValueError(f"no {column.text} lies in it")
        plain = int if column.family is Family.INTEGER else Decimal
        return cls(
            column,
            lower=plain(low) if low > smallest else None,
            upper=plain(high) if high < greatest else None,
            inclusive=True,
        )

    def covers(self, low: object, high: object) -> bool:
        """Tell whether values from ``low`` to ``high`` are sure to lie in the range; ``None`` is an unknown bound."""
        holds = self.column.holds
        return (self.lower is None or (holds(low) and self._below(self.lower, low))) and (
            self.upper is None or (holds(high) and self._below(high, self.upper))
        )

    def outside(self, name: str) -> str:
        """Return the SQL predicate of values outside the range; NULL is neither inside nor outside, NaN is outside.

        Args:
            name: The column, quoted.
        """
        less, more = ("<", ">") if self.inclusive else ("<=", ">=")
        terms = [f"isnan({name})"] if self.column.family is Family.FLOATING else []
        if self.lower is not None:
            terms.append(f"{name} {less} {literal(self.lower, self.column)}")
        if self.upper is not None:
            terms.append(f"{name} {more} {literal(self.upper, self.column)}")
        return " OR ".join(terms) or "FALSE"

    def _below(self, left: Any, right: Any) -> bool:
        return bool(left <= right if self.inclusive else left < right)


def _first(number: Decimal, column: ColumnType, *, inclusive: bool) -> Decimal:
    if inclusive:
        return quantized(number, column, ROUND_CEILING)
    return quantized(number, column, ROUND_FLOOR, steps=1)


def _last(number: Decimal, column: ColumnType, *, inclusive: bool) -> Decimal:
    if inclusive:
        return quantized(number, column, ROUND_FLOOR)
    return quantized(number, column, ROUND_CEILING, steps=-1)
