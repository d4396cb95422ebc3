"""Checks of single values: NULL, lists of values, ranges, pairs of columns, and times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Unpack

from lakegate.checks.columns import (
    ColumnType,
    Family,
    QuotedColumn,
    TypedValue,
    compare_exactly,
    count_nulls,
    exact_number,
    literal,
    none_outside,
    quantized,
    typed,
)
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.questions import CheckProblem, FailingRows, audit_time, wrong_type
from lakegate.checks.registry import check
from lakegate.model.checks import Check

_ON_GRID = (Family.INTEGER, Family.DECIMAL)
_TIMES = (Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ)


@check(
    example="not_null(passenger_count)",
    each_column=True,
    nulls="fails",
    nans="passes",
    evidence="manifest, both ways",
)
def not_null(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` must not be NULL.

    NaN is a value, not NULL; the report says how many there are. As text, ``not_null(a, b)`` makes one check for each
    column. File metrics give the exact count.

    Example:
        >>> str(not_null("passenger_count"))
        'not_null(passenger_count)'
    """
    found = audited(column)
    return FailingRows(
        f"{column} IS NULL",
        metrics=lambda added: count_nulls(added, found),
        nans_of=found if found.type.family is Family.FLOATING else None,
    )


@check(
    example="accepted_values(payment_type, ['cash', 'card'])", nans="fails", evidence="manifest for a pass, else scan"
)
def accepted_values(
    column: ColumnName, values: Sequence[Limit | bool | None], **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is one of ``values``.

    NULL passes, so a ``None`` in the list is ignored. Text is compared exactly, including case. Write dates and times
    as ISO 8601 text, as for `in_range`.

    Example:
        >>> str(accepted_values("payment_type", ["cash", "card"]))
        "accepted_values(payment_type, values=['cash', 'card'])"
    """
    found = audited(column)
    kind, accepted = found.type, typed_values(found, values)

    def only_accepted(low: object, high: object) -> bool:
        known = kind.holds(low) and kind.holds(high)
        return known and ((low == high and low in accepted) or _all_between(low, high, accepted))

    return FailingRows(
        values_of=column,
        predicate=f"{column} NOT IN ({', '.join(literal(value, kind) for value in accepted)})",
        metrics=lambda added: none_outside(added, found, one=lambda value: value in accepted, bounds=only_accepted),
    )


def typed_values(column: QuotedColumn, values: Sequence[object]) -> dict[TypedValue, None]:
    """Convert a user's values to the column's type, and drop duplicates.

    Raises:
        CheckProblem: If a value can't occur in the column.
    """
    if column.type.family is Family.OTHER:
        raise wrong_type(column, "which has no literals.", "Use sql('…').")
    try:
        return dict.fromkeys(typed(value, column.type) for value in values)
    except ValueError as error:
        raise wrong_type(column, f"and {error}.", "Give values of the column's type.") from None


@accepted_values.prepare
def prepare_values(check: Check) -> Check:
    """Return the check without NULL among its values. At least one must remain."""
    values = [value for value in check.arguments["values"] if value is not None]
    if any(isinstance(value, list) for value in values):
        raise ValueError("a value can't be a list.")
    if not values:
        only_null = " except for None, and NULL always passes" if check.arguments["values"] else ""
        raise ValueError(f"the list is empty{only_null}.")
    return check.model_copy(update={"arguments": {"values": values}})


def _all_between(low: Any, high: Any, accepted: dict[TypedValue, None]) -> bool:
    """Return whether every value from ``low`` to ``high`` is accepted; ``False`` for types with too many values."""
    has_few = type(low) in (bool, int) and 0 <= high - low < len(accepted)
    return has_few and all(value in accepted for value in range(low, high + 1))


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
        hint = "Use in_range for numbers, dates, times and text; accepted_values(…) or sql('…') for the rest."
        raise wrong_type(found, "which has no order.", hint)
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
def _claim_range(check: Check) -> str:
    inclusive = check.arguments.get("inclusive", True)
    low, high = (check.arguments.get(end) for end in ("min", "max"))
    parts = [] if low is None else [f"{'at least' if inclusive else 'more than'} {low}"]
    parts += [] if high is None else [f"{'at most' if inclusive else 'less than'} {high}"]
    return f"{check.columns[0]} is {' and '.join(parts)}"


def range_of(column: QuotedColumn, lower: object, upper: object, *, inclusive: bool = True) -> Range:
    """Return the range between a user's limits for a column.

    Raises:
        CheckProblem: If a limit doesn't fit the column's type, or no value lies between them.
    """
    try:
        return Range.of(column.type, lower, upper, inclusive=inclusive)
    except ValueError as error:
        hint = "Give limits of the column's type, the smaller one first: numbers, or quoted dates and times."
        raise wrong_type(column, f"and {error}.", hint) from None


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
            raise ValueError(f"no {column.text} is in that range")
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
        raise ValueError(f"{value!r} is out of range for {column.text}")
    return found


@check(example="not_accepted_values(status, ['test', 'void'])", nans="passes")
def not_accepted_values(
    column: ColumnName, values: Sequence[Limit | bool | None], **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is none of ``values``.

    Write values as for ``accepted_values``. NULL passes, so a ``None`` in the list is ignored.

    Example:
        >>> str(not_accepted_values("status", ["test", "void"]))
        "not_accepted_values(status, values=['test', 'void'])"
    """
    found = audited(column)
    refused = ", ".join(literal(value, found.type) for value in typed_values(found, values))
    return FailingRows(f"{column} IN ({refused})", values_of=column)


not_accepted_values.prepare(prepare_values)


@check(example="column_pair_greater(dropoff, pickup)", nans="NaN is greater than any number, and equals NaN")
def column_pair_greater(
    column: ColumnName, other: ColumnName, *, or_equal: bool = False, **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is greater than ``other`` in every row.

    With ``or_equal=True``, they may be equal. Rows with a NULL in either column pass. The types must be comparable:
    both numbers, text, booleans, dates or times (with or without a time zone, but not mixed).

    Example:
        >>> str(column_pair_greater("dropoff", "pickup"))
        'column_pair_greater(dropoff, pickup)'
    """
    left, right = audited(column), audited(other)
    if left.type.family is Family.OTHER or not compare_exactly(left.type, right.type):
        raise CheckProblem(
            f"column '{left.name}' is of type {left.type.text}, '{right.name}' of type {right.type.text}; they don't "
            "compare exactly.",
            "Use expression_is_true('…') with a cast.",
        )
    return FailingRows(f"{left} {'<' if or_equal else '<='} {right}")


@column_pair_greater.claim
def _claim_pair(check: Check) -> str:
    equal = " or equal to" if check.arguments.get("or_equal") else ""
    return f"{check.columns[0]} is greater than{equal} {check.columns[1]}"


@check(example="not_in_future(pickup)", each_column=True, nans="–")
def not_in_future(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is never later than the time of the audit (UTC).

    For dates and times. Times without a time zone are taken as UTC. Today's date passes.

    Example:
        >>> str(not_in_future("pickup"))
        'not_in_future(pickup)'
    """
    found = audited(column)
    return FailingRows(f"{found} > {moment(found, audit_time())}")


def moment(column: QuotedColumn, time: datetime) -> str:
    """Return a time (UTC) as a literal of a column's type.

    Raises:
        CheckProblem: If the column has neither dates nor times.
    """
    kind = column.type.family
    if kind not in _TIMES:
        raise wrong_type(column, "neither a date nor a time.", "Use it on date or time columns.")
    if kind is Family.DATE:
        return literal(time.date(), column.type)
    return literal(time if kind is Family.TIMESTAMPTZ else time.replace(tzinfo=None), column.type)
