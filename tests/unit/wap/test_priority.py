"""A run with priority on a table doesn't wait for others with priority, and nobody waits for it past their deadline."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lakegate.errors import NotReplayableError
from lakegate.model.request import WriteMode
from lakegate.wap import failpoints
from lakegate.wap.deadline import Deadline, DeadlineReachedError
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.optimistic_commit import wait_for_priority_runs, with_priority
from lakegate.wap.recover import recover
from support.fakes import FakeLakehouse
from support.flow_support import MORE, MOST, TRIPS, ordered
from support.steps_support import ids

_FOREVER_S = 1e6


def test_priority_on_one_table_does_not_wait_for_priority_on_another(house: FakeLakehouse) -> None:
    """The other one may be waiting for the first table, and all others for both."""
    context = replace(house.context, publish_within_s=_FOREVER_S)
    with (
        house.journal.lock("compaction of main/nyc.zones", timeout_s=0),
        house.journal.lock("change of main/nyc.zones", timeout_s=0),
        with_priority(context, "main", "nyc.trips"),
    ):
        assert not wait_for_priority_runs(context, "main", ["nyc.trips", "nyc.zones"])
        with with_priority(context, "main", "nyc.zones"):
            pass


def test_a_run_that_was_beaten_on_a_table_that_it_reads_goes_first_there(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []

    def beaten(*_: object, **__: object) -> None:
        held.append(house.journal.is_locked("change of main/nyc.zones"))
        raise NotReplayableError("nyc.zones changed on main.", table="nyc.zones")

    monkeypatch.setattr("lakegate.wap.ingest.publish", beaten)
    with pytest.raises(NotReplayableError):
        ingest(house.context, ordered(house))
    assert held == [False, True, True]
    assert not house.journal.is_locked("change of main/nyc.zones")


def test_who_goes_first_does_not_wait_for_a_run_that_waits_for_it(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one claims the files of a run that was beaten while that begins anew."""
    context = replace(house.context, publish_within_s=_FOREVER_S)
    main, release, claimed = threading.current_thread(), house.journal.release, threading.Event()
    beaten, others = [False], []

    def reach(point: str) -> None:
        if threading.current_thread() is not main:
            if point == "after-claim":
                claimed.set()
        elif point == "before-publish" and not beaten[0]:
            beaten[0] = True
            ingest(house.context, ordered(house, MORE, run="r0"))

    def released(run_id: str, token: str) -> None:
        release(run_id, token)
        others.append(pool.submit(ingest, context, ordered(house, run="r2", file="f")))
        assert claimed.wait(120)

    ingest(house.context, ordered(house, MOST, run="first"))
    upsert = WriteMode(name="upsert", key=("id",))
    monkeypatch.setattr(failpoints, "reach", reach)
    monkeypatch.setattr(house.journal, "release", released)
    with ThreadPoolExecutor(1) as pool:
        run = ingest(context, ordered(house, run="r1", file="f", mode=upsert, wait_s=_FOREVER_S))
    assert (run.status, others[0].result().status) == ("skipped", "published")
    assert ids(house) == [1, 2, 5, 6]


def test_who_recovers_a_dead_run_waits_for_no_beaten_run(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has work of its own, mostly on another table; and what doesn't append would only be beaten by waiting."""
    house.dies_at(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house)))
    context = replace(house.context, publish_within_s=_FOREVER_S)
    with house.journal.lock("change of main/nyc.trips", timeout_s=0):
        assert [run.status for run in recover(context)] == ["published"]


def test_who_has_little_time_waits_no_longer_for_the_publish_lock(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, waits = house.journal.lock, []

    def noted(name: str, *, timeout_s: float, **options: Any) -> Any:
        waits.append(timeout_s)
        return lock(name, timeout_s=min(timeout_s, 0.01), **options)

    monkeypatch.setattr(house.journal, "lock", noted)
    monkeypatch.setattr(Deadline, "left_s", 5.0)
    request = partial(ordered, house)
    with lock("main/nyc.trips", timeout_s=0):
        run = resume(house.context, "r1", until="publish", table=TRIPS, request=request, deadline=Deadline.after(600))
    assert (run.status, waits) == ("published", [5.0])


def test_who_runs_out_of_time_while_a_beaten_run_passes_is_suspended(house: FakeLakehouse) -> None:
    context = replace(house.context, publish_within_s=_FOREVER_S)
    request = partial(ordered, house)
    with house.journal.lock("change of main/nyc.trips", timeout_s=0), pytest.raises(DeadlineReachedError):
        resume(context, "r1", until="publish", table=TRIPS, request=request, deadline=Deadline.after(2))
    assert (ids(house), list(house.journal.suspended())) == ([], ["r1"])
    assert resume(context, "r1", until="publish", table=TRIPS, request=request).status == "published"
    assert ids(house) == [1, 2]
