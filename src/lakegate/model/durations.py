"""Lengths of time as people write them in settings: ``30s``, ``7d``."""

from __future__ import annotations

import re
from datetime import timedelta

from lakegate.errors import ConfigurationError

_DURATION = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta:
    """Read a length of time: a number and one of ``s``, ``m``, ``h``, ``d``, ``w``.

    Raises:
        ConfigurationError: When it is something else.

    Example:
        >>> parse_duration("7d"), parse_duration("90 m")
        (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(
            f"'{text}' is not a length of time.", hint="Write a number and a unit: 30s, 15m, 12h, 7d, 2w."
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
