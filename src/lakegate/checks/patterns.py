r"""Finds regular expressions that can take forever, before Spark runs them: Spark can't cancel one.

Java's engine tries every way to match. If a repetition can match the same text in more than one way, as ``(a+)+`` can,
the number of ways doubles with each character, and forty characters take longer than anyone waits. The pattern's
automaton shows this: it explodes exactly if some state in a loop leads back to itself in two ways over the same
characters ("exponential ambiguity").

Other patterns can still be polynomial: the time for ``.*.*x`` grows with the cube of the string's length. The power is
the length of the longest chain of loops in which each can hand characters to the next ("polynomial ambiguity"), plus
one. Searching a pattern, rather than matching from the start, counts as a loop. Such patterns are only tried on strings
up to a length that takes a fraction of a second per row (:func:`longest_text`), because Spark only cancels between two
rows. The same limit keeps Java's stack from overflowing, which would kill Spark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

_State = TypeVar("_State", bound=Hashable)
EXPLODES = (
    "can take forever on some texts: a repetition in it matches one text in many ways. "
    "Make each way the only one, as ^\\w+( \\w+)*$ instead of ^(\\w+ ?)*$, or keep it from trying others: a++"
)
"""What's wrong with a pattern, and what to write instead; the end of a sentence about it."""
_MALFORMED = "isn't a valid Java regular expression"
_TOO_LARGE = "is too large to analyse; split it into several checks"
_LONGEST_TEXTS = {2: 10_000, 3: 400, 4: 120}
"""Longest strings, in characters, by power: about ten million steps. Higher powers are too slow on short strings."""
LONG_TEXTS = max(_LONGEST_TEXTS.values())
"""Length of strings, in characters, that a pattern must handle where nothing limits their length."""
_ROUNDS = 800
"""Longest string, in characters, for a pattern whose loops recurse in Java. Divided by the depth of its groups.

With Java's usual stack of a megabyte, ``^(a|b)*$`` overflows at 1,222 characters, ``^((a|b)c?|(d|e)f?)*$`` at 660 and
six levels at 343.
"""
_FEW_ROUNDS = 100
_MOST_STEPS = 50_000
_ALPHABET = [*map(chr, range(128)), "é", "É", "中", "\u0663", "\u2028", "\u00a0", "\U0001f600"]
_ALL = frozenset(range(len(_ALPHABET)))
_WIDE = _ALPHABET.index("\U0001f600")
"""A character that Java stores as two, so that repetitions with it differ in length."""
_MOST_COPIES = 8
_MOST_POSITIONS = 200
_MOST_SINGLE = 1_000
"""Most positions of a pattern without loops, because Java recurses for each of them."""
_LONGEST_PATTERN, _MOST_DEPTH = 5_000, 100
_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|\Z)|.)", re.DOTALL)
_LIKE_SIGNS = {"%": r"[\s\S]*", "_": r"[\s\S]"}
_SEVERAL = re.compile(r"(?P<reference>[1-9]\d*|k<\w+>)|[RX]")
"""Escapes, without the backslash, that match more than one character."""
_REFERENCE = re.compile(r"\\[1-9k]")


def _set(pattern: str) -> frozenset[int]:
    known = re.compile(pattern, re.ASCII)
    return frozenset(index for index, character in enumerate(_ALPHABET) if known.fullmatch(character))


_CLASSES = {"d": _set(r"\d"), "w": _set(r"\w"), "s": _set(r"\s"), "h": _set(r"[ \t\xa0]"), "v": _set(r"[\n-\r\u2028]")}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_LETTERS = frozenset(index for index, character in enumerate(_ALPHABET) if character.isalpha())
_PROPERTIES = {
    **dict.fromkeys(("L", "IsL", "IsAlphabetic", "Alpha"), _LETTERS),
    **dict.fromkeys(("Lu", "IsLu", "Upper", "IsUppercase"), frozenset(i for i in _LETTERS if _ALPHABET[i].isupper())),
    **dict.fromkeys(("Ll", "IsLl", "Lower", "IsLowercase"), frozenset(i for i in _LETTERS if _ALPHABET[i].islower())),
    **dict.fromkeys(("N", "Nd", "Digit", "IsDigit"), frozenset(i for i in _ALL if _ALPHABET[i].isdigit())),
    **dict.fromkeys(("Alnum",), frozenset(i for i in _ALL if _ALPHABET[i].isalnum())),
    **dict.fromkeys(("Space", "IsWhite_Space"), _set(r"\s")),
    **dict.fromkeys(("P", "Punct", "IsPunctuation"), _set(r"[!-/:-@\[-`{-~]")),
}


def problem(pattern: str) -> str | None:
    r"""Return why a Java pattern can't be used: it takes exponential time on some strings, or can't be analysed.

    Example:
        >>> [problem(one) is None for one in (r"^(\w+\s?)*$", r"^\w+(\s\w+)*$", r"(?:a++)+$", "(a")]
        [False, True, True, False]
    """
    return _judged(pattern)[0]


def longest_text(pattern: str) -> int | None:
    r"""Return the longest string that a pattern may be tried on; ``None`` if its time is linear.

    Meaningless for a pattern with a :func:`problem`.

    Example:
        >>> longest_text(r"^[A-Z]+$"), longest_text(r"\s+$"), longest_text(r".*.*x")
        (None, 10000, 400)
    """
    return _judged(pattern)[1]


@lru_cache(maxsize=512)
def _judged(pattern: str) -> tuple[str | None, int | None]:
    try:
        parser = _Parser(pattern)
        part = parser.all()
        is_searched = re.match(r"(?:\(\?[a-z]+\))?(?:\^|\\A)", pattern) is None or parser.choices > 1
        power = 2 if parser.is_large else _power(parser, part, is_searched=is_searched)
        is_ambiguous = not parser.is_large and (parser.ambiguous or _ambiguous(parser.classes, parser.follow))
    except _UnreadableError as error:
        return str(error), None
    except RecursionError:
        return _TOO_LARGE, None
    if is_ambiguous or power > max(_LONGEST_TEXTS):
        return EXPLODES, None
    limits = [] if power < min(_LONGEST_TEXTS) else [_LONGEST_TEXTS[power]]
    # Java recurses for each repetition if repetitions can differ in length or in what they match.
    return None, min([*limits, *([_ROUNDS // parser.deepest] if parser.recurses else [])], default=None)


def like_pattern(pattern: str, escape: str = "\\") -> str:
    r"""Return a regular expression that takes as long as the one that Spark builds from a ``LIKE`` pattern.

    Example:
        >>> print(like_pattern("a_%"))
        ^a[\s\S][\s\S]*
    """
    signs = _like_signs(pattern, escape)
    parts = (_LIKE_SIGNS.get(sign) or re.escape(sign[-1]) for sign in signs)
    return "".join(["^", *parts, "" if signs[-1:] == ["%"] else "$"])


def linear_like(pattern: str) -> str:
    r"""Return a Java pattern equivalent to a ``LIKE`` pattern, in linear time.

    Each part between two ``%`` is searched for once, from the left: its first match leaves the most text for the rest.

    Example:
        >>> print(linear_like("a%b_%c"))
        (?s)\Aa(?>.*?b.).*c\z
    """
    parts = [""]
    for sign in _like_signs(pattern, "\\"):
        if sign == "%":
            parts.append("")
        else:
            parts[-1] += "." if sign == "_" else re.escape(sign[-1])
    if len(parts) == 1:
        return rf"(?s)\A{parts[0]}\z"
    inner = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return rf"(?s)\A{parts[0]}{inner}.*{parts[-1]}\z"


def _like_signs(pattern: str, escape: str) -> list[str]:
    """Split a pattern into characters. An escaped one includes its escape character."""
    return re.findall(rf"{re.escape(escape)}.|.", pattern, re.DOTALL)


class _UnreadableError(Exception):
    """A pattern can't be analysed. The message says why, as :data:`EXPLODES` does."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a pattern: the characters that can come first and last, and the number of ways to match nothing."""

    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    empty: int = 1


class _Parser:
    """Parses a pattern into its position automaton, whose states are the pattern's characters and classes.

    ``follow`` counts the ways from one position to the next. Two ways without a character between them are an
    ambiguity.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise _UnreadableError(_TOO_LARGE)
        self.pattern = _QUOTED.sub(_unquoted, pattern)
        self.at = 0
        self.classes: list[frozenset[int]] = []
        self.follow: list[Counter[int]] = []
        self.ambiguous = False
        self.inner_power = 0
        self.can_fail_late = False
        self.choices = 1
        self.recurses = False
        self.deepest = 1
        self.loops = False
        self.refers = False
        self._varying = 0  # number of alternatives, and of repetitions without a fixed count
        self._fold = False
        self._depth = 0

    @property
    def is_large(self) -> bool:
        """Whether it has too many positions to analyse its loops."""
        return len(self.classes) > 2 * _MOST_POSITIONS

    def all(self) -> _Part:
        """Parse the whole pattern."""
        part = self._alternatives()
        if self.at != len(self.pattern):
            raise _UnreadableError(_MALFORMED)
        return part

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._take("|"):
            self.choices += self._depth == 0
            self._varying += 1
            other = self._sequence()
            part = _Part(part.first + other.first, part.last + other.last, min(2, part.empty + other.empty))
        return part

    def _sequence(self) -> _Part:
        part = _Part()
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self._then(part, self._repeated())
        return part

    def _then(self, part: _Part, after: _Part) -> _Part:
        self._link(part.last, after.first)
        first = part.first + _times(after.first, part.empty)
        return _Part(first, after.last + _times(part.last, after.empty), min(2, part.empty * after.empty))

    def _link(self, last: Counter[int], first: Counter[int]) -> None:
        for position, ways in last.items():
            for following, more in first.items():
                self.follow[position][following] = min(2, self.follow[position][following] + ways * more)

    def _repeated(self) -> _Part:
        begin, position, varying = self.at, len(self.classes), self._varying
        part = self._atom()
        while self.at < len(self.pattern):
            bounds = self._bounds()
            if bounds is None:
                break
            end = self.at
            possessive = self._take("+")
            if not possessive:
                self._take("?")
                is_wide = any(_WIDE in one for one in self.classes[position:]) and self._is_counted(begin, end)
                varies = is_wide or (self._varying > varying and not _REFERENCE.match(self.pattern, begin))
                self.recurses |= varies and (bounds[1] is None or bounds[1] > _FEW_ROUNDS)
            self.loops |= bounds[1] is None or bounds[1] > _MOST_COPIES
            self._varying += bounds[0] != bounds[1]
            if possessive:
                self.inner_power = max(self.inner_power, int(bounds[1] is None))
                part = self._as_one(position, part, optional=bounds[0] == 0)
            else:
                part = self._copies(part, begin, position, *bounds)
            self.at = max(self.at, end)
            begin = -1  # a second quantifier repeats a repetition, which isn't copied
        return part

    def _is_counted(self, begin: int, end: int) -> bool:
        """Return whether Java counts repetitions: for groups and ``{2,}``, but not for a single class."""
        return self.pattern[begin] == "(" or self.pattern[end - 1] == "}"

    def _copies(self, part: _Part, begin: int, position: int, least: int, most: int | None) -> _Part:
        size = len(self.classes) - position
        few = most is not None and begin >= 0 and most <= (_MOST_POSITIONS if least == most else _MOST_COPIES)
        if most == 1:
            return _Part(part.first, part.last, min(2, part.empty + (least == 0)))
        if few and most is not None and len(self.classes) + size * most <= _MOST_POSITIONS:
            after, whole = self.at, _Part() if most == 0 else part
            for count in range(1, most):
                self.at = begin
                copy = self._atom()
                optional = count >= least
                whole = self._then(whole, _Part(copy.first, copy.last, min(2, copy.empty + 1)) if optional else copy)
            self.at = after
            return _Part(whole.first, whole.last, min(2, whole.empty + 1)) if least == 0 else whole
        # Java ends a loop whose body was empty: repeating an empty match isn't a second way.
        self._link(part.last, part.first)
        return _Part(part.first, part.last, 1 if least == 0 else part.empty)

    def _as_one(self, position: int, part: _Part, *, optional: bool) -> _Part:
        """Replace each atomic part, which never backtracks, with a single character."""
        if not part.first:
            return part
        together = frozenset[int]().union(*self.classes[position:])
        classes, follow = self.classes[position:], self._inner(position)
        self.ambiguous = self.ambiguous or _ambiguous(classes, follow)
        if _loops(follow):
            self.inner_power = max(self.inner_power, 1 + _chain(classes, follow, frozenset()))
        del self.classes[position:], self.follow[position:]
        one = self._position(together)
        return _Part(one.first, one.last, int(optional or part.empty > 0))

    def _inner(self, position: int) -> list[Counter[int]]:
        moved = self.follow[position:]
        return [Counter({to - position: ways for to, ways in one.items() if to >= position}) for one in moved]

    def _bounds(self) -> tuple[int, int | None] | None:
        for symbol, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(symbol):
                return bounds
        counted = re.compile(r"\{(\d{1,6})(,?)(\d{0,6})\}").match(self.pattern, self.at)
        if counted is None:
            return None
        self.at = counted.end()
        least = int(counted[1])
        most = int(counted[3]) if counted[3] else None if counted[2] else least
        return least, most

    def _atom(self) -> _Part:
        character = self.pattern[self.at]
        self.at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._position(self._class())
            case ".":
                return self._position(_ALL - {_ALPHABET.index("\n")})
            case "^" | "$":
                self.can_fail_late = self.can_fail_late or character == "$"
                return _Part()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise _UnreadableError(_MALFORMED)
            case _:
                return self._position(_one(character))

    def _group(self) -> _Part:
        position = len(self.classes)
        opened = re.compile(r"\?(?:(?P<look><?[=!])|(?P<atomic>>)|<\w+>|(?P<flags>[a-zA-Z-]*)(?P<end>[:)]))").match(
            self.pattern, self.at
        )
        fold = self._fold
        if opened is not None:
            self.at = opened.end()
            flags = opened["flags"] or ""
            if "x" in flags:
                raise _UnreadableError("has the flag x; write it without that, and without blanks and comments")
            self._fold = fold or "i" in flags
            if opened["end"] == ")":
                return _Part()
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _UnreadableError(_TOO_LARGE)
        self.deepest = max(self.deepest, self._depth)
        part = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise _UnreadableError(_MALFORMED)
        self._fold = fold
        self.can_fail_late = self.can_fail_late or (opened is not None and opened["look"] is not None)
        if opened is not None and (opened["look"] or opened["atomic"]):
            one = self._as_one(position, part, optional=part.empty > 0)
            return one if opened["atomic"] else _Part()
        return part

    def _escape(self) -> _Part:
        if self.at < len(self.pattern) and self.pattern[self.at] in "bBAzZGE":
            self.can_fail_late = self.can_fail_late or self.pattern[self.at] in "bBzZ"
            self._varying += self.pattern[self.at] == "b"  # written as alternatives for Java
            self.at += 1
            if self.pattern[self.at - 1 : self.at + 1] == "b{":
                raise _UnreadableError(r"has \b{g}; leave {g} out")
            return _Part()
        several = _SEVERAL.match(self.pattern, self.at)
        if several is not None:
            self.at = several.end()
            self.refers |= several["reference"] is not None
            self._varying += 1
            return self._position(_CLASSES["v"] if several[0] == "R" else _ALL)
        return self._position(self._escaped_class())

    def _escaped_class(self) -> frozenset[int]:
        if self.at >= len(self.pattern):
            raise _UnreadableError(_MALFORMED)
        character = self.pattern[self.at]
        self.at += 1
        if character == "N":
            self.at = max(self.pattern.find("}", self.at) + 1, self.at)
            return _ALL
        if character in "pP":
            named = re.compile(r"\{(?:\w+=)?(\w+)\}|(\w)").match(self.pattern, self.at)
            if named is None:
                raise _UnreadableError(_MALFORMED)
            self.at = named.end()
            known = _PROPERTIES.get(named[1] or named[2], _ALL)
            return known if character == "p" or known == _ALL else _ALL - known
        if character.lower() in _CLASSES:
            known = _CLASSES[character.lower()]
            return known if character.islower() else _ALL - known
        if character in "xu0c":
            code = re.compile(r"[0-9A-Fa-f]{2,4}|\{[0-9A-Fa-f]+\}|[@-_]").match(self.pattern, self.at)
            self.at = code.end() if code else self.at
            digits = code.group().strip("{}") if code else ""
            is_hexadecimal = character in "xu" and bool(re.fullmatch("[0-9A-Fa-f]{1,6}", digits))
            return _one(chr(min(int(digits, 16), 0x10FFFF))) if is_hexadecimal else _ALL
        if character.isdigit() or character in "kRX":  # within [ ]
            raise _UnreadableError(_MALFORMED)
        return _one(_CONTROLS.get(character, character))

    def _class(self) -> frozenset[int]:
        negated = self._take("^")
        found = _one("]") if self._take("]") else frozenset[int]()
        both: frozenset[int] | None = None
        while not self._take("]"):
            if self.at >= len(self.pattern):
                raise _UnreadableError(_MALFORMED)
            if self._take("&&"):
                both, found = found if both is None else both & found, frozenset()
            else:
                found |= self._member()
        found = found if both is None else both & found
        return _ALL - found if negated else found

    def _member(self) -> frozenset[int]:
        character = self.pattern[self.at]
        self.at += 1
        if character == "[":
            return self._class()
        low = self._escaped_class() if character == "\\" else _one(character)
        more = self.pattern[self.at : self.at + 2]
        if len(low) != 1 or len(more) < 2 or more[0] != "-" or more[1] in "[]":  # not a range
            return low
        self.at += 2
        high = self._escaped_class() if more[1] == "\\" else _one(more[1])
        return frozenset(range(min(low), max(high) + 1)) if high else low

    def _position(self, characters: frozenset[int]) -> _Part:
        if self._fold:
            characters |= {
                index
                for index, one in enumerate(_ALPHABET)
                for known in characters
                if one.lower() == _ALPHABET[known].lower()
            }
        self.classes.append(characters)
        self.follow.append(Counter())
        if len(self.classes) > (2 * _MOST_POSITIONS if self.loops else _MOST_SINGLE):
            raise _UnreadableError(_TOO_LARGE)
        last = len(self.classes) - 1
        return _Part(Counter({last: 1}), Counter({last: 1}), 0)

    def _take(self, symbol: str) -> bool:
        found = self.pattern.startswith(symbol, self.at)
        self.at += len(symbol) if found else 0
        return found


def _unquoted(found: re.Match[str]) -> str:
    r"""Expand ``\Q…\E``, as Java does before it parses a pattern; leave other escapes unchanged."""
    if found[1] is None:
        return found[0]
    return "".join(one if one.isalnum() or not one.isascii() else f"\\{one}" for one in found[1])


def _one(character: str) -> frozenset[int]:
    if character in _ALPHABET:
        return frozenset({_ALPHABET.index(character)})
    return frozenset({_ALPHABET.index("é" if character.isalpha() else "\U0001f600")})


def _times(ways: Counter[int], factor: int) -> Counter[int]:
    return Counter({position: min(2, known * factor) for position, known in ways.items()}) if factor else Counter()


def _ambiguous(classes: list[frozenset[int]], follow: list[Counter[int]]) -> bool:
    """Return whether a position can be reached from itself in two ways over the same characters."""
    return any(
        any(ways > 1 and to in loop for position in loop for to, ways in follow[position].items())
        or _two_ways(loop, classes, follow)
        for loop in _loops(follow)
    )


def _two_ways(loop: frozenset[int], classes: list[frozenset[int]], follow: list[Counter[int]]) -> bool:
    steps = {position: [to for to in follow[position] if to in loop] for position in loop}
    forward: dict[tuple[int, int], set[tuple[int, int]]] = {}
    backward: dict[tuple[int, int], set[tuple[int, int]]] = {}
    todo = [(position, position) for position in loop]
    while todo:
        pair = todo.pop()
        if pair in forward:
            continue
        forward[pair] = {(a, b) for a in steps[pair[0]] for b in steps[pair[1]] if classes[a] & classes[b]}
        for after in forward[pair]:
            backward.setdefault(after, set()).add(pair)
        todo.extend(forward[pair])
    # Two different states that one state leads to, and that together lead to one state again, within the loop.
    same = {pair for pair in backward if pair[0] == pair[1]}
    meeting = _reachable(same, lambda pair: backward.get(pair, ()))
    return any(a != b and (a, b) in meeting for a, b in forward)


def _reachable(starts: Iterable[_State], follow: Callable[[_State], Iterable[_State]]) -> set[_State]:
    """Return the states that can be reached from ``starts`` in one step or more."""
    found: set[_State] = set()
    todo = list(starts)
    while todo:
        for after in follow(todo.pop()):
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


def _power(parser: _Parser, part: _Part, *, is_searched: bool) -> int:
    """Return the worst-case growth of a pattern's time: a power of the string's length."""
    classes, follow = parser.classes, parser.follow
    if is_searched:
        begin = len(classes)
        classes, follow = [*classes, _ALL], [*follow, Counter({begin: 1}) + part.first]
    # If the pattern can end here and nothing must follow, it has matched, and Java doesn't backtrack.
    ends = frozenset[int]() if parser.can_fail_late else frozenset(part.last)
    return max(1 + _chain(classes, follow, ends), parser.inner_power + is_searched) + parser.refers


def _loops(follow: list[Counter[int]]) -> list[frozenset[int]]:
    """Return the positions that lead back to themselves, grouped by loop."""
    reached = [_reachable({position}, follow.__getitem__) for position in range(len(follow))]
    loops = {frozenset(to for to in ways if at in reached[to]) for at, ways in enumerate(reached) if at in ways}
    return sorted(loops, key=min)


def _chain(classes: list[frozenset[int]], follow: list[Counter[int]], ends: frozenset[int]) -> int:
    """Return the length of the longest chain of loops that hand characters to each other."""
    loops = _loops(follow)
    reached = {loop: _reachable(loop, follow.__getitem__) for loop in loops}
    over = {
        (one, other): _hands_over(one, other, classes, follow)
        for one in loops
        for other in loops
        if one != other and other <= reached[one] and not other & ends
    }

    def longest(loop: frozenset[int]) -> int:
        following = (other for (one, other), does in over.items() if does and (one == loop or one <= reached[loop]))
        return max((1 + longest(other) for other in following), default=0)

    return max(map(longest, loops), default=0)


def _hands_over(
    one: frozenset[int], other: frozenset[int], classes: list[frozenset[int]], follow: list[Counter[int]]
) -> bool:
    """Return whether a string can pass through one loop, then into and through another; if unsure, ``True``."""
    steps = 0
    for begin, end in ((begin, end) for begin in one for end in other):
        goal = (begin, end, end)
        found, todo = {(begin, begin, end)}, [(begin, begin, end)]
        while todo:
            first, second, third = todo.pop()
            for a in follow[first].keys() & one:
                for c in follow[third].keys() & other:
                    both = classes[a] & classes[c]
                    for b in follow[second] if both else ():
                        steps += 1
                        if both & classes[b] and (a, b, c) not in found:
                            found.add((a, b, c))
                            todo.append((a, b, c))
            if goal in found or steps > _MOST_STEPS:
                return True
    return False
