"""What moves and reads rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lakegate.model.batch import Batch
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.schema import Schema
from lakegate.model.tables import (
    AddedRows,
    CreateTable,
    Rows,
    ScanResult,
    WriteTarget,
)

if TYPE_CHECKING:
    import pyarrow as pa
from lakegate.protocols.narration import Step


class Engine(Protocol):
    """What moves and reads rows (``lakegate.engine``).

    All methods raise :class:`~lakegate.errors.EngineUnavailableError` when the engine is away and
    :class:`~lakegate.errors.EngineError` when it cannot do the work.
    """

    @property
    def shares_files(self) -> bool:
        """Whether the engine sees this machine's files under the same paths."""
        ...

    def source_schema(self, batch: Batch) -> Schema:
        """Return the batch's schema as the engine would write it."""
        ...

    def append(self, batch: Batch, target: WriteTarget, step: Step | None = None) -> None:
        """Append ``batch`` to ``target`` in one write, creating the table when ``target.create`` says so.

        Args:
            batch: Files to read.
            target: Table and branch to write to.
            step: Told of the progress, in tasks.
        """
        ...

    def count_failing(self, rows: AddedRows, predicates: Sequence[str]) -> ScanResult:
        """Count rows for which each SQL predicate is true, all in one aggregation over just ``rows``."""
        ...

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        """Count rows that share their values in ``columns`` (none NULL) with another row."""
        ...

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows for which ``predicate`` is true, as JSON-safe values, with their data file."""
        ...

    def duplicate_examples(self, rows: AddedRows, columns: Sequence[str], limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` keys that occur more than once, with their number of rows."""
        ...

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        """Count rows that share their ``columns`` (none NULL) with another row, of the batch or of ``others``.

        Args:
            rows: The batch.
            columns: Key columns, which ``others`` have by the same names.
            others: Rows to look in, taken together; as little of them is read as their metrics allow.

        Returns:
            Two counts: all of these rows, each once, and those of them whose values occur in ``others``.
        """
        ...

    def count_orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> ScanResult:
        """Count rows whose values in ``columns`` (none NULL) do not occur in ``other_columns`` of ``others``."""
        ...

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_known` counts, as :meth:`examples` does."""
        ...

    def orphan_examples(
        self,
        rows: AddedRows,
        columns: Sequence[str],
        others: Sequence[Rows],
        other_columns: Sequence[str],
        limit: int,
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_orphans` counts, as :meth:`examples` does."""
        ...

    def transaction(self, branch: str, run_id: str) -> EngineTransaction:
        """Return what writes to ``branch`` for a run: every snapshot it makes carries the run's id."""
        ...

    def query(self, sql: str, ref: Ref) -> Any:
        """Return a Spark DataFrame of a query in which plain table names mean the tables at ``ref``.

        Raises:
            QueryError: When the query cannot be analysed.
        """
        ...

    def fetch(self, frame: Any) -> pa.Table:
        """Run a DataFrame of :meth:`query` and return all its rows.

        Raises:
            QueryError: When the query fails on the data it reads.
        """
        ...

    def cancel(self) -> None:
        """Stop whatever this engine is running for us. Best effort, never raises."""
        ...

    def close(self) -> None:
        """End our session, not the engine. Idempotent."""
        ...


class EngineTransaction(Protocol):
    """Spark, bound to one branch: plain table names mean the branch's tables (``lakegate.engine.transaction``)."""

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch."""
        ...

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Append a DataFrame (or Arrow table, or pandas frame) by column name, creating the table when told how."""
        ...

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Replace all rows of the table."""
        ...

    def upsert(self, table: TableIdentifier, rows: Any, keys: Sequence[str], create: CreateTable | None) -> None:
        """Update the rows whose ``keys`` match, insert the others.

        Raises:
            InputError: When a key is NULL, or two of the given rows have the same one.
        """
        ...

    def reads(self, statement: str) -> Collection[TableIdentifier]:
        """Return the tables whose rows the outcome of ``statement`` depends on."""
        ...

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame."""
        ...

    def close(self) -> None:
        """End the session. Idempotent."""
        ...
