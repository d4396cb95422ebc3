"""``lakegate ui``: where it listens, and its errors."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import Settings
from lakegate.dashboard import ui as package
from lakegate.dashboard.ui import server
from support.cli_support import FakeLake, invoke


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)


def test_it_prints_its_address_and_that_it_is_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def serve(shared: Any, opened: Any, *, when_ready: Any, **_: Any) -> None:
        shown.append(shared)
        when_ready()
        opened.close()

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr("lakegate.dashboard.model.open_read_model", lambda _lake: None)
    lake: Any = FakeLake(alerts_expected_publishes={})
    lake.home, lake.settings = Path("/data/lake"), Settings()
    done = invoke("ui --port 0 --no-browser", lake)
    assert done.exit_code == 0, done.output
    assert "Dashboard of /data/lake: http://127.0.0.1:" in done.stdout
    assert "read-only" in done.stdout
    done = invoke("ui --port 0 --no-browser --allow-actions -o json", lake)
    assert json.loads(done.stdout)["allow_actions"] is True
    assert [one.access.allow_actions for one in shown] == [False, True]


def test_other_addresses_need_a_login() -> None:
    done = invoke("ui --host 0.0.0.0")
    assert done.exit_code == 2
    assert "without a login" in done.stderr
    assert "[ui]" in done.stderr


@pytest.mark.parametrize("command", ["ui", "serve"])
def test_a_port_that_is_taken_is_named_with_what_to_type(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = invoke(f"{command} --port {port}")
    assert done.exit_code == 3
    assert f"Port {port} on 127.0.0.1 is in use" in done.stderr
    assert f"lakegate {command} --port {port + 1}" in done.stderr


def test_without_streamlit_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lakegate.dashboard.ui.server")
    monkeypatch.delattr(package, "server")
    monkeypatch.setitem(sys.modules, "streamlit", None)
    done = invoke("ui")
    assert done.exit_code == 2
    assert "pip install 'lakegate[ui]'" in done.stderr
