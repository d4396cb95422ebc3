"""What is made of a column's aggregates, where that isn't plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from lakegate.checks import quantile, stddev, validate_checks
from lakegate.checks.questions import Finding
from lakegate.checks.registry import find_check
from lakegate.model.schema import Column, Schema

SCHEMA = Schema(columns=(Column(name="n", type="double"),))


def judged(there: Sequence[float], q: float, low: float | None, high: float | None) -> Finding:
    (check,) = validate_checks([quantile("n", q, low, high, percent=50)], SCHEMA)
    question: Any = find_check("quantile").ask(check, SCHEMA)
    about = there[0] if there else None  # any value near the quantile
    below = 0 if low is None else sum(value < low for value in there)
    up_to = 0 if high is None else sum(value <= high for value in there)
    values = (about, len(there), any(map(math.isnan, there)), below, up_to)
    finding: Finding = question.judge(values, len(there))
    return finding


@pytest.mark.parametrize("q", [0.0, 0.07, 0.28, 0.29, 0.5, 0.55, 0.57, 0.99, 1.0])
def test_a_quantile_is_counted_exactly(q: float) -> None:
    there = list(range(1, 101))
    rank = max(1, round(q * 100))  # all of these are whole hundredths
    assert not judged(there, q, rank, rank).failed
    assert judged(there, q, rank + 0.5, None).failed
    assert judged(there, q, None, rank - 0.5).failed
    assert not judged(there, q, None, None).failed


def test_a_quantile_of_no_values_is_skipped_and_of_nan_fails() -> None:
    assert judged([], 0.5, 1, None).skipped
    found = judged([1.0, math.nan], 0.5, 1, None)
    assert (found.failed, found.value, found.detail) == (True, None, "The quantile 0.5 of n is NaN.")


def test_one_value_has_no_deviation_which_is_not_to_have_none() -> None:
    question: Any = find_check("stddev").ask(stddev("n", max=1), SCHEMA)
    found = question.judge([None, 1], 1)
    assert (found.skipped, found.detail) == (
        True,
        "The column has fewer than two values, so there was no deviation to measure.",
    )
