from __future__ import annotations

import re
from typing import Unpack

from lakegate.checks.columns import Family
from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.patterns import EXPLODES, explodes, longest_text
from lakegate.checks.questions import CheckProblem, FailingRows
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.sqltext import sql_string

_QUOTED = re.compile(r"\\Q.*?(?:\\E|\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_INNERMOST_CLASS = re.compile(r"\[\^?\]?[^\[\]]*\]")
_PIECES = re.compile(r"\\.|\[\^?\]?|&&|.", re.DOTALL)
_COMMENTS_FLAG = re.compile(r"\(\?[a-zA-Z-]*x")


@check(
    example="matches(code, r'^[A-Z]{3}$')", aliases=("match_regex",), parameter_aliases={"regex": "pattern"}, nans="–"
)
def matches(column: ColumnName, pattern: str, **options: Unpack[CheckOptions]) -> FailingRows:
    r"""``column`` matches /``pattern``/.

    The pattern is Java's (``java.util.regex.Pattern``) and is *searched*: write ``^…$`` to match the whole text (``$``
    also matches before a final line break, ``\z`` doesn't). For columns of text only. Write patterns as ``r'…'``.
    Refused is what Python reads in another way, ``\Z``, and ``[`` or ``&&`` within ``[ ]``; and a pattern that can take
    forever, such as ``(a+)+$``: write each repetition so that it can match a text in one way only, ``^\w+( \w+)*$``
    instead of ``^(\w+ ?)*$``.

    Others only get slow on long texts. ``\s+$``, ``.*foo.*`` and ``^[^@]+@[^@]+\.[^@]+$`` take time by the square of a
    text's length, ``.*.*x`` by its cube. They're tried on texts up to 10,000 characters (square), 400 (cube) or 120
    (fourth power); a longer one in the column ends the audit with an error (exit code 2), neither a pass nor a failure.
    Beyond the fourth power a pattern is refused. Usually there is one that has no such limit: begin with ``^``, and let
    repetitions side by side share no character, ``^[^,]*,[^,]*x`` instead of ``.*,.*x``. The same holds for patterns in
    ``sql('… RLIKE …')``, and every text of the columns that the predicate names.

    Example:
        >>> str(matches("code", r"^[A-Z]{3}$"))
        "matches(code, pattern='^[A-Z]{3}$')"
    """
    name, kind = audited(column).name, audited(column).type
    if kind.family is not Family.TEXT:
        raise CheckProblem(
            f"column '{name}' is of type {kind.text}, and only text can match a pattern.",
            f"Use in_range({name}, …), or sql('…') with a cast.",
        )
    predicate = f"NOT ({column} RLIKE {sql_string(pattern)})"
    return FailingRows(predicate, by_user=True, longest_text=longest_text(pattern), text=column)


@matches.prepare
def with_usable_pattern(check: Check) -> Check:
    """Return ``check``, whose pattern the engine can surely read.

    Raises:
        ValueError: With what's wrong with it.
    """
    pattern = check.arguments["pattern"]
    if problem := _broken(pattern) if pattern else "is empty":
        raise ValueError(f"the pattern {pattern!r} {problem}.")
    return check


def _broken(pattern: str) -> str | None:
    """Return what's certainly wrong with a Java pattern; the engine finds everything else."""
    if "\b" in pattern:
        return r"holds a backspace; write r'…' so that \b is a word boundary"
    if explodes(pattern):
        return EXPLODES
    bare = _ESCAPED.sub("", _QUOTED.sub("", pattern))
    if bare.endswith("\\"):
        return "ends in a single backslash"
    if _COMMENTS_FLAG.search(bare):
        return None
    while (smaller := _INNERMOST_CLASS.sub("", bare)) != bare:
        bare = smaller
    unclosed = "has a '[' that is never closed" if "[" in bare else _unbalanced(bare)
    return unclosed or _read_otherwise(_QUOTED.sub("", pattern))


def _read_otherwise(pattern: str) -> str | None:
    """Return what Python, and who knows its patterns, would take for something else than Java does."""
    in_class = False
    for found in _PIECES.finditer(pattern):
        piece = found[0]
        if piece == r"\Z" and not in_class:
            return (
                r"holds \Z, which to Java is also before a final line break, and to Python only the end; write \z or $"
            )
        if in_class and (piece[0] == "[" or piece == "&&"):
            return (
                f"holds '{piece[:2].rstrip('^]')}' within [ ], which has a meaning to Java and none to Python; "
                r"write \[ for the character, \p{Alpha} for [:alpha:], (?![…])[…] for all of a class but some"
            )
        in_class = piece[0] == "[" or (in_class and piece != "]")
    return None


def _unbalanced(bare: str) -> str | None:
    depth = 0
    for character in bare:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return "has a ')' too many"
    return "has a '(' that is never closed" if depth else None
