"""Compares the lake with a Snowflake account, and plans the statements to bring the account up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.session import ABSENT, DENIED, EXISTS, Session, SnowflakeError, no_warehouse
from lakegate.downstream.snowflake.sql import QualifiedName, TableComment
from lakegate.downstream.snowflake.storage import VolumeLocation, describe_location, read_description
from lakegate.errors import ConfigurationError, DownstreamError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier


class LakeTable(NamedTuple):
    """A table of the lake.

    Attributes:
        uuid: The table's UUID. A table that was dropped and recreated has another one.
    """

    table: TableIdentifier
    metadata_location: str
    uuid: str


class ShownTable(NamedTuple):
    """An Iceberg table in Snowflake.

    Attributes:
        comment: Its parsed comment; ``None`` if lakegate didn't create it, or created it on another volume.
    """

    place: QualifiedName
    comment: TableComment | None


def sync_table(
    session: Session, location: VolumeLocation, table: LakeTable, *, recreate: bool = False
) -> Literal["created", "refreshed", "replaced"]:
    """Bring a table in Snowflake up to date with the lake, creating it if needed.

    Args:
        recreate: Replace Snowflake's table instead of refreshing it.

    Raises:
        DownstreamError: Another table or view has the name, or Snowflake refuses a statement.
    """
    settings = session.settings
    place = sql.qualified_name(table.table, settings)
    path = location.relative(table.metadata_location)
    comment = TableComment(str(table.table), table.uuid)
    found = find_table(session, place)
    if found is None:
        if _create(session, place, sql.create_table(place, path, comment, settings)):
            return "created"
        # Another process created it, or it isn't an Iceberg table.
        found = find_table(session, place) or ShownTable(place, None)
    require_ours(found, table.table, session.name)
    if found.comment == comment and not recreate:
        session.run(sql.refresh_table(place, path))
        _complete_grants(session, place)
        return "refreshed"
    session.run(sql.create_table(place, path, comment, settings, replace=True))
    _grant(session, place)
    return "replaced"


def drop_table(session: Session, table: TableIdentifier) -> Literal["dropped", "unchanged"]:
    """Drop a table that the lake has dropped, if lakegate created it."""
    place = sql.qualified_name(table, session.settings)
    found = find_table(session, place)
    if found is None or found.comment is None or found.comment.table != str(table):
        return "unchanged"
    session.run(sql.drop_table(place))
    return "dropped"


def find_table(session: Session, place: QualifiedName) -> ShownTable | None:
    """Return the Iceberg table of a name; ``None`` if the table or its schema doesn't exist."""
    try:
        rows = session.run(f"SHOW ICEBERG TABLES IN SCHEMA {place.schema_sql} STARTS WITH {sql.text(place.name)}")
    except SnowflakeError as error:
        if error.number in ABSENT:
            return None
        raise
    return next((one for one in read_tables(rows, session.settings) if one.place == place), None)


def read_tables(rows: Sequence[dict[str, Any]], settings: SnowflakeDownstream) -> list[ShownTable]:
    """Parse the output of SHOW ICEBERG TABLES."""
    return [
        ShownTable(
            QualifiedName(row["database_name"], row["schema_name"], row["name"]),
            sql.read_comment(row["comment"]) if row["external_volume_name"] == settings.external_volume else None,
        )
        for row in rows
    ]


def require_ours(found: ShownTable, table: TableIdentifier, name: str) -> None:
    """Raise unless lakegate created the table in Snowflake for ``table``."""
    if found.comment is None:
        raise _name_is_taken(found.place, table, name, "lakegate didn't create it")
    if found.comment.table != str(table):
        raise _name_is_taken(found.place, table, name, f"it shows the lake's table {found.comment.table}")


def _create(session: Session, place: QualifiedName, statement: str) -> bool:
    """Create a table. Return whether it didn't exist yet."""
    try:
        session.run(statement)
    except SnowflakeError as error:
        if error.number == EXISTS:
            return False
        if error.number not in ABSENT:
            raise
        # The schema is missing: this is the namespace's first table. If anything else is missing, the retry raises.
        session.run(sql.create_schema(place))
        session.run(statement)
    _grant(session, place)
    return True


def _grant(session: Session, place: QualifiedName) -> None:
    for role in session.settings.readers:
        _grant_to(role, session, place)


def _grant_to(role: str, session: Session, place: QualifiedName) -> None:
    """Let a role read a table. The privilege on the table comes last: a role that has it has the schema's, too."""
    try:
        session.run(sql.grant_usage("SCHEMA", place.schema_sql, role))
    except SnowflakeError as error:
        if error.number != DENIED:
            raise  # otherwise, whoever owns the schema decides who uses it
    session.run(sql.grant_select(place, role))


def _complete_grants(session: Session, place: QualifiedName) -> None:
    """Make the grants on a table that are missing because the delivery that created it ended before them.

    One that Snowflake refuses doesn't hold up the table's refresh.
    """
    for role in session.settings.readers:
        if ("SELECT", tuple(place)) not in _grants(session, role):
            with suppress(SnowflakeError):
                _grant_to(role, session, place)


def _name_is_taken(place: QualifiedName, table: TableIdentifier, name: str, why: str) -> DownstreamError:
    return DownstreamError(
        f"{place.sql} exists in Snowflake, but {why}. {table} isn't shown there.",
        hint=f"Rename or drop it there, or give namespace {'.'.join(table.namespace)} another schema in "
        f"[downstream.{name}.schemas]. Then run: lakegate snowflake apply",
        table=str(table),
    )


StepKind = Literal["external volume", "catalog integration", "database", "schema", "table", "grant"]
StepAction = Literal["none", "create", "replace", "drop", "refuse"]
Grant = tuple[str, tuple[str, ...]]
"""A privilege, and the name of its object, in parts."""


class PlanStep(Value):
    """One object that Snowflake needs, and what to do about it.

    Attributes:
        name: Its quoted name; for a grant, the privilege, object and role.
        action: ``none`` if it exists, ``refuse`` if it can't be created.
        sql: The statement; ``None`` if there's nothing to run.
        reason: Why it's refused, replaced or dropped.
    """

    kind: StepKind
    name: str
    action: StepAction
    sql: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class AccountState:
    """The objects in a Snowflake account that the role can see. Empty by default."""

    volume: Mapping[str, Any] | None = None
    integration: Mapping[str, str] | None = None
    has_database: bool = False
    schemas: frozenset[str] = frozenset()
    tables: Mapping[QualifiedName, ShownTable] = field(default_factory=dict)
    others: Mapping[QualifiedName, str] = field(default_factory=dict)
    grants: Mapping[str, frozenset[Grant]] = field(default_factory=dict)


def read_account(session: Session) -> AccountState:
    """Read which objects the account has. Changes nothing.

    Raises:
        DownstreamError: Snowflake refuses the sign-in, or a role or warehouse doesn't exist.
    """
    settings = session.settings
    require_warehouse(session)
    volume = describe_volume(session)
    integration = _rows_or_none(session, f"DESC CATALOG INTEGRATION {sql.identifier(settings.catalog_integration)}")
    databases = session.run(f"SHOW DATABASES STARTS WITH {sql.text(settings.database)}")
    has_database = any(row["name"] == settings.database for row in databases)
    found = AccountState(
        volume=volume,
        integration=None if integration is None else {row["property"]: row["property_value"] for row in integration},
        has_database=has_database,
        grants={role: _grants(session, role) for role in settings.readers},
    )
    if not has_database:
        return found
    schemas = session.run(f"SHOW SCHEMAS IN DATABASE {sql.identifier(settings.database)}")
    tables, others = list_tables(session)
    return replace(found, schemas=frozenset(row["name"] for row in schemas), tables=tables, others=others)


def list_tables(session: Session) -> tuple[dict[QualifiedName, ShownTable], dict[QualifiedName, str]]:
    """Return the Iceberg tables in the account's database, and the kind of every table and view in it."""
    within = sql.identifier(session.settings.database)
    tables = read_tables(session.run(f"SHOW ICEBERG TABLES IN DATABASE {within}"), session.settings)
    others = {
        QualifiedName(row["database_name"], row["schema_name"], row["name"]): str(row["kind"]).lower()
        for row in session.run(f"SHOW OBJECTS IN DATABASE {within}")
    }
    return {one.place: one for one in tables}, others


def require_warehouse(session: Session) -> Mapping[str, Any]:
    """Sign in, and return account, user, role, warehouse and version. Raise if the warehouse isn't usable."""
    current = session.run(
        "SELECT CURRENT_ACCOUNT() AS ACCOUNT, CURRENT_USER() AS USER, CURRENT_ROLE() AS ROLE, "
        "CURRENT_WAREHOUSE() AS WAREHOUSE, CURRENT_VERSION() AS VERSION"
    )[0]
    if not current["warehouse"]:
        # Snowflake lets users sign in without the warehouse, and fails at the first statement that needs it.
        raise no_warehouse(session)
    return current


def describe_volume(session: Session) -> Mapping[str, Any] | None:
    """Return the external volume's storage location; ``None`` if there's no such volume."""
    rows = _rows_or_none(session, f"DESC EXTERNAL VOLUME {sql.identifier(session.settings.external_volume)}")
    return None if rows is None else read_description(rows)


def _rows_or_none(session: Session, statement: str) -> list[dict[str, Any]] | None:
    try:
        return session.run(statement)
    except SnowflakeError as error:
        if error.number in ABSENT:
            return None
        raise


def _grants(session: Session, role: str) -> frozenset[Grant]:
    """Return a role's grants; none if they aren't visible, because granting again does no harm."""
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
    found: AccountState,
) -> tuple[PlanStep, ...]:
    """Plan a step for every object that Snowflake needs, existing ones too, in order of creation.

    Raises:
        ConfigurationError: A setting is missing, or contradicts the volume or integration that exists.
        DownstreamError: Two tables would have the same name.
    """
    places = _qualified_names(tables, settings)
    schemas = sorted({QualifiedName(place.database, place.schema, "") for place in places})
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
        *_drop_steps(places, found),
    ]
    actions = {step.name: step.action for step in steps if step.kind == "table"}
    readable = [place for place in places if actions[place.sql] != "refuse"]
    # Replacing a table removes its grants.
    replaced = frozenset(tuple(place) for place in places if actions[place.sql] == "replace")
    return (*steps, *_grant_steps(settings, schemas, readable, found, replaced))


def _qualified_names(tables: Sequence[LakeTable], settings: SnowflakeDownstream) -> dict[QualifiedName, LakeTable]:
    places: dict[QualifiedName, LakeTable] = {}
    for table in tables:
        place = sql.qualified_name(table.table, settings)
        if place in places:
            raise DownstreamError(
                f"Tables {places[place].table} and {table.table} would both be {place.sql} in Snowflake.",
                hint="Give one of the namespaces its own schema in 'schemas', or leave one table out of 'tables'.",
                table=str(table.table),
            )
        places[place] = table
    return places


def _step(kind: StepKind, name: str, statement: str, *, exists: bool) -> PlanStep:
    return (
        PlanStep(kind=kind, name=name, action="none")
        if exists
        else PlanStep(kind=kind, name=name, action="create", sql=statement)
    )


def _volume_step(
    name: str, settings: SnowflakeDownstream, lake: Settings, location: VolumeLocation, found: AccountState
) -> PlanStep:
    volume = settings.external_volume
    if found.volume is None:
        made = sql.create_volume(volume, describe_location(location, settings, lake))
        return PlanStep(kind="external volume", name=sql.identifier(volume), action="create", sql=made)
    base = str(found.volume.get("STORAGE_BASE_URL", "")).rstrip("/") + "/"
    # Another provider's prefix may name the same bucket: s3gov, s3compat.
    if base.partition("://")[2] != location.base_url.partition("://")[2]:
        raise ConfigurationError(
            f"External volume '{volume}' is for {base}, but the lake's files are in {location.base_url}.",
            hint=f"Name another volume in downstream.{name}.external_volume; lakegate creates it.",
            setting=f"downstream.{name}.external_volume",
        )
    return PlanStep(kind="external volume", name=sql.identifier(volume), action="none")


def _integration_step(name: str, settings: SnowflakeDownstream, found: AccountState) -> PlanStep:
    integration = settings.catalog_integration
    if found.integration is not None:
        source = found.integration.get("CATALOG_SOURCE", "OBJECT_STORE")
        if source != "OBJECT_STORE":
            raise ConfigurationError(
                f"Catalog integration '{integration}' has CATALOG_SOURCE = {source}; lakegate needs OBJECT_STORE.",
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
    place: QualifiedName,
    table: LakeTable,
    found: AccountState,
) -> PlanStep:
    there = found.tables.get(place)
    path, comment = location.relative(table.metadata_location), TableComment(str(table.table), table.uuid)
    if there is not None:
        try:
            require_ours(there, table.table, name)
        except DownstreamError as error:
            return PlanStep(kind="table", name=place.sql, action="refuse", reason=error.message)
        if there.comment == comment:
            return PlanStep(kind="table", name=place.sql, action="none")
        return PlanStep(
            kind="table",
            name=place.sql,
            action="replace",
            sql=sql.create_table(place, path, comment, settings, replace=True),
            reason=f"{table.table} was dropped and recreated",
        )
    if place in found.others:
        reason = f"a {found.others[place]} of this name exists in Snowflake, and lakegate didn't create it"
        return PlanStep(kind="table", name=place.sql, action="refuse", reason=reason)
    return PlanStep(kind="table", name=place.sql, action="create", sql=sql.create_table(place, path, comment, settings))


def _drop_steps(places: Mapping[QualifiedName, LakeTable], found: AccountState) -> Iterator[PlanStep]:
    for place, there in found.tables.items():
        if there.comment is not None and place not in places:
            reason = f"{there.comment.table} isn't on main any more, or isn't sent here"
            yield PlanStep(kind="table", name=place.sql, action="drop", sql=sql.drop_table(place), reason=reason)


def _grant_steps(
    settings: SnowflakeDownstream,
    schemas: Sequence[QualifiedName],
    places: Sequence[QualifiedName],
    found: AccountState,
    replaced: frozenset[tuple[str, ...]],
) -> Iterator[PlanStep]:
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
