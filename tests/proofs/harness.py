"""What the proofs on the real stack share: worker processes, and what a lake must come to when all is over."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Generic, Self, TypeVar, cast

import psutil
import pyarrow as pa
from pyiceberg.table import StaticTable

from lakegate.config import HOME_NAME
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake
from lakegate.ledger.event import event_of
from lakegate.local.state import StackFolder
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.run import Run
from lakegate.model.states import OPEN
from proofs.worker import Answer, Job
from support import warm
from support.lakes import components_of
from support.waiting import wait_until

_TESTS = Path(__file__).resolve().parents[1]
"""Linux's list of file locks; a line with an arrow is somebody who waits (proc_locks(5))."""
_PATIENCE_S = 240.0


class WorkerDiedError(Exception):
    """The worker is gone without an answer; ``args`` holds how it ended."""


class Worker:
    """A process of :mod:`proofs.worker`. It starts at once, and is waited for when it gets its first job.

    Args:
        home: The project's folder.
        log: Where its standard error goes.
    """

    module = "proofs.worker"
    program = warm.CLI
    """The program whose imports it needs."""

    def __init__(self, home: Path, log: IO[str]) -> None:
        self._pid: int | None = None
        self._process = subprocess.Popen(
            [*warm.python(self.program), "-m", self.module, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**self.variables(), "PYTHONPATH": str(_TESTS)},
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def variables() -> dict[str, str]:
        """Return the variables that the process gets: none of lakegate's settings."""
        return {key: value for key, value in os.environ.items() if not key.startswith("LAKEGATE_")}

    def do(self, job: Job, *, within_s: float = _PATIENCE_S) -> Answer:
        """Do a job and return the answer, which must come in time.

        Raises:
            WorkerDiedError: When the process ended instead.
        """
        self.begin(job)
        return self.answer(within_s=within_s)

    def begin(self, job: Job) -> None:
        """Hand over a job; raises as :meth:`do`."""
        self.wait_ready()
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def wait_ready(self) -> None:
        """Wait until the process has imported what it needs; raises as :meth:`do`."""
        if self._pid is None:
            self._pid = json.loads(self._line())["pid"]

    def answer(self, *, within_s: float = _PATIENCE_S) -> Answer:
        """Return the answer to the job under way; raises as :meth:`do`."""
        return cast("Answer", json.loads(self._line(within_s)))

    def wait_stopped(self) -> bool:
        """Wait until the process has stopped itself; ``False`` when it ended, or answered, without doing so."""
        process = psutil.Process(self._process.pid)

        def has_stopped() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                return process.status() == psutil.STATUS_STOPPED
            return False

        wait_until(lambda: has_stopped() or not self._lines.empty(), within_s=_PATIENCE_S, what="a stop or an answer")
        return has_stopped()

    def resume(self) -> None:
        """Wake a process that has stopped itself."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        if self._process.poll() is None:
            # What stands for a process that is ready ends a moment after it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid or self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Let the process end, if it has not, and return how it did."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _line(self, within_s: float = _PATIENCE_S) -> str:
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            self.kill()
            raise TimeoutError(f"no answer within {within_s:.0f} s") from None
        if line is None:
            raise self._died()
        return line

    def _died(self) -> WorkerDiedError:
        return WorkerDiedError(self._process.wait())


_AnyWorker = TypeVar("_AnyWorker", bound=Worker)


class WorkersOf(Generic[_AnyWorker]):
    """Starts workers of a kind ahead of their being needed, and ends all of them."""

    def __init__(self, kind: type[_AnyWorker], home: Path) -> None:
        self._kind = kind
        self._home = home
        self._all: list[_AnyWorker] = []
        self._spare: _AnyWorker | None = None
        self._taking = threading.Lock()
        folder = home / HOME_NAME / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / f"{kind.module}.log").open("a")

    def take(self) -> _AnyWorker:
        """Return a fresh worker, which nobody else has."""
        with self._taking:
            taken, self._spare = self._spare or self.start(), self.start()
        return taken

    def start(self) -> _AnyWorker:
        """Start a worker."""
        worker = self._kind(self._home, self._log)
        self._all.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.kill()
        for worker in self._all:
            worker.end()
        self._log.close()


class Workers(WorkersOf[Worker]):
    """Workers of :mod:`proofs.worker`."""

    def __init__(self, home: Path) -> None:
        super().__init__(Worker, home)


def kill_server(home: Path, name: str) -> None:
    """Kill one of the local stack's servers, and wait until it is gone."""
    state = StackFolder(home).read()
    assert state is not None
    process = psutil.Process(next(one.pid for one in state.services.values() if one.name == name))
    process.kill()
    psutil.wait_procs([process], timeout=120)


def ids(lake: Lake, table: str) -> Counter[int]:
    """Return how often each id is in a table on main, as PyIceberg reads it; nothing when there is no table."""
    context = components_of(lake).context
    pointer = context.catalog.get_table(TableIdentifier.parse(table), context.catalog.get_ref(MAIN))
    if pointer is None:
        return Counter()
    found = StaticTable.from_metadata(str(local_path(pointer.metadata_location)))
    return _counted(found.scan(selected_fields=("id",)).to_arrow())


def ids_by_spark(lake: Lake, table: str) -> Counter[int]:
    """Return what :func:`ids` returns, as Spark reads it."""
    return _counted(lake.query(f"SELECT id FROM {table}").to_arrow())


def _counted(rows: pa.Table) -> Counter[int]:
    return Counter(int(str(value)) for value in rows.column("id").to_pylist())


def published_runs(lake: Lake, tables: Collection[str]) -> Counter[str]:
    """Return how many commits on main each run has that published something to one of ``tables``."""
    history = components_of(lake).context.catalog.history(MAIN)
    events = filter(None, map(event_of, history))
    return Counter(event.run for event in events if set(event.tables) & set(tables))


def known_runs(lake: Lake, tables: Collection[str]) -> dict[str, Run]:
    """Return the runs that the journal knows of ``tables``, by id."""
    return {run.run_id: run for table in tables for run in lake.runs(table=table, limit=1_000_000)}


def journal_problems(lake: Lake, tables: Collection[str]) -> Iterator[str]:
    """Yield where the journal does not agree with main's history on the runs of ``tables``, or is not done with one."""
    published, known = published_runs(lake, tables), known_runs(lake, tables)
    yield from (f"run {run_id} was published {times} times" for run_id, times in published.items() if times > 1)
    yield from (f"the journal lacks run {run_id}" for run_id in published.keys() - known.keys())
    for run_id, run in known.items():
        expected = run_id in published
        if (run.status in ("published", "reverted")) != expected:
            yield f"main {'has' if expected else 'lacks'} run {run_id}; the journal says {run.status}"
        elif run.status in OPEN:
            yield f"run {run_id} is still {run.status}"
    yield from _unsettled(lake.home, tables, known)


def _unsettled(home: Path, tables: Collection[str], runs: Collection[str]) -> Iterator[str]:
    with contextlib.closing(sqlite3.connect(home / HOME_NAME / "journal.db")) as journal:
        leases = journal.execute("SELECT run_id FROM leases").fetchall()
        claims = journal.execute("SELECT table_name, run_id, path FROM claims WHERE state = 'claimed'").fetchall()
    yield from (f"the lease of run {run_id} is left" for (run_id,) in leases if run_id in runs)
    yield from (f"the claim of run {run_id} on {path} is left" for table, run_id, path in claims if table in tables)
