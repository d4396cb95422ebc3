"""Tables as read and as written to."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.schema import Schema


class Snapshot(Value):
    """One snapshot of a table (Iceberg spec, "Snapshots")."""

    snapshot_id: int
    parent_id: int | None
    time: datetime
    operation: str | None
    summary: dict[str, str] = Field(default_factory=dict)


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

    @property
    def rows(self) -> int | None:
        """Number of rows by the snapshot's ``total-records``; ``None`` when the summary lacks it."""
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
    """The rows that a run added to a table on its branch: what batch-scope checks look at.

    Rows of snapshots after ``after_snapshot_id`` (from the first one on when ``None``) up to and including
    ``snapshot_id``.
    """

    table: TableIdentifier
    ref: str
    after_snapshot_id: int | None
    snapshot_id: int


Rows: TypeAlias = AddedRows | TableAt
"""Rows to look in: what a run added, or all rows of a table at a commit."""


class StoredFile(Value):
    """A file in the warehouse: its URI, its size in bytes and when it was last written."""

    path: str
    size_bytes: int
    modified_at: datetime


class CreateTable(Value):
    """How to create a table that does not exist yet.

    Attributes:
        location: Folder for the table's files; a new one for every table ever created.
        partition_by: Partition transforms, such as ``days(pickup)``.
        properties: Table properties.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)


class WriteTarget(Value):
    """Where a batch is appended, and what its snapshot says of it.

    Attributes:
        schema: Columns of the existing table that the batch is cast to; ``None`` when the table is created.
        create: How to create the table; ``None`` when it exists.
        snapshot_properties: Extra entries of the snapshot's summary.
    """

    table: TableIdentifier
    ref: str
    table_schema: Schema | None
    create: CreateTable | None = None
    snapshot_properties: dict[str, str] = Field(default_factory=dict)


class ScanResult(Value):
    """Counts of one pass: rows looked at, and failing rows for each predicate in order."""

    total: int
    failing: tuple[int, ...]
