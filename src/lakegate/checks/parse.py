r"""Parses the text of a check: ``kind(column, …, key=literal)``.

The grammar is Python's call syntax with literals, parsed with :mod:`ast`. Nothing is evaluated. There are three
extensions: a column may be named like a Python keyword (``not_null(class)``), a name keeps its exact characters, and a
backslash that starts no Python escape is kept (``'^\d+$'``). ``r'…'`` works, too, and is best for regular expressions
(``'\b'`` is a backspace, ``r'\b'`` a word boundary).
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from lakegate.checks.definition import BareName
from lakegate.checks.questions import start_of
from lakegate.checks.registry import find_check, known_checks
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.words import rounded

_MAX_LENGTH = 1_000_000  # characters; anything longer is a mistake and slow to parse
_CONSTANTS = ("None", "True", "False")
_UNKNOWN_ESCAPE = re.compile(r"\\(?:([\n\r\\'\"abfnrtv0-7xuUN])|(.))", re.DOTALL)
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def parse_checks(text: str) -> tuple[Check, ...]:
    """Parse the text of one or more checks: ``not_null(a, b)`` is a check for each column.

    Args:
        text: Such as ``in_range(fare_amount, 0, 500, severity='warn')``. ``str(check)`` parses to an equal check.

    Raises:
        CheckError: If it isn't a call, the check is unknown, or its arguments are wrong.

    Example:
        >>> [str(check) for check in parse_checks("not_null(id, 'Trip Distance')")]
        ['not_null(id)', "not_null('Trip Distance')"]
        >>> str(*parse_checks("in_range(fare_amount, max=500)"))
        'in_range(fare_amount, max=500)'
    """
    call = _parse_call(text)
    if not isinstance(call.func, ast.Name):
        raise _not_a_call(text)
    # Report an unknown check before anything wrong with its arguments.
    definition = find_check(call.func.id)
    keywords: dict[str, Any] = {}
    for item in call.keywords:
        if item.arg is None:
            raise _unreadable(text, "'**' isn't allowed.")
        if item.arg in keywords:
            raise _unreadable(text, f"'{item.arg}' is given twice.")
        keywords[item.arg] = _literal(item.value, text)
    return definition.make([_literal(item, text) for item in call.args], keywords)


def parsed_checks(checks: Sequence[str | Check]) -> tuple[Check, ...]:
    """Return checks, given as text or as values, each once."""
    groups = (parse_checks(check) if isinstance(check, str) else (check,) for check in checks)
    return tuple({str(check): check for group in groups for check in group}.values())


def parse_check(text: str) -> Check:
    """Parse one check, as ``str(check)`` writes it.

    Raises:
        CheckError: As for :func:`parse_checks`, and if the text makes several checks.

    Example:
        >>> parse_check("unique(vendor, trip)").columns
        ('vendor', 'trip')
    """
    checks = parse_checks(text)
    if len(checks) != 1:
        raise CheckError(
            f"{text} makes {len(checks)} checks, but one is expected.",
            hint="Write them one by one: " + ", ".join(map(str, checks)),
            check=text,
        )
    return checks[0]


def _parse_call(text: str) -> ast.Call:
    if not text.strip():
        raise CheckError(
            "A check is empty.", hint=f"Write one of: {', '.join(known_checks())}, for example not_null(id)."
        )
    if len(text) > _MAX_LENGTH:
        raise CheckError(
            f"A check of {len(text):,} characters is too long.", hint="Use sql(…) with a shorter condition."
        )
    try:
        readable = _readable_by_python(text.strip())
        tree = ast.parse(readable, mode="eval")
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL character, or an integer of thousands of digits
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _unreadable(text, f"{problem.rstrip('.?')}.") from None
    except (RecursionError, MemoryError):
        raise _unreadable(text, "it is nested too deeply.") from None
    if not isinstance(tree.body, ast.Call):
        raise _not_a_call(text)
    for node in ast.walk(tree.body):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            _require_exact(ast.get_source_segment(readable, node) or repr(node.value), text)
    return tree.body


def _require_exact(written: str, text: str) -> None:
    """Refuse a number with more digits than a double keeps: the check would compare with a different number."""
    if (problem := rounded(written)) is not None:
        raise CheckError(
            f"The check {start_of(text)} can't be read: {problem}.",
            hint=f"For a decimal column, write it in quotes: '{written}'.",
            check=start_of(text),
        )


def _literal(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return BareName(node.id)
    if isinstance(node, ast.Attribute):  # a field of a struct: address.zip
        inner = _literal(node.value, text) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        if isinstance(inner, BareName):
            return BareName(f"{inner}.{node.attr}")
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(item, text) for item in node.elts]
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _literal(node.operand, text)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    raise _unreadable(text, f"'{ast.unparse(node)}' isn't a literal value or a plain column name.")


def _readable_by_python(text: str) -> str:
    """Rewrite ``text`` so that Python's parser accepts the three extensions."""
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _LAYOUT]
    except (tokenize.TokenError, SyntaxError):
        return text  # let the parser say what's wrong
    edits = list(_edits(tokens))
    lines = io.StringIO(text).readlines()
    for token, replacement in reversed(edits):
        (row, start), (end_row, end) = token.start, token.end
        tail = lines[end_row - 1][end:]
        lines[row - 1 : end_row] = [lines[row - 1][:start] + replacement + tail]
    return "".join(lines)


def _edits(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    depth = 0
    before = ""
    for token, after in pairwise(tokens):
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if token.type == tokenize.STRING:
            escaped = _double_unknown_escapes(token.string)
            if escaped != token.string:
                yield token, escaped
        alone = before in ("(", ",") and after.string in (")", ",")
        if token.type == tokenize.NAME and depth == 1 and alone and _misread(token.string):
            yield token, repr(token.string)
        before = token.string


def _misread(name: str) -> bool:
    # Keywords aren't expressions, and Python normalizes other names to NFKC.
    return name not in _CONSTANTS and (keyword.iskeyword(name) or not name.isascii())


def _double_unknown_escapes(literal: str) -> str:
    prefix = literal[: len(literal) - len(literal.lstrip("rRbBfFuU"))]
    if prefix.lower() not in ("", "u"):
        return literal
    return _UNKNOWN_ESCAPE.sub(lambda match: match[0] if match[1] else f"\\\\{match[2]}", literal)


def _unreadable(text: str, problem: str) -> CheckError:
    hint = (
        "Write a check as kind(column, …, key=value); text and odd column names are quoted: not_null('Trip Distance')."
    )
    kind = re.match(r"\s*(\w+)", text)
    if kind and kind[1] in known_checks():
        definition = find_check(kind[1])
        hint = (
            f"Write {definition.signature}, for example: {definition.example}  (text and odd column names are quoted)"
        )
    return CheckError(f"The check {start_of(text)} can't be read: {problem}", hint=hint, check=start_of(text))


def _not_a_call(text: str) -> CheckError:
    return _unreadable(text, "it isn't of the form kind(…).")
