from __future__ import annotations

from typing import Unpack

from lakegate.checks.definition import CheckOptions, ColumnName, OtherColumns, audited
from lakegate.checks.questions import OrphanRows
from lakegate.checks.registry import check
from lakegate.errors import IdentifierError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier


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
    """Every key of the batch exists in another table: a foreign key, by dbt's name for it.

    ``to`` is the other table, read as it would be after publishing, so one run may bring both sides. ``to_columns`` are
    its columns, by default those of the same names; dbt's ``field`` is understood, too. Several columns are one key; in
    text they may be in parentheses. A row with a NULL in its key passes, as in SQL. A table may refer to itself; the
    batch's own rows count then.

    Both columns must be of one type, or of types whose values compare exactly: ``int`` with ``long``, ``decimal`` or
    ``double``, not ``long`` with ``double``, nor text with numbers. A missing table or column is an error (exit code
    2), not a failed check.

    Example:
        >>> str(relationships("dest", to="nyc.airports", to_columns="faa"))
        "relationships(dest, to='nyc.airports', to_columns='faa', scope='table')"
    """
    columns = tuple(audited(name).name for name in (column, *more))
    others = (to_columns,) if isinstance(to_columns, str) else tuple(to_columns or columns)
    return OrphanRows(columns, TableIdentifier.parse(to), others)


@relationships.prepare
def _prepare(check: Check) -> Check:
    others = _others(check)
    if len(others) != len(check.columns):
        raise ValueError(f"{_count(check.columns)} cannot be compared with {_count(others)}.")
    rest = {key: value for key, value in check.arguments.items() if key != "to" and others != check.columns}
    try:
        arguments = {"to": str(TableIdentifier.parse(check.arguments["to"])), **rest}
    except IdentifierError as error:
        raise ValueError(error.message) from None
    return check.model_copy(update={"arguments": arguments})


@relationships.claim
def _claim(check: Check) -> str:
    table, others = check.arguments["to"], _others(check)
    if len(others) == 1:
        return f"every {check.columns[0]} is a {others[0]} of {table}"
    return f"every ({', '.join(check.columns)}) is a ({', '.join(others)}) of {table}"


def _others(check: Check) -> tuple[str, ...]:
    named = check.arguments.get("to_columns", check.columns)
    return (named,) if isinstance(named, str) else tuple(named)


def _count(columns: tuple[str, ...]) -> str:
    return f"{len(columns)} column{'' if len(columns) == 1 else 's'}"
