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
    """No two rows of the batch share their values in these columns, taken together.

    A row with a NULL among them is left out, as in SQL (dbt_utils takes NULLs for equal). Failing rows are all rows
    that share their key: a key that occurs three times makes three. Examples are keys with their number of rows.
    Columns of maps can't be compared. The rows that the table already holds aren't looked at, except with
    ``scope='table'``: then a row of the batch may not share its key with a row of the table either. Failing rows are
    rows of the batch only, each counted once, whether its key is in the table, twice in the batch, or both; the report
    says how many the table holds, and examples are rows. Duplicates that the table held before aren't found.

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
