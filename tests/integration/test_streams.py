"""Structured Streaming writes to a branch through the gate; each of its rows is published once, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakegate.api.gate import OpenBranch, door
from lakegate.components import Components
from lakegate.errors import InputError
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.spark.sessions import end_session, remote_sessions
from lakegate.wap.failpoints import VARIABLE
from support.gate_world import served
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

BRANCH = "stream/orders"
ROWS = 5


@pytest.fixture(scope="module")
def stream(lake: Lake, components: Components) -> Iterator[tuple[str, OpenBranch]]:
    with served(door(components)) as url:
        yield url, lake.gate.open(branch=BRANCH, checks={"streamed.orders": ["not_null(id)"]})


class Job:
    """A streaming job that reads a folder of JSON files, one in each micro-batch."""

    def __init__(self, stack: StackState, stream: tuple[str, OpenBranch], folder: Path) -> None:
        url, opened = stream
        catalog = "spark.sql.catalog.gate"
        options = {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "rest",
            f"{catalog}.uri": url,
            f"{catalog}.token": opened.token,
            f"{catalog}.cache-enabled": "false",
        }
        self.spark: Any = remote_sessions(stack.spark_url)(options)
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS gate.streamed")
        files = (
            self.spark.readStream.schema("id BIGINT, day STRING").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
        )
        writer = files.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            processingTime="200 milliseconds"
        )
        self.query = writer.toTable("gate.streamed.orders")

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        end_session(self.spark)


def put(folder: Path, *numbers: int) -> None:
    """Drop files of ``ROWS`` rows each, complete from the start."""
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        text = "\n".join(json.dumps({"id": number * ROWS + row, "day": f"d{number}"}) for row in range(ROWS))
        (folder / "new").write_text(text, encoding="utf-8")
        (folder / "new").rename(folder / "in" / f"{number:03}.json")


def rows(lake: Lake, ref: str) -> int:
    try:
        return lake.table("streamed.orders", ref=ref).rows or 0
    except InputError:
        return 0


def ids(lake: Lake, ref: str) -> list[int]:
    return sorted(row["id"] for row in lake.table("streamed.orders", ref=ref).to_arrow().to_pylist())


def written(lake: Lake, files: int) -> None:
    wait_until(lambda: rows(lake, BRANCH) >= files * ROWS, poll_s=0.2, what=f"the rows of {files} files")


def publish_and_die(components: Components) -> None:
    """Publish a slice in a process that is killed right after the commit."""
    command = [sys.executable, "-m", "lakegate", "--home", str(components.home), "watch", "--branch", BRANCH, "--once"]
    faulty = {**os.environ, VARIABLE: "after-publish:kill"}
    done = subprocess.run(command, check=False, capture_output=True, timeout=240, env=faulty)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_job_that_never_stops_is_published_once(
    lake: Lake, components: Components, stack: StackState, stream: tuple[str, OpenBranch], tmp_path: Path
) -> None:
    put(tmp_path, 0, 1)
    job = Job(stack, stream, tmp_path)
    written(lake, 1)
    first = lake.gate.publish_slice(BRANCH)
    assert first is not None
    assert (first.status, first.tables) == ("published", ("streamed.orders",))
    written(lake, 2)
    put(tmp_path, 2, 3)
    job.kill()
    lake.ingest("streamed.orders", [{"id": -1, "day": "by another run"}])

    job = Job(stack, stream, tmp_path)
    written(lake, 3)
    publish_and_die(components)
    written(lake, 4)
    job.kill()
    while lake.gate.publish_slice(BRANCH) is not None:
        pass

    assert (ids(lake, "main"), ids(lake, BRANCH)) == ([-1, *range(4 * ROWS)], [*range(4 * ROWS)])

    lake.discard(BRANCH)
    again = stream[0], lake.gate.open(branch=BRANCH)
    put(tmp_path, 4)
    job = Job(stack, again, tmp_path)
    written(lake, 5)
    job.kill()
    while lake.gate.publish_slice(BRANCH) is not None:
        pass
    assert ids(lake, "main") == [-1, *range(5 * ROWS)]
    assert [check.check for check in first.reports[0].results] == ["not_null(id)"]
