"""What another journal published meanwhile: only the catalog knows for sure what is published."""

from __future__ import annotations

import pytest

from lakegate.journal.journal import Journal
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import rebuild
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, ordered, when_reached
from support.memory_journal import MemoryDatabase


def test_what_another_journal_published_meanwhile_is_found_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    house = FakeLakehouse()
    other = FakeLakehouse()
    # The same catalog and tables, with another journal.
    other.__dict__ = {**house.__dict__, "journal": Journal(MemoryDatabase())}

    def publish_elsewhere() -> None:
        assert ingest(other.context, ordered(other, CLEAN, run="r1", file="a")).status == "published"

    with when_reached(monkeypatch, "before-publish", publish_elsewhere):
        run = ingest(house.context, ordered(house, CLEAN, run="r2", file="a"))
    assert run.status == "skipped"
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_a_lost_journal_learns_from_the_catalog_which_files_are_published() -> None:
    house = FakeLakehouse()
    assert ingest(house.context, ordered(house, CLEAN, run="r1", file="a")).status == "published"
    house.journal = Journal(MemoryDatabase())
    assert ingest(house.context, ordered(house, CLEAN, run="r2", file="a")).status == "skipped"
    assert rebuild(house.context, "main").files == 1
