"""Journals of SQL between processes: races, and what a killed one leaves behind."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import JournalSettings
from lakegate.journal.factory import open_sqlite
from support.journals import PASSWORD_VARIABLE, Actor, Place, empty, run
from support.postgres import PostgresServer
from support.waiting import wait_until


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(JournalSettings(), tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    empty(server)
    # Where TLS may be, each connection loads the machine's authorities first; locks take a connection each.
    settings = JournalSettings(url=server.url, password=f"env:{PASSWORD_VARIABLE}", tls=False)
    return Place(settings, tmp_path, server.password)


@pytest.fixture
def journal(place: Place) -> Iterator[Actor]:
    made = place.open()
    yield made
    made.close()


def test_of_four_processes_one_gets_each_of_fifty_files(place: Place) -> None:
    with place.workers(4, "claim", "50") as workers:
        for worker in workers:
            worker.go()
        got = Counter(uri for worker in workers for uri in worker.answer())
    assert len(got) == 50
    assert set(got.values()) == {1}


def test_four_processes_may_make_the_journal_at_once(place: Place, request: pytest.FixtureRequest) -> None:
    if place.settings.url is not None:
        request.getfixturevalue("postgres").run("DROP SCHEMA IF EXISTS lakegate CASCADE")
    with place.workers(4, "open") as workers:
        for worker in workers:
            worker.go()
        assert [worker.answer() for worker in workers] == [0] * 4


def test_a_killed_process_has_abandoned_its_run_and_one_takes_it_over(place: Place, journal: Actor) -> None:
    with place.workers(1, "begin", run(1).model_dump_json()) as (holder,):
        holder.go()
        assert holder.answer() == "begun"
        assert not journal.abandoned()
        assert not journal.take_over("r01")
        holder.kill()
        assert [one.run_id for one in journal.abandoned()] == ["r01"]
    with place.workers(4, "take_over", "r01") as takers:
        for taker in takers:
            taker.go()
        assert sorted(taker.answer() for taker in takers) == [False, False, False, True]
        assert not journal.abandoned()


@pytest.mark.parametrize("place", [pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))], indirect=True)
def test_a_machine_whose_clock_is_ahead_takes_no_run_over_and_begins_none(place: Place, journal: Actor) -> None:
    journal.begin(run(1))
    with place.workers(1, "work_ahead", "r01") as (ahead,):
        ahead.go()
        abandoned, taken, refusal = ahead.answer()
    assert (abandoned, taken) == (0, False)
    assert re.match(r"This machine's clock is (59 min \d+ s|1 h) .*ahead of that of the journal", refusal), refusal
    assert journal.renew("r01")


def test_a_killed_process_gives_up_its_lock(place: Place, journal: Actor) -> None:
    with place.workers(1, "hold", "x") as (holder,):
        holder.go()
        assert holder.answer() is True
        with journal.lock("x", timeout_s=0.1) as ours:
            assert not ours
        holder.kill()

        def takes_it() -> Any:
            with journal.lock("x", timeout_s=5) as ours:
                return ours

        wait_until(takes_it, what="the lock")


def test_a_forked_process_uses_connections_of_its_own(place: Place, journal: Actor) -> None:
    journal.begin(run(1))
    child = os.fork()
    if child == 0:
        # Nothing but a plain exit: this is pytest's own process, twice.
        ours = journal.renew("r01")
        seen = journal.get("r01") == run(1) and not journal.abandoned()
        os._exit(0 if ours and seen else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journal.renew("r01")


def test_a_forked_process_loses_no_commit_when_its_parent_closes_the_journal(tmp_path: Path) -> None:
    parent = open_sqlite(tmp_path / "journal.db")
    parent.save(run(1))
    (asked, ask), (heard, hear) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            parent.save(run(2))
            os.write(hear, b".")
            os.read(asked, 1)
            parent.save(run(4))
            code = 0 if parent.get("r03") else 2
        finally:
            os._exit(code)
    os.read(heard, 1)
    parent.close()
    with closing(open_sqlite(tmp_path / "journal.db")) as other:
        other.save(run(3))
    os.write(ask, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with closing(open_sqlite(tmp_path / "journal.db")) as other:
        assert sorted(one.run_id for one in other.runs()) == ["r01", "r02", "r03", "r04"]
