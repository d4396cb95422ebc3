"""The publish lock: a run that lost twice holds it while it's written again, and nobody waits for it for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lakegate.model.request import WriteMode
from lakegate.wap import failpoints
from lakegate.wap.ingest import ingest
from lakegate.wap.publish_lock import holding_publish_lock, publish_lock
from support.fakes import FakeLakehouse
from support.flow_support import MOST, ordered
from support.steps_support import ids

_FOREVER_S = 1e6


def test_two_that_hold_a_lock_that_the_other_needs_go_on_without(house: FakeLakehouse) -> None:
    context = replace(house.context, publish_within_s=_FOREVER_S)
    with (
        house.journal.lock("main/nyc.zones", timeout_s=0),
        holding_publish_lock(context, "main", ["nyc.trips"]),
        publish_lock(context, "main", ["nyc.trips", "nyc.zones"]) as locked,
    ):
        assert not locked
        with publish_lock(context, "main", ["nyc.trips"]) as ours:
            assert ours


def test_who_holds_the_lock_gives_it_up_to_wait_for_a_run_that_needs_it(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one claims the files of a run that lost twice while that begins anew."""
    context = replace(house.context, publish_within_s=_FOREVER_S)
    main, release, claimed = threading.current_thread(), house.journal.release, threading.Event()
    losses, others = [0], []

    def reach(point: str) -> None:
        if threading.current_thread() is not main:
            if point == "after-claim":
                claimed.set()
        elif point == "before-publish" and losses[0] < 2:
            losses[0] += 1
            rows = [{"id": 20 + losses[0], "passengers": 1}]
            ingest(house.context, ordered(house, rows, run=f"r0{losses[0]}"))

    def released(run_id: str, token: str) -> None:
        release(run_id, token)
        if run_id == "r1" and losses[0] == 2:
            others.append(pool.submit(ingest, context, ordered(house, run="r2", file="f")))
            assert claimed.wait(120)

    ingest(house.context, ordered(house, MOST, run="first"))
    upsert = WriteMode(name="upsert", key=("id",))
    monkeypatch.setattr(failpoints, "reach", reach)
    monkeypatch.setattr(house.journal, "release", released)
    with ThreadPoolExecutor(1) as pool:
        run = ingest(context, ordered(house, run="r1", file="f", mode=upsert, wait_s=_FOREVER_S))
    assert (run.status, others[0].result().status) == ("skipped", "published")
    assert ids(house) == [1, 2, 6, 21, 22]
