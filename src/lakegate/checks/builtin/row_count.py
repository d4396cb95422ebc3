from __future__ import annotations

from typing import Any, Unpack

from lakegate.checks.definition import CheckOptions
from lakegate.checks.questions import Finding, RowTotal
from lakegate.checks.registry import check
from lakegate.model.checks import Check


@check(example="row_count(min=1)", nulls="–", nans="–", evidence="manifest, both ways")
def row_count(min: int | None = None, max: int | None = None, **options: Unpack[CheckOptions]) -> RowTotal:
    """The batch has at least ``min`` and at most ``max`` rows, either of which may be left out.

    A failure is about no row in particular: its failing rows are the number of rows missing or too many.

    Example:
        >>> str(row_count(min=1))
        'row_count(min=1)'
    """

    def judge(total: int) -> Finding:
        off = _further(total, min or 0, total if max is None else max)
        return Finding(off, f"The batch has {_rows(total)}; expected {_expected(min, max)}." if off else None)

    return RowTotal(judge)


@row_count.prepare
def _prepare(check: Check) -> Check:
    limits = check.arguments
    if not limits:
        raise ValueError("it needs min, max or both.")
    for name, value in limits.items():
        if value < 0:
            raise ValueError(f"{name}={value} is not a number of rows.")
    if limits.get("min", 0) > limits.get("max", limits.get("min", 0)):
        raise ValueError(f"min={limits['min']} is more than max={limits['max']}.")
    return check


@row_count.claim
def _claim(check: Check) -> str:
    return f"the batch has {_expected(check.arguments.get('min'), check.arguments.get('max'))}"


def _further(total: int, low: int, high: int) -> int:
    return max(low - total, total - high, 0)


def _expected(low: int | None, high: int | None) -> str:
    if low is None:
        return f"at most {_rows(high)}"
    if high is None:
        return f"at least {_rows(low)}"
    return f"exactly {_rows(low)}" if low == high else f"{low:,} to {_rows(high)}"


def _rows(count: Any) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
