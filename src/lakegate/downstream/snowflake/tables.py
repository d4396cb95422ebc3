"""One table at a time: create it, move it to a metadata file, or drop it, and never touch what others made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from lakegate.config import SnowflakeDownstream
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.session import ABSENT, EXISTS, Session, SnowflakeError
from lakegate.downstream.snowflake.sql import Mark, Place
from lakegate.downstream.snowflake.storage import VolumeLocation
from lakegate.errors import DownstreamError
from lakegate.model.identifiers import TableIdentifier


class LakeTable(NamedTuple):
    """A table as it is in the lake.

    Attributes:
        uuid: The table over its whole life: another one of the same name has another.
    """

    table: TableIdentifier
    metadata_location: str
    uuid: str


class Found(NamedTuple):
    """An Iceberg table that Snowflake has.

    Attributes:
        mark: What its comment says; ``None`` if lakegate didn't make it, or made it of another volume's files.
    """

    place: Place
    mark: Mark | None


def put(
    session: Session, location: VolumeLocation, table: LakeTable, *, recreate: bool = False
) -> Literal["created", "refreshed", "replaced"]:
    """Let a table in Snowflake show what the lake's table holds.

    Args:
        recreate: Replace Snowflake's table instead of refreshing it.

    Raises:
        DownstreamError: A table or view of that name isn't lakegate's, or Snowflake refuses.
        DownstreamUnavailableError: Snowflake can't serve now.
    """
    settings = session.settings
    place = sql.place_of(table.table, settings)
    path = location.relative(table.metadata_location)
    mark = Mark(str(table.table), table.uuid)
    found = find(session, place)
    if found is None:
        if _create(session, place, sql.create_table(place, path, mark, settings)):
            return "created"
        found = find(session, place) or Found(place, None)  # another process was faster, or it's no Iceberg table
    require_own(found, table.table, session.name)
    if found.mark == mark and not recreate:
        session.run(sql.refresh_table(place, path))
        return "refreshed"
    session.run(sql.create_table(place, path, mark, settings, replace=True))
    _grant(session, place)
    return "replaced"


def drop(session: Session, table: TableIdentifier) -> Literal["dropped", "unchanged"]:
    """Drop a table that the lake has dropped, if lakegate made it."""
    place = sql.place_of(table, session.settings)
    found = find(session, place)
    if found is None or found.mark is None or found.mark.table != str(table):
        return "unchanged"
    session.run(sql.drop_table(place))
    return "dropped"


def find(session: Session, place: Place) -> Found | None:
    """Return the Iceberg table at a place; ``None`` if there is none, or no such schema."""
    try:
        rows = session.run(f"SHOW ICEBERG TABLES IN SCHEMA {place.schema_sql} STARTS WITH {sql.text(place.name)}")
    except SnowflakeError as error:
        if error.number in ABSENT:
            return None
        raise
    return next((one for one in read_tables(rows, session.settings) if one.place == place), None)


def read_tables(rows: Sequence[dict[str, Any]], settings: SnowflakeDownstream) -> list[Found]:
    """Return the tables that SHOW ICEBERG TABLES printed."""
    return [
        Found(
            Place(row["database_name"], row["schema_name"], row["name"]),
            sql.read_mark(row["comment"]) if row["external_volume_name"] == settings.external_volume else None,
        )
        for row in rows
    ]


def require_own(found: Found, table: TableIdentifier, name: str) -> None:
    """Raise if a table in Snowflake isn't the one that lakegate made for ``table``."""
    if found.mark is None:
        raise _taken(found.place, table, name, "lakegate didn't make it")
    if found.mark.table != str(table):
        raise _taken(found.place, table, name, f"it shows the lake's table {found.mark.table}")


def _create(session: Session, place: Place, statement: str) -> bool:
    """Create a table, and return whether there was none."""
    try:
        session.run(statement)
    except SnowflakeError as error:
        if error.number == EXISTS:
            return False
        if error.number not in ABSENT:
            raise
        # The first table of a namespace brings its schema. What else may be missing, Snowflake says again.
        session.run(sql.create_schema(place))
        for role in session.settings.readers:
            session.run(sql.grant_usage("SCHEMA", place.schema_sql, role))
        session.run(statement)
    _grant(session, place)
    return True


def _grant(session: Session, place: Place) -> None:
    for role in session.settings.readers:
        session.run(sql.grant_select(place, role))


def _taken(place: Place, table: TableIdentifier, name: str, why: str) -> DownstreamError:
    return DownstreamError(
        f"{place.sql} exists in Snowflake, and {why}; {table} isn't shown there.",
        hint=f"Rename or drop it there, or give namespace {'.'.join(table.namespace)} another schema in "
        f"[downstream.{name}.schemas]. Then run: lakegate snowflake apply",
        table=str(table),
    )
