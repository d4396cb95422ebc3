r"""``matches(column, pattern)``: every text has a match of the regular expression somewhere in it.

The pattern is Java's (``java.util.regex.Pattern``), as Spark's ``rlike`` takes it. It is *searched*; write ``^…$`` to
match the whole text (``$`` also matches before a final line break, ``\z`` does not). NULL passes. Write patterns as
``r'…'``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakegate.audits.arguments import Syntax, bind
from lakegate.audits.column_types import Family
from lakegate.audits.columns import column_type, refuse, resolve
from lakegate.audits.literals import text_literal
from lakegate.audits.rule import FailingRows, Finding
from lakegate.model.checks import Check
from lakegate.model.files import AddedFiles
from lakegate.model.identifiers import quote
from lakegate.model.schema import Schema

_SYNTAX = Syntax("matches", "matches(column, pattern)", "matches(code, r'^[A-Z]{3}$')", parameters=("pattern",))
_QUOTED = re.compile(r"\\Q.*?(?:\\E|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_INNERMOST_CLASS = re.compile(r"\[\^?\]?[^\[\]]*\]")
_COMMENTS_FLAG = re.compile(r"\(\?[a-zA-Z-]*x")


class Matches:
    """The rule; see the module."""

    kind = _SYNTAX.kind
    signature = _SYNTAX.signature
    example = _SYNTAX.example

    def build(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Check, ...]:
        """See :class:`~lakegate.audits.rule.Rule`."""
        bound = bind(_SYNTAX, positional, keywords)
        pattern = bound.values.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            raise _SYNTAX.error("it needs a pattern, a quoted text.")
        if problem := _broken(pattern):
            raise _SYNTAX.error(f"the pattern {pattern!r} {problem}.")
        return (Check(kind=self.kind, columns=bound.columns, arguments=bound.values),)

    def validate(self, check: Check, schema: Schema) -> Check:
        """See :class:`~lakegate.audits.rule.Rule`; only text can match."""
        resolved = resolve(check, schema)
        column = column_type(resolved, schema)
        if column.family is not Family.TEXT:
            raise refuse(
                check,
                f"column '{resolved.columns[0]}' is of type {column.text}, and only text can match a pattern.",
                f"Use in_range({resolved.columns[0]}, …), or sql('…') with a cast.",
            )
        return resolved

    def describe(self, check: Check) -> str:
        """See :class:`~lakegate.audits.rule.Rule`."""
        return f"{check.columns[0]} matches /{check.arguments['pattern']}/"

    def from_manifest(self, check: Check, added: AddedFiles, schema: Schema) -> Finding | None:  # noqa: ARG002  the protocol's signature
        """Unknown: metrics say nothing of a text's inside, and Python's patterns are not Java's."""
        return None

    def question(self, check: Check, schema: Schema) -> FailingRows:  # noqa: ARG002  the protocol's signature
        """See :class:`~lakegate.audits.rule.Rule`."""
        return FailingRows(
            f"NOT ({quote(check.columns[0])} RLIKE {text_literal(check.arguments['pattern'])})", by_user=True
        )


def _broken(pattern: str) -> str | None:
    """Say what is surely wrong with a Java pattern; everything else is left to the engine."""
    if "\b" in pattern:
        return r"holds a backspace; write r'…' so that \b is a word boundary"
    bare = _ESCAPED.sub("", _QUOTED.sub("", pattern))
    if bare.endswith("\\"):
        return "ends in a single backslash"
    if _COMMENTS_FLAG.search(bare):
        return None
    while (smaller := _INNERMOST_CLASS.sub("", bare)) != bare:
        bare = smaller
    if "[" in bare:
        return "has a '[' that is never closed"
    return _unbalanced(bare)


def _unbalanced(bare: str) -> str | None:
    depth = 0
    for character in bare:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return "has a ')' too many"
    return "has a '(' that is never closed" if depth else None


RULE = Matches()
