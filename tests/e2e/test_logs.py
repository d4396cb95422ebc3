"""``lakegate --log-format json`` on the real stack: every line of standard error parses and knows its run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.lake import Lake
from lakegate.local.state import StackState
from support.e2e_support import Cli, write_trips
from support.log_support import Log, ends, logged, parsed

pytestmark = pytest.mark.jvm
_RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")


@pytest.fixture
def cli(home: Path, stack: StackState) -> Cli:
    return Cli(home, {"LAKEGATE_LOG_FORMAT": "json"})


def test_a_published_run_is_on_each_of_its_lines(cli: Cli, namespace: str, tmp_path: Path) -> None:
    file = write_trips(tmp_path / "a.parquet", 100)
    done = cli.run("ingest", f"{namespace}.trips", file, "-c", "not_null(id)", "-o", "json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    told = parsed(done.stderr)
    first = next(number for number, line in enumerate(told) if line["run_id"])
    assert {line["run_id"] for line in told[first:]} == {run["run_id"]}
    assert {line["table"] for line in told[first:]} == {f"{namespace}.trips"}
    assert all(line["branch"].endswith(run["run_id"]) for line in told[first:])
    assert {"write", "publish"} <= {line["step"] for line in told}
    [ended] = ends(told)
    assert (ended["status"], ended["rows"]) == ("published", 100)
    assert told[-1]["exit_code"] == 0


def test_a_rejected_run_names_the_checks(cli: Cli, namespace: str, tmp_path: Path) -> None:
    file = write_trips(tmp_path / "a.parquet", 100, nulls=3)
    done = cli.run("ingest", f"{namespace}.trips", file, "-c", "not_null(passengers)")
    assert done.returncode == 1, done.stderr
    told = parsed(done.stderr)
    [ended] = ends(told)
    assert (ended["status"], ended["level"], ended["failed_checks"]) == (
        "rejected",
        "warning",
        ["not_null(passengers)"],
    )
    assert _RUN_ID.fullmatch(ended["run_id"])
    assert (told[-1]["exit_code"], told[-1]["run_id"]) == (1, ended["run_id"])


@pytest.fixture
def log() -> Iterator[Log]:
    with logged() as told:
        yield told


def ingest(lake: Lake, table: str, run_id: str, file: Path) -> None:
    lake.ingest(table, str(file), run_id=run_id)


def test_a_closed_standard_error_stops_no_run(cli: Cli, namespace: str, tmp_path: Path) -> None:
    file = write_trips(tmp_path / "a.parquet", 10)
    running = cli.begin("ingest", f"{namespace}.trips", file, "-o", "json")
    assert running.stderr is not None
    running.stderr.close()
    assert running.stdout is not None
    told = running.stdout.read()
    running.stdout.close()
    assert running.wait(timeout=120) == 0
    assert json.loads(told)["status"] == "published"
