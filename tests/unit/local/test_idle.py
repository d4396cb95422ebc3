"""Idle servers are stopped; holding their lock keeps them alive."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from lakegate.local import idle
from lakegate.local.state import StackFolder, Usage


class _World:
    """A stack whose clock advances ten seconds per check, and that records what was done to it."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = StackFolder(home)
        self.folder.create()
        self.folder.idle_path.write_text("60")
        self.usage = Usage(self.folder, self.folder.stack_usage_path, "stopping the local stack")
        self.looks = 0
        self.stopped_at: int | None = None
        self.connected_until = 0
        self.released_at = 0
        self.gone_at = 1_000
        self.limit = "60"  # of servers that are started at the third look
        begun = time.time()
        self.folder.stack_usage_path.touch()
        os.utime(self.folder.stack_usage_path, (begun, begun))
        monkeypatch.setattr(idle, "_services", self._services)
        monkeypatch.setattr(idle, "_is_connected", lambda _: self.looks < self.connected_until)
        monkeypatch.setattr(idle, "_stop", self._stop)
        monkeypatch.setattr(idle, "pause", lambda *_: None)
        monkeypatch.setattr("lakegate.local.idle.time.time", lambda: begun + 10 * self.looks)

    def _services(self, _folder: Path, _home: Path) -> list[dict[str, object]]:
        self.looks += 1
        if self.looks == 3:
            self.folder.idle_path.write_text(self.limit)
        if self.looks == self.released_at:
            self.usage.release()
        return [] if self.looks >= self.gone_at else [{}]

    def _stop(self, _home: Path) -> None:
        self.stopped_at = self.looks


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _World:
    return _World(tmp_path, monkeypatch)


def test_idle_servers_are_stopped_in_time(world: _World) -> None:
    assert idle.watch(world.folder.home)
    assert world.stopped_at == 6


def test_a_session_keeps_servers_alive_until_it_ends(world: _World) -> None:
    world.usage.hold(1)
    world.released_at = 10
    assert idle.watch(world.folder.home)
    assert world.stopped_at == 15


def test_another_programs_connection_keeps_servers_alive(world: _World) -> None:
    world.connected_until = 20
    assert idle.watch(world.folder.home)
    assert world.stopped_at == 25


def test_it_ends_when_someone_else_stops_the_servers(world: _World) -> None:
    world.gone_at = 3
    assert not idle.watch(world.folder.home)
    assert world.stopped_at is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows connections that ended")
def test_a_short_lived_client_is_noticed() -> None:
    with contextlib.ExitStack() as servers:
        port = 0
        while not port or idle.was_connected({port}):  # another test's connection may have had the port's number
            server = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        client.close()  # who hangs up first is remembered
        assert accepted.recv(1) == b""
        accepted.close()
    assert idle.was_connected({port})


def test_one_process_watches_a_project(world: _World) -> None:
    first = Usage(world.folder, world.folder.path / "idle.lock", "watching")
    first.hold(1)
    assert not idle.watch(world.folder.home)
    assert world.looks == 0
    first.release()
