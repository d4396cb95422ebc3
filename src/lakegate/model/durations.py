"""Durations as settings and options write them: ``30s``, ``7d``."""

from __future__ import annotations

import re
from datetime import timedelta

from lakegate.errors import ConfigurationError

_DURATION = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a number and a unit, ``s``, ``m``, ``h``, ``d`` or ``w``.

    Raises:
        ConfigurationError: If it is malformed.

    Example:
        >>> parse_duration("7d"), parse_duration("90 m")
        (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"Invalid duration '{text}'.", hint="Use a number and a unit: 30s, 15m, 12h, 7d, 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
