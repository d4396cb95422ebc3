"""What tests of the whole program share: trips to ingest, the program as a process, and what must not have changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from lakegate.errors import NotFoundError
from lakegate.lake import Lake, connect
from support import warm
from support.waiting import wait_until

LAKEGATE = (sys.executable, "-m", "lakegate")
COLUMNS = ("id", "passengers", "pickup", "note")


def trips(rows: int, *, nulls: int = 0, start: int = 0) -> pa.Table:
    """Return rows of :data:`COLUMNS`; the first ``nulls`` have no ``passengers``."""
    at = np.arange(rows)
    return pa.table(
        {
            "id": pa.array(at + start, pa.int64()),
            "passengers": pa.array((at % 6).astype(np.int32), mask=at < nulls),
            "pickup": pa.array(np.datetime64("2024-01-01T07:00", "us") + at % 3 * np.timedelta64(1, "D")),
            "note": pa.array([f"trip {i}" for i in range(rows)], pa.string()),
        }
    )


def write(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def write_trips(path: Path, rows: int, *, nulls: int = 0, start: int = 0) -> Path:
    return write(path, trips(rows, nulls=nulls, start=start))


def standing(lake: Lake) -> dict[str, str]:
    """Return where every branch stands."""
    return {ref.name: ref.hash for ref in lake.branches.list()}


@contextmanager
def unchanged(lake: Lake) -> Iterator[None]:
    """Hold the body to this: every branch stands where it stood, and there is none more and none less."""
    before = standing(lake)
    yield
    assert standing(lake) == before


_NOT_PASSED_ON = ("LAKEGATE_", "COLUMNS", "LINES")
"""How variables begin that would change what commands print; pytest-xdist sets the last two."""


@dataclass(frozen=True)
class Cli:
    """``lakegate`` as a process, for the project in ``home``.

    Attributes:
        home: The project's folder.
        variables: Variables for every command; our own environment's :data:`_NOT_PASSED_ON` are left out.
    """

    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *words: str | Path, fault: str | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, warm; ``fault`` is what to do to it where (:mod:`lakegate.wap.failpoints`)."""
        command = [*warm.words(warm.CLI), "--home", str(self.home), *map(str, words)]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=self.environment(fault)
        )

    def json(self, *words: str | Path, code: int = 0) -> Any:
        """Run a command with JSON output that must end with ``code``, and return what it printed."""
        done = self.run(*words, "--output", "json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start a command, cold, in a process group of its own, as a shell does."""
        return subprocess.Popen(
            [*LAKEGATE, "--home", str(self.home), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            start_new_session=True,
        )

    def begin(
        self,
        *words: str | Path,
        fault: str | None = None,
        stdout: IO[str] | int = subprocess.PIPE,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start a command, warm, that a test waits for; see :meth:`run`."""
        return subprocess.Popen(
            [*warm.words(warm.CLI), "--home", str(self.home), *map(str, words)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(fault) | variables,
        )

    @contextmanager
    def stopped(self, point: str, *words: str | Path, lease_s: float = 600.0) -> Iterator[subprocess.Popen[str]]:
        """Start a command that is stopped at ``point`` while the body runs, or until it calls :func:`let_go`."""
        with self.begin(*words, fault=f"{point}:pause", LAKEGATE_JOURNAL_LEASE_S=str(lease_s)) as command:
            try:
                wait_until(partial(_is_stopped, command), what=point, process=command)
                yield command
            finally:
                if command.poll() is None and _is_stopped(command):
                    command.kill()

    def branches(self) -> dict[str, str]:
        """Return where every branch stands. Starts a catalog that is gone."""
        with connect(self.home) as lake:
            return standing(lake)

    def count(self, table: str, ref: str = "main") -> int | None:
        """Return the rows of ``table`` by metadata; ``None`` when it isn't there."""
        with connect(self.home) as lake:
            try:
                return lake.table(table, ref=ref).rows
            except NotFoundError:
                return None

    def environment(self, fault: str | None = None) -> dict[str, str]:
        """Return the variables that a command gets."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_PASSED_ON)}
        return {**kept, **self.variables, **({"LAKEGATE_FAULT": fault} if fault else {})}


def _is_stopped(command: subprocess.Popen[str]) -> bool:
    return psutil.Process(command.pid).status() == psutil.STATUS_STOPPED


def let_go(command: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let a command of :meth:`Cli.stopped` go on to its end, and return its exit code and what it printed."""

    def has_ended() -> bool:
        if command.poll() is None and _is_stopped(command):
            os.kill(command.pid, signal.SIGCONT)  # it stops at the point each time it comes by
        return command.poll() is not None

    wait_until(has_ended, within_s=180)
    out, err = command.communicate(timeout=180)
    return command.returncode, out, err


def press_ctrl_c(command: subprocess.Popen[str]) -> tuple[str, str]:
    """Send SIGINT to the command's whole group, as a terminal does, and return what it had printed at its end."""
    os.killpg(command.pid, signal.SIGINT)
    out, err = command.communicate(timeout=120)
    return out, err
