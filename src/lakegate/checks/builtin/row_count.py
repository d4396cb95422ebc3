"""Checks of the number of rows: limits, earlier batches, and other tables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Unpack

from lakegate.checks.definition import CheckOptions
from lakegate.checks.history import LAST, MeasureOptions, band_of, prepare_band
from lakegate.checks.questions import Band, Finding, RowTotal, TotalBeside
from lakegate.checks.registry import check
from lakegate.errors import IdentifierError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import counted


@check(
    example="row_count(min=1)  or  row_count(percent=30, weekday=True)",
    parameter_aliases={"min_value": "min", "max_value": "max"},
    nulls="–",
    nans="–",
    evidence="manifest, both ways",
)
def row_count(
    min: int | None = None,
    max: int | None = None,
    **options: Unpack[MeasureOptions],
) -> RowTotal:
    """The batch has between ``min`` and ``max`` rows, or about as many as earlier batches.

    No single row fails: the number of failing rows is how many are missing or too many. See [checks against
    history](#against-history) for ``deviations``, ``percent``, ``last`` and ``weekday``.

    Example:
        >>> str(row_count(min=1))
        'row_count(min=1)'
    """

    def judge(total: int) -> Finding:
        off = _distance(total, min or 0, total if max is None else max)
        detail = f"The batch has {_rows(total)}; expected {_expected(min, max)}." if off else None
        return Finding(off, detail, value=float(total))

    return RowTotal(judge, band_of(options))


@check(example="volume_anomalies()", nulls="–", nans="–", evidence="manifest and journal")
def volume_anomalies(
    deviations: float = 3, last: int = LAST, *, weekday: bool = False, **options: Unpack[CheckOptions]
) -> RowTotal:
    """The batch has about as many rows as earlier ones: within ``deviations`` standard deviations of their mean.

    The same as ``row_count(deviations=3)``. See [checks against history](#against-history).

    Example:
        >>> str(volume_anomalies(deviations=2, weekday=True))
        'volume_anomalies(deviations=2, weekday=True)'
    """
    return RowTotal(lambda total: Finding(0, value=float(total)), Band(deviations, None, last, weekday))


@volume_anomalies.prepare
def _prepare_anomalies(check: Check) -> Check:
    prepare_band(check.model_copy(update={"arguments": {"deviations": 3, **check.arguments}}), ())
    return check


@check(name="equal_rowcount", example="equal_rowcount(to='staging.trips')", scopes=("table",), nulls="–", nans="–",
       parameter_aliases={"compare_model": "to"}, evidence="scan (a job of its own)")  # fmt: skip
def equal_rowcount(to: str, **options: Unpack[CheckOptions]) -> TotalBeside:
    """The table has as many rows as table ``to``, both as they would be after publishing.

    Example:
        >>> str(equal_rowcount("staging.trips"))
        "equal_rowcount(to='staging.trips', scope='table')"
    """
    return _compare_totals(to, fails=operator.ne)


@check(example="fewer_rows_than(to='staging.trips')", scopes=("table",), nulls="–", nans="–",
       parameter_aliases={"compare_model": "to"}, evidence="scan (a job of its own)")  # fmt: skip
def fewer_rows_than(to: str, **options: Unpack[CheckOptions]) -> TotalBeside:
    """The table has fewer rows than table ``to``, both as they would be after publishing.

    Example:
        >>> str(fewer_rows_than("staging.trips"))
        "fewer_rows_than(to='staging.trips', scope='table')"
    """
    return _compare_totals(to, fails=operator.ge)


def _compare_totals(to: str, *, fails: Callable[[int, int], bool]) -> TotalBeside:
    def judge(ours: int, theirs: int) -> Finding:
        return Finding(0, f"The table has {_rows(ours)}, {to} {_rows(theirs)}.", failed=fails(ours, theirs))

    return TotalBeside(TableIdentifier.parse(to), judge)


@equal_rowcount.prepare
@fewer_rows_than.prepare
def _prepare_totals(check: Check) -> Check:
    try:
        return check.model_copy(update={"arguments": {"to": str(TableIdentifier.parse(check.arguments["to"]))}})
    except IdentifierError as error:
        raise ValueError(error.message) from None


@row_count.prepare
def _prepare(check: Check) -> Check:
    limits = check.arguments
    prepare_band(check, ("min", "max"))
    for name, value in limits.items():
        if name in {"min", "max"} and value < 0:
            raise ValueError(f"{name}={value} isn't a number of rows.")
    if limits.get("min", 0) > limits.get("max", limits.get("min", 0)):
        raise ValueError(f"min={limits['min']} is more than max={limits['max']}.")
    return check


@row_count.claim
def _claim(check: Check) -> str:
    low, high = check.arguments.get("min"), check.arguments.get("max")
    parts = [] if low is None and high is None else [_expected(low, high)]
    parts += ["about as many rows as earlier ones"] * bool(check.arguments.keys() & {"deviations", "percent"})
    return f"the batch has {' and '.join(parts)}"


def _distance(total: int, low: int, high: int) -> int:
    return max(low - total, total - high, 0)


def _expected(low: int | None, high: int | None) -> str:
    if low is None:
        return f"at most {_rows(high)}"
    if high is None:
        return f"at least {_rows(low)}"
    return f"exactly {_rows(low)}" if low == high else f"{low:,} to {_rows(high)}"


def _rows(number: Any) -> str:
    return counted(number, "row")
