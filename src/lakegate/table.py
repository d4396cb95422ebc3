"""What ``Lake`` returns to read from: a table at one commit, and a planned query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.model.refs import TablePointer
from lakegate.model.schema import Schema
from lakegate.model.tables import DataFile, Snapshot, TableMetadata
from lakegate.ports import TableReader

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Table:
    """A table at one commit, read from its metadata without Spark. :meth:`lakegate.Lake.table` returns one."""

    def __init__(self, pointer: TablePointer, reader: TableReader) -> None:
        self._pointer = pointer
        self._reader = reader
        self.metadata: TableMetadata = reader.metadata(pointer)

    @property
    def rows(self) -> int | None:
        """Number of rows; ``None`` if delete files hide it. Count them with a query then."""
        return self.metadata.rows

    @property
    def rows_at_most(self) -> int | None:
        """Number of rows in data files, before delete files."""
        return self.metadata.rows_at_most

    @property
    def schema(self) -> Schema:
        """Columns."""
        return self.metadata.table_schema

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the snapshots, oldest first."""
        return self._reader.snapshots(self._pointer)

    def files(self) -> Iterator[DataFile]:
        """Iterate over the data files with their rows, bytes, null counts and bounds."""
        return self._reader.files(self._pointer)


class Query:
    """A planned query, which reads rows when you ask for them. :meth:`lakegate.Lake.query` returns one."""

    def __init__(self, frame: Any, fetch: Callable[[Any], pa.Table]) -> None:
        self.dataframe = frame
        """The Spark DataFrame. Its methods raise Spark's own exceptions."""
        self._fetch = fetch

    @property
    def columns(self) -> list[str]:
        """Names of the result's columns."""
        return list(self.dataframe.columns)

    def limit(self, rows: int) -> Query:
        """Return a query of the first ``rows`` rows of this one."""
        return Query(self.dataframe.limit(rows), self._fetch)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table.

        Raises:
            QueryError: The query fails on the data.
        """
        return self._fetch(self.dataframe)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame; raises as :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()
