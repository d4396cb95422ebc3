r"""Splits Spark SQL into tokens, exactly as Spark does.

What is checked must be what runs. If two lexers disagree on a single comment, a statement can hide in it: Spark, for
instance, continues a ``-- \`` comment on the next line. So users' SQL is split here, by the rules of Spark's own lexer
(``SqlBaseLexer.g4``). Comments are dropped, and whatever Spark's versions read differently, or not at all, is refused.
Checks look at these tokens, and only text made from them is sent to Spark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "string", "quoted", "symbol", "hint"]

RUNS_CODE = frozenset({"java_method", "reflect", "try_reflect"})
"""Functions that call any Java method in Spark: ``reflect('java.lang.System', 'getenv', …)`` reads its secrets."""
PARSES_XML = frozenset(
    f"xpath{ending}"
    for ending in ("", "_boolean", "_double", "_float", "_int", "_long", "_number", "_short", "_string")
)
"""Functions that open the document type definition that an XML text names, by path or over the network."""
XML_OPTIONS = {"from_xml": 2, "schema_of_xml": 1}
"""Functions with an option that makes Spark open a file, and the number of arguments before the options."""
_SPACE = " \t\n\f\r\x0b\xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_TOKEN = re.compile(
    rf"""
      (?P<space>[{_SPACE}]+)
    | (?P<line>--[^\r\n]*+(?P<continued>(?<=\\)\n)?)
    | (?P<hint>/\*\+)
    | (?P<block>/\*)
    | (?P<hint_end>\*/)
    | (?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
    | (?P<word>\w+)
    | (?P<string>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+")
    | (?P<quoted>`(?:[^`]|``)*+`)
    | (?P<url>://)
    | (?P<symbol>[;(),.\[\]!=<>+\-*/%~&|^:?])
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_PART = re.compile(r"/\*(?P<hint>\+)?|(?P<end>\*/)")
_UNSAFE_IN_STRING = re.compile(r"[^A-Za-z0-9_.,:/ =-]")
_UNSAFE_IN_NAME = re.compile(r"[\\\x00-\x1f\x7f]")
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[01][0-7]{2})|u(?P<short>[0-9A-Fa-f]{4})|U(?P<long>[0-9A-Fa-f]{8})|(?P<character>.))", re.DOTALL
)
_SPECIAL = re.compile(r"[\x00-\x1f\x7f$'\\\ud800-\udfff]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}
_CONTROLS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_UNCLOSED = {"'": "A text that starts with ' is never closed", '"': 'A text that starts with " is never closed'}
_COMMENTS = frozenset({"block", "line"})
_KINDS: dict[str, Kind] = {
    "raw": "string",
    "string": "string",
    "hint": "hint",
    "hint_end": "hint",
    "word": "word",
    "quoted": "quoted",
    "symbol": "symbol",
}
_OPENING = {")": "(", "]": "["}


class SqlTextError(ValueError):
    """The SQL can't be split into tokens. The message is a sentence that says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One token of a statement.

    Attributes:
        kind: ``string`` is a string literal, ``quoted`` a name in backticks, ``hint`` is ``/*+`` or its end.
        text: The token as written.
        before: What separates it from the previous token: nothing, a space, or line ends. Never a comment.
        start: Its offset in the text.
        line: Its line, from 1.
        column: Its column, from 1.
    """

    kind: Kind
    text: str
    before: str
    start: int
    line: int
    column: int

    @property
    def upper(self) -> str:
        """The word or symbol in upper case; empty for literals and quoted names, which are never keywords."""
        return self.text.upper() if self.kind in {"word", "symbol"} else ""

    @property
    def name(self) -> str:
        """The name: a word as it is, or a quoted name without backticks."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text

    @property
    def value(self) -> str:
        r"""A string's value, unescaped by Spark's rules; other tokens as they are."""
        if self.kind != "string":
            return self.text
        if self.text[0] in "rR":
            return self.text[2:-1]
        quote = self.text[0]
        return _ESCAPE.sub(_unescaped, self.text[1:-1].replace(quote * 2, quote))

    @property
    def position(self) -> str:
        """Its line and column, for messages."""
        return f"line {self.line}, column {self.column}"


def sql_tokens(sql: str) -> tuple[SqlToken, ...]:
    r"""Split one statement into tokens, without comments and a trailing ``;``.

    Raises:
        SqlTextError: If something isn't closed or isn't a token in Spark, brackets don't match, or there is more than
            one statement.

    Example:
        >>> sql_text(sql_tokens("SELECT/* all of it */1 -- done"))
        'SELECT 1'
        >>> sql_tokens("-- \\\nSELECT 1")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        lakegate.model.sqltext.SqlTextError: The comment at line 1, column 1 ends in a backslash, so Spark ...
    """
    found = list(_scan(sql))
    while found and found[-1].text == ";":
        found.pop()
    for token in found:
        if token.text == ";":
            raise SqlTextError(f"There is more than one statement: ';' at {token.position} ends the first.")
    _require_brackets(found)
    return tuple(found)


def sql_text(tokens: Iterable[SqlToken]) -> str:
    """Return the tokens as text: as written, without comments, with the same line breaks.

    Example:
        >>> sql_text(sql_tokens("SELECT a.b -- why"))
        'SELECT a.b'
    """
    return "".join(f"{token.before}{token.text}" for token in tokens).strip(" ")


def sql_string(text: str) -> str:
    r"""Return a string as a Spark SQL literal. Quotes, backslashes and ``${variable}`` in it have no effect.

    Requires Spark's default, ``spark.sql.parser.escapedStringLiterals=false``: a backslash escapes.

    Example:
        >>> print(sql_string("it's 5 $ \\ or more"))
        'it\'s 5 \u0024 \\ or more'
    """
    return f"'{_SPECIAL.sub(_escaped, text)}'"


def not_pushed_down(predicate: str) -> str:
    """Rewrite a predicate so that Spark evaluates it for each row instead of pushing it down.

    Spark then accepts predicates of any type, even if their values are neither true nor false.

    Example:
        >>> not_pushed_down("fare > 5")
        "coalesce(CAST((fare > 5) AS STRING), '') = 'true'"
    """
    # Spark would remove a cast to a number. Without coalesce, it would push down that the columns aren't NULL.
    return f"coalesce(CAST(({predicate}) AS STRING), '') = 'true'"


def sql_skeleton(tokens: Sequence[SqlToken]) -> str:
    r"""Return the tokens as SQL that other parsers can't read differently.

    Hints are left out. Strings keep only plain characters, so that escaping rules don't matter.

    Example:
        >>> sql_skeleton(sql_tokens(r"SELECT /*+ COALESCE(1) */ 'it\'s', r'\n'"))
        "SELECT   'it__s', '_n'"
    """
    parts: list[str] = []
    in_hint = False
    for token in tokens:
        if token.kind == "hint":
            in_hint = token.text == "/*+"
            parts.append(token.before or " ")
        elif not in_hint:
            parts.append(token.before + _plain(token))
    return "".join(parts)


def may_open_file(function: str, call: Sequence[SqlToken]) -> bool:
    """Return whether a call may make Spark open a file: by that option, or by options that aren't plain strings.

    Args:
        function: Its name, in lower case.
        call: The tokens from its opening parenthesis on.
    """
    depth, arguments = 0, list[list[SqlToken]]([[]])
    for token in call:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.upper, 0)
        if depth == 0:
            break
        if token.text == "," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append(token)
    for option in arguments[XML_OPTIONS.get(function, len(arguments)) :]:
        inner = option[2:-1]
        is_plain = [token.upper for token in option[:2]] == ["MAP", "("] and all(
            token.text == "," if index % 2 else token.kind == "string" for index, token in enumerate(inner)
        )
        if not is_plain or any(token.value.lower() == "rowvalidationxsdpath" for token in inner):
            return True
    return False


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}")


def _unescaped(match: re.Match[str]) -> str:
    character = match["character"]
    if character is None:
        code = int(match["octal"], 8) if match["octal"] else int(match["short"] or match["long"], 16)
        return chr(code) if code <= sys.maxunicode else "\ufffd"
    return _CONTROLS.get(character, match.group() if character in "%_" else character)


def _plain(token: SqlToken) -> str:
    if token.kind == "string":
        inner = token.text.lstrip("rR")[1:-1]
        return f"'{_UNSAFE_IN_STRING.sub('_', inner)}'"
    return _UNSAFE_IN_NAME.sub("?", token.text) if token.kind == "quoted" else token.text


def _scan(sql: str) -> Iterable[SqlToken]:
    at, before, in_hint = 0, "", False
    line, line_start = 1, 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        began, column = line, at - line_start + 1
        position = f"line {began}, column {column}"
        if match is None:
            raise SqlTextError(_unreadable(sql[at], position))
        kind, text = str(match.lastgroup), match.group()
        end = _comment_end(sql, match, position) if kind in _COMMENTS else match.end()
        if newlines := sql.count("\n", at, end):
            line, line_start = line + newlines, sql.rfind("\n", at, end) + 1
        if kind == "space" or kind in _COMMENTS:
            before = "\n" * (before + sql[at:end]).count("\n") or " "
        else:
            _require_known(kind, text, position)
            if kind in {"hint", "hint_end"}:
                if in_hint == (kind == "hint"):
                    raise SqlTextError(f"'{text}' at {position} isn't expected: hints are written as /*+ … */.")
                in_hint = not in_hint
            yield SqlToken(_KINDS[kind], text, before, at, began, column)
            before = ""
        at = end
    if in_hint:
        raise SqlTextError("A hint that starts with '/*+' is never closed.")


def _require_known(kind: str, text: str, position: str) -> None:
    if kind == "url":
        raise SqlTextError(f"'://' at {position} isn't SQL. Put addresses in quotes.")
    if kind == "word" and not all(character.isascii() or character.isalpha() for character in text):
        raise SqlTextError(f"'{text}' at {position} has a character that Spark SQL only allows in backticks.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SqlTextError(f"The text at {position} isn't valid Unicode.")


def _comment_end(sql: str, match: re.Match[str], position: str) -> int:
    if match.lastgroup == "line":
        if match.group("continued"):
            raise SqlTextError(
                f"The comment at {position} ends in a backslash, so Spark continues it on the next line. "
                "Remove the backslash."
            )
        return match.end()
    depth, at = 1, match.end()
    while depth:
        found = _BLOCK_PART.search(sql, at)
        if found is None:
            raise SqlTextError(f"The comment that starts at {position} is never closed.")
        if found.group("hint"):
            raise SqlTextError(f"The comment that starts at {position} contains '/*+'. Remove it.")
        depth += -1 if found.group("end") else 1
        at = found.end()
    return at


def _require_brackets(tokens: Iterable[SqlToken]) -> None:
    opened: list[SqlToken] = []
    for token in tokens:
        if token.text in {"(", "["} or token.text == "/*+":
            opened.append(token)
        elif token.text in {")", "]", "*/"}:
            before = opened.pop() if opened else None
            if before is None or before.text != _OPENING.get(token.text, "/*+"):
                raise SqlTextError(f"'{token.text}' at {token.position} closes nothing.")
    if opened:
        raise SqlTextError(f"'{opened[-1].text}' at {opened[-1].position} is never closed.")


def _unreadable(character: str, position: str) -> str:
    if character in _UNCLOSED:
        return f"{_UNCLOSED[character]} ({position})."
    if character == "`":
        return f"A name that starts with ` is never closed ({position})."
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    return f"'{shown}' at {position} isn't SQL. Put names with this character in backticks."
