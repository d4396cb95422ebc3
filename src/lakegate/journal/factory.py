"""Open the journal that the settings name: an SQLite file, or a Postgres database."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings
from lakegate.credentials.secret import Secret, trusting
from lakegate.errors import ConfigurationError
from lakegate.journal.database import BUSY_TIMEOUT_S, SqliteDatabase
from lakegate.journal.journal import LEASE_S, Journal

_DRIVER = "postgresql+pg8000"


def open_journal(settings: JournalSettings, home: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Journal:
    """Open or create the journal that the settings name; by default the project's ``.lakegate/journal.db``.

    Args:
        settings: Section ``journal``.
        home: The project's folder, to which an SQLite path is relative.
        busy_timeout_s: Seconds to wait for a locked database.

    Raises:
        ConfigurationError: If the URL isn't one of SQLite or Postgres or contains a password, the password's variable
            isn't set, the driver is missing, the database denies access, or the journal has another format.
        RetryableError: If the database is unreachable, or locked for too long.
        InputError: If a file isn't a journal.
    """
    if settings.url is None:
        return open_sqlite(home / HOME_NAME / "journal.db", lease_s=settings.lease_s, busy_timeout_s=busy_timeout_s)
    url = _parse(settings.url)
    if url.get_backend_name() == "sqlite":
        return open_sqlite(home / _sqlite_path(url), lease_s=settings.lease_s, busy_timeout_s=busy_timeout_s)
    password = None if settings.password is None else Secret(settings.password, setting="journal.password")
    return open_postgres(
        url,
        password=password,
        lease_s=settings.lease_s,
        tls=_tls_context(settings),
        max_connections=settings.max_connections,
        busy_timeout_s=busy_timeout_s,
    )


def open_sqlite(path: Path, *, lease_s: float = LEASE_S, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Journal:
    """Open or create the journal file at ``path``; raises as :func:`open_journal`."""
    return Journal(SqliteDatabase(path, busy_timeout_s=busy_timeout_s), lease_s=lease_s)


def open_postgres(
    url: URL,
    *,
    password: Secret | None = None,
    lease_s: float = LEASE_S,
    tls: ssl.SSLContext | Literal[False] | None = None,
    max_connections: int | None = None,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
) -> Journal:
    """Open or create the journal in a Postgres database; raises as :func:`open_journal`.

    Args:
        url: The database's URL, with the password if it never changes.
        password: Replaces the one in ``url``; read for each connection.
        lease_s: See :class:`~lakegate.journal.journal.Journal`.
        tls: How to use TLS; ``None`` uses it if the server offers it, ``False`` never does.
        max_connections: Largest number of connections; by default 30.
        busy_timeout_s: Seconds to wait for a locked database.
    """
    from lakegate.journal.postgres import MAX_CONNECTIONS, PostgresDatabase

    most = max_connections or MAX_CONNECTIONS
    database = PostgresDatabase(
        url.set(drivername=_DRIVER), password=password, tls=tls, max_connections=most, busy_timeout_s=busy_timeout_s
    )
    return Journal(database, lease_s=lease_s)


def _tls_context(settings: JournalSettings) -> ssl.SSLContext | Literal[False] | None:
    """Return how to use TLS by the settings ``journal.tls`` and ``journal.ca_file``; see :func:`open_postgres`."""
    if settings.ca_file is None and not settings.tls:
        return settings.tls
    if settings.tls is False:
        raise ConfigurationError(
            "journal.ca_file is set, but journal.tls is false.",
            hint="Set journal.tls = true, or leave journal.ca_file out.",
            setting="journal.tls",
        )
    return trusting(settings.ca_file, setting="journal.ca_file")


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Leave its text out of the message: it may contain a password in an unexpected place.
        raise _not_usable("journal.url isn't the URL of a database.") from None
    if url.password is not None or "password" in url.query:
        raise ConfigurationError(
            "journal.url contains a password.",
            hint='Put it in a variable, and write journal.password = "env:NAME_OF_THE_VARIABLE".',
            setting="journal.url",
        )
    return url


def _sqlite_path(url: URL) -> str:
    if url.database in (None, "", ":memory:") or url.query:
        raise _not_usable("journal.url names no file.")
    return str(url.database)


def _not_usable(message: str) -> ConfigurationError:
    return ConfigurationError(
        message,
        hint="Write it as postgresql://user@host:5432/database or sqlite:///journal.db.",
        setting="journal.url",
    )
