"""The journal's interface to a database (transactions, locks, clock, errors), and its implementation for SQLite."""

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
from weakref import WeakSet

from sqlalchemy import (
    URL,
    BindParameter,
    Column,
    Connection,
    Delete,
    Engine,
    Select,
    Table,
    TextClause,
    bindparam,
    create_engine,
    delete,
    event,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.private_files import private_file, private_folder

BUSY_TIMEOUT_S = 15.0
_BEGIN = "lakegate_begin"
_SYNCHRONOUS = "lakegate_synchronous"
_BESIDE = ("-wal", "-shm")
"""Files that SQLite creates next to its own, with the same mode."""

_BATCH = 10_000
_LONGEST_JSON = 50_000_000

Row = Sequence[str | int | float | None]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)


class JournalTransaction:
    """A transaction on the journal's database, from :meth:`Database.reading` or :meth:`Database.writing`."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self.connection = connection
        self.execute, self.scalar, self.scalars = connection.execute, connection.scalar, connection.scalars

    def lock(self, *names: str) -> None:
        """Hold the locks ``names`` until the transaction ends."""
        self._database.lock(self.connection, names)

    def now(self) -> datetime:
        """Return the time by the clock that leases use."""
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
        """Insert rows, up to 10,000 per statement, in one parameter.

        The statement is text, because SQLAlchemy can't cache an ``INSERT`` with ``ON CONFLICT``, and takes milliseconds
        to compile one.

        Args:
            names: The rows' columns; by default all columns of the table.
            key: Key columns, separated by commas. If the table has a row with the same key, that row is updated.
            replace: The columns to update then; by default all of ``names``.
            change: SQL assignments to use instead; ``excluded`` is the row that wasn't inserted.
        """
        if not rows:
            return
        known = type(self._database), table, tuple(names), key, tuple(replace), change
        if known not in _INSERTS:
            _INSERTS[known] = self._insert(table, names or table.c.keys(), key, replace, change)
        for start in range(0, len(rows), _BATCH):
            for given in _as_json(rows[start : start + _BATCH]):
                self.execute(_INSERTS[known], {"given": given})

    def _insert(self, table: Table, names: Sequence[str], key: str, replace: Sequence[str], change: str) -> TextClause:
        """Return the statement of :meth:`insert`."""
        field = self._database.field
        fields = ", ".join(field(at, table.c[name].type.python_type) for at, name in enumerate(names))
        # Without a WHERE, SQLite parses ON after a FROM as part of a join.
        insert = f"INSERT INTO {table.name} ({', '.join(names)})"
        sql = f"{insert} SELECT {fields} FROM {self._database.from_json} WHERE true"  # noqa: S608 - our own words
        if key:
            excluded = change or ", ".join(f"{name} = excluded.{name}" for name in replace or names)
            sql = f"{sql} ON CONFLICT ({key}) DO UPDATE SET {excluded}"
        return text(sql)

    def delete(self, column: Column[str], values: Collection[str]) -> None:
        """Delete the rows that have one of ``values`` in ``column``."""
        key = type(self._database), column
        if key not in _DELETES:
            given: BindParameter[Any] = bindparam("given")
            _DELETES[key] = delete(column.table).where(column.in_(self._database.listed(given)))
        self.execute(_DELETES[key], {"given": self._database.packed(values)})

    def values(self, values: Collection[str]) -> Select[Any]:
        """Return strings for ``IN``, in one parameter however many there are."""
        return self._database.listed(bindparam("given", self._database.packed(values), unique=True))


_DELETES: dict[tuple[type[Database], Column[str]], Delete] = {}
"""Statements for :meth:`JournalTransaction.delete`: SQLAlchemy takes four times as long for one that's built anew."""
_INSERTS: dict[tuple[type[Database], Table, tuple[str, ...], str, tuple[str, ...], str], TextClause] = {}
"""Likewise for :meth:`JournalTransaction.insert`."""


def _as_json(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows as JSON, in parts that the database can read: Postgres's ``jsonb`` holds no more than 256 MB."""
    given = json.dumps(rows)
    if len(given) <= _LONGEST_JSON or len(rows) == 1:
        yield given
        return
    half = len(rows) // 2
    yield from _as_json(rows[:half])
    yield from _as_json(rows[half:])


class Database(ABC):
    """A database that holds a journal.

    Args:
        name: Its name in messages; without a password.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[JournalTransaction]:
        """Open a transaction that only reads."""
        with self.translated(), self._after_fork().begin() as connection:
            yield JournalTransaction(self, connection)

    @contextmanager
    def writing(self, *, survives_power_loss: bool = False) -> Iterator[JournalTransaction]:
        """Open a transaction that writes; rows that it locked don't change until it ends.

        Args:
            survives_power_loss: Whether it and all before it must be on the disk when it ends, since something outside
                the database will rely on it. Without, SQLite may lose the newest transactions, but never tears one.
                Postgres loses none, unless it's set up to.
        """
        options = {_BEGIN: "BEGIN IMMEDIATE", _SYNCHRONOUS: "FULL" if survives_power_loss else "NORMAL"}
        with (
            self.translated(),
            self._after_fork().connect() as connection,
            connection.execution_options(**options).begin(),
        ):
            yield JournalTransaction(self, connection)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate the database's errors to lakegate's."""
        try:
            yield
        except DBAPIError as error:
            raise self._translate(error) from error
        except (SQLAlchemyError, OSError) as error:
            raise self._unavailable(error) from error
        except UnicodeEncodeError as error:
            raise InputError(f"The journal can't store {error.object[:80]!a}: it isn't valid Unicode.") from error

    @abstractmethod
    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Hold the locks ``names`` until the transaction ends."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the time by the clock that leases use."""

    @abstractmethod
    def require_clock(self, now: datetime) -> None:
        """Check that this machine's clock isn't ahead of the database's, by which it is ``now``.

        Raises:
            ClockError: If it is, by more than Iceberg tolerates: then nobody else could write to a table it publishes.
        """

    from_json: str
    """SQL for the rows of the JSON array ``:given``, each in a column ``value``."""

    @abstractmethod
    def field(self, at: int, kind: type) -> str:
        """Return the SQL for a field of ``value``."""

    def listed(self, given: BindParameter[Any]) -> Select[Any]:
        """Return a query that yields the strings in a parameter; :meth:`packed` makes its value."""
        return select(literal_column(self.field(0, str))).select_from(text(self.from_json).bindparams(given))

    def packed(self, values: Collection[str]) -> str:
        """Return strings as the value of one parameter."""
        return json.dumps([[value] for value in values])

    @abstractmethod
    def creating(self) -> AbstractContextManager[JournalTransaction]:
        """Open a transaction for creating the tables, while no other process can do the same."""

    @abstractmethod
    def named_lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
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
    def _translate(self, error: DBAPIError) -> LakegateError: ...

    def _unavailable(self, error: Exception) -> LakegateError:
        return RetryableError(f"The journal {self.name} isn't available: {error}.")


_DENIED = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")
"""Starts of the names of SQLite's errors about files that it may not open or write."""


class Sqlite(Database):
    """SQLite, in a file or in memory."""

    from_json = "json_each(:given)"

    def __init__(self, engine: Engine, name: str, clock: Clock) -> None:
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        super().__init__(engine, name)
        self._clock = clock

    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def now(self, connection: Connection) -> datetime:  # noqa: ARG002 - Postgres needs it
        """Return the machine's time, which all users of the database share."""
        return self._clock()

    def require_clock(self, now: datetime) -> None:
        """Do nothing: it's the machine's clock."""

    def field(self, at: int, kind: type) -> str:  # noqa: ARG002 - SQLite keeps JSON's types
        """Return the SQL for a field of ``value``."""
        return f"json_extract(value, '$[{at}]')"

    def _translate(self, error: DBAPIError) -> LakegateError:
        reason = str(error.orig)
        if "not a database" in reason or "malformed" in reason:
            return not_a_journal(self.name, reason)
        name = getattr(error.orig, "sqlite_errorname", "")
        if name.startswith(_DENIED):
            return ConfigurationError(
                f"The journal {self.name} can't be opened or written: {reason}.",
                hint="Check the owner and the permissions of this file and of its folder.",
                path=self.name,
            )
        if name == "SQLITE_FULL":
            return RetryableError(
                f"The disk with the journal {self.name} is full.", hint="Free some space on it, then try again."
            )
        return RetryableError(f"The journal {self.name} isn't available: {reason}.", hint="Try again.")


class SqliteDatabase(Sqlite):
    """An SQLite file in WAL mode: readers never wait, writers take turns."""

    def __init__(self, path: Path, *, clock: Clock = utc_now, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        try:
            private_folder(path.parent)
        except OSError as error:
            raise ConfigurationError(f"Can't create the journal's folder {path.parent}: {error.strerror}.") from error
        for name in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in _BESIDE)):
            if name == path or name.exists():
                private_file(name)
        url = URL.create("sqlite", database=str(path))  # as text, a path with "?" would end there
        engine = create_engine(url, connect_args={"timeout": busy_timeout_s}, max_overflow=-1)
        super().__init__(engine, str(path), clock)
        self._path = path
        event.listen(engine, "connect", self._note_file)
        event.listen(engine, "checkout", self._require_same_file)
        self._locks = FileLocks(path.parent / "locks")
        self._busy_timeout_s = busy_timeout_s
        _FILES.add(self)

    @contextmanager
    def creating(self) -> Iterator[JournalTransaction]:
        """Open a transaction for creating the tables.

        The file lock is needed because switching to WAL fails at once if another connection is doing the same.
        """
        with self._locks.lock("schema", timeout_s=self._busy_timeout_s), self.translated():
            with self.engine.connect() as connection:
                connection.execution_options(**{_BEGIN: None}).exec_driver_sql("PRAGMA journal_mode=WAL")
            with self.writing() as tx:
                yield tx

    def named_lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for a file lock beside the journal."""
        return self._locks.lock(f"turn {name}", timeout_s=timeout_s)

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds a file lock."""
        return self._locks.is_locked(f"turn {name}")

    def _note_file(self, _connection: object, record: ConnectionPoolEntry) -> None:
        record.info["file"] = _identity(self._path)

    def _require_same_file(self, _connection: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        # If somebody put another journal there, such as a backup, SQLite would go on in the deleted one. The pool
        # replaces the connection.
        now = _identity(self._path)
        if now is not None and now != record.info["file"]:
            raise DisconnectionError


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_FILES: WeakSet[SqliteDatabase] = WeakSet()


def _close_before_fork() -> None:
    # With an inherited connection, even an idle one, SQLite in the fork believes that it has this process's locks. It
    # could lose commits once this process closes the file ("How To Corrupt An SQLite Database File", 2.6).
    for database in tuple(_FILES):
        database.engine.dispose()


os.register_at_fork(before=_close_before_fork)


def not_a_journal(name: str, reason: str) -> InputError:
    """Return the error for a database that isn't a journal."""
    return InputError(
        f"{name} isn't a lakegate journal: {reason}.",
        hint="Move the file away; lakegate creates a new one. Published data isn't affected.",
    )


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is never IMMEDIATE
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads before it writes can't wait for another writer (SQLITE_BUSY_SNAPSHOT).
    options = connection.get_execution_options()
    statement = options.get(_BEGIN, "BEGIN")
    if _SYNCHRONOUS in options:
        connection.exec_driver_sql(f"PRAGMA synchronous={options[_SYNCHRONOUS]}")
    if statement is not None:
        connection.exec_driver_sql(statement)


class FileLocks:
    """File locks (``flock(2)``): Linux wakes their waiters one by one, in order, and releases them with their process.

    Args:
        folder: Folder of the empty lock files. They're never deleted: two processes could then lock two files of the
            same name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def lock(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        """Wait up to ``timeout_s`` seconds for the lock ``name``, and yield whether we got it."""
        descriptor = self._acquire(name, timeout_s)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                # Closing alone isn't enough: a process forked in the meantime would keep the lock.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds the lock ``name``. Concurrent calls of this method don't count."""
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

    def _acquire(self, name: str, timeout_s: float) -> int | None:
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
        return _wait(descriptor, timeout_s)


def _wait(descriptor: int, timeout_s: float) -> int | None:
    # flock has no timeout, and polling by 16 waiters takes a good part of a core, so a thread waits instead. If it gets
    # the lock too late, it releases it.
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
