"""Checks against history judge alike, whatever database holds the earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from random import Random
from statistics import mean, stdev
from typing import Any

import pytest

from lakegate.wap.ingest import ingest
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import TRIPS, ordered
from support.journals import Actor

CHECKS = (
    "row_count(percent=20)",
    "row_count(deviations=2, last=5)",
    "row_count(percent=30, weekday=True)",
    "null_rate(passengers, percent=40)",
    "null_rate(passengers, deviations=2, last=6)",
    "volume_anomalies(deviations=2)",
    "mean(fare, percent=5)",
    "mean(fare, deviations=1, last=7)",
    "mean(fare, percent=5, weekday=True)",
    "schema_changes()",
)
WARNED = tuple(f"{text[:-1]}, severity='warn')".replace("(, ", "(") for text in CHECKS)


def _rows(total: int, nulls: int, fares: Sequence[float] = (10.0,)) -> list[dict[str, Any]]:
    each = cycle(fares)
    return [{"id": number, "passengers": None if number < nulls else 1, "fare": next(each)} for number in range(total)]


def _is_off(
    value: float, past: list[float], *, last: int = 20, percent: float = 0, deviations: float = 0
) -> bool | None:
    known = past[:last]
    if len(known) < 5:
        return None
    middle = mean(known)
    room = abs(middle) * percent / 100 if percent else deviations * max(stdev(known), 0.01 * abs(middle))
    return abs(value - middle) > room + 1e-9


# A journal in memory is SQLite's, too.
@pytest.mark.parametrize(
    "shelf", ["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))], indirect=True
)
def test_a_batch_is_compared_with_the_same_earlier_ones(journal: Actor) -> None:
    random, house = Random(0), FakeLakehouse()
    house.journal = journal.journal
    now = datetime.now(UTC)
    published = list[tuple[datetime, Sequence[float]]]()
    for number in range(13):  # of 14, an odd one would be left out
        total = random.choice([20, 21, 19, 25, 15, 40])
        nulls = random.randrange(1, 10)
        rows = _rows(total, nulls, [random.choice([8.5, 9.0, 11.25, 14.0]) for _ in range(7)])
        run = ingest(house.context, ordered(house, rows, run=f"r{number}", checks=WARNED))
        assert run.status == "published"
        rate, fares = nulls / total, [row["fare"] for row in rows]
        now_is = (float(total), rate, mean(fares))
        newest = published[::-1]
        counts, rates, means = ([one[1][place] for one in newest] for place in range(3))
        same_day = [one[1] for one in newest if one[0].weekday() == run.started_at.weekday()]
        expected = [
            _is_off(total, counts, percent=20),
            _is_off(total, counts, last=5, deviations=2),
            _is_off(total, [one[0] for one in same_day], percent=30),
            _is_off(rate, rates, percent=40),
            _is_off(rate, rates, last=6, deviations=2),
            _is_off(total, counts, deviations=2),
            _is_off(now_is[2], means, percent=5),
            _is_off(now_is[2], means, last=7, deviations=1),
            _is_off(now_is[2], [one[2] for one in same_day], percent=5),
            False if number else None,
        ]
        words = {None: "skipped", True: "fail", False: "pass"}
        assert [one.verdict for one in run.reports[0].results] == [words[one] for one in expected], number
        # Up to three weeks ago, in no order, at any time of the day: midnights in UTC decide what day it was.
        day = now - timedelta(days=random.choice([7, 7, 14, 21, 1, 2]))
        at = day.replace(hour=random.choice([0, 12, 23]), minute=59, second=59, microsecond=number)
        is_reverted = random.random() < 0.2
        if is_reverted:
            revert(house.context, run.run_id, new_run_id=f"undo-{run.run_id}")
        else:
            published.append((at, now_is))
        known = journal.get(run.run_id)
        assert known is not None
        journal.save(known.model_copy(update={"started_at": at}))
    assert ingest(house.context, ordered(house, _rows(500, 1), run="rejected", checks=CHECKS)).status == "rejected"
    again = ingest(house.context, ordered(house, _rows(20, 5), run="next", checks=WARNED))
    details = [one.detail for one in again.reports[0].results]
    assert f"the last {len(published)} batches" in (details[0] or "")
    assert TRIPS in {one.table for one in again.staged}
