"""``row_count(min=…, max=…)``: the batch has so many rows.

A failure is about no row in particular: its failing rows are the number of rows missing or too many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.rule import Finding, RowTotal
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema

_SYNTAX = Syntax("row_count", "row_count(min, max)", "row_count(min=1)", parameters=("min", "max"), columns=0)


class RowCount:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        limits = bind(_SYNTAX, positional, keywords).values
        if not limits:
            raise _SYNTAX.error("it needs min, max or both.")
        for name, value in limits.items():
            if type(value) is not int or value < 0:
                raise _SYNTAX.error(f"{name}={value!r} is not a number of rows.")
        if limits.get("min", 0) > limits.get("max", limits.get("min", 0)):
            raise _SYNTAX.error(f"min={limits['min']} is more than max={limits['max']}.")
        return (Check(kind=self.kind, arguments=limits),)

    def validate(self, check: Check, schema: Schema) -> Check:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`; any table will do."""
        return check

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return f"the batch has {_expected(check)}"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding:  # noqa: ARG002  the protocol's signature
        """Always known: complete evidence has every file's rows."""
        return _judge(check, added.rows)

    def question(self, check: Check, schema: Schema) -> RowTotal:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return RowTotal(lambda total: _judge(check, total))


def _judge(check: Check, total: int) -> Finding:
    low, high = check.arguments.get("min", 0), check.arguments.get("max", total)
    off = max(low - total, total - high, 0)
    return Finding(off, f"The batch has {_rows(total)}; expected {_expected(check)}." if off else None)


def _expected(check: Check) -> str:
    low, high = check.arguments.get("min"), check.arguments.get("max")
    if low is None:
        return f"at most {_rows(high)}"
    if high is None:
        return f"at least {_rows(low)}"
    return f"exactly {_rows(low)}" if low == high else f"{low:,} to {_rows(high)}"


def _rows(count: Any) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


RULE = RowCount()
