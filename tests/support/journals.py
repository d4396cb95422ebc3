"""Journals for tests: the same shelf of runs opened as several processes would, in memory, SQLite or Postgres."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from lakegate.config import JournalSettings
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.factory import open_journal
from lakegate.journal.holder import Holder
from lakegate.journal.journal import Journal
from lakegate.journal.postgres import PostgresDatabase
from lakegate.journal.schema import METADATA
from lakegate.model.batch import Claim, SourceFile
from lakegate.model.run import Lease, Run
from support.memory_journal import MemoryDatabase
from support.postgres import PostgresServer

START = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD_VARIABLE = "LAKEGATE_TEST_PASSWORD"
_WORKER = Path(__file__).with_name("journal_worker.py")


def run(number: int, **values: Any) -> Run:
    defaults = {"tables": ("nyc.trips",), "branch": f"b{number}", "status": "planned"}
    started_at = START + timedelta(seconds=number)
    return Run(**{"run_id": f"r{number:02}", "started_at": started_at, **defaults, **values})


def file(name: str, version: str = "1") -> SourceFile:
    return SourceFile(uri=f"file:///data/{name}", size_bytes=10, version=version, rows=3)


@dataclass
class FakeHolder:
    """A process by name. ``others`` tells which ones live; of those it doesn't know, nothing can be told."""

    name: str
    others: Mapping[str, bool] = field(default_factory=dict)

    def identity(self) -> str:
        return self.name

    def is_alive(self, identity: str) -> bool | None:
        return True if identity == self.name else self.others.get(identity)


class Actor:
    """One who works with a journal, and remembers the tokens of the leases it took."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.tokens: dict[str, str] = {}

    def begin(self, run: Run, *, anew: bool = False) -> None:
        self.tokens[run.run_id] = self.journal.begin(run, anew=anew)

    def resume(self, run_id: str, *, ended: bool = False) -> Run | None:
        return self._keep(self.journal.resume(run_id, ended=ended))

    def take_over(self, run_id: str) -> bool:
        return self._keep(self.journal.take_over(run_id)) is not None

    def renew(self, run_id: str) -> bool:
        return self.journal.renew(run_id, self.tokens.get(run_id, ""))

    def save(self, run: Run) -> Run:
        return self.journal.save(run)

    def suspend(self, run: Run, *, for_s: float) -> None:
        self.journal.suspend(run, self.tokens.get(run.run_id, ""), for_s=for_s)

    def abandon(self, run_id: str) -> None:
        self.journal.abandon(run_id, self.tokens.get(run_id, ""))

    def end(self, run: Run) -> Run:
        ended = self.journal.end(run, self._token(run.run_id))
        del self.tokens[run.run_id]
        return ended

    def release(self, run_id: str) -> None:
        self.journal.release(run_id, self._token(run_id))

    def claim(self, run_id: str, table: str, files: Sequence[SourceFile], **choices: Any) -> Claim:
        return self.journal.claim(run_id, table, files, token=self._token(run_id), **choices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)

    def _token(self, run_id: str) -> str:
        if run_id not in self.tokens and self.resume(run_id, ended=True) is None:
            self.begin(Run(run_id=run_id, tables=(), branch="", status="planned", started_at=START))
        return self.tokens[run_id]

    def _keep(self, lease: Lease | None) -> Run | None:
        if lease is not None and lease.token is not None:
            self.tokens[lease.run.run_id] = lease.token
        return None if lease is None else lease.run


class Shelf:
    """One store, and all who work with a journal on it in a test."""

    def __init__(self, opener: Callable[[], Database]) -> None:
        self._opener = opener
        self.databases: list[Database] = []
        self._opened: list[Actor] = []

    def open(self, holder: Holder | None = None, *, lease_s: float = 3600.0) -> Actor:
        self.databases.append(self._opener())
        made = Actor(Journal(self.databases[-1], holder=holder, lease_s=lease_s))
        self._opened.append(made)
        return made

    def close(self) -> None:
        for one in self._opened:
            one.close()


def memory_shelf() -> Shelf:
    database = MemoryDatabase()
    return Shelf(lambda: database)


def sqlite_shelf(path: Path) -> Shelf:
    return Shelf(lambda: SqliteDatabase(path))


def postgres_shelf(server: PostgresServer) -> Shelf:
    empty(server)
    url = make_url(server.url).set(password=server.password)
    # Where TLS may be, pg8000 loads the machine's authorities for each connection: longer than most tests take.
    return Shelf(lambda: PostgresDatabase(url, tls=False))


def empty(server: PostgresServer) -> None:
    """Empty the tables, if there are any: quicker than making them anew."""
    if server.run("SELECT 1 FROM pg_tables WHERE schemaname = 'lakegate' AND tablename = 'steps'"):
        server.run("; ".join(f"DELETE FROM lakegate.{table.name}" for table in reversed(METADATA.sorted_tables)))


@dataclass(frozen=True)
class Place:
    """Where another process finds a journal of SQL."""

    settings: JournalSettings
    home: Path
    password: str = ""

    def open(self) -> Actor:
        os.environ[PASSWORD_VARIABLE] = self.password
        return Actor(open_journal(self.settings, self.home))

    @contextmanager
    def workers(self, number: int, *words: str) -> Iterator[Sequence[Worker]]:
        """Start so many processes of ``journal_worker.py``; ends them however the test ends."""
        pairs = [socket.socketpair() for _ in range(number)]
        words = (self.settings.model_dump_json(), str(self.home), *words)
        order = json.dumps(({**os.environ, PASSWORD_VARIABLE: self.password}, words)).encode()
        nursery = _nursery()
        socket.send_fds(nursery, [len(order).to_bytes(4, "big")], [theirs.fileno() for _, theirs in pairs])
        nursery.sendall(order)
        started = [Worker(ours) for ours, _ in pairs]
        try:
            for _, theirs in pairs:
                theirs.close()
            for worker in started:
                assert worker.answer() == "ready"
            yield started
        finally:
            for worker in started:
                worker.kill()


@functools.cache
def _nursery() -> socket.socket:
    """Start the process that forks all workers, once; it ends when its socket is closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, str(_WORKER), str(theirs.fileno())], pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Worker:
    """Another process with the journal open, at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rw", encoding="utf-8")
        self._pid: int | None = None
        connection.close()  # the stream keeps it open

    def go(self) -> None:
        self._stream.write("go\n")
        self._stream.flush()

    def answer(self) -> Any:
        if self._pid is None:
            self._pid = self._line()
        return self._line()

    def kill(self) -> None:
        """End the process, and return when it is gone: then its end of the socket is closed."""
        if self._stream.closed:
            return
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        with self._stream as stream:
            stream.read()

    def _line(self) -> Any:
        line = self._stream.readline()
        assert line, "the worker ended without an answer"
        return json.loads(line)
