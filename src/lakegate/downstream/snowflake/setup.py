"""What ``lakegate snowflake`` does: plan what an account lacks, make it, and say how far its tables are behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from lakegate.config import Settings, SnowflakeDownstream
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.plan import (
    LakeTable,
    Step,
    Survey,
    describe_volume,
    make_plan,
    put,
    require_warehouse,
    survey,
    tables_there,
)
from lakegate.downstream.snowflake.session import Session, SnowflakeError
from lakegate.downstream.snowflake.storage import Rights, VolumeLocation, rights, volume_location
from lakegate.errors import ConfigurationError, DownstreamError, LakegateError
from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine
from lakegate.model.tables import TableMetadata

NOT_RUN = (
    "lakegate's Snowflake support was tested with the official connector against a server that answers as Snowflake "
    "does, not on Snowflake itself."
)
ONE_BY_ONE = "Tables refresh one by one: for a moment, readers can see one table's publish before another's."
_ASKED_AT_ONCE = 50
_OF_THE_ACCOUNT = {
    "external volume": "USAGE ON EXTERNAL VOLUME",
    "catalog integration": "USAGE ON INTEGRATION",
    "database": "OWNERSHIP ON DATABASE",
}
"""Kinds of objects that whole accounts have, and what the role needs on them."""
TableState = Literal["current", "behind", "missing", "taken", "unknown"]


class TableStatus(Value):
    """A table of the lake, and how Snowflake has it.

    Attributes:
        table: Its name in the lake.
        snowflake: Its quoted name in Snowflake.
        state: ``current`` shows what main has; ``behind`` shows an earlier state; ``taken`` isn't lakegate's.
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
    """An account, its volume and its tables.

    Attributes:
        readable: Whether Snowflake can use the volume; ``None`` if it doesn't exist.
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


class Setup:
    """One Snowflake account of the settings, and the lake.

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

    def chosen(self, tables: Iterable[TableMetadata]) -> list[LakeTable]:
        """Return those of the lake's tables that go to this account: never those of quarantined rows."""
        return [
            LakeTable(one.table, one.metadata_location, one.uuid or "")
            for one in tables
            if any(fnmatchcase(str(one.table), pattern) for pattern in self.section.tables)
            and not is_quarantine(one.table)
        ]

    def plan(self, tables: Sequence[LakeTable], session: Session | None) -> tuple[Step, ...]:
        """Return what the account needs; without a session, as if it were empty."""
        found = Survey() if session is None else survey(session)
        return make_plan(self.name, self.section, self._settings, self.location, tables, found)

    def script(self, steps: Iterable[Step]) -> str:
        """Return a plan as a script for somebody with more privileges than lakegate's role.

        What belongs to the account comes first, with what lets the role use it. The tables must be the role's own, as
        only their owner may refresh them.
        """
        role = sql.identifier(self.section.role)
        statements: list[str] = []
        has_switched = False
        for step in (one for one in steps if one.sql):
            if step.kind not in _OF_THE_ACCOUNT and not has_switched:
                has_switched = True
                statements += [f"USE ROLE {role}", f"USE WAREHOUSE {sql.identifier(self.section.warehouse)}"]
            statements.append(step.sql or "")
            if step.kind in _OF_THE_ACCOUNT:
                statements.append(f"GRANT {_OF_THE_ACCOUNT[step.kind]} {step.name} TO ROLE {role}")
        return "\n\n".join(f"{statement};" for statement in statements)

    def apply(self, steps: Iterable[Step], session: Session) -> Iterator[tuple[Step, LakegateError | None]]:
        """Run the statements of a plan; yield each step with the error that it ended in.

        Stops after the external volume is made, if Snowflake can't read through it yet; and at the first error that
        isn't about one table.
        """
        for step in steps:
            if step.sql is None:
                continue
            try:
                session.run(step.sql)
            except DownstreamError as error:
                yield step, error
                # No other table would fare better through a volume that can't be read.
                if step.kind != "table" or self.problem_of_volume(session) is not None:
                    return
                continue
            yield step, None
            if step.kind == "external volume" and self.problem_of_volume(session) is not None:
                return

    def problem_of_volume(self, session: Session) -> str | None:
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
        # Whether Snowflake could write doesn't matter: the volume doesn't let it.
        failed = ", ".join(
            f"{key}: {value}"
            for key, value in found.items()
            if key not in {"writeResult", "deleteResult"} and str(value).upper().startswith("FAIL")
        )
        if found.get("success") is True or (not failed and found.get("storageLocationSelectionResult") == "PASSED"):
            return None
        return failed or said

    def rights(self, session: Session | None) -> Rights:
        """Return the rights that the external volume needs."""
        described: Mapping[str, Any] = (describe_volume(session) if session is not None else None) or {}
        if not described and self.section.storage_role_arn is not None:
            described = {"STORAGE_AWS_ROLE_ARN": self.section.storage_role_arn}
        return rights(self.location, described)

    def status(self, tables: Sequence[LakeTable], session: Session) -> AccountStatus:
        """Return how the account is, and how far each table is."""
        current = require_warehouse(session)
        described = describe_volume(session)
        reason = None if described is None else self.problem_of_volume(session)
        return AccountStatus(
            **{key: str(current[key]) for key in ("account", "user", "role", "warehouse", "version")},
            volume=self.section.external_volume,
            readable=None if described is None else reason is None,
            reason=reason,
            tables=tuple(self._table_states(tables, session)),
        )

    def name_of(self, table: LakeTable) -> str:
        """Return the quoted name that a table has in Snowflake."""
        return sql.place_of(table.table, self.section).sql

    def recreate(self, tables: Iterable[LakeTable], session: Session) -> None:
        """Replace tables, each in one step, by what main has now."""
        for table in tables:
            put(session, self.location, table, recreate=True)

    def _table_states(self, tables: Sequence[LakeTable], session: Session) -> Iterator[TableStatus]:
        try:
            there, others = tables_there(session)
        except SnowflakeError:
            there, others = {}, {}  # no such database: no table is there
        places = {table: sql.place_of(table.table, self.section) for table in tables}
        marks = {place: found.mark for place, found in there.items() if found.mark is not None}
        own = [place for table, place in places.items() if place in marks and marks[place].table == str(table.table)]
        shown = self._shown(own, session)
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

    def _shown(self, places: Sequence[sql.Place], session: Session) -> dict[sql.Place, tuple[str | None, str | None]]:
        """Return the metadata file that each table shows, or why that isn't known."""
        found: dict[sql.Place, tuple[str | None, str | None]] = {}
        for start in range(0, len(places), _ASKED_AT_ONCE):
            some = places[start : start + _ASKED_AT_ONCE]
            try:
                found |= _ask(some, session)
            except SnowflakeError:
                # One table that can't be read fails the whole statement.
                for place in some:
                    try:
                        found |= _ask([place], session)
                    except SnowflakeError as error:
                        found[place] = (None, error.message)
        return found


def accounts(settings: Settings) -> list[str]:
    """Return the names of the sections that are Snowflake accounts."""
    return [name for name, section in settings.downstream.items() if isinstance(section, SnowflakeDownstream)]


def _ask(places: Sequence[sql.Place], session: Session) -> dict[sql.Place, tuple[str | None, str | None]]:
    calls = ", ".join(
        f"SYSTEM$GET_ICEBERG_TABLE_INFORMATION({sql.text(place.sql)}) AS T{number}"
        for number, place in enumerate(places)
    )
    [row] = session.run(f"SELECT {calls}")
    return {place: (_location(row[f"t{number}"]), None) for number, place in enumerate(places)}


def _location(said: str) -> str | None:
    found = json.loads(said)
    return found.get("metadataLocation") if isinstance(found, dict) else None
