r"""Random patterns, read by Java in Spark and by Python, on random texts: both must find the same.

Patterns are drawn from more than what checks take, and those that they refuse are left out: none that is left may be
read in two ways, or be refused by Java.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakegate.checks.regex import RegexError, java_pattern
from lakegate.lake import Lake, connect
from proofs.result import ProofResult
from support.lakes import components_of, session_of

LONG = 30_000
SHORT = 1_500
_AT_ONCE = 3_000
_TEXTS = 12
_MOST_SHOWN = 10
_LETTERS = (*"abABcZksz09_ éÉß\u212a\U00010000😀-]}#&~/\u0301\"',:=!<>@%\n\r\x85\u2028",)
_ODD = (*"KS\t\x0b\x0c\x1c\u2029\xa0\u017f\u0130\u0131😁٣[^\\{.$*+?()|\ufffd\uffff\ud7ff\ue000",)
_TEXT_PARTS = (*_LETTERS, *_ODD, "\r\n", "e\u0301")
_ESCAPED = (
    *(rf"\{sign}" for sign in "dwsDWStnrfa.[](){}|^$*+?-&# /~_\"'\\"),
    *(r"\x41", r"\x0b", r"\x85", r"\u00e9", r"\u2028", r"\u212a", r"\u0041", r"\xff"),
)
_OFTEN_REFUSED = (
    *(rf"\{name}" for name in ("h", "v", "R", "X", "p{L}", "Z", "B", "G", "Q", "E", "e", "0", "012", "x4", "cA", "8")),
    *(r"(?x)", r"(?m)^", "{", "[[a]", "[a&&b]", "(?<x>a)", "(?P<x>a)", r"[\b]", "a{,2}", "(?#x)", "*", "[--/]"),
    *("[a||b]", "[~~]", "\\é", "[b-a]", r"[\w-z]", r"\N{DIGIT ONE}", "\ud83d", "[[:alpha:]]", "[!--]"),
)
_RANGES = (
    *("a-z", "A-Z", "0-9", "Z-a", "a-\xff", " -~", "\u0100-\uffff", "\0-\U0010ffff", "a-😀", "😀-😁", "\ue000-\uffff"),
    *("X-c", "@-k", r"\x41-\x5a", "+--"),
)
_TIMES = ("*", "+", "?", "{0}", "{1}", "{2}", "{0,1}", "{1,}", "{2,}", "{1,3}", "{0,2}", "{2,4}")
_GROUPS = (
    *("(", "(", "(", "(?:", "(?:", "(?:", "(?=", "(?!", "(?>", "(?i:", "(?s:", "(?-i:", "(?is:", "(?-s:", "(?i-s:"),
    *("(?<=", "(?<!") * 2,
)


def prove(home: Path, cases: int, seed: int) -> ProofResult:
    """Try ``cases`` patterns, in the project in ``home``."""
    chooser = random.Random(seed)
    failures: list[str] = []
    matches = refused = 0
    with connect(home) as lake:
        for begin in range(0, cases, _AT_ONCE):
            drawn = _Drawn(chooser)
            accepted = [drawn.accepted() for _ in range(min(_AT_ONCE, cases - begin))]
            asked = [(*one, _text(chooser)) for one in accepted for _ in range(_TEXTS)]
            found = _java(lake, asked)
            matches += sum(found)
            refused += drawn.refused
            failures += _differences(asked, found)
    pairs = cases * _TEXTS
    details = f"{pairs:,} texts, of which {matches:,} match; {refused:,} more patterns were refused"
    return ProofResult("patterns", cases, failures[:_MOST_SHOWN], details)


def _differences(asked: list[tuple[str, str, str]], found: list[bool]) -> Iterator[str]:
    for (pattern, java, text), is_match in zip(asked, found, strict=True):
        if is_match != bool(re.search(_for_python(pattern), text, re.ASCII)):
            yield f"{pattern!a}, to Java {java!a}, on {text!a}: {is_match} in Java"


def _for_python(pattern: str) -> str:
    """Return a pattern without what Python knows since 3.14 only."""
    return re.sub(r"\\.", lambda found: found[0].replace(r"\z", r"\Z"), pattern, flags=re.DOTALL)


def _java(lake: Lake, asked: list[tuple[str, str, str]]) -> list[bool]:
    rows: dict[str, list[Any]] = {
        "number": list(range(len(asked))),
        "java": [java for _, java, _ in asked],
        "text": [text for _, _, text in asked],
    }
    frame: Any = session_of(components_of(lake)).createDataFrame(pa.table(rows))
    found = frame.selectExpr("number", "text RLIKE java AS found").toArrow().sort_by("number")
    return [bool(one) for one in found["found"].to_pylist()]


def _text(chooser: random.Random) -> str:
    length = chooser.choices(range(9), (1, 3, 4, 4, 3, 2, 1, 1, 1))[0]
    return "".join(chooser.choice(_TEXT_PARTS if chooser.random() < 0.7 else "abA\n😀é") for _ in range(length))


class _Drawn:
    """Draws patterns."""

    def __init__(self, chooser: random.Random) -> None:
        self._chooser = chooser
        self._groups = 0
        self.refused = 0

    def accepted(self) -> tuple[str, str]:
        """Return a pattern that checks take, and what Java gets for it."""
        while True:
            self._groups = 0
            flags = self._chooser.choices(("", "(?i)", "(?s)", "(?is)"), (6, 2, 1, 1))[0]
            pattern = flags + self._alternatives(self._chooser.randint(1, 3))
            try:
                return pattern, java_pattern(pattern)
            except RegexError:
                self.refused += 1

    def _alternatives(self, depth: int) -> str:
        return "|".join(self._sequence(depth) for _ in range(self._chooser.choices((1, 2, 3), (7, 2, 1))[0]))

    def _sequence(self, depth: int) -> str:
        return "".join(self._repeated(depth) for _ in range(self._chooser.choices(range(4), (1, 5, 4, 2))[0]))

    def _repeated(self, depth: int) -> str:
        times = self._chooser.choice(_TIMES) + self._chooser.choices(("", "?", "+"), (6, 2, 2))[0]
        return self._atom(depth) + (times if self._chooser.random() < 0.4 else "")

    def _atom(self, depth: int) -> str:
        kinds: tuple[Callable[[], str], ...] = (
            lambda: self._chooser.choice(_LETTERS),
            lambda: self._chooser.choice(_ESCAPED),
            lambda: ".",
            self._class,
            lambda: self._chooser.choice(("^", "$", r"\A", r"\z", r"\b", r"\b")),
            lambda: f"\\{self._chooser.randint(1, self._groups)}" if self._groups else "",
            lambda: self._chooser.choice(_OFTEN_REFUSED),
            lambda: self._group(depth),
        )
        return self._chooser.choices(kinds, (33, 15, 6, 12, 8, 3, 2, 21 if depth else 0))[0]()

    def _group(self, depth: int) -> str:
        opening = self._chooser.choice(_GROUPS)
        self._groups += opening == "("
        if opening.startswith("(?<") and self._chooser.random() < 0.8:
            parts = (*_LETTERS, *_ESCAPED, *(r".", r"\b", "^", "$", "(?!a)", "(?=.)", r"\z", "a|b") * 3)
            chosen = (self._chooser.choice((self._class(), self._chooser.choice(parts))) for _ in range(3))
            return f"{opening}{''.join(list(chosen)[: self._chooser.randint(1, 3)])})"
        return f"{opening}{self._alternatives(depth - 1)})"

    def _class(self) -> str:
        def part() -> str:
            letter = self._chooser.choice(_LETTERS)
            return self._chooser.choices(
                (letter, self._chooser.choice(_ESCAPED), self._chooser.choice(".$*+?(){}|^-&~"),
                 self._chooser.choice(_RANGES)), (9, 4, 2, 5),
            )[0].replace("]", "\\]").replace("\\\\]", "\\]")  # fmt: skip

        start = self._chooser.choice(("[", "[", "[^")) + self._chooser.choices(("", "]"), (9, 1))[0]
        return start + "".join(part() for _ in range(self._chooser.randint(1, 4))) + "]"
