"""Clocks of several machines, compared."""

from __future__ import annotations

from datetime import datetime, timedelta

from lakegate.errors import ClockError
from lakegate.model.figures import duration, moment

_TOLERANCE = timedelta(minutes=5)
"""Iceberg's writers refuse a table that is more than a minute ahead of their clock: one of five is soon writable again,
and few machines without NTP are as wrong as that."""


def is_ahead(time: datetime, now: datetime) -> bool:
    """Return whether a clock is fast that said ``time`` when another said ``now``, or earlier than that."""
    return time - now > _TOLERANCE


def fast_clock(
    time: datetime,
    now: datetime,
    *,
    whose: str,
    by: str,
    effect: str,
    then: str = "run the command again",
    **context: object,
) -> ClockError:
    """Return the error for a clock that is fast.

    Args:
        time: The time by this clock.
        now: The time by the other one.
        whose: The clock, as the subject of a sentence.
        by: The other one.
        effect: What it means for the data, as a sentence.
        then: What to do once the clock is right.
        **context: What the error is about.
    """
    return ClockError(
        f"{whose} is {duration((time - now).total_seconds())} ahead of {by}: {moment(time)} against {moment(now)}. "
        f"{effect}",
        hint=f"Set the clock that is wrong, such as by NTP, then {then}.",
        **context,
    )
