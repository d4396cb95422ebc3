"""Which time a file is about, by its path: a date in its name, else in the folders that it lies in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from lakegate.intake.periods import Period, Unit

_YEAR = r"(?P<year>(?:19|20|21)[0-9]{2})"
_MONTH = r"(?P<month>0[1-9]|1[0-2])"
_DAY = r"(?P<day>0[1-9]|[12][0-9]|3[01])"
_DATES = re.compile(rf"(?<![0-9]){_YEAR}(?P<between>[-_.]?){_MONTH}(?P=between){_DAY}(?![0-9])")
# What goes on like a date is none: 2024-02-30 is not February.
_MONTHS = re.compile(rf"(?<![0-9]){_YEAR}[-_.]{_MONTH}(?![0-9]|[-_.][0-9])")
_FOLDER_DATES = re.compile(rf"(?:^|/){_YEAR}/{_MONTH}(?:/{_DAY}(?:/(?P<hour>[01][0-9]|2[0-3]))?)?(?=/|$)")
_PARTITIONS = re.compile(r"(?:^|/)(?P<unit>year|month|day|hour)=(?P<value>[0-9]{1,4})(?=/|$)", re.IGNORECASE)
_PARTITION_UNITS: tuple[Unit, ...] = ("year", "month", "day", "hour")


def date_in(path: str) -> Period | None:
    """Return the time that a path tells; ``None`` when it tells none, or more than one.

    The name of the file counts before its folders, ``year=2024/month=01/day=31`` before other folders, and inner
    folders before outer ones.

    Example:
        >>> date_in("/backup_2025-01-01/green_20240131.csv"), date_in("/trips/year=2024/month=1/part-0.parquet")
        (Period(2024-01-31), Period(2024-01))
        >>> date_in("/trips/2024/01/31/part-0.parquet"), date_in("/trips/2024-01-01_2024-01-31.csv")
        (Period(2024-01-31), None)
    """
    folder, _, name = path.rpartition("/")
    for found in (_named(name), _partitioned(folder), *map(_named, reversed(folder.split("/"))), _nested(folder)):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _named(part: str) -> Sequence[Period]:
    """Return the different dates that a part of a path holds; months only where there are no days."""
    days = _distinct(_DATES.finditer(part), "day")
    return days or _distinct(_MONTHS.finditer(part), "month")


def _partitioned(folder: str) -> Sequence[Period]:
    values = {match["unit"].lower(): int(match["value"]) for match in _PARTITIONS.finditer(folder)}
    known = [values[unit] for unit in _PARTITION_UNITS if unit in values]
    if not known or list(values) != list(_PARTITION_UNITS[: len(known)]):
        return ()
    return tuple(_period(known))


def _nested(folder: str) -> Sequence[Period]:
    found = list(_FOLDER_DATES.finditer(folder))
    return tuple(_of(found[-1])) if found else ()


def _distinct(found: Iterator[re.Match[str]], unit: Unit) -> Sequence[Period]:
    return tuple(dict.fromkeys(period for match in found for period in _of(match) if period.unit == unit))


def _of(match: re.Match[str]) -> Iterator[Period]:
    values = match.groupdict()
    return _period([int(values[unit]) for unit in _PARTITION_UNITS if values.get(unit)])


def _period(values: Sequence[int]) -> Iterator[Period]:
    """Yield the period of year, month, day, hour, as many as are given, if there is such a one."""
    year, month, day, hour = (*values, *(1, 1, 0)[len(values) - 1 :])
    try:
        yield Period.of(datetime(year, month, day, hour, tzinfo=UTC), _PARTITION_UNITS[len(values) - 1])
    except ValueError:
        return
