"""What Snowflake has, what it lacks, and the statements that make it; one table at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.session import ABSENT, EXISTS, Session, SnowflakeError
from lakegate.downstream.snowflake.sql import Mark, Place
from lakegate.downstream.snowflake.storage import VolumeLocation, describe_location, read_description
from lakegate.errors import ConfigurationError, DownstreamError
from lakegate.model.base import Value
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


Kind = Literal["external volume", "catalog integration", "database", "schema", "table", "grant"]
Action = Literal["none", "create", "replace", "drop", "refuse"]
Grant = tuple[str, tuple[str, ...]]
"""A privilege, and the parts of the name of what it's on."""


class Step(Value):
    """One object in Snowflake, and what to do about it.

    Attributes:
        name: Its name, quoted; for a grant, what it lets whom do.
        action: ``none`` if it exists, ``refuse`` if it can't be made.
        sql: The statement; ``None`` if there's nothing to run.
        reason: Why it's refused, replaced or dropped.
    """

    kind: Kind
    name: str
    action: Action
    sql: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Survey:
    """What Snowflake has, as far as the role sees it. Nothing, by default."""

    volume: Mapping[str, Any] | None = None
    integration: Mapping[str, str] | None = None
    has_database: bool = False
    schemas: frozenset[str] = frozenset()
    tables: Mapping[Place, Found] = field(default_factory=dict)
    others: Mapping[Place, str] = field(default_factory=dict)
    grants: Mapping[str, frozenset[Grant]] = field(default_factory=dict)


def survey(session: Session) -> Survey:
    """Look at what the account has. Changes nothing.

    Raises:
        DownstreamError: Snowflake refuses the sign-in, or a role or warehouse doesn't exist.
    """
    settings = session.settings
    require_warehouse(session)
    volume = describe_volume(session)
    integration = _seen(session, f"DESC CATALOG INTEGRATION {sql.identifier(settings.catalog_integration)}")
    databases = session.run(f"SHOW DATABASES STARTS WITH {sql.text(settings.database)}")
    has_database = any(row["name"] == settings.database for row in databases)
    found = Survey(
        volume=volume,
        integration=None if integration is None else {row["property"]: row["property_value"] for row in integration},
        has_database=has_database,
        grants={role: _grants(session, role) for role in settings.readers},
    )
    if not has_database:
        return found
    schemas = session.run(f"SHOW SCHEMAS IN DATABASE {sql.identifier(settings.database)}")
    tables, others = tables_there(session)
    return replace(found, schemas=frozenset(row["name"] for row in schemas), tables=tables, others=others)


def tables_there(session: Session) -> tuple[dict[Place, Found], dict[Place, str]]:
    """Return the Iceberg tables in the account's database, and of all tables and views in it the kinds."""
    within = sql.identifier(session.settings.database)
    tables = read_tables(session.run(f"SHOW ICEBERG TABLES IN DATABASE {within}"), session.settings)
    others = {
        Place(row["database_name"], row["schema_name"], row["name"]): str(row["kind"]).lower()
        for row in session.run(f"SHOW OBJECTS IN DATABASE {within}")
    }
    return {one.place: one for one in tables}, others


def require_warehouse(session: Session) -> Mapping[str, Any]:
    """Sign in; return account, user, role, warehouse and version, or raise if the session lacks the warehouse."""
    current = session.run(
        "SELECT CURRENT_ACCOUNT() AS ACCOUNT, CURRENT_USER() AS USER, CURRENT_ROLE() AS ROLE, "
        "CURRENT_WAREHOUSE() AS WAREHOUSE, CURRENT_VERSION() AS VERSION"
    )[0]
    if not current["warehouse"]:
        settings = session.settings
        # Snowflake signs in without one, and fails at the first statement that needs it.
        raise SnowflakeError(
            f"Warehouse '{settings.warehouse}' doesn't exist, or role '{settings.role}' may not use it.",
            number=606,
            hint=f"Run in Snowflake: GRANT USAGE ON WAREHOUSE {sql.as_parameter(settings.warehouse)} TO ROLE "
            f"{sql.as_parameter(settings.role)}; or change downstream.{session.name}.warehouse.",
        )
    return current


def describe_volume(session: Session) -> Mapping[str, Any] | None:
    """Return the external volume's storage location; ``None`` if there's no such volume."""
    rows = _seen(session, f"DESC EXTERNAL VOLUME {sql.identifier(session.settings.external_volume)}")
    return None if rows is None else read_description(rows)


def _seen(session: Session, statement: str) -> list[dict[str, Any]] | None:
    try:
        return session.run(statement)
    except SnowflakeError as error:
        if error.number in ABSENT:
            return None
        raise


def _grants(session: Session, role: str) -> frozenset[Grant]:
    """Return what a role may do, or nothing if that isn't visible: granting again changes nothing."""
    try:
        rows = session.run(f"SHOW GRANTS TO ROLE {sql.identifier(role)}")
    except SnowflakeError:
        return frozenset()
    return frozenset((row["privilege"], sql.split_name(row["name"])) for row in rows)


def make_plan(
    name: str,
    settings: SnowflakeDownstream,
    lake: Settings,
    location: VolumeLocation,
    tables: Sequence[LakeTable],
    found: Survey,
) -> tuple[Step, ...]:
    """Return every object that Snowflake needs, in the order to make them in.

    Returns:
        A step for each, those that exist included.

    Raises:
        ConfigurationError: A setting is missing, or contradicts the volume or integration that exists.
        DownstreamError: Two tables would have the same name.
    """
    places = _places(tables, settings)
    schemas = sorted({Place(place.database, place.schema, "") for place in places})
    steps = [
        _volume_step(name, settings, lake, location, found),
        _integration_step(name, settings, found),
        _step(
            "database",
            sql.identifier(settings.database),
            sql.create_database(settings.database),
            exists=found.has_database,
        ),
        *(
            _step("schema", one.schema_sql, sql.create_schema(one), exists=one.schema in found.schemas)
            for one in schemas
        ),
        *(_table_step(name, settings, location, place, table, found) for place, table in places.items()),
        *_dropped(places, found),
    ]
    actions = {step.name: step.action for step in steps if step.kind == "table"}
    readable = [place for place in places if actions[place.sql] != "refuse"]
    # Replacing a table takes its grants away.
    replaced = frozenset(tuple(place) for place in places if actions[place.sql] == "replace")
    return (*steps, *_grant_steps(settings, schemas, readable, found, replaced))


def _places(tables: Sequence[LakeTable], settings: SnowflakeDownstream) -> dict[Place, LakeTable]:
    places: dict[Place, LakeTable] = {}
    for table in tables:
        place = sql.place_of(table.table, settings)
        if place in places:
            raise DownstreamError(
                f"Tables {places[place].table} and {table.table} would both be {place.sql} in Snowflake.",
                hint="Give one of their namespaces a schema of its own in 'schemas', or leave one out of 'tables'.",
                table=str(table.table),
            )
        places[place] = table
    return places


def _step(kind: Kind, name: str, statement: str, *, exists: bool) -> Step:
    return (
        Step(kind=kind, name=name, action="none")
        if exists
        else Step(kind=kind, name=name, action="create", sql=statement)
    )


def _volume_step(
    name: str, settings: SnowflakeDownstream, lake: Settings, location: VolumeLocation, found: Survey
) -> Step:
    volume = settings.external_volume
    if found.volume is None:
        made = sql.create_volume(volume, describe_location(location, settings, lake))
        return Step(kind="external volume", name=sql.identifier(volume), action="create", sql=made)
    base = str(found.volume.get("STORAGE_BASE_URL", "")).rstrip("/") + "/"
    # A volume may have another provider's prefix for the same bucket: s3gov, s3compat.
    if base.partition("://")[2] != location.base_url.partition("://")[2]:
        raise ConfigurationError(
            f"External volume '{volume}' is for {base}, and the lake's files are in {location.base_url}.",
            hint=f"Name another volume in downstream.{name}.external_volume; lakegate creates it.",
            setting=f"downstream.{name}.external_volume",
        )
    return Step(kind="external volume", name=sql.identifier(volume), action="none")


def _integration_step(name: str, settings: SnowflakeDownstream, found: Survey) -> Step:
    integration = settings.catalog_integration
    if found.integration is not None:
        source = found.integration.get("CATALOG_SOURCE", "OBJECT_STORE")
        if source != "OBJECT_STORE":
            raise ConfigurationError(
                f"Catalog integration '{integration}' has CATALOG_SOURCE = {source}; this needs OBJECT_STORE.",
                hint=f"Name another one in downstream.{name}.catalog_integration; lakegate creates it.",
                setting=f"downstream.{name}.catalog_integration",
            )
    return _step(
        "catalog integration",
        sql.identifier(integration),
        sql.create_integration(integration),
        exists=found.integration is not None,
    )


def _table_step(
    name: str,
    settings: SnowflakeDownstream,
    location: VolumeLocation,
    place: Place,
    table: LakeTable,
    found: Survey,
) -> Step:
    there = found.tables.get(place)
    path, mark = location.relative(table.metadata_location), Mark(str(table.table), table.uuid)
    if there is not None:
        try:
            require_own(there, table.table, name)
        except DownstreamError as error:
            return Step(kind="table", name=place.sql, action="refuse", reason=error.message)
        if there.mark == mark:
            return Step(kind="table", name=place.sql, action="none")
        return Step(
            kind="table",
            name=place.sql,
            action="replace",
            sql=sql.create_table(place, path, mark, settings, replace=True),
            reason=f"{table.table} was dropped and recreated",
        )
    if place in found.others:
        reason = f"a {found.others[place]} of this name exists in Snowflake, and lakegate didn't make it"
        return Step(kind="table", name=place.sql, action="refuse", reason=reason)
    return Step(kind="table", name=place.sql, action="create", sql=sql.create_table(place, path, mark, settings))


def _dropped(places: Mapping[Place, LakeTable], found: Survey) -> Iterator[Step]:
    for place, there in found.tables.items():
        if there.mark is not None and place not in places:
            reason = f"{there.mark.table} isn't on main any more, or isn't sent here"
            yield Step(kind="table", name=place.sql, action="drop", sql=sql.drop_table(place), reason=reason)


def _grant_steps(
    settings: SnowflakeDownstream,
    schemas: Sequence[Place],
    places: Sequence[Place],
    found: Survey,
    replaced: frozenset[tuple[str, ...]],
) -> Iterator[Step]:
    database = sql.identifier(settings.database)
    for role in settings.readers:
        has = found.grants.get(role, frozenset())
        wanted = [
            ("USAGE", (settings.database,), sql.grant_usage("DATABASE", database, role)),
            *(("USAGE", one[:2], sql.grant_usage("SCHEMA", one.schema_sql, role)) for one in schemas),
            *(("SELECT", tuple(one), sql.grant_select(one, role)) for one in places),
        ]
        for privilege, parts, statement in wanted:
            shown = f"{privilege} on {'.'.join(sql.identifier(part) for part in parts)} to {sql.identifier(role)}"
            yield _step("grant", shown, statement, exists=(privilege, parts) in has and parts not in replaced)
