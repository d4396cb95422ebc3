"""Journals for tests: the same shelf of runs opened as several processes would, in memory, SQLite or Postgres."""

from __future__ import annotations

import contextlib
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
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.holder import Holder
from lakegate.journal.memory import MemoryJournal, MemoryStore
from lakegate.journal.opening import open_journal
from lakegate.journal.postgres import PostgresDatabase
from lakegate.journal.sql import SqlJournal
from lakegate.journal.tables import METADATA
from lakegate.model.batch import SourceFile
from lakegate.model.run import Run
from lakegate.protocols import Journal
from postgres import PostgresServer

START = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD_VARIABLE = "LAKEGATE_TEST_PASSWORD"  # noqa: S105 - the variable's name
_WORKER = Path(__file__).with_name("journal_worker.py")


def run(number: int, **values: Any) -> Run:
    defaults = {"tables": ("nyc.trips",), "branch": f"b{number}", "status": "running"}
    started_at = START + timedelta(seconds=number)
    return Run(**{"run_id": f"r{number:02}", "started_at": started_at, **defaults, **values})


def file(name: str, version: str = "1") -> SourceFile:
    return SourceFile(uri=f"file:///data/{name}", size_bytes=10, version=version, rows=3)


@dataclass
class FakeHolder:
    """A process by name. ``others`` tells which ones live; of those it does not know, nothing can be told."""

    name: str
    others: Mapping[str, bool] = field(default_factory=dict)

    def identity(self) -> str:
        return self.name

    def is_alive(self, identity: str) -> bool | None:
        return True if identity == self.name else self.others.get(identity)


class Shelf:
    """One store, and all journals that a test opens on it."""

    def __init__(self, opener: Callable[[Holder | None, float], Journal]) -> None:
        self._opener = opener
        self._opened: list[Journal] = []

    def open(self, holder: Holder | None = None, *, lease_s: float = 3600.0) -> Journal:
        made = self._opener(holder, lease_s)
        self._opened.append(made)
        return made

    def close(self) -> None:
        for one in self._opened:
            one.close()


def memory_shelf() -> Shelf:
    store = MemoryStore()
    return Shelf(lambda holder, lease_s: MemoryJournal(store, holder=holder, lease_s=lease_s))


def sqlite_shelf(path: Path) -> Shelf:
    return Shelf(lambda holder, lease_s: SqlJournal(SqliteDatabase(path), holder=holder, lease_s=lease_s))


def postgres_shelf(server: PostgresServer) -> Shelf:
    empty(server)
    url = make_url(server.url).set(password=server.password)

    def opener(holder: Holder | None, lease_s: float) -> Journal:
        # Where TLS may be, pg8000 loads the machine's authorities for each connection: longer than most tests take.
        return SqlJournal(PostgresDatabase(url, tls=False), holder=holder, lease_s=lease_s)

    return Shelf(opener)


def empty(server: PostgresServer) -> None:
    """Empty the tables, if there are any: quicker than making them anew."""
    if server.run("SELECT 1 FROM pg_namespace WHERE nspname = 'lakegate'"):
        server.run("; ".join(f"DELETE FROM lakegate.{table.name}" for table in reversed(METADATA.sorted_tables)))


@dataclass(frozen=True)
class Place:
    """Where another process finds a journal of SQL."""

    settings: JournalSettings
    home: Path
    password: str = ""

    def open(self) -> Journal:
        os.environ[PASSWORD_VARIABLE] = self.password
        return open_journal(self.settings, self.home)

    @contextmanager
    def workers(self, number: int, *words: str) -> Iterator[Sequence[Worker]]:
        """Start so many processes of ``journal_worker.py``; ends them however the test ends."""
        pairs = [socket.socketpair() for _ in range(number)]
        ends = [theirs.fileno() for _, theirs in pairs]
        command = [sys.executable, str(_WORKER), json.dumps(ends), self.settings.model_dump_json(), str(self.home)]
        environment = {**os.environ, PASSWORD_VARIABLE: self.password}
        with subprocess.Popen([*command, *words], env=environment, pass_fds=ends):
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
