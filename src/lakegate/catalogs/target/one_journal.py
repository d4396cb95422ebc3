"""One journal for each target: two would lock nothing for each other, and publish the same files twice.

Snapshots name the runs that wrote them. So whoever finds a run on top of a table that its journal doesn't know isn't
alone, or has lost a journal: it publishes nothing to the table until somebody says which.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import select, update

from lakegate.catalogs.target.schema import OVERLAY
from lakegate.catalogs.target.updates import newest_of_run
from lakegate.errors import ConfigurationError
from lakegate.iceberg.metadata import Document
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier


class OneJournal:
    """Checks that tables have no runs of another journal.

    Args:
        knows_run: Returns whether a run is in the journal.
    """

    def __init__(self, database: Database, knows_run: Callable[[str], bool]) -> None:
        self._database = database
        self._knows_run = knows_run

    def require(self, table: TableIdentifier, document: Document) -> None:
        """Check the newest snapshot of a run in a table's metadata.

        Raises:
            ConfigurationError: If the journal doesn't have that run, and nobody has accepted it.
        """
        newest = newest_of_run(document)
        if newest is None or self._knows_run(newest.run_id) or newest.time_ms <= self._accepted_ms():
            return
        raise ConfigurationError(
            f"Table {table} was written by run {newest.run_id}, which isn't in the journal {self._database.name}: "
            "another lakegate publishes to the same catalog with a journal of its own, or an earlier journal was lost. "
            "Nothing was published.",
            hint="If there is another lakegate, give both the same journal: set journal.url to a Postgres database. If "
            "its journal was lost or restored from a backup: lakegate admin journal rebuild",
            table=str(table),
            run_id=newest.run_id,
        )

    def accept(self) -> None:
        """Take all runs that are published now for runs of a journal that was lost."""
        with self._database.writing() as tx:
            tx.execute(update(OVERLAY).values(accepted_ms=time.time_ns() // 1_000_000))

    def _accepted_ms(self) -> int:
        with self._database.reading() as tx:
            return int(tx.scalar(select(OVERLAY.c.accepted_ms)) or 0)
