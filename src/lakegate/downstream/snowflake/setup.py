"""The work of ``lakegate snowflake``: plan and create what an account lacks, and report which tables are behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.plan import (
    AccountState,
    LakeTable,
    PlanStep,
    describe_volume,
    list_tables,
    make_plan,
    read_account,
    require_warehouse,
    sync_table,
)
from lakegate.downstream.snowflake.session import Session, SnowflakeError
from lakegate.downstream.snowflake.storage import (
    RequiredPermissions,
    VolumeLocation,
    required_permissions,
    volume_location,
)
from lakegate.errors import ConfigurationError, DownstreamError, LakegateError
from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine
from lakegate.model.tables import TableMetadata

NOT_RUN = (
    "lakegate's Snowflake support was tested with the official connector against a simulated server, not on Snowflake "
    "itself."
)
ONE_BY_ONE = "Tables refresh one by one: for a moment, readers can see a publish in one table but not yet in another."
_TABLES_PER_STATEMENT = 50
_NEEDED_PRIVILEGES = {
    "external volume": "USAGE ON EXTERNAL VOLUME",
    "catalog integration": "USAGE ON INTEGRATION",
    "database": "OWNERSHIP ON DATABASE",
}
"""Kinds of account-level objects, and the privilege that the role needs on them."""
TableState = Literal["current", "behind", "missing", "taken", "unknown"]


class TableStatus(Value):
    """A table of the lake, and its state in Snowflake.

    Attributes:
        snowflake: Its quoted name in Snowflake.
        state: ``current`` if it shows main's state, ``behind`` if an earlier one, ``taken`` if it isn't lakegate's.
        wanted: Path of main's metadata file.
        shown: Path or URI of the metadata file that Snowflake shows.
        reason: Why the state is unknown.
    """

    table: str
    snowflake: str
    state: TableState
    wanted: str
    shown: str | None = None
    reason: str | None = None


class AccountStatus(Value):
    """An account, its external volume and its tables.

    Attributes:
        readable: Whether Snowflake can read through the volume; ``None`` if the volume doesn't exist.
        reason: Why it can't.
    """

    account: str
    user: str
    role: str
    warehouse: str
    version: str
    volume: str
    readable: bool | None
    reason: str | None = None
    tables: tuple[TableStatus, ...] = ()
    notes: tuple[str, ...] = (NOT_RUN, ONE_BY_ONE)


class SnowflakeSetup:
    """Sets up one Snowflake account of the settings.

    Args:
        name: The section's name: ``[downstream.NAME]``.

    Raises:
        ConfigurationError: The section isn't of type ``snowflake``, or the warehouse isn't in an object store.
    """

    def __init__(self, name: str, settings: Settings, warehouse: str) -> None:
        section = settings.downstream.get(name)
        if not isinstance(section, SnowflakeDownstream):
            raise ConfigurationError(
                f"The settings have no Snowflake account called '{name}'.",
                hint=f'Add [downstream.{name}] with type = "snowflake", account, user, private_key, role, warehouse '
                "and database: docs/how-to/read-from-snowflake.md",
                setting=f"downstream.{name}",
            )
        self.name = name
        self.section = section
        self._settings = settings
        self.location: VolumeLocation = volume_location(warehouse)

    def session(self) -> Session:
        """Return a session, not signed in yet."""
        return Session(self.name, self.section)

    def select_tables(self, tables: Iterable[TableMetadata]) -> list[LakeTable]:
        """Return the tables that go to this account. Quarantine tables never do."""
        return [
            LakeTable(one.table, one.metadata_location, one.uuid or "")
            for one in tables
            if any(fnmatchcase(str(one.table), pattern) for pattern in self.section.tables)
            and not is_quarantine(one.table)
        ]

    def plan(self, tables: Sequence[LakeTable], session: Session | None) -> tuple[PlanStep, ...]:
        """Plan what the account needs. Without a session, assume that it's empty."""
        found = AccountState() if session is None else read_account(session)
        return make_plan(self.name, self.section, self._settings, self.location, tables, found)

    def script(self, steps: Iterable[PlanStep]) -> str:
        """Return a plan as a script for somebody with more privileges than lakegate's role.

        Account-level objects come first, with grants that let the role use them. The role itself then creates the
        tables, because only their owner may refresh them.
        """
        role = sql.identifier(self.section.role)
        statements: list[str] = []
        has_switched = False
        for step in (one for one in steps if one.sql):
            if step.kind not in _NEEDED_PRIVILEGES and not has_switched:
                has_switched = True
                statements += [f"USE ROLE {role}", f"USE WAREHOUSE {sql.identifier(self.section.warehouse)}"]
            statements.append(step.sql or "")
            if step.kind in _NEEDED_PRIVILEGES:
                statements.append(f"GRANT {_NEEDED_PRIVILEGES[step.kind]} {step.name} TO ROLE {role}")
        return "\n\n".join(f"{statement};" for statement in statements)

    def apply(self, steps: Iterable[PlanStep], session: Session) -> Iterator[tuple[PlanStep, LakegateError | None]]:
        """Run the statements of a plan. Yield each step with its error, if any.

        Stops after creating the external volume if Snowflake can't read through it yet, and at the first error that
        doesn't concern just one table.
        """
        for step in steps:
            if step.sql is None:
                continue
            try:
                session.run(step.sql)
            except DownstreamError as error:
                yield step, error
                # If the volume can't be read, the other tables would fail too.
                if step.kind != "table" or self.volume_problem(session) is not None:
                    return
                continue
            yield step, None
            if step.kind == "external volume" and self.volume_problem(session) is not None:
                return

    def volume_problem(self, session: Session) -> str | None:
        """Return why Snowflake can't use the external volume; ``None`` if it can."""
        parameter = sql.text(sql.as_parameter(self.section.external_volume))
        try:
            [row] = session.run(f"SELECT SYSTEM$VERIFY_EXTERNAL_VOLUME({parameter})")
        except SnowflakeError as error:
            return error.message
        said = str(next(iter(row.values())))
        try:
            found = json.loads(said)
        except ValueError:
            return said
        # Write checks don't matter: the volume is read-only.
        failed = ", ".join(
            f"{key}: {value}"
            for key, value in found.items()
            if key not in {"writeResult", "deleteResult"} and str(value).upper().startswith("FAIL")
        )
        if found.get("success") is True or (not failed and found.get("storageLocationSelectionResult") == "PASSED"):
            return None
        return failed or said

    def rights(self, session: Session | None) -> RequiredPermissions:
        """Return the permissions that the external volume needs."""
        described: Mapping[str, Any] = (describe_volume(session) if session is not None else None) or {}
        if not described and self.section.storage_role_arn is not None:
            described = {"STORAGE_AWS_ROLE_ARN": self.section.storage_role_arn}
        return required_permissions(self.location, described)

    def status(self, tables: Sequence[LakeTable], session: Session) -> AccountStatus:
        """Return the state of the account, and of each table."""
        current = require_warehouse(session)
        described = describe_volume(session)
        reason = None if described is None else self.volume_problem(session)
        return AccountStatus(
            **{key: str(current[key]) for key in ("account", "user", "role", "warehouse", "version")},
            volume=self.section.external_volume,
            readable=None if described is None else reason is None,
            reason=reason,
            tables=tuple(self._table_statuses(tables, session)),
        )

    def name_of(self, table: LakeTable) -> str:
        """Return a table's quoted name in Snowflake."""
        return sql.qualified_name(table.table, self.section).sql

    def recreate(self, tables: Iterable[LakeTable], session: Session) -> None:
        """Replace tables with their current state on main, each in one step."""
        for table in tables:
            sync_table(session, self.location, table, recreate=True)

    def _table_statuses(self, tables: Sequence[LakeTable], session: Session) -> Iterator[TableStatus]:
        try:
            there, others = list_tables(session)
        except SnowflakeError:
            there, others = {}, {}  # no such database: no table is there
        places = {table: sql.qualified_name(table.table, self.section) for table in tables}
        comments = {place: found.comment for place, found in there.items() if found.comment is not None}
        own = [
            place for table, place in places.items() if place in comments and comments[place].table == str(table.table)
        ]
        shown = self._shown_locations(own, session)
        for table, place in places.items():
            wanted = self.location.relative(table.metadata_location)
            state: TableState = "missing"
            at: str | None = None
            reason: str | None = None
            if place in shown:
                at, reason = shown[place]
                is_same = at is not None and f"/{at}".endswith(f"/{wanted}")
                state = "unknown" if at is None else "current" if is_same else "behind"
            elif place in there or place in others:
                state = "taken"
            yield TableStatus(
                table=str(table.table), snowflake=place.sql, state=state, wanted=wanted, shown=at, reason=reason
            )

    def _shown_locations(
        self, places: Sequence[sql.QualifiedName], session: Session
    ) -> dict[sql.QualifiedName, tuple[str | None, str | None]]:
        """Return the metadata file that each table shows, or why it's unknown."""
        found: dict[sql.QualifiedName, tuple[str | None, str | None]] = {}
        for start in range(0, len(places), _TABLES_PER_STATEMENT):
            some = places[start : start + _TABLES_PER_STATEMENT]
            try:
                found |= _query_locations(some, session)
            except SnowflakeError:
                # One unreadable table fails the whole statement: query them one by one.
                for place in some:
                    try:
                        found |= _query_locations([place], session)
                    except SnowflakeError as error:
                        found[place] = (None, error.message)
        return found


def accounts(settings: Settings) -> list[str]:
    """Return the names of the settings' Snowflake accounts."""
    return [name for name, section in settings.downstream.items() if isinstance(section, SnowflakeDownstream)]


def _query_locations(
    places: Sequence[sql.QualifiedName], session: Session
) -> dict[sql.QualifiedName, tuple[str | None, str | None]]:
    calls = ", ".join(
        f"SYSTEM$GET_ICEBERG_TABLE_INFORMATION({sql.text(place.sql)}) AS T{number}"
        for number, place in enumerate(places)
    )
    [row] = session.run(f"SELECT {calls}")
    return {place: (_location(row[f"t{number}"]), None) for number, place in enumerate(places)}


def _location(said: str) -> str | None:
    found = json.loads(said)
    return found.get("metadataLocation") if isinstance(found, dict) else None
