"""What every journal does with runs that wait for their next step, and with who takes it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from lakegate.errors import LeaseLostError, RetryableError
from lakegate.model.run import Run
from support.journals import START, Actor, FakeHolder, Shelf, file, run

HOUR_S = 3600.0
ENDED = run(1, status="rejected", finished_at=START + timedelta(hours=1))
FAILED = run(1, status="failed", finished_at=START + timedelta(hours=1))


@pytest.fixture
def first(shelf: Shelf) -> Actor:
    return shelf.open(FakeHolder("first", {"next": True}))


@pytest.fixture
def then(shelf: Shelf) -> Actor:
    """The process that takes the next step; the one before has ended."""
    return shelf.open(FakeHolder("next", {"first": False}))


@pytest.fixture
def beside(shelf: Shelf) -> Actor:
    """A process that sees all the others live."""
    return shelf.open(FakeHolder("beside", {"first": True, "next": True}))


def test_a_suspended_run_is_left_alone_though_its_process_is_gone(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    first.suspend(run(1, status="staged"), for_s=HOUR_S)

    assert then.get("r01") == run(1, status="staged")
    assert not then.abandoned()
    assert not then.take_over("r01")
    assert not first.take_over("r01")
    assert not first.renew("r01")
    assert not then.renew("r01")


def test_whoever_resumes_a_suspended_run_works_on_it(first: Actor, then: Actor, beside: Actor) -> None:
    first.begin(run(1))
    first.suspend(run(1, status="staged"), for_s=HOUR_S)

    assert then.resume("r01") == run(1, status="staged")
    assert then.renew("r01")
    assert not beside.abandoned()
    assert not beside.take_over("r01")
    for late in (first, beside):
        with pytest.raises(RetryableError, match="Another process is working on run r01"):
            late.resume("r01")


def test_a_run_suspended_for_too_long_is_abandoned(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    first.suspend(run(1, status="staged"), for_s=-1)

    assert [one.run_id for one in first.abandoned()] == ["r01"]
    assert then.take_over("r01")
    assert not first.take_over("r01")
    assert then.renew("r01")


def test_claims_outlast_the_parking(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    first.claim("r01", "nyc.trips", [file("a")])
    first.suspend(run(1, status="staged"), for_s=HOUR_S)
    assert then.claim("r02", "nyc.trips", [file("a")]).busy
    then.resume("r01")
    then.end(run(1, status="published"))
    assert [one.run_id for one in then.claim("r02", "nyc.trips", [file("a")]).published] == ["r01"]


def test_who_lost_a_run_does_not_suspend_it(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    assert then.take_over("r01")
    with pytest.raises(LeaseLostError, match="Run r01 lost its lease"):
        first.suspend(run(1, status="staged"), for_s=HOUR_S)
    assert then.get("r01") == run(1)
    assert then.renew("r01")


@pytest.mark.parametrize("how", ["never begun", "suspended already", "ended"])
def test_only_who_holds_a_run_parks_it(first: Actor, how: str) -> None:
    if how != "never begun":
        first.begin(run(1))
    if how == "suspended already":
        first.suspend(run(1), for_s=HOUR_S)
    elif how == "ended":
        first.end(ENDED)
    with pytest.raises(LeaseLostError, match="Run r01 lost its lease"):
        first.suspend(run(1, status="staged"), for_s=HOUR_S)
    assert first.get("r01") == {"never begun": None, "suspended already": run(1), "ended": ENDED}[how]
    assert not first.renew("r01")


def test_a_run_whose_process_died_is_resumed_without_waiting(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    assert then.resume("r01") == run(1)
    assert then.renew("r01")
    assert not first.renew("r01")


def test_a_run_that_ended_is_returned_without_a_lease(first: Actor, then: Actor) -> None:
    first.begin(run(1))
    first.end(ENDED)
    assert then.resume("r01") == ENDED
    assert not then.renew("r01")
    assert not then.abandoned()


def test_of_many_who_resume_a_suspended_run_one_gets_it(shelf: Shelf, first: Actor) -> None:
    names = [f"p{number}" for number in range(8)]
    takers = [shelf.open(FakeHolder(name, dict.fromkeys(names, True))) for name in names]
    first.begin(run(1))
    first.suspend(run(1), for_s=HOUR_S)

    def resumes(taker: Actor) -> bool:
        try:
            return taker.resume("r01") is not None
        except RetryableError:
            return False

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(resumes, takers))
    assert got.count(True) == 1
    assert [taker.renew("r01") for taker in takers] == got


def test_a_run_that_ends_while_somebody_asks_for_it_leaves_no_lease(shelf: Shelf) -> None:
    for number in range(3):
        holder, asking = shelf.open(FakeHolder("a", {"b": True})), shelf.open(FakeHolder("b", {"a": True}))
        run_id = f"r{number:02}"
        ended = run(number, status="rejected", finished_at=START + timedelta(hours=1))
        holder.begin(run(number))

        def ask(asking: Actor = asking, run_id: str = run_id) -> bool:
            while True:
                try:
                    found = asking.resume(run_id)
                except RetryableError:
                    continue
                return found is not None and found.finished_at is not None

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            holder.end(ended)
            assert asked.result(timeout=60)
        assert not asking.renew(run_id)
        assert asking.get(run_id) == ended


def test_suspended_runs_are_told_of_until_their_time_is_over(first: Actor, then: Actor) -> None:
    assert first.suspended() == {}
    for number, for_s in ((1, 2 * HOUR_S), (2, HOUR_S), (3, -1), (4, HOUR_S)):
        first.begin(run(number))
        first.suspend(run(number, status="staged"), for_s=for_s)
    first.begin(run(5))
    then.resume("r04")

    suspended = first.suspended()
    assert list(suspended) == ["r02", "r01"]
    assert timedelta(minutes=50) < suspended["r01"] - suspended["r02"] < timedelta(minutes=70)
    first.abandon("r05")
    assert list(first.suspended()) == ["r02", "r01"]


@pytest.mark.parametrize("known", [None, FAILED])
def test_a_run_is_begun_anew_when_there_is_none_or_a_failed_one(first: Actor, known: Run | None) -> None:
    if known is not None:
        first.save(known)
    first.begin(run(1), anew=True)
    assert first.get("r01") == run(1)
    assert first.renew("r01")


@pytest.mark.parametrize("known", ["ended", "suspended", "left behind"])
def test_a_run_that_was_begun_is_not_begun_anew(first: Actor, then: Actor, known: str) -> None:
    first.begin(run(1, branch="first"))
    if known == "ended":
        first.end(ENDED)
    elif known == "suspended":
        first.suspend(run(1, branch="first"), for_s=HOUR_S)
    before = first.get("r01")
    with pytest.raises(RetryableError, match="Another process started run r01 meanwhile"):
        then.begin(run(1), anew=True)
    assert then.get("r01") == before
    assert not then.renew("r01")
