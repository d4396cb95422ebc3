"""Routes: which table a file goes to, by where it lies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lakegate.errors import IdentifierError, InputError
from lakegate.intake.places import expression, location
from lakegate.model.identifiers import TableIdentifier

_TARGET = "{namespace}.{table}"
_ARROW = "=>"
_NAME = re.compile(r"\{([^{}]*)\}")
_HINT = "Write it as 'landing/{namespace}/{table}/*.parquet', or 'landing/{table}-*.csv => nyc.{table}'."


@dataclass(frozen=True, slots=True)
class _Route:
    expression: re.Pattern[str]
    target: str


class Routes:
    """Which table each file goes to; made of patterns, of which the first that fits a file decides.

    A pattern is a path (relative to the current folder, or a URI) in which ``{namespace}``, ``{table}`` and other names
    in braces stand for a part of a name, ``*`` and ``?`` for anything but ``/``, and ``**`` for anything. The table is
    ``{namespace}.{table}``, or what is written behind ``=>``.

    Args:
        patterns: Such as ``landing/{namespace}/{table}/*.parquet`` or ``landing/{table}-*.csv => nyc.{table}``.

    Raises:
        InputError: When a pattern does not say which table is meant.

    Example:
        >>> routes = Routes(["/landing/{namespace}/{table}/*.parquet", "/landing/{table}-*.csv => nyc.{table}"])
        >>> routes.table("file:///landing/nyc/trips/a.parquet"), routes.table("file:///landing/zones-1.csv")
        ('nyc.trips', 'nyc.zones')
        >>> routes.table("file:///landing/readme.txt") is None
        True
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._routes = tuple(_parse(pattern) for pattern in patterns)
        self._fixed: str | None = None

    @classmethod
    def to(cls, table: str) -> Self:
        """Return the routes that lead all files to one table.

        Raises:
            IdentifierError: When ``table`` cannot name one.

        Example:
            >>> Routes.to("nyc.trips").table("s3://landing/anything.csv")
            'nyc.trips'
        """
        routes = cls(())
        routes._fixed = str(TableIdentifier.parse(table))
        return routes

    def table(self, uri: str) -> str | None:
        """Return the table that the file goes to; ``None`` when no pattern fits.

        Raises:
            IdentifierError: When the names that stand in the file's path cannot name a table.
        """
        if self._fixed is not None:
            return self._fixed
        place = location(uri)
        for route in self._routes:
            found = route.expression.fullmatch(place)
            if found is not None:
                return _named(route, found, place)
        return None


def _named(route: _Route, found: re.Match[str], place: str) -> str:
    name = _NAME.sub(lambda part: found[part[1]], route.target)
    try:
        return str(TableIdentifier.parse(name))
    except IdentifierError as error:
        raise IdentifierError(
            f"{place} would go to the table '{name}', which cannot be one.", hint=error.hint, file=place
        ) from None


def _parse(text: str) -> _Route:
    pattern, arrow, target = (part.strip() for part in text.partition(_ARROW))
    target = target if arrow else _TARGET
    names = _NAME.findall(pattern)
    if not pattern or not all(name.isidentifier() for name in names) or len(set(names)) != len(names):
        raise InputError(f"'{text}' is not a route.", hint=_HINT)
    missing = [name for name in _NAME.findall(target) if name not in names]
    if missing:
        raise InputError(f"The route '{text}' does not say what {{{missing[0]}}} is.", hint=_HINT)
    try:
        TableIdentifier.parse(_NAME.sub("x", target))
    except IdentifierError:
        raise InputError(f"The route '{text}' does not lead to a table.", hint=_HINT) from None
    return _Route(expression(location(pattern)), target)
