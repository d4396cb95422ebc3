"""Spark, through Spark Connect or a classic session, by DataFrame methods and SQL expressions both understand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakegate.engine.failures import translated
from lakegate.engine.keys import KeyLookup, require_columns, text_literal
from lakegate.engine.reader import read_as, read_batch, source_schema
from lakegate.engine.sessions import CATALOG, SessionFactory, end_session, is_connect, session_settings
from lakegate.model.batch import Batch
from lakegate.model.identifiers import quote
from lakegate.model.partitioning import PartitionTransform
from lakegate.model.refs import Ref, TableAt
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, CreateTable, Rows, ScanResult, WriteTarget
from lakegate.protocols import Step

if TYPE_CHECKING:
    import pyarrow as pa

    from lakegate.engine.transaction import SparkTransaction

FILE_COLUMN = "_file"
"""Iceberg's metadata column with the data file a row is in; examples carry it."""


class SparkEngine:
    """Implements :class:`lakegate.protocols.Engine`.

    Args:
        sessions: Makes sessions; see :mod:`lakegate.engine.sessions`.
        catalog_options: Options of the Spark catalog bound to a reference (``None``: the catalog's default).
        shares_files: Whether the engine sees this machine's files under the same paths.
        before_reading: Called with a batch that is about to be read, and whether a transaction is open; returns
            whether Spark was started anew for it.
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
        self._shares_files = shares_files
        self._before_reading = before_reading
        self._own: dict[str, Any] = {}
        self._sources: dict[Batch, tuple[Any, Schema]] = {}

    @property
    def shares_files(self) -> bool:
        """Whether the engine sees this machine's files under the same paths."""
        return self._shares_files

    @property
    def session(self) -> Any:
        """The session that writes and audits; its catalog is bound to ``main``, branches are named explicitly."""
        return self._session(None)

    def source_schema(self, batch: Batch) -> Schema:
        """Return the batch's schema as it would be written."""
        return self._source(batch)[1]

    def append(self, batch: Batch, target: WriteTarget, step: Step | None = None) -> None:
        """Append ``batch`` to ``target`` in one write; see :meth:`lakegate.protocols.Engine.append`."""
        with translated(f"writing {target.table} on branch {target.ref}", source=True), _progress(self.session, step):
            frame, schema = self._source(batch)
            if target.table_schema is not None:
                frame = read_as(self.session, batch, target.table_schema, frame=frame, source=schema)
            writer = frame.writeTo(target.table.sql(CATALOG, ref=target.ref))
            for key, value in target.snapshot_properties.items():
                writer = writer.option(f"snapshot-property.{key}", value)
            if target.create is None:
                writer.append()
            else:
                self._create(writer, target.create)

    def count_failing(self, rows: AddedRows, predicates: Sequence[str]) -> ScanResult:
        """Count the rows for which each predicate is true, in one aggregation."""
        counts = (f"count_if({predicate}) AS c{index}" for index, predicate in enumerate(predicates))
        with translated(f"auditing {rows.table} on branch {rows.ref}"):
            row = self._rows(rows).selectExpr("count(1) AS total", *counts).collect()[0]
        return ScanResult(total=row[0], failing=tuple(row[1:]))

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        """Count the rows that share their values in ``columns`` with another row; a NULL equals nothing."""
        keys = [f"k{index}" for index in range(len(columns))]
        present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        with translated(f"auditing {rows.table} on branch {rows.ref}"):
            row = (
                self._grouped(rows, columns)
                .selectExpr(
                    "coalesce(sum(count), 0) AS total",
                    f"coalesce(sum(CASE WHEN count > 1 AND {present} THEN count END), 0) AS duplicated",
                )
                .collect()[0]
            )
        return ScanResult(total=row[0], failing=(row[1],))

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` rows for which ``predicate`` is true, with the data file each is in."""
        with translated(f"fetching failing rows of {rows.table} on branch {rows.ref}"):
            found = self._rows(rows).where(predicate).selectExpr("*", FILE_COLUMN).limit(limit).collect()
        return tuple(_json_safe(row.asDict(recursive=True)) for row in found)

    def duplicate_examples(self, rows: AddedRows, columns: Sequence[str], limit: int) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` keys that occur more than once, most frequent first, with their ``rows``."""
        keys = [f"k{index}" for index in range(len(columns))]
        present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        named = (f"{key} AS {quote(column)}" for key, column in zip(keys, columns, strict=True))
        with translated(f"fetching failing rows of {rows.table} on branch {rows.ref}"):
            repeated = self._grouped(rows, columns).where(f"count > 1 AND {present}")
            found = repeated.orderBy("count", *keys, ascending=[False] + [True] * len(keys))
            result = found.selectExpr(*named, "count AS rows").limit(limit).collect()
        return tuple(_json_safe(row.asDict(recursive=True)) for row in result)

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        """Count the rows that share their key with ``others`` or each other, and those that do so with ``others``."""
        with translated(f"auditing {rows.table} on branch {rows.ref}"):
            return self._lookup(rows, columns, others, columns).count_known()

    def count_orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> ScanResult:
        """Count the rows whose key ``others`` lack."""
        with translated(f"auditing {rows.table} on branch {rows.ref}"):
            return self._lookup(rows, columns, others, other_columns).count_orphans()

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_known` counts first."""
        with translated(f"fetching failing rows of {rows.table} on branch {rows.ref}"):
            found = self._lookup(rows, columns, others, columns).known(limit)
        return tuple(_json_safe(row.asDict(recursive=True)) for row in found)

    def orphan_examples(
        self,
        rows: AddedRows,
        columns: Sequence[str],
        others: Sequence[Rows],
        other_columns: Sequence[str],
        limit: int,
    ) -> tuple[dict[str, Any], ...]:
        """Return up to ``limit`` of the rows that :meth:`count_orphans` counts."""
        with translated(f"fetching failing rows of {rows.table} on branch {rows.ref}"):
            found = self._lookup(rows, columns, others, other_columns).orphans(limit)
        return tuple(_json_safe(row.asDict(recursive=True)) for row in found)

    def transaction(self, branch: str, run_id: str) -> SparkTransaction:
        """Return what writes to ``branch`` for a run, in a session of its own."""
        from lakegate.engine.transaction import (  # noqa: PLC0415 - loads sqlglot
            SparkTransaction,
            transaction_settings,
        )

        settings = session_settings(self._catalog_options(Ref(name=branch, hash="", kind="branch")))
        session = self._sessions(transaction_settings(settings, run_id))
        key = f"transaction:{run_id}:{id(session)}"
        self._own[key] = session
        return SparkTransaction(session, branch, create=self._create, ended=lambda: self._own.pop(key, None))

    def query(self, sql: str, ref: Ref) -> Any:
        """Return a DataFrame of ``sql`` with plain table names read at ``ref``."""
        with translated("planning the query", query=True):
            session = self._session(ref)
            # Not catalog.setCurrentCatalog: on a classic session that asks the thread's active session, the user's.
            session.sql(f"SET CATALOG {CATALOG}")
            frame = session.sql(sql)
            frame.schema  # noqa: B018 - Connect plans lazily; a wrong query must fail here, with its own error
        return frame

    def fetch(self, frame: Any) -> pa.Table:
        """Return all rows of a DataFrame as an Arrow table."""
        with translated("running the query", query=True):
            table: pa.Table = frame.toArrow()
        return table

    def cancel(self) -> None:
        """Interrupt everything that runs in our sessions."""
        for session in tuple(self._own.values()):
            with suppress(Exception):
                session.interruptAll()

    def close(self) -> None:
        """End our sessions, not the engine."""
        for session in self._own.values():
            end_session(session)
        self._own.clear()
        self._sources.clear()

    def _session(self, ref: Ref | None) -> Any:
        key = "" if ref is None else f"{ref.kind}:{ref.name}@{ref.hash if ref.kind == 'detached' else ''}"
        if key not in self._own:
            self._own[key] = self._sessions(session_settings(self._catalog_options(ref)))
        return self._own[key]

    def _source(self, batch: Batch) -> tuple[Any, Schema]:
        if batch not in self._sources:
            if self._before_reading is not None and self._before_reading(batch, self._in_transaction):
                self.close()  # its sessions went with the Spark that was
            with translated(f"reading {batch.uris[0]}", source=True):
                frame = read_batch(self.session, batch)
                self._sources[batch] = (frame, source_schema(frame, batch))
        return self._sources[batch]

    @property
    def _in_transaction(self) -> bool:
        return any(key.startswith("transaction:") for key in self._own)

    def _lookup(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> KeyLookup:
        frames = [require_columns(self._rows(other), other, other_columns) for other in others]
        return KeyLookup(self._rows(rows), columns, frames, other_columns)

    def _rows(self, rows: Rows) -> Any:
        reader = self.session.read
        if isinstance(rows, TableAt):
            # Nessie's TableReference: table@reference#hash. Settles the commit, wherever the reference is by now.
            frame = reader.table(rows.table.sql(CATALOG, ref=f"{rows.ref}#{rows.hash}"))
            gone = ", ".join(text_literal(path) for path in rows.without)
            return frame.where(f"{FILE_COLUMN} NOT IN ({gone})") if gone else frame
        if rows.after_snapshot_id is not None:
            reader = reader.option("start-snapshot-id", str(rows.after_snapshot_id))
            reader = reader.option("end-snapshot-id", str(rows.snapshot_id))
        return reader.table(rows.table.sql(CATALOG, ref=rows.ref))

    def _grouped(self, rows: AddedRows, columns: Sequence[str]) -> Any:
        keys = [f"{quote(column)} AS k{index}" for index, column in enumerate(columns)]
        return self._rows(rows).selectExpr(*keys).groupBy(*(f"k{i}" for i in range(len(keys)))).count()

    def _create(self, writer: Any, create: CreateTable) -> None:
        writer = writer.using("iceberg").tableProperty("location", create.location)
        for key, value in create.properties.items():
            writer = writer.tableProperty(key, value)
        if create.partition_by:
            writer = writer.partitionedBy(*(self._transform(text) for text in create.partition_by))
        writer.create()

    def _transform(self, text: str) -> Any:
        if is_connect(self.session):
            from pyspark.sql.connect import functions  # noqa: PLC0415 - the kind must match the session's
            from pyspark.sql.connect.functions import partitioning  # noqa: PLC0415
        else:
            from pyspark.sql import functions  # noqa: PLC0415
            from pyspark.sql.functions import partitioning  # noqa: PLC0415
        transform = PartitionTransform.parse(text)
        column = functions.col(quote(transform.column))
        if transform.name == "identity":
            return column
        if transform.name == "bucket":
            return partitioning.bucket(transform.width, column)
        return getattr(partitioning, transform.name)(column)


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


def _json_safe(value: Any) -> Any:
    """Return a collected value in JSON's types: times in ISO 8601, decimals as text, bytes in hexadecimal."""
    if isinstance(value, Mapping):
        return {str(key): _json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
