"""Tables of other systems as sources: which table, and which of its rows were taken, by watermark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from lakegate.errors import InputError
from lakegate.model.base import Value

SCHEME = "source://"
_EXAMPLE = "shop.public.orders: a source from the settings, then the table's name in that system"
_PART = re.compile(r'`(?P<ticks>[^`]+)`|"(?P<quotes>[^"]+)"|(?P<bare>[^.`"]+)')
_NAME = re.compile(r'(?:`[^`]+`|"[^"]+"|[^.`"]+)(?:\.(?:`[^`]+`|"[^"]+"|[^.`"]+))*')
# Spark quotes names in the SQL it sends to the database, but doesn't escape quotes inside a name.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"'`\[\];\\]""")
_LONGEST_SQL = 1000  # characters, as in a URI; a journal's index takes 2,700 at most
_VERSION = "rows:"
_EARLIEST_ZONE = timedelta(hours=14)
_LATEST_ZONE = timedelta(hours=12)


def require_safe_name(name: str, what: str) -> str:
    """Return a table's or column's name if it can be quoted safely in the other system."""
    if not name or _UNSAFE.search(name):
        raise InputError(
            f"{what} name {name!r} can't be used: it's empty, or has a quote, a bracket, a semicolon or a backslash.",
            hint="In the database, make a view of it with a plain name.",
        )
    return name


@dataclass(frozen=True, slots=True)
class SourceCatalog:
    """A catalog of Spark, besides the lake's, whose tables are sources.

    Attributes:
        name: Its name in the settings.
        options: Its options for Spark, including secrets; ``""`` is its class.
    """

    name: str
    options: Mapping[str, str] = field(repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of another system. :meth:`lakegate.Lake.source` returns one, for :meth:`lakegate.Lake.ingest`.

    Attributes:
        table: The parts of the table's name there.
        sql: A Spark SQL query over the source's tables, instead of a table.
        watermark: The column whose growing values ensure that each row is taken once.
        until: The highest value of that column to take.
    """

    name: str
    table: tuple[str, ...] = ()
    sql: str | None = None
    watermark: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("A source needs a name.", hint=f"Write it as {_EXAMPLE}.")
        if bool(self.table) == (self.sql is not None):
            raise InputError(f"Source '{self}' names no table.", hint=f"Write it as {_EXAMPLE}; or give a query (sql).")
        if self.watermark is not None and self.sql is not None:
            raise InputError(
                "A watermark needs a table, not a query: a changed query would be another source, whose rows are all "
                "new.",
                hint="In the database, make a view of the query, and ingest that.",
            )
        if self.until is not None and self.watermark is None:
            raise InputError("'until' needs a watermark.", hint="Pass the column that it limits as watermark.")
        for part in self.table:
            require_safe_name(part, "The table")
        if self.watermark is not None:
            require_safe_name(self.watermark, "The column")

    @classmethod
    def parse(
        cls, text: str, *, sql: str | None = None, watermark: str | None = None, until: str | None = None
    ) -> Source:
        """Parse a source's name. Put a part that contains a dot in backticks or double quotes.

        Args:
            text: ``shop.public.orders``; just ``shop`` with ``sql``; or a URI such as
                ``source://shop/public/orders?watermark=column&until=value``.

        Example:
            >>> Source.parse('shop.public."Order Lines"').table
            ('public', 'Order Lines')
            >>> Source.parse("source://shop/public/orders?watermark=id")
            Source(name='shop', table=('public', 'orders'), sql=None, watermark='id', until=None)
        """
        if text.startswith(SCHEME):
            path, _, query = text.removeprefix(SCHEME).partition("?")
            given = dict(parse_qsl(query, keep_blank_values=True))
            unknown = given.keys() - {"watermark", "until"}
            if unknown:
                raise InputError(f"'{text}' has an unknown part: '{min(unknown)}'.", hint="Known: watermark, until.")
            parts = [unquote(part) for part in path.split("/")]
            watermark, until = given.get("watermark", watermark), given.get("until", until)
        else:
            parts = [match[match.lastgroup or 0] for match in _PART.finditer(text)]
            if not _NAME.fullmatch(text):
                raise InputError(f"'{text}' isn't the name of a source's table.", hint=f"Write it as {_EXAMPLE}.")
        return cls(parts[0], tuple(parts[1:]), sql, watermark, until)

    @property
    def uri(self) -> str:
        """The URI that identifies the source in claims and commits, no matter which of its rows are taken."""
        if self.sql is not None:
            query = urlencode({"sql": self.sql})
            if len(query) > _LONGEST_SQL:
                query = f"sql-sha256={hashlib.sha256(self.sql.encode()).hexdigest()}"
            return f"{SCHEME}{quote(self.name)}/?{query}"
        return SCHEME + "/".join(quote(part, safe="") for part in (self.name, *self.table))

    def __str__(self) -> str:
        """Return its name as people write it."""
        return ".".join(f'"{part}"' if "." in part else part for part in (self.name, *self.table))


class WatermarkRanges(Value):
    """The rows that a run took from a source, as ranges of its watermark. They are the source's version.

    Bounds are text that :data:`_READ` parses. Each range excludes its first bound (``None``: from the beginning) and
    includes its second.

    Attributes:
        kind: The column's Spark type, without precision and scale.
    """

    column: str
    kind: str
    ranges: tuple[tuple[str | None, str], ...]

    @classmethod
    def parse(cls, version: str) -> WatermarkRanges | None:
        """Parse a source's version; ``None`` for the version of a file.

        Example:
            >>> taken = WatermarkRanges(column="id", kind="bigint", ranges=((None, "7"),))
            >>> taken.version, WatermarkRanges.parse(taken.version) == taken
            ('rows:["id","bigint",[[null,"7"]]]', True)
        """
        if not version.startswith(_VERSION):
            return None
        column, kind, ranges = json.loads(version.removeprefix(_VERSION))
        return cls(column=column, kind=kind, ranges=tuple((after, upto) for after, upto in ranges))

    @property
    def version(self) -> str:
        """The ranges as a source's version."""
        return _VERSION + json.dumps([self.column, self.kind, self.ranges], separators=(",", ":"))

    def overlaps(self, other: WatermarkRanges) -> bool:
        """Return whether both may contain the same row. For different columns or types, that's always possible."""
        if not self.is_like(other.column, other.kind):
            return True
        pairs = ((mine, theirs) for mine in self._read() for theirs in other._read())
        return any(
            (mine[0] is None or mine[0] < theirs[1]) and (theirs[0] is None or theirs[0] < mine[1])
            for mine, theirs in pairs
        )

    def is_like(self, column: str, kind: str) -> bool:
        """Return whether these are ranges of this column with this type."""
        return (self.column.lower(), self.kind) == (column.lower(), kind)

    def where(self, spark_type: str) -> str:
        """Return a Spark SQL predicate for the rows; ``spark_type`` is the column's type now."""
        column = f"`{self.column}`"

        def mark(text: str) -> str:
            zone = "Z" if self.kind == "timestamp" else ""
            # A bound that a user typed may exceed the column's integer type.
            return f"CAST('{text}{zone}' AS {'bigint' if self.kind == 'bigint' else spark_type})"

        parts = (
            f"{column} <= {mark(upto)}" + ("" if after is None else f" AND {column} > {mark(after)}")
            for after, upto in self.ranges
        )
        return " OR ".join(f"({part})" for part in parts)

    def __str__(self) -> str:
        """Return the ranges in words."""
        ranges = (f"up to {upto}" if after is None else f"after {after} up to {upto}" for after, upto in self.ranges)
        return f"{self.column} {', and '.join(ranges)}"

    def _read(self) -> list[tuple[Any, Any]]:
        read = _READ[self.kind]
        return [(None if after is None else read(after), read(upto)) for after, upto in self.ranges]


_READ: Mapping[str, Callable[[str], Any]] = {
    "bigint": int,
    "int": int,
    "smallint": int,
    "tinyint": int,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
}
"""Types that a watermark column may have, and how to parse their values as Spark prints them in UTC."""
_INTEGERS = frozenset({"bigint", "int", "smallint", "tinyint"})


def kind_of(spark_type: str, column: str) -> str:
    """Return the type as which values of a watermark column are compared.

    Raises:
        InputError: If values of this type have no single order in all systems.
    """
    kind = spark_type.partition("(")[0]
    if kind not in _READ:
        raise InputError(
            f"Column '{column}' is {spark_type}, which can't be a watermark.",
            hint="Use a column of growing times, dates or whole numbers, such as updated_at or id.",
            column=column,
        )
    return "bigint" if kind in _INTEGERS else kind


def allowed_range(column: str, kind: str, *, until: str | None, now: datetime) -> WatermarkRanges | None:
    """Return the rows that may be taken now, including those taken before; ``None`` if all may.

    Future times and days that aren't over are left out, because more rows may arrive for them.

    Args:
        until: The highest value to take, if there's a limit.

    Raises:
        InputError: If ``until`` isn't a value of this type.

    Example:
        >>> str(allowed_range("at", "date", until=None, now=datetime(2024, 5, 2, 12, tzinfo=UTC)))
        'at up to 2024-05-01'
    """
    limits = [] if until is None else [_parse_mark(until, kind, "'until'")]
    utc = now.astimezone(UTC).replace(tzinfo=None)
    if kind == "timestamp":
        limits.append(utc)
    elif kind == "timestamp_ntz":
        limits.append(utc + _EARLIEST_ZONE)
    elif kind == "date":
        limits.append((utc - _LATEST_ZONE).date() - timedelta(days=1))
    return WatermarkRanges(column=column, kind=kind, ranges=((None, str(min(limits))),)) if limits else None


def untaken_ranges(
    column: str, kind: str, highest: str | None, taken: Iterable[WatermarkRanges]
) -> WatermarkRanges | None:
    """Return the rows to take now: up to the highest value there is, except those already taken.

    Args:
        highest: The highest value among the rows of :func:`allowed_range`, as Spark prints it; ``None`` if there is
            none. The range ends there even if the limit is higher, because rows may still arrive above it.

    Example:
        >>> before = WatermarkRanges(column="id", kind="bigint", ranges=((None, "3"), ("5", "7")))
        >>> untaken_ranges("id", "bigint", "9", [before]).ranges
        (('3', '5'), ('7', '9'))
    """
    if highest is None:
        return None
    read = _READ[kind]
    end = _parse_mark(highest, kind, f"The highest value of column '{column}'")
    every = [(after, read(upto)) for one in taken for after, upto in one.ranges]
    later = sorted((read(after), upto) for after, upto in every if after is not None)
    missing: list[tuple[Any, Any]] = []
    # Everything up to here is taken.
    at = max((upto for after, upto in every if after is None), default=None)
    for after, upto in later:
        if at is None or after > at:
            missing.append((at, min(after, end)))
        at = upto if at is None else max(at, upto)
    missing.append((at, end))
    ranges = tuple(
        (None if after is None else str(after), str(upto)) for after, upto in missing if after is None or after < upto
    )
    return WatermarkRanges(column=column, kind=kind, ranges=ranges) if ranges else None


def _parse_mark(text: str, kind: str, what: str) -> Any:
    try:
        found: Any = _READ[kind](text)
        if kind == "timestamp" and found.tzinfo is not None:
            found = found.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, ArithmeticError):
        raise InputError(
            f"{what} is {text!r}, which isn't a comparable {kind}.",
            hint="Times and dates must be in the years 1 to 9999." if kind not in ("bigint", "decimal") else None,
        ) from None
    if kind == "timestamp_ntz" and found.tzinfo is not None:
        raise InputError(
            f"{what} is {text!r}, but the column's times have no time zone.",
            hint=f"Leave out the time zone: {found.replace(tzinfo=None).isoformat()}",
        )
    if kind == "decimal" and not found.is_finite():
        raise InputError(f"{what} is {text!r}, which isn't a comparable number.")
    return found


def overlapping(version: str, others: Sequence[str]) -> bool:
    """Return whether rows of a source's ``version`` may also be in one of ``others``; never for files.

    A version that is a whole table overlaps every range of its watermark.

    Example:
        >>> rows = WatermarkRanges(column="id", kind="bigint", ranges=((None, "7"),)).version
        >>> overlapping(rows, ["sha256:1"]), overlapping("sha256:1", [rows]), overlapping("sha256:1", ["sha256:2"])
        (True, True, False)
    """
    mine, found = WatermarkRanges.parse(version), [WatermarkRanges.parse(other) for other in others]
    if mine is None:
        return any(found)
    return any(theirs is None or mine.overlaps(theirs) for theirs in found)
