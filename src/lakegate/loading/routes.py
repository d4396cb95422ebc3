"""Which paths to search for files, and which table each file goes to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from lakegate.errors import IdentifierError, InputError
from lakegate.model.identifiers import TableIdentifier
from lakegate.sources.files import from_uri, is_ignored
from lakegate.storage.objects import canonical

_GLOB = re.compile(r"[*?\[]")
_WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\]|\{[^{}]*\})")
_WILDCARDS: Mapping[str, str] = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def location(text: str) -> str:
    """Return the absolute path of a local file, or the canonical URI of a remote one.

    Args:
        text: A path, absolute or relative to the current folder, or a URI.

    Example:
        >>> location("file:///landing/a%20b.csv"), location("s3://landing/a.csv")
        ('/landing/a b.csv', 's3://landing/a.csv')
    """
    if text.lower().startswith("file:/"):
        return from_uri(text)
    if "://" in text:
        return canonical(text)
    return os.path.normpath(Path(text).expanduser().absolute())


def absolute(path: str) -> str:
    """Return a path or route that doesn't depend on the current folder; one with a scheme is returned unchanged.

    Example:
        >>> absolute("s3://landing/{table}/*.csv => nyc.{table}")
        's3://landing/{table}/*.csv => nyc.{table}'
    """
    return path if "://" in path else str(Path(path).expanduser().absolute())


def require_there(paths: Sequence[str], *, hint: str = "Check the path, or create the folder.") -> None:
    """Raise an error unless all local paths exist, so that a typo isn't polled forever."""
    missing = WatchedPaths(paths).missing()
    if missing:
        raise InputError(f"'{missing[0]}' doesn't exist.", hint=hint, path=missing[0])


def expression(pattern: str) -> re.Pattern[str]:
    """Compile a path pattern: ``*`` and ``?`` match anything but ``/``, ``**`` anything, ``{name}`` a named group.

    A group may list the values it allows: ``{name:one|two}``.

    Example:
        >>> expression("/landing/{table}/*.csv").fullmatch("/landing/trips/a.csv")["table"]
        'trips'
    """
    parts = enumerate(_WILDCARD.split(pattern))  # text and wildcards take turns
    regex = "".join(_wildcard_pattern(part) if at % 2 else re.escape(part) for at, part in parts)
    return re.compile(regex, re.DOTALL)  # a name may have line breaks


class _WatchedPath:
    """A watched path, taken literally or as a pattern."""

    def __init__(self, text: str) -> None:
        self.path = location(text)
        self.is_local = "://" not in self.path
        is_pattern = _GLOB.search(text) is not None and not os.path.lexists(self.path)
        wildcard = _GLOB.search(self.path) if is_pattern else None
        self.pattern = None if wildcard is None else expression(self.path)
        # The folder above the first wildcard; the whole path if it has none.
        self.fixed = self.path if wildcard is None else self.path[: wildcard.start()].rpartition("/")[0]

    def holds(self, file: str, *, is_recognised: bool) -> bool:
        """Return whether listing the path would find the file."""
        if file == self.path:
            return True
        below = file.removeprefix(self.fixed.rstrip("/") + "/")
        if below == file or any(is_ignored(part) for part in below.split("/")):
            return False
        if self.pattern is None:
            return is_recognised
        if self.pattern.fullmatch(file):
            return True
        folders = (file[: slash.start()] for slash in re.finditer("/", file))
        takes_folders = is_recognised and "**" not in self.path
        return takes_folders and any(self.pattern.fullmatch(folder) for folder in folders)


class WatchedPaths:
    """The watched paths: files, folders, patterns, and prefixes in an object store.

    Args:
        paths: Paths that :func:`lakegate.sources.discovery.list_files` accepts.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._places = tuple((path, _WatchedPath(path)) for path in paths)

    @property
    def are_local(self) -> bool:
        """Whether at least one path is on this machine."""
        return any(place.is_local for _, place in self._places)

    def contain(self, uri: str, *, is_recognised: bool = True) -> bool:
        """Return whether a scan of these paths would find the file.

        Args:
            is_recognised: Whether the file is read from a folder (:class:`lakegate.sources.discovery.FoundFile`).
        """
        file = location(uri)
        return any(place.holds(file, is_recognised=is_recognised) for _, place in self._places)

    def missing(self) -> tuple[str, ...]:
        """Return the local paths, and the patterns' folders, that don't exist."""
        return tuple(
            path
            for path, place in self._places
            if place.is_local and not (Path(place.path).exists() or Path(place.fixed or "/").is_dir())
        )

    def folders(self) -> tuple[str, ...]:
        """Return the existing local folders in which files may appear."""
        local = (place for _, place in self._places if place.is_local)
        places = (Path(place.path if Path(place.path).exists() else place.fixed or "/") for place in local)
        folders = (place if place.is_dir() else place.parent for place in places)
        return tuple(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))


def _wildcard_pattern(wildcard: str) -> str:
    if wildcard.startswith("{"):
        name, _, allowed = wildcard[1:-1].partition(":")
        meant = "|".join(map(re.escape, allowed.split("|"))) if allowed else "[^/]+?"
        return f"(?P<{name}>{meant})" if name.isidentifier() else re.escape(wildcard)
    if wildcard.startswith("["):
        negated = wildcard[1] == "!"
        return f"[{'^' if negated else ''}{re.escape(wildcard[1 + negated : -1]).replace(chr(92) + '-', '-')}]"
    return _WILDCARDS[wildcard]


_TARGET = "{namespace}.{table}"
_ARROW = "=>"
_NAME = re.compile(r"\{([^{}]*)\}")
_HINT = "Write it as 'landing/{namespace}/{table}/*.parquet', or 'landing/{table}-*.csv => nyc.{table}'."


class Routes:
    """Maps each file to a table: the first pattern that matches wins.

    A pattern is a path or URI. ``{namespace}``, ``{table}`` and other names in braces match part of a path segment,
    ``*`` and ``?`` match anything but ``/``, and ``**`` matches anything. The table is ``{namespace}.{table}``, or
    whatever follows ``=>``. ``{namespace:nyc|sales}`` matches only these two names, so that a stray file can't create
    another namespace.

    Args:
        patterns: For example ``landing/{namespace}/{table}/*.parquet`` or ``landing/{table}-*.csv => nyc.{table}``.

    Example:
        >>> routes = Routes(["/landing/{namespace}/{table}/*.parquet", "/landing/{table}-*.csv => nyc.{table}"])
        >>> routes.table("file:///landing/nyc/trips/a.parquet"), routes.table("file:///landing/zones-1.csv")
        ('nyc.trips', 'nyc.zones')
        >>> routes.table("file:///landing/readme.txt") is None
        True
        >>> Routes(["s3://lake/{namespace:nyc|sales}/{table}/**"]).table("s3://lake/others/trips/a.csv") is None
        True
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._routes = tuple(map(_parse, patterns))

    @classmethod
    def to(cls, table: str) -> Self:
        """Return routes that send all files to one table.

        Raises:
            IdentifierError: If ``table`` isn't a valid table name.

        Example:
            >>> Routes.to("nyc.trips").table("s3://landing/anything.csv")
            'nyc.trips'
        """
        routes = cls(())
        routes._routes = ((re.compile(".*", re.DOTALL), str(TableIdentifier.parse(table))),)
        return routes

    def table(self, uri: str) -> str | None:
        """Return the table that the file goes to; ``None`` if no pattern matches.

        Raises:
            IdentifierError: If the path has a name that a table or namespace can't have.
        """
        place = location(uri)
        matches = ((pattern.fullmatch(place), target) for pattern, target in self._routes)
        found, target = next(((found, target) for found, target in matches if found is not None), (None, ""))
        if found is None:
            return None
        name = _NAME.sub(lambda part: found[part[1]], target)
        try:
            return str(TableIdentifier.parse(name))
        except IdentifierError as error:
            raise IdentifierError(
                f"{place} would go to table '{name}', which isn't a valid name.", hint=error.hint, file=place
            ) from None


def _parse(text: str) -> tuple[re.Pattern[str], str]:
    """Return what a route matches, and its target."""
    pattern, arrow, target = (part.strip() for part in text.partition(_ARROW))
    target = target if arrow else _TARGET
    found = [name.partition(":") for name in _NAME.findall(pattern)]
    names = [name for name, _, _ in found]
    is_open = any(colon and not all(allowed.split("|")) for _, colon, allowed in found)
    if not pattern or is_open or not all(name.isidentifier() for name in names) or len(set(names)) != len(names):
        raise InputError(f"'{text}' isn't a valid route.", hint=_HINT)
    missing = [name for name in _NAME.findall(target) if name not in names]
    if missing:
        raise InputError(f"The route '{text}' doesn't define {{{missing[0]}}}.", hint=_HINT)
    try:
        TableIdentifier.parse(_NAME.sub("x", target))
    except IdentifierError:
        raise InputError(f"The route '{text}' doesn't name a table.", hint=_HINT) from None
    return expression(location(pattern)), target
