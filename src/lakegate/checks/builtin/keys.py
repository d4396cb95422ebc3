"""Checks of keys: unique ones, and those that refer to another table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from lakegate.checks.definition import CheckOptions, ColumnName, OtherColumns, audited
from lakegate.checks.questions import DuplicateRows, OrphanRows, read_filter
from lakegate.checks.registry import check
from lakegate.errors import IdentifierError
from lakegate.model.checks import Check, Scope
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import counted


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
def _claim_unique(check: Check) -> str:
    where = " in the whole table" if check.scope == "table" else ""
    if len(check.columns) == 1:
        return f"{check.columns[0]} is unique{where}"
    return f"{', '.join(check.columns[:-1])} and {check.columns[-1]} together are unique{where}"


@check(
    example="relationships(tailnum, to='nyc.planes')  or  relationships(a, b, to='ns.t', to_columns=(x, y))",
    parameter_aliases={"field": "to_columns"},
    scopes=("table",),
    nans="equals NaN",
    evidence="scan (a job of its own)",
)
def relationships(
    column: ColumnName,
    *more: ColumnName,
    to: str,
    to_columns: OtherColumns | None = None,
    **options: Unpack[CheckOptions],
) -> OrphanRows:
    """Every key of the batch exists in another table: a foreign key.

    The name is dbt's. ``to`` is the other table, read as it would be after publishing, so one run may write both
    tables. ``to_columns`` are its columns, by default those with the same names; dbt's ``field`` works, too. Several
    columns make one key; as text, you may put them in parentheses. Rows with a NULL in the key pass, as in SQL. A table
    may refer to itself; then the batch's own rows count, too.

    The columns' types must be the same or compare exactly: ``int`` with ``long``, ``decimal`` or ``double``, but not
    ``long`` with ``double``, or text with numbers. A missing table or column is an error (exit code 2), not a failed
    check.

    Example:
        >>> str(relationships("dest", to="nyc.airports", to_columns="faa"))
        "relationships(dest, to='nyc.airports', to_columns='faa', scope='table')"
    """
    return _orphans((column, *more), to, to_columns)


@check(
    example="relationships_where(tailnum, to='nyc.planes', to_condition='active')",
    parameter_aliases={"field": "to_columns", "from_condition": "where"},
    scopes=("table",),
    nans="equals NaN",
    evidence="scan (a job of its own)",
)
def relationships_where(
    column: ColumnName,
    *more: ColumnName,
    to: str,
    to_columns: OtherColumns | None = None,
    to_condition: str | None = None,
    **options: Unpack[CheckOptions],
) -> OrphanRows:
    """Every key of the batch exists in the rows of another table for which ``to_condition`` is true.

    Like ``relationships``, but limited to some rows of the other table. To limit the rows of the batch, use ``where``
    (or dbt's name for it, ``from_condition``). Both are conditions on one row.

    Example:
        >>> str(relationships_where("dest", to="nyc.airports", to_columns="faa", to_condition="open"))
        "relationships_where(dest, to='nyc.airports', to_columns='faa', to_condition='open', scope='table')"
    """
    condition = None if to_condition is None else read_filter(to_condition, called="to_condition").sql
    return _orphans((column, *more), to, to_columns, condition)


def _orphans(
    key: Sequence[str], to: str, to_columns: str | Sequence[str] | None, condition: str | None = None
) -> OrphanRows:
    columns = tuple(audited(name).name for name in key)
    others = (to_columns,) if isinstance(to_columns, str) else tuple(to_columns or columns)
    return OrphanRows(columns, TableIdentifier.parse(to), others, condition)


@relationships_where.prepare
@relationships.prepare
def _prepare_relationship(check: Check) -> Check:
    others = _others(check)
    if len(others) != len(check.columns):
        ours, theirs = counted(len(check.columns), "column"), counted(len(others), "column")
        raise ValueError(f"{ours} can't be compared with {theirs}.")
    if "to_condition" in check.arguments:
        read_filter(check.arguments["to_condition"], called="to_condition")
    named = {} if others == check.columns else {"to_columns": check.arguments["to_columns"]}
    rest = named | {key: value for key, value in check.arguments.items() if key not in ("to", "to_columns")}
    try:
        arguments = {"to": str(TableIdentifier.parse(check.arguments["to"])), **rest}
    except IdentifierError as error:
        raise ValueError(error.message) from None
    return check.model_copy(update={"arguments": arguments})


@relationships_where.claim
@relationships.claim
def _claim_relationship(check: Check) -> str:
    table, others = check.arguments["to"], _others(check)
    given = check.arguments.get("to_condition")
    condition = f" with {given}" if given else ""
    if len(others) == 1:
        return f"every {check.columns[0]} is a {others[0]} of {table}{condition}"
    return f"every ({', '.join(check.columns)}) is a ({', '.join(others)}) of {table}{condition}"


def _others(check: Check) -> tuple[str, ...]:
    named = check.arguments.get("to_columns", check.columns)
    return (named,) if isinstance(named, str) else tuple(named)
