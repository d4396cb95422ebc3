"""A backfill on the real stack: side by side, killed in the middle, gone on with, and done."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakegate.local.state import StackState
from support.e2e_support import Cli, write_trips

pytestmark = pytest.mark.jvm

ROWS = 20


@pytest.fixture(scope="module")
def cli(home: Path, stack: StackState) -> Cli:
    return Cli(home)


def test_killed_and_gone_on_with_every_file_is_published_once(cli: Cli, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    files = [tmp_path / f"green_2024-01-0{day}.parquet" for day in range(1, 7)]
    for number, path in enumerate(files):
        write_trips(path, ROWS, nulls=2 if number == 3 else 0, start=number * ROWS)
    words = (
        *("backfill", table, f"{tmp_path}/green_%Y-%m-%d.parquet", "--from", "2024-01-01", "--to", "2024-01"),
        *("--parallel", "3", "--check", "not_null(passengers)"),
    )
    plan = cli.json(*words, "--dry-run")
    assert (plan["creates"], plan["files_to_do"], len(plan["chunks"])) == (True, 6, 6)
    assert cli.count(table) is None

    first = cli.run(*words, "--chunk", "month", "--to", "2024-01-02", fault="after-audit:kill")
    second = cli.run(*words, fault="after-publish:kill")
    assert [first.returncode, second.returncode] == [-signal.SIGKILL] * 2

    went_on = cli.json(*words, code=1)
    assert (went_on["chunks"]["rejected"], went_on["chunks"]["later"], went_on["chunks"]["waiting"]) == (1, 0, 0)
    assert went_on["results"][3]["failed_checks"] == ["not_null(passengers)"]
    assert cli.count(table) == 5 * ROWS

    write_trips(files[3], ROWS, start=3 * ROWS)
    mended = cli.json(*words)
    assert {name: number for name, number in mended["chunks"].items() if number} == {"already": 5, "published": 1}

    done = cli.json(*words)
    assert {name: number for name, number in done["chunks"].items() if number} == {"already": 6}
    ids = cli.json("query", f"SELECT id FROM {table}")
    assert sorted(row["id"] for row in ids) == list(range(6 * ROWS))
    ours = {run["run_id"]: run["status"] for run in cli.json("runs", "--table", table)}
    assert list(ours.values()).count("rejected") == 1
    left = [name for name in cli.branches() if table in name]
    assert left == [went_on["results"][3]["branch"]]
