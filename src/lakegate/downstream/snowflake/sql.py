"""Snowflake SQL: where each table goes, identifiers and strings quoted, and the statements that lakegate sends."""

from __future__ import annotations

import re
from typing import NamedTuple

from lakegate.config import SnowflakeDownstream
from lakegate.errors import DownstreamError
from lakegate.model.identifiers import TableIdentifier

_LONGEST_NAME = 255
_PLAIN = re.compile(r"[A-Z_][A-Z0-9_$]*")
_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')
_MARK = re.compile(r"lakegate ([^ ]+) \(table ([^ )]+)\)")


class Place(NamedTuple):
    """Where a table is in Snowflake. Upper and lower case count."""

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


class Mark(NamedTuple):
    """What the comment of a lakegate table says."""

    table: str
    uuid: str


def identifier(name: str) -> str:
    """Return a name, quoted: nothing in it is SQL, and its case counts.

    Example:
        >>> print(identifier('odd"name'))
        "odd""name"
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    r"""Return a string constant. Snowflake reads backslashes in it as escapes.

    Example:
        >>> print(text("it's a \\"))
        'it''s a \\'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def as_parameter(name: str) -> str:
    """Return a name for where Snowflake reads an identifier out of a string: plain, or quoted within it.

    Example:
        >>> as_parameter("LAKEGATE"), as_parameter("lake gate")
        ('LAKEGATE', '"lake gate"')
    """
    return name if _PLAIN.fullmatch(name) else identifier(name)


def split_name(shown: str) -> tuple[str, ...]:
    """Return the parts of a name as SHOW prints it.

    Example:
        >>> split_name('LAKE."nyc"."odd""name"')
        ('LAKE', 'nyc', 'odd"name')
    """
    parts = _PART.findall(shown)
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)


def place_of(table: TableIdentifier, settings: SnowflakeDownstream) -> Place:
    """Return where a table of the lake goes in Snowflake.

    Args:
        table: The table. A namespace of several levels is one schema, its levels joined by dots.
        settings: Names the database, and the schemas of some namespaces.

    Raises:
        DownstreamError: The name is longer than Snowflake takes, or is reserved there.
    """
    namespace = ".".join(table.namespace)
    schema = settings.schemas.get(namespace, namespace)
    name = table.name
    if settings.case == "upper":
        # A schema that the settings name is taken as it's written there.
        schema = schema if namespace in settings.schemas else schema.upper()
        name = name.upper()
    if len(schema) > _LONGEST_NAME or schema == "INFORMATION_SCHEMA":
        raise DownstreamError(
            f"Namespace '{namespace}' can't be a schema in Snowflake.",
            hint=f'Name another one in the settings: schemas."{namespace}" = "…".',
            table=str(table),
        )
    return Place(settings.database, schema, name)


def create_volume(name: str, location: str) -> str:
    """Return the statement that makes a read-only external volume with one storage location."""
    return (
        f"CREATE EXTERNAL VOLUME IF NOT EXISTS {identifier(name)}\n"
        f"  STORAGE_LOCATIONS = ((\n{location}\n  ))\n"
        "  ALLOW_WRITES = FALSE\n"
        "  COMMENT = 'Files of a lake, published by lakegate'"
    )


def create_integration(name: str) -> str:
    """Return the statement that makes a catalog integration for metadata files in an object store."""
    return (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {identifier(name)}\n"
        "  CATALOG_SOURCE = OBJECT_STORE\n"
        "  TABLE_FORMAT = ICEBERG\n"
        "  ENABLED = TRUE"
    )


def create_database(name: str) -> str:
    """Return the statement that makes a database."""
    return f"CREATE DATABASE IF NOT EXISTS {identifier(name)}"


def create_schema(place: Place) -> str:
    """Return the statement that makes a table's schema."""
    return f"CREATE SCHEMA IF NOT EXISTS {place.schema_sql}"


def create_table(place: Place, path: str, mark: Mark, settings: SnowflakeDownstream, *, replace: bool = False) -> str:
    """Return the statement that makes a table of the metadata file at ``path``.

    Args:
        path: The metadata file, relative to the external volume.
        mark: Which table of the lake it is; kept as its comment.
        settings: Name the external volume and the catalog integration.
        replace: Replace the table that is there, in one step.
    """
    return (
        f"CREATE {'OR REPLACE ' if replace else ''}ICEBERG TABLE {place.sql}\n"
        f"  EXTERNAL_VOLUME = {text(as_parameter(settings.external_volume))}\n"
        f"  CATALOG = {text(as_parameter(settings.catalog_integration))}\n"
        f"  METADATA_FILE_PATH = {text(path)}\n"
        f"  COMMENT = {text(write_mark(mark))}"
    )


def refresh_table(place: Place, path: str) -> str:
    """Return the statement that moves a table to the metadata file at ``path``, relative to the external volume."""
    return f"ALTER ICEBERG TABLE {place.sql} REFRESH {text(path)}"


def drop_table(place: Place) -> str:
    """Return the statement that drops a table. Its files belong to the lake, and stay."""
    return f"DROP ICEBERG TABLE IF EXISTS {place.sql}"


def grant_usage(kind: str, name: str, role: str) -> str:
    """Return the statement that lets ``role`` see into a database or schema, whose quoted name is ``name``."""
    return f"GRANT USAGE ON {kind} {name} TO ROLE {identifier(role)}"


def grant_select(place: Place, role: str) -> str:
    """Return the statement that lets ``role`` read a table."""
    return f"GRANT SELECT ON ICEBERG TABLE {place.sql} TO ROLE {identifier(role)}"


def write_mark(mark: Mark) -> str:
    """Return the comment that marks a table as lakegate's."""
    return f"lakegate {mark.table} (table {mark.uuid})"


def read_mark(comment: str | None) -> Mark | None:
    """Return what a comment says; ``None`` if it isn't lakegate's.

    Example:
        >>> read_mark("lakegate nyc.trips (table 6c1f)"), read_mark("by hand")
        (Mark(table='nyc.trips', uuid='6c1f'), None)
    """
    found = _MARK.fullmatch(comment or "")
    return Mark(found[1], found[2]) if found else None
