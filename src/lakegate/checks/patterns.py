r"""Find regular expressions that can take forever, before Spark, which can't stop one, runs them.

Java's engine tries every way to match. Where a repetition can match one text in more than one way, as ``(a+)+`` does,
the number of ways doubles with each character, and forty characters take longer than anybody waits. That is decided on
the pattern's automaton: it explodes exactly if some state of a loop leads back to itself by two different ways over
the same characters ("exponential ambiguity").

What is left can be polynomial: ``.*.*x`` takes time that grows with the cube of a string's length. The power is the
longest chain of loops of which each can hand characters over to the next ("polynomial ambiguity"), and one more; that a
pattern is searched, not matched from the start, is a loop like any other. Texts are tried on such a pattern up to a
length only that keeps a row within a fraction of a second (:func:`longest_text`): Spark stops what is cancelled between
two rows. The same limit keeps Java's stack from overflowing, which would end Spark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

EXPLODES = (
    "can take forever on some texts: a repetition in it matches one text in many ways. "
    "Make each way the only one, as ^\\w+( \\w+)*$ instead of ^(\\w+ ?)*$, or keep it from trying others: a++"
)
"""What is wrong with a pattern, and what to write instead; ends a sentence that begins with its name."""
_LONGEST_TEXTS = {2: 10_000, 3: 400, 4: 120}
"""Characters in a string by the power: some ten million steps. Beyond, a pattern takes too long on short ones."""
_ROUNDS = 800
"""Characters in a string for a pattern of which Java puts each round of a loop on its stack, by the depth of groups.

With Java's usual stack of a megabyte, ``^(a|b)*$`` overflows at 1,222 characters, ``^((a|b)c?|(d|e)f?)*$`` at 660 and
six levels at 343.
"""
_FEW_ROUNDS = 100
_MOST_STEPS = 50_000
_ALPHABET = [*map(chr, range(128)), "é", "É", "中", "\u0663", "\u2028", "\u00a0", "\U0001f600"]
_ALL = frozenset(range(len(_ALPHABET)))
_WIDE = _ALPHABET.index("\U0001f600")
"""A character that is two to Java: rounds with and without such differ in length, too."""
_MOST_COPIES = 8
_MOST_POSITIONS = 200


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


def explodes(pattern: str) -> bool:
    r"""Return whether a Java pattern surely takes exponential time on some strings, or time of a high power.

    A pattern that can't be read here is not judged.

    Example:
        >>> explodes(r"(a+)+$"), explodes(r"^(\w+\s?)*$"), explodes(r"^\w+(\s\w+)*$"), explodes(r"(?:a++)+$")
        (True, True, False, False)
    """
    try:
        parser = _Parser(pattern)
        parser.alternatives()
    except (_UnreadableError, RecursionError):
        return False
    if parser.at != len(pattern):
        return False
    return parser.ambiguous or _ambiguous(parser.classes, parser.follow) or _power(pattern) > max(_LONGEST_TEXTS)


def longest_text(pattern: str) -> int | None:
    r"""Return how long a string may be that a pattern is tried on; ``None`` when its time only grows with the length.

    Example:
        >>> longest_text(r"^[A-Z]+$"), longest_text(r"\s+$"), longest_text(r".*.*x")
        (None, 10000, 400)
    """
    power = _power(pattern)
    limits = [] if power < min(_LONGEST_TEXTS) else [_LONGEST_TEXTS.get(power, min(_LONGEST_TEXTS.values()))]
    recursions = _recursions(pattern)
    return min([*limits, *([_ROUNDS // recursions] if recursions else [])], default=None)


def _recursions(pattern: str) -> int:
    """Return how deep groups are nested if Java's stack grows with each round of a loop, else 0.

    It does where rounds can differ in length or way. A stack that overflows ends the JVM, and with it Spark.
    """
    try:
        parser = _Parser(pattern)
        parser.alternatives()
    except (_UnreadableError, RecursionError):
        return 0
    return parser.deepest if parser.recurses else 0


class _UnreadableError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a pattern: which of its characters can come first and last, and in how many ways it can be empty."""

    first: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    empty: int = 1


class _Parser:
    """Reads a pattern into its position automaton, whose states are the pattern's characters and classes.

    ``follow`` counts the ways from one position to the next: two ways without a character between are an ambiguity.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.classes: list[frozenset[int]] = []
        self.follow: list[Counter[int]] = []
        self.ambiguous = False
        self.inner_power = 0
        self.can_fail_late = False
        self.choices = 1
        self.recurses = False
        self.deepest = 0
        self._varying = 0  # alternatives and repetitions of no fixed number
        self._fold = False
        self._depth = 0

    def alternatives(self) -> _Part:
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
                is_wide = any(_WIDE in one for one in self.classes[position:]) and self.pattern[begin] == "("
                varies = is_wide or self._varying > varying
                self.recurses |= varies and (bounds[1] is None or bounds[1] > _FEW_ROUNDS)
            self._varying += bounds[0] != bounds[1]
            if possessive:
                self.inner_power = max(self.inner_power, int(bounds[1] is None))
                part = self._as_one(position, part, optional=bounds[0] == 0)
            else:
                part = self._copies(part, begin, position, *bounds)
            self.at = max(self.at, end)
            begin = -1  # a second quantifier repeats what is repeated: copies of it are not made
        return part

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
        """Replace each atomic part, which never backtracks, by a single character."""
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
                raise _UnreadableError
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
                raise _UnreadableError
            self._fold = fold or "i" in flags
            if opened["end"] == ")":
                return _Part()
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        part = self.alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise _UnreadableError
        self._fold = fold
        self.can_fail_late = self.can_fail_late or (opened is not None and opened["look"] is not None)
        if opened is not None and (opened["look"] or opened["atomic"]):
            one = self._as_one(position, part, optional=part.empty > 0)
            return one if opened["atomic"] else _Part()
        return part

    def _escape(self) -> _Part:
        if self._take("Q"):
            end = self.pattern.find("\\E", self.at)
            text = self.pattern[self.at : end if end >= 0 else None]
            self.at = len(self.pattern) if end < 0 else end + 2
            part = _Part()
            for character in text:
                part = self._then(part, self._position(_one(character)))
            return part
        if self.at < len(self.pattern) and self.pattern[self.at] in "bBAzZGE":
            self.can_fail_late = self.can_fail_late or self.pattern[self.at] in "bBzZ"
            self._varying += self.pattern[self.at] == "b"  # which Java gets as alternatives
            self.at += 1
            return _Part()
        return self._position(self._escaped_class())

    def _escaped_class(self) -> frozenset[int]:
        if self.at >= len(self.pattern):
            raise _UnreadableError
        character = self.pattern[self.at]
        self.at += 1
        if character in "pP":
            named = re.compile(r"\{(?:\w+=)?(\w+)\}|(\w)").match(self.pattern, self.at)
            if named is None:
                raise _UnreadableError
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
        if character.isdigit() or character in "kRXN":
            raise _UnreadableError  # what these match is not one character
        return _one(_CONTROLS.get(character, character))

    def _class(self) -> frozenset[int]:
        negated = self._take("^")
        found = _one("]") if self._take("]") else frozenset[int]()
        both: frozenset[int] | None = None
        while not self._take("]"):
            if self.at >= len(self.pattern):
                raise _UnreadableError
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
        if len(low) != 1 or len(more) < 2 or more[0] != "-" or more[1] in "[]":  # a dash and an end
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
        if len(self.classes) > 2 * _MOST_POSITIONS:
            raise _UnreadableError
        last = len(self.classes) - 1
        return _Part(Counter({last: 1}), Counter({last: 1}), 0)

    def _take(self, symbol: str) -> bool:
        found = self.pattern.startswith(symbol, self.at)
        self.at += len(symbol) if found else 0
        return found


def _one(character: str) -> frozenset[int]:
    if character in _ALPHABET:
        return frozenset({_ALPHABET.index(character)})
    return frozenset({_ALPHABET.index("é" if character.isalpha() else "\U0001f600")})


def _times(ways: Counter[int], factor: int) -> Counter[int]:
    return Counter({position: min(2, known * factor) for position, known in ways.items()}) if factor else Counter()


def _ambiguous(classes: list[frozenset[int]], follow: list[Counter[int]]) -> bool:
    """Return whether some position is reached from itself by two ways over the same characters."""
    reached = [_reachable({position}, follow) for position in range(len(classes))]
    for start in range(len(classes)):
        if start not in reached[start]:
            continue
        loop = {position for position in reached[start] if start in reached[position]}
        if any(ways > 1 and to in loop for position in loop for to, ways in follow[position].items()):
            return True
        if min(loop) == start and _two_ways(loop, classes, follow):
            return True
    return False


def _two_ways(loop: set[int], classes: list[frozenset[int]], follow: list[Counter[int]]) -> bool:
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
    # From a state to two different ones, and from these together to one state again, within the loop.
    apart = _closed({pair for pair in backward if pair[0] == pair[1]}, backward)
    return any(a != b and (a, b) in apart for a, b in forward)


def _closed(pairs: set[tuple[int, int]], steps: dict[tuple[int, int], set[tuple[int, int]]]) -> set[tuple[int, int]]:
    found, todo = set(pairs), list(pairs)
    while todo:
        for after in steps.get(todo.pop(), ()):
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


def _reachable(starts: Iterable[int], follow: list[Counter[int]]) -> set[int]:
    found: set[int] = set()
    todo = list(starts)
    while todo:
        for after in follow[todo.pop()]:
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


def _power(pattern: str) -> int:
    """Return the power of a text's length with which a pattern's time grows at worst; 2 for one that can't be read."""
    try:
        parser = _Parser(pattern)
        part = parser.alternatives()
    except (_UnreadableError, RecursionError):
        return 2
    is_searched = re.match(r"(?:\(\?[a-z]+\))?(?:\^|\\A)", pattern) is None or parser.choices > 1
    classes, follow = parser.classes, parser.follow
    if is_searched:
        begin = len(classes)
        classes, follow = [*classes, _ALL], [*follow, Counter({begin: 1}) + part.first]
    # What can end here and ask for nothing more has matched, and nothing is tried again.
    ends = frozenset[int]() if parser.can_fail_late else frozenset(part.last)
    return max(1 + _chain(classes, follow, ends), parser.inner_power + is_searched)


def _loops(follow: list[Counter[int]]) -> list[frozenset[int]]:
    """Return the positions that lead back to themselves, by loop."""
    reached = [_reachable({position}, follow) for position in range(len(follow))]
    loops = {frozenset(to for to in ways if at in reached[to]) for at, ways in enumerate(reached) if at in ways}
    return sorted(loops, key=min)


def _chain(classes: list[frozenset[int]], follow: list[Counter[int]], ends: frozenset[int]) -> int:
    """Return the length of the longest chain of loops that hand characters over to each other."""
    loops = _loops(follow)
    reached = {loop: _reachable(loop, follow) for loop in loops}
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
    """Return whether some text can pass through one loop, then into and through another; True if in doubt."""
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
