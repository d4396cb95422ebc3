r"""Parses regular expressions that mean the same in Java and Python, and writes them for Java.

A check's pattern has Python's meaning with ``re.ASCII``: ``\d``, ``\w``, ``\s`` and ``\b`` are ASCII-only, as Java's
are. Syntax that one of the two lacks or reads differently is refused with its place. What remains is nearly Java's own
syntax: a flag makes both agree on line ends, and ``\b`` is written out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from lakegate.checks.patterns import problem

_MOST_DEPTH = 40
_MOST_TIMES = 99_999
_SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ "
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a"}
_CODE = re.compile(r"\\[xu]((?<=x)[0-9A-Fa-f]{2}|(?<=u)[0-9A-Fa-f]{4})")
_TIMES = re.compile(r"[*+?]|\{([0-9]+)(?:,([0-9]*))?\}")
_OPENING = re.compile(r"\(\?(?:(?P<look><?[=!])|>|(?P<flags>[is]*(?:-[is]+)?)(?P<end>[:)]))")
_SETS = ("[", "&&", "--", "||", "~~")
_FIRST_SURROGATE, _LAST_SURROGATE, _LAST_OF_ASCII = 0xD800, 0xDFFF, 0x7F

_BOUNDARY = r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))"
_BY_CHARACTERS = "\U00010000{0}"
"""Matches nothing, and keeps Java from starting inside a surrogate pair."""

_IN_SQL = "or use sql('NOT column RLIKE …'), which takes all of Java's patterns"
_ESCAPES = {
    "Z": r"also matches before a final line break in Java, but only at the end in Python; write \z or $",
    "B": r"differs between versions of Python; write (?<=\w)(?=\w) or (?<!\w)(?!\w)",
    "v": r"is one character in Python and seven in Java; write \x0b",
    "h": r"only Java supports; write [ \t\xa0]",
    "H": r"only Java supports; write [^ \t\xa0]",
    "V": r"only Java supports; write [^\n\x0b\f\r\x85\u2028\u2029]",
    "R": r"only Java supports; write (?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])",
    "X": f"only Java supports; write the characters, {_IN_SQL}",
    "p": f"only Java supports; write the characters, such as [A-Za-z], {_IN_SQL}",
    "P": f"only Java supports; write the characters, such as [^A-Za-z], {_IN_SQL}",
    "Q": r"only Java supports; write a backslash before each special character, such as \.",
    "E": "only Java supports; leave it out",
    "G": "only Java supports; leave it out",
    "e": r"only Java supports; write \x1b",
    "c": r"only Java supports; write the character's code, as \x1b",
    "k": r"only Java supports; write the group's number, as \1",
    "N": "names a character, which depends on the version of Unicode; write the character itself",
    "U": "only Python supports; write the character itself",
    "x": r"needs two hexadecimal digits in both; write \x41, or the character itself",
    "u": r"needs four hexadecimal digits; write \u0041, or the character itself",
    "0": r"is followed by other digits in Java than in Python; write the character's code, as \x00",
}
_IN_CLASSES = {"b": r"within [ ] is a backspace in Python and an error in Java; write \x08"}
_OPENINGS = {
    "P<": r"only Python supports; write (…), and \1 to refer to it",
    "P=": r"only Python supports; write the group's number, as \1",
    "<": r"only Java supports; write (…), and \1 to refer to it",
    "#": "only Python supports; leave the comment out",
    "(": "only Python supports; write alternatives, as (?:…|…)",
}
_FLAGS = "has flags that Java and Python don't share; use i and s only: (?i) at the very start, or (?i:…)"

_Kind: TypeAlias = Literal["character", "group", "anchor"]


class RegexError(ValueError):
    """A pattern can't be parsed, or is ambiguous. The message continues after the pattern."""


@lru_cache(maxsize=256)
def java_pattern(pattern: str, *, to_the_end: bool = False) -> str:
    r"""Return a Java pattern that finds what Python finds with ``pattern`` and ``re.ASCII``.

    Args:
        pattern: As the user wrote it.
        to_the_end: ``$`` only matches at the very end, as in JSON Schema, and not before a final line break.

    Raises:
        RegexError: With the place in the pattern, and what to write instead.

    Example:
        >>> print(java_pattern(r"^\d{3}$"))
        (?d)^\d{3}$
        >>> java_pattern(r"a{2")
        Traceback (most recent call last):
        lakegate.checks.regex.RegexError: has '{' at character 2, which isn't a repetition such as {2} or {2,5}; ...
    """
    if not pattern:
        raise RegexError("is empty")
    if "\b" in pattern:
        raise RegexError(r"contains a backspace; write r'…' so that \b is a word boundary")
    java = _Reader(pattern, to_the_end=to_the_end).read()
    if (found := problem(pattern)) is not None:
        raise RegexError(found)
    return java


class _Reader:
    """Parses a pattern from left to right while writing it for Java."""

    def __init__(self, pattern: str, *, to_the_end: bool) -> None:
        self._pattern = pattern
        self._to_the_end = to_the_end
        self._at = 0
        self._java: list[str] = []
        self._python: list[str] = []
        self._always_matched: list[bool] = []  # for each group so far: whether it always matches exactly once
        self._ignores_case = False
        self._depth = 0
        self._lookbehinds = 0
        self._has_lines = False  # whether the ends of lines matter
        self._may_split = False  # whether Java could start inside a surrogate pair and find something else there

    def read(self) -> str:
        self._alternatives()
        if self._at < len(self._pattern):
            raise self._error(")", "closes no group; write \\) for a literal one")
        try:
            re.compile("".join(self._python), re.ASCII)
        except re.error as error:
            at = error.pos or 0
            raise self._error(self._pattern[at : at + 1], f"can't be read: {error.msg}", at) from None
        except (RecursionError, OverflowError):
            raise RegexError("is too large; split it into several checks") from None
        java = "".join(self._java)
        java = f"(?:{java}){_BY_CHARACTERS}" if self._may_split else java
        return f"(?d){java}" if self._has_lines else java

    def _alternatives(self) -> bool:
        """Parse alternatives up to a ``)`` or the end, and return whether they can match an empty string."""
        first, is_first = len(self._always_matched), True
        can_be_empty = self._sequence()
        while self._next("|"):
            is_first = False
            self._write("|", 1)
            self._mark_uncertain(first)
            can_be_empty |= self._sequence()
        if not is_first:
            self._mark_uncertain(first)
        return can_be_empty

    def _mark_uncertain(self, first: int) -> None:
        self._always_matched[first:] = [False] * (len(self._always_matched) - first)

    def _sequence(self) -> bool:
        can_be_empty = True
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            can_be_empty &= self._repeated()
        return can_be_empty

    def _repeated(self) -> bool:
        first = len(self._always_matched)
        kind, can_be_empty = self._atom()
        times = _TIMES.match(self._pattern, self._at)
        if times is None:
            return can_be_empty
        if kind == "anchor":
            raise self._error(times[0], "repeats an anchor, not a character; leave it out")
        least, most = times[1] or "0", times[2] or "0"
        if max(len(least), len(most)) > len(str(_MOST_TIMES)):
            raise self._error(times[0], f"repeats too often: at most {_MOST_TIMES:,} times are allowed")
        self._mark_uncertain(first)
        self._write(times[0], len(times[0]))
        if self._next("+"):
            if kind != "character":
                raise self._error("+", "after a repeated group differs between versions; write (?>(?:…)+)")
            self._write("+", 1)
        elif self._next("?"):
            self._write("?", 1)
        if again := _TIMES.match(self._pattern, self._at):
            raise self._error(again[0], "repeats a repetition; put the first one into (?:…)")
        return can_be_empty or times[0] in "*?" or (times[1] is not None and not int(least))

    def _atom(self) -> tuple[_Kind, bool]:
        character = self._pattern[self._at]
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case "^":
                return self._anchor("^")
            case "$":
                self._has_lines |= not self._to_the_end
                return self._anchor(r"\z" if self._to_the_end else "$")
            case ".":
                self._has_lines = True
            case "*" | "+" | "?":
                raise self._error(character, f"repeats nothing; write \\{character} for a literal one")
            case "{":
                raise self._error("{", "isn't a repetition such as {2} or {2,5}; write \\{ for a literal one")
            case _:
                self._require_plain(character, character)
        self._write(character, 1)
        return "character", False

    def _anchor(self, java: str, python: str | None = None, length: int = 1) -> tuple[_Kind, bool]:
        self._write(java, length, python=python)
        return "anchor", True

    # Groups --------------------------------------------------------------------------------------------------------

    def _group(self) -> tuple[_Kind, bool]:
        start, ignores_case, number = self._at, self._ignores_case, len(self._always_matched)
        opening = self._opening()
        flags, _, off = (opening["flags"] or "").partition("-") if opening else ("", "", "")
        self._ignores_case = (ignores_case or "i" in flags) and "i" not in off
        if opening is None:
            self._always_matched.append(False)
        written = "(" if opening is None else opening[0]
        self._write(written, len(written))
        if opening is not None and opening["end"] == ")":
            return "anchor", True
        look = opening["look"] if opening else None
        self._lookbehinds += look is not None and look[0] == "<"
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._error("(", f"is nested too deeply: at most {_MOST_DEPTH} levels are allowed", start)
        can_be_empty = self._alternatives()
        if not self._next(")"):
            raise self._error("(", "is never closed; write \\( for a literal one", start)
        self._write(")", 1)
        self._depth -= 1
        self._ignores_case = ignores_case
        if look is not None:
            self._mark_uncertain(number)
            if look[0] == "<":
                self._lookbehinds -= 1
                self._may_split = True
                self._require_one_length(start, look)
            return "anchor", True
        if opening is None:
            self._always_matched[number] = True
        return "group", can_be_empty

    def _opening(self) -> re.Match[str] | None:
        if not self._next("(?"):
            return None
        found = _OPENING.match(self._pattern, self._at)
        if found is not None and found[0] != "(?)":
            return found
        known = next((one for one in _OPENINGS if self._pattern.startswith(one, self._at + 2)), None)
        if known is not None:
            raise self._error(f"(?{known}", f"starts something that {_OPENINGS[known]}")
        raise self._error("(?", _FLAGS)

    def _require_one_length(self, start: int, look: str) -> None:
        try:
            re.compile(self._pattern[start : self._at].replace(r"\z", r"\Z"), re.ASCII)
        except re.error as error:
            why = "must match texts of one length" if "look-behind" in error.msg else f"can't be read: {error.msg}"
            raise self._error(f"(?{look}", f"{why}; write (?<=a)b, not (?<=a+)b", start) from None

    # Characters ----------------------------------------------------------------------------------------------------

    def _escape(self) -> tuple[_Kind, bool]:
        name = self._pattern[self._at + 1 : self._at + 2]
        match name:
            case "A":
                return self._anchor(r"\A", length=2)
            case "z":
                return self._anchor(r"\z", r"\Z", length=2)
            case "b":
                self._may_split = True
                return self._anchor(_BOUNDARY, r"\b", length=2)
        if name and name in "123456789":
            return self._reference(int(name))
        written, _ = self._escaped(_ESCAPES)
        self._write(written, len(written))
        return "character", False

    def _escaped(self, refused: dict[str, str]) -> tuple[str, str]:
        """Return the next escape as written, and the character that it matches; ``""`` for a class."""
        name = self._pattern[self._at + 1 : self._at + 2]
        if not name:
            raise self._error("\\", "ends the pattern; write two for a literal one")
        if name in "dDwWsS":
            return f"\\{name}", ""
        if name in _SIGNS or name in _CONTROLS:
            return f"\\{name}", _CONTROLS.get(name, name)
        code = _CODE.match(self._pattern, self._at)
        if code is not None:
            character = chr(int(code[1], 16))
            self._require_plain(character, code[0])
            return code[0], character
        raise self._error(f"\\{name}", refused.get(name, f"isn't an escape in Java and Python; write {name} alone"))

    def _reference(self, number: int) -> tuple[_Kind, bool]:
        written = f"\\{number}"
        if self._pattern[self._at + 2 : self._at + 3].isdigit():
            raise self._error(
                written, f"is followed by a digit that may belong to it or not; write {written}[0] for a 0"
            )
        if number > len(self._always_matched) or not self._always_matched[number - 1]:
            raise self._error(
                written,
                "refers to a group that doesn't exist, or is still open, repeated, optional or in a look-around, where "
                "Java and Python may remember different texts; refer to a group that always matches once",
            )
        if self._lookbehinds or self._ignores_case:
            part = "a look-behind" if self._lookbehinds else "a part that ignores case"
            raise self._error(written, f"is in {part}, where Java and Python differ; write what it refers to")
        self._write(written, 2)
        return "group", True

    def _class(self) -> tuple[_Kind, bool]:
        start = self._at
        self._at += 2 if self._next("[^") else 1
        begin = self._at
        while not self._next("]") or self._at == begin:
            self._member(start)
        written, self._at = self._pattern[start : self._at + 1], start
        self._write(written, len(written))
        return "character", False

    def _member(self, start: int) -> None:
        at = self._at
        low = self._class_character(start)
        self._require_no_set()
        if self._next("-") and not self._next("-]"):
            self._at += 1
            high = self._class_character(start)
            if not low or not high or low > high:
                raise self._error(self._pattern[at : self._at], "isn't a range; write \\- for a literal one", at)
            self._may_split |= ord(low) < _FIRST_SURROGATE and ord(high) > _LAST_SURROGATE

    def _class_character(self, start: int) -> str:
        character = self._pattern[self._at : self._at + 1]
        if not character:
            raise self._error("[", "is never closed; write \\[ for a literal one", start)
        self._require_no_set()
        if character == "\\":
            written, character = self._escaped(_ESCAPES | _IN_CLASSES)
            self._at += len(written)
            return character
        self._require_plain(character, character)
        self._at += 1
        return character

    def _require_no_set(self) -> None:
        found = next((one for one in _SETS if self._next(one)), None)
        if found is not None:
            raise self._error(
                found,
                f"means different things to Java and Python within [ ]; write \\{found[0]} for a literal one, "
                "[A-Za-z] for [:alpha:], and (?![…])[…] to exclude characters from a class",
            )

    def _require_plain(self, character: str, written: str) -> None:
        if _FIRST_SURROGATE <= ord(character) <= _LAST_SURROGATE:
            raise self._error(ascii(character)[1:-1], "is half of a surrogate pair; write the character itself")
        if self._ignores_case and ord(character) > _LAST_OF_ASCII:
            raise self._error(
                written,
                "is in a part that ignores case, which Java does for ASCII only; write both letters, such as [éÉ], "
                "outside the part with the flag i",
            )

    # Text ----------------------------------------------------------------------------------------------------------

    def _next(self, sign: str) -> bool:
        return self._pattern.startswith(sign, self._at)

    def _write(self, java: str, length: int, *, python: str | None = None) -> None:
        self._java.append(java)
        self._python.append(self._pattern[self._at : self._at + length] if python is None else python)
        self._at += length

    def _error(self, what: str, why: str, at: int | None = None) -> RegexError:
        return RegexError(f"has '{what}' at character {(self._at if at is None else at) + 1}, which {why}")
