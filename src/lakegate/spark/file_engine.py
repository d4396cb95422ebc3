"""Audit source files in place: an engine whose rows are those of a batch, without a catalog or table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakegate.errors import QueryError
from lakegate.model.batch import Batch
from lakegate.model.identifiers import quote
from lakegate.model.quarantine import FailingCount, RowTest
from lakegate.model.schema import FILE_COLUMN, POSITION_COLUMN, Schema
from lakegate.model.tables import AddedRows, Rows
from lakegate.spark import quarantine
from lakegate.spark.engine import SparkEngine
from lakegate.spark.failures import spark_errors
from lakegate.spark.reader import read_as
from lakegate.spark.scans import filter_rows
from lakegate.spark.sessions import SessionFactory


class FileEngine(SparkEngine):
    """Answers an audit's queries from the rows of files, as :class:`SparkEngine` does from those of tables.

    Args:
        sessions: Creates sessions; see :mod:`lakegate.spark.sessions`.
        shares_files: Whether the engine sees this machine's files under the same paths.
    """

    def __init__(self, sessions: SessionFactory, *, shares_files: bool, **options: Any) -> None:
        super().__init__(sessions, lambda _: {}, shares_files=shares_files, **options)
        self._audited: tuple[Batch, Schema] | None = None
        self._left: Any = None

    def read_batch(self, batch: Batch, schema: Schema) -> None:
        """Audit the rows of ``batch`` from now on, in the columns and types of ``schema``."""
        self._audited, self._left = (batch, schema), None

    def exclude_failing(self, rows: AddedRows, tests: Sequence[RowTest]) -> FailingCount:
        """Audit only rows that pass all ``tests`` from now on. Return how many rows there were, and how many fail."""
        with spark_errors(f"looking for rows of the files for {rows.table} to quarantine"):
            frame = self._rows(rows)
            columns = [quote(name) for name in frame.columns]
            placed = frame.selectExpr("*", f"'' AS {FILE_COLUMN}", f"0L AS {POSITION_COLUMN}")
            judged = quarantine.evaluate(placed, tests, self._failing_keys)
            found = judged.count()
            self._left = judged.frame.where(f"NOT ({judged.fails})").selectExpr(*columns)
        return found

    def require_readable(self) -> None:
        """Read every value of the files, and raise a :class:`~lakegate.errors.SourceError` if that fails."""
        self._left = None
        with spark_errors("reading the files", source=True):
            self.frame().write.format("noop").mode("overwrite").save()

    def frame(self) -> Any:
        """Return the rows as a DataFrame."""
        if self._audited is None:
            raise QueryError("No files were named.")
        if self._left is not None:
            return self._left
        batch, schema = self._audited
        frame, source = self._source(batch)
        return read_as(self.session, batch, schema, frame=frame, source=source)

    @property
    def _file(self) -> str:
        return "CAST(NULL AS STRING)"  # the trial names the files of failing rows

    def _rows(self, rows: Rows) -> Any:
        if not isinstance(rows, AddedRows):
            raise QueryError(f"Without a lake, there is no table {rows.table}.")
        frame = self.frame()
        return frame if rows.where is None else filter_rows(frame, rows.where, is_measured=rows.is_measured)
