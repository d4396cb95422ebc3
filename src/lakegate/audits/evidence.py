"""Reading manifest metrics without believing more than they say (DESIGN, "Audits that cost next to nothing")."""

from __future__ import annotations

from collections.abc import Callable

from lakegate.audits.column_types import ColumnType, Family
from lakegate.model.files import AddedFiles, ColumnStatistics, DataFile


def metrics(file: DataFile, column: str) -> ColumnStatistics | None:
    """Return the metrics of ``column``, or ``None`` unless its counts are known and agree with the file's rows.

    A missing count is not zero.
    """
    found = file.columns.get(column)
    if found is None or found.value_count != file.rows or found.null_count is None:
        return None
    return found if 0 <= found.null_count <= file.rows else None


def proves_values(
    added: AddedFiles,
    name: str,
    column: ColumnType,
    *,
    one: Callable[[object], bool],
    bounds: Callable[[object, object], bool],
) -> bool:
    """Tell whether every value of a column that is not NULL is sure to be allowed.

    Args:
        added: Complete evidence.
        name: The column as the schema has it.
        column: Its type.
        one: Whether a single value is allowed; asked for identity partitions.
        bounds: Whether everything from a lower to an upper bound is allowed; either may be ``None``, unknown. Not
            asked for text, whose bounds are cut short, nor for floats that may hold NaN, which bounds leave out.
    """
    return all(_file_proves(file, name, column, one, bounds) for file in added.files if file.rows)


def _file_proves(
    file: DataFile,
    name: str,
    column: ColumnType,
    one: Callable[[object], bool],
    bounds: Callable[[object, object], bool],
) -> bool:
    if name in file.identity_values:
        value = file.identity_values[name]
        if value is None or (column.holds(value) and one(value)):
            return True
    found = metrics(file, name)
    if found is None:
        return False
    if found.null_count == file.rows:
        return True
    if column.family in (Family.TEXT, Family.OTHER) or (column.family is Family.FLOATING and found.nan_count != 0):
        return False
    return bounds(found.lower, found.upper)
