"""``unique(column, …)``: no two rows share their values in these columns (taken together).

By default among the rows of the batch; with ``scope='table'`` no row of the batch shares them with any row of the table
as it would be after publishing. Rows with a NULL among them are left out, as in SQL. Failing rows are all rows *of the
batch* that share their key with another one (a key that occurs three times makes three). NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.columns import resolve_key
from lakegate.audits.rule import DuplicateRows, Finding
from lakegate.model.checks import Check, Scope
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema

_SYNTAX = Syntax("unique", "unique(column, …, scope='batch')", "unique(vendor_id, trip_id)", columns=None)


class Unique:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example
    scopes: tuple[Scope, ...] = ("batch", "table")

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return (Check(kind=self.kind, columns=bind(_SYNTAX, positional, keywords).columns),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; maps cannot be compared."""
        return resolve_key(check, schema)

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        where = " in the whole table" if check.scope == "table" else ""
        if len(check.columns) == 1:
            return f"{check.columns[0]} is unique{where}"
        return f"{', '.join(check.columns[:-1])} and {check.columns[-1]} together are unique{where}"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:  # noqa: ARG002  the protocol's signature
        """Known only where there is nothing to compare."""
        return Finding(0) if added.rows <= (1 if check.scope == "batch" else 0) else None

    def question(self, check: Check, schema: Schema) -> DuplicateRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return DuplicateRows(check.columns, check.scope)


RULE = Unique()
