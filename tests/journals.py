"""Journals for tests: the same shelf of runs opened as several processes would, in memory, SQLite or Postgres."""

from __future__ import annotations

import json
import os
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
    return Shelf(lambda holder, lease_s: SqlJournal(PostgresDatabase(url), holder=holder, lease_s=lease_s))


def empty(server: PostgresServer) -> None:
    """Empty the tables, if there are any: quicker than making them anew."""
    if server.run("SELECT 1 FROM pg_namespace WHERE nspname = 'lakegate'"):
        server.run(f"TRUNCATE {', '.join(f'lakegate.{table.name}' for table in METADATA.sorted_tables)}")


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
        """Start ``journal_worker.py`` so many times; ends them however the test ends."""
        started: list[Worker] = []
        try:
            started.extend(Worker(self, str(index), *words) for index in range(number))
            for worker in started:
                assert worker.answer() == "ready"
            yield started
        finally:
            for worker in started:
                worker.kill()


class Worker:
    """Another process with the journal open."""

    def __init__(self, place: Place, *words: str) -> None:
        command = [sys.executable, str(_WORKER), place.settings.model_dump_json(), str(place.home), *words]
        environment = {**os.environ, PASSWORD_VARIABLE: place.password}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the worker ended without an answer"
        return json.loads(line)

    def kill(self) -> None:
        with self._process as process:
            process.kill()
