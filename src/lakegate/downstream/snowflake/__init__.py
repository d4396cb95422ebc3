"""Snowflake as a downstream system: refreshes the tables of each publish, one by one.

To add what an account lacks: :mod:`~lakegate.downstream.snowflake.setup`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from lakegate.config import SnowflakeDownstream
from lakegate.downstream import DownstreamContext
from lakegate.downstream.snowflake import sql
from lakegate.downstream.snowflake.plan import LakeTable, describe_volume, drop_table, require_warehouse, sync_table
from lakegate.downstream.snowflake.session import Session, require_connector
from lakegate.downstream.snowflake.storage import VolumeLocation, volume_location
from lakegate.errors import DownstreamError, LakegateError, RetryableError
from lakegate.model.downstream import ChangedTable, DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from lakegate.model.run import Run


class SnowflakeTarget:
    """A Snowflake account whose tables follow the lake's.

    Args:
        uuid_of: Returns a table's UUID, given its metadata file.
    """

    def __init__(
        self,
        name: str,
        settings: SnowflakeDownstream,
        location: VolumeLocation,
        uuid_of: Callable[[TableIdentifier, str], str],
    ) -> None:
        self._name = name
        self._settings = settings
        self._location = location
        self._uuid_of = uuid_of
        # One session for all deliveries, because signing in takes longer than a refresh.
        self._session = Session(name, settings)
        weakref.finalize(self, self._session.close)

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Create, refresh or drop each table of a publish. A table that fails doesn't hold up the others."""
        del run
        failed: list[LakegateError] = []
        self._session.limit(self._settings.timeout_s)
        for table in event.tables:
            try:
                self._deliver(self._session, table)
            except RetryableError:
                raise
            except LakegateError as error:
                if not self._session.is_open:
                    raise  # without a session, the other tables would fail too
                failed.append(error)
        if failed:
            raise failed[0]

    def test(self) -> str:
        """Sign in, and look for the warehouse, volume and database. Changes nothing."""
        with Session(self._name, self._settings) as session:
            current = require_warehouse(session)
            if describe_volume(session) is None:
                raise DownstreamError(
                    f"Snowflake has no external volume '{self._settings.external_volume}', or role "
                    f"'{self._settings.role}' may not use it.",
                    hint="To create what is missing, run: lakegate snowflake apply",
                )
            session.run(f"SHOW SCHEMAS IN DATABASE {sql.identifier(self._settings.database)}")
        return (
            f"Signed in to {current['account']} as {current['user']} with role {current['role']}; warehouse, external "
            "volume and database exist."
        )

    def _deliver(self, session: Session, table: ChangedTable) -> None:
        identifier = TableIdentifier.stored(table.table)
        if table.dropped:
            drop_table(session, identifier)
        elif table.after is not None:
            uuid = self._uuid_of(identifier, table.after)
            sync_table(session, self._location, LakeTable(identifier, table.after, uuid))


def make(name: str, settings: SnowflakeDownstream, context: DownstreamContext) -> SnowflakeTarget:
    """Return the Snowflake account that a section of the settings describes."""
    from lakegate.iceberg.files import TableFiles

    require_connector()
    files = TableFiles(context.settings.storage)

    def uuid_of(table: TableIdentifier, location: str) -> str:
        pointer = TablePointer(
            table=table,
            content_id=None,
            metadata_location=location,
            snapshot_id=-1,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        return str(files.metadata(pointer).document["table-uuid"])

    return SnowflakeTarget(name, settings, volume_location(context.warehouse), uuid_of)
