from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Unpack

from lakegate.checks.columns import (
    ColumnType,
    Family,
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
    """Every value lies between ``min`` and ``max``, either of which may be left out.

    With ``inclusive=False`` both ends themselves fail. For numbers, decimals, dates, times and text. Ends are compared
    as written: a ``float`` of 32 bits that was once 0.1 is a little more than 0.1. Dates and times are ISO 8601 text. A
    date alone, compared with a time, is its midnight; a time without a zone, compared with a ``timestamptz`` column, is
    UTC. Text compares by code point.

    Example:
        >>> from datetime import date
        >>> str(in_range("pickup", min=date(2024, 1, 1)))
        "in_range(pickup, min='2024-01-01')"
    """
    name, kind = audited(column).name, audited(column).type
    if kind.family in (Family.BOOLEAN, Family.OTHER):
        raise CheckProblem(
            f"column '{name}' is of type {kind.text}, which has no ranges.",
            "Use in_range for numbers, dates, times and text; accepted_values(…) or sql('…') for the rest.",
        )
    try:
        allowed = Range.of(kind, min, max, inclusive=inclusive)
    except ValueError as error:
        raise CheckProblem(
            f"column '{name}' is of type {kind.text}, and {error}.",
            "Give ends of the column's type, the smaller one first: numbers, or quoted dates and times.",
        ) from None
    return FailingRows(
        allowed.outside(column),
        metrics=lambda added: none_outside(
            added, audited(column), one=lambda value: allowed.covers(value, value), bounds=allowed.covers
        ),
    )


@in_range.prepare
def require_end(check: Check) -> Check:
    """Return the check if it has one of its two ends, and no two numbers that contradict each other."""
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


@dataclass(frozen=True, slots=True)
class Range:
    """What ``in_range`` allows in one column; an end that is ``None`` is open to everything.

    For integers and decimals the ends are moved onto values that the type has (``x < 6.5`` is ``x <= 6``), so that
    every comparison is exact. Those of floats are doubles, in 32 bits, too: 0.1 there is a value above 0.1, as it is in
    SQL.
    """

    column: ColumnType
    lower: Any
    upper: Any
    inclusive: bool

    @classmethod
    def of(cls, column: ColumnType, lower: object, upper: object, *, inclusive: bool) -> Range:
        """Make a range of ends as the user wrote them.

        Raises:
            ValueError: With the reason, when an end doesn't fit the type or no value lies between them.
        """
        if column.family in _ON_GRID:
            return cls._on_grid(column, lower, upper, inclusive=inclusive)
        low = None if lower is None else _end(lower, column, up=inclusive)
        high = None if upper is None else _end(upper, column, up=not inclusive)
        made = cls(column, low, high, inclusive)
        if low is not None and high is not None and not made._below(low, high):
            raise ValueError(f"no value lies between {lower!r} and {upper!r}")
        return made

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
        """Return whether values from ``low`` to ``high`` are sure to lie in the range; ``None`` is an unknown bound."""
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
    # A whole number that no double is: comparing with its neighbour on this side is comparing with the number itself.
    if isinstance(value, int) and math.isfinite(found) and found != value and (found > value) != up:
        found = math.nextafter(found, math.inf if up else -math.inf)
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is beyond every {column.text}")
    return found
