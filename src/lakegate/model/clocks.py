"""Compares the clocks of different machines."""

from __future__ import annotations

from datetime import datetime, timedelta

from lakegate.errors import ClockError
from lakegate.model.figures import duration, moment

_TOLERANCE = timedelta(minutes=5)
"""Iceberg refuses to write to a table that is over a minute ahead of the local clock. Within five minutes, such a table
is writable again, and few machines, even without NTP, are off by more."""


def is_ahead(time: datetime, now: datetime) -> bool:
    """Return whether a clock that showed ``time`` is fast, given that another shows ``now`` then or later."""
    return time - now > _TOLERANCE


def fast_clock(
    time: datetime,
    now: datetime,
    *,
    clock: str,
    reference: str,
    effect: str,
    then: str = "run the command again",
    **context: object,
) -> ClockError:
    """Return the error for a fast clock.

    Args:
        time: Time by the fast clock.
        now: Time by the other clock.
        clock: The fast clock, as the subject of a sentence.
        reference: The other clock.
        effect: What this means for the data, as a sentence.
        then: What to do once the clock is right.
        **context: The error's context.
    """
    lead = duration((time - now).total_seconds())
    return ClockError(
        f"{clock} is {lead} ahead of {reference}: {moment(time)} against {moment(now)}. {effect}",
        hint=f"Correct whichever clock is wrong, for example by NTP, then {then}.",
        **context,
    )
