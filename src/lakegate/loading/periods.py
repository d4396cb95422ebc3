"""Periods of time in UTC: ranges, and path templates with date fields."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args

from lakegate.errors import InputError
from lakegate.loading.routes import expression

Unit = Literal["year", "month", "day", "hour", "minute", "second"]
UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the coarsest to the finest."""

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
        unit: Its length.

    Example:
        >>> Period.of(datetime(2024, 2, 29, 13, tzinfo=UTC), "month")
        Period(2024-02)
    """

    start: datetime
    unit: Unit = field(compare=False)

    @classmethod
    def of(cls, moment: datetime, unit: Unit) -> Period:
        """Return the ``unit`` that contains ``moment``, which must have a time zone."""
        text = moment.astimezone(UTC).isoformat()[: _SHOWN[unit]]
        return cls(_first_moment(text), unit)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        start = self.start
        try:
            if self.unit == "year":
                return start.replace(year=start.year + 1)
            if self.unit == "month":
                return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
            return start + timedelta(**{f"{self.unit}s": 1})
        except (OverflowError, ValueError):
            return _END_OF_TIME

    def widened(self, unit: Unit) -> Period:
        """Return the ``unit`` that contains this period; the period itself if it's at least that long."""
        return Period.of(self.start, unit) if UNITS.index(unit) < UNITS.index(self.unit) else self

    def __str__(self) -> str:
        return self.start.isoformat()[: _SHOWN[self.unit]]

    def __repr__(self) -> str:
        return f"Period({self})"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start``, inclusive, to ``end``, exclusive; ``None`` leaves a side open."""

    start: datetime | None = None
    end: datetime | None = None

    def overlaps(self, period: Period) -> bool:
        """Return whether part of ``period`` is in the range."""
        return (self.end is None or period.start < self.end) and (self.start is None or period.end > self.start)

    def covers(self, period: Period) -> bool:
        """Return whether all of ``period`` is in the range."""
        return (self.start is None or self.start <= period.start) and (self.end is None or period.end <= self.end)


def parse_period(text: str) -> Period:
    """Parse a year, month, date or time. A time without a zone is in UTC.

    Example:
        >>> parse_period("2024-01"), parse_period("2024-01-31T07:30+02:00")
        (Period(2024-01), Period(2024-01-31T05:30))
    """
    found = _WRITTEN.fullmatch(text.strip())
    with suppress(OverflowError, ValueError):
        if found is not None:
            unit = [unit for unit in UNITS if found[unit] is not None][-1]
            return Period(_first_moment(found[0][: _SHOWN[unit]], found["zone"]), unit)
    raise InputError(
        f"'{text}' isn't a date, month or time.", hint="Write 2024-01-31, 2024-01, 2024 or 2024-01-31T07:30:00Z."
    )


def parse_range(since: str | date | None, until: str | date | None) -> TimeRange:
    """Return the range from the start of ``since`` to the end of ``until``.

    Args:
        since: Text that :func:`parse_period` understands, or a date or time; open if ``None``.
        until: The same, inclusive. ``2024-03`` includes all of March, ``2024-03-31T12`` everything before 13:00.

    Example:
        >>> parse_range("2024-02", date(2024, 2, 29)).end.isoformat()
        '2024-03-01T00:00:00+00:00'
    """
    first, last = (
        None if given is None else parse_period(given.isoformat() if isinstance(given, date) else given)
        for given in (since, until)
    )
    if first is not None and last is not None and last.end <= first.start:
        raise InputError(f"The range ends ({last}) before it starts ({first}).", hint="Swap --from and --to.")
    return TimeRange(None if first is None else first.start, None if last is None else last.end)


def _first_moment(text: str, zone: str | None = None) -> datetime:
    """Return the first moment, in UTC, of the period that a truncated ISO time names."""
    return datetime.fromisoformat(f"{text}{'0001-01-01T00:00:00'[len(text) :]}{zone or '+00:00'}").astimezone(UTC)


_FIELDS: Mapping[str, tuple[Unit, int]] = {
    "Y": ("year", 4),
    "y": ("year", 2),
    "m": ("month", 2),
    "d": ("day", 2),
    "j": ("day", 3),
    "H": ("hour", 2),
    "M": ("minute", 2),
    "S": ("second", 2),
}
"""By field of strftime(3): its unit, and its number of digits."""

_TOKEN = re.compile(r"%(?P<field>.)|(?P<literal>(?:[^%]|%$)+)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_MAX_DAYS = 100
_MAX_MONTHS = 1200


def is_template(path: str) -> bool:
    """Return whether ``path`` has a year as a date field. If so, ``%%`` in it means a percent sign.

    Example:
        >>> is_template("trips/%Y-%m.parquet"), is_template("trips/10%/a.parquet")
        (True, False)
    """
    return any(token["field"] in ("Y", "y") for token in _TOKEN.finditer(path))


class Template:
    """A path with date fields and wildcards.

    Args:
        text: The path, with ``%Y %y %m %d %j %H %M %S`` as in strftime(3) and ``%%`` for a percent sign.

    Raises:
        InputError: If it has other fields, or skips a unit, such as a day without a month.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tuple(_tokens(text))
        self._names = {name for name, _ in self._tokens if name}
        _require_whole(text, self._names)
        self._pattern = re.compile(f"(?:.*/)?{''.join(self._expressions())}(?:/.*)?", re.DOTALL | re.ASCII)

    @property
    def unit(self) -> Unit:
        """The finest unit of its fields."""
        return UNITS[max(UNITS.index(_FIELDS[name][0]) for name in self._names)]

    def globs(self, wanted: TimeRange) -> tuple[str, ...]:
        """Return globs that match every file in the range ``wanted``, and few others."""
        if wanted.start is None or wanted.end is None or (wanted.end - wanted.start).days > _MAX_MONTHS * 28:
            return (self._filled({}),)
        by_day = self._names & {"d", "j"} and (wanted.end - wanted.start).days <= _MAX_DAYS
        period = Period.of(wanted.start, "day" if by_day else "month")
        found = []
        while period.start < wanted.end:
            found.append(self._filled(_values(period)))
            period = Period(period.end, period.unit)
        return tuple(dict.fromkeys(found))

    def read(self, path: str) -> Period | None:
        """Return the period in a file's path; ``None`` if the path doesn't match, or the date doesn't exist.

        Args:
            path: A file that one of :meth:`globs` matched, or a file in a folder that one matched.

        Example:
            >>> Template("trips/%Y/*_%Y-%m-%d.csv").read("/data/trips/2024/green_2024-02-29.csv")
            Period(2024-02-29)
        """
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        names = sorted(self._names)
        try:
            text, fields = " ".join(found[name] for name in names), " ".join(f"%{name}" for name in names)
            period = Period.of(datetime.strptime(text, fields).replace(tzinfo=UTC), self.unit)
        except ValueError:
            return None
        # Redundant fields must agree: a year that appears twice, or a day of the year next to a month.
        known = _values(period)
        return period if all(known[name] == found[name] for name in self._names) else None

    def _filled(self, values: Mapping[str, str]) -> str:
        return "".join(
            literal if name is None else values.get(name, "[0-9]" * _FIELDS[name][1]) for name, literal in self._tokens
        )

    def _expressions(self) -> Iterator[str]:
        seen: set[str] = set()
        for name, literal in _tokens(_below_root(self.text)):
            if name is None:
                yield expression(literal).pattern
            elif name in seen:
                yield f"(?P={name})"
            else:
                seen.add(name)
                yield f"(?P<{name}>[0-9]{{{_FIELDS[name][1]}}})"


def _tokens(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield a pair for each field (its name, and ``""``) and for each text between fields (``None``, and the text)."""
    for token in _TOKEN.finditer(text):
        name = token["field"]
        if name is None or name == "%":
            yield None, token["literal"] or "%"
        elif name in _FIELDS:
            yield name, ""
        else:
            raise _unusable(text, f"has the unknown field %{name}", f"Use {' '.join(f'%{field}' for field in _FIELDS)}")


def _below_root(text: str) -> str:
    """Remove what the absolute paths of a path's files may not have: its scheme, root and ``../``."""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        return text[scheme.end() :]
    return re.sub(r"^(?:\.\./|~[^/]*/|/)+", "", os.path.normpath(text))


def _require_whole(text: str, names: set[str]) -> None:
    known = {_FIELDS[name][0] for name in names} | ({"month"} if "j" in names else set())
    for unit in UNITS[: max(UNITS.index(unit) for unit in known)]:
        if unit not in known:
            name = next(name for name, (of, _) in _FIELDS.items() if of == unit)
            raise _unusable(text, f"has no {unit}", f"Add %{name}")


def _unusable(text: str, why: str, what_to_do: str) -> InputError:
    return InputError(
        f"'{text}' {why}, so the dates of its files can't be read.",
        hint=f"{what_to_do}, or write %% for a percent sign.",
        path=text,
    )


def _values(period: Period) -> Mapping[str, str]:
    """Return the date fields that don't change within a period, with their values."""
    units = UNITS[: UNITS.index(period.unit) + 1]
    return {
        name: period.start.strftime(f"%{name}").zfill(width) for name, (unit, width) in _FIELDS.items() if unit in units
    }
