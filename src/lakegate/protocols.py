"""All the seams on one page. Each is one technology's room; the flow knows nothing else of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakegate.model.batch import Batch, SourceFile
from lakegate.model.files import AddedFiles, DataFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.journal import Claim, HistoryEvent
from lakegate.model.refs import Commit, CommitRequest, Ref, TableDifference, TablePointer
from lakegate.model.run import KnownFile, Run
from lakegate.model.schema import Schema
from lakegate.model.tables import (
    AddedRows,
    CreateTable,
    Rows,
    ScanResult,
    Snapshot,
    StoredFile,
    TableMetadata,
    WriteTarget,
)

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
            operations: Fill :attr:`~lakegate.model.refs.Commit.tables` and :attr:`~lakegate.model.refs.Commit.puts`.
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

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return where each of ``tables`` stands at ``ref.hash``, as :meth:`get_table` does, all in one request."""
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

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield the location of every file that the metadata at ``pointer`` needs, all its snapshots' and itself.

        Args:
            pointer: The table's state.
            walked: Metadata files, manifest lists and manifests whose files were yielded before; they are left out,
                and the ones that were walked to their end now are added. ``None`` leaves nothing out.

        Raises:
            LakegateError: When one of the files cannot be read; what was yielded until then is not all there is.
        """
        ...


class TableEditor(Protocol):
    """Changes of tables that touch metadata only; no data file is read or written (``lakegate.catalogs.editor``).

    Each method writes new metadata beside the old and returns where it is; nothing is visible before it is committed.
    """

    def replay(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``.

        The snapshots keep their ids, so that what is published is what was audited; the result carries
        ``onto.content_id`` and has the schema, the partition specs and the sort orders of ``onto``.

        Raises:
            NotReplayableError: When a snapshot did more than append, or the files do not fit the table any more: a
                column they hold was dropped or changed its type, one they lack is required, or their partition spec
                means something else there.
        """
        ...

    def trimmed(self, pointer: TablePointer, *, at_least: int = 1) -> TablePointer:
        """Return the same state with metadata that lists no more snapshots than it is to keep, ``pointer`` if it does.

        Args:
            pointer: The table's state.
            at_least: Number of the newest snapshots to keep in any case.
        """
        ...

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove exactly the data files at ``paths`` in one new snapshot (operation ``delete``).

        Args:
            pointer: The table's state.
            paths: Data files, as their manifest entries spell them.
            summary: Extra entries of the snapshot's summary.

        Raises:
            NotReplayableError: When one of them is not a live data file of this state, or delete files apply to one.
        """
        ...


class FileStore(Protocol):
    """The warehouse's files, for what collects the ones that nothing needs (``lakegate.catalogs.filestore``)."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below ``prefix``, a folder as URI, in no particular order, without holding them all."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; ones that are gone already are no error."""
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


class Journal(Protocol):
    """What was intended, and how it ended (``lakegate.journal``). The catalog stays the truth about data.

    All methods raise :class:`~lakegate.errors.RetryableError` when the journal is away or locked for too long.
    """

    # Runs

    def save(self, run: Run) -> None:
        """Insert or replace ``run`` by its id, with its steps and check results."""
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

    def runs(
        self,
        *,
        table: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first."""
        ...

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and that of published versions of files, once for each table."""
        ...

    # Leases: which runs somebody is working on

    def begin(self, run: Run) -> None:
        """Save ``run`` and take its lease for this process, in one transaction."""
        ...

    def renew(self, run_id: str) -> bool:
        """Tell that this process still works on the run; return whether the lease is still its own."""
        ...

    def end(self, run: Run) -> None:
        """Save ``run`` as it ended, drop its lease and settle its claims, in one transaction.

        A published run's claims become published files; any other run's claims are released.
        """
        ...

    def abandoned(self) -> Sequence[Run]:
        """Return the runs whose lease's holder is dead or has not renewed it in time, oldest first."""
        ...

    def take_over(self, run_id: str) -> bool:
        """Take an abandoned run's lease for this process; return whether that worked: only one taker gets it."""
        ...

    # Source files

    def claim(
        self,
        run_id: str,
        table: str,
        files: Sequence[SourceFile],
        *,
        take_changed: bool = False,
        take_free: bool = True,
    ) -> Claim:
        """Claim source files for a run, each version once per table, in one transaction.

        Args:
            run_id: The run.
            table: Table the files go to, as text.
            files: Files in the version that was looked at: ``uri`` and ``version`` count.
            take_changed: Claim files whose path was published in another version.
            take_free: When some of the files are busy: claim the others all the same. Else nothing is claimed then.

        Returns:
            What was claimed, and why the rest was not.
        """
        ...

    def known(self, table: str, files: Sequence[SourceFile]) -> Claim:
        """Return what :meth:`claim` would answer a new run, and claim nothing (``claimed`` is empty then)."""
        ...

    def earlier(self, table: str, files: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return what was published to ``table`` under the paths of ``files`` in other versions than these."""
        ...

    def release(self, run_id: str) -> None:
        """Give back what the run claimed and did not publish."""
        ...

    # What main's history says

    def synced(self, target: str) -> str | None:
        """Return the commit of ``target`` up to which its history is known here; ``None`` when nothing is."""
        ...

    def record(self, target: str, events: Sequence[HistoryEvent], head: str, *, rebuild: bool = False) -> None:
        """Take over what commits of ``target`` say (oldest first), in one transaction; ``head`` is then known.

        Published files are kept as published (whoever claimed them), those of reverted runs are forgotten, and runs
        that were published or reverted are marked so.

        Args:
            target: The branch.
            events: One for each commit that concerns runs.
            head: The newest commit seen.
            rebuild: Forget all published files first: the events are the whole history.
        """
        ...

    # Turns

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for our turn at ``name`` (a table to publish to), for ``timeout_s`` seconds at most.

        It spares rivals for one table from doing again what another one's commit made void; nothing depends on it for
        being right. Ends with the process that holds it.

        Returns:
            A context manager of whether we got it.
        """
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...
