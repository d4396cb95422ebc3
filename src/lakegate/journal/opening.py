"""From settings to a journal: which database, and how to get in."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings, resolve_secret
from lakegate.errors import ConfigurationError
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.sql import LEASE_S, SqlJournal

_DRIVER = "postgresql+pg8000"


def open_journal(settings: JournalSettings, home: Path) -> SqlJournal:
    """Open, or make, the journal that the settings name; by default ``.lakegate/journal.db`` of the project.

    Args:
        settings: Section ``journal``.
        home: The project's folder; a relative path of SQLite starts there.

    Raises:
        ConfigurationError: When the URL is not one of SQLite or Postgres or holds a password, the password's variable
            is not set, the driver is missing, the database does not let us in, or a newer lakegate made the journal.
        RetryableError: When the database is away, or locked for too long.
        InputError: When a file is not a journal.
    """
    if settings.url is None:
        return open_sqlite(home / HOME_NAME / "journal.db", lease_s=settings.lease_s)
    url = _parse(settings.url)
    if url.get_backend_name() == "sqlite":
        return open_sqlite(home / _sqlite_path(url), lease_s=settings.lease_s)
    password = resolve_secret(settings.password, setting="journal.password")
    return open_postgres(url.set(password=password), lease_s=settings.lease_s)


def open_sqlite(path: Path, *, lease_s: float = LEASE_S) -> SqlJournal:
    """Open, or make, the journal file at ``path``.

    Raises:
        ConfigurationError: When its folder cannot be made, or a newer lakegate made the journal.
        RetryableError: When the file is locked for longer than 15 seconds.
        InputError: When the file is not a journal.
    """
    return SqlJournal(SqliteDatabase(path), lease_s=lease_s)


def open_postgres(url: URL, *, lease_s: float = LEASE_S) -> SqlJournal:
    """Open, or make, the journal in a database of Postgres; raises as :func:`open_journal`."""
    from lakegate.journal.postgres import PostgresDatabase  # noqa: PLC0415 - only where it is used

    return SqlJournal(PostgresDatabase(url.set(drivername=_DRIVER)), lease_s=lease_s)


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Its text stays out of the message: it may hold a password where none is looked for.
        raise _not_usable("journal.url is not a URL of a database.") from None
    if url.password is not None or "password" in url.query:
        raise ConfigurationError(
            "journal.url holds a password.",
            hint='Put it in a variable, and write journal.password = "env:NAME_OF_THE_VARIABLE".',
            setting="journal.url",
        )
    if url.drivername not in ("sqlite", "postgresql", _DRIVER):
        raise _not_usable(f"journal.url: lakegate keeps no journal in '{url.drivername}'.")
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
