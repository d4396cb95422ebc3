"""A table at one commit and a planned query, as ``Lake`` returns them, with their rows for other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from lakegate.errors import missing_package
from lakegate.model.refs import TablePointer
from lakegate.model.schema import Schema
from lakegate.model.tables import DataFile, Snapshot, TableMetadata
from lakegate.model.words import counted, refuse_unknown, suggest_keywords
from lakegate.ports import TableReader

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True)
class RowDifference:
    """The rows of a table that two refs don't share. :meth:`lakegate.Lake.diff_rows` returns one.

    Attributes:
        added: Rows that only the right ref has; ``None`` if the table's metadata rules them out.
        removed: Rows that only the left ref has; ``None`` if the table's metadata rules them out.
        changed: With a key, rows that differ between the refs, as structs ``before`` and ``after``.
    """

    added: Query | None
    removed: Query | None
    changed: Query | None = None


class RowOptions(TypedDict, total=False):
    """The keywords of :meth:`Table.to_arrow` as a dict, for code that passes them on."""

    columns: Sequence[str] | None
    where: str | None
    limit: int | None


@suggest_keywords
class Table:
    """A table at one commit, read from its files without Spark. :meth:`lakegate.Lake.table` returns one.

    It never changes. To see what is published later, call ``lake.table(…)`` again. The methods that return rows take

    - ``columns``: names of columns, in the order you want;
    - ``where``: a filter in PyIceberg's language: comparisons of columns with values (``=``, ``!=``, ``<``, ``IN``,
      ``BETWEEN``, ``LIKE 'prefix%'``, ``IS NULL``, ``IS NAN``), joined by ``AND``, ``OR`` and ``NOT``. Files whose
      partition or metrics rule out a match aren't opened;
    - ``limit``: maximum number of rows.
    """

    def __init__(self, pointer: TablePointer, reader: TableReader, *, commit: str = "") -> None:
        self._pointer = pointer
        self.commit = commit
        """The commit of ``main`` at which the table is read; empty for another ref or an earlier time."""
        self._reader = reader
        self.metadata: TableMetadata = reader.metadata(pointer)

    def __repr__(self) -> str:
        """Return the table's name and how many rows and columns it has."""
        rows = "" if self.rows is None else f"{counted(self.rows, 'row')}, "
        return f"<Table {self.metadata.table}: {rows}{counted(len(self.schema.columns), 'column')}>"

    @property
    def rows(self) -> int | None:
        """Number of rows; ``None`` if there are delete files: then only a query can count them."""
        return self.metadata.rows

    @property
    def rows_at_most(self) -> int | None:
        """Number of rows in data files, before delete files."""
        return self.metadata.rows_at_most

    @property
    def schema(self) -> Schema:
        """Columns."""
        return self.metadata.table_schema

    @property
    def metadata_location(self) -> str:
        """URI of the Iceberg metadata file, for any other Iceberg reader."""
        return self.metadata.metadata_location

    def snapshots(self) -> Sequence[Snapshot]:
        """Return the snapshots, oldest first."""
        return self._reader.snapshots(self._pointer)

    def files(self) -> Iterator[DataFile]:
        """Iterate over the data files with their rows, bytes, null counts and bounds."""
        return self._reader.files(self._pointer)

    def to_batches(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Return an iterator over the rows as Arrow record batches, with few in memory at a time.

        Args:
            columns: Columns to read. Default: all.
            where: Filter. Default: all rows.
            limit: Maximum number of rows. Default: no limit.

        Returns:
            The batches, read as you iterate, with their ``schema``. DuckDB, Polars and Arrow's writers accept it.

        Raises:
            InputError: A column, the filter or the limit is invalid, or the table has something that only Spark can
                read, such as equality deletes, variant columns, or lists of structs that may be NULL.
            NotFoundError: A file of the table is missing; also while you iterate.

        Example:
            >>> sum(batch.num_rows for batch in lake.table("nyc.trips").to_batches(columns=["trip_id"]))
            100
        """
        return self._reader.read_rows(self._pointer, columns=columns, where=where, limit=limit)

    def to_arrow(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Return the rows as an Arrow table.

        Args:
            columns: Columns to read. Default: all.
            where: Filter. Default: all rows.
            limit: Maximum number of rows. Default: no limit.

        Returns:
            The rows.

        Raises:
            InputError: As for :meth:`to_batches`.
            NotFoundError: A file of the table is missing.

        Example:
            >>> lake.table("nyc.trips").to_arrow(columns=["trip_id"], where="trip_id IS NULL").num_rows
            0
        """
        return self.to_batches(columns=columns, where=where, limit=limit).read_all()

    def to_pandas(self, **options: Unpack[RowOptions]) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Args:
            **options: The keywords of :meth:`to_arrow`.

        Returns:
            The rows.

        Raises:
            InputError: As for :meth:`to_batches`.
        """
        refuse_unknown("to_pandas", options, RowOptions.__annotations__)
        return self.to_arrow(**options).to_pandas()

    def to_polars(self, **options: Unpack[RowOptions]) -> pl.DataFrame:
        """Return the rows as a Polars DataFrame (``lakegate[polars]``).

        Args:
            **options: The keywords of :meth:`to_arrow`.

        Returns:
            The rows.

        Raises:
            ConfigurationError: Polars isn't installed.
            InputError: As for :meth:`to_batches`.
        """
        refuse_unknown("to_polars", options, RowOptions.__annotations__)
        return _to_polars(lambda: self.to_arrow(**options))

    def to_duckdb(
        self, *, connection: duckdb.DuckDBPyConnection | None = None, **options: Unpack[RowOptions]
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, held in memory.

        Args:
            connection: The DuckDB connection to create the relation on. Default: DuckDB's default connection.
            **options: The keywords of :meth:`to_arrow`.

        Returns:
            The relation. In ``duckdb.sql("…")``, refer to it by the name of your variable.

        Raises:
            InputError: As for :meth:`to_batches`.
        """
        refuse_unknown("to_duckdb", options, RowOptions.__annotations__)
        return _to_duckdb(lambda: self.to_arrow(**options), connection)


class Query:
    """A planned query, which reads rows when you ask for them. :meth:`lakegate.Lake.query` returns one."""

    def __init__(
        self,
        frame: Any,
        fetch: Callable[[Any], pa.Table],
        stream: Callable[[Any], Iterator[pa.RecordBatch]],
        *,
        reads: tuple[str, ...] | None = (),
        commit: str = "",
    ) -> None:
        self.dataframe = frame
        """The Spark DataFrame. Its methods raise Spark's own exceptions."""
        self.reads = reads
        """The tables that it reads from the head of ``main``; ``None`` if its text doesn't say which."""
        self.commit = commit
        """The commit at which it reads them."""
        self._fetch = fetch
        self._stream = stream

    @property
    def columns(self) -> list[str]:
        """Names of the result's columns."""
        return list(self.dataframe.columns)

    def limit(self, rows: int) -> Query:
        """Return a query for the first rows of this one.

        Args:
            rows: Maximum number of rows.

        Returns:
            The limited query.
        """
        return Query(self.dataframe.limit(rows), self._fetch, self._stream, reads=self.reads, commit=self.commit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows as Arrow record batches, as Spark sends them. Raises what :meth:`to_arrow` does.

        Example:
            >>> sum(batch.num_rows for batch in lake.query("SELECT * FROM nyc.trips").to_batches())
            100
        """
        return self._stream(self.dataframe)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table.

        Raises:
            QueryError: The query fails on the data.
        """
        return self._fetch(self.dataframe)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame. Raises what :meth:`to_arrow` does."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars DataFrame (``lakegate[polars]``). Raises what :meth:`to_arrow` does.

        Raises:
            ConfigurationError: Polars isn't installed.
        """
        return _to_polars(self.to_arrow)

    def to_duckdb(self, *, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return all rows as a DuckDB relation. Raises what :meth:`to_arrow` does.

        Args:
            connection: The DuckDB connection to create the relation on. Default: DuckDB's default connection.
        """
        return _to_duckdb(self.to_arrow, connection)


def _to_polars(read: Callable[[], pa.Table]) -> pl.DataFrame:
    try:
        import polars as pl
    except ImportError as error:  # before any row is read
        raise missing_package("to_polars() needs", "polars", "polars") from error
    return cast("pl.DataFrame", pl.from_arrow(read()))


def _to_duckdb(read: Callable[[], pa.Table], connection: Any) -> duckdb.DuckDBPyRelation:
    import duckdb

    # Not a reader: a relation may run several times, and a reader yields its rows only once.
    return duckdb.from_arrow(read(), connection=connection or duckdb.default_connection())
