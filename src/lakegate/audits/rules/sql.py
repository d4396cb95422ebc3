"""``sql('predicate')``: no row satisfies the predicate. A row for which it is *true* fails; NULL and false pass.

The predicate is Spark SQL about one row: no subqueries, aggregates, window functions, generators or comments.
In its canonical text the check names the columns that the predicate refers to:
``sql(fare_amount, predicate='fare_amount < 0')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.columns import refuse, resolve
from lakegate.audits.rule import FailingRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.schema import Schema

if TYPE_CHECKING:
    from lakegate.audits.predicates import Predicate

_SYNTAX = Syntax("sql", "sql('predicate')", "sql('fare_amount < 0')", parameters=("predicate",), columns=0)


class Sql:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        named = () if "predicate" not in keywords else positional
        values = bind(_SYNTAX, () if named else positional, keywords).values
        text = values.get("predicate")
        if not isinstance(text, str) or not text.strip():
            raise _SYNTAX.error("it needs a predicate, a quoted text.")
        text = text.strip()
        columns = _read(text).columns
        if named:
            columns = _confirmed([str(name) for name in named], columns)
        return (Check(kind=self.kind, columns=columns, arguments={"predicate": text}),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; every column must exist, and a column alone be a truth value."""
        resolved = resolve(check, schema)
        alone = _read(check.arguments["predicate"]).lone_column
        column = None if alone is None else schema.find(alone)
        if column is not None and column.type != "boolean":
            raise refuse(
                check,
                f"column '{column.name}' is of type {column.type}, not a truth value.",
                f"Compare it with something: sql('{column.name} < 0').",
            )
        return resolved

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return f"no row has {check.arguments['predicate']}"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:  # noqa: ARG002  the protocol's signature
        """Unknown: a predicate can be anything."""
        return None

    def question(self, check: Check, schema: Schema) -> FailingRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return FailingRows(f"({check.arguments['predicate']})", by_user=True)


def _read(text: str) -> Predicate:
    # sqlglot takes 0.4 s to import, and this module is loaded by whoever lists rules.
    from lakegate.audits.predicates import PredicateError, read_predicate  # noqa: PLC0415

    try:
        return read_predicate(text)
    except PredicateError as error:
        raise _SYNTAX.error(f"the predicate {text!r} {error}.") from None


def _confirmed(named: Sequence[str], found: tuple[str, ...]) -> tuple[str, ...]:
    if {name.lower() for name in named} != {name.lower() for name in found} or len(named) != len(found):
        raise _SYNTAX.error(f"the predicate refers to {', '.join(found) or 'no column'}, not to {', '.join(named)}.")
    return tuple(named)


RULE = Sql()
