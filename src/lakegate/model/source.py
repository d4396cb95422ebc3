"""Tables of other systems as sources: which one, and which of its rows were taken, by their marks."""

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
_FORM = "shop.public.orders: a source of the settings, then the table as that system knows it"
_PART = re.compile(r'`(?P<ticks>[^`]+)`|"(?P<quotes>[^"]+)"|(?P<bare>[^.`"]+)')
_NAME = re.compile(r'(?:`[^`]+`|"[^"]+"|[^.`"]+)(?:\.(?:`[^`]+`|"[^"]+"|[^.`"]+))*')
# Spark writes names into the database's SQL in its quotes, but lets a quote in a name end them.
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"'`\[\];\\]""")
_LONGEST_SQL = 1000  # characters, as in a URI; a journal's index takes 2,700 at most
_VERSION = "rows:"
_EARLIEST_ZONE = timedelta(hours=14)
_LATEST_ZONE = timedelta(hours=12)


def require_safe_name(name: str, what: str) -> str:
    """Return a name of another system's table or column that can be quoted there."""
    if not name or _UNSAFE.search(name):
        raise InputError(
            f"{what} {name!r} can't be named: it's empty, or holds a quote, a bracket, a semicolon or a backslash.",
            hint="Make a view of it with a plain name in the database.",
        )
    return name


@dataclass(frozen=True, slots=True)
class SourceCatalog:
    """A catalog of Spark, besides the lake's, whose tables are sources.

    Attributes:
        name: What the settings call it.
        options: Spark's options of it, ``""`` for its class; secrets among them.
    """

    name: str
    options: Mapping[str, str] = field(repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of another system. :meth:`lakegate.Lake.source` returns one, for :meth:`lakegate.Lake.ingest`.

    Attributes:
        table: The table's name there, in parts.
        sql: A query in Spark SQL over the source's tables, instead of one.
        watermark: The column by which each row is taken once.
        until: Highest mark to take.
    """

    name: str
    table: tuple[str, ...] = ()
    sql: str | None = None
    watermark: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("A source needs a name.", hint=f"Write it as {_FORM}.")
        if bool(self.table) == (self.sql is not None):
            raise InputError(f"Source '{self}' names no table.", hint=f"Write it as {_FORM}; or give a query (sql).")
        if self.watermark is not None and self.sql is not None:
            raise InputError(
                "A watermark goes with a table, not with a query: another query would be another source, all of whose "
                "rows are new.",
                hint="Make a view of the query in the database, and take that.",
            )
        if self.until is not None and self.watermark is None:
            raise InputError("'until' goes with a watermark.", hint="Name the column whose values it's about.")
        for part in self.table:
            require_safe_name(part, "The table")
        if self.watermark is not None:
            require_safe_name(self.watermark, "The column")

    @classmethod
    def parse(
        cls, text: str, *, sql: str | None = None, watermark: str | None = None, until: str | None = None
    ) -> Source:
        """Return the source that is named so; a part of it that holds a point is in backticks or double quotes.

        Args:
            text: ``shop.public.orders``, only ``shop`` with ``sql``, or a URI: ``source://shop/public/orders``, with
                ``?watermark=column&until=value``.

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
                raise InputError(f"'{text}' isn't the name of a source's table.", hint=f"Write it as {_FORM}.")
        return cls(parts[0], tuple(parts[1:]), sql, watermark, until)

    @property
    def uri(self) -> str:
        """What claims and commits know it by, whatever is taken of it."""
        if self.sql is not None:
            said = urlencode({"sql": self.sql})
            if len(said) > _LONGEST_SQL:
                said = f"sql-sha256={hashlib.sha256(self.sql.encode()).hexdigest()}"
            return f"{SCHEME}{quote(self.name)}/?{said}"
        return SCHEME + "/".join(quote(part, safe="") for part in (self.name, *self.table))

    def __str__(self) -> str:
        """Return its name as people write it."""
        return ".".join(f'"{part}"' if "." in part else part for part in (self.name, *self.table))


class MarkRanges(Value):
    """Rows of a table by their marks: those that a run took. It's the version of such a source.

    Marks are text, as :data:`_READ` reads it. Each range is half open: after its first mark (``None``: from the
    beginning), up to its second one.

    Attributes:
        kind: Spark's type of the column, without digits and scale.
    """

    column: str
    kind: str
    ranges: tuple[tuple[str | None, str], ...]

    @classmethod
    def parse(cls, version: str) -> MarkRanges | None:
        """Return what a source's version says; ``None`` for the version of a file.

        Example:
            >>> taken = MarkRanges(column="id", kind="bigint", ranges=((None, "7"),))
            >>> taken.version, MarkRanges.parse(taken.version) == taken
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

    def overlaps(self, other: MarkRanges) -> bool:
        """Return whether a row may be in both; of other columns, or marks of another kind, any may."""
        if not self.is_like(other.column, other.kind):
            return True
        pairs = ((mine, theirs) for mine in self._read() for theirs in other._read())
        return any(
            (mine[0] is None or mine[0] < theirs[1]) and (theirs[0] is None or theirs[0] < mine[1])
            for mine, theirs in pairs
        )

    def is_like(self, column: str, kind: str) -> bool:
        """Return whether these are marks of that column, of that kind."""
        return (self.column.lower(), self.kind) == (column.lower(), kind)

    def where(self, spark_type: str) -> str:
        """Return the rows as a predicate in Spark SQL, for a column of that type."""
        column = f"`{self.column}`"

        def mark(text: str) -> str:
            zone = "Z" if self.kind == "timestamp" else ""
            # A mark that people name may be beyond a smaller whole number.
            return f"CAST('{text}{zone}' AS {'bigint' if self.kind == 'bigint' else spark_type})"

        parts = (
            f"{column} <= {mark(upto)}" + ("" if after is None else f" AND {column} > {mark(after)}")
            for after, upto in self.ranges
        )
        return " OR ".join(f"({part})" for part in parts)

    def __str__(self) -> str:
        """Return the ranges as people say it."""
        said = (f"up to {upto}" if after is None else f"after {after} up to {upto}" for after, upto in self.ranges)
        return f"{self.column} {', and '.join(said)}"

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
"""Types of columns that can be a watermark, and what reads a mark as Spark writes it in UTC."""
_INTEGERS = frozenset({"bigint", "int", "smallint", "tinyint"})


def kind_of(spark_type: str, column: str) -> str:
    """Return what marks of a column of that type are compared as.

    Raises:
        InputError: When it's a type whose values don't grow in one order everywhere.
    """
    kind = spark_type.partition("(")[0]
    if kind not in _READ:
        raise InputError(
            f"Column '{column}' is {spark_type}, which can't be a watermark.",
            hint="Name a column of times, dates or whole numbers that grow, such as updated_at or id.",
            column=column,
        )
    return "bigint" if kind in _INTEGERS else kind


def highest_to_take(column: str, kind: str, *, until: str | None, now: datetime) -> MarkRanges | None:
    """Return the rows that may be taken now, whatever was taken before; ``None`` if all may.

    No time that is yet to come is taken, and no day that isn't over: more rows of it may come.

    Args:
        until: Highest mark to take, if there is a limit.

    Raises:
        InputError: When ``until`` isn't a mark of that kind.

    Example:
        >>> str(highest_to_take("at", "date", until=None, now=datetime(2024, 5, 2, 12, tzinfo=UTC)))
        'at up to 2024-05-01'
    """
    limits = [] if until is None else [_mark(until, kind, "'until'")]
    utc = now.astimezone(UTC).replace(tzinfo=None)
    if kind == "timestamp":
        limits.append(utc)
    elif kind == "timestamp_ntz":
        limits.append(utc + _EARLIEST_ZONE)
    elif kind == "date":
        limits.append((utc - _LATEST_ZONE).date() - timedelta(days=1))
    return MarkRanges(column=column, kind=kind, ranges=((None, str(min(limits))),)) if limits else None


def to_take(column: str, kind: str, highest: str | None, taken: Iterable[MarkRanges]) -> MarkRanges | None:
    """Return the rows to take now: up to the highest mark there is, without those that were taken.

    Args:
        highest: The highest mark among the rows of :func:`highest_to_take`, as Spark writes it; ``None`` if there is no
            such row. What is above it is left, though the limit be higher: rows may come there.

    Example:
        >>> before = MarkRanges(column="id", kind="bigint", ranges=((None, "3"), ("5", "7")))
        >>> to_take("id", "bigint", "9", [before]).ranges
        (('3', '5'), ('7', '9'))
    """
    if highest is None:
        return None
    read = _READ[kind]
    end = _mark(highest, kind, f"The highest value of column '{column}'")
    every = [(after, read(upto)) for one in taken for after, upto in one.ranges]
    later = sorted((read(after), upto) for after, upto in every if after is not None)
    missing: list[tuple[Any, Any]] = []
    # Up to here, all is taken.
    at = max((upto for after, upto in every if after is None), default=None)
    for after, upto in later:
        if at is None or after > at:
            missing.append((at, min(after, end)))
        at = upto if at is None else max(at, upto)
    missing.append((at, end))
    ranges = tuple(
        (None if after is None else str(after), str(upto)) for after, upto in missing if after is None or after < upto
    )
    return MarkRanges(column=column, kind=kind, ranges=ranges) if ranges else None


def _mark(text: str, kind: str, what: str) -> Any:
    try:
        found: Any = _READ[kind](text)
        if kind == "timestamp" and found.tzinfo is not None:
            found = found.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, ArithmeticError):
        raise InputError(
            f"{what} is {text!r}, which isn't a {kind} that can be compared.",
            hint="Times and dates must be of the years 1 to 9999." if kind not in ("bigint", "decimal") else None,
        ) from None
    if kind == "timestamp_ntz" and found.tzinfo is not None:
        raise InputError(
            f"{what} is {text!r}, but the column's times have no zone.",
            hint=f"Write it as the column does, without one: {found.replace(tzinfo=None).isoformat()}",
        )
    if kind == "decimal" and not found.is_finite():
        raise InputError(f"{what} is {text!r}, which isn't a number that can be compared.")
    return found


def overlapping(version: str, others: Sequence[str]) -> bool:
    """Return whether a source's rows of ``version`` may be among those of ``others``; never for files.

    A table that is taken as a whole holds the rows that are taken by their marks.

    Example:
        >>> rows = MarkRanges(column="id", kind="bigint", ranges=((None, "7"),)).version
        >>> overlapping(rows, ["sha256:1"]), overlapping("sha256:1", [rows]), overlapping("sha256:1", ["sha256:2"])
        (True, True, False)
    """
    mine, found = MarkRanges.parse(version), [MarkRanges.parse(other) for other in others]
    if mine is None:
        return any(found)
    return any(theirs is None or mine.overlaps(theirs) for theirs in found)
