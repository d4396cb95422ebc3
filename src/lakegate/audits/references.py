"""Keys of one table against columns of another: whether they can be compared at all, and exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lakegate.audits.column_types import ColumnType, Family
from lakegate.audits.columns import refuse
from lakegate.audits.rule import OrphanRows
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema

Schemas: TypeAlias = Callable[[TableIdentifier], Schema | None]
"""Gives the schema of another table as it would be after publishing; ``None`` when there is no such table."""

_MOST_DIGITS = 38  # of a Spark decimal; a comparison that needs more loses fraction digits
_WHOLE_DIGITS = {"int": 10, "long": 20}  # what Spark gives them beside a decimal


def require_reference(check: Check, question: OrphanRows, schema: Schema, schemas: Schemas) -> None:
    """Refuse a question about another table that cannot be asked of it.

    Args:
        check: The check that asks, for the message.
        question: What it asks.
        schema: Of the audited table.
        schemas: Gives the other table's.

    Raises:
        CheckError: When the table or one of the columns does not exist, or their types do not compare exactly.
    """
    other = schemas(question.table)
    if other is None:
        raise no_such_table(check, question.table)
    for name, other_name in zip(question.columns, question.other_columns, strict=True):
        theirs = other.find(other_name)
        if theirs is None:
            close = other.nearest(other_name)
            raise refuse(
                check,
                f"table {question.table} has no column '{other_name}'.",
                (f"Did you mean '{close}'? " if close else "") + "Name its columns in to_columns=…, in order.",
            )
        ours = schema.find(name)
        if ours is not None and not _compare_exactly(ColumnType.parse(ours.type), ColumnType.parse(theirs.type)):
            raise _different(check, question.table, ours, theirs)


def no_such_table(check: Check, table: TableIdentifier) -> CheckError:
    """Return the error about another table that is not there."""
    return refuse(check, f"there is no table {table}.", "`lakegate table list` shows the tables of main.")


def _different(check: Check, table: TableIdentifier, ours: Column, theirs: Column) -> CheckError:
    return refuse(
        check,
        f"column '{ours.name}' is of type {ours.type}, '{theirs.name}' of {table} of type {theirs.type}; "
        "their values do not compare exactly.",
        "Give both columns one type.",
    )


def _compare_exactly(left: ColumnType, right: ColumnType) -> bool:
    families = {left.family, right.family}
    if families <= {Family.INTEGER, Family.DECIMAL}:
        return max(map(_whole_digits, (left, right))) + max(left.scale, right.scale) <= _MOST_DIGITS
    if families == {Family.INTEGER, Family.FLOATING}:
        return {left.text, right.text} == {"int", "double"}
    return len(families) == 1 and (Family.OTHER not in families or left.text == right.text)


def _whole_digits(column: ColumnType) -> int:
    if column.family is Family.DECIMAL:
        return column.precision - column.scale
    return _WHOLE_DIGITS[column.text]
