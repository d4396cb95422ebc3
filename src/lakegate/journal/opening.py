"""From settings to a journal: which database, and how to get in."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings
from lakegate.credentials.secret import Secret
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
    password = None if settings.password is None else Secret(settings.password, setting="journal.password")
    trust = trusted(settings.tls, settings.ca_file)
    return open_postgres(url, password=password, lease_s=settings.lease_s, tls=trust)


def open_sqlite(path: Path, *, lease_s: float = LEASE_S) -> SqlJournal:
    """Open, or make, the journal file at ``path``.

    Raises:
        ConfigurationError: When its folder cannot be made, or a newer lakegate made the journal.
        RetryableError: When the file is locked for longer than 15 seconds.
        InputError: When the file is not a journal.
    """
    return SqlJournal(SqliteDatabase(path), lease_s=lease_s)


def open_postgres(
    url: URL,
    *,
    password: Secret | None = None,
    lease_s: float = LEASE_S,
    tls: ssl.SSLContext | Literal[False] | None = None,
) -> SqlJournal:
    """Open, or make, the journal in a database of Postgres; raises as :func:`open_journal`.

    Args:
        url: With password, if it never changes.
        password: Instead of one in ``url``; read for each connection.
        lease_s: See :class:`~lakegate.journal.sql.SqlJournal`.
        tls: How to speak TLS; ``None`` to do so where it is offered, ``False`` never to.
    """
    from lakegate.journal.postgres import PostgresDatabase  # noqa: PLC0415 - only where it is used

    return SqlJournal(PostgresDatabase(url.set(drivername=_DRIVER), password=password, tls=tls), lease_s=lease_s)


def trusted(tls: bool | None, ca_file: Path | None) -> ssl.SSLContext | Literal[False] | None:  # noqa: FBT001 - a setting
    """Return how to speak TLS by the settings ``journal.tls`` and ``journal.ca_file``; see :func:`open_postgres`.

    Raises:
        ConfigurationError: When the file cannot be used, or there is one though TLS is not to be spoken.
    """
    if ca_file is None and not tls:
        return tls
    if tls is False:
        raise ConfigurationError(
            "journal.ca_file is set, and journal.tls is false.",
            hint="Set journal.tls = true, or leave journal.ca_file out.",
            setting="journal.tls",
        )
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # of which ssl.SSLError is one
        reason = "holds no certificates" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
        raise ConfigurationError(
            f"The file {ca_file} with the authorities to trust {reason}.",
            hint="Name a file in PEM format in journal.ca_file.",
            setting="journal.ca_file",
            file=str(ca_file),
        ) from None


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
