"""Formats numbers, sizes and times for terminals, reports and pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

_MINUTE = 60
_HOUR = 3600
_DAY = 24 * _HOUR
_MONTH = 30 * _DAY
_YEAR = 365 * _DAY
_THOUSAND = 1000


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
    return "" if when is None else f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


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
