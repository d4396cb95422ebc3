"""A rejected ingest on the real stack is told of, by the program as users run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.local.state import StackState
from support.e2e_support import Cli, write_trips
from support.slack_server import SlackServer, slack_server

pytestmark = pytest.mark.jvm
CHANNELS = [{"name": "ops", "type": "slack", "url": "env:TEST_HOOK_URL"}]


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack_server() as running:
        yield running


@pytest.fixture
def cli(home: Path, stack: StackState, server: SlackServer) -> Cli:
    return Cli(
        home,
        {
            "LAKEGATE_NOTIFY_CHANNELS": json.dumps(CHANNELS),
            "LAKEGATE_NOTIFY_EXAMPLES": "true",
            "TEST_HOOK_URL": server.hook,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        },
    )


def test_a_rejected_ingest_is_told_of_with_what_to_do(
    cli: Cli, server: SlackServer, namespace: str, tmp_path: Path
) -> None:
    file = write_trips(tmp_path / "a.parquet", 100, nulls=3)
    run = cli.json("ingest", f"{namespace}.trips", file, "-c", "not_null(passengers)", code=1)

    (message,) = server.messages
    told = json.dumps(message, ensure_ascii=False)
    assert message["text"].startswith(f"{namespace}.trips: rejected")
    for part in ("3 of 100 rows", "`passengers`", "note=trip 0", run["branch"], f"lakegate runs {run['run_id']}"):
        assert part in told, part

    (notification,) = cli.json("runs", run["run_id"])["notifications"]
    assert (notification["channel"], notification["outcome"]) == ("ops", "sent")
    command = f"lakegate publish {run['branch']}"
    assert command in told
    assert cli.run(*command.split()[1:]).returncode == 1
    assert len(server.messages) == 1  # the same of the same table: an earlier message stands for it


def test_a_file_that_a_watch_gives_up_is_told_of_once(
    cli: Cli, server: SlackServer, namespace: str, tmp_path: Path
) -> None:
    write_trips(tmp_path / "good.parquet", 100)
    whole = write_trips(tmp_path.parent / "whole.parquet", 100).read_bytes()
    (tmp_path / "bad.parquet").write_bytes(whole[:-100])
    watch = ("watch", tmp_path, "--table", f"{namespace}.trips", "--once", "--settle", "0s", "--max-tries", "1")
    assert cli.run(*watch).returncode == 1
    (message,) = server.messages
    told = json.dumps(message, ensure_ascii=False)
    assert message["text"].startswith(f"{namespace}.trips: file given up")
    assert "bad.parquet" in told
    assert "good.parquet" not in told
    assert cli.run(*watch).returncode == 0
    assert len(server.messages) == 1
