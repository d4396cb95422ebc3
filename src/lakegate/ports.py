"""Every interface of lakegate, once: what catalogs, engines, alerts and front doors provide.

An implementation doesn't have to inherit from these; what it promises is written here and not again there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakegate.model.batch import Batch
from lakegate.model.downstream import DownstreamEvent, Notice
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import Flaw, NeededFile, TableLayout
from lakegate.model.quarantine import FileCount, Provenance, RowTest
from lakegate.model.refs import Commit, CommitRequest, Ref, TableAt, TableDifference, TablePointer
from lakegate.model.request import WriteMode
from lakegate.model.run import Notification, Run
from lakegate.model.schema import Schema
from lakegate.model.source import Source, SourceCatalog
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
    """A piece of work in progress, as its narrator shows it."""

    def progress(self, done: int, total: int, unit: str) -> None:
        """Report ``done`` of ``total`` ``unit`` (``tasks``, ``rows``, ``bytes``)."""


class Narrator(Protocol):
    """Reports progress. Front doors decide how it looks, or that it stays quiet."""

    def step(self, text: str) -> AbstractContextManager[Step]:
        """Show ``text`` while the body runs; the step ends with it, however it ends."""

    def note(self, text: str) -> None:
        """Report one finished fact."""


class Notifier(Protocol):
    """Sends alerts about runs, files and tables to people and programs (``lakegate.alerts``)."""

    def send(
        self, notice: Notice, *, alert: str | None = None, window_s: float | None = None
    ) -> Sequence[Notification]:
        """Send ``notice`` to every channel that subscribes to it, within the settings' time.

        Args:
            alert: Key of the notices that one message covers; by default those that say the same of the same tables.
            window_s: Seconds for which one message covers them; by default the settings'.

        Returns:
            The outcome for each channel. A message that can't be sent is an outcome, not an exception.
        """

    def send_counted(self) -> Sequence[Notification]:
        """Send the number of notices that earlier messages covered, once their time is over.

        Returns:
            The outcome of each message.
        """

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all.

        Raises:
            NotFoundError: When there is no such channel, or none at all.
        """


class Downstream(Protocol):
    """A system beyond the lake that learns what was published (``lakegate.downstream``).

    Events about one table come in the order of their commits, each at least once: one that was delivered may come
    again with the same ``event_id``, after a crash for instance. Nothing that an implementation does changes the
    outcome of a run.
    """

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Deliver one event; returning means that it arrived.

        Args:
            event: What happened, without any row of data.
            run: The run that did it, if the journal knows it. Its reports may hold example rows.

        Raises:
            DownstreamUnavailableError: When trying again later may help; any other exception is treated the same.
            DownstreamError: When it would fail again. It's given up at once, and an alert is sent.
        """

    def test(self) -> str:
        """Check that the system can be reached with its settings, changing nothing in it; return what was checked.

        Raises:
            LakegateError: When it can't.
        """


class Catalog(Protocol):
    """References, commits and table pointers (``lakegate.catalogs``).

    All methods raise :class:`~lakegate.errors.CatalogUnavailableError` when the catalog doesn't answer in time.
    """

    def identity(self) -> str | None:
        """Return what identifies this catalog, whatever its address; ``None`` when it has no such id."""

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
            AlreadyExistsError: When a reference of this name exists.
            NotFoundError: When ``source`` doesn't exist.
        """

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source``'s hash. Raises what :meth:`create_branch` does."""

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target``'s hash, if its head is still ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
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
            run_id: Yield only commits of this run: their ``lakegate.run-id`` property is this, or their
                ``lakegate.run-ids`` has it among others.
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
            NotFoundError: When ``ref`` or the commit doesn't exist, or nothing was committed by then.
        """

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table's state at ``ref.hash``."""

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return the state of ``table`` at ``ref.hash``; ``None`` when it doesn't exist there."""

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each of ``tables`` at ``ref.hash``, as :meth:`get_table` does, all in one request."""

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and the state of each of ``tables`` at its head, all in one request.

        Raises:
            NotFoundError: When there is no such reference.
        """

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit and return the branch at its new head.

        Raises:
            ConflictError: When a key that the request touches or relies on changed after ``request.base``.
            NotFoundError: When the branch doesn't exist.
            OutcomeUnknownError: When the request was sent and no answer came.
        """

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys whose state differs between two commits."""

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref`` (``main`` when ``None``), without the prefix."""

    def close(self) -> None:
        """Release connections. Idempotent."""


class CommitIndex(Protocol):
    """All commits of a branch up to its head, found without reading its history (``lakegate.journal.history``)."""

    def beginning(self, target: str, digits: str, *, limit: int) -> Sequence[str]:
        """Return commits whose hashes begin with ``digits``."""

    def at(self, target: str, time: datetime) -> str | None:
        """Return the newest commit that was made by ``time``, or ``None``."""

    def has(self, target: str, commit: str) -> bool:
        """Return whether ``commit`` is one of them."""


class TableReader(Protocol):
    """Table metadata without an engine (``lakegate.iceberg.reader``)."""

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshots of the table at ``pointer``."""

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return the table's snapshots, oldest first."""

    def schemas(self, pointer: TablePointer) -> Sequence[SchemaVersion]:
        """Return the schemas that the table has had up to ``pointer``, oldest first."""

    def require_loadable(self, pointer: TablePointer, branch: str) -> None:
        """Check that every reader can load the table at ``pointer`` on ``branch`` and sees the snapshot it names.

        Raises:
            InputError: When they can't, as with metadata that was made by hand.
        """

    def change(self, before: TablePointer | None, after: TablePointer | None, *, evolves: bool = False) -> TableChange:
        """Return what happened to a table between ``before`` and ``after``, ``None`` where it doesn't exist.

        Audit, publish, rebase and revert all decide by this. ``evolves`` tells an append that also added or widened
        columns from a rewrite.
        """

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""

    def has_other_specs(self, pointer: TablePointer) -> bool:
        """Return whether live data files at ``pointer`` are partitioned by another spec than the table's current one.

        Only manifest lists are read, so files that were deleted may count.
        """

    def layout(
        self, pointer: TablePointer, *, small_bytes: int, at_least: int, data_files: int = 0, delete_files: int = 0
    ) -> TableLayout:
        """Return how the files of the snapshot at ``pointer`` lie.

        Args:
            small_bytes: Files with fewer bytes are small.
            at_least: Small files are counted in partitions that have so many of them.
            data_files: A table with fewer data files than this, and fewer ...
            delete_files: ... delete files than this may be said to have no small files and no delete files.
        """

    def outdated_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> int:
        """Return how many snapshots :meth:`TableEditor.trimmed` would drop."""

    def read_rows(
        self,
        pointer: TablePointer,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows of the snapshot at ``pointer``, which holds few of them at a time.

        Args:
            columns: Columns to read, in this order; ``None`` for all.

        Raises:
            InputError: When a name, the filter or the limit is wrong, or the table can't be read without an engine.
        """

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added."""

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield the location of every file that the metadata at ``pointer`` needs: its own and all its snapshots'.

        Args:
            walked: Metadata files, manifest lists and manifests whose files were yielded before. They are skipped, and
                those that are walked to their end now are added. ``None`` skips nothing.

        Raises:
            LakegateError: When a file can't be read; what was yielded until then is incomplete.
        """

    def inspect(self, pointer: TablePointer, walked: set[str]) -> Iterator[NeededFile | Flaw]:
        """Yield each file that :meth:`reach` yields, and what is wrong with it by the metadata alone.

        What can't be read, because it's missing or damaged, is yielded as a flaw, and the rest is looked at all the
        same. What the current snapshot needs comes first.

        Args:
            walked: Metadata files, manifest lists and manifests that were looked at before, damaged ones among them.
                They are skipped, and those that are looked at now are added.

        Raises:
            ConfigurationError: When the store doesn't accept the credentials, or a file may not be read.
            SourceError: When the store refuses for another reason.
            RetryableError: When a file can't be read just now.
        """

    def footer_flaws(self, files: Sequence[NeededFile], *, pages: bool) -> Iterator[Flaw | None]:
        """Yield what a parquet file's footer or a deletion vector says otherwise than the metadata, or is unreadable.

        Raises:
            LakegateError: When a file may not be read, or its store doesn't serve it.
        """

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Return those of the files that don't exist.

        Raises:
            LakegateError: When the store doesn't say, for example without credentials.
        """


class TableEditor(Protocol):
    """Table changes that touch metadata only; no data file is read or written (``lakegate.iceberg.editor``).

    Each method writes new metadata next to the old and returns its location; nothing is visible before it is committed.
    """

    def replay(
        self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer, *, keep_row_ids: bool = False
    ) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``.

        The snapshots keep their ids, so that what is published is what was audited; the result carries
        ``onto.content_id`` and has the schema, the partition specs and the sort orders of ``onto``. ``keep_row_ids`` is
        for rows that were published with their ids and the numbers of their last changes (format version 3).

        Raises:
            NotReplayableError: When a snapshot did more than append, the table was replaced by another of its name, or
                the files no longer fit it: a column they hold was dropped, renamed or changed its type, one they lack
                is required, or their partition spec means something else there.
        """

    def replay_each(
        self,
        sources: Sequence[tuple[TablePointer, Sequence[int]]],
        onto: TablePointer,
        *,
        at_least: int = 0,
        keep_row_ids: bool = False,
    ) -> tuple[TablePointer, Mapping[int, LakegateError]]:
        """Append to ``onto`` what each of ``sources`` appended, one after the other; see :meth:`replay`.

        Args:
            sources: State and snapshots of each.
            onto: The state to append to.
            at_least: Number of its newest snapshots that the result lists in any case, besides the appended ones.
            keep_row_ids: See :meth:`replay`.

        Returns:
            The new state, and why what isn't in it was refused, by its place in ``sources``.
        """

    def misfit(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> str | None:
        """Return why :meth:`replay` would refuse what it's given; ``None`` if it wouldn't. Writes nothing."""

    def replay_rewrite(self, source: TablePointer, before: TablePointer, onto: TablePointer) -> TablePointer:
        """Replace in ``onto`` the data files that a compaction replaced on the way from ``before`` to ``source``.

        Raises:
            NotReplayableError: When it did anything else, or ``onto`` changed the files that it replaced.
        """

    def trimmed(
        self,
        pointer: TablePointer,
        *,
        at_least: int = 1,
        without: Collection[int] = (),
        before: datetime | None = None,
    ) -> TablePointer:
        """Return the same state with metadata that lists no more snapshots than it should; often ``pointer`` itself.

        Args:
            at_least: Number of the newest snapshots to keep in any case.
            without: Snapshots to drop in any case; not the current one.
            before: Drop snapshots from earlier than this, too, but for the newest ``at_least``.
        """

    def appended_without(
        self, pointer: TablePointer, snapshot_ids: Sequence[int], before: TablePointer | None, paths: Collection[str]
    ) -> TablePointer:
        """Return the table as if ``snapshot_ids`` had appended all of their data files but those at ``paths``, at once.

        Args:
            pointer: The state that the snapshots led to.
            snapshot_ids: The snapshots, oldest first, each of which appended.
            before: The state that they began with; ``None`` when they created the table.
            paths: Data files to leave out, as their manifest entries spell them.

        Raises:
            NotReplayableError: When a snapshot did more than append, or hasn't added one of the files.
        """

    def rewrite_manifests(self, pointer: TablePointer, summary: Mapping[str, str]) -> TablePointer:
        """List the same data files in fewer manifests, in one new snapshot; ``pointer`` itself if there are few.

        Raises:
            AuditFailedError: When the new manifests don't list the same files.
        """

    def can_have_fewer_manifests(self, pointer: TablePointer) -> bool:
        """Return whether :meth:`rewrite_manifests` would do anything."""

    def with_properties(self, pointer: TablePointer, properties: Mapping[str, str]) -> TablePointer:
        """Return the table with some of its properties set."""

    def following(self, pointer: TablePointer, now: TablePointer | None, *, by_sequence: bool = True) -> TablePointer:
        """Return the state at ``pointer``, to follow ``now``: no new row gets an id that one had (format version 3).

        Nor is one's last change numbered like an earlier one, unless appends are still to keep their numbers
        (``by_sequence``).
        """

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove exactly the data files at ``paths`` in one new snapshot (operation ``delete``), if there are any.

        Args:
            paths: Data files, as their manifest entries spell them.
            summary: Extra entries of the snapshot's summary.

        Raises:
            NotReplayableError: When one of them isn't a live data file of this state, or delete files apply to one.
        """


class FileStore(Protocol):
    """The warehouse's files, for garbage collection (``lakegate.iceberg.files``)."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below the folder ``prefix``, a URI, in no particular order, without holding them all."""

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, ignoring those that don't exist."""


class WarehouseFiles(FileStore, Protocol):
    """The same, for checkpoints of the history."""

    def read(self, path: str) -> bytes:
        """Return what a file holds.

        Raises:
            NotFoundError: When it doesn't exist.
            LakegateError: When it can't be read.
        """

    def write(self, path: str, content: bytes) -> None:
        """Write a file whose name says what it holds: all of it or nothing. One that exists holds the same."""


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

    def append(self, batch: Batch, target: WriteTarget, step: Step | None = None) -> None:
        """Append ``batch`` to ``target`` in one write, creating the table when ``target.create`` says so.

        Args:
            step: Gets the progress, in tasks.
        """

    def analyze(self, schema: Schema, predicates: Sequence[Any], queries: Sequence[str]) -> None:
        """Refuse SQL that can't be run on rows with the columns of ``schema``, as far as that shows without rows.

        Args:
            predicates: As for :meth:`count_failing`.
            queries: As for :meth:`count_query`.

        Raises:
            QueryError: When the engine refuses one of them.
        """

    def rewrite(self, batch: Batch, target: WriteTarget, mode: WriteMode, step: Step | None = None) -> None:
        """Write ``batch`` to ``target`` by a mode other than append, in one snapshot; else as :meth:`append`.

        Raises:
            InputError: When a key of an upsert is NULL or occurs twice; nothing is written then.
            QueryError: When the ``MERGE`` statement can't be run, or reads more than :meth:`used_by_merge` said.
        """

    def used_by_merge(self, sql: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Return the tables that a ``MERGE`` over a batch reads, and those it changes, by its text.

        Raises:
            QueryError: When it's another statement, or names anything but the branch's tables and ``batch``.
        """

    def count_failing(
        self,
        rows: AddedRows,
        predicates: Sequence[Any],
        *,
        key: IntegerKey | None = None,
        only: Mapping[int, str] | None = None,
    ) -> ScanResult:
        """Count rows for which each predicate is true, all in one aggregation over just ``rows``.

        Args:
            predicates: SQL as text, or a ``Column`` that a user's check made with :mod:`pyspark.sql.functions`.
            key: A key to prove unique on the way (:attr:`~lakegate.model.tables.ScanResult.is_unique`).
            only: By index of a predicate in SQL, another that each row meets for which it is true; where files' own
                metadata shows that there are none, their rows needn't be read for it.
        """

    def passing_texts(self, rows: AddedRows, asked: Sequence[tuple[str, str]]) -> Sequence[Collection[str]]:
        """Return values that some of ``rows`` have, for each column of text those for which a predicate is false.

        Args:
            asked: SQL of a column, and of a predicate that its value alone decides.

        Returns:
            For each column none where values hardly repeat.
        """

    def aggregate(self, rows: Rows, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
        """Return the number of rows and the values of aggregates in SQL over just ``rows``."""

    def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
        """Count the rows of a ``SELECT`` over ``rows``, which it calls ``batch`` or :data:`OWN_BATCH`.

        Args:
            computed: Whether to compute the values of the rows as well, so that one that can't be is an error.
        """

    def query_examples(self, rows: AddedRows, sql: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows of such a ``SELECT`` over ``rows``, as JSON-safe values."""

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        """Count rows that share their values in ``columns`` (none NULL) with another row."""

    def examples(self, rows: AddedRows, predicate: Any, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows for which ``predicate`` is true, as JSON-safe values, with their data file."""

    def duplicate_examples(self, rows: AddedRows, columns: Sequence[str], limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` keys that occur more than once, with their number of rows."""

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        """Count rows that share their ``columns`` (none NULL) with another row, of the batch or of ``others``.

        Args:
            columns: Key columns, which ``others`` have by the same names.
            others: Rows to look in, taken together; as little of them is read as their metrics allow.

        Returns:
            Two counts: all of these rows, each once, and those of them whose values occur in ``others``.
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

    def failing_files(self, rows: AddedRows, tests: Sequence[RowTest]) -> Mapping[str, FileCount]:
        """Return data file to its number of rows and how many of them fail ``tests``, in one pass."""

    def set_aside(self, rows: AddedRows, tests: Sequence[RowTest], target: WriteTarget, given: Provenance) -> None:
        """Append those of ``rows`` that fail one of ``tests`` to a quarantine table.

        Args:
            rows: The rows of data files that hold failing ones.
            target: The quarantine table: created with ``create``, else widened by columns that it lacks.
            given: What is written with each row.
        """

    def keep_others(self, rows: AddedRows, aside: AddedRows, target: WriteTarget) -> None:
        """Append those of ``rows`` that aren't among the rows ``aside`` of the quarantine table."""

    def transaction(self, branch: str, run_id: str) -> EngineTransaction:
        """Return a session that writes to ``branch`` for a run; every snapshot it makes carries the run's id."""

    def query(self, sql: str, ref: Ref) -> Any:
        """Return a Spark DataFrame of a query in which plain table names mean the tables at ``ref``.

        Raises:
            QueryError: When the query can't be analysed.
        """

    def read(self, wanted: Rows) -> Any:
        """Return a Spark DataFrame of rows, by the columns of their table."""

    def read_source(self, catalog: SourceCatalog, source: Source) -> Any:
        """Return a Spark DataFrame of a table of another system, or of a query over its tables.

        Raises:
            QueryError: When there is no such table, or the query can't be run.
            NotFoundError: When Spark doesn't find a class of the catalog or its driver.
        """

    def highest_mark(self, frame: Any, column: str, within: Callable[[str], str | None]) -> tuple[str, str | None]:
        """Return the type of a column of :meth:`read_source`, and its highest value as Spark writes it in UTC.

        Args:
            within: Returns, for its type, the rows to look among as a predicate in Spark SQL; ``None`` for all.

        Raises:
            InputError: When there is no such column, or it's NULL in some row, which would never be taken.
        """

    def compare(
        self, before: TableAt, after: TableAt, key: Sequence[str], *, renamed: Mapping[str, str]
    ) -> Sequence[Any]:
        """Return Spark DataFrames of the rows that differ between two states of a table.

        Rows are compared by all columns, each as often as it is there; a column that one state lacks is NULL there.

        Args:
            key: Columns that identify a row; none to compare whole rows.
            renamed: Columns of ``before`` that have another name in ``after``, and which.

        Returns:
            The rows added and those removed; and with a key, of each row that changed what it was and what it is, as
            the structs ``before`` and ``after``.
        """

    def fetch(self, frame: Any) -> pa.Table:
        """Run a DataFrame of :meth:`query` or :meth:`read` and return all its rows.

        Raises:
            QueryError: When the query fails on the data it reads.
        """

    def stream(self, frame: Any) -> Iterator[pa.RecordBatch]:
        """Run a DataFrame of :meth:`query` and yield its rows as they come. Raises what :meth:`fetch` does."""

    def cancel(self) -> None:
        """Stop whatever this engine is running for us. Best effort, never raises."""

    def reconnect(self) -> None:
        """Drop sessions whose server no longer answers; the next call opens new ones. Never raises."""

    def close(self) -> None:
        """End our session, not the engine. Idempotent."""


class EngineTransaction(Protocol):
    """Spark, bound to one branch: plain table names mean the branch's tables (``lakegate.spark.transaction``).

    Attributes:
        before_writing: Called with a table, and the columns of the rows, before rows that are given are written to it.
    """

    before_writing: Callable[[TableIdentifier, Schema], None]

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch."""

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> None:
        """Append a DataFrame, or what becomes an Arrow table, by column name; ``create`` says how to make the table.

        With ``fills``, fields of structs that the rows lack are NULL.
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
        """Update the rows whose ``keys`` match, insert the others; no error shows the values of ``masked`` columns.

        Raises:
            InputError: When a key is NULL, or two of the given rows have the same one.
        """

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        """Rewrite small data files, and those that deletes apply to, into larger ones with the same rows.

        Args:
            sort: Order of the rows in SQL, or ``zorder(a, b)``; ``None`` leaves them as they come.
            where: A validated condition; only files that may hold rows for which it's true are rewritten.
        """

    def fingerprint(
        self, table: TableIdentifier, *, by_partition: bool, row_ids: bool = False, at: str | None = None
    ) -> Mapping[str, Any]:
        """Return number and content hash of a table's rows, whatever their order, for each of its partitions.

        With ``row_ids``, a hash of their ids and last changes, too; ``None`` where a row has none yet (version 3).
        ``at`` is a commit in the history of the branch; by default, the branch is read as it is now.
        """

    def used_by(self, statement: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Return the names of the tables that ``statement`` reads, and of those it changes.

        They are names as Spark knows them: ``nyc.trips.files`` is one, and about ``nyc.trips``.
        """

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame."""

    def close(self) -> None:
        """End the session. Idempotent."""
