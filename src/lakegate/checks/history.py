"""Checks against history: compares a batch's value with those of earlier published batches.

Only the journal is read: each run's report has the values that its checks measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from statistics import mean, stdev
from typing import Annotated

from lakegate.checks.definition import CheckOptions, Default
from lakegate.checks.questions import Band, Finding
from lakegate.model.checks import Check
from lakegate.model.schema import Schema

LAST = 20
"""Default number of earlier batches to compare with."""
FEWEST = 5
"""Minimum number of earlier batches; with fewer, a check is skipped."""
_MOST = 200
_MOST_RUNS = 5_000  # runs of the table to search for batches, newest first
_LEAST_SPREAD = 0.01  # of the mean: identical batches don't show how much batches may differ
_OUTLIER_DEVIATIONS = 5  # a batch further than this from all others isn't typical
_FEWEST_FOR_OUTLIERS = 14  # two weeks of daily batches; in fewer, a regular small Sunday would be an outlier
_SHOWN = 8
_MOST_SPELT = 10**15
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class PastBatch:
    """An earlier published batch.

    Attributes:
        at: When its run started.
        values: Measured values by :func:`measure_key`.
        passed: The checks that passed, as text.
        is_batch: Whether it only added new rows. Others, such as deletes, don't count as batches.
    """

    run_id: str
    at: datetime
    rows: int
    values: Mapping[str, float] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    is_batch: bool = True


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """The audited table before the batch.

    Attributes:
        batches: Returns its earlier batches, newest first, reading each when it's needed.
        before: Returns the table's columns before the run; ``None`` for a table that the run creates.
        own: Returns the batch itself: when its run started, and whether it can be compared with earlier batches.
    """

    batches: Callable[[], Iterable[PastBatch]] = tuple
    before: Callable[[], Schema | None] = lambda: None
    own: Callable[[], PastBatch] = lambda: PastBatch("", datetime.now(UTC), 0)


class MeasureOptions(CheckOptions, total=False):
    """The options of checks that can compare their value with those of earlier batches."""

    deviations: float | None
    percent: float | None
    last: Annotated[int, Default(LAST)]
    weekday: Annotated[bool, Default(value=False)]


def band_of(options: MeasureOptions) -> Band | None:
    """Return the band that a check's options describe; ``None`` if they describe none."""
    deviations, percent = options.get("deviations"), options.get("percent")
    if deviations is None and percent is None:
        return None
    return Band(deviations, percent, options.get("last", LAST), options.get("weekday", False))


def prepare_band(check: Check, others: Sequence[str]) -> Check:
    """Validate a check's options about history.

    Args:
        others: Without such options, the check needs one of these arguments.

    Raises:
        ValueError: If they're invalid; the message says why.
    """
    given = check.arguments
    if "deviations" in given and "percent" in given:
        raise ValueError("give deviations or percent, not both.")
    if not given.keys() & {"deviations", "percent", *others}:
        raise ValueError(f"it needs {', '.join(others)}, deviations or percent.")
    for name in ("deviations", "percent"):
        if name in given and not 0 < given[name] < math.inf:
            raise ValueError(f"{name}={given[name]} must be greater than zero.")
    if not FEWEST <= given.get("last", LAST) <= _MOST:
        raise ValueError(f"last={given['last']} isn't a number of batches from {FEWEST} to {_MOST}.")
    if given.keys() & {"last", "weekday"} and not given.keys() & {"deviations", "percent"}:
        raise ValueError("last and weekday need deviations or percent.")
    return check


def judge_band(finding: Finding, band: Band, key: str | None, past: Iterable[PastBatch], at: datetime) -> Finding:
    """Return ``finding``, also judged against earlier batches.

    Args:
        finding: The measured value; nothing is compared if it has none.
        key: What is measured; ``None`` for the number of all rows, which is known for every run.
        past: Earlier batches, newest first.
        at: When the run started, for its day of the week.
    """
    if finding.value is None:
        return finding
    known: list[float] = []
    searched = 0
    for one in islice(past, _MOST_RUNS):
        searched += 1
        if not one.is_batch or (band.weekday and one.at.weekday() != at.weekday()):
            continue
        if key is None or key in one.values:
            known.append(float(one.rows) if key is None else one.values[key])
        if len(known) == band.last:
            break
    days = f" of a {at:%A}" if band.weekday else ""
    if len(known) < FEWEST:
        where = "the journal has" if searched < _MOST_RUNS else f"the table's newest {_MOST_RUNS:,} runs have"
        why = f"It needs {FEWEST} earlier batches{days} to compare with; {where} {len(known)}."
        return replace(finding, detail=joined(finding.detail, why), skipped=finding.verdict != "fail")
    odd = _outlier(known)
    usual = known if odd is None else known[:odd] + known[odd + 1 :]
    middle = mean(usual)  # not fmean, which overflows on doubles near their limit
    if band.deviations is not None:
        margin = band.deviations * _spread(usual, middle)
        words = f"{band.deviations:g} deviations"
    else:
        margin = abs(middle) * (band.percent or 0) / 100
        words = f"{band.percent:g} %"
    low, high = middle - margin, middle + margin
    slack = _ROUNDING * max(abs(low), abs(high))
    is_off = not low - slack <= finding.value <= high + slack
    newest = ", ".join(_number(value) for value in known[:_SHOWN]) + (" …" if len(known) > _SHOWN else "")
    without = "" if odd is None else f" without the one of {_number(known[odd])}"
    relation = f"{'outside' if is_off else 'within'} {_number(low)} to {_number(high)}"
    comparison = (
        f"{_number(finding.value)} is {relation} (the mean of the last {len(known)} batches{days}{without}, "
        f"{_number(middle)}, ± {words}; the newest had {newest})."
    )
    return replace(finding, detail=joined(finding.detail, comparison), failed=finding.failed or is_off)


def measure_key(kind: str, columns: Sequence[str], arguments: Mapping[str, object], where: str | None) -> str:
    """Return text for what a check measures, and for which rows. Values with the same text form one history.

    Example:
        >>> measure_key("quantile", ("fare",), {"q": 0.5}, "fare > 0")
        "quantile(fare, q=0.5, where='fare > 0')"
    """
    named = {**arguments, **({"where": where} if where else {})}
    return f"{kind}({', '.join([*columns, *(f'{name}={value!r}' for name, value in sorted(named.items()))])})"


def _outlier(values: Sequence[float]) -> int | None:
    """Return the index of the one value that is far from all others, if any. Two such values may be a pattern."""
    if len(values) < _FEWEST_FOR_OUTLIERS:
        return None
    ordered = sorted(range(len(values)), key=values.__getitem__)
    for odd in (ordered[0], ordered[-1]):
        others = [value for index, value in enumerate(values) if index != odd]
        middle = mean(others)
        if abs(values[odd] - middle) > _OUTLIER_DEVIATIONS * _spread(others, middle):
            return odd
    return None


def _spread(values: Sequence[float], middle: float) -> float:
    try:
        return max(stdev(values), _LEAST_SPREAD * abs(middle))
    except OverflowError:  # the deviation of huge doubles may exceed a double
        return math.inf


def joined(*texts: str | None) -> str:
    """Join the sentences that aren't empty or ``None``."""
    return " ".join(filter(None, texts))


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < _MOST_SPELT else f"{value:.4g}"
