"""Tables as read and as written to, and the metrics of their data files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.schema import Column, Schema, SchemaChange, is_masked

ChangeKind = Literal["append", "evolve", "metadata", "expire", "rewrite", "create", "drop"]
"""What happened to a table between two of its states; see :class:`TableChange`."""


RowCount: TypeAlias = tuple[int | None, int | None]
"""How many rows a table has, and how many at most: its data files' rows, deleted ones among them."""


OWN_BATCH = "__lakegate_batch"
"""What lakegate's own queries call audited rows: a struct may be called ``batch``, as users' queries call them."""


class Snapshot(Value):
    """One snapshot of a table (Iceberg spec, "Snapshots")."""

    snapshot_id: int
    parent_id: int | None
    time: datetime
    operation: str | None
    summary: dict[str, str] = Field(default_factory=dict)


class TableChange(Value):
    """What happened to a table between two of its states, by its lineage and its metadata.

    - ``append``: the same table, defined as before, with rows on top of the ones it had, and nothing else;
    - ``evolve``: as ``append``, but it got columns that can be NULL on the way, or columns of a wider type;
    - ``create``: a table that wasn't there, and whose snapshots, if any, all append, beginning with nothing;
    - ``metadata``: the same snapshots; the schema, partitioning, sort order or properties differ;
    - ``expire``: the same state of the same table; it only forgot older snapshots;
    - ``drop``: the table was dropped;
    - ``rewrite``: anything else, such as an overwrite, a table that was replaced, or one that was rolled back.

    Attributes:
        snapshots: From the one after the current snapshot before up to the current one after, oldest first. Empty when
            the one doesn't descend from the other, or what lies between isn't known any more.
        written: All snapshots that the table has after it and didn't have before, oldest first.
        parent_snapshot_id: The current snapshot before; ``None`` for a table without one.
        rows_added: Rows added on the way; ``None`` when that isn't known.
        rows_removed: Rows removed on the way; ``None`` when that isn't known.
        reason: Why this is neither an ``append`` nor a ``create``, in words that follow "because".
        refs: Iceberg's own branches and tags inside the table that name other snapshots than the current one, which it
            didn't have before: rows that no check reads.
    """

    kind: ChangeKind
    snapshots: tuple[Snapshot, ...] = ()
    written: tuple[Snapshot, ...] = ()
    parent_snapshot_id: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    reason: str | None = None
    refs: tuple[str, ...] = ()

    @property
    def only_adds(self) -> bool:
        """Whether the rows added are all that changed, so that they can be replayed alone."""
        return self.kind in {"append", "create"}

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows that were there are the same as before, so that those added can be audited alone."""
        return self.only_adds or self.kind == "evolve"

    @property
    def standing(self) -> tuple[Snapshot, ...]:
        """The snapshots that what the table holds now may come from.

        Not what was rolled back. For a table that was replaced, all written ones.
        """
        return self.snapshots or (self.written if self.rows_added is None else ())

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of :attr:`snapshots`."""
        return tuple(snapshot.snapshot_id for snapshot in self.snapshots)


class SchemaVersion(Value):
    """One of the schemas that a table has had.

    Attributes:
        schema_id: Its id in the table's metadata.
        field_ids: Id of each column: what a column keeps when it's renamed.
        since: Time of the first snapshot written with it; ``None`` if none is known.
        run_id: The run that wrote that snapshot.
    """

    schema_id: int
    table_schema: Schema
    field_ids: tuple[int, ...]
    since: datetime | None = None
    run_id: str | None = None

    @property
    def by_id(self) -> dict[int, Column]:
        """The columns by their ids."""
        return dict(zip(self.field_ids, self.table_schema.columns, strict=True))


DELETING_PROPERTIES = frozenset({"gc.enabled", "write.metadata.delete-after-commit.enabled"})
"""Properties by which Spark deletes files of a table, even ones that other branches need."""


def is_on(properties: Mapping[str, Any], key: str) -> bool:
    """Return whether a table's property is ``true`` as Iceberg reads it."""
    return str(properties.get(key, "")).lower() == "true"


class TableMetadata(Value):
    """A table at one commit, read from its metadata file."""

    table: TableIdentifier
    metadata_location: str
    location: str
    table_schema: Schema
    partition_by: tuple[str, ...]
    """Partition transforms as text: ``days(pickup)``, ``region``."""
    properties: dict[str, Any] = Field(default_factory=dict)
    snapshot: Snapshot | None
    """The current snapshot; ``None`` for a table never written to."""
    format_version: int = 2
    uuid: str | None = None
    """The table over its whole life: another one of the same name has another."""
    updated_at: datetime | None = None
    """When it was written, by its writer's clock."""

    @property
    def rows(self) -> int | None:
        """Number of rows; ``None`` where the snapshot's summary doesn't prove one.

        It counts the rows of data files. With delete files, only reading counts them: two of them may hit one
        row, or none.
        """
        return self.rows_at_most if self._total("total-delete-files") == 0 else None

    @property
    def rows_at_most(self) -> int | None:
        """Number of rows in data files, deleted ones among them; ``None`` when the summary lacks it."""
        return self._total("total-records")

    @property
    def data_files(self) -> int | None:
        """Number of data files by the snapshot's summary."""
        return self._total("total-data-files")

    @property
    def size_bytes(self) -> int | None:
        """Bytes in data files by the snapshot's summary."""
        return self._total("total-files-size")

    def _total(self, key: str) -> int | None:
        if self.snapshot is None:
            return 0
        value = self.snapshot.summary.get(key)
        return None if value is None else int(value)


class AddedRows(Value):
    """The rows of a table on a run's branch that batch-scope checks look at: those it added, or all of them.

    Rows of snapshots after ``after_snapshot_id`` (all rows of the table when ``None``) up to and including
    ``snapshot_id``, which is current at commit ``hash`` of the branch (``None``: at its head). ``one_by_one`` has the
    engine read row by row, which is slower, and stops between two rows when it is cancelled. With ``where``, a
    validated predicate, only rows for which it is true. ``masked`` are patterns of columns whose values no audit reads
    out of the engine, ``shown`` the columns that examples have; none means all.
    """

    table: TableIdentifier
    ref: str
    after_snapshot_id: int | None
    snapshot_id: int
    hash: str | None = None
    one_by_one: bool = False
    where: str | None = None
    masked: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def masks(self, column: str, fields: Iterable[Sequence[str]] = ()) -> bool:
        """Return whether a column's values are masked; arguments as of :func:`~lakegate.model.schema.is_masked`."""
        return is_masked(self.masked, column, fields)


Rows: TypeAlias = AddedRows | TableAt
"""Rows to look in: what a run added, or all rows of a table at a commit."""


class StoredFile(Value):
    """A file in the warehouse: its URI, its size in bytes and when it was last written."""

    path: str
    size_bytes: int
    modified_at: datetime


class CreateTable(Value):
    """How to create a table that doesn't exist yet.

    Attributes:
        location: Folder for the table's files; a new one for every table ever created.
        partition_by: Partition transforms, such as ``days(pickup)``.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)


class WriteTarget(Value):
    """Where a batch is appended, and what its snapshot says of it.

    Attributes:
        schema: Columns of the existing table that the batch is cast to; ``None`` when the table is created.
        schema_changes: What to change of the existing table's columns before that.
        create: How to create the table; ``None`` when it exists.
        snapshot_properties: Extra entries of the snapshot's summary.
        in_order: Whether rows are written file by file, in their order, as far as the table's layout leaves them so.
        masked: Patterns of columns whose values aren't in messages.
    """

    table: TableIdentifier
    ref: str
    table_schema: Schema | None
    schema_changes: tuple[SchemaChange, ...] = ()
    create: CreateTable | None = None
    snapshot_properties: dict[str, str] = Field(default_factory=dict)
    in_order: bool = False
    masked: tuple[str, ...] = ()


class IntegerKey(Value):
    """Columns of a key, and SQL that makes one ``BIGINT`` of them.

    Different keys usually make different integers: as many integers as keys prove that no key occurs twice. They lie
    close together, and are NULL where a column is; but for a hash, which is asked for by itself, and whose values are
    grouped in ``hash_parts``.
    ``is_ordered`` says that most files hold ranges of keys of their own, as they do when keys come in order,
    ``is_dense`` that a good part of the integers between them are keys.
    With ``others``, rows of the same table that hold none of the keys either; those with one are all ``within`` that
    predicate.
    """

    columns: tuple[str, ...]
    sql: str
    is_ordered: bool = False
    is_dense: bool = False
    hash_parts: int = 0
    others: tuple[Rows, ...] = ()
    within: str = "TRUE"

    @property
    def is_hash(self) -> bool:
        """Whether it's a hash, which different keys may share."""
        return self.hash_parts > 0


class ScanResult(Value):
    """Counts of one pass: rows read, and failing rows for each predicate in order.

    ``is_unique`` says that no key occurs twice, in the key's other rows included; ``None`` that this isn't known, or
    that nobody asked.
    """

    total: int
    failing: tuple[int, ...]
    is_unique: Literal[True] | None = None


# Plain dataclasses, not values: data files are read by the ten thousand and never stored.


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Metrics of one column in one data file (Iceberg spec, "Manifests", ``data_file``).

    A ``None`` count is *unknown*, never zero. Bounds are decoded Python values; they may be wider than the data, and
    those of text and binary columns may be cut short. ``size_bytes`` is what the column takes in the file.
    """

    value_count: int | None = None
    null_count: int | None = None
    nan_count: int | None = None
    lower: Any = None
    upper: Any = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as its manifest entry describes it. ``size_bytes`` is the file's length in bytes."""

    path: str
    rows: int
    size_bytes: int
    partition: Mapping[str, Any] = field(default_factory=dict)
    """Partition field name to value; only fields with an *identity* transform are trustworthy evidence of values."""
    partition_sources: Mapping[str, str] = field(default_factory=dict)
    """Partition field name to the path of the column that it's made of, which a renamed column's field doesn't show."""
    identity_values: Mapping[str, Any] = field(default_factory=dict)
    """Column name to the single value all the file's rows have, known from identity partitioning."""
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    """Column name (as the schema of the snapshot has it) to metrics; only top-level primitive columns."""


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """The data files that certain snapshots added, and whether that is all they did.

    ``complete`` is false when the evidence may not describe the added rows exactly: a delete file was added, a data
    file was removed, or the summary's ``added-records`` disagrees with the entries.
    """

    files: tuple[DataFile, ...]
    complete: bool

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for file in self.files)
