"""``in_range(column, min, max, inclusive=True)``: every value lies between ``min`` and ``max``.

Either end may be left out. With ``inclusive=False`` the ends themselves fail, both of them. NULL passes; NaN is in no
range, so it fails. Dates and times are ISO 8601 text: a date alone, compared with a time, is its midnight, and a time
without a zone, compared with a ``timestamptz`` column, is UTC. Text compares by code point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.column_types import ColumnType, Family
from lakegate.audits.columns import column_type, refuse, resolve
from lakegate.audits.evidence import proves_values
from lakegate.audits.ranges import Range
from lakegate.audits.rule import FailingRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema

_SYNTAX = Syntax(
    "in_range",
    "in_range(column, min, max, inclusive=True)",
    "in_range(fare_amount, 0, 500)  or  in_range(pickup, min='2024-01-01')",
    parameters=("min", "max", "inclusive"),
)


class InRange:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        bound = bind(_SYNTAX, positional, keywords)
        arguments = bound.values
        if "min" not in arguments and "max" not in arguments:
            raise _SYNTAX.error("it needs min, max or both.")
        for end in ("min", "max"):
            if isinstance(arguments.get(end), (bool, list)):
                raise _SYNTAX.error(f"{end}={arguments[end]!r} is neither a number nor a text.")
        if not isinstance(arguments.get("inclusive", True), bool):
            raise _SYNTAX.error(f"inclusive={arguments['inclusive']!r} is neither True nor False.")
        if arguments.get("inclusive"):
            del arguments["inclusive"]
        return (Check(kind=self.kind, columns=bound.columns, arguments=arguments),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; the column must have an order and the ends be of its type."""
        resolved = resolve(check, schema)
        column = column_type(resolved, schema)
        if column.family in (Family.BOOLEAN, Family.OTHER):
            raise refuse(
                check,
                f"column '{resolved.columns[0]}' is of type {column.text}, which has no ranges.",
                "Use in_range for numbers, dates, times and text; accepted_values(…) or sql('…') for the rest.",
            )
        try:
            _range(resolved, column)
        except ValueError as error:
            raise refuse(
                check,
                f"column '{resolved.columns[0]}' is of type {column.text}, and {error}.",
                "Give ends of the column's type, the smaller one first: numbers, or quoted dates and times.",
            ) from None
        return resolved

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        inclusive = check.arguments.get("inclusive", True)
        low, high = (check.arguments.get(end) for end in ("min", "max"))
        parts = []
        if low is not None:
            parts.append(f"{'at least' if inclusive else 'more than'} {low}")
        if high is not None:
            parts.append(f"{'at most' if inclusive else 'less than'} {high}")
        return f"{check.columns[0]} is {' and '.join(parts)}"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:
        """Passes where bounds prove it; bounds outside the range prove nothing, for they need not be tight."""
        column = column_type(check, schema)
        allowed = _range(check, column)
        proven = proves_values(
            added, check.columns[0], column, one=lambda value: allowed.covers(value, value), bounds=allowed.covers
        )
        return Finding(0) if proven else None

    def question(self, check: Check, schema: Schema) -> FailingRows:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return FailingRows(_range(check, column_type(check, schema)).outside(quote(check.columns[0])))


def _range(check: Check, column: ColumnType) -> Range:
    arguments = check.arguments
    return Range.of(
        column, arguments.get("min"), arguments.get("max"), inclusive=bool(arguments.get("inclusive", True))
    )


RULE = InRange()
