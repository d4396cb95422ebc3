"""Spans of time, as people write them and as files are about them. All times are UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args

from lakegate.errors import InputError

Unit = Literal["year", "month", "day", "hour", "minute", "second"]
UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the coarsest to the finest."""

_SPANS = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
_SHOWN: dict[Unit, int] = {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16, "second": 19}
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_WRITTEN = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:\.\d+)?)?)?(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """One year, month, day, hour, minute or second.

    Attributes:
        start: Its first moment, in UTC.
        unit: How long it is.

    Example:
        >>> Period.of(datetime(2024, 2, 29, 13, tzinfo=UTC), "month")
        Period(2024-02)
    """

    start: datetime
    unit: Unit = field(compare=False)

    @classmethod
    def of(cls, moment: datetime, unit: Unit) -> Period:
        """Return the period of ``unit`` that ``moment`` (aware) is in."""
        text = moment.astimezone(UTC).isoformat()[: _SHOWN[unit]]
        return cls(_first_moment(text), unit)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        try:
            return _next(self.start, self.unit)
        except (OverflowError, ValueError):
            return _END_OF_TIME

    def widened(self, unit: Unit) -> Period:
        """Return the period of ``unit`` that this one is in; itself when it is as long, or longer."""
        return Period.of(self.start, unit) if UNITS.index(unit) < UNITS.index(self.unit) else self

    def __str__(self) -> str:
        return self.start.isoformat()[: _SHOWN[self.unit]]

    def __repr__(self) -> str:
        return f"Period({self})"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start`` up to, not with, ``end``; open where ``None``."""

    start: datetime | None = None
    end: datetime | None = None

    def overlaps(self, period: Period) -> bool:
        """Tell whether some of ``period`` is in the range."""
        return (self.end is None or period.start < self.end) and (self.start is None or period.end > self.start)

    def covers(self, period: Period) -> bool:
        """Tell whether all of ``period`` is in the range."""
        return (self.start is None or self.start <= period.start) and (self.end is None or period.end <= self.end)

    def periods(self, unit: Unit) -> Iterator[Period]:
        """Yield the periods of ``unit`` that are at least partly in the range, which must be closed."""
        if self.start is None or self.end is None:
            raise ValueError("an open range has no end of periods")
        period = Period.of(self.start, unit)
        while period.start < self.end:
            yield period
            period = Period(period.end, unit)


def parse_period(text: str) -> Period:
    """Read a year, a month, a date or a time; a time without zone is UTC.

    Raises:
        InputError: When it is none.

    Example:
        >>> parse_period("2024-01"), parse_period("2024-01-31T07:30+02:00")
        (Period(2024-01), Period(2024-01-31T05:30))
    """
    found = _WRITTEN.fullmatch(text.strip())
    with suppress(OverflowError, ValueError):
        if found is not None:
            start = datetime.fromisoformat(f"{_completed(found)}{found['zone'] or '+00:00'}").astimezone(UTC)
            return Period(start, [unit for unit in UNITS if found[unit] is not None][-1])
    raise InputError(
        f"'{text}' is no date, month or time.", hint="Write 2024-01-31, 2024-01, 2024 or 2024-01-31T07:30:00Z."
    )


def parse_range(since: str | date | None, until: str | date | None) -> TimeRange:
    """Return the range from the beginning of ``since`` to the end of ``until``: both are in it.

    Args:
        since: As :func:`parse_period` reads it, or a date or time; open when ``None``.
        until: Likewise. ``2024-03`` is up to the end of March, ``2024-03-31T12`` up to one o'clock.

    Raises:
        InputError: When one is no time, or the range ends before it begins.

    Example:
        >>> parse_range("2024-02", date(2024, 2, 29)).end.isoformat()
        '2024-03-01T00:00:00+00:00'
    """
    first, last = (
        None if given is None else parse_period(given.isoformat() if isinstance(given, date) else given)
        for given in (since, until)
    )
    if first is not None and last is not None and last.end <= first.start:
        raise InputError(f"{last} ends before {first} begins.", hint="Give the earlier one first: --from, then --to.")
    return TimeRange(None if first is None else first.start, None if last is None else last.end)


def _completed(found: re.Match[str]) -> str:
    parts = {"month": "01", "day": "01", "hour": "00", "minute": "00", "second": "00"}
    known = {unit: found[unit] or default for unit, default in parts.items()}
    return f"{found['year']}-{known['month']}-{known['day']}T{known['hour']}:{known['minute']}:{known['second']}"


def _first_moment(text: str) -> datetime:
    """Return the first moment of what an ISO time's beginning names."""
    return datetime.fromisoformat(f"{text}{'0001-01-01T00:00:00'[len(text) :]}+00:00")


def _next(start: datetime, unit: Unit) -> datetime:
    if unit == "year":
        return start.replace(year=start.year + 1)
    if unit == "month":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + _SPANS[unit]
