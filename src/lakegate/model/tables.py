"""Tables as read and as written to, and the metrics of their data files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.schema import Column, Schema, SchemaChange

ChangeKind = Literal["append", "evolve", "metadata", "expire", "rewrite", "create", "drop"]
"""What happened to a table between two of its states; see :class:`TableChange`."""

RowCount: TypeAlias = tuple[int | None, int | None]
"""A table's exact number of rows, if known, and an upper bound: all rows in data files, deleted ones included."""

OWN_BATCH = "__lakegate_batch"
"""Name of the audited rows in lakegate's own queries. Users call them ``batch``, but a column may have that name."""

REPLACE: Final = "replace"
"""Iceberg's operation for a snapshot with the same rows as the one before, in other files or manifests."""


class Snapshot(Value):
    """One snapshot of a table (Iceberg spec, "Snapshots")."""

    snapshot_id: int
    parent_id: int | None
    time: datetime
    operation: str | None
    summary: dict[str, str] = Field(default_factory=dict)


class TableChange(Value):
    """What happened to a table between two of its states, by its lineage and its metadata.

    - ``append``: rows were added, and nothing else changed;
    - ``evolve``: an ``append`` that also added nullable columns or widened column types;
    - ``create``: a new table whose snapshots, if any, are all appends, starting from empty;
    - ``metadata``: the same snapshots, but another schema, partitioning, sort order or properties;
    - ``expire``: the same state, but older snapshots were removed from the metadata;
    - ``drop``: the table was dropped;
    - ``rewrite``: anything else, such as an overwrite, a replaced table or a rollback.

    Attributes:
        snapshots: The snapshots between the two states, oldest first: the earlier current snapshot excluded, the later
            one included. Empty if the later doesn't descend from the earlier, or snapshots in between were expired.
        written: All snapshots that only the later state has, oldest first.
        parent_snapshot_id: The earlier state's current snapshot; ``None`` for a table without one.
        rows_added: Rows added in between; ``None`` if unknown.
        rows_removed: Rows removed in between; ``None`` if unknown.
        reason: Why this is neither an ``append`` nor a ``create``, in words that follow "because".
        refs: New Iceberg branches and tags inside the table that point at a snapshot other than the current one. No
            check reads their rows.
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
        """Whether it only added rows, so that they can be rebased."""
        return self.kind in {"append", "create"}

    @property
    def keeps_rows(self) -> bool:
        """Whether existing rows are unchanged, so that auditing the added ones is enough."""
        return self.only_adds or self.kind == "evolve"

    @property
    def live_snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that the table's current rows may come from: not rolled-back ones; all, if it was replaced."""
        return self.snapshots or (self.written if self.rows_added is None else ())

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Ids of :attr:`snapshots`."""
        return tuple(snapshot.snapshot_id for snapshot in self.snapshots)


class SchemaVersion(Value):
    """One of the schemas that a table has had.

    Attributes:
        schema_id: Its id in the table's metadata.
        field_ids: Id of each column. A renamed column keeps its id.
    """

    schema_id: int
    table_schema: Schema
    field_ids: tuple[int, ...]

    @property
    def by_id(self) -> dict[int, Column]:
        """The columns by their ids."""
        return dict(zip(self.field_ids, self.table_schema.columns, strict=True))


CLOCKS_DIFFER = timedelta(minutes=1)
"""Iceberg's tolerance for clocks that differ."""
DELETING_PROPERTIES = frozenset({"gc.enabled", "write.metadata.delete-after-commit.enabled"})
"""Table properties that make Spark delete files, even ones that other branches need."""
FOLDER_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.location-provider.impl",
    "write.py-location-provider.impl",
)
"""Table properties that say where new files go, if not below the table's location, or which class says it."""


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
    """Identifies the table for life: another table of the same name has another UUID."""
    updated_at: datetime | None = None
    """When the metadata file was written, by its writer's clock."""

    @property
    def rows(self) -> int | None:
        """Number of rows; ``None`` if the snapshot's summary doesn't prove it.

        Summaries count rows in data files. With delete files, only a scan can count: two may delete the same row, or
        none.
        """
        return self.rows_at_most if self._total("total-delete-files") == 0 else None

    @property
    def rows_at_most(self) -> int | None:
        """Number of rows in data files, deleted ones included; ``None`` if the summary doesn't say."""
        return self._total("total-records")

    @property
    def data_files(self) -> int | None:
        """Number of data files, from the snapshot's summary."""
        return self._total("total-data-files")

    @property
    def size_bytes(self) -> int | None:
        """Total size of data files, from the snapshot's summary."""
        return self._total("total-files-size")

    def _total(self, key: str) -> int | None:
        if self.snapshot is None:
            return 0
        value = self.snapshot.summary.get(key, "")
        return int(value) if value.isdecimal() else None


class AddedRows(Value):
    """The rows of a table on a run's branch that batch-scope checks judge: those the run added, or all of them.

    Attributes:
        ref: The branch.
        after_snapshot_id: Only rows of later snapshots; ``None`` for all rows of the table.
        snapshot_id: The last snapshot, current at commit ``hash``.
        hash: Commit of the branch; ``None`` for its head.
        is_measured: Whether a filter may skip files that can't match by their metrics: lakegate's engine measured them,
            and no column holds UUIDs. What another writer's metrics say is a claim.
        where: A validated predicate that the rows meet.
        masked: Patterns of columns whose values never leave the engine.
        shown: Columns that examples have; empty for all.
    """

    table: TableIdentifier
    ref: str
    after_snapshot_id: int | None
    snapshot_id: int
    hash: str | None = None
    is_measured: bool = False
    where: str | None = None
    masked: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


Rows: TypeAlias = AddedRows | TableAt
"""Rows that a check reads: those a run added, or all rows of a table at a commit."""


class StoredFile(Value):
    """A file in the warehouse: its URI, its size in bytes and when it was last written."""

    path: str
    size_bytes: int
    modified_at: datetime


class CreateTable(Value):
    """How to create a table that doesn't exist yet.

    Attributes:
        location: Folder for the table's files, never used by another table.
        partition_by: Partition transforms, such as ``days(pickup)``.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)


class WriteTarget(Value):
    """Where a batch is written.

    Attributes:
        table_schema: Columns that the batch is cast to; ``None`` if the table is created.
        schema_changes: Changes to the table's columns that are made before the write.
        create: How to create the table; ``None`` if it exists.
        snapshot_properties: Extra entries for the snapshot's summary.
        masked: Patterns of columns whose values mustn't show in messages.
    """

    table: TableIdentifier
    ref: str
    table_schema: Schema | None
    schema_changes: tuple[SchemaChange, ...] = ()
    create: CreateTable | None = None
    snapshot_properties: dict[str, str] = Field(default_factory=dict)
    masked: tuple[str, ...] = ()


class IntegerKey(Value):
    """A key as a ``BIGINT``: if there are as many different integers as keys, no key occurs twice.

    Attributes:
        columns: The key's columns.
        sql: Spark SQL that makes an integer of them, NULL if one of them is. Different keys usually make different
            integers, which lie close together.
        is_ordered: Whether most files hold a range of keys of their own, as they do if keys arrive in order.
        is_dense: Whether a good part of the integers in the keys' range are keys.
        others: Other rows of the same table that mustn't have one of the keys.
        within: Predicate that all rows of ``others`` with such a key meet.
    """

    columns: tuple[str, ...]
    sql: str
    is_ordered: bool = False
    is_dense: bool = False
    others: tuple[Rows, ...] = ()
    within: str = "TRUE"


class ScanResult(Value):
    """Counts of one pass.

    Attributes:
        total: Rows read.
        failing: Failing rows for each predicate, in order.
        is_unique: ``True`` if no key occurs twice, :attr:`IntegerKey.others` included; ``None`` if that isn't known or
            wasn't checked.
    """

    total: int
    failing: tuple[int, ...]
    is_unique: Literal[True] | None = None


# Plain dataclasses instead of Values: tens of thousands are read at once, and none is stored.


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Metrics of one column in one data file (Iceberg spec, "Manifests", ``data_file``).

    A count of ``None`` means *unknown*, never zero. Bounds are decoded Python values. They may be wider than the data,
    and truncated for text and binary columns. ``size_bytes`` is the column's size in the file.
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
    """Partition field name to value. Only *identity* transforms prove anything about the column's values."""
    identity_values: Mapping[str, Any] = field(default_factory=dict)
    """Column name to the value that all rows of the file have, known from identity partitioning."""
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)
    """Column name in the snapshot's schema to metrics. Only top-level primitive columns."""


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """The data files that some snapshots added.

    Attributes:
        complete: Whether these files hold exactly the added rows. False if a delete file was added or a data file
            removed, or if the summary's ``added-records`` contradicts the manifests.
        gap: Why they aren't complete, in words that follow a colon.
    """

    files: tuple[DataFile, ...]
    complete: bool
    gap: str = "the run did more than add rows"

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for file in self.files)
