"""What the journal needs from a database, and how SQLite provides it: transactions, locks, clocks, errors."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    create_engine,
    event,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.private import private_file, private_folder

BUSY_TIMEOUT_S = 15.0
_BEGIN = "lakegate_begin"
_BESIDE = ("-wal", "-shm")
"""Files that SQLite creates next to its own, with the same mode."""

_BATCH = 10_000

Row = Sequence[str | int | float | None]
Clock = Callable[[], datetime]
Waiting = Callable[[], object]


def utc_now() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)


class Transaction:
    """One transaction of a journal's database; yielded by :meth:`Database.reading` and :meth:`Database.writing`."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self.connection = connection
        self.execute, self.scalar, self.scalars = connection.execute, connection.scalar, connection.scalars

    def lock(self, *names: str) -> None:
        """Keep other writers that lock one of ``names`` away until the transaction ends."""
        self._database.lock(self.connection, names)

    def now(self) -> datetime:
        """Return the time by the clock that leases go by."""
        return self._database.now(self.connection)

    def insert(
        self,
        table: Table,
        rows: Sequence[Row],
        names: Sequence[str] = (),
        *,
        key: str = "",
        replace: Sequence[str] = (),
        change: str = "",
    ) -> None:
        """Insert rows, 10,000 in one statement with one parameter.

        SQLAlchemy can't cache an ``INSERT`` with ``ON CONFLICT``, and takes milliseconds to compile it: hence the text.

        Args:
            names: Their columns; all of the table's by default.
            key: Columns, separated by commas, that a row may share with one in the table, which is then changed.
            replace: The columns that change; all of ``names`` by default.
            change: SQL for what changes instead; the row that would have been inserted is ``excluded``.
        """
        names = names or table.c.keys()
        field = self._database.field
        fields = ", ".join(field(at, table.c[name].type.python_type) for at, name in enumerate(names))
        # SQLite takes ON after a FROM for a join's unless there is a WHERE.
        insert = f"INSERT INTO {table.name} ({', '.join(names)})"
        sql = f"{insert} SELECT {fields} FROM {self._database.from_json} WHERE true"  # noqa: S608 - our own words
        if key:
            excluded = change or ", ".join(f"{name} = excluded.{name}" for name in replace or names)
            sql = f"{sql} ON CONFLICT ({key}) DO UPDATE SET {excluded}"
        for start in range(0, len(rows), _BATCH):
            self.execute(text(sql), {"given": json.dumps(rows[start : start + _BATCH])})

    def values(self, values: Collection[str]) -> Select[Any]:
        """Return strings for ``IN``, in one parameter however many they are."""
        return self._database.strings(values)


class Database(ABC):
    """A database that holds a journal.

    Args:
        name: How messages call it; without password.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a transaction that only reads."""
        with self.translated(), self._after_fork().begin() as connection:
            yield Transaction(self, connection)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Open a transaction that writes; what it has locked doesn't change before it ends."""
        options = {_BEGIN: "BEGIN IMMEDIATE"}
        with (
            self.translated(),
            self._after_fork().connect() as connection,
            connection.execution_options(**options).begin(),
        ):
            yield Transaction(self, connection)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the database's errors into ours."""
        try:
            yield
        except DBAPIError as error:
            raise self._explain(error) from error
        except (SQLAlchemyError, OSError) as error:
            raise self._away(error) from error
        except UnicodeEncodeError as error:
            raise InputError(f"The journal can't hold {error.object[:80]!a}: it isn't valid Unicode.") from error

    @abstractmethod
    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Keep other writers that lock one of ``names`` away until the transaction ends."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the time by the clock that leases go by."""

    has_own_clock = False
    """Whether :meth:`now` goes by another clock than this machine's."""

    from_json: str
    """SQL for the rows of the JSON array ``:given``, each in a column ``value``."""

    @abstractmethod
    def field(self, at: int, kind: type) -> str:
        """Return the SQL for a field of ``value``."""

    def strings(self, values: Collection[str]) -> Select[Any]:
        """Return the query for these strings."""
        given: BindParameter[str] = bindparam("given", json.dumps([[value] for value in values]), unique=True)
        return select(literal_column(self.field(0, str))).select_from(text(self.from_json).bindparams(given))

    @abstractmethod
    def upgrading(self) -> AbstractContextManager[Transaction]:
        """Open a transaction for changing the schema, with everybody else who wants to kept away."""

    @abstractmethod
    def named_lock(
        self, name: str, *, timeout_s: float, waiting: Waiting | None = None
    ) -> AbstractContextManager[bool]:
        """Wait for a lock; see :meth:`lakegate.journal.journal.Journal.lock`."""

    @abstractmethod
    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds a lock; see :meth:`named_lock`."""

    def close(self) -> None:
        """Close connections."""
        self.engine.dispose()

    def _after_fork(self) -> Engine:
        # Two processes can't share a connection; the parent keeps its own.
        if self._pid != os.getpid():
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self.engine

    @abstractmethod
    def _explain(self, error: DBAPIError) -> LakegateError: ...

    def _away(self, error: Exception) -> LakegateError:
        return RetryableError(f"The journal {self.name} isn't available: {error}.")


class Sqlite(Database):
    """SQLite, whether in a file or in memory."""

    from_json = "json_each(:given)"

    def __init__(self, engine: Engine, name: str, clock: Clock) -> None:
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        super().__init__(engine, name)
        self._clock = clock

    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def now(self, connection: Connection) -> datetime:  # noqa: ARG002 - Postgres needs it
        """Return the machine's time: everyone who uses the database shares it."""
        return self._clock()

    def field(self, at: int, kind: type) -> str:  # noqa: ARG002 - SQLite keeps JSON's types
        """Return the SQL for a field of ``value``."""
        return f"json_extract(value, '$[{at}]')"

    def _explain(self, error: DBAPIError) -> LakegateError:
        reason = str(error.orig)
        if "not a database" in reason or "malformed" in reason:
            return not_a_journal(self.name, reason)
        return RetryableError(f"The journal {self.name} isn't available: {reason}.", hint="Try again.")


class SqliteDatabase(Sqlite):
    """A file of SQLite in WAL mode: readers never wait, writers queue up."""

    def __init__(self, path: Path, *, clock: Clock = utc_now, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        try:
            private_folder(path.parent)
        except OSError as error:
            raise ConfigurationError(f"Can't create the journal's folder {path.parent}: {error.strerror}.") from error
        for name in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in _BESIDE)):
            if name == path or name.exists():
                private_file(name)
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": busy_timeout_s}, max_overflow=-1)
        super().__init__(engine, str(path), clock)
        self._locks = FileLocks(path.parent / "locks")
        self._busy_timeout_s = busy_timeout_s

    @contextmanager
    def upgrading(self) -> Iterator[Transaction]:
        """Open a transaction for changing the schema.

        Switching to WAL fails at once, without waiting, while another connection does the same; hence the file lock.
        """
        with self._locks.lock("schema", timeout_s=self._busy_timeout_s), self.translated():
            with self.engine.connect() as connection:
                connection.execution_options(**{_BEGIN: None}).exec_driver_sql("PRAGMA journal_mode=WAL")
            with self.writing() as tx:
                yield tx

    def named_lock(
        self, name: str, *, timeout_s: float, waiting: Waiting | None = None
    ) -> AbstractContextManager[bool]:
        """Wait for a file lock beside the journal."""
        return self._locks.lock(f"turn {name}", timeout_s=timeout_s, waiting=waiting)

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds a file lock."""
        return self._locks.is_locked(f"turn {name}")


def not_a_journal(name: str, reason: str) -> InputError:
    """Return the error for something else in the journal's place."""
    return InputError(
        f"{name} isn't a lakegate journal: {reason}.",
        hint="Move the file away; lakegate creates a new one. Published data isn't affected.",
    )


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is never IMMEDIATE
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and then writes can't wait for another writer (SQLITE_BUSY_SNAPSHOT).
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if statement is not None:
        connection.exec_driver_sql(statement)


class FileLocks:
    """Locks by ``flock(2)``, whose waiters Linux wakes one by one, in order, and which end with their process.

    Args:
        folder: Where the files go. They stay, empty: deleting one would let two processes lock two files of one name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def lock(self, name: str, *, timeout_s: float, waiting: Waiting | None = None) -> Iterator[bool]:
        """Wait up to ``timeout_s`` seconds for the lock ``name``, and yield whether we got it.

        ``waiting`` is called once before waiting, if another process holds it.
        """
        descriptor = self._acquire(name, timeout_s, waiting)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                # Closing alone leaves the lock with a process that was forked in the meantime.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds the lock ``name``. Those who ask at the same time don't count."""
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"

    def _acquire(self, name: str, timeout_s: float, waiting: Waiting | None) -> int | None:
        try:
            private_folder(self._folder)
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError:
            os.close(descriptor)
            return None
        else:
            return descriptor
        if timeout_s <= 0:
            os.close(descriptor)
            return None
        try:
            if waiting is not None:
                waiting()
        except BaseException:
            os.close(descriptor)
            raise
        return _wait(descriptor, timeout_s)


def _wait(descriptor: int, timeout_s: float) -> int | None:
    # flock has no timeout, and polling costs 16 waiters a good part of a core: a thread waits instead. If it gets the
    # lock too late, it releases it.
    settled = threading.Lock()
    done = threading.Event()
    outcome: list[bool] = []

    def wait() -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            locked = True
        except OSError:
            locked = False
        with settled:
            late = bool(outcome)
            outcome.append(locked)
        if late or not locked:
            os.close(descriptor)
        done.set()

    def settle() -> bool:
        with settled:
            if not outcome:
                outcome.append(False)
            return outcome[0]

    try:
        threading.Thread(target=wait, name="lakegate-lock", daemon=True).start()
        done.wait(max(timeout_s, 0))
    except BaseException:
        if settle():
            os.close(descriptor)
        raise
    return descriptor if settle() else None
