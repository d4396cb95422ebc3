"""A check's columns, looked up in a schema."""

from __future__ import annotations

from lakegate.audits.column_types import ColumnType
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.schema import Column, Schema

_MOST_SHOWN = 30


def resolve(check: Check, schema: Schema) -> Check:
    """Return ``check`` with its columns spelled as ``schema`` has them.

    Raises:
        CheckError: When there is no such column, or Spark cannot be asked for it.
    """
    return check.model_copy(update={"columns": tuple(_find(check, name, schema).name for name in check.columns)})


def resolve_key(check: Check, schema: Schema) -> Check:
    """Return ``check`` as :func:`resolve` does, when its columns can be a key: distinct, and of types that compare.

    Raises:
        CheckError: When they cannot.
    """
    resolved = resolve(check, schema)
    if len(set(resolved.columns)) < len(resolved.columns):
        raise refuse(check, "it names one column twice.", "Column names ignore case; name each column once.")
    for column in schema.columns:
        if column.name in resolved.columns and not ColumnType.parse(column.type).groupable:
            raise refuse(
                check,
                f"column '{column.name}' is of type {column.type}, whose values cannot be compared.",
                "Use plain columns as a key.",
            )
    return resolved


def column_type(check: Check, schema: Schema) -> ColumnType:
    """Return the type of the only (or first) column of a resolved check."""
    return ColumnType.parse(_find(check, check.columns[0], schema).type)


def refuse(check: Check, problem: str, hint: str) -> CheckError:
    """Return an error about a check that cannot be asked of its column."""
    return CheckError(f"{check}: {problem}", hint=hint, check=str(check), columns=list(check.columns) or None)


def _find(check: Check, name: str, schema: Schema) -> Column:
    column = schema.find(name)
    if column is None:
        close = schema.nearest(name)
        shown = ", ".join(schema.names[:_MOST_SHOWN]) + (" …" if len(schema.names) > _MOST_SHOWN else "")
        raise refuse(
            check,
            f"there is no column '{name}'.",
            (f"Did you mean '{close}'? " if close else "") + f"Columns: {shown}.",
        )
    if "${" in column.name:
        raise refuse(
            check,
            f"column '{column.name}' cannot be audited: Spark SQL replaces '${{…}}' in names by settings.",
            "Rename the column.",
        )
    return column
