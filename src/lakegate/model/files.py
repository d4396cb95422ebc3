"""Data files of a table and the evidence their manifest entries hold.

Plain dataclasses, not :class:`~lakegate.model.base.Value`: they are read by the ten thousand and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Metrics of one column in one data file (Iceberg spec, "Manifests", ``data_file``).

    A ``None`` count is *unknown*, never zero. Bounds are decoded Python values; they may be wider than the data, and
    those of text and binary columns may be cut short.
    """

    value_count: int | None = None
    null_count: int | None = None
    nan_count: int | None = None
    lower: Any = None
    upper: Any = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file as its manifest entry describes it. ``size_bytes`` is the file's length in bytes."""

    path: str
    rows: int
    size_bytes: int
    partition: Mapping[str, Any] = field(default_factory=dict)
    """Partition field name to value; only fields with an *identity* transform are trustworthy evidence of values."""
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
