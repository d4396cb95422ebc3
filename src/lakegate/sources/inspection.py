"""What looking into one source file yields, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass

from lakegate.model.batch import SourceColumn
from lakegate.sources.located import Located


@dataclass(frozen=True, slots=True)
class Inspection:
    """One file, found readable.

    Attributes:
        file: The file as it stood on disk.
        rows: Number of rows.
        columns: Its columns in order, types as Arrow text.
    """

    file: Located
    rows: int
    columns: tuple[SourceColumn, ...]
