"""All interfaces of lakegate: for catalogs, engines, table metadata, files, alerts and progress.

Implementations needn't inherit from them. What a method promises is documented here, and not repeated there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lakegate.model.batch import Batch
from lakegate.model.downstream import DownstreamEvent, Notice
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import Flaw, NeededFile, TableLayout
from lakegate.model.opening import Opening
from lakegate.model.quarantine import BatchRows, FailingCount, RowTest
from lakegate.model.refs import Commit, CommitRequest, Ref, TableAt, TableDifference, TablePointer
from lakegate.model.request import WriteMode
from lakegate.model.run import Notification, Run
from lakegate.model.schema import Schema
from lakegate.model.tables import (
    AddedFiles,
    AddedRows,
    CreateTable,
    DataFile,
    IntegerKey,
    Rows,
    ScanResult,
    SchemaVersion,
    Snapshot,
    StoredFile,
    TableChange,
    TableMetadata,
    WriteTarget,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakegate.errors import LakegateError


class Step(Protocol):
    """A step in progress, as its narrator shows it."""

    def progress(self, done: int, total: int, unit: str) -> None:
        """Report ``done`` of ``total`` ``unit`` (``tasks``, ``rows``, ``bytes``)."""


class Narrator(Protocol):
    """Reports progress. The CLI, or the program around lakegate, decides how it looks."""

    def step(self, text: str) -> AbstractContextManager[Step]:
        """Show ``text`` while the body runs. The step ends with the body, even if that raises."""

    def note(self, text: str) -> None:
        """Report something that has happened."""


class Notifier(Protocol):
    """Sends alerts about runs, files and tables to people and programs (``lakegate.alerts``)."""

    def send(self, notice: Notice) -> Sequence[Notification]:
        """Send ``notice`` to every channel that subscribes to it, within the settings' time.

        One message covers the notices of the same kind about the same tables for the settings' window; for late tables,
        for as long as a publish is expected.

        Returns:
            The outcome for each channel. A message that can't be sent is an outcome, not an exception.
        """

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all.

        Raises:
            NotFoundError: When there is no such channel, or none at all.
        """


class Downstream(Protocol):
    """A system outside the lake that is notified of publishes (``lakegate.downstream``).

    Events about one table arrive in the order of their commits, each at least once: after a crash, for instance, a
    delivered event may arrive again with the same ``event_id``. Nothing that an implementation does changes the outcome
    of a run.
    """

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Deliver one event. Returning means that it arrived.

        Args:
            event: What happened, without any row of data.
            run: The run that did it, if the journal knows it. Its reports may hold example rows.

        Raises:
            DownstreamUnavailableError: When a retry may succeed. Any other exception is treated the same.
            DownstreamError: When a retry would fail again. The event is given up at once, and an alert is sent.
        """

    def test(self) -> str:
        """Check that the system can be reached with its settings, without changing it. Return what was checked.

        Raises:
            LakegateError: When it can't.
        """


class Catalog(Protocol):
    """Refs, commits and table pointers (``lakegate.catalogs``).

    All methods raise :class:`~lakegate.errors.CatalogUnavailableError` when the catalog doesn't respond in time.
    """

    def identity(self) -> str | None:
        """Return an id of this catalog that doesn't depend on its address; ``None`` when it has none.

        Others have another id: a journal and a warehouse belong to one catalog.
        """

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit when ``name`` is a hash.

        Raises:
            NotFoundError: When there is none.
        """

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, fetching page by page."""

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source``'s hash.

        Raises:
            AlreadyExistsError: When a ref of this name exists.
            IdentifierError: When lakegate doesn't allow the name (``model.identifiers.validate_ref_name``).
            NotFoundError: When ``source`` doesn't exist.
        """

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source``'s hash. Raises what :meth:`create_branch` does."""

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target``'s hash, if its head is still ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
            InputError: When ``ref`` is a bare commit.
            NotFoundError: When either doesn't exist.
        """

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if its head is still ``ref.hash``. Raises what :meth:`assign_ref` does."""

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first, fetching page by page.

        Args:
            ref: Branch, tag or hash.
            until: Hash at which to stop; that commit itself isn't yielded.
            run_id: Yield only commits of this run: those with it in the property ``lakegate.run-id``.
            operations: Fill :attr:`~lakegate.model.refs.Commit.tables` and :attr:`~lakegate.model.refs.Commit.puts`.
        """

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at: its head, a given commit hash, or the last one at a time.

        Args:
            ref: Branch, tag or hash.
            at: ``None`` for the head, a commit hash, or an aware datetime.

        Returns:
            A ref whose ``name`` is ``ref`` and whose ``hash`` is the commit found.

        Raises:
            InputError: When ``at`` is text but no commit hash, or a time without a zone.
            NotFoundError: When ``ref`` or the commit doesn't exist, or nothing was committed by then.
        """

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table's state at ``ref.hash``."""

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return the state of ``table`` at ``ref.hash``; ``None`` when it doesn't exist there.

        Raises:
            InputError: When there is a namespace of this name.
        """

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each of ``tables`` at ``ref.hash``, as :meth:`get_table` does, in one request."""

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and the state of each of ``tables`` at its head, in one request.

        Raises:
            NotFoundError: When there is no such ref.
        """

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit and return the branch at its new head.

        Raises:
            ConflictError: When a key that the request touches or relies on changed after ``request.base``, or isn't as
                the request says: a table to create or a namespace exists, a table to drop doesn't, a namespace to drop
                isn't empty, a put has another ``content_id`` than the table at ``request.base``, or its namespace
                doesn't exist.
            InputError: When the request has no operation, or two on one key.
            NotFoundError: When the branch doesn't exist, or ``request.base`` isn't one of its commits.
            OutcomeUnknownError: When the request was sent but no response came.
        """

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys, of tables and of namespaces, whose state differs between two commits."""

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref`` (``main`` when ``None``), without the prefix.

        Among them are ``ref``, its name, and ``ref.hash`` if it is pinned to a commit (``detached``).
        """

    def close(self) -> None:
        """Release connections. Idempotent."""


@runtime_checkable
class Overlay(Protocol):
    """A catalog that keeps branches and history beside users' own, in the journal's database."""

    def unsettled(self) -> Sequence[tuple[str, str]]:
        """Return the run and the tables of each publish that's neither made nor undone."""

    def notice_all(self) -> None:
        """Log what others have done to any table."""

    def abandoned_states(
        self, before: datetime, dropped: Collection[str]
    ) -> Sequence[tuple[TablePointer | None, TablePointer]]:
        """Return the states that were staged before ``before`` and that no branch or tag reaches.

        Each comes with the state that it was staged on.

        Args:
            dropped: Branches that don't count.
        """

    def prune(self, before: datetime) -> None:
        """Forget these, and what ``main`` was before ``before``; its commits stay."""

    def access(self, pointer: TablePointer) -> Mapping[str, Any]:
        """Return what the users' catalog gives readers of a table's files now: secrets, not to be kept.

        Returns:
            Members of a ``LoadTableResult`` of Iceberg's REST API: ``config``, ``storage-credentials``, or none.
        """

    def accept_past(self) -> None:
        """Take what is published now as it is, whichever runs it is of."""


class Openings(Protocol):
    """The openings of branches to writers."""

    def get(self, opening_id: str) -> Opening | None:
        """Return an opening as it is at this moment, in all processes; ``None`` when there's none.

        A commit through the gate asks after it has read the branch's head, and holds only on top of that head. So
        whoever seals a branch first makes this say so, and then commits to the branch (:mod:`lakegate.wap.opening`): a
        commit that asked earlier is refused.
        """

    def note_use(self, opening_id: str, *, reads: Sequence[str] = (), client: str | None = None) -> None:
        """Remember which published tables a writer has read, and what the client that wrote calls itself."""


class CommitIndex(Protocol):
    """An index of a branch's commits, which saves reading the branch's history (``lakegate.journal.history``)."""

    def with_prefix(self, target: str, prefix: str, *, limit: int) -> Sequence[str]:
        """Return commits whose hashes start with ``prefix``."""

    def at(self, target: str, time: datetime) -> str | None:
        """Return the last commit in the history that was made at or before ``time``, or ``None``."""

    def has(self, target: str, commit: str) -> bool:
        """Return whether ``commit`` is in the index."""


class TableReader(Protocol):
    """Table metadata without an engine (``lakegate.iceberg.reader``)."""

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshots of the table at ``pointer``."""

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return the table's snapshots, oldest first."""

    def schemas(self, pointer: TablePointer) -> Sequence[SchemaVersion]:
        """Return the schemas that the table had up to ``pointer``, oldest first."""

    def require_loadable(self, pointer: TablePointer, branch: str, before: TablePointer | None = None) -> None:
        """Check that any reader can load the table at ``pointer`` on ``branch`` and sees the snapshot it names.

        Args:
            before: The state that the branch began with: what it knew of the table's past must be unchanged.

        Raises:
            InputError: When they can't, for instance because the metadata was edited by hand.
        """

    def change(
        self,
        before: TablePointer | None,
        after: TablePointer | None,
        *,
        evolves: bool = False,
        compacted: bool = False,
    ) -> TableChange:
        """Return what happened to a table between ``before`` and ``after``, ``None`` where it doesn't exist.

        Audit, publish, rebase and revert all rely on this. With ``evolves``, an append that also added or widened
        columns isn't a rewrite. With ``compacted``, neither are appends with compactions among them, whose
        snapshots are left out.
        """

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""

    def has_other_specs(self, pointer: TablePointer) -> bool:
        """Return whether live data files at ``pointer`` have another partition spec than the table's current one.

        Only manifest lists are read, so deleted files may count.
        """

    def layout(
        self, pointer: TablePointer, *, small_bytes: int, at_least: int, data_files: int = 0, delete_files: int = 0
    ) -> TableLayout:
        """Return how many small files, delete files and manifests the snapshot at ``pointer`` has.

        Args:
            small_bytes: Files with fewer bytes are small.
            at_least: Count small files only in partitions with at least this many of them.
            data_files: With fewer data files than this, and fewer delete files than ``delete_files``, an implementation
                may skip counting and return no small files and no delete files.
        """

    def outdated_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> int:
        """Return how many snapshots :meth:`TableEditor.trim_snapshots` would drop."""

    def read_rows(
        self,
        pointer: TablePointer,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows of the snapshot at ``pointer`` that keeps few of them in memory.

        Args:
            columns: Columns to read, in this order. ``None`` for all.

        Raises:
            InputError: When a name, the filter or the limit is wrong, or the table can't be read without an engine.
        """

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added."""

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield the location of every file that the metadata at ``pointer`` needs, in all of its snapshots.

        Args:
            walked: Metadata files, manifest lists and manifests to skip, because their files were yielded before. Those
                that are now read completely are added. ``None`` skips nothing.

        Raises:
            LakegateError: When a file can't be read. What was yielded until then is incomplete.
        """

    def new_files(self, before: TablePointer | None, pointer: TablePointer) -> Iterator[str]:
        """Yield what :meth:`reach` yields for ``pointer``, except most of what it yields for ``before``.

        Skipped are the manifest lists of ``before``, the manifests of its current snapshot, and what these list, in
        merged manifests, too. So it costs what changed.
        """

    def inspect(self, pointer: TablePointer, walked: set[str]) -> Iterator[NeededFile | Flaw]:
        """Yield each file that the state needs, and each flaw that the metadata alone shows.

        A missing or damaged file is yielded as a flaw, and the inspection goes on. Files that the current snapshot
        needs come first.

        Args:
            walked: Metadata files, manifest lists and manifests that were inspected before, damaged or not. They're
                yielded, but not read again. Those that are inspected now are added.

        Raises:
            ConfigurationError: When the store doesn't accept the credentials, or denies access to a file.
            SourceError: When the store refuses for another reason.
            RetryableError: When a file can't be read right now.
        """

    def footer_flaws(self, files: Sequence[NeededFile]) -> Iterator[Flaw | None]:
        """Yield, for each file, how its Parquet footer contradicts the metadata, or ``None``.

        Raises:
            LakegateError: When access to a file is denied, or its store doesn't serve it.
        """

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Return the files that don't exist.

        Raises:
            LakegateError: When the store doesn't say, for example without credentials.
        """


class TableEditor(Protocol):
    """Table changes that touch only metadata, and read or write no data file (``lakegate.iceberg.editor``).

    Each method writes new metadata next to the old and returns its location. Nobody sees it before it's committed.
    """

    def rebase(
        self,
        source: TablePointer,
        snapshot_ids: Sequence[int],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``.

        The snapshots keep their ids, so that what is published is what was audited; the result carries
        ``onto.content_id`` and has the schema, the partition specs and the sort orders of ``onto``.

        Args:
            keep_row_ids: For rows that were published with their ids and the numbers of their last changes (format
                version 3).
            is_ours: Whether lakegate's engine wrote all of the snapshots, so that their files inherit sequence numbers
                and row ids. Files of other writers may name some, and lose them: equality deletes may have a greater
                number on ``onto``, and other rows the same ids.

        Raises:
            NotReplayableError: When a snapshot did more than append, another table has taken the table's name, or the
                files no longer fit it: a column they hold was dropped, renamed or changed its type, one they lack is
                required, or their partition spec means something else there.
        """

    def rebase_each(
        self,
        sources: Sequence[tuple[TablePointer, Sequence[int]]],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> tuple[TablePointer, Mapping[int, LakegateError]]:
        """Append to ``onto`` what each of ``sources`` appended, one after the other, as :meth:`rebase` does.

        Returns:
            The new state, and the errors of sources that were left out, by their index in ``sources``.
        """

    def rebase_problem(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> str | None:
        """Return why :meth:`rebase` would refuse these snapshots; ``None`` if it wouldn't. Writes nothing."""

    def trim_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> TablePointer:
        """Return the same state without the snapshots from before ``before``, or ``pointer`` itself if none can go.

        Args:
            at_least: Number of newest snapshots to keep in any case.
        """

    def as_audited(
        self, pointer: TablePointer, published: TablePointer | None, audited: Collection[int]
    ) -> TablePointer:
        """Return an audited state with metadata that shows readers nothing else, or ``pointer`` itself if it's that.

        Readers can ask for any snapshot in a table's metadata, and see it in the schema that the snapshot names.

        Args:
            published: The table as readers see it today; ``None`` if there's none. Its snapshots stay as they are.
            audited: The snapshots that the audit has read, in the schema at ``pointer``. No other snapshot of
                ``pointer`` is kept.
        """

    def with_properties(self, pointer: TablePointer, properties: Mapping[str, str]) -> TablePointer:
        """Return the table with some of its properties set."""

    def without_rows(self, pointer: TablePointer) -> TablePointer:
        """Return the table as if nothing had been written to it."""

    def raise_counters(
        self, pointer: TablePointer, now: TablePointer | None, *, by_sequence: bool = True
    ) -> TablePointer:
        """Return the state at ``pointer`` with the counters of ``now``, so no row id is reused (format version 3).

        Sequence numbers continue after those of ``now``, too. Pass ``by_sequence=False`` if appends will still be
        rebased with the numbers they have.
        """

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove exactly the data files at ``paths`` in one new snapshot (operation ``delete``), if there are any.

        Args:
            paths: Data files, as their manifest entries spell them.
            summary: Extra entries of the snapshot's summary.

        Raises:
            NotReplayableError: When one of them isn't a live data file of this state, or has delete files.
        """


class FileStore(Protocol):
    """The warehouse's files, for garbage collection (``lakegate.iceberg.files``)."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below the folder ``prefix``, a URI, in no particular order and with little memory."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, ignoring those that don't exist."""


class WarehouseFiles(FileStore, Protocol):
    """The warehouse's files, which can also be read and written."""

    def read(self, path: str) -> bytes:
        """Return a file's content."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically. Its name is derived from its content: a file that exists already has the same."""


class Engine(Protocol):
    """Moves and reads rows (``lakegate.spark``).

    All methods raise :class:`~lakegate.errors.EngineUnavailableError` when the engine is unavailable and
    :class:`~lakegate.errors.EngineError` when it can't do the work.
    """

    @property
    def shares_files(self) -> bool:
        """Whether the engine sees this machine's files under the same paths."""

    def source_schema(self, batch: Batch) -> Schema:
        """Return the batch's schema as the engine would write it."""

    def write(self, batch: Batch, target: WriteTarget, mode: WriteMode, step: Step | None = None) -> None:
        """Write ``batch`` to ``target`` in one snapshot, creating the table when ``target.create`` says so.

        Args:
            step: Gets the progress, in tasks.

        Raises:
            InputError: When a key of an upsert is NULL or occurs twice. Nothing is written.
        """

    def analyze(self, schema: Schema, predicates: Sequence[str], queries: Sequence[str]) -> None:
        """Refuse SQL that can't run on rows with the columns of ``schema``, as far as the engine can tell without rows.

        Args:
            predicates: As for :meth:`count_failing`.
            queries: As for :meth:`count_query`.

        Raises:
            QueryError: When the engine refuses one of them.
        """

    def count_failing(self, rows: AddedRows, predicates: Sequence[str], *, key: IntegerKey | None = None) -> ScanResult:
        """Count the rows for which each predicate is true, in one aggregation over just ``rows``.

        Args:
            predicates: SQL.
            key: A key to prove unique in the same scan (:attr:`~lakegate.model.tables.ScanResult.is_unique`).
        """

    def aggregate(self, rows: Rows, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
        """Return the number of ``rows``, and the values of SQL aggregates over them."""

    def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
        """Count the rows of a ``SELECT`` that names ``rows`` as ``batch`` or :data:`OWN_BATCH`.

        Args:
            computed: Whether to compute the rows' values as well, so that one that can't be computed is an error.
        """

    def query_examples(self, rows: AddedRows, sql: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows of the ``SELECT`` that :meth:`count_query` counts, as JSON-safe values."""

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        """Count rows that share their values in ``columns`` (none NULL) with another row."""

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows for which ``predicate`` is true, as JSON-safe values with their data file."""

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        """Count rows that share their values in ``columns`` (none NULL) with another row, in the batch or ``others``.

        Args:
            columns: Key columns, with the same names in ``others``.
            others: Rows to search together. Their file metrics limit how much is read.

        Returns:
            Two counts: of all such rows, each counted once, and of those whose values occur in ``others``.
        """

    def count_orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> ScanResult:
        """Count rows whose values in ``columns`` (none NULL) don't occur in ``other_columns`` of ``others``."""

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_known` counts, as :meth:`examples` does."""

    def orphan_examples(
        self,
        rows: AddedRows,
        columns: Sequence[str],
        others: Sequence[Rows],
        other_columns: Sequence[str],
        limit: int,
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_orphans` counts, as :meth:`examples` does."""

    def count_failing_rows(self, rows: BatchRows, tests: Sequence[RowTest]) -> FailingCount:
        """Return how many of ``rows`` fail ``tests``, in one pass."""

    def quarantine_rows(self, rows: BatchRows, tests: Sequence[RowTest], target: WriteTarget) -> None:
        """Append the ``rows`` that fail any of ``tests`` to a quarantine table, with where they come from.

        Args:
            target: The quarantine table. It's created if ``create`` says so; otherwise missing columns are added.
        """

    def append_passing(self, rows: BatchRows, quarantined: AddedRows, target: WriteTarget) -> None:
        """Append the ``rows`` that aren't among ``quarantined``, rows of the quarantine table.

        The table is created if ``create`` says so.
        """

    def failing_by_file(
        self, batch: Batch, schema: Schema, tests: Sequence[RowTest]
    ) -> Sequence[Mapping[str, tuple[int, int]]]:
        """Evaluate tests on the rows of a batch's files, in the columns and types of ``schema``.

        Returns:
            For each test, the files that were read and have failing rows: their number, and the position of the first,
            from 0.
        """

    def examples_in_file(
        self, rows: AddedRows, batch: Batch, schema: Schema, test: RowTest, file: str, limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return the first rows of one of those files that fail a test, each with its position as ``_pos``.

        Args:
            rows: Says which columns to show and which to mask.
        """

    def transaction(self, branch: str, run_id: str) -> EngineTransaction:
        """Return a session that writes to ``branch`` for a run. Every snapshot it makes carries the run's id."""

    def query(self, sql: str, ref: Ref) -> Any:
        """Return a Spark DataFrame of a query in which plain table names mean the tables at ``ref``.

        Raises:
            QueryError: When the query can't be analysed.
        """

    def read(self, wanted: Rows) -> Any:
        """Return a Spark DataFrame of rows, by the columns of their table."""

    def compare(
        self, before: TableAt, after: TableAt, key: Sequence[str], *, renamed: Mapping[str, str]
    ) -> Sequence[Any]:
        """Return Spark DataFrames of the rows that differ between two states of a table.

        Rows are compared by all columns, and duplicates are counted. A column that one state lacks is NULL there.

        Args:
            key: Columns that identify a row. If there are none, whole rows are compared.
            renamed: Names of columns in ``before`` to their other names in ``after``.

        Returns:
            The rows added and the rows removed. With a key, also the rows that changed, as structs ``before`` and
            ``after``.
        """

    def fetch(self, frame: Any) -> pa.Table:
        """Run a DataFrame of :meth:`query` or :meth:`read` and return all its rows.

        Raises:
            QueryError: When the query fails on the data it reads.
        """

    def stream(self, frame: Any) -> Iterator[pa.RecordBatch]:
        """Run a DataFrame of :meth:`query` and yield its rows as they come. Raises what :meth:`fetch` does."""

    def cancel(self) -> None:
        """Stop whatever the engine is running for us. Best effort; never raises."""

    def reconnect(self) -> None:
        """Drop sessions whose server no longer responds. The next call opens new ones. Never raises."""

    def close(self) -> None:
        """End lakegate's session, but not the engine. Idempotent."""


class EngineTransaction(Protocol):
    """Spark, bound to one branch: plain table names mean the branch's tables (``lakegate.spark.transaction``).

    Attributes:
        before_writing: Called with the table, and the columns of the rows, before rows are written to it.
    """

    before_writing: Callable[[TableIdentifier, Schema], None]

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch."""

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> None:
        """Append a DataFrame, or rows that convert to Arrow, by column name. ``create`` says how to create the table.

        With ``fills``, struct fields that the rows lack are NULL.
        """

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Replace all rows of the table."""

    def upsert(
        self,
        table: TableIdentifier,
        rows: Any,
        keys: Sequence[str],
        create: CreateTable | None,
        *,
        masked: Sequence[str] = (),
    ) -> None:
        """Update the rows whose ``keys`` match, and insert the others. Errors never show values of ``masked`` columns.

        Raises:
            InputError: When a key is NULL, or two of ``rows`` have the same key.
        """

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        """Rewrite small data files, and those with delete files, into larger ones with the same rows.

        Iceberg commits this on the branch, again if others have appended to the table meanwhile.

        Args:
            sort: Order of the rows in SQL, or ``zorder(a, b)``. ``None`` keeps their current order.
            where: A validated condition. Only files that may hold rows for which it's true are rewritten.

        Raises:
            NotReplayableError: When others have changed the same files, or have kept changing the table.
        """

    def count(self, table: TableIdentifier, *, at: str) -> int:
        """Return the table's number of rows at ``at``, a commit in the branch's history."""

    def used_by(self, statement: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Return the names of the tables that ``statement`` reads, and of those it changes.

        These are Spark's names, such as ``nyc.trips.files``, which is a metadata table of ``nyc.trips``.
        """

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame."""

    def fetch(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Run a query and return its rows."""

    def close(self) -> None:
        """End the session. Idempotent."""
