"""Words for people: numbers, sizes and times as they read them, durations and keywords as they type them."""

from __future__ import annotations

import difflib
import inspect
import math
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from lakegate.errors import ConfigurationError, SchemaError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)
_DURATION = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_EXPANDED = frozenset('"$`\\!')
"""Characters that a shell doesn't take literally in double quotes."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST_AGE = timedelta(days=365_000)
"""The longest age, so that a time that long ago is still after the year 1."""
_INVISIBLE = frozenset({"Cc", "Cf"})
_FILLERS = frozenset("\u034f\u115f\u1160\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10))))
"""Characters of other categories that show nothing: fillers, and variation selectors."""
_MOST_NAMED = 5
_MINUTE = 60
_HOUR = 3600
_DAY = 24 * _HOUR
_MONTH = 30 * _DAY
_YEAR = 365 * _DAY
_THOUSAND = 1000


def appearance(name: str) -> str:
    r"""Return what a name looks like, in lower case: names that people can't tell apart have the same appearance.

    It has no invisible characters, one kind of space, and Unicode's composed form.

    Example:
        >>> appearance("Id\u200b\xa0") == appearance("id"), appearance("cafe\u0301") == appearance("CAF\xc9")
        (True, True)
    """
    visible = (each for each in name if unicodedata.category(each) not in _INVISIBLE and each not in _FILLERS)
    return unicodedata.normalize("NFC", " ".join("".join(visible).split())).lower()


def escaped(name: str) -> str:
    r"""Return a name with escapes for everything but ASCII.

    Example:
        >>> print(escaped("cafe\u0301"))
        cafe\u0301
    """
    return name.encode("ascii", "backslashreplace").decode()


def command_line(words: Iterable[str]) -> str:
    """Return a command to type in a shell. SQL with single quotes goes in double quotes, if nothing there expands.

    Example:
        >>> print(command_line(["lakegate", "query", "SELECT 1 AS `a b`", "zone = 'A'"]))
        lakegate query 'SELECT 1 AS `a b`' "zone = 'A'"
    """
    return " ".join(f'"{one}"' if "'" in one and _EXPANDED.isdisjoint(one) else shlex.quote(one) for one in words)


def duration(seconds: float) -> str:
    """Format a time span.

    Example:
        >>> duration(0.84), duration(75), duration(7300)
        ('0.8 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def size(count: int | None) -> str:
    """Format a number of bytes in decimal units.

    Example:
        >>> size(999), size(1_234_567), size(None)
        ('999 B', '1.2 MB', '')
    """
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < _THOUSAND:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _THOUSAND
    return f"{value:.1f} TB"


def moment(when: datetime | None) -> str:
    """Format a time in UTC, to the second, as ``--at`` accepts it.

    Example:
        >>> moment(datetime(2026, 1, 31, 7, 5, 9, 12, tzinfo=UTC))
        '2026-01-31T07:05:09Z'
    """
    # Not strftime, which writes the year 1 as "1" on Linux.
    return "" if when is None else f"{when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def age(seconds: float) -> str:
    """Format how long ago something was, roughly.

    Example:
        >>> age(3), age(200), age(90_000), age(40 * 86_400), age(-500)
        ('just now', '3 min ago', '1 d ago', '1 mo ago', 'in 8 min')
    """
    size = abs(seconds)
    if size < 45:  # seconds; feels like now
        return "just now"
    steps = ((_YEAR, "y"), (_MONTH, "mo"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s"))
    length, unit = next((length, unit) for length, unit in steps if size >= length)
    whole = f"{int(size // length)} {unit}"
    return f"in {whole}" if seconds < 0 else f"{whole} ago"


def count(number: int | None) -> str:
    """Format a number with thousands separators; empty if it's unknown.

    Example:
        >>> count(200000), count(None)
        ('200,000', '')
    """
    return "" if number is None else f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun.

    Example:
        >>> counted(1, "row"), counted(1000, "row"), counted(2, "branch")
        ('1 row', '1,000 rows', '2 branches')
    """
    many = plural or noun + ("es" if noun.endswith("ch") else "s")
    return f"{number:,} {noun if number == 1 else many}"


def enumerated(words: Sequence[str], separator: str = ", ") -> str:
    """Return the first words of many.

    Example:
        >>> enumerated(["a", "b", "c", "d", "e", "f", "g"])
        'a, b, c, d, e and 2 more'
    """
    more = len(words) - _MOST_NAMED
    return separator.join(words[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def share(part: int, whole: int) -> str:
    """Format a percentage that is never rounded to 0 or 100.

    Example:
        >>> share(1003, 100000), share(1, 10**7), share(5, 0)
        ('1.00 %', '<0.01 %', '')
    """
    if whole <= 0 or part > whole:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.01:  # what two decimals can show
        return "<0.01 %"
    if part < whole and percent > 99.99:
        return ">99.99 %"
    return f"{percent:.2f} %"


def rounded(written: str) -> str | None:
    """Say how a double rounds a number as written; ``None`` if it doesn't, or the number isn't finite.

    Example:
        >>> rounded("0.10"), rounded("1e400")
        (None, None)
        >>> rounded("0.99999999999999999999")
        '0.99999999999999999999 has more digits than a floating-point number keeps (1.0)'
    """
    number = float(written)
    if not math.isfinite(number) or Decimal(written) == Decimal(repr(number)):
        return None
    return f"{written} has more digits than a floating-point number keeps ({number!r})"


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a number and a unit, ``s``, ``m``, ``h``, ``d`` or ``w``.

    Example:
        >>> parse_duration("7d"), parse_duration("90 m")
        (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"Invalid duration '{text}'.", hint="Use a number and a unit: 30s, 15m, 12h, 7d, 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def parse_age(text: str) -> timedelta:
    """Parse a duration for counting back from now. More than a millennium counts as one.

    Example:
        >>> parse_age("7d"), parse_age("999999w") == LONGEST_AGE
        (datetime.timedelta(days=7), True)
    """
    return min(parse_duration(text), LONGEST_AGE)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to ``word``, ignoring case, for hints such as "did you mean".

    Example:
        >>> nearest("pasenger_count", ["passenger_count", "fare_amount"])
        'passenger_count'
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ``Did you mean 'x'? `` as the start of a hint; empty if no candidate is close.

    Example:
        >>> did_you_mean("erorr", ["error", "warn"]) + "Use error or warn."
        "Did you mean 'error'? Use error or warn."
    """
    guess = nearest(word, candidates)
    return f"Did you mean '{guess}'? " if guess else ""


def unknown_column(problem: str, column: str, known: Sequence[str], **context: Any) -> SchemaError:
    """Return the error for a column that doesn't exist. Its hint names the nearest one, and all that do.

    Example:
        >>> unknown_column("nyc.trips has no column 'fair'.", "fair", ["id", "fare"]).hint
        "Did you mean 'fare'? Columns: id, fare."
    """
    hint = f"{did_you_mean(column, known)}Columns: {', '.join(known)}."
    return SchemaError(problem, hint=hint, column=column, **context)


def suggest_keyword(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Wrap ``function`` so that its ``TypeError`` for an unknown keyword suggests the nearest one.

    From Python 3.13 on, Python does so itself, and ``function`` is returned unchanged. Functions that take
    ``**options`` must refuse unknown ones themselves.

    Example:
        >>> suggest_keyword(lambda *, checks=(): None)(chekcs=["not_null(id)"])
        Traceback (most recent call last):
        TypeError: <lambda>() got an unexpected keyword argument 'chekcs'. Did you mean 'checks'?
    """
    parameters = inspect.signature(function).parameters.values()
    if sys.version_info >= (3, 13) or any(one.kind is one.VAR_KEYWORD for one in parameters):
        return function
    known = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]

    @wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        refuse_unknown(function.__name__, kwargs, known)
        return function(*args, **kwargs)

    return checked


def suggest_keywords(cls: _Class) -> _Class:
    """Class decorator that applies :func:`suggest_keyword` to all public methods."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(cls, name, suggest_keyword(member))
    return cls


def refuse_unknown(function: str, keywords: Iterable[str], known: Collection[str]) -> None:
    """Raise ``TypeError`` for the first of ``keywords`` that ``function`` doesn't know, and suggest the nearest one."""
    for keyword in keywords:
        if keyword not in known:
            guess = nearest(keyword, known)
            hint = f". Did you mean '{guess}'?" if guess else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'{hint}")
