"""``accepted_values(column, [value, …])``: every value is one of the list.

NULL passes, whether or not the list has a ``None`` (which is left out: in SQL it would make the check pass always).
Text compares exactly; NaN is none of the list. Dates and times are ISO 8601 text, as for ``in_range``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.column_types import ColumnType, Family, TypedValue, typed
from lakegate.audits.columns import column_type, refuse, resolve
from lakegate.audits.evidence import proves_values
from lakegate.audits.literals import literal
from lakegate.audits.rule import FailingRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema

_SYNTAX = Syntax(
    "accepted_values",
    "accepted_values(column, [value, …])",
    "accepted_values(payment_type, ['cash', 'card'])",
    parameters=("values",),
)
_MOST_SHOWN = 10


class AcceptedValues:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        bound = bind(_SYNTAX, positional, keywords)
        given = bound.values.get("values")
        if not isinstance(given, list):
            raise _SYNTAX.error("it needs a list of values.")
        if any(isinstance(value, list) for value in given):
            raise _SYNTAX.error("a list inside the list is no value.")
        values = [value for value in given if value is not None]
        if not values:
            raise _SYNTAX.error("the list is empty.")
        return (Check(kind=self.kind, columns=bound.columns, arguments={"values": values}),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; every value must be one that the column can hold."""
        resolved = resolve(check, schema)
        column = column_type(resolved, schema)
        if column.family is Family.OTHER:
            raise refuse(
                check,
                f"column '{resolved.columns[0]}' is of type {column.text}, which has no literals.",
                "Use sql('…') for this column.",
            )
        try:
            _accepted(resolved, column)
        except ValueError as error:
            raise refuse(
                check,
                f"column '{resolved.columns[0]}' is of type {column.text}, and {error}.",
                "Give values of the column's type.",
            ) from None
        return resolved

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        values = check.arguments["values"]
        more = len(values) - _MOST_SHOWN
        shown = ", ".join(repr(value) for value in values[:_MOST_SHOWN])
        return f"{check.columns[0]} is one of {shown}" + (f" and {more} more" if more > 0 else "")

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:
        """Passes for identity partitions, and where bounds leave no room for another value."""
        column = column_type(check, schema)
        accepted = set(_accepted(check, column))

        def only_accepted(low: object, high: object) -> bool:
            if not (column.holds(low) and column.holds(high)):
                return False
            return (low == high and low in accepted) or _all_between(low, high, accepted)

        proven = proves_values(
            added, check.columns[0], column, one=lambda value: value in accepted, bounds=only_accepted
        )
        return Finding(0) if proven else None

    def question(self, check: Check, schema: Schema) -> FailingRows:
        """See :class:`~lakegate.audits.rule.Rule`."""
        column = column_type(check, schema)
        values = ", ".join(literal(value, column) for value in _accepted(check, column))
        return FailingRows(f"{quote(check.columns[0])} NOT IN ({values})")


def _accepted(check: Check, column: ColumnType) -> tuple[TypedValue, ...]:
    return tuple(dict.fromkeys(typed(value, column) for value in check.arguments["values"]))


def _all_between(low: Any, high: Any, accepted: set[TypedValue]) -> bool:
    """Tell whether every value from ``low`` to ``high`` of a type with few enough of them is accepted."""
    if type(low) in (bool, int):
        return 0 <= high - low < len(accepted) and all(value in accepted for value in range(low, high + 1))
    return False


RULE = AcceptedValues()
