"""``not_null(column, …)``: no value of the column is NULL.

NaN is a value, not NULL. Several columns make a check each. Manifests answer both ways with the exact count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.columns import column_type, resolve
from lakegate.audits.evidence import metrics
from lakegate.audits.rule import FailingRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema

_SYNTAX = Syntax("not_null", "not_null(column, …)", "not_null(passenger_count)", columns=None)


class NotNull:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        columns = bind(_SYNTAX, positional, keywords).columns
        return tuple(Check(kind=self.kind, columns=(column,)) for column in columns)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; a column of any type will do."""
        return resolve(check, schema)

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return f"{check.columns[0]} is never NULL"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:
        """Add up null counts; unknown when a file lacks its own, and for nested columns."""
        if column_type(check, schema).nested:
            return None
        found = [metrics(file, check.columns[0]) for file in added.files if file.rows]
        counts = [item.null_count for item in found if item is not None and item.null_count is not None]
        return Finding(sum(counts)) if len(counts) == len(found) else None

    def question(self, check: Check, schema: Schema) -> FailingRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return FailingRows(f"{quote(check.columns[0])} IS NULL")


RULE = NotNull()
