"""What the read model opens, caches and refreshes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lakegate
from lakegate.config import Settings
from lakegate.dashboard.branches import list_branches
from lakegate.dashboard.model import ReadModel, open_read_model
from lakegate.dashboard.overview import overview
from lakegate.errors import CatalogUnavailableError, RetryableError
from lakegate.journal.database import BUSY_TIMEOUT_S
from lakegate.local.state import ServiceStatus
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from support.fakes import FakeLakehouse
from support.lakes import components_of
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


class Stack:
    """A local stack that reports its state and starts nothing."""

    port = 1
    state: Any = "stopped"

    def status(self) -> tuple[ServiceStatus, ...]:
        address = f"http://127.0.0.1:{self.port}/api/v2"
        return (ServiceStatus(name="nessie", state=self.state, log="nessie.log", address=address),)

    def keep(self) -> None: ...

    def release(self) -> None: ...


def test_looking_starts_nothing_and_finds_a_server_that_was_started_anew(tmp_path: Path) -> None:
    with lakegate.connect(tmp_path, settings=Settings()) as lake:
        stack = Stack()
        components_of(lake).__dict__["stack"] = stack
        model = open_read_model(lake)
        page = overview(model)
        assert [(one.code, one.hint) for one in page.problems] == [("catalog-unavailable", "Start it: lakegate up")]
        assert "local Nessie is stopped" in page.problems[0].message
        stack.state = "running"
        model.refresh()
        first = model.catalog
        assert model.catalog is first
        model.mark_unavailable("catalog", CatalogUnavailableError("gone"))
        with pytest.raises(CatalogUnavailableError, match="gone"):
            _ = model.catalog
        model.refresh()
        assert model.catalog is first, "it's at the same address"
        stack.port = 2
        model.mark_unavailable("catalog", CatalogUnavailableError("gone"))
        model.refresh()
        assert ":2/" in repr(model.catalog)


def test_a_catalog_that_goes_away_within_a_page_is_waited_for_once(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    load({"id": 1})
    for number in range(30):
        branch = house.catalog.create_branch(f"dbt/{number:02}", house.catalog.get_ref("main"))
        (pointer,) = house.catalog.list_tables(branch)
        request = CommitRequest(branch=branch.name, base=branch.hash, message="m", deletes=(pointer.table,))
        house.catalog.commit(request)
    asked = []

    def diff(*_: object) -> Any:
        asked.append(1)
        raise CatalogUnavailableError("Nessie is away.")

    monkeypatch.setattr(house.catalog, "diff", diff)
    page = list_branches(model_of(house))
    assert len(page.items) == 20
    assert all(one.problem is not None for one in page.items)
    assert len(asked) <= 8, "those that were asked at the same time"


def test_the_list_of_branches_is_asked_for_once_a_page(model: ReadModel, house: FakeLakehouse) -> None:
    assert model.branches() == ()
    house.catalog.create_branch("a", house.catalog.get_ref("main"))
    assert model.branches() == ()
    model.refresh()
    assert [ref.name for ref in model.branches()] == ["a"]


def test_what_is_remembered_is_bounded(model: ReadModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.dashboard.model._CACHE_SIZE", 2)
    made: list[list[str]] = [model.cached("letters", key, partial(list, key)) for key in "aba"]
    assert made[0] is made[2]
    model.cached("letters", "c", lambda: ["c"])
    assert model.cached("letters", "a", list) is made[0], "b was used longer ago"
    assert model.cached("letters", "b", list) == []


@pytest.mark.parametrize(
    ("column", "hidden"), [("email", True), ("E_MAIL", False), ("Home_Name", True), ("name", False)]
)
def test_masked_columns_are_patterns_in_any_case(house: FakeLakehouse, column: str, hidden: bool) -> None:
    model = model_of(house, ui={"masked": ["EMAIL", "*_name"]})
    assert model.is_masked(column) is hidden


def test_a_locked_journal_is_said_soon_and_asked_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.components._PAGE_PATIENCE_S", 0.05)
    with lakegate.connect(tmp_path, settings=Settings()) as lake:
        assert open_read_model(lake).journal.count() == ({}, 0)
    with lakegate.connect(tmp_path, settings=Settings()) as lake:
        components_of(lake).__dict__["stack"] = Stack()
        other = sqlite3.connect(tmp_path / ".lakegate" / "journal.db", isolation_level=None)
        try:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            asked = open_read_model(lake)
            began = time.monotonic()
            page = overview(asked)
            [locked] = [one for one in page.problems if one.part == "journal"]
            assert "locked" in locked.message
            with pytest.raises(RetryableError):
                _ = asked.journal
            assert time.monotonic() - began < BUSY_TIMEOUT_S, "as long as a run would wait"
        finally:
            other.close()
        asked.refresh()
        assert [one.part for one in overview(asked).problems] == ["catalog"]
