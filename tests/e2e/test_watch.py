"""``lakegate watch`` as users run it: files come, some are bad, it is killed and started again, and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.sources.files import to_uri
from support.e2e_support import Cli, write_trips
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

ROWS = 20
BOUND_S = 120.0


@pytest.fixture
def cli(home: Path, stack: StackState) -> Cli:
    return Cli(home)


@pytest.fixture
def table(namespace: str) -> str:
    return f"{namespace}.trips"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def land(landing: Path, name: str, *, nulls: int = 0, start: int = 0, cut: bool = False) -> Path:
    """Put a file into the folder in one move, as careful writers do."""
    made = write_trips(landing.parent / "staging" / name, ROWS, nulls=nulls, start=start)
    if cut:
        made.write_bytes(made.read_bytes()[:-100])
    return made.rename(landing / name)


def outcomes(lake: Lake, table: str, landing: Path) -> Mapping[str, str]:
    uris = {to_uri(path): path.name for path in landing.iterdir()}
    return {uris[uri]: landed.outcome for uri, landed in lake.files.checkpoints(table, tuple(uris)).items()}


@contextmanager
def watching(cli: Cli, landing: Path, table: str, fault: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Watch a folder: cold, as the signals that end it come from outside, or warm until a ``fault`` ends it."""
    words = ("watch", landing, "--table", table, "-c", "not_null(passengers)", "--settle", "0s", "--max-tries", "1")
    command = cli.begin(*words, fault=fault) if fault else cli.start(*words)
    try:
        yield command
    finally:
        if command.poll() is None:
            command.kill()
            command.communicate()


def test_watched_killed_and_watched_again(cli: Cli, lake: Lake, landing: Path, table: str) -> None:
    before = set(cli.branches())
    with watching(cli, landing, table, "after-stage:kill") as command:
        land(landing, "clean.parquet")
        command.communicate(timeout=BOUND_S)
    assert command.returncode == -signal.SIGKILL
    assert cli.count(table) is None

    with watching(cli, landing, table) as command:
        wait_until(
            lambda: outcomes(lake, table, landing) == {"clean.parquet": "done"}, within_s=BOUND_S, process=command
        )
        land(landing, "nulls.parquet", nulls=3, start=100)
        land(landing, "cut.parquet", cut=True)
        land(landing, "late.parquet", start=200)
        expected = {"clean": "done", "nulls": "rejected", "cut": "failed", "late": "done"}
        wanted = {f"{name}.parquet": outcome for name, outcome in expected.items()}
        wait_until(lambda: outcomes(lake, table, landing) == wanted, within_s=BOUND_S, process=command)
        os.kill(command.pid, signal.SIGTERM)
        _, err = command.communicate(timeout=BOUND_S)

    assert command.returncode == 0, err
    assert f"given up   {landing}/nulls.parquet: Rejected by not_null(passengers) (3 rows)." in err
    assert f"given up   {landing}/cut.parquet: " in err
    assert "Traceback" not in err
    assert cli.count(table) == 2 * ROWS
    kept = {run["branch"] for run in cli.json("runs", "--table", table, "--status", "rejected")} - {None}
    assert len(kept) == 1
    assert set(cli.branches()) == before | kept


def test_once_for_a_schedule(cli: Cli, landing: Path, namespace: str) -> None:
    (landing / namespace / "trips").mkdir(parents=True)
    source = land(landing, "1.parquet").rename(landing / namespace / "trips" / "1.parquet")
    words = ("watch", landing, "--route", f"{landing}/{{namespace}}/{{table}}/*", "--once", "--settle", "1s")
    done = cli.run(*words, "--output", "json")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    assert '"status": "published"' in done.stdout
    assert cli.run(*words, "--output", "json").stdout == ""

    write_trips(source, ROWS + 1, start=1000)
    refused = cli.run(*words, "--max-tries", "1")
    assert refused.returncode == 1
    assert "was published to" in refused.stderr
    assert cli.run(*words, "--max-tries", "1").returncode == 0
    replaced = cli.run(*words, "--again", "--on-changed", "replace")
    assert replaced.returncode == 0, replaced.stderr
    assert cli.count(f"{namespace}.trips") == ROWS + 1
