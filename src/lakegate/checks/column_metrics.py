"""What manifests' metrics prove of a column, without believing more than they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakegate.checks.column_types import Family
from lakegate.checks.definition import QuotedColumn
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile


def count_nulls(added: AddedFiles, column: QuotedColumn) -> int | None:
    """Return the number of NULLs, or ``None`` when a file lacks its own; so it is for nested columns."""
    if column.type.nested:
        return None
    found = [_metrics(file, column.name) for file in added.files if file.rows]
    counts = [item.null_count for item in found if item is not None and item.null_count is not None]
    return sum(counts) if len(counts) == len(found) else None


def none_outside(
    added: AddedFiles,
    column: QuotedColumn,
    *,
    one: Callable[[Any], bool],
    bounds: Callable[[Any, Any], bool],
) -> int | None:
    """Return 0 when every value that isn't NULL is sure to be allowed, else ``None``: bounds prove no failure.

    Args:
        added: Complete evidence.
        column: The column.
        one: Whether a single value is allowed; asked for identity partitions.
        bounds: Whether everything from a lower to an upper bound is allowed; either may be ``None``, unknown. Not
            asked for text, whose bounds are cut short, nor for floats that may hold NaN, which bounds leave out.
    """
    return 0 if all(_file_proves(file, column, one, bounds) for file in added.files if file.rows) else None


def _metrics(file: DataFile, column: str) -> ColumnStatistics | None:
    """Return a column's metrics, if its counts are known and agree with the file's rows. A missing count isn't zero."""
    found = file.columns.get(column)
    if found is None or found.value_count != file.rows or found.null_count is None:
        return None
    return found if 0 <= found.null_count <= file.rows else None


def _file_proves(
    file: DataFile, column: QuotedColumn, one: Callable[[Any], bool], bounds: Callable[[Any, Any], bool]
) -> bool:
    name, kind = column.name, column.type
    if name in file.identity_values:
        value = file.identity_values[name]
        if value is None or (kind.holds(value) and one(value)):
            return True
    found = _metrics(file, name)
    if found is None:
        return False
    if found.null_count == file.rows:
        return True
    if kind.family in (Family.TEXT, Family.OTHER) or (kind.family is Family.FLOATING and found.nan_count != 0):
        return False
    low, high = found.lower, found.upper
    if kind.holds(low) and kind.holds(high) and low > high:
        return False  # of a file that somebody added with unsigned numbers: no bounds of what is read
    return bounds(low, high)
