r"""Spark SQL as text: literals, and users' statements as the tokens of sqlglot's dialect ``spark``.

Only text made from the tokens that were checked is sent to Spark, without comments: where Spark would read a comment
differently (it continues ``-- \`` on the next line), there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "string", "quoted", "symbol"]

RUNS_CODE = frozenset({"java_method", "reflect", "try_reflect"})
"""Functions that call any Java method in Spark: ``reflect('java.lang.System', 'getenv', …)`` reads its secrets."""
PARSES_XML = frozenset(
    f"xpath{ending}"
    for ending in ("", "_boolean", "_double", "_float", "_int", "_long", "_number", "_short", "_string")
)
"""Functions that open the document type definition that an XML text names, by path or over the network."""
XML_OPTIONS = {"from_xml": 2, "schema_of_xml": 1}
"""Functions with an option that makes Spark open a file, and the number of arguments before the options."""
_SPECIAL = re.compile(r"[\x00-\x1f\x7f$'\\\ud800-\udfff]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STRING = re.compile(r"[rR]?['\"]")


class SqlTextError(ValueError):
    """The SQL can't be split into tokens. The message is a sentence that says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One token of a statement.

    Attributes:
        kind: ``string`` is a string literal, ``quoted`` a name in backticks. Hints are symbols.
        text: The token as written.
        before: What separates it from the previous token: nothing, a space, or line ends. Never a comment.
        start: Its offset in the text.
        position: Its line and column, for messages.
    """

    kind: Kind
    text: str
    before: str
    start: int
    position: str

    @property
    def upper(self) -> str:
        """The word or symbol in upper case; empty for literals and quoted names, which are never keywords."""
        return self.text.upper() if self.kind in {"word", "symbol"} else ""

    @property
    def name(self) -> str:
        """The name: a word as it is, or a quoted name without backticks."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def sql_tokens(sql: str) -> tuple[SqlToken, ...]:
    r"""Split one statement into tokens, without comments and a trailing ``;``.

    Raises:
        SqlTextError: If something isn't closed, brackets don't match, or there is more than one statement.

    Example:
        >>> sql_text(sql_tokens("SELECT/* all of it */1 -- done"))
        'SELECT 1'
    """
    import sqlglot  # takes 0.4 s
    from sqlglot.errors import SqlglotError

    try:
        # After '(', no word begins a command, the rest of which sqlglot would take for one text.
        found = sqlglot.tokenize(f"({sql}", read="spark")[1:]
    except SqlglotError:
        raise SqlTextError("A text, a name in backticks or a comment in it is never closed.") from None
    if _SURROGATE.search(sql):
        raise SqlTextError("It isn't valid Unicode.")
    tokens: list[SqlToken] = []
    end, line, line_start = 0, 1, 0
    for token in found:
        begin = token.start - 1
        if begin < end:  # sqlglot's types of numbers such as 1L
            continue
        gap = sql[end:begin]
        if lines := sql.count("\n", end, begin):
            line, line_start = line + lines, sql.rfind("\n", end, begin) + 1
        text = sql[begin : token.end]
        before = "\n" * lines or (" " if gap else "")
        tokens.append(SqlToken(_kind(text), text, before, begin, f"line {line}, column {begin - line_start + 1}"))
        end = token.end
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    second = next((token for token in tokens if token.text == ";"), None)
    if second is not None:
        raise SqlTextError(f"There is more than one statement: ';' at {second.position} ends the first.")
    _require_brackets(tokens)
    return tuple(tokens)


def _require_brackets(tokens: Sequence[SqlToken]) -> None:
    opened: list[SqlToken] = []
    for token in tokens:
        if token.text in {"(", "["}:
            opened.append(token)
        elif token.text in {")", "]"} and (not opened or opened.pop().text + token.text not in {"()", "[]"}):
            raise SqlTextError(f"'{token.text}' at {token.position} closes nothing.")
    if opened:
        raise SqlTextError(f"'{opened[-1].text}' at {opened[-1].position} is never closed.")


def _kind(text: str) -> Kind:
    if _STRING.match(text):
        return "string"
    if text[0] == "`":
        return "quoted"
    return "word" if text[0] == "_" or text[0].isalnum() else "symbol"


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


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}")


def not_pushed_down(predicate: str) -> str:
    """Rewrite a predicate so that Spark evaluates it for each row instead of pushing it down.

    Spark then accepts predicates of any type, even if their values are neither true nor false.

    Example:
        >>> not_pushed_down("fare > 5")
        "coalesce(CAST((fare > 5) AS STRING), '') = 'true'"
    """
    # Spark would remove a cast to a number. Without coalesce, it would push down that the columns aren't NULL.
    return f"coalesce(CAST(({predicate}) AS STRING), '') = 'true'"


def refused_call(tokens: Sequence[SqlToken], index: int) -> str | None:
    """Return why the token at ``index`` begins a call that no statement may make; ``None`` if it doesn't."""
    token, after = tokens[index], tokens[index + 1].text if index + 1 < len(tokens) else ""
    name = token.name.lower()
    if after != "(" or token.kind not in {"word", "quoted"}:
        return None
    if name in RUNS_CODE:
        return "which runs code inside Spark"
    if name in PARSES_XML:
        return "which opens files and addresses that its XML names"
    if name == "identifier" and token.kind == "word":
        return "because that name can't be checked before it runs"
    if name in XML_OPTIONS and _commas(tokens, index + 1) >= XML_OPTIONS[name]:
        return "with options, one of which opens a file"
    return None


def _commas(tokens: Sequence[SqlToken], opening: int) -> int:
    """Return the number of commas between a call's own parentheses."""
    depth = found = 0
    for token in tokens[opening:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        found += token.text == "," and depth == 1
        if depth == 0:
            break
    return found
