"""``lakegate watch --branch``: a stream's slices, its troubles, and exit codes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

from lakegate.errors import CatalogUnavailableError
from lakegate.model.run import Publication, Run
from lakegate.model.states import RunStatus
from lakegate.wap.stream import StreamRefusedError, StreamStoppedError
from support.cli_support import invoke

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
STOPPED = StreamStoppedError("Run r2 failed its audit.", hint="lakegate discard wap/r2")
Outcome = Run | Exception | None


def slice_run(status: RunStatus = "published") -> Run:
    done = Publication(run_id="r1", target="main", commit="c" * 64, tables=("shop.orders",), rows=1_500)
    return Run(
        run_id="r1",
        kind="gate",
        tables=("shop.orders",),
        branch="wap/r1",
        status=status,
        started_at=NOW,
        finished_at=NOW,
        publication=done if status == "published" else None,
    )


@dataclass
class StreamLake:
    """A lake with a stream, whose slices end as scripted; then the command gets SIGTERM."""

    outcomes: list[Outcome] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def gate(self) -> Self:
        return self

    def publish_slice(self, opened: str) -> Run | None:
        self.asked.append(opened)
        if not self.outcomes:
            os.kill(os.getpid(), signal.SIGTERM)
            return None
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def watch(in_a_project: Path) -> Callable[..., Any]:
    del in_a_project
    return lambda lake, *words: invoke(["watch", "--branch", "stream/orders", *words], lake)


def test_it_goes_on_until_its_stopped(watch: Callable[..., Any]) -> None:
    lake = StreamLake([STOPPED, STOPPED, slice_run()])
    done = watch(lake, "--every", "1s", "-o", "json")
    assert (done.exit_code, lake.asked) == (0, ["stream/orders"] * 4), done.stderr
    assert [json.loads(line)["run_id"] for line in done.stdout.splitlines()] == ["r1"]
    assert done.stderr.splitlines() == [
        "waiting    Run r2 failed its audit. lakegate discard wap/r2",
        "published  shop.orders: 1,500 rows, run r1",
    ]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (slice_run(), 0),
        (None, 0),
        (slice_run("rejected"), 1),
        (STOPPED, 1),
        (StreamRefusedError("nyc.trips wasn't only appended to."), 2),
        (CatalogUnavailableError("The catalog is away."), 3),
    ],
)
def test_once_exits_with_the_outcome(watch: Callable[..., Any], outcome: Outcome, code: int) -> None:
    lake = StreamLake([outcome])
    done = watch(lake, "--once")
    assert (done.exit_code, lake.outcomes) == (code, []), done.stderr


def test_a_stream_that_cant_go_on_ends_it(watch: Callable[..., Any]) -> None:
    done = watch(StreamLake([StreamRefusedError("nyc.trips wasn't only appended to.")]), "--every", "1m")
    assert (done.exit_code, "wasn't only appended to" in done.stderr) == (2, True)


@pytest.mark.parametrize("words", [["landing"], ["--table", "nyc.trips"], ["-c", "not_null(id)"]])
def test_files_and_their_options_dont_go_with_it(watch: Callable[..., Any], words: list[str]) -> None:
    done = watch(StreamLake(), *words)
    assert (done.exit_code, "With --branch, watch takes only --every and --once." in done.stderr) == (2, True)
