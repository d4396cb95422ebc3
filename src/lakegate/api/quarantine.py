"""``lake.quarantine``: rows that checks of severity ``quarantine`` set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.api.transactions import run_transaction
from lakegate.components import Components
from lakegate.errors import AuditFailedError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import QuarantineSummary, RowSelection
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import Run
from lakegate.model.words import suggest_keywords
from lakegate.wap import review
from lakegate.wap.release import drop, find_quarantine, quarantined, quarantined_rows, release, still_failing


@suggest_keywords
class Quarantine:
    """Rows that checks of severity ``quarantine`` set aside: ``lake.quarantine``.

    Raises:
        NotFoundError: No row of the table was ever quarantined.
    """

    def __init__(self, components: Components) -> None:
        self._components = components

    def list(self, table: str | None = None) -> Sequence[QuarantineSummary]:
        """Return how many rows of one table, or of all, each run set aside, newest first.

        Args:
            table: ``namespace.table``. Default: all tables.
        """
        identifier = None if table is None else TableIdentifier.parse(table)
        catalog = self._components.catalog
        return quarantined(catalog, self._components.reader, catalog.get_ref(MAIN), identifier)

    def show(
        self, table: str, *, run_id: str | None = None, check: str | None = None, limit: int = 20
    ) -> Sequence[Mapping[str, Any]]:
        """Return rows waiting in quarantine, with their reasons.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            limit: Maximum number of rows.
        """
        chosen = RowSelection(run_id=run_id, check=check)
        pointer = self._find(TableIdentifier.parse(table))
        return quarantined_rows(self._components.reader, pointer, chosen, limit)

    def release(
        self,
        table: str,
        *,
        run_id: str | None = None,
        check: str | None = None,
        where: str | None = None,
        changes: Mapping[str, str] | None = None,
        accept: str | None = None,
        actor: str | None = None,
    ) -> Run:
        """Publish rows waiting in quarantine, as they are or corrected.

        They must pass today's checks, and again what set them aside. Each row is published once.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            where: Only rows for which this predicate in Spark SQL is true.
            changes: New values: column to an expression in Spark SQL, such as ``{"fare": "abs(fare)"}``. ``"NULL"``
                leaves out the values of a column that the table no longer has.
            accept: Reason for publishing them even though they fail a check; see :meth:`lakegate.Lake.publish`.
            actor: Who releases them, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run, a transaction. The rows stay in the quarantine table, marked with its id.

        Raises:
            AuditFailedError: The rows fail a check of severity ``error`` or ``quarantine``. Nothing was published.
            InputError: No waiting row matches, or an expression is invalid.
            SchemaError: The table has no column for a row's value, or the column's type can't hold it.
        """
        components, identifier = self._components, TableIdentifier.parse(table)
        self._find(identifier)
        chosen = RowSelection(run_id=run_id, check=check, where=where)
        acceptance = None if accept is None else review.accepted(accept, actor)
        try:
            return run_transaction(
                components,
                lambda tx: release(
                    components.context, tx, identifier, chosen, dict(changes or {}), accepts=acceptance is not None
                ),
                name=f"release {identifier}",
                tables=(str(identifier),),
                on_failure="drop",
                action=review.acted("release", actor),
                acceptance=acceptance,
            )
        except AuditFailedError as failed:
            run = components.journal.get(str(failed.context["run_id"]))
            raise failed if run is None else still_failing(identifier, run, chosen) from None

    def drop(
        self,
        table: str,
        *,
        run_id: str | None = None,
        check: str | None = None,
        where: str | None = None,
        actor: str | None = None,
    ) -> Run:
        """Delete rows waiting in quarantine.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            where: Only rows for which this predicate in Spark SQL is true.
            actor: Who drops them, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run, a transaction, which can be reverted.

        Raises:
            InputError: No waiting row matches, or the predicate is invalid.
        """
        identifier = TableIdentifier.parse(table)
        self._find(identifier)
        chosen = RowSelection(run_id=run_id, check=check, where=where)
        return run_transaction(
            self._components,
            lambda tx: drop(self._components.context, tx, identifier, chosen),
            name=f"drop quarantined {identifier}",
            tables=(str(identifier),),
            on_failure="drop",
            action=review.acted("drop", actor),
        )

    def _find(self, table: TableIdentifier) -> TablePointer:
        catalog = self._components.catalog
        return find_quarantine(catalog, catalog.get_ref(MAIN), table)
