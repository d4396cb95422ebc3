"""Paths with a date in them, ``trips/%Y/%m/green_%Y-%m-%d*.parquet``: to list files by, and to read the date back."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from lakegate.errors import InputError
from lakegate.intake.periods import UNITS, Period, TimeRange, Unit
from lakegate.intake.places import expression

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
"""Fields of strftime(3): the unit that each tells, and its number of digits."""

_TOKEN = re.compile(r"%(?P<field>.)|(?P<literal>(?:[^%]|%$)+)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_POSIX_PIVOT = 69
_MAX_DAYS = 100
_MAX_MONTHS = 1200


def is_template(path: str) -> bool:
    """Tell whether ``path`` has fields for a date. ``%%`` stands for a percent sign in one that has.

    Raises:
        InputError: When it has some, but none for the year.

    Example:
        >>> is_template("trips/%Y-%m.parquet"), is_template("trips/10%/a.parquet")
        (True, False)
    """
    found = {token["field"] for token in _TOKEN.finditer(path)} & _FIELDS.keys()
    if not found or found & {"Y", "y"}:
        return bool(found)
    # A URI may hold percent-encoded bytes, and a folder may be called so.
    if _SCHEME.match(path) or Path(path).exists():
        return False
    raise _unusable(path, "tells no year", "Add %Y")


class Template:
    """A path with fields for a date, and wildcards where it may differ.

    Args:
        text: The path; ``%Y %y %m %d %j %H %M %S`` as strftime(3) writes them, ``%%`` for a percent sign.

    Raises:
        InputError: When it has other fields, or lacks one: days without month, hours without day.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tuple(_tokens(text))
        self._names = {name for name, _ in self._tokens if name}
        _require_whole(text, self._names)
        self._pattern = re.compile(f"(?:.*/)?{''.join(self._expressions())}(?:/.*)?", re.DOTALL | re.ASCII)

    @property
    def unit(self) -> Unit:
        """How finely it tells the time."""
        return UNITS[max(UNITS.index(_FIELDS[name][0]) for name in self._names)]

    def globs(self, wanted: TimeRange) -> tuple[str, ...]:
        """Return the patterns to list by: they match every file of ``wanted``, and not many others."""
        unit = self._listed_by(wanted)
        if unit is None:
            return (self._filled({}),)
        return tuple(dict.fromkeys(self._filled(_values(period)) for period in wanted.periods(unit)))

    def read(self, path: str) -> Period | None:
        """Return what time a file is about; ``None`` when its path does not fit, or holds no date that exists.

        Args:
            path: The path of a file that one of :meth:`globs` matched, or of one in such a folder.

        Example:
            >>> Template("trips/%Y/*_%Y-%m-%d.csv").read("/data/trips/2024/green_2024-02-29.csv")
            Period(2024-02-29)
        """
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        values = {name: int(found[name]) for name in self._names}
        try:
            period = Period.of(_moment(values), self.unit)
        except ValueError:
            return None
        # A year written twice, or a day of the year beside a month, must tell the same.
        known = _values(period)
        return period if all(known.get(name, found[name]) == found[name] for name in self._names) else None

    def _listed_by(self, wanted: TimeRange) -> Unit | None:
        if wanted.start is None or wanted.end is None:
            return None
        days = (wanted.end - wanted.start).days
        if self._names & {"d", "j"} and days <= _MAX_DAYS:
            return "day"
        return "month" if days <= _MAX_MONTHS * 28 else None

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
    """Yield each field's name, and each text between fields with ``None``."""
    for token in _TOKEN.finditer(text):
        name = token["field"]
        if name is None or name == "%":
            yield None, token["literal"] or "%"
        elif name in _FIELDS:
            yield name, ""
        else:
            known = " ".join(f"%{field}" for field in _FIELDS)
            raise _unusable(text, f"holds %{name}", f"Use {known}")


def _below_root(text: str) -> str:
    """Return the end of a path that the absolute path of each of its files must have, too."""
    scheme = _SCHEME.match(text)
    if scheme is not None:
        return text[scheme.end() :]
    return re.sub(r"^(?:\.\./|~[^/]*/|/)+", "", os.path.normpath(text))


def _require_whole(text: str, names: set[str]) -> None:
    told = {_FIELDS[name][0] for name in names} | ({"month"} if "j" in names else set())
    for unit in UNITS[: max(UNITS.index(unit) for unit in told)]:
        if unit not in told:
            raise _unusable(text, f"tells no {unit}", f"Add %{_name_of(unit)}")


def _name_of(unit: Unit) -> str:
    return next(name for name, (told, _) in _FIELDS.items() if told == unit)


def _unusable(text: str, why: str, what_to_do: str) -> InputError:
    return InputError(
        f"'{text}' {why}, so that its files' dates cannot be read.",
        hint=f"{what_to_do}, or write %% for a percent sign.",
        path=text,
    )


def _moment(values: Mapping[str, int]) -> datetime:
    year = values["Y"] if "Y" in values else _of_two_digits(values["y"])
    clock = (values.get("H", 0), values.get("M", 0), values.get("S", 0))
    if "j" in values:
        day = datetime.strptime(f"{year:04d} {values['j']}", "%Y %j").replace(tzinfo=UTC)
        return day.replace(hour=clock[0], minute=clock[1], second=clock[2])
    return datetime(year, values.get("m", 1), values.get("d", 1), *clock, tzinfo=UTC)


def _of_two_digits(year: int) -> int:
    return year + (1900 if year >= _POSIX_PIVOT else 2000)


def _values(period: Period) -> Mapping[str, str]:
    """Return the fields of a period that are the same throughout."""
    units = UNITS[: UNITS.index(period.unit) + 1]
    start = period.start
    numbers = {
        "Y": start.year,
        "y": start.year % 100,
        "m": start.month,
        "d": start.day,
        "j": start.timetuple().tm_yday,
        "H": start.hour,
        "M": start.minute,
        "S": start.second,
    }
    return {name: f"{numbers[name]:0{width}d}" for name, (unit, width) in _FIELDS.items() if unit in units}
