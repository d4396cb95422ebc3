"""What the journal needs of a database, and where SQLite and Postgres differ: connections, locks, clocks, errors."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, FromClause, Table, create_engine, event, func, literal, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lakegate.errors import ConfigurationError, InputError, LakegateError, RetryableError
from lakegate.journal.turns import FileTurns

BUSY_TIMEOUT_S = 15.0
_BEGIN = "lakegate_begin"

GivenRow = Sequence[str | int | None]
Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time by this machine's clock."""
    return datetime.now(UTC)


class Database(ABC):
    """A database that holds a journal.

    Args:
        engine: SQLAlchemy's.
        name: How messages call it; without password.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        with self.translated(), self._after_fork().begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes; what it reads does not change before it ends, see :meth:`lock`."""
        options = {_BEGIN: "BEGIN IMMEDIATE"}
        with (
            self.translated(),
            self._after_fork().connect() as connection,
            connection.execution_options(**options).begin(),
        ):
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the database's errors into ours."""
        try:
            yield
        except DBAPIError as error:
            raise self._explain(error) from error
        except (SQLAlchemyError, OSError) as error:
            raise self._away(error) from error

    @abstractmethod
    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Keep other writers that lock one of ``names`` away until the transaction ends."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the time by the clock that leases go by."""

    @abstractmethod
    def given(self, rows: Sequence[GivenRow], *columns: tuple[str, type]) -> FromClause:
        """Return ``rows`` as something to select from, in one parameter however many they are.

        Args:
            rows: Tuples of texts, whole numbers and ``None``.
            columns: Name and type of each of their fields.
        """

    @abstractmethod
    def upsert(self, table: Table) -> Any:
        """Return an ``INSERT`` that knows ``on_conflict_do_update``."""

    @abstractmethod
    def upgrading(self) -> AbstractContextManager[Connection]:
        """Open a transaction for changing the schema, with everybody else who wants to kept away."""

    @abstractmethod
    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for a turn; see :meth:`lakegate.protocols.Journal.turn`."""

    def close(self) -> None:
        """Close connections."""
        self.engine.dispose()

    def _after_fork(self) -> Engine:
        # A connection that two processes use answers neither; the parent's are left to the parent.
        if self._pid != os.getpid():
            self.engine.dispose(close=False)
            self._pid = os.getpid()
        return self.engine

    @abstractmethod
    def _explain(self, error: DBAPIError) -> LakegateError: ...

    def _away(self, error: Exception) -> LakegateError:
        return RetryableError(f"The journal {self.name} cannot be used now: {error}.")


class SqliteDatabase(Database):
    """A file of SQLite in WAL mode: readers never wait, writers queue up.

    Args:
        path: The file.
        clock: Replaces the machine's clock in tests.
        busy_timeout_s: How long to wait for other writers.

    Raises:
        ConfigurationError: When its folder cannot be made.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"The journal's folder {path.parent} cannot be made: {error.strerror}.") from error
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": busy_timeout_s}, max_overflow=-1)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        super().__init__(engine, str(path))
        self._clock = clock
        self._turns = FileTurns(path.parent / "locks")
        self._busy_timeout_s = busy_timeout_s

    def lock(self, connection: Connection, names: Sequence[str]) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def now(self, connection: Connection) -> datetime:  # noqa: ARG002 - Postgres needs it
        """Return the machine's time: all who use the file share it."""
        return self._clock()

    def given(self, rows: Sequence[GivenRow], *columns: tuple[str, type]) -> FromClause:
        """Return ``rows`` by ``json_each``: SQLite limits the number of variables."""
        each = func.json_each(json.dumps(rows)).table_valued("value", name="given_json")
        fields = (func.json_extract(each.c.value, f"$[{at}]").label(name) for at, (name, _) in enumerate(columns))
        return select(*fields).select_from(each).subquery("given")

    def upsert(self, table: Table) -> Any:
        """Return SQLite's ``INSERT``."""
        return sqlite.insert(table)

    @contextmanager
    def upgrading(self) -> Iterator[Connection]:
        """Open a transaction for changing the schema.

        Switching to WAL fails at once, without waiting, while another connection does the same; hence the file lock.
        """
        with self._turns.turn("schema", timeout_s=self._busy_timeout_s), self.translated():
            with self.engine.connect() as connection:
                connection.execution_options(**{_BEGIN: None}).exec_driver_sql("PRAGMA journal_mode=WAL")
            with self.writing() as connection:
                yield connection

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for a turn by a file lock beside the journal."""
        return self._turns.turn(f"turn {name}", timeout_s=timeout_s)

    def _explain(self, error: DBAPIError) -> LakegateError:
        text = str(error.orig)
        if "not a database" in text or "malformed" in text:
            return not_a_journal(self.name, text)
        return RetryableError(f"The journal {self.name} cannot be used now: {text}.", hint="Try again.")


def not_a_journal(name: str, reason: str) -> InputError:
    """Return the error for something else in the journal's place."""
    return InputError(
        f"{name} is not a lakegate journal: {reason}.",
        hint="Move the file away; a new one is made. Published data is not touched.",
    )


def rows_of(database: Database, table: Table, rows: Sequence[GivenRow], *names: str) -> Any:
    """Return an upsert of ``rows``, whose fields are the columns ``names`` of ``table``, to be completed."""
    columns = [(name, table.c[name].type.python_type) for name in names]
    given = database.given(rows, *columns)
    # SQLite takes ON after a FROM for a join's unless there is a WHERE.
    source = select(*(given.c[name] for name in names)).where(literal(value=True))
    return database.upsert(table).from_select(list(names), source)


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is never IMMEDIATE
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and then writes cannot wait for another writer (SQLITE_BUSY_SNAPSHOT).
    statement = connection.get_execution_options().get(_BEGIN, "BEGIN")
    if statement is not None:
        connection.exec_driver_sql(statement)
