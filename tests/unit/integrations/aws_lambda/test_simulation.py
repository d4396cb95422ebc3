"""Bursts, outages and bad files, played through the function's own code: nothing healthy is lost or dead-lettered.

With other numbers: ``PYTHONPATH=tests python -m support.lambda_simulation --help``.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from support.lambda_simulation import OLD, POISON, Numbers, simulate

SOME = Numbers(files=600, tables=60)
DAY = 86_400.0


@pytest.mark.parametrize(
    ("numbers", "drained_within_s"),
    [
        pytest.param(SOME, 6_000.0, id="a burst"),
        pytest.param(replace(SOME, files=100, outage_s=300.0, poison=2), 9_000.0, id="Spark is away for five minutes"),
        pytest.param(replace(SOME, files=100, outage_s=3_600.0, poison=2), 9_000.0, id="Spark is away for an hour"),
        pytest.param(
            replace(SOME, files=20, outage_at_s=0.0, outage_s=DAY, poison=1),
            DAY + 2.5 * 3600,
            id="Spark is away for a day",
        ),
        pytest.param(
            replace(SOME, files=20, outage_at_s=0.0, outage_s=7 * DAY),
            7 * DAY + 5 * 3600,
            id="Spark is away for a week",
        ),
        pytest.param(replace(SOME, files=60, tables=30, run_s=250.0), 2 * DAY, id="each run nearly fills a call"),
        pytest.param(
            replace(SOME, files=60, tables=30, run_s=75.0, concurrency=5), DAY, id="calls crowd each other out"
        ),
        pytest.param(replace(SOME, outage_s=3_600.0, away="journal"), 9_000.0, id="the journal is away for an hour"),
        pytest.param(replace(SOME, outage_s=3_600.0, away="catalog"), 9_000.0, id="the catalog is away for an hour"),
        pytest.param(replace(SOME, starts_s=300.0, throttled_s=1_200.0), 6_000.0, id="throttled, and Spark starts"),
        pytest.param(replace(SOME, arrive_s=6 * 3600.0, outage_at_s=3600.0, outage_s=3600.0), 30_000.0, id="a trickle"),
        pytest.param(replace(SOME, batch=500, concurrency=2, duplicates=0.05), 6_000.0, id="batches too large"),
    ],
)
def test_healthy_files_are_published_once_and_bad_ones_reported(numbers: Numbers, drained_within_s: float) -> None:
    result = simulate(numbers)

    told = asdict(result)
    assert (result.published, result.healthy_dead, result.lost, result.twice) == (numbers.files, 0, 0, 0), told
    assert result.drained_s < drained_within_s, told
    # One that was rejected is done; the others were given up by their tries, and are among the dead letters, too.
    assert result.poison_dead == (len(POISON) - 1) * numbers.poison, told
    assert result.told >= 2 * numbers.poison, told


def test_thousands_of_files_for_two_hundred_tables() -> None:
    result = simulate(Numbers(files=4_000, outage_s=300.0))  # some 3,600 runs, one at a time

    told = asdict(result)
    assert (result.published, result.healthy_dead, result.lost, result.twice) == (4_000, 0, 0, 0), told
    assert result.drained_s < 24 * 3600.0, told
    assert result.most_receives < Numbers.max_receives / 2, told


def test_the_settings_of_before_lose_healthy_files() -> None:
    result = simulate(replace(OLD, files=600, tables=60, outage_s=3 * 3600.0))

    assert result.healthy_dead > 100, asdict(result)
