"""Separate the rows that fail checks from the others, row by row, so that exactly the counted rows are quarantined.

Everything is SQL text, which Spark Connect and classic sessions both accept, except users' ``Column`` objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakegate.model.batch import Batch
from lakegate.model.identifiers import quote
from lakegate.model.quarantine import COLUMNS, ROW_ID, BatchRows, FailingCount, KeyTest, RowTest
from lakegate.model.schema import FILE_COLUMN, POSITION_COLUMN, Schema, SchemaChange
from lakegate.model.sqltext import not_pushed_down, sql_string
from lakegate.model.types import can_promote
from lakegate.spark.reader import iceberg_schema, select_or_null
from lakegate.spark.scans import LONGEST_TEXT, free_names, path

_PLACE = (FILE_COLUMN, POSITION_COLUMN)
_NESTED = frozenset({"array", "map", "struct", "variant"})
_REASONS = "array<struct<check: string, column: string, value: string>>"

FailingKeys = Callable[[KeyTest], tuple[Any, Sequence[str]]]
"""Returns a DataFrame of the distinct keys that fail a test, and the names of its columns."""


@dataclass(frozen=True, slots=True)
class EvaluatedRows:
    """Rows with the result of each test, and their positions in the files that were read.

    Attributes:
        frame: The DataFrame. The table's columns come first.
        columns: The table's columns and their Spark types.
        file: Name of the column with the file.
        position: Name of the column with the row's position in the file.
        flags: Names of the columns that are true in rows that fail, one for each test, in their order.
    """

    frame: Any
    columns: Mapping[str, str]
    file: str
    position: str
    flags: Sequence[str]

    @property
    def fails(self) -> str:
        """Predicate for rows that fail any test."""
        return not_pushed_down(" OR ".join(self.flags))

    def count(self) -> FailingCount:
        """Return how many rows fail."""
        answers = ("TRUE", self.fails, *self.flags)
        numbers = [f"coalesce(sum(CAST({answer} AS BIGINT)), 0) AS n{index}" for index, answer in enumerate(answers)]
        rows, failing, *by_test = self.frame.selectExpr(*numbers).first()
        return FailingCount(rows, failing, by_test)

    def by_file(self, functions: Any) -> Sequence[dict[str, tuple[int, int]]]:
        """Return for each test the files with failing rows: their number, and the position of the first.

        Args:
            functions: PySpark's functions for the frame.
        """
        numbers = [f"sum(CAST({flag} AS BIGINT))" for flag in self.flags]
        numbers += [f"min(IF({flag}, {self.position}, NULL))" for flag in self.flags]
        failing = self.frame.where(self.fails).groupBy(self.file)
        found: list[dict[str, tuple[int, int]]] = [{} for _ in self.flags]
        for file, *values in failing.agg(*map(functions.expr, numbers)).collect():
            half = len(self.flags)
            for files, rows, first in zip(found, values[:half], values[half:], strict=True):
                if rows:
                    files[file] = (rows, first)
        return found

    def failing(self, tests: Sequence[RowTest], given: BatchRows, sources: Any) -> Any:
        """Return a DataFrame of the failing rows, with the columns of a quarantine table.

        Args:
            sources: The result of :func:`source_files`; ``None`` if all rows have the same source, or none.
        """
        frame, (source,) = self.frame.where(self.fails), free_names("__source", 1, taken=self.columns)
        if sources is None:
            frame = frame.selectExpr("*", f"{_text(given.source)} AS {source}")
        else:
            frame = frame.join(sources.toDF(self.file, source).hint("broadcast"), [self.file], "left")
        values = (
            _row_id(given, self.file, self.position),
            f"CAST({self._reasons(tests)} AS {_REASONS})",
            sql_string(given.run_id),
            source,
            "CAST(NULL AS BIGINT)" if given.batch is None else self.position,
            f"TIMESTAMP {sql_string(given.at.isoformat())}",
            "CAST(NULL AS STRING)",
        )
        named = (f"{value} AS {name}" for value, name in zip(values, COLUMNS, strict=True))
        return frame.selectExpr(*map(quote, self.columns), *named)

    def _reasons(self, tests: Sequence[RowTest]) -> str:
        structs = [
            f"IF({flag}, named_struct('check', {sql_string(test.check)}, 'column', {_text(column)}, "
            f"'value', {self._value(column) if column in test.shown else 'CAST(NULL AS STRING)'}), NULL)"
            for flag, test in zip(self.flags, tests, strict=True)
            for column in test.columns or (None,)
        ]
        return f"array_compact(array({', '.join(structs)}))"

    def _value(self, column: str | None) -> str:
        """Return SQL of a column's value as text, truncated like examples."""
        if column is None:
            return "CAST(NULL AS STRING)"
        kind = self.columns.get(column)
        name = path(column, self.columns)
        if kind == "binary":
            text = f"hex({name})"
        elif kind in _NESTED:
            text = f"to_json(named_struct('value', {name}))"
        else:
            text = f"CAST({name} AS STRING)"
        return f"left({text}, {LONGEST_TEXT})"


def evaluate(frame: Any, tests: Sequence[RowTest], failing_keys: FailingKeys) -> EvaluatedRows:
    """Evaluate the tests on the rows of ``frame``, each with its ``_file`` and its position there, ``_pos``."""
    columns = {one.name: one.dataType.typeName() for one in frame.schema.fields if one.name not in _PLACE}
    file, position, *rest = free_names("__lakegate", 2 + 2 * len(tests), taken=columns)
    flags, keyed = rest[: len(tests)], rest[len(tests) :]
    found = frame.withColumnsRenamed({FILE_COLUMN: file, POSITION_COLUMN: position})
    texts = []
    for flag, prefix, test in zip(flags, keyed, tests, strict=True):
        if test.keys is None:
            texts.append(f"coalesce({test.predicate}, FALSE) AS {flag}")
            continue
        keys, names = failing_keys(test.keys)
        own = [f"{prefix}_{index}" for index in range(len(names))]
        found = found.selectExpr(
            "*", *(f"{path(column, columns)} AS {name}" for column, name in zip(test.keys.columns, own, strict=True))
        )
        renamed = keys.selectExpr(
            *(f"{theirs} AS {ours}" for theirs, ours in zip(names, own, strict=True)), f"TRUE AS {prefix}"
        )
        found = found.join(renamed, own, "left")
        where = test.keys.rows.where
        texts.append(f"coalesce({prefix}{f' AND {where}' if where else ''}, FALSE) AS {flag}")
    kept = [*map(quote, columns), file, position]
    return EvaluatedRows(found.selectExpr(*kept, *texts), columns, file, position, flags)


def source_files(frame: Any, batch: Batch) -> Any:
    """Return a DataFrame of the paths that Spark gives the files of ``batch``, and their URIs.

    Args:
        frame: The rows of the files, each with its file.
    """
    files = batch.files_at(path for (path,) in frame.select(FILE_COLUMN).distinct().collect())
    pairs = json.dumps([{"path": path, "uri": file.uri} for path, file in files.items()])
    kind = "array<struct<path: string, uri: string>>"
    return frame.sparkSession.sql(f"SELECT inline(from_json({sql_string(pairs)}, '{kind}'))")


def others(frame: Any, aside: Any, given: BatchRows) -> Any:
    """Return the rows of ``frame``, as :func:`evaluate` takes it, that aren't in the quarantine table ``aside``."""
    columns = [name for name in frame.columns if name not in _PLACE]
    (row_id,) = free_names("__lakegate", 1, taken=columns)
    found = frame.selectExpr(*map(quote, columns), f"{_row_id(given, *_PLACE)} AS {row_id}")
    gone = aside.selectExpr(f"{ROW_ID} AS {row_id}")
    return found.join(gone, [row_id], "left_anti").selectExpr(*map(quote, columns))


def align_to_table(frame: Any, table: Any) -> Any:
    """Return quarantined rows in the columns of their quarantine table, with NULL in those that they lack.

    Args:
        table: DataFrame of the quarantine table.
    """
    return select_or_null(frame, iceberg_schema(table.schema), {name.lower(): name for name in frame.columns})


def required_schema_changes(rows: Schema, table: Schema) -> tuple[SchemaChange, ...]:
    """Return the schema changes that a quarantine table needs to hold ``rows``: new and wider columns.

    Example:
        >>> from lakegate.model.schema import Column
        >>> rows = Schema(columns=(Column(name="fare", type="double"), Column(name="tip", type="int")))
        >>> table = Schema(columns=(Column(name="Fare", type="float"),))
        >>> [str(change) for change in required_schema_changes(rows, table)]
        ['widen column Fare from float to double', 'add column tip (int)']
    """
    found = ((column, table.find(column.name)) for column in rows.columns)
    return tuple(
        SchemaChange(column=column.name, type=column.type)
        if held is None
        else SchemaChange(column=held.name, type=column.type, before=held.type)
        for column, held in found
        if held is None or can_promote(held.type, column.type)
    )


def _row_id(given: BatchRows, file: str, position: str) -> str:
    """Return SQL of a row's id: a file may be set aside again by another run."""
    return f"md5(concat({sql_string(given.run_id)}, '#', {file}, '#', {position}))"


def _text(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else sql_string(value)
