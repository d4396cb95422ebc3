"""The journal in SQL, by SQLAlchemy Core: a row a run, the run itself as JSON beside the columns that are searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Index,
    MetaData,
    Select,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    select,
)
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

from lakegate.errors import ConfigurationError, InputError, RetryableError
from lakegate.model.run import Run

_BUSY_TIMEOUT_S = 15.0
_METADATA = MetaData()
_RUNS = Table(
    "runs",
    _METADATA,
    Column("run_id", String(64), primary_key=True),
    Column("table_name", String(512), nullable=False),
    Column("branch", String(255), nullable=False),
    Column("status", String(32), nullable=False),
    Column("started_at", String(40), nullable=False),
    Column("document", Text, nullable=False),
)
Index("runs_started_at", _RUNS.c.started_at)
Index("runs_branch", _RUNS.c.branch, _RUNS.c.started_at)


class SqlJournal:
    """Implements :class:`lakegate.protocols.Journal` on a database.

    Args:
        url: SQLAlchemy URL, such as ``sqlite:////path/journal.db``; see :func:`open_sqlite`.
        name: How messages call the database.

    Raises:
        RetryableError: From any method, when the database is locked or away.
        InputError: From any method, when the file is not a journal.
    """

    def __init__(self, url: str, *, name: str) -> None:
        self._name = name
        self._engine: Engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(self._engine, "connect", _configure_sqlite)
        with self._translated():
            _METADATA.create_all(self._engine)

    def save(self, run: Run) -> None:
        """Insert or replace ``run``."""
        row = {
            "run_id": run.run_id,
            "table_name": run.table,
            "branch": run.branch,
            "status": run.status,
            "started_at": run.started_at.isoformat(),
            "document": run.model_dump_json(),
        }
        with self._transaction() as connection:
            connection.execute(delete(_RUNS).where(_RUNS.c.run_id == run.run_id))
            connection.execute(insert(_RUNS).values(row))

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        return next(iter(self._read(select(_RUNS.c.document).where(_RUNS.c.run_id == run_id))), None)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return the runs whose id starts with ``prefix``, newest first."""
        return self._read(_newest_first().where(_RUNS.c.run_id.startswith(prefix, autoescape=True)).limit(10))

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        return next(iter(self._read(_newest_first().where(_RUNS.c.branch == branch).limit(1))), None)

    def runs(self, *, table: str | None = None, status: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Return runs, newest first."""
        query = _newest_first().limit(limit)
        if table is not None:
            query = query.where(_RUNS.c.table_name == table)
        if status is not None:
            query = query.where(_RUNS.c.status == status)
        return self._read(query)

    def close(self) -> None:
        """Release connections."""
        self._engine.dispose()

    def _read(self, query: Select[tuple[str]]) -> list[Run]:
        with self._transaction() as connection:
            return [Run.model_validate_json(row.document) for row in connection.execute(query)]

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            text = str(error.orig)
            if "not a database" in text or "malformed" in text:
                raise InputError(
                    f"{self._name} is not a lakegate journal: {text}.",
                    hint="Move the file away; a new one is made. Published data is not touched.",
                ) from error
            raise RetryableError(f"The journal {self._name} cannot be used now: {text}.", hint="Try again.") from error
        except SQLAlchemyError as error:
            raise RetryableError(f"The journal {self._name} cannot be used now: {error}.") from error


def open_sqlite(path: Path) -> SqlJournal:
    """Open, or make, the journal file at ``path``.

    Raises:
        ConfigurationError: When its folder cannot be made.
        RetryableError: When the file is locked for longer than 15 seconds.
        InputError: When the file is not a journal.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"The journal's folder {path.parent} cannot be made: {error.strerror}.") from error
    return SqlJournal(f"sqlite:///{path}", name=str(path))


def _newest_first() -> Select[tuple[str]]:
    return select(_RUNS.c.document).order_by(_RUNS.c.started_at.desc(), _RUNS.c.run_id.desc())


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
