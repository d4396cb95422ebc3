"""``relationships(column, …, to='ns.table', to_columns=…)``: every key of the batch exists in another table.

A foreign key, by dbt's name for it. The other table is looked at as it would be after publishing, so that a batch may
bring both sides. Rows with a NULL among their columns are left out, as in SQL (``MATCH SIMPLE``). Several columns are
one key; in text they may stand in parentheses. ``field`` is dbt's word for a single column of the other table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind, column_name
from lakegate.audits.columns import resolve_key
from lakegate.audits.rule import Finding, OrphanRows
from lakegate.errors import IdentifierError
from lakegate.model.checks import Check, Scope
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema

_SYNTAX = Syntax(
    "relationships",
    "relationships(column, …, to='namespace.table', to_columns=…)",
    "relationships(tailnum, to='nyc.planes')  or  relationships(a, b, to='ns.t', to_columns=(x, y))",
    parameters=("to", "to_columns", "field"),
    columns=None,
)


class Relationships:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example
    scopes: tuple[Scope, ...] = ("table",)

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        given = {key: value for key, value in keywords.items() if value is not None}
        if "field" in given and "to_columns" in given:
            raise _SYNTAX.error("'field' and 'to_columns' say the same; give one of them.")
        named = {key: _names(given.pop(key)) for key in ("field", "to_columns") if key in given}
        grouped = len(positional) == 1 and isinstance(positional[0], (list, tuple))
        bound = bind(_SYNTAX, positional[0] if grouped else positional, given)
        arguments: dict[str, Any] = {"to": _table(bound.values.get("to"))}
        others = tuple(column_name(_SYNTAX, value) for values in named.values() for value in values) or bound.columns
        if len(others) != len(bound.columns):
            raise _SYNTAX.error(f"{_columns(len(bound.columns))} cannot be compared with {_columns(len(others))}.")
        if others != bound.columns:
            arguments["to_columns"] = list(others) if len(others) > 1 else others[0]
        return (Check(kind=self.kind, columns=bound.columns, arguments=arguments, scope="table"),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; maps cannot be compared."""
        return resolve_key(check, schema)

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        table, others = check.arguments["to"], _others(check)
        if len(others) == 1:
            return f"every {check.columns[0]} is a {others[0]} of {table}"
        return f"every ({', '.join(check.columns)}) is a ({', '.join(others)}) of {table}"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:  # noqa: ARG002  the protocol's signature
        """Unknown: metrics tell no single values."""
        return None

    def question(self, check: Check, schema: Schema) -> OrphanRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return OrphanRows(check.columns, TableIdentifier.parse(check.arguments["to"]), _others(check))


def _others(check: Check) -> tuple[str, ...]:
    return tuple(_names(check.arguments.get("to_columns", check.columns)))


def _names(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _table(value: Any) -> str:
    if not isinstance(value, str):
        raise _SYNTAX.error("it needs to='…', the other table.")
    try:
        return str(TableIdentifier.parse(value))
    except IdentifierError as error:
        raise _SYNTAX.error(error.message) from None


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


RULE = Relationships()
