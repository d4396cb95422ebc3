"""``lakegate demo --aws`` as users run it: twice, looked at, and stopped with nothing left running.

MiniStack, the function, Spark, Nessie and the journal are real. Only Slack is the demo's own stand-in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lakegate.local.ministack import ACCESS_KEY, SECRET_KEY
from support.e2e_support import Cli
from support.waiting import wait_until

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.timeout(1800),  # the function's packages are fetched and packed once
    pytest.mark.skipif(sys.platform != "linux", reason="the function is built for Linux"),
]

TABLE = "demo.trips"
ROWS = 2000


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Cli]:
    folder = tmp_path / "demo-aws"
    folder.mkdir()
    variables = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "LAKEGATE_LOCAL_SPARK_MEMORY": "1500m",
    }
    program = Cli(folder, variables)
    yield program
    program.run("down")


def running_for(folder: Path) -> list[list[str]]:
    """Return the command lines of all processes that have to do with a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if any(str(folder) in part for part in line):
            found.append(line)
    return found


def play(demo: Cli) -> dict[str, Any]:
    told: dict[str, Any] = demo.json("demo", "--aws", "--rows", str(ROWS), "--dir", demo.home)
    return told


def test_three_files_have_three_fates_as_often_as_one_likes(demo: Cli, tmp_path: Path) -> None:
    told = play(demo)
    clean, nulls, truncated = told["files"]
    assert [file["outcome"] for file in told["files"]] == ["published", "rejected", "dead-lettered"]
    assert clean["run"]["rows"] == {"source": ROWS, "published": ROWS, "removed": 0, "quarantined": 0}
    assert truncated["run"] is None
    assert truncated["dead_letter"]["received"] >= 3
    assert told["rows_on_main"] == ROWS

    failed = [check["check"] for check in nulls["run"]["checks"] if check["verdict"] == "fail"]
    assert failed == ["not_null(passenger_count)"]
    alert = "\n".join(told["alert"])
    assert nulls["run"]["run_id"] in alert
    assert failed[0] in alert

    runs = demo.json("runs")
    assert {run["run_id"]: run["status"] for run in runs} == {
        clean["run"]["run_id"]: "published",
        nulls["run"]["run_id"]: "rejected",
    }
    assert demo.json("runs", clean["run"]["run_id"])["files"] == [clean["uri"]]
    assert demo.json("table", "show", TABLE)["rows"] == ROWS

    again = play(demo)
    assert [file["outcome"] for file in again["files"]] == ["published", "rejected", "dead-lettered"]
    assert again["rows_on_main"] == 2 * ROWS

    stopped = demo.json("down")["stopped"]
    assert set(stopped) == {"spark", "nessie", "ministack"}
    # What watches for idle servers sees within a second that there are none.
    wait_until(lambda: not running_for(tmp_path))
