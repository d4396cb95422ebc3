"""The Spark engine. It only uses DataFrame methods and SQL that Spark Connect and classic sessions both support."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lakegate.errors import SourceError
from lakegate.model.batch import Batch
from lakegate.model.identifiers import quote
from lakegate.model.quarantine import BatchRows, FailingCount, KeyTest, RowTest
from lakegate.model.refs import Ref, TableAt
from lakegate.model.request import WriteMode
from lakegate.model.schema import FILE_COLUMN, FOLDER_VALUES, MASK, POSITION_COLUMN, Schema, is_masked
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import OWN_BATCH, AddedRows, IntegerKey, Rows, ScanResult, WriteTarget
from lakegate.ports import Step
from lakegate.spark import quarantine
from lakegate.spark.dataframes import to_batches
from lakegate.spark.failures import spark_errors
from lakegate.spark.reader import cast_to, iceberg_schema, read_as, read_batch, read_placed, spark_ddl
from lakegate.spark.scans import (
    FOUND,
    KNOWN,
    ORPHAN,
    KeyLookup,
    aggregate,
    count,
    difference,
    difference_by_key,
    examples,
    filter_rows,
    free_names,
    nested_fields,
    path,
    require_columns,
    root,
    with_opaque,
    without_pushdown,
)
from lakegate.spark.sessions import (
    CATALOG,
    PREDICATE_SETTINGS,
    SessionFactory,
    disconnect,
    end_session,
    functions_for,
    is_alive,
    is_connect,
    plan_now,
    release_session,
    session_settings,
)
from lakegate.spark.writer import TableWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from lakegate.spark.transaction import SparkTransaction


_MOST_QUERY_SESSIONS = 32
"""Query sessions to keep open, besides those with a :class:`~lakegate.table.Query` in use."""
_MOST_TRIED = 100
"""Files of a failed write to read one by one, to find the one that failed."""
_MOST_SOURCES = 8
"""Batches to keep open: those of the current run, not all that a watch has ever ingested."""
_INTERRUPTED_WITHIN_S = 8.0
"""How long work may continue after an interrupt before we disconnect. Less than ``function.margin_s``."""
_CLOSING_S = 5.0


class SparkEngine:
    """Implements :class:`lakegate.ports.Engine`.

    Args:
        sessions: Creates sessions; see :mod:`lakegate.spark.sessions`.
        catalog_options: Returns the options of a Spark catalog bound to a ref (``None``: the catalog's default).
        shares_files: Whether the engine sees this machine's files under the same paths.
        before_reading: Called with a batch before it's read, and with whether a transaction is open. Returns whether
            it restarted Spark.
    """

    def __init__(
        self,
        sessions: SessionFactory,
        catalog_options: Callable[[Ref | None], Mapping[str, str]],
        *,
        shares_files: bool,
        before_reading: Callable[[Batch, bool], bool] | None = None,
    ) -> None:
        self._sessions = sessions
        self._catalog_options = catalog_options
        self.shares_files = shares_files
        self._before_reading = before_reading
        self._sessions_by_key: dict[str, Any] = {}
        self._abandoned: list[Any] = []
        self._frames: dict[str, WeakSet[Any]] = {}
        self._cancelled = (-math.inf, -math.inf)  # the times of the first and the last of successive cancel() calls
        self._sources: dict[Batch, tuple[Any, Schema]] = {}
        self._opening_lock = threading.RLock()
        self._properties_lock = threading.Lock()

    @property
    def _file(self) -> str:
        """SQL of the file that a row is in."""
        return FILE_COLUMN

    @property
    def session(self) -> Any:
        """The session for writes and audits. Its catalog is bound to ``main``; its SQL names branches explicitly."""
        return self._writing_session()

    def open_ahead(self, batch: Batch) -> None:
        """Connect and read the schema of ``batch`` in the background. Later calls wait for it, or try again."""
        # Outside the thread, because two threads must not create a catalog at once.
        settings = session_settings(self._catalog_options(None))

        def work() -> None:
            with suppress(Exception), self._opening_lock:
                self._writing_session(settings)
                self._source(batch)

        threading.Thread(target=work, name="lakegate-connect", daemon=True).start()

    def source_schema(self, batch: Batch) -> Schema:
        """Return the batch's schema as it would be written."""
        return self._source(batch)[1]

    def write(self, batch: Batch, target: WriteTarget, mode: WriteMode, step: Step | None = None) -> None:
        """Write ``batch`` to ``target`` in one snapshot."""
        try:
            self._write(batch, target, mode, step)
        except SourceError as error:
            raise self._naming_file(error, batch, target) from error

    def _write(self, batch: Batch, target: WriteTarget, mode: WriteMode, step: Step | None) -> None:
        with spark_errors(f"writing {target.table} on branch {target.ref}", source=True), _progress(self.session, step):
            frame, source = self._source(batch)
            writer = self._writer(target)
            writer.evolve(target.schema_changes)
            if mode.name == "upsert":
                self._upsert(batch, target, mode, writer, frame, source)
            else:
                write = getattr(writer, mode.name.replace("-", "_"))
                write(self._conform(batch, target, frame, source, wanted=source))

    def _naming_file(self, error: SourceError, batch: Batch, target: WriteTarget) -> SourceError:
        """Return the error with the file whose rows can't be written: the first that fails alone."""
        failing = batch.files[0] if len(batch.files) == 1 else None
        for file in batch.files if 1 < len(batch.files) <= _MOST_TRIED else ():
            part = batch.only((file,))
            try:
                with spark_errors(f"reading {file.uri}", source=True):
                    frame, own = read_batch(self.session, part)
                    self._conform(part, target, frame, own, wanted=own).write.format("noop").mode("overwrite").save()
            except SourceError:
                failing = file
                break
        if failing is None or failing.uri in error.message:
            return error
        return SourceError(
            f"{error.message} The file is {failing.uri}.",
            hint=error.hint,
            detail=error.detail,
            **{**error.context, "file": failing.uri},
        )

    def _writer(self, target: WriteTarget) -> TableWriter:
        return TableWriter(
            session=self.session,
            table=target.table,
            branch=target.ref,
            ref=target.ref,
            create=target.create,
            properties=target.snapshot_properties,
            lock=self._properties_lock,
        )

    def analyze(self, schema: Schema, predicates: Sequence[str], queries: Sequence[str]) -> None:
        """Refuse predicates and queries that Spark can't plan on rows with the columns of ``schema``."""
        with spark_errors("planning the checks", query=True):
            nulls = (f"CAST(NULL AS {spark_ddl(one.type)}) AS {quote(one.name)}" for one in schema.columns)
            frame = self.session.range(0).selectExpr(*nulls)
            plan_now(frame.selectExpr(*(f"IF({predicate}, 1, 0)" for predicate in predicates)))
            for sql in queries:
                with _view(without_pushdown(frame)) as view:
                    plan_now(self.session.sql(f"{_with_batch(view)} SELECT count(1) FROM ({sql}\n)"))  # noqa: S608

    def _upsert(
        self, batch: Batch, target: WriteTarget, mode: WriteMode, writer: TableWriter, frame: Any, source: Schema
    ) -> None:
        """Update, insert and delete a table's rows by key, according to the rows of a batch."""
        table = target.table_schema
        # Source columns that the table lacks: delete_when may use them.
        extra = (
            () if table is None or mode.delete_when is None else [c for c in source.columns if not table.find(c.name)]
        )
        if table is not None:
            wanted = Schema(columns=(*table.columns, *extra))
            frame = read_as(self.session, batch, wanted, frame=frame, source=source)
        columns = frame.columns[: len(frame.columns) - len(extra)]
        deletes = None
        if mode.delete_when is not None:
            (deletes,) = free_names("deletes", 1, taken=frame.columns)
            with spark_errors(f"evaluating {mode.delete_when!r}", query=True):
                flag = f"coalesce(({mode.delete_when}), false) AS {deletes}"
                frame = plan_now(frame.selectExpr(*map(quote, columns), flag))
        # Updated rows keep their values in columns that the batch lacks.
        changed = [name for name in columns if name not in mode.key and source.find(name) is not None]
        writer.upsert(frame, mode.key, changed, deletes=deletes, masked=target.masked)

    def count_failing(self, rows: AddedRows, predicates: Sequence[str], *, key: IntegerKey | None = None) -> ScanResult:
        """Count the rows for which each predicate is true in one aggregation, which also tests if ``key`` is unique."""
        with _auditing(rows):
            frame = self._rows(rows)
            others = [] if key is None else [self._within(one, key, frame) for one in key.others]
            return count(frame, predicates, key, others)

    def aggregate(self, rows: Rows, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
        """Return the number of rows and the values of aggregates."""
        with _auditing(rows):
            return aggregate(self._rows(rows), expressions)

    def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
        """Count the rows of a query over ``batch``, and those of ``batch``."""
        with _auditing(rows), _view(self._batch(rows)) as view:
            failing = f"SELECT count(1) FROM ({sql}\n)"  # noqa: S608 - validated, and in parentheses
            total = f"SELECT count(1) FROM {OWN_BATCH}"  # noqa: S608
            total, found = self.session.sql(f"{_with_batch(view)} SELECT ({total}), ({failing})").collect()[0]
            if found and computed:  # a count alone computes no values
                values = f"SELECT max(length(CAST(struct(*) AS STRING))) FROM ({sql}\n)"  # noqa: S608 - as above
                self.session.sql(f"{_with_batch(view)} {values}").collect()
        return ScanResult(total=total, failing=(found,))

    def query_examples(self, rows: AddedRows, sql: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows of a query over ``batch``."""
        with _fetching(rows), _view(self._batch(rows)) as view:
            frame = self.session.sql(f"{_with_batch(view)} SELECT * FROM ({sql}\n) LIMIT {limit:d}")  # noqa: S608
            names = [name.lower() for name in frame.columns]
            if len(set(names)) < len(names):  # a join of the batch with itself has each column twice
                numbered = enumerate(frame.columns)
                frame = frame.toDF(
                    *(f"__lakegate_{at}" if names.index(one.lower()) < at else one for at, one in numbered)
                )
            own = frame.select(*(quote(name) for name in frame.columns if not name.startswith("__lakegate")))
            return _shown_examples(own, rows)

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        """Count the rows that share their values in ``columns`` with another row. NULL never equals NULL."""
        duplicated = f"coalesce(sum(CASE WHEN count > 1 AND {_keys_present(columns)} THEN count END), 0)"
        with _auditing(rows):
            counts = self._grouped(rows, columns).selectExpr("coalesce(sum(count), 0)", duplicated)
            total, failing = counts.collect()[0]
        return ScanResult(total=total, failing=(failing,))

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows for which ``predicate`` is true, each with its data file."""
        with _fetching(rows):
            failing = filter_rows(self._rows(rows), predicate, is_measured=rows.is_measured)
            found = failing.selectExpr("*", f"{self._file} AS {FILE_COLUMN}").limit(limit)
            return _shown_examples(found, rows)

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        """Count the rows whose key is in ``others`` or twice in the batch, and those whose key is in ``others``."""
        with _auditing(rows):
            return self._lookup(rows, columns, others, columns).count(KNOWN, FOUND)

    def count_orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> ScanResult:
        """Count the rows whose key doesn't occur in ``others``."""
        with _auditing(rows):
            return self._lookup(rows, columns, others, other_columns).count(ORPHAN)

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that the first count of :meth:`count_known` counts."""
        with _fetching(rows):
            known = self._lookup(rows, columns, others, columns).rows(KNOWN, limit, file=self._file)
            return _shown_examples(known, rows)

    def orphan_examples(
        self,
        rows: AddedRows,
        columns: Sequence[str],
        others: Sequence[Rows],
        other_columns: Sequence[str],
        limit: int,
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_orphans` counts."""
        with _fetching(rows):
            orphans = self._lookup(rows, columns, others, other_columns).rows(ORPHAN, limit, file=self._file)
            return _shown_examples(orphans, rows)

    def count_failing_rows(self, rows: BatchRows, tests: Sequence[RowTest]) -> FailingCount:
        """Return how many of ``rows`` fail ``tests``, in one pass."""
        with _auditing(rows.staged):
            return quarantine.evaluate(self._placed(rows), tests, self._failing_keys).count()

    def quarantine_rows(self, rows: BatchRows, tests: Sequence[RowTest], target: WriteTarget) -> None:
        """Append the rows that fail one of ``tests`` to a quarantine table, with the reasons."""
        with spark_errors(f"writing {target.table} on branch {target.ref}"):
            placed = self._placed(rows)
            sources = None if rows.batch is None or rows.source else quarantine.source_files(placed, rows.batch)
            frame = quarantine.evaluate(placed, tests, self._failing_keys).failing(tests, rows, sources)
            writer = self._writer(target)
            if target.create is None:
                if target.table_schema is not None:
                    writer.evolve(quarantine.required_schema_changes(iceberg_schema(frame.schema), target.table_schema))
                frame = quarantine.align_to_table(frame, self.session.table(writer.name))
            writer.append(frame)

    def append_passing(self, rows: BatchRows, quarantined: AddedRows, target: WriteTarget) -> None:
        """Append the ``rows`` that aren't among ``quarantined``."""
        with spark_errors(f"writing {target.table} on branch {target.ref}"):
            writer = self._writer(target)
            writer.evolve(target.schema_changes)
            writer.append(quarantine.others(self._placed(rows), self._rows(quarantined), rows))

    def failing_by_file(
        self, batch: Batch, schema: Schema, tests: Sequence[RowTest]
    ) -> Sequence[Mapping[str, tuple[int, int]]]:
        """Return for each test the files with failing rows: their number, and the position of the first."""
        with spark_errors("looking for failing rows in the files"):
            found = quarantine.evaluate(read_placed(self.session, batch, schema), tests, self._failing_keys)
            return found.by_file(functions_for(self.session))

    def examples_in_file(
        self, rows: AddedRows, batch: Batch, schema: Schema, test: RowTest, file: str, limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return the first rows of a file that fail a test, each with its position."""
        with _fetching(rows):
            found = quarantine.evaluate(read_placed(self.session, batch, schema), (test,), self._failing_keys)
            first = found.frame.where(f"{found.fails} AND {found.file} = {sql_string(file)}")
            first = first.orderBy(found.position).limit(limit).withColumnRenamed(found.position, POSITION_COLUMN)
            return _shown_examples(first.drop(found.file, *found.flags), rows)

    def transaction(self, branch: str, run_id: str) -> SparkTransaction:
        """Open the transaction of a run on ``branch``, in its own session."""
        from lakegate.spark.transaction import SparkTransaction, transaction_settings

        settings = session_settings(self._catalog_options(Ref(name=branch, hash="", kind="branch")))
        session = self._open(transaction_settings(settings, run_id))
        key = f"transaction:{run_id}:{id(session)}"
        with _ended_on_error(session):
            ended = partial(self._sessions_by_key.pop, key, None)
            found = SparkTransaction(session, branch, ended=ended)
        self._sessions_by_key[key] = session
        return found

    @property
    def in_transaction(self) -> bool:
        """Whether this process has an open transaction, whose session must not end."""
        return any(key.startswith("transaction:") for key in self._sessions_by_key)

    def query(self, sql: str, ref: Ref) -> Any:
        """Return a DataFrame of ``sql``, in which plain table names mean the tables at the commit of ``ref``.

        The session's catalog is bound to the commit instead of a branch, so Iceberg refuses any change.
        """
        from lakegate.spark.guard import query_text  # sqlglot takes 0.4 s to import

        text = query_text(sql)
        with spark_errors("planning the query", query=True):
            session = self._query_session(ref)
            frame = plan_now(session.sql(text))
        self._frames.setdefault(_query_key(ref), WeakSet()).add(frame)
        return frame

    def read(self, wanted: Rows) -> Any:
        """Return a DataFrame of rows."""
        with spark_errors(f"reading {wanted.table} on {wanted.ref}", query=True):
            return self._rows(wanted)

    def compare(
        self, before: TableAt, after: TableAt, key: Sequence[str], *, renamed: Mapping[str, str]
    ) -> Sequence[Any]:
        """Return DataFrames of the rows added and removed between two states of a table and, with a key, changed."""
        with spark_errors(f"comparing {after.table} on {before.ref} and {after.ref}", query=True):
            old, new = self._rows(before), self._rows(after)
            if renamed:
                # A renamed column may have taken the name of a dropped one.
                taken = set(map(str.lower, renamed.values()))
                kept = (name for name in old.columns if name in renamed or name.lower() not in taken)
                old = old.selectExpr(*(f"{quote(name)} AS {quote(renamed.get(name, name))}" for name in kept))
            return difference_by_key(old, new, key) if key else (difference(new, old), difference(old, new))

    def fetch(self, frame: Any) -> pa.Table:
        """Return all rows of a DataFrame as an Arrow table."""
        import pyarrow as pa

        with spark_errors("running the query", query=True):
            schema, batches = to_batches(frame)
            return pa.Table.from_batches(batches, schema)

    def stream(self, frame: Any) -> Iterator[pa.RecordBatch]:
        """Return a DataFrame's rows as Arrow batches, streamed by Spark Connect, all at once by a classic session."""
        return to_batches(frame)[1]

    def cancel(self) -> None:
        """Interrupt everything that runs in our sessions.

        If the server doesn't answer, or keeps working, close the connection, so that callers fail instead of waiting.
        """
        now = time.monotonic()
        if now - self._cancelled[1] > _INTERRUPTED_WITHIN_S:
            self._cancelled = (now, now)
        self._cancelled = (self._cancelled[0], now)
        for key, session in tuple(self._sessions_by_key.items()):
            try:
                session.interruptAll()
                is_interrupted = now - self._cancelled[0] < _INTERRUPTED_WITHIN_S
            except Exception:  # noqa: BLE001 - any error means that the server wasn't reached
                is_interrupted = False
            if not is_interrupted and is_connect(session):
                self._abandon(key, session)

    def reconnect(self) -> None:
        """Drop sessions whose server no longer answers. Later calls open new ones."""
        for key, session in tuple(self._sessions_by_key.items()):
            if not is_alive(session):
                self._abandon(key, session)

    def close(self) -> None:
        """End our sessions. The engine can still be used, and opens new ones."""
        # A session may be opening in the background: wait for it, but not forever.
        is_locked = self._opening_lock.acquire(timeout=_CLOSING_S)
        try:
            for session in self._sessions_by_key.values():
                end_session(session)
            self._sessions_by_key.clear()
            self._frames.clear()
            self._sources.clear()
        finally:
            if is_locked:
                self._opening_lock.release()

    def _open(self, settings: Mapping[str, str], *, catalog: str | None = None) -> Any:
        session = self._sessions(settings)
        while self._abandoned:
            # Abandoned work would occupy Spark's cores until it's done.
            release_session(self._abandoned.pop(), through=session)
        if catalog is not None:
            with _ended_on_error(session):
                # catalog.setCurrentCatalog would use the thread's active session on classic Spark: the user's.
                session.sql(f"SET CATALOG {quote(catalog)}")
        return session

    def _abandon(self, key: str, session: Any) -> None:
        if self._sessions_by_key.get(key) is session:  # another thread may have ended or replaced it meanwhile
            self._sessions_by_key.pop(key, None)
            self._frames.pop(key, None)
            self._sources.clear()  # DataFrames are useless without their session
        disconnect(session)
        self._abandoned.append(session)

    def _writing_session(self, settings: Mapping[str, str] | None = None) -> Any:
        with self._opening_lock:
            if "" not in self._sessions_by_key:
                known = settings or session_settings(self._catalog_options(None))
                self._sessions_by_key[""] = self._open({**known, **PREDICATE_SETTINGS})
            return self._sessions_by_key[""]

    def _query_session(self, ref: Ref) -> Any:
        key = _query_key(ref)
        session = self._sessions_by_key.pop(key, None)
        if session is None:
            open_queries = [known for known in self._sessions_by_key if known.startswith("query:")]
            for known in open_queries[: max(0, len(open_queries) - _MOST_QUERY_SESSIONS + 1)]:
                if not self._frames.get(known):  # the others are still being read
                    self._frames.pop(known, None)
                    end_session(self._sessions_by_key.pop(known))
            pinned = ref.model_copy(update={"kind": "detached"})
            # Nothing changes at a commit, and the guard refuses tables of other ones. Spark would ask six times.
            options = {**self._catalog_options(pinned), "cache-enabled": "true"}
            session = self._open(session_settings(options), catalog=CATALOG)
        self._sessions_by_key[key] = session  # moved to the end: the least recently used one is first
        return session

    def _source(self, batch: Batch) -> tuple[Any, Schema]:
        with self._opening_lock:
            if batch not in self._sources:
                if self._before_reading is not None and self._before_reading(batch, self.in_transaction):
                    self.close()  # the sessions ended with the old Spark
                with spark_errors(f"reading {batch.uris[0]}", source=True):
                    self._sources[batch] = read_batch(self.session, batch)
                for earlier in list(self._sources)[:-_MOST_SOURCES]:
                    del self._sources[earlier]
            return self._sources[batch]

    def _conform(self, batch: Batch, target: WriteTarget, frame: Any, source: Schema, *, wanted: Schema) -> Any:
        if target.table_schema is None:  # files may have the same columns in another order
            return frame if source == wanted else cast_to(wanted, frame, source)
        return read_as(self.session, batch, target.table_schema, frame=frame, source=source)

    def _lookup(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> KeyLookup:
        batch = self._rows(rows.model_copy(update={"where": None}))
        frames = [self._others(other, other_columns, batch, is_own=other.table == rows.table) for other in others]
        return KeyLookup(_matching(batch, rows), columns, frames, other_columns, is_measured=rows.is_measured)

    def _others(self, rows: Rows, columns: Sequence[str], batch: Any, *, is_own: bool) -> Any:
        """Return the rows to look keys up in, as a DataFrame.

        Earlier rows of the batch's own table may lack columns of the key or the filter, which are NULL then.
        """
        frame = self._rows(rows.model_copy(update={"where": None}))
        if isinstance(rows, AddedRows) and not rows.is_measured:
            frame = without_pushdown(frame, is_measured=False)
        if is_own and (rows.where is not None or (isinstance(rows, TableAt) and rows.lacks)):
            # Only these columns: others may have types whose values can't be united, such as lists of evolved structs.
            used = {root(column, batch.columns).lower() for column in columns}
            text = (rows.where or "").lower()
            used |= {name.lower() for name in batch.columns if name.lower().partition("`")[0] in text}
            own, frame = (
                one.selectExpr(*(quote(name) for name in one.columns if name.lower() in used)) for one in (batch, frame)
            )
            frame = own.limit(0).unionByName(frame, allowMissingColumns=True)
        return _matching(require_columns(frame, rows, columns), rows)

    def _within(self, rows: Rows, key: IntegerKey, batch: Any) -> Any:
        return self._others(rows, key.columns, batch, is_own=True).where(key.within)

    def _placed(self, rows: BatchRows) -> Any:
        """Return rows, each with its file and its position there."""
        if rows.batch is None:
            return self._rows(rows.staged).selectExpr("*", FILE_COLUMN, POSITION_COLUMN)
        self._source(rows.batch)  # makes the files readable
        return read_placed(self.session, rows.batch, rows.schema)

    def _failing_keys(self, test: KeyTest) -> tuple[Any, Sequence[str]]:
        lookup = self._lookup(test.rows, test.columns, test.others, test.other_columns or test.columns)
        return lookup.keys(ORPHAN if test.orphans else KNOWN)

    def _rows(self, rows: Rows) -> Any:
        reader = self.session.read
        if isinstance(rows, TableAt):
            # Nessie's TableReference, table@reference#hash, pins the commit even if the reference moves.
            frame = reader.table(rows.table.sql(CATALOG, ref=f"{rows.ref}#{rows.hash}"))
            gone = ", ".join(sql_string(path) for path in rows.without)
            frame = frame.where(f"{FILE_COLUMN} NOT IN ({gone})") if gone else frame
            return _matching(with_opaque(frame, rows.opaque), rows)
        ref = rows.ref if rows.hash is None else f"{rows.ref}#{rows.hash}"
        if rows.after_snapshot_id == rows.snapshot_id:  # Iceberg refuses to read between a snapshot and itself
            return reader.table(rows.table.sql(CATALOG, ref=ref)).where("FALSE")
        if rows.after_snapshot_id is not None:
            reader = reader.option("start-snapshot-id", str(rows.after_snapshot_id))
            reader = reader.option("end-snapshot-id", str(rows.snapshot_id))
        # Iceberg would answer count, min and max from manifests, whose numbers are only claims if others wrote them.
        reader = reader.option("aggregate-push-down-enabled", "false")
        return _matching(reader.table(rows.table.sql(CATALOG, ref=ref)), rows)

    def _batch(self, rows: AddedRows) -> Any:
        """Return rows for queries whose filters mustn't skip any because of wrong metrics."""
        return without_pushdown(self._rows(rows), is_measured=rows.is_measured)

    def _grouped(self, rows: AddedRows, columns: Sequence[str]) -> Any:
        frame = self._rows(rows)
        keys = {f"k{index}": path(column, frame.columns) for index, column in enumerate(columns)}
        return frame.selectExpr(*(f"{column} AS {key}" for key, column in keys.items())).groupBy(*keys).count()


@contextmanager
def _ended_on_error(session: Any) -> Iterator[None]:
    """End a new session if the body fails, for example because the catalog is unavailable."""
    try:
        yield
    except BaseException:
        end_session(session)
        raise


def _shown_examples(frame: Any, rows: AddedRows) -> tuple[dict[str, Any], ...]:
    return examples(select_shown(frame, rows))


def select_shown(frame: Any, rows: AddedRows) -> Any:
    """Return a DataFrame of the columns that examples show, with masked values replaced before they leave Spark.

    These are the values that :func:`lakegate.model.schema.masked_row` replaces.
    """
    available = frame.columns if rows.shown else []
    if len(available) > len(rows.shown):  # a user's query may have other columns than the table
        wanted = [one for one in (*rows.shown, FILE_COLUMN) if one in available] or available[:1]
        frame = frame.select(*map(quote, wanted))
    if not rows.masked:
        return frame
    columns = (
        f"'{MASK}' AS {quote(field.name)}"
        if field.name != POSITION_COLUMN and is_masked(rows.masked, field.name, nested_fields(field.dataType))
        else f"regexp_replace({FILE_COLUMN}, {sql_string(FOLDER_VALUES)}, '$1{MASK}') AS {FILE_COLUMN}"
        if field.name == FILE_COLUMN
        else quote(field.name)
        for field in frame.schema.fields
    )
    return frame.selectExpr(*columns)


@contextmanager
def _view(frame: Any) -> Iterator[str]:
    """Register rows as a temporary view for the time of the body, and yield its name."""
    name = f"__lakegate_batch_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        with suppress(Exception):  # the session may be gone, and the view with it
            frame.sparkSession.catalog.dropTempView(name)


def _with_batch(view: str) -> str:
    """Return the ``WITH`` clause that names the rows of ``view`` as users' and our own queries do."""
    return f"WITH batch AS (SELECT * FROM {view}), {OWN_BATCH} AS (SELECT * FROM {view})"  # noqa: S608 - our own name


def _matching(frame: Any, rows: Rows) -> Any:
    if rows.where is None:
        return frame
    return filter_rows(frame, rows.where, is_measured=isinstance(rows, TableAt) or rows.is_measured)


def _auditing(rows: Rows) -> AbstractContextManager[None]:
    return spark_errors(f"auditing {rows.table} on branch {rows.ref}")


def _fetching(rows: AddedRows) -> AbstractContextManager[None]:
    return spark_errors(f"fetching failing rows of {rows.table} on branch {rows.ref}")


def _keys_present(columns: Sequence[str]) -> str:
    return " AND ".join(f"k{index} IS NOT NULL" for index in range(len(columns)))


def _query_key(ref: Ref) -> str:
    return f"query:{ref.name}@{ref.hash}"


@contextmanager
def _progress(session: Any, step: Step | None) -> Iterator[None]:
    if step is None or not is_connect(session):
        yield
        return

    def report(stages: Any, **_: object) -> None:
        known = list(stages or ())
        if known:
            step.progress(sum(s.num_completed_tasks for s in known), sum(s.num_tasks for s in known), "tasks")

    session.registerProgressHandler(report)
    try:
        yield
    finally:
        session.removeProgressHandler(report)
