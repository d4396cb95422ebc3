"""All the seams on one page. Each is one technology's room; the flow knows nothing else of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakegate.model.batch import Batch
from lakegate.model.files import AddedFiles, DataFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref, TableDifference, TablePointer
from lakegate.model.run import Run
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, ScanResult, Snapshot, TableMetadata, WriteTarget

if TYPE_CHECKING:
    import pyarrow as pa


class Step(Protocol):
    """A piece of work in progress, as its narrator shows it."""

    def progress(self, done: int, total: int, unit: str) -> None:
        """Tell how far it is: ``done`` of ``total`` ``unit`` (``tasks``, ``rows``, ``bytes``)."""
        ...


class Narrator(Protocol):
    """Where work in progress is told of. Front doors decide how it looks, or that it stays quiet."""

    def step(self, text: str) -> AbstractContextManager[Step]:
        """Show ``text`` while the body runs; the step ends with it, however it ends."""
        ...

    def note(self, text: str) -> None:
        """Tell one finished fact."""
        ...


class Catalog(Protocol):
    """References, commits and table pointers (``lakegate.catalogs``).

    All methods raise :class:`~lakegate.errors.CatalogUnavailableError` when the catalog does not answer in time.
    """

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit when ``name`` is a hash.

        Raises:
            NotFoundError: When there is none.
        """
        ...

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, fetching page by page."""
        ...

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source``'s hash.

        Raises:
            AlreadyExistsError: When a reference of this name exists.
            NotFoundError: When ``source`` does not exist.
        """
        ...

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source``'s hash; raises as :meth:`create_branch`."""
        ...

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target``'s hash, if it still stands at ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
            NotFoundError: When either does not exist.
        """
        ...

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it still stands at ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
            NotFoundError: When it does not exist.
        """
        ...

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first, fetching page by page.

        Args:
            ref: Branch, tag or hash.
            until: Hash at which to stop; that commit itself is not yielded.
            run_id: Yield only commits whose ``lakegate.run-id`` property is this.
            operations: Fill :attr:`~lakegate.model.refs.Commit.tables`.
        """
        ...

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at: its head, a given commit hash, or the last one at a time.

        Args:
            ref: Branch, tag or hash.
            at: ``None`` for the head, a commit hash, or an aware datetime.

        Returns:
            A ref whose ``name`` is ``ref`` and whose ``hash`` is the commit found.

        Raises:
            NotFoundError: When ``ref`` or the commit does not exist, or nothing was committed by then.
        """
        ...

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table as it stands at ``ref.hash``."""
        ...

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""
        ...

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return where ``table`` stands at ``ref.hash``; ``None`` when it does not exist there."""
        ...

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit and return the branch at its new head.

        Raises:
            ConflictError: When a key that the request touches or relies on changed after ``request.base``.
            NotFoundError: When the branch does not exist.
            OutcomeUnknownError: When the request was sent and no answer came.
        """
        ...

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that stand differently at two commits."""
        ...

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref`` (``main`` when ``None``), without the prefix."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class TableReader(Protocol):
    """Table metadata without an engine (``lakegate.catalogs.metadata``)."""

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshots of the table at ``pointer``."""
        ...

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return the table's snapshots, oldest first."""
        ...

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""
        ...

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added."""
        ...


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


class Journal(Protocol):
    """What was intended, and how it ended (``lakegate.journal``). The catalog stays the truth about data."""

    def save(self, run: Run) -> None:
        """Insert or replace ``run`` by its id."""
        ...

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        ...

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        ...

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        ...

    def runs(self, *, table: str | None = None, status: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Return runs, newest first."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...
