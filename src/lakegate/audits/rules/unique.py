"""``unique(column, …)``: no two rows of the batch share their values in these columns (taken together).

Rows with a NULL among them are left out, as in SQL. Failing rows are all rows that share their key with another one
(a key that occurs three times makes three). NaN equals NaN. Only the batch is looked at, not the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.column_types import ColumnType
from lakegate.audits.columns import refuse, resolve
from lakegate.audits.rule import DuplicateRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema

_SYNTAX = Syntax("unique", "unique(column, …)", "unique(vendor_id, trip_id)", columns=None)


class Unique:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return (Check(kind=self.kind, columns=bind(_SYNTAX, positional, keywords).columns),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; maps cannot be compared."""
        resolved = resolve(check, schema)
        if len(set(resolved.columns)) < len(resolved.columns):
            raise refuse(check, "it names one column twice.", "Column names ignore case; name each column once.")
        for column in schema.columns:
            if column.name in resolved.columns and not ColumnType.parse(column.type).groupable:
                raise refuse(
                    check,
                    f"column '{column.name}' is of type {column.type}, whose values cannot be compared.",
                    "Ask for uniqueness of plain columns.",
                )
        return resolved

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        if len(check.columns) == 1:
            return f"{check.columns[0]} is unique"
        return f"{', '.join(check.columns[:-1])} and {check.columns[-1]} together are unique"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:  # noqa: ARG002  the protocol's signature
        """Known only where there is nothing to compare."""
        return Finding(0) if added.rows <= 1 else None

    def question(self, check: Check, schema: Schema) -> DuplicateRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return DuplicateRows(check.columns)


RULE = Unique()
