from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Unpack

from lakegate.checks.columns import (
    ColumnType,
    Family,
    QuotedColumn,
    TypedValue,
    exact_number,
    literal,
    none_outside,
    quantized,
    typed,
)
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.questions import CheckProblem, FailingRows
from lakegate.checks.registry import check
from lakegate.model.checks import Check

_ON_GRID = (Family.INTEGER, Family.DECIMAL)


@check(
    example="in_range(fare_amount, 0, 500)  or  in_range(pickup, min='2024-01-01')",
    aliases=("accepted_range",),
    parameter_aliases={"min_value": "min", "max_value": "max"},
    nans="fails",
    evidence="manifest for a pass, else scan",
)
def in_range(
    column: ColumnName,
    min: Limit | None = None,
    max: Limit | None = None,
    *,
    inclusive: bool = True,
    **options: Unpack[CheckOptions],
) -> FailingRows:
    """Every value is between ``min`` and ``max``, either of which may be omitted.

    With ``inclusive=False``, values equal to ``min`` or ``max`` fail. For numbers, decimals, dates, times and text.
    Limits are compared as written: 0.1 in a 32-bit ``float`` column is slightly more than 0.1. Write dates and times as
    ISO 8601 text. A date that is compared with times means midnight. A time without a zone that is compared with a
    ``timestamptz`` column is UTC. Text compares by code point.

    Example:
        >>> from datetime import date
        >>> str(in_range("pickup", min=date(2024, 1, 1)))
        "in_range(pickup, min='2024-01-01')"
    """
    found = audited(column)
    if found.type.family in (Family.BOOLEAN, Family.OTHER):
        raise CheckProblem(
            f"column '{found.name}' is of type {found.type.text}, which has no ranges.",
            "Use in_range for numbers, dates, times and text; accepted_values(…) or sql('…') for the rest.",
        )
    allowed = range_of(found, min, max, inclusive=inclusive)
    return FailingRows(
        allowed.outside(column),
        metrics=lambda added: none_outside(
            added, found, one=lambda value: allowed.covers(value, value), bounds=allowed.covers
        ),
    )


@in_range.prepare
def require_end(check: Check) -> Check:
    """Return the check if it has ``min`` or ``max``, and they don't contradict each other."""
    if not check.arguments.keys() & {"min", "max"}:
        raise ValueError("it needs min, max or both.")
    low, high = (check.arguments.get(end) for end in ("min", "max"))
    if isinstance(low, (int, float, Decimal)) and isinstance(high, (int, float, Decimal)) and low > high:
        raise ValueError(f"min={low} is more than max={high}.")
    return check


@in_range.claim
def _claim(check: Check) -> str:
    inclusive = check.arguments.get("inclusive", True)
    low, high = (check.arguments.get(end) for end in ("min", "max"))
    parts = [] if low is None else [f"{'at least' if inclusive else 'more than'} {low}"]
    parts += [] if high is None else [f"{'at most' if inclusive else 'less than'} {high}"]
    return f"{check.columns[0]} is {' and '.join(parts)}"


def range_of(column: QuotedColumn, lower: object, upper: object, *, inclusive: bool = True) -> Range:
    """Return the range between two ends that a user gave for a column.

    Raises:
        CheckProblem: If an end doesn't fit the column's type, or no value lies between them.
    """
    try:
        return Range.of(column.type, lower, upper, inclusive=inclusive)
    except ValueError as error:
        raise CheckProblem(
            f"column '{column.name}' is of type {column.type.text}, and {error}.",
            "Give ends of the column's type, the smaller one first: numbers, or quoted dates and times.",
        ) from None


@dataclass(frozen=True, slots=True)
class Range:
    """The values that ``in_range`` allows in one column. An end that is ``None`` is open.

    For integers and decimals, the ends are moved to values that the type has (``x < 6.5`` is ``x <= 6``), so that every
    comparison is exact. For floats, they are doubles, also for 32-bit columns: a 0.1 there is greater than 0.1, as in
    SQL.
    """

    column: ColumnType
    lower: Any
    upper: Any
    inclusive: bool

    @classmethod
    def of(cls, column: ColumnType, lower: object, upper: object, *, inclusive: bool) -> Range:
        """Return the range between two ends as the user wrote them.

        Raises:
            ValueError: With the reason, if an end doesn't fit the type or no value lies between them.
        """
        if column.family in _ON_GRID:
            return cls._on_grid(column, lower, upper, inclusive=inclusive)
        low = None if lower is None else _end(lower, column, up=inclusive)
        high = None if upper is None else _end(upper, column, up=not inclusive)
        allowed = cls(column, low, high, inclusive)
        if low is not None and high is not None and not allowed._below(low, high):
            raise ValueError(f"no value lies between {lower!r} and {upper!r}")
        return allowed

    @classmethod
    def _on_grid(cls, column: ColumnType, lower: object, upper: object, *, inclusive: bool) -> Range:
        smallest, greatest = column.limits
        low, high = smallest, greatest
        if lower is not None:
            rounding = ROUND_CEILING if inclusive else ROUND_FLOOR
            low = quantized(exact_number(lower, column), column, rounding, steps=0 if inclusive else 1)
        if upper is not None:
            rounding = ROUND_FLOOR if inclusive else ROUND_CEILING
            high = quantized(exact_number(upper, column), column, rounding, steps=0 if inclusive else -1)
        if max(low, smallest) > min(high, greatest):
            raise ValueError(f"no {column.text} is within it")
        plain = int if column.family is Family.INTEGER else Decimal
        return cls(
            column,
            lower=plain(low) if low > smallest else None,
            upper=plain(high) if high < greatest else None,
            inclusive=True,
        )

    def covers(self, low: object, high: object) -> bool:
        """Return whether all values from ``low`` to ``high`` lie in the range; ``None`` is an unknown bound."""
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


def _end(value: object, column: ColumnType, *, up: bool) -> TypedValue:
    if column.family is not Family.FLOATING:
        return typed(value, column)
    exact = exact_number(value, column)
    found = float(exact)
    # An integer that isn't a double: comparing with the nearest double on this side gives the same result.
    if isinstance(value, int) and math.isfinite(found) and found != value and (found > value) != up:
        found = math.nextafter(found, math.inf if up else -math.inf)
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is beyond every {column.text}")
    return found
