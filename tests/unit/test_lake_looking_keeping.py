"""The facade's looking and keeping, on rooms in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import FakeLakehouse
from lakegate.config import Settings
from lakegate.errors import ConfigurationError
from lakegate.journal.schema import HEAD
from lakegate.lake import Lake, keeping
from lakegate.model.gc import GcReport
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Publication, Run, RunKind

START = datetime(2026, 1, 31, 7, tzinfo=UTC)


@pytest.fixture
def house() -> FakeLakehouse:
    return FakeLakehouse()


def open_lake(house: FakeLakehouse, **settings: Any) -> Lake:
    wiring: Any = SimpleNamespace(
        settings=Settings.model_validate(settings),
        home=Path("/project"),
        journal=house.journal,
        catalog=house.catalog,
        rooms=house.rooms,
        files=object(),
    )
    return Lake(wiring)


def run(number: int, kind: RunKind = "ingest", **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "run_id": f"20260131T07000{number}-00000000",
        "kind": kind,
        "tables": ("nyc.trips",),
        "branch": f"wap/{number}",
        "status": "published",
        "started_at": START + timedelta(hours=number),
    }
    return Run.model_validate(fields | changes)


def commit(house: FakeLakehouse, message: str) -> str:
    base = house.catalog.get_ref("main").hash
    return house.catalog.commit(CommitRequest(branch="main", base=base, message=message, namespaces=((message,),))).hash


def test_runs_are_filtered_by_kind_and_time(house: FakeLakehouse) -> None:
    kinds: tuple[RunKind, ...] = ("ingest", "revert", "ingest")
    for number, kind in enumerate(kinds):
        house.journal.save(run(number, kind=kind))
    lake = open_lake(house)
    assert [one.branch for one in lake.runs(kind="ingest")] == ["wap/2", "wap/0"]
    since = START + timedelta(hours=1)
    assert [one.branch for one in lake.runs(since=since)] == ["wap/2", "wap/1"]
    assert lake.runs(since=since.replace(tzinfo=None)) == lake.runs(since=since)


def test_commits_between_base_and_publish(house: FakeLakehouse) -> None:
    base = commit(house, "base")
    commit(house, "first")
    commit(house, "second")
    published = commit(house, "publish")
    commit(house, "later")
    publication = Publication(run_id="r", target="main", commit=published, tables=("nyc.trips",), rows=1)
    lake = open_lake(house)
    ours = run(1, base=base, publication=publication)
    assert [one.message for one in lake.commits_before(ours, limit=9)] == ["second", "first"]
    assert [one.message for one in lake.commits_before(ours, limit=1)] == ["second"]
    assert lake.commits_before(run(1, base=base), limit=9) == []


def test_the_status_of_a_journal(house: FakeLakehouse) -> None:
    lake = open_lake(house)
    empty = lake.journal_status()
    assert (empty.location, empty.version) == (str(Path("/project/.lakegate/journal.db")), HEAD)
    assert (empty.runs, empty.files, empty.newest, empty.synced) == ({}, 0, None, None)
    house.journal.save(run(1))
    house.journal.begin(run(2, status="running"))
    head = lake.rebuild_journal().head
    full = open_lake(house, journal={"url": "postgresql://me@db/lake"}).journal_status()
    assert (full.location, full.synced) == ("postgresql://me@db/lake", head.hash)
    assert (full.runs, full.abandoned, full.newest) == ({"published": 1, "running": 1}, (), run(2).run_id)


def test_recover_with_nothing_to_do(house: FakeLakehouse) -> None:
    assert list(open_lake(house).recover()) == []


@pytest.mark.parametrize(
    ("given", "keep", "grace"),
    [
        ({}, timedelta(days=7), timedelta(days=1)),
        ({"keep_rejected": "2h", "grace": timedelta(minutes=5)}, timedelta(hours=2), timedelta(minutes=5)),
    ],
)
def test_gc_takes_spans_or_the_settings(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, given: Any, keep: timedelta, grace: timedelta
) -> None:
    asked: dict[str, Any] = {}

    def fake_gc(_rooms: object, **options: Any) -> GcReport:
        asked.update(options)
        return GcReport(dry_run=options["dry_run"])

    monkeypatch.setattr(keeping, "gc", fake_gc)
    assert open_lake(house).gc(dry_run=True, **given).dry_run
    assert (asked["keep_rejected"], asked["grace"], asked["history"]) == (keep, grace, None)
    open_lake(house, gc={"history": "90d"}).gc()
    assert (asked["history"], asked["dry_run"]) == (timedelta(days=90), False)


def test_gc_refuses_what_is_no_length_of_time(house: FakeLakehouse) -> None:
    with pytest.raises(ConfigurationError, match="soon"):
        open_lake(house).gc(grace="soon")
