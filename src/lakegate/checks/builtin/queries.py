"""Checks that need a query of their own: sequences, ranges, outliers and recency."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Unpack

from lakegate.checks.builtin.aggregates import numeric_column
from lakegate.checks.builtin.values import moment
from lakegate.checks.columns import Family, compare_exactly
from lakegate.checks.definition import CheckOptions, ColumnName, ExtraColumns, audited
from lakegate.checks.questions import Aggregates, CheckProblem, Finding, QueryRows, audit_time, wrong_type
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.tables import OWN_BATCH

_DURATION = re.compile(r"([1-9][0-9]{0,5})\s*(minute|hour|day|week)s?")
_INFINITY = "CAST('Infinity' AS DOUBLE)"
_LONGEST_SPAN = timedelta(days=365_000)


@check(example="sequential_values(invoice_number)", nulls="left out", nans="–", evidence="scan (a job of its own)")
def sequential_values(
    column: ColumnName,
    interval: int = 1,
    *,
    partition_by: ExtraColumns | None = None,
    **options: Unpack[CheckOptions],
) -> QueryRows:
    """Sorted, each value of ``column`` is the previous one plus ``interval``: no gaps and no duplicates.

    For integers, and for dates with an interval in days. A row fails if the previous value isn't its own minus the
    interval. With ``partition_by``, each group of rows with the same values there is a separate sequence.

    Example:
        >>> str(sequential_values("invoice_number"))
        'sequential_values(invoice_number)'
    """
    found = audited(column)
    if found.type.family not in (Family.INTEGER, Family.DATE):
        raise wrong_type(found, "neither a whole number nor a date.")
    previous = f"lag({column}) OVER ({_partition(partition_by)}ORDER BY {column})"
    step = f"date_add(__lakegate_previous, {interval})"
    if found.type.family is Family.INTEGER:
        step = f"CAST(__lakegate_previous AS DECIMAL(38, 0)) + {interval}"
    return _rows_where(
        f"SELECT *, {previous} AS __lakegate_previous FROM {OWN_BATCH} WHERE {column} IS NOT NULL",  # noqa: S608
        f"__lakegate_previous IS NOT NULL AND {column} <> {step}",
    )


@sequential_values.prepare
def _prepare_sequence(check: Check) -> Check:
    if not 0 < check.arguments.get("interval", 1) < 2**31:
        raise ValueError("interval must be greater than zero.")
    return check


@check(example="mutually_exclusive_ranges(valid_from, valid_to, partition_by=price_id)", nulls="left out", nans="–",
       evidence="scan (a job of its own)")  # fmt: skip
def mutually_exclusive_ranges(
    lower: ColumnName,
    upper: ColumnName,
    *,
    partition_by: ExtraColumns | None = None,
    gaps: bool = True,
    **options: Unpack[CheckOptions],
) -> QueryRows:
    """The ranges from ``lower`` to ``upper`` don't overlap.

    One may start where another ends. A range that ends before it starts fails, too. With ``gaps=False``, each must
    start where the previous one ends. With ``partition_by``, only ranges with the same values there are compared. Rows
    with a NULL in either column are ignored, so give open ranges an end.

    Example:
        >>> str(mutually_exclusive_ranges("valid_from", "valid_to", partition_by="price_id"))
        "mutually_exclusive_ranges(valid_from, valid_to, partition_by='price_id')"
    """
    low, high = audited(lower), audited(upper)
    incomparable = low.type.family is not high.type.family or low.type.family in (Family.OTHER, Family.BOOLEAN)
    if incomparable or not compare_exactly(low.type, high.type):
        raise CheckProblem(
            f"'{low.name}' is of type {low.type.text}, '{high.name}' of type {high.type.text}; their values don't "
            "compare exactly."
        )
    order = f"{_partition(partition_by)}ORDER BY {lower}, {upper} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    begins = "<>" if not gaps else "<"
    return _rows_where(
        f"SELECT *, max({upper}) OVER ({order}) AS __lakegate_previous FROM {OWN_BATCH} "  # noqa: S608 - quoted names
        f"WHERE {lower} IS NOT NULL AND {upper} IS NOT NULL",
        f"{upper} < {lower} OR {lower} {begins} __lakegate_previous",
    )


@check(
    example="outliers(fare_amount, deviations=4)", nulls="left out", nans="fails", evidence="scan (a job of its own)"
)
def outliers(column: ColumnName, deviations: float = 3, **options: Unpack[CheckOptions]) -> QueryRows:
    """Every value of ``column`` is within ``deviations`` sample standard deviations of the batch's mean.

    Computed in double precision. NaN and infinities fail, and don't count toward the mean and the deviation. If all
    values are equal, none fails. If the deviation overflows a double, all fail.

    Example:
        >>> str(outliers("fare_amount", 4))
        'outliers(fare_amount, deviations=4)'
    """
    numeric_column(column)
    number = f"CAST({column} AS DOUBLE)"
    finite = f"CASE WHEN abs({number}) < {_INFINITY} THEN {number} END"
    # Not a window over all rows, which Spark would sort in one task.
    measures = f"avg({finite}) AS __lakegate_mean, coalesce(stddev_samp({finite}), 0D) AS __lakegate_spread"
    return _rows_where(
        f"SELECT * FROM {OWN_BATCH} CROSS JOIN (SELECT {measures} FROM {OWN_BATCH}) WHERE {column} IS NOT NULL",  # noqa: S608 - quoted names
        f"coalesce(NOT abs({number}) < {_INFINITY}, TRUE) OR NOT __lakegate_spread < {_INFINITY} OR "
        f"abs({number} - __lakegate_mean) > {deviations!r}D * __lakegate_spread * (1 + 1e-12D) "
        "+ 1e-12D * abs(__lakegate_mean)",
    )


@outliers.prepare
def _prepare_outliers(check: Check) -> Check:
    if not check.arguments.get("deviations", 3) > 0:
        raise ValueError("deviations must be greater than zero.")
    return check


@check(example="recency(pickup, '1 day')", parameter_aliases={"interval": "within"}, aliases=("freshness",),
       nulls="left out", nans="–")  # fmt: skip
def recency(column: ColumnName, within: str, **options: Unpack[CheckOptions]) -> Aggregates:
    """The latest value of ``column`` is no older than ``within``.

    ``within`` is a duration such as ``'30 minutes'``, ``'2 hours'``, ``'1 day'`` or ``'1 week'`` before the audit.
    Times without a time zone are UTC, and a date counts until the end of the day. A batch without values fails. (If
    nothing arrives, nothing is audited. Use the setting ``notify.late`` or a contract's ``freshness`` for that.)

    Example:
        >>> str(recency("pickup", "1 day"))
        "recency(pickup, within='1 day')"
    """
    found = audited(column)
    oldest = moment(found, audit_time() - _duration(within))

    def judge(values: Sequence[Any], _: int) -> Finding:
        is_old, newest = values
        if newest is None:
            return Finding(0, f"{found.name} has no values.", failed=True)
        return Finding(0, f"The latest {found.name} is {newest}.", failed=bool(is_old))

    return Aggregates((f"max({column}) < {oldest}", f"CAST(max({column}) AS STRING)"), judge)


@recency.prepare
def _prepare_recency(check: Check) -> Check:
    _duration(check.arguments["within"])
    return check


def _rows_where(query: str, failing: str) -> QueryRows:
    return QueryRows(f"SELECT * FROM ({query}) WHERE {failing}", is_rows=True)  # noqa: S608 - made here


def _partition(columns: str | Sequence[str] | None) -> str:
    """Return the beginning of a window of rows with the same values in ``columns``, which are quoted."""
    for column in columns or ():
        found = audited(column)
        if not found.type.groupable:
            raise wrong_type(found, "whose values can't be compared.")
    return f"PARTITION BY {', '.join(columns)} " if columns else ""


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} isn't a time span such as '30 minutes', '2 hours' or '1 day'.")
    span = timedelta(**{f"{match[2]}s": int(match[1])})
    if span > _LONGEST_SPAN:
        raise ValueError(f"{text!r} is longer than {_LONGEST_SPAN.days:,} days.")
    return span
