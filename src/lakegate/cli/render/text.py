"""Values as text: for terminals (nothing in data may steer them) and for JSON (nothing JSON lacks)."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

_MINUTE = 60
_HOUR = 3600
_THOUSAND = 1000


def plain(value: object) -> str:
    r"""Return ``value`` as one line without control characters, which could steer the terminal.

    Example:
        >>> print(plain("a\nb\x1b[31m"))
        a\nb\x1b[31m
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def clip(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters.

    Example:
        >>> clip("passenger_count", 10)
        'passenger…'
    """
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def cell(value: object) -> str:
    """Return a value of a table as people read it; ``None`` is ``NULL``.

    Example:
        >>> cell(None), cell(True), cell({"a": 1})
        ('NULL', 'true', '{"a": 1}')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (list, tuple, Mapping)):
        return plain(json.dumps(json_safe(value), ensure_ascii=False))
    return plain(value)


def json_safe(value: Any) -> Any:  # noqa: PLR0911 - a line for each type
    """Return ``value`` in JSON's types.

    Times are ISO 8601, decimals are text (they must not lose digits), bytes are base64, and what JSON has no number
    for (NaN, infinities) is null.

    Example:
        >>> from decimal import Decimal
        >>> json_safe({"fare": Decimal("2.50"), "ratio": float("nan"), "day": date(2026, 1, 31)})
        {'fare': '2.50', 'ratio': None, 'day': '2026-01-31'}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_safe(item) for item in value]
    return str(value)


def duration(seconds: float) -> str:
    """Return a time span.

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
    """Return a number of bytes in decimal units.

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
    """Return a time in UTC, to the second, as ``--at`` reads it.

    Example:
        >>> moment(datetime(2026, 1, 31, 7, 5, 9, 12, tzinfo=UTC))
        '2026-01-31T07:05:09Z'
    """
    return "" if when is None else f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def count(number: int | None) -> str:
    """Return a number with its thousands apart; nothing when it is not known.

    Example:
        >>> count(200000), count(None)
        ('200,000', '')
    """
    return "" if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "row"), counted(1000, "row")
        ('1 row', '1,000 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def share(part: int, whole: int) -> str:
    """Return a percentage that is never rounded to nothing or to all.

    Example:
        >>> share(1003, 100000), share(1, 10**7), share(5, 0)
        ('1.00 %', '<0.01 %', '')
    """
    if whole <= 0 or part > whole:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.01:  # noqa: PLR2004 - what two decimals can show
        return "<0.01 %"
    if part < whole and percent > 99.99:  # noqa: PLR2004 - likewise
        return ">99.99 %"
    return f"{percent:.2f} %"
