"""What the read model opens, caches and refreshes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

import lakegate
from lakegate.config import Settings
from lakegate.dashboard.model import open_read_model
from lakegate.dashboard.overview import overview
from lakegate.journal.database import BUSY_TIMEOUT_S
from lakegate.local.state import ServiceStatus
from support.lakes import components_of


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
        assert ":1/" in repr(model.catalog)
        stack.port = 2
        assert ":1/" in repr(model.catalog)
        assert [one.part for one in overview(model).problems] == ["catalog"], "nobody answers there"
        assert ":2/" in repr(model.catalog)


def test_a_locked_journal_is_said_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.components._PAGE_PATIENCE_S", 0.05)
    with lakegate.connect(tmp_path, settings=Settings()) as lake:
        assert open_read_model(lake).journal.count() == ({}, 0)
    with lakegate.connect(tmp_path, settings=Settings()) as lake:
        components_of(lake).__dict__["stack"] = Stack()
        other = sqlite3.connect(tmp_path / ".lakegate" / "journal.db", isolation_level=None)
        try:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            page = overview(open_read_model(lake))
            [locked] = [one for one in page.problems if one.part == "journal"]
            assert "locked" in locked.message
            assert time.monotonic() - began < BUSY_TIMEOUT_S, "as long as a run would wait"
        finally:
            other.close()
        assert [one.part for one in overview(open_read_model(lake)).problems] == ["catalog"]
