"""The version of a journal's tables: found by one cheap query, brought up to date by Alembic when it is old."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table
from sqlalchemy.exc import DBAPIError

from lakegate.errors import ConfigurationError, RetryableError
from lakegate.journal.database import Database, not_a_journal

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
HEAD = REVISIONS[-1]
VERSIONS = table("alembic_version", column("version_num"))
_MIGRATIONS = Path(__file__).with_name("migrations")


def ensure_schema(database: Database) -> None:
    """Create or upgrade the journal's tables, unless they are as this version of lakegate needs them.

    Raises:
        ConfigurationError: When a newer lakegate made them.
        InputError: When the database is SQLite's, but holds something else.
        RetryableError: When the database is away, or locked for too long.
    """
    if _version_at_a_glance(database) == HEAD:
        return
    with database.upgrading() as connection:
        found = _version(database, connection)
        if found != HEAD:
            _check_known(database, found)
            _upgrade(connection, found)


def _version_at_a_glance(database: Database) -> str | None:
    with database.translated():
        try:
            with database.engine.connect() as connection:
                version: str | None = connection.scalar(select(VERSIONS.c.version_num))
                return version
        except DBAPIError as error:
            # No such table; anything worse comes up again, and is explained, when it is looked at closely.
            if error.connection_invalidated:
                raise
            return None


def _version(database: Database, connection: Connection) -> str | None:
    """Return the schema's version; ``None`` for a database without anything."""
    found = inspect(connection)
    names = set(found.get_table_names())
    if VERSIONS.name in names:
        version: str | None = connection.scalar(select(VERSIONS.c.version_num))
        return version
    if not names:
        return None
    # The first release kept no version.
    columns = {one["name"] for one in found.get_columns("runs")} if "runs" in names else set()
    if {"run_id", "table_name", "document"} <= columns:
        return REVISIONS[0]
    raise not_a_journal(database.name, f"it holds other tables ({', '.join(sorted(names)[:3])})")


def _check_known(database: Database, version: str | None) -> None:
    if version is not None and version not in REVISIONS:
        raise ConfigurationError(
            f"The journal {database.name} is of version {version}; this lakegate knows versions up to {HEAD}.",
            hint="A newer lakegate made it. Upgrade this one: pip install --upgrade lakegate",
            version=version,
            known=HEAD,
        )


def _upgrade(connection: Connection, found: str | None) -> None:
    from alembic import command  # noqa: PLC0415 - slow to import, and not needed while the schema is up to date
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        if found is not None:
            command.stamp(config, found)
        command.upgrade(config, HEAD)
    except CommandError as error:
        raise RetryableError(f"The journal's tables cannot be upgraded: {error}.") from error
