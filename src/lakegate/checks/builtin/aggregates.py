"""Checks of a column's mean, sum, extremes, shares and counts: in a range, or close to earlier batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any, Unpack

from lakegate.checks.builtin.values import Range, range_of, require_end
from lakegate.checks.columns import NUMBERS, ColumnType, Family, QuotedColumn, count_nulls, literal
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.history import MeasureOptions, band_of, prepare_band
from lakegate.checks.questions import Aggregates, CheckProblem, Finding, wrong_type
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.tables import AddedFiles

_TOO_LARGE = 2**1024  # for a double
_LONGEST_SHOWN = 200  # characters
_NO_VALUES = "The column has no values, so there was nothing to measure."
_ONE_VALUE = "The column has fewer than two values, so there was no deviation to measure."
_EXACT = "CAST({} AS DECIMAL(38, {}))"
_WORDS = {
    "min": "smallest value",
    "max": "greatest value",
    "stddev": "standard deviation",
    "null_rate": "share of NULLs",
    "not_null_proportion": "share of values that aren't NULL",
    "distinct_count": "number of distinct values",
}
_greater = max  # "max" is a parameter in this module
_DOUBLE = ColumnType.parse("double")
_ACCURACY = 10_000
_ALIASES = {"min_value": "min", "max_value": "max"}  # of dbt-expectations
Number = int | float


@check(
    example="mean(fare_amount, 5, 50)  or  mean(fare_amount, deviations=3)",
    parameter_aliases=_ALIASES,
    nulls="left out",
    nans="fails",
)
def mean(
    column: ColumnName,
    min: Number | None = None,
    max: Number | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """The mean of ``column`` is between ``min`` and ``max``, or close to that of earlier batches.

    NULLs are ignored. A column with a NaN has no mean and fails; one without values is skipped. Means of integers and
    decimals are exact; means of floats are computed in double precision. See [checks against
    history](#against-history) for ``deviations``, ``percent``, ``last`` and ``weekday``.

    Example:
        >>> str(mean("fare_amount", 5, 50))
        'mean(fare_amount, min=5, max=50)'
    """
    found = numeric_column(column)
    ends, band = (min, max), band_of(options)
    if found.type.family is Family.FLOATING:
        return _measure("mean", found, (f"avg(CAST({column} AS DOUBLE))",), itemgetter(0), ends, band)

    def measured(values: Sequence[Any]) -> Fraction | None:
        total, count = values
        return None if not count else Fraction(_summed(total, found)) / count

    return _measure("mean", found, (_exact_sum(found), f"count({column})"), measured, ends, band)


@check(
    name="sum",
    example="sum(fare_amount, min=0)",
    parameter_aliases=_ALIASES,
    nulls="left out",
    nans="fails",
)
def column_sum(
    column: ColumnName,
    min: Number | None = None,
    max: Number | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """The sum of ``column`` is between ``min`` and ``max``, or close to that of earlier batches.

    Otherwise like ``mean``. A sum of more than 38 digits is an error (exit code 2). In Python: ``column_sum``.

    Example:
        >>> str(column_sum("fare_amount", min=0))
        'sum(fare_amount, min=0)'
    """
    found = numeric_column(column)
    is_float = found.type.family is Family.FLOATING
    expression = f"sum(CAST({column} AS DOUBLE))" if is_float else _exact_sum(found)

    def measured(values: Sequence[Any]) -> Fraction | float | None:
        total, count = values
        if is_float or not count:
            return total if count else None
        return Fraction(_summed(total, found))

    return _measure("sum", found, (expression, f"count({column})"), measured, (min, max), band_of(options))


@check(example="stddev(fare_amount, max=100)", parameter_aliases=_ALIASES, nulls="left out", nans="fails")
def stddev(
    column: ColumnName,
    min: Number | None = None,
    max: Number | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """The sample standard deviation of ``column`` is between ``min`` and ``max``, or close to earlier ones.

    Computed in double precision. With fewer than two values, the check is skipped.

    Example:
        >>> str(stddev("fare_amount", max=100))
        'stddev(fare_amount, max=100)'
    """
    found = numeric_column(column)

    def measured(values: Sequence[Any]) -> float | None:
        spread, count = values
        return spread if count > 1 else None

    expressions = (f"stddev_samp(CAST({column} AS DOUBLE))", f"count({column})")
    return _measure(
        "standard deviation", found, expressions, measured, (min, max), band_of(options), nothing=_ONE_VALUE
    )


@check(
    example="quantile(fare_amount, 0.95, max=120)",
    parameter_aliases={**_ALIASES, "quantile": "q"},
    nulls="left out",
    nans="fails",
)
def quantile(
    column: ColumnName,
    q: float,
    min: Number | None = None,
    max: Number | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """The ``q`` quantile of ``column`` is between ``min`` and ``max``, or close to that of earlier batches.

    The quantile is the smallest value of the column, as a double, such that at least a share ``q`` (0 to 1) of the
    values are less than or equal to it. Values are never interpolated; ``q=0.5`` is the lower median. The comparison
    with ``min`` and ``max`` is exact. The value that is shown and compared with earlier batches is an approximation:
    its rank may be off by 0.01 % of the rows.

    Example:
        >>> str(quantile("fare_amount", 0.95, max=120))
        'quantile(fare_amount, q=0.95, max=120)'
    """
    found = numeric_column(column)
    # With just a cast, Spark replaces a limit beyond the column's type by NULL, and then fails to push the filter down.
    number = f"(CAST({column} AS DOUBLE) + 0.0D)"
    ends = Range.of(_DOUBLE, min, max, inclusive=True)
    expressions = (
        f"percentile_approx({number}, {q!r}D, {_ACCURACY})",
        f"count({column})",
        f"isnan(max({number}))",
        "0" if ends.lower is None else f"count_if({number} < {literal(ends.lower, _DOUBLE)})",
        "0" if ends.upper is None else f"count_if({number} <= {literal(ends.upper, _DOUBLE)})",
    )
    what = f"quantile {q!r} of {found.name}"

    def judge(values: Sequence[Any], _: int) -> Finding:
        value, count, has_nan, below, up_to = values
        if not count:
            return Finding(0, _NO_VALUES, skipped=True)
        if has_nan:
            return Finding(0, f"The {what} is NaN.", failed=True)
        rank = _greater(1, math.ceil(Fraction(str(q)) * count))  # from 1
        is_off = (ends.lower is not None and below >= rank) or (ends.upper is not None and up_to < rank)
        expected = f"; expected {_expected((min, max))}" if (min, max) != (None, None) else ""
        shown = f"The {what} is about {shown_number(value)}{expected}."
        return Finding(0, shown, failed=is_off, value=float(value))

    return Aggregates(expressions, judge, band=band_of(options))


@check(name="min", example="min(pickup, min='2024-01-01')", parameter_aliases=_ALIASES, nulls="left out", nans="fails")
def column_min(
    column: ColumnName, min: Limit | None = None, max: Limit | None = None, **options: Unpack[CheckOptions]
) -> Aggregates:
    """The smallest value of ``column`` is between ``min`` and ``max``, either of which may be omitted.

    For numbers, decimals, dates, times and text, compared as by ``in_range``. NULLs are ignored. A column with a
    NaN fails; one without values is skipped. In Python: ``column_min``.

    Example:
        >>> str(column_min("pickup", min="2024-01-01"))
        "min(pickup, min='2024-01-01')"
    """
    return _extreme("min", "smallest", audited(column), min, max)


@check(name="max", example="max(fare_amount, max=1000)", parameter_aliases=_ALIASES, nulls="left out", nans="fails")
def column_max(
    column: ColumnName, min: Limit | None = None, max: Limit | None = None, **options: Unpack[CheckOptions]
) -> Aggregates:
    """The greatest value of ``column`` is between ``min`` and ``max``, either of which may be omitted.

    Otherwise like ``min``. In Python: ``column_max``.

    Example:
        >>> str(column_max("fare_amount", max=1000))
        'max(fare_amount, max=1000)'
    """
    return _extreme("max", "greatest", audited(column), min, max)


@check(example="null_rate(tip, max=0.05)  or  null_rate(tip, percent=50)", nulls="counted", nans="–",
       evidence="manifest, both ways")  # fmt: skip
def null_rate(
    column: ColumnName,
    min: Number | None = None,
    max: Number | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """The share of NULLs in ``column`` (0 to 1) is between ``min`` and ``max``, or close to earlier ones.

    Exact, without rounding. Skipped if there are no rows.

    Example:
        >>> str(null_rate("tip", max=0.05))
        'null_rate(tip, max=0.05)'
    """
    return _share("share of NULLs", audited(column), Fraction, (min, max), band_of(options))


@check(
    example="not_null_proportion(tip, min=0.95)",
    parameter_aliases={"at_least": "min", "at_most": "max"},
    nulls="counted",
    nans="–",
    evidence="manifest, both ways",
)
def not_null_proportion(
    column: ColumnName, min: Number, max: Number = 1, **options: Unpack[CheckOptions]
) -> Aggregates:
    """The share of values in ``column`` that aren't NULL (0 to 1) is between ``min`` and ``max``.

    Exact, without rounding. Skipped if there are no rows.

    Example:
        >>> str(not_null_proportion("tip", 0.95))
        'not_null_proportion(tip, min=0.95)'
    """
    return _share(
        "share of values", audited(column), lambda nulls, rows: Fraction(rows - nulls, rows), (min, max), None
    )


@check(example="distinct_count(vendor_id, 1, 3)", parameter_aliases=_ALIASES, nulls="left out", nans="equals NaN")
def distinct_count(
    column: ColumnName,
    min: int | None = None,
    max: int | None = None,
    **options: Unpack[MeasureOptions],
) -> Aggregates:
    """``column`` has at least ``min`` and at most ``max`` distinct values, or about as many as earlier batches.

    NULL doesn't count as a value; 0.0 and -0.0 count as one. Text is compared exactly. Works for any type that
    ``unique`` accepts.

    Example:
        >>> str(distinct_count("vendor_id", 1, 3))
        'distinct_count(vendor_id, min=1, max=3)'
    """
    found = audited(column)
    if not found.type.groupable:
        raise wrong_type(found, "whose values can't be compared.")
    expressions = (f"count(DISTINCT {column})",)
    return _measure(
        "number of distinct values", found, expressions, lambda values: values[0], (min, max), band_of(options)
    )


@check(example="not_constant(fare_amount)", nulls="left out", nans="equals NaN")
def not_constant(column: ColumnName, **options: Unpack[CheckOptions]) -> Aggregates:
    """``column`` holds at least two different values.

    NULLs are ignored. Skipped if the column has fewer than two values.

    Example:
        >>> str(not_constant("fare_amount"))
        'not_constant(fare_amount)'
    """
    found = audited(column)
    if found.type.family is Family.OTHER:
        raise wrong_type(found, "which has no order.", "Use distinct_count.")

    def judge(values: Sequence[Any], _: int) -> Finding:
        is_same, count = values
        if count < 2:
            return Finding(0, "The column has fewer than two values.", skipped=True)
        return Finding(0, f"All {count:,} values are the same." if is_same else None, failed=bool(is_same))

    return Aggregates((f"min({column}) <=> max({column})", f"count({column})"), judge)


def _measure(
    what: str,
    column: QuotedColumn,
    expressions: tuple[str, ...],
    measured: Callable[[Sequence[Any]], Fraction | float | None],
    limits: tuple[Number | None, Number | None],
    band: Any,
    metrics: Callable[[AddedFiles], Sequence[Any] | None] | None = None,
    nothing: str = _NO_VALUES,
) -> Aggregates:
    def judge(values: Sequence[Any], _: int) -> Finding:
        value = measured(values)
        if value is None:
            return Finding(0, nothing, skipped=True)
        if isinstance(value, float) and math.isnan(value):
            return Finding(0, f"The {what} of {column.name} is NaN.", failed=True)
        is_off = not _within(value, limits)
        shown = f"The {what} of {column.name} is {shown_number(value)}"
        expected = f"; expected {_expected(limits)}" if limits != (None, None) else ""
        return Finding(0, f"{shown}{expected}.", failed=is_off, value=float(value))

    return Aggregates(expressions, judge, metrics=metrics, band=band)


def _share(
    what: str,
    column: QuotedColumn,
    share: Callable[[int, int], Fraction],
    limits: tuple[Number | None, Number | None],
    band: Any,
) -> Aggregates:
    def measured(values: Sequence[Any]) -> Fraction | None:
        nulls, rows = values
        return share(nulls, rows) if rows else None

    def by_metrics(added: AddedFiles) -> Sequence[int] | None:
        nulls = count_nulls(added, column)
        return None if nulls is None else (nulls, added.rows)

    expressions = (f"count_if({column} IS NULL)", "count(1)")
    return _measure(what, column, expressions, measured, limits, band, metrics=by_metrics)


def _extreme(function: str, word: str, column: QuotedColumn, low: Limit | None, high: Limit | None) -> Aggregates:
    kind = column.type
    if kind.family in (Family.BOOLEAN, Family.OTHER):
        raise wrong_type(column, f"which has no {word} value.")
    allowed = range_of(column, low, high)
    value = f"{function}({column})"
    has_nan = f" OR isnan(max({column}))" if kind.family is Family.FLOATING else ""

    def judge(values: Sequence[Any], _: int) -> Finding:
        is_off, found = values
        if found is None:
            return Finding(0, _NO_VALUES, skipped=True)
        text = bytes(found).decode(errors="backslashreplace")
        shown = repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}…"
        return Finding(0, f"The {word} value of {column.name} is {shown}.", failed=bool(is_off))

    # As bytes, because a string may not be valid UTF-8.
    text = f"CAST(substring(CAST({value} AS STRING), 1, {_LONGEST_SHOWN + 1}) AS BINARY)"
    return Aggregates((f"({allowed.outside(value)}{has_nan})", text), judge)


def numeric_column(column: str) -> QuotedColumn:
    """Return a column of numbers.

    Raises:
        CheckProblem: If it has another type.
    """
    found = audited(column)
    if found.type.family not in NUMBERS:
        raise wrong_type(found, "not a number.", "Use it on numeric columns.")
    return found


def _exact_sum(column: QuotedColumn) -> str:
    return f"try_sum({_EXACT.format(column, column.type.scale)})"


def _summed(total: Decimal | None, column: QuotedColumn) -> Decimal:
    if total is None:
        raise CheckProblem(
            f"the sum of {column.name} has more than 38 digits.", "Add where=…, or use custom_sql with a cast."
        )
    return total


def _within(value: Fraction | float, limits: tuple[Number | None, Number | None]) -> bool:
    # Floats are compared as floats: 0.1 in a column of doubles is the same number as 0.1 in the check.
    low, high = (None if end is None else (end if isinstance(value, float) else Fraction(str(end))) for end in limits)
    return (low is None or low <= value) and (high is None or value <= high)


def shown_number(value: Fraction | float) -> str:
    """Return a number in at most ten digits.

    Example:
        >>> shown_number(Fraction(1, 3)), shown_number(1200.0), shown_number(0.1)
        ('0.3333333333', '1200', '0.1')
    """
    return f"{float(value):.10g}"


def _expected(limits: tuple[Number | None, Number | None]) -> str:
    low, high = limits
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"{low} to {high}"


@mean.claim
@column_sum.claim
@stddev.claim
@quantile.claim
@column_min.claim
@column_max.claim
@null_rate.claim
@not_null_proportion.claim
@distinct_count.claim
def _claim(check: Check) -> str:
    given, column = check.arguments, check.columns[0]
    what = _WORDS.get(check.kind, check.kind)
    subject = f"the {given['q']} quantile of {column}" if check.kind == "quantile" else f"the {what} of {column}"
    limits = [f"{word} {given[name]}" for name, word in (("min", "at least"), ("max", "at most")) if name in given]
    near = ["about what it was in earlier batches"] * bool(given.keys() & {"deviations", "percent"})
    return f"{subject} is {' and '.join([*limits, *near])}"


@mean.prepare
@column_sum.prepare
@stddev.prepare
@null_rate.prepare
@distinct_count.prepare
def _prepare_measure(check: Check) -> Check:
    return prepare_band(_prepare_limits(check), ("min", "max"))


@quantile.prepare
def _prepare_quantile(check: Check) -> Check:
    if not 0 <= check.arguments["q"] <= 1:
        raise ValueError(f"q={check.arguments['q']} isn't a share from 0 to 1.")
    return _prepare_measure(check)


column_min.prepare(require_end)
column_max.prepare(require_end)


@not_null_proportion.prepare
def _prepare_limits(check: Check) -> Check:
    low: Any = check.arguments.get("min")
    high: Any = check.arguments.get("max")
    numbers: list[Any] = [end for end in (low, high) if isinstance(end, (int, float, Decimal))]
    if not all(abs(number) < _TOO_LARGE for number in numbers):
        raise ValueError("a limit is larger than any number that a column can hold.")
    if low is not None and high is not None and low > high:
        raise ValueError(f"min={low} is more than max={high}.")
    if check.kind in {"null_rate", "not_null_proportion"}:
        for name in ("min", "max"):
            if not 0 <= check.arguments.get(name, 0) <= 1:
                raise ValueError(f"{name}={check.arguments[name]} isn't a share from 0 to 1.")
    if check.kind in {"stddev", "distinct_count"} and high is not None and high < 0:
        raise ValueError(f"max={high} is negative, but a {_WORDS[check.kind]} never is.")
    return check
