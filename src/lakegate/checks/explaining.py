"""Explains how a check was answered, and what ruled out cheaper ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakegate.checks.bitmaps import why_not
from lakegate.checks.columns import ColumnType, Family
from lakegate.checks.questions import (
    Aggregates,
    DuplicateRows,
    FailingRows,
    Filter,
    OrphanRows,
    QueryRows,
    Question,
    TotalBeside,
)
from lakegate.model.checks import Check
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedFiles

_REASONS: dict[type, str] = {
    Aggregates: "It measures a whole column, which file metrics can't answer.",
    QueryRows: "It compares rows with each other, which needs a query of its own.",
    TotalBeside: "The rows of both tables are counted.",
}
_CUT_SHORT = (Family.TEXT, Family.OTHER)


def reason(check: Check, question: Question, where: Filter | None, schema: Schema, added: AddedFiles) -> str:
    """Return why file metrics alone didn't answer a check, or why bitmaps didn't prove its key unique."""
    if type(question) in _REASONS:
        return _REASONS[type(question)]
    if isinstance(question, OrphanRows):
        return f"Its keys are looked up in {question.table}."
    if isinstance(question, DuplicateRows):
        in_table = "Its keys are looked up in the rest of the table." if question.scope == "table" else None
        return why_not(question.columns, schema, added) or in_table or "File metrics can't tell rows apart."
    if not added.complete:
        return f"File metrics don't describe these rows: {added.gap}."
    return _unproven(check, question, where, schema, added)


def _unproven(check: Check, question: Question, where: Filter | None, schema: Schema, added: AddedFiles) -> str:
    if where is not None:
        return "File metrics cover all rows, not just those that its where=… selects."
    if isinstance(question, FailingRows) and question.metrics is None:
        return "File metrics say nothing about what it checks."
    types = {column.name: column.type for column in schema.columns}
    gaps = (_missing_metrics(name, ColumnType.parse(types[name]), added) for name in check.columns if name in types)
    return next(filter(None, gaps), "The files' bounds don't rule out that a row fails; only reading the rows can.")


def named_in(where: Filter | None, schema: Schema) -> Sequence[str]:
    """Return the columns that a filter names."""
    if where is None:
        return ()
    from lakegate.checks.predicates import read_predicate  # sqlglot takes 0.4 s to import

    found = map(schema.find, read_predicate(where.sql).columns)
    return tuple(column.name for column in found if column is not None)


def read_bytes(columns: Iterable[str], added: AddedFiles) -> int | None:
    """Return the size of columns in the files; ``None`` if the manifests don't say."""
    if not added.complete:
        return None
    names: Sequence[str] = list(dict.fromkeys(columns))
    found = [file.columns.get(name) for file in added.files for name in names]
    sizes = [one.size_bytes for one in found if one is not None and one.size_bytes is not None]
    return sum(sizes) if len(sizes) == len(found) else None


def _missing_metrics(column: str, kind: ColumnType, added: AddedFiles) -> str | None:
    """Return in a sentence what a column's metrics lack; ``None`` if they're complete."""
    files = [file for file in added.files if file.rows]
    if kind.nested:
        return f"Metrics don't cover '{column}', which is nested."
    found = [file.columns.get(column) for file in files]
    lacking = sum(one is None or one.null_count is None or one.value_count is None for one in found)
    if lacking:
        return f"{lacking:,} of {len(files):,} files have no metrics for '{column}'."
    if kind.family in _CUT_SHORT:
        return f"Bounds of '{column}' may be cut short: it is {kind.text}."
    if kind.family is Family.FLOATING and any(one is not None and one.nan_count != 0 for one in found):
        return f"'{column}' may contain NaN, which bounds ignore."
    unbounded = sum(
        one is not None and one.null_count != file.rows and (one.lower is None or one.upper is None)
        for one, file in zip(found, files, strict=True)
    )
    return f"{unbounded:,} of {len(files):,} files have no bounds for '{column}'." if unbounded else None
