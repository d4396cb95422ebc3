"""What every journal does with runs that wait to publish."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event

from lakegate.model.run import QueuedPublish, Run
from support.journals import Actor, Shelf, run


@pytest.fixture
def first(shelf: Shelf) -> Actor:
    return shelf.open()


@pytest.fixture
def other(shelf: Shelf) -> Actor:
    return shelf.open()


def offer(actor: Actor, number: int, table: str = "nyc.trips") -> QueuedPublish:
    """Begin a run and offer it."""
    one: Run = run(number, status="staged").model_copy(update={"tables": (table,)})
    actor.begin(one)
    queued = QueuedPublish(run=one, token=actor.tokens[one.run_id], audit="1 passed", seen="0a")
    actor.journal.publishes.join(queued)
    return queued


def waiting(actor: Actor, table: str = "nyc.trips", limit: int = 10) -> list[str]:
    return [one.run.run_id for one in actor.journal.publishes.waiting("main", table, limit=limit)]


def test_what_is_on_offer_is_seen_by_others_in_order_and_by_table(first: Actor, other: Actor) -> None:
    offered = [offer(first, number) for number in (3, 1, 2)]
    offer(first, 4, "nyc.zones")

    assert waiting(other) == ["r03", "r01", "r02"]
    assert waiting(other, limit=2) == ["r03", "r01"]
    assert waiting(other, "nyc.zones") == ["r04"]
    assert list(other.journal.publishes.waiting("main", "nyc.trips", limit=1)) == offered[:1]
    assert other.journal.publishes.waiting("dev", "nyc.trips", limit=9) == []


def test_what_is_taken_is_on_offer_no_more_and_keeps_its_lease(first: Actor, other: Actor) -> None:
    offered = [offer(first, number) for number in (1, 2)]
    queue = other.journal.publishes

    assert queue.is_waiting("r01")
    assert queue.take(offered, taken=(), own="me") == {"r01", "r02"}
    assert waiting(first) == []
    assert not queue.is_waiting("r01")
    assert not queue.leave("r01")
    assert first.renew("r01")
    assert queue.take(offered, taken=("r01",), own="me") == {"r01"}


def test_taking_needs_no_sqlite_newer_than_the_oldest_that_is_around(first: Actor, other: Actor) -> None:
    """RETURNING came with 3.35; Python 3.11 on RHEL 9 and Debian 11 uses 3.34."""
    offered, sent = [offer(first, 1)], list[str]()

    def note(*given: Any) -> None:
        sent.append(given[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert other.journal.publishes.take(offered, taken=(), own="me") == {"r01"}
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert sent
    assert not any("RETURNING" in statement for statement in sent)


def test_who_takes_others_is_on_offer_no_more(first: Actor, other: Actor) -> None:
    offer(first, 1)
    assert other.journal.publishes.take([], taken=(), own="r01") == frozenset()
    assert waiting(other) == []


def test_what_was_withdrawn_is_not_taken(first: Actor, other: Actor) -> None:
    offered = offer(first, 1)
    assert first.journal.publishes.leave("r01")
    assert other.journal.publishes.take([offered], taken=(), own="me") == frozenset()


def test_what_belongs_to_somebody_else_by_now_is_dropped(first: Actor, other: Actor) -> None:
    offered = offer(first, 1)
    first.abandon("r01")
    assert other.take_over("r01")
    assert waiting(first) == []
    first.journal.publishes.join(offered)  # late
    assert other.journal.publishes.take([offered], taken=(), own="me") == frozenset()
    assert other.journal.publishes.take([offered], taken=("r01",), own="me") == frozenset()
    assert waiting(first) == []


def test_a_run_that_has_ended_is_on_offer_no_more(first: Actor, other: Actor) -> None:
    first.end(offer(first, 1).run)
    assert waiting(other) == []


def test_one_is_taken_by_one(first: Actor, other: Actor) -> None:
    offered = [offer(first, number) for number in range(1, 9)]
    start = threading.Barrier(2)

    def take(actor: Actor) -> frozenset[str]:
        start.wait(120)
        return actor.journal.publishes.take(offered, taken=(), own="me")

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(take, (first, other))
    assert left | right == {one.run.run_id for one in offered}
    assert not left & right


def test_who_must_wait_for_a_lock_is_told_before(first: Actor, other: Actor) -> None:
    told: list[str] = []

    def tell() -> None:
        told.append("waits")

    with first.journal.lock("main/nyc.trips", timeout_s=120, waiting=tell) as got:
        assert (got, told) == (True, [])
        with other.journal.lock("main/nyc.trips", timeout_s=0.05, waiting=tell) as too_late:
            assert (too_late, told) == (False, ["waits"])
    # Not whether it waits: who gave up may get the lock late, and releases it at once.
    with other.journal.lock("main/nyc.trips", timeout_s=120) as got:
        assert got
