"""A journal's database in memory, for tests."""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from lakegate.journal.database import Clock, JournalTransaction, Sqlite, utc_now
from lakegate.journal.schema import create_schema


class MemoryDatabase(Sqlite):
    """SQLite in memory, for as long as the object lives.

    Journals that share one are to each other as those of several processes. They and their threads share one
    connection, one transaction at a time.

    Args:
        clock: Replaces the machine's clock.
        like: What it holds to begin with; by default nothing.
    """

    def __init__(self, *, clock: Clock = utc_now, like: MemoryDatabase | None = None) -> None:
        template = _template()
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        with (template if like is None else like.engine).connect() as source:
            original: Any = source.connection.driver_connection
            original.backup(connection)
        # The template's dialect makes its compiled statements fit: compiling them anew for each test takes longer than
        # running them.

        def connect() -> Any:
            return connection

        pool = StaticPool(connect, dialect=template.dialect)
        options = {"compiled_cache": _compiled()}
        super().__init__(Engine(pool, template.dialect, template.url, execution_options=options), "in memory", clock)
        self._lock = threading.RLock()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    @contextmanager
    def reading(self) -> Iterator[JournalTransaction]:
        """Open a transaction that only reads."""
        with self._lock, super().reading() as tx:
            yield tx

    @contextmanager
    def writing(self, *, survives_power_loss: bool = False) -> Iterator[JournalTransaction]:
        """Open a transaction that writes."""
        with self._lock, super().writing(survives_power_loss=survives_power_loss) as tx:
            yield tx

    def creating(self) -> AbstractContextManager[JournalTransaction]:
        """Open a transaction for creating the tables."""
        return self.writing()

    @contextmanager
    def named_lock(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        """Wait for a lock among the threads of this process."""
        with self._lock:
            lock = self._locks[name]
        acquired = lock.acquire(blocking=False)
        if not acquired:
            acquired = lock.acquire(timeout=max(timeout_s, 0))
        try:
            yield acquired
        finally:
            if acquired:
                lock.release()

    def is_locked(self, name: str) -> bool:
        """Return whether a thread holds a lock."""
        with self._lock:
            return self._locks[name].locked()

    def close(self) -> None:
        """Keep the connection, and with it the data: other journals may share it."""


@cache
def _template() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with engine.begin() as connection:
        create_schema(connection)
    return engine


@cache
def _compiled() -> dict[object, object]:
    return {}
