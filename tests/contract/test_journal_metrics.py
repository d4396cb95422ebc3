"""Counters in every kind of journal: nobody's are lost, whoever adds to them at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lakegate.telemetry.metrics import ACTIVE, LAST_PUBLISH, LEASE_LOSSES, ROWS, SUSPENDED, Sample
from support.journals import START, FakeHolder, Shelf, run

OF_TRIPS = (("table", "nyc.trips"), ("status", "published"))
AT = (("table", "nyc.\N{ELEPHANT}"),)


def numbers(shelf: Shelf) -> dict[str, float]:
    return {sample.name: sample.value for sample in shelf.open().journal.metrics()}


def test_counters_add_up_and_times_move_on(shelf: Shelf) -> None:
    journal = shelf.open().journal
    for number, time in ((1, 50.5), (2, 70.5), (3, 60.5)):
        token = journal.begin(run(number))
        counted = [Sample(ROWS.name, OF_TRIPS, 2**40), Sample(LAST_PUBLISH.name, AT, time)]
        journal.end(run(number, status="published", finished_at=START), token, counted=counted)
    found = {(sample.name, sample.labels): sample.value for sample in journal.metrics()}
    assert found[ROWS.name, OF_TRIPS] == 3 * 2**40
    assert found[LAST_PUBLISH.name, AT] == 70.5


def test_eight_processes_count_at_once(shelf: Shelf) -> None:
    journals = [shelf.open().journal for _ in range(8)]
    samples = [Sample(f"m{number}", (), 1) for number in range(10)]

    def count(at: int) -> None:
        for number in range(5):
            token = journals[at].begin(run(10 * at + number))
            # In another order each: whoever took the rows in that order would wait for each other.
            counted = samples[at:] + samples[:at]
            journals[at].end(run(10 * at + number, status="rejected", finished_at=START), token, counted=counted)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert {name: value for name, value in numbers(shelf).items() if name.startswith("m")} == dict.fromkeys(
        (sample.name for sample in samples), 40
    )


def test_runs_under_way_are_counted_and_lost_leases_are(shelf: Shelf) -> None:
    first = shelf.open(FakeHolder("first"))
    then = shelf.open(FakeHolder("then", {"first": False}))
    for number in (1, 2, 3):
        first.begin(run(number))
    first.suspend(run(3, status="staged"), for_s=3600)
    assert (numbers(shelf)[ACTIVE.name], numbers(shelf)[SUSPENDED.name]) == (2, 1)
    assert LEASE_LOSSES.name not in numbers(shelf)
    assert then.take_over("r01")
    assert numbers(shelf)[LEASE_LOSSES.name] == 1
    # One that was given up isn't lost.
    first.journal.abandon("r02", first.tokens["r02"])
    assert then.take_over("r02")
    assert numbers(shelf)[LEASE_LOSSES.name] == 1
