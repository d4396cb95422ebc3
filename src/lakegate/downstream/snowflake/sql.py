"""Snowflake SQL: the names of tables, quoting, and the statements that lakegate runs."""

from __future__ import annotations

import re
from typing import NamedTuple

from lakegate.config import SnowflakeDownstream
from lakegate.errors import DownstreamError
from lakegate.model.identifiers import TableIdentifier

_MAX_NAME_LENGTH = 255
_UNQUOTED = re.compile(r"[A-Z_][A-Z0-9_$]*")
_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')
_COMMENT = re.compile(r"lakegate ([^ ]+) \(table ([^ )]+)\)")


class QualifiedName(NamedTuple):
    """A table's name in Snowflake, case-sensitive."""

    database: str
    schema: str
    name: str

    @property
    def sql(self) -> str:
        """The quoted name."""
        return ".".join(identifier(part) for part in self)

    @property
    def schema_sql(self) -> str:
        """The quoted name of its schema."""
        return f"{identifier(self.database)}.{identifier(self.schema)}"


class TableComment(NamedTuple):
    """The comment that marks a table in Snowflake as lakegate's: the lake's table and its UUID."""

    table: str
    uuid: str


def identifier(name: str) -> str:
    """Quote an identifier, so that its case counts and nothing in it is read as SQL.

    Example:
        >>> print(identifier('odd"name'))
        "odd""name"
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    r"""Quote a string. Snowflake reads backslashes in strings as escapes.

    Example:
        >>> print(text("it's a \\"))
        'it''s a \\'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def as_parameter(name: str) -> str:
    """Return a name for parameters in which Snowflake parses an identifier from a string; quoted if needed.

    Example:
        >>> as_parameter("LAKEGATE"), as_parameter("lake gate")
        ('LAKEGATE', '"lake gate"')
    """
    return name if _UNQUOTED.fullmatch(name) else identifier(name)


def split_name(shown: str) -> tuple[str, ...]:
    """Split a qualified name as SHOW prints it.

    Example:
        >>> split_name('LAKE."nyc"."odd""name"')
        ('LAKE', 'nyc', 'odd"name')
    """
    parts = _PART.findall(shown)
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)


def qualified_name(table: TableIdentifier, settings: SnowflakeDownstream) -> QualifiedName:
    """Return a table's name in Snowflake.

    Args:
        table: The table. A nested namespace becomes one schema, its levels joined by dots.

    Raises:
        DownstreamError: The schema's name is too long for Snowflake, or reserved.
    """
    namespace = ".".join(table.namespace)
    schema = settings.schemas.get(namespace, namespace)
    name = table.name
    if settings.case == "upper":
        # Schemas named in the settings are used as written.
        schema = schema if namespace in settings.schemas else schema.upper()
        name = name.upper()
    if len(schema) > _MAX_NAME_LENGTH or schema == "INFORMATION_SCHEMA":
        raise DownstreamError(
            f"Namespace '{namespace}' can't be a schema in Snowflake.",
            hint=f'Give it another schema in the settings: schemas."{namespace}" = "…".',
            table=str(table),
        )
    return QualifiedName(settings.database, schema, name)


def create_volume(name: str, location: str) -> str:
    """Return the statement that creates a read-only external volume with one storage location."""
    return (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {identifier(name)}\n"
        f"  STORAGE_LOCATIONS = ((\n{location}\n  ))\n"
        "  ALLOW_WRITES = FALSE\n"
        "  COMMENT = 'Files of a lake, published by lakegate'"
    )


def create_integration(name: str) -> str:
    """Return the statement that creates a catalog integration for metadata files in an object store."""
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(name)}\n"
        "  CATALOG_SOURCE = OBJECT_STORE\n"
        "  TABLE_FORMAT = ICEBERG\n"
        "  ENABLED = TRUE"
    )


def create_database(name: str) -> str:
    """Return the statement that creates a database."""
    return f"CREATE DATABASE IF NOT EXISTS {identifier(name)}"


def create_schema(place: QualifiedName) -> str:
    """Return the statement that creates a table's schema."""
    return f"CREATE SCHEMA IF NOT EXISTS {place.schema_sql}"


def create_table(
    place: QualifiedName, path: str, comment: TableComment, settings: SnowflakeDownstream, *, replace: bool = False
) -> str:
    """Return the statement that creates a table from the metadata file at ``path``.

    Args:
        path: The metadata file, relative to the external volume.
    """
    return (
        f"CREATE {'OR REPLACE ' if replace else ''}ICEBERG TABLE {place.sql}\n"
        f"  EXTERNAL_VOLUME = {text(as_parameter(settings.external_volume))}\n"
        f"  CATALOG = {text(as_parameter(settings.catalog_integration))}\n"
        f"  METADATA_FILE_PATH = {text(path)}\n"
        f"  COMMENT = {text(write_comment(comment))}"
    )


def refresh_table(place: QualifiedName, path: str) -> str:
    """Return the statement that moves a table to the metadata file at ``path``, relative to the external volume."""
    return f"ALTER ICEBERG TABLE {place.sql} REFRESH {text(path)}"


def drop_table(place: QualifiedName) -> str:
    """Return the statement that drops a table. Its files belong to the lake and stay."""
    return f"DROP ICEBERG TABLE IF EXISTS {place.sql}"


def grant_usage(kind: str, name: str, role: str) -> str:
    """Return the statement that lets ``role`` use a database or schema. ``name`` is already quoted."""
    return f"GRANT USAGE ON {kind} {name} TO ROLE {identifier(role)}"


def grant_select(place: QualifiedName, role: str) -> str:
    """Return the statement that lets ``role`` read a table."""
    return f"GRANT SELECT ON ICEBERG TABLE {place.sql} TO ROLE {identifier(role)}"


def write_comment(comment: TableComment) -> str:
    """Return the text of a comment that marks a table as lakegate's."""
    return f"lakegate {comment.table} (table {comment.uuid})"


def read_comment(comment: str | None) -> TableComment | None:
    """Parse a comment; ``None`` if it isn't lakegate's.

    Example:
        >>> read_comment("lakegate nyc.trips (table 6c1f)"), read_comment("by hand")
        (TableComment(table='nyc.trips', uuid='6c1f'), None)
    """
    found = _COMMENT.fullmatch(comment or "")
    return TableComment(found[1], found[2]) if found else None
