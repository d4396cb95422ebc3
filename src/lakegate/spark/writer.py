"""Write DataFrames to a table of a branch. Each write of an ingest, a quarantine and a transaction ends here."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from lakegate.errors import InputError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.schema import MASK, PartitionTransform, SchemaChange, is_masked
from lakegate.model.tables import CreateTable
from lakegate.model.words import counted
from lakegate.spark.reader import spark_ddl
from lakegate.spark.scans import collect_rows
from lakegate.spark.sessions import CATALOG, SNAPSHOT_PROPERTY, always_true, functions_for

_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class TableWriter:
    """Writes to one table, which it creates if ``create`` says how. There's a method for each write mode.

    Attributes:
        session: The Spark session.
        branch: The branch.
        ref: The branch, if the session's catalog isn't bound to it.
        properties: Properties of the snapshots, beside those that the session's settings add.
        lock: Held while such properties are in the session's settings.
    """

    session: Any
    table: TableIdentifier
    branch: str
    ref: str | None = None
    create: CreateTable | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return self.table.sql(CATALOG, ref=self.ref)

    def evolve(self, changes: Sequence[SchemaChange]) -> None:
        """Add and widen columns."""
        parts = [(".".join(map(quote, part.path)), part) for one in changes for part in one.parts()]
        added = [f"{name} {spark_ddl(part.other)}" for name, part in parts if part.one is None and part.other]
        if added:
            self.session.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({', '.join(added)})")
        for name, part in parts:
            if part.one is not None and part.other is not None:
                self.session.sql(f"ALTER TABLE {self.name} ALTER COLUMN {name} TYPE {spark_ddl(part.other)}")

    def append(self, frame: Any) -> None:
        """Append rows by column name."""
        self._write(frame, lambda writer: writer.append())

    def overwrite(self, frame: Any) -> None:
        """Replace all rows, without replacing the table."""
        self._write(frame, lambda writer: writer.overwrite(always_true(self.session)))

    def replace_partitions(self, frame: Any) -> None:
        """Replace the partitions that the rows are in."""
        self._write(frame, lambda writer: writer.overwritePartitions())

    def upsert(
        self,
        frame: Any,
        keys: Sequence[str],
        changed: Sequence[str],
        *,
        deletes: str | None = None,
        masked: Sequence[str] = (),
    ) -> None:
        """Update the columns ``changed`` where the keys match, and insert the other rows.

        Args:
            deletes: A column that is true in rows that delete the row with their key, and isn't written.
            masked: Patterns of columns whose values must not be shown.

        Raises:
            InputError: When a key is NULL or occurs twice; it shows examples.
        """
        self._require_unique(frame, keys, masked)
        if self.create is not None:
            self._write(frame if deletes is None else frame.where(f"NOT {deletes}").drop(deletes), lambda _: None)
            return
        view = f"lakegate_rows_{uuid.uuid4().hex}"
        columns = [name for name in frame.columns if name != deletes]
        frame.createOrReplaceTempView(view)
        try:
            with self._with_properties():
                self.session.sql(_merge(self.name, view, columns, keys, changed, deletes))
        finally:
            with suppress(Exception):
                self.session.catalog.dropTempView(view)

    def _write(self, frame: Any, finish: Callable[[Any], None]) -> None:
        writer = frame.writeTo(self.name)
        for key, value in self.properties.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        if self.create is None:
            finish(writer)
            return
        writer = writer.using("iceberg").tableProperty("location", self.create.location)
        for key, value in self.create.properties.items():
            writer = writer.tableProperty(key, value)
        if self.create.partition_by:
            writer = writer.partitionedBy(*(self._transform(text) for text in self.create.partition_by))
        writer.create()

    def _transform(self, text: str) -> Any:
        functions = functions_for(self.session)
        transform = PartitionTransform.parse(text)
        column = functions.col(quote(transform.column))
        if transform.name == "identity":
            return column
        if transform.name == "bucket":
            return functions.partitioning.bucket(transform.width, column)
        return getattr(functions.partitioning, transform.name)(column)

    @contextmanager
    def _with_properties(self) -> Iterator[None]:
        """Add the properties to the snapshots that SQL creates in the session.

        Only session settings can do that. DataFrame writes have their own properties, which take precedence. A separate
        session, as for transactions, would make Spark recompile all generated code.
        """
        settings = {f"{SNAPSHOT_PROPERTY}{key}": value for key, value in self.properties.items()}
        with self.lock:
            for key, value in settings.items():
                self.session.conf.set(key, value)
            try:
                yield
            finally:
                for key in settings:
                    with suppress(Exception):  # the session may be gone
                        self.session.conf.unset(key)

    def _require_unique(self, frame: Any, keys: Sequence[str], masked: Sequence[str]) -> None:
        """Check that the keys of a frame are unique and not NULL."""
        aliases = [f"k{index}" for index in range(len(keys))]
        null = " OR ".join(f"{alias} IS NULL" for alias in aliases)
        columns = (f"{quote(key)} AS {alias}" for key, alias in zip(keys, aliases, strict=True))
        grouped = frame.selectExpr(*columns).groupBy(*aliases).count()
        wrong = [tuple(row.values()) for row in collect_rows(grouped.where(f"count > 1 OR {null}").limit(_EXAMPLES))]
        if not wrong:
            return
        has_null = any(value is None for row in wrong for value in row[:-1])
        hidden = [is_masked(masked, key) for key in keys]
        shown = (
            [
                "NULL" if one is None else MASK if hides else str(one)
                for one, hides in zip(row[:-1], hidden, strict=True)
            ]
            for row in wrong
        )
        examples = ", ".join(
            f"({', '.join(values)}) in {counted(row[-1], 'row')}" for values, row in zip(shown, wrong, strict=True)
        )
        what = "is NULL" if has_null else "isn't unique"
        named = ", ".join(f"'{key}'" for key in keys)
        raise InputError(
            f"The key {named} {what} in the rows given for {self.table} on branch {self.branch}: {examples}.",
            hint="Nothing was written. Drop these rows, or keep one row per key.",
            table=str(self.table),
            branch=self.branch,
        )


def _merge(
    table: str, view: str, columns: Sequence[str], keys: Sequence[str], changed: Sequence[str], deletes: str | None
) -> str:
    same = " AND ".join(f"target.{quote(key)} = source.{quote(key)}" for key in keys)
    sets = ", ".join(f"target.{quote(name)} = source.{quote(name)}" for name in changed)
    delete = "" if deletes is None else f"WHEN MATCHED AND source.{deletes} THEN DELETE "
    update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
    new = "" if deletes is None else f"AND NOT source.{deletes} "
    values = ", ".join(f"source.{quote(name)}" for name in columns)
    insert = f"WHEN NOT MATCHED {new}THEN INSERT ({', '.join(map(quote, columns))}) VALUES ({values})"  # noqa: S608 - all quoted
    return f"MERGE INTO {table} AS target USING {view} AS source ON {same} {delete}{update}{insert}"
