"""What every journal does with runs and leases."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from journals import START, FakeHolder, Shelf, file, run
from lakegate.errors import RetryableError
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.run import RunStep
from lakegate.protocols import Journal


def ids(journal: Journal, **filters: object) -> list[str]:
    return [one.run_id for one in journal.runs(**filters)]  # type: ignore[arg-type]


def test_a_run_comes_back_as_it_was_saved(journal: Journal) -> None:
    step = RunStep(name="write", started_at=START, finished_at=START + timedelta(seconds=2), outcome="done")
    result = CheckResult(
        name="not_null_ö", check="not_null(ö)", columns=("ö",), severity="error", verdict="fail", failing_rows=1,
        total_rows=2, evidence="scan", examples=({"ö": None, "text": "nul \0 and ' and \\ and 🐘"},),
    )  # fmt: skip
    report = AuditReport(
        run_id="r01", table="a.b", branch="b1", metadata_location="m", rows=2, results=(result,), seconds=1.5
    )
    saved = run(1, tables=("a.b", "c.d"), name="nightly", kind="transaction", steps=(step,), reports=(report,))
    journal.save(saved)
    assert journal.get("r01") == saved
    assert journal.get("r02") is None


def test_saving_again_replaces(journal: Journal) -> None:
    journal.save(run(1, tables=("a.b", "c.d")))
    journal.save(run(1, tables=("a.b",), status="published"))
    assert [one.status for one in journal.runs()] == ["published"]
    assert ids(journal, table="c.d") == []


def test_runs_are_newest_first_filtered_and_limited(journal: Journal) -> None:
    for number in (2, 1, 3):
        journal.save(run(number, tables=("a.b", "nyc.trips") if number == 1 else ("nyc.trips",)))
    journal.save(run(4, status="rejected", kind="transaction"))

    assert ids(journal) == ["r04", "r03", "r02", "r01"]
    assert ids(journal, limit=2) == ["r04", "r03"]
    assert ids(journal, table="a.b") == ["r01"]
    assert ids(journal, table="nyc.trips", limit=2) == ["r04", "r03"]
    assert ids(journal, table="a") == []
    assert ids(journal, status="rejected") == ["r04"]
    assert ids(journal, kind="ingest", status="running", since=START + timedelta(seconds=2)) == ["r03", "r02"]
    assert ids(journal, table="a.b", since=START + timedelta(seconds=1.5)) == []


def test_runs_of_one_table_are_each_shown_once(journal: Journal) -> None:
    journal.save(run(1, tables=("a.b", "a.b")))
    assert ids(journal, table="a.b") == ["r01"]


def test_the_newest_run_of_a_branch_is_found(journal: Journal) -> None:
    journal.save(run(1, branch="same"))
    journal.save(run(2, branch="same"))
    found = journal.find_by_branch("same")
    assert found is not None
    assert found.run_id == "r02"
    assert journal.find_by_branch("other") is None


def test_runs_are_found_by_the_beginning_of_their_id(journal: Journal) -> None:
    for number in range(1, 13):
        journal.save(run(number))
    assert [one.run_id for one in journal.find("r1")] == ["r12", "r11", "r10"]
    assert [one.run_id for one in journal.find("r11")] == ["r11"]
    assert len(journal.find("r")) == 10
    assert not journal.find("%")
    assert not journal.find("R")


def test_a_run_begun_is_seen_by_others_and_not_abandoned(shelf: Shelf) -> None:
    shelf.open(FakeHolder("a")).begin(run(1))
    other = shelf.open(FakeHolder("b", {"a": True}))
    assert other.get("r01") == run(1)
    assert not other.abandoned()
    assert not other.take_over("r01")


def test_runs_of_dead_processes_are_abandoned_oldest_first_whatever_the_clock_says(shelf: Shelf) -> None:
    dead, alive = shelf.open(FakeHolder("dead")), shelf.open(FakeHolder("alive"), lease_s=0.001)
    for number in (2, 1):
        dead.begin(run(number))
    alive.begin(run(3))
    other = shelf.open(FakeHolder("b", {"dead": False, "alive": True}))
    assert [one.run_id for one in other.abandoned()] == ["r01", "r02"]


def test_where_life_cannot_be_looked_at_the_lease_counts(shelf: Shelf) -> None:
    shelf.open(FakeHolder("far")).begin(run(1))
    shelf.open(FakeHolder("farther"), lease_s=0.001).begin(run(2))
    other = shelf.open(FakeHolder("b"))
    deadline = time.monotonic() + 10
    while not (abandoned := other.abandoned()) and time.monotonic() < deadline:
        pass
    assert [one.run_id for one in abandoned] == ["r02"]


def test_a_lease_renewed_lasts_on(shelf: Shelf) -> None:
    shelf.open(FakeHolder("far"), lease_s=0.001).begin(run(1))
    assert shelf.open(FakeHolder("far"), lease_s=3600).renew("r01")
    assert not shelf.open(FakeHolder("b")).abandoned()


def test_an_abandoned_run_is_taken_over_once(shelf: Shelf) -> None:
    first, second = (shelf.open(FakeHolder(name, {"dead": False, "b": True, "c": True})) for name in "bc")
    dead = shelf.open(FakeHolder("dead"))
    dead.begin(run(1))
    assert [first.take_over("r01"), second.take_over("r01"), first.take_over("r01")] == [True, False, False]
    assert not second.abandoned()
    assert first.renew("r01")
    assert not dead.renew("r01")
    assert not first.take_over("r99")


def test_who_lost_a_run_neither_begins_nor_ends_it(shelf: Shelf) -> None:
    late, taker = shelf.open(FakeHolder("late", {"taker": True})), shelf.open(FakeHolder("taker", {"late": False}))
    late.begin(run(1))
    taker.take_over("r01")
    with pytest.raises(RetryableError, match="Another process works on run r01"):
        late.end(run(1, status="failed"))
    with pytest.raises(RetryableError, match="Another process works on run r01"):
        late.begin(run(1))
    assert taker.get("r01") == run(1)
    assert taker.renew("r01")


def test_a_run_that_ended_has_no_lease(shelf: Shelf) -> None:
    journal = shelf.open(FakeHolder("a"))
    journal.begin(run(1))
    journal.begin(run(1))
    journal.end(run(1, status="rejected"))
    assert journal.get("r01") == run(1, status="rejected")
    assert not journal.renew("r01")
    assert not shelf.open(FakeHolder("b", {"a": False})).abandoned()


def test_a_turn_is_had_by_one_at_a_time_and_by_name(shelf: Shelf) -> None:
    journal, other = shelf.open(), shelf.open()
    with journal.turn("a b/c", timeout_s=1) as first:
        with other.turn("a b/c", timeout_s=0.05) as second, other.turn("d", timeout_s=0) as elsewhere:
            assert (first, second, elsewhere) == (True, False, True)
        with journal.turn("a b/c", timeout_s=0) as again:
            assert not again
    # Not at once: of files, who waited too long gets the turn for a moment, and gives it back.
    with other.turn("a b/c", timeout_s=5) as later:
        assert later


def test_a_turn_ends_with_an_error_too(journal: Journal) -> None:
    def fail() -> None:
        with journal.turn("x", timeout_s=1):
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    with journal.turn("x", timeout_s=0) as ours:
        assert ours


def test_runs_and_published_files_are_counted(journal: Journal) -> None:
    assert journal.count() == ({}, 0)
    journal.begin(run(1))
    journal.claim("r01", "a.b", [file("a"), file("b")])
    journal.claim("r01", "c.d", [file("a")])
    assert journal.count() == ({"running": 1}, 0)

    journal.end(run(1, status="published"))
    journal.save(run(2, status="failed"))
    assert journal.count() == ({"published": 1, "failed": 1}, 3)


def test_a_lease_that_was_given_up_may_be_taken_at_once(journal: Journal) -> None:
    journal.begin(run(1))
    journal.abandon("r01")

    assert [one.run_id for one in journal.abandoned()] == ["r01"]
    assert not journal.renew("r01")
    assert journal.take_over("r01")
    assert journal.renew("r01")
    journal.abandon("r02")
