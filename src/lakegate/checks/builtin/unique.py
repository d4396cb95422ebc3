from __future__ import annotations

from typing import Unpack

from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.questions import DuplicateRows
from lakegate.checks.registry import check
from lakegate.model.checks import Check, Scope


@check(
    example="unique(vendor_id, trip_id)",
    aliases=("unique_combination_of_columns",),
    scopes=("batch", "table"),
    nans="equals NaN",
    evidence="scan (a job of its own)",
)
def unique(
    column: ColumnName, *more: ColumnName, scope: Scope = "batch", **options: Unpack[CheckOptions]
) -> DuplicateRows:
    """No two rows of the batch have the same key: the combination of these columns.

    Rows with a NULL in the key are ignored, as in SQL (dbt_utils treats NULLs as equal). All rows that share a key
    fail: a key that occurs three times makes three. Examples are keys with their number of rows. Maps can't be
    compared.

    Rows that the table already has only count with ``scope='table'``. Then, a row of the batch also fails if the table
    has its key. Each failing row of the batch counts once, whether its key is in the table, repeats in the batch, or
    both. The report says how many of them the table has, and examples are rows. Older duplicates in the table don't
    count.

    Example:
        >>> str(unique("vendor_id", "trip_id", severity="warn"))
        "unique(vendor_id, trip_id, severity='warn')"
    """
    return DuplicateRows(tuple(audited(name).name for name in (column, *more)), scope)


@unique.claim
def _claim(check: Check) -> str:
    where = " in the whole table" if check.scope == "table" else ""
    if len(check.columns) == 1:
        return f"{check.columns[0]} is unique{where}"
    return f"{', '.join(check.columns[:-1])} and {check.columns[-1]} together are unique{where}"
