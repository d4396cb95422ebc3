"""Random columns: the types that files may hold, and values that are known to make trouble."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

from lakegate.model.identifiers import quote

Draw = Callable[[random.Random], Any]

_TEXTS = (
    *(
        "",
        " ",
        "a",
        "A",
        "a ",
        "b",
        "é",
        "e\u0301",
        "\U0001f600",
        "\uffff",
        "ß",
        "a\nb",
        "a'b",
        "${x}",
        "\\",
        "null",
        "NaN",
    ),
    *("sixteen characters" + end for end in ("", "!", "\uffff", "\U0010ffff", "z" * 50)),
    *("\U0010ffff" * 20, "\U0010ffff" * 20 + "a", "\uffff" * 17, "1", "10", "9", "2024-01-31"),
    *("ann@example.org", "ann@-example.org", "ann@x", "a@b.c.d.e.f.g.h.i.j.k", "9d3E0f6a-0000-4000-8000-0123456789aB"),
)
_FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0**24, -(2.0**24))


@dataclass(frozen=True)
class Kind:
    """A type of a column.

    Attributes:
        spark: Its name in Spark SQL.
        arrow: Its types in a source file, the plainest first.
        draw: Makes a value.
        groups: Whether it can be a key.
        ranges: Whether it has an order that ``in_range`` knows.
        listed: Whether ``accepted_values`` can be asked.
        partitions: Transforms that a table can be partitioned by, ``{}`` for the column.
        fields: Those of a struct.
    """

    spark: str
    arrow: tuple[pa.DataType, ...]
    draw: Draw
    groups: bool = True
    ranges: bool = True
    listed: bool = True
    partitions: tuple[str, ...] = ("{}", "bucket(3, {})")
    fields: Mapping[str, Kind] = field(default_factory=dict)


class FieldPath(str):
    """The path to a field of a struct, as checks and SQL take it; a column's name is a plain string."""

    __slots__ = ()


def sql_name(name: str) -> str:
    """Return a column, or the path to a field, as SQL."""
    return str(name) if isinstance(name, FieldPath) else quote(name)


def _integer(bits: int) -> Draw:
    limit = 2 ** (bits - 1)
    return lambda r: r.choice((0, 1, -1, limit - 1, -limit, limit - 2, r.randint(-9, 9), r.randint(-limit, limit - 1)))


def single(number: float) -> float:
    """Return ``number`` as a float of 32 bits holds it."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _float(bits: int) -> Draw:
    greatest = 3.4028234663852886e38 if bits == 32 else 1.7976931348623157e308
    smallest = 1.401298464324817e-45 if bits == 32 else 5e-324

    def draw(r: random.Random) -> float:
        number = r.choice((*_FLOATS, greatest, -greatest, smallest, -smallest, r.uniform(-5, 5), r.uniform(-1e9, 1e9)))
        return single(number) if bits == 32 else number

    return draw


def decimals(precision: int, scale: int) -> Kind:
    """Return a decimal type."""

    def draw(r: random.Random) -> Decimal:
        greatest = 10**precision - 1
        unscaled = r.choice((0, 1, -1, greatest, -greatest, r.randint(-greatest, greatest), r.randint(-9, 9)))
        with localcontext(prec=60):
            return Decimal(max(-greatest, min(greatest, unscaled))).scaleb(-scale)

    return Kind(f"decimal({precision},{scale})", (pa.decimal128(precision, scale),), draw)


def _date(r: random.Random) -> date:
    special = ((1, 1, 1), (9999, 12, 31), (1582, 10, 4), (1582, 10, 15), (1500, 2, 28), (1969, 12, 31), (1970, 1, 1))
    if r.random() < 0.5:
        return date(*r.choice(special))
    return date(2024, 1, 1) + timedelta(days=r.randint(-3, 3))


def _time(r: random.Random) -> datetime:
    micros = r.choice((0, 0, 1, 999_999, 500_000))
    day = _date(r)
    return datetime(day.year, day.month, day.day, r.choice((0, 12, 23)), r.choice((0, 59)), 0, micros)


def _instant(r: random.Random) -> datetime:
    return _time(r).replace(tzinfo=UTC)


def _text(r: random.Random) -> str:
    return (
        r.choice(_TEXTS) if r.random() < 0.9 else "".join(r.choices("ab\u00e9\U0001f600 %_'\"\\", k=r.randint(0, 30)))
    )


def structs(fields: Mapping[str, Kind]) -> Kind:
    """Return a type of structs."""

    def draw(r: random.Random) -> dict[str, Any]:
        return {name: None if r.random() < 0.25 else kind.draw(r) for name, kind in fields.items()}

    spark = ",".join(f"{name}:{kind.spark}" for name, kind in fields.items())
    arrow = pa.struct([(name, kind.arrow[0]) for name, kind in fields.items()])
    return Kind(f"struct<{spark}>", (arrow,), draw, ranges=False, listed=False, partitions=(), fields=fields)


_TIMES = ("{}", "days({})", "bucket(3, {})", "years({})")
KINDS: dict[str, Kind] = {
    "flag": Kind("boolean", (pa.bool_(),), lambda r: r.random() < 0.5, ranges=False, partitions=("{}",)),
    "tiny": Kind("int", (pa.int32(), pa.int8()), _integer(8)),
    "int": Kind("int", (pa.int32(),), _integer(32), partitions=("{}", "bucket(3, {})", "truncate(10, {})")),
    "long": Kind("bigint", (pa.int64(),), _integer(64), partitions=("{}", "bucket(3, {})", "truncate(10, {})")),
    "float": Kind("float", (pa.float32(),), _float(32), partitions=("{}",)),
    "double": Kind("double", (pa.float64(),), _float(64), partitions=("{}",)),
    "date": Kind("date", (pa.date32(),), _date, partitions=("{}", "months({})", "bucket(3, {})")),
    "at": Kind("timestamp_ntz", (pa.timestamp("us"),), _time, partitions=_TIMES),
    "utc": Kind(
        "timestamp", (pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="Asia/Tokyo")), _instant, partitions=_TIMES
    ),
    "text": Kind(
        "string", (pa.string(), pa.large_string()), _text, partitions=("{}", "truncate(2, {})", "bucket(3, {})")
    ),
    "raw": Kind("binary", (pa.binary(),), lambda r: r.randbytes(r.choice((0, 1, 2, 20))), ranges=False, listed=False),
    "list": Kind(
        "array<bigint>",
        (pa.list_(pa.int64()),),
        lambda r: r.choices((1, 2, None), k=r.randint(0, 2)),
        ranges=False,
        listed=False,
        partitions=(),
    ),
    "map": Kind(
        "map<string,bigint>",
        (pa.map_(pa.string(), pa.int64()),),
        lambda r: [("k", r.choice((1, None)))],
        groups=False,
        ranges=False,
        listed=False,
        partitions=(),
    ),
}
KINDS["struct"] = structs(
    {"a": KINDS["long"], "unknown": KINDS["text"], "f": KINDS["double"], "at": KINDS["at"], "tiny": KINDS["tiny"]}
)
KINDS["deep"] = structs(
    {"In": structs({"day": KINDS["date"], "f": KINDS["float"], "text": KINDS["text"]}), "fare": decimals(9, 2)}
)


def some_kind(r: random.Random) -> Kind:
    """Return a kind; decimals of every precision and scale among them."""
    if r.random() < 0.2:
        precision = r.choice((1, 9, 10, 18, 19, 38, r.randint(1, 38)))
        return decimals(precision, r.choice((0, precision, r.randint(0, precision))))
    return KINDS[r.choice(sorted(KINDS))]


def with_fields(columns: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return columns, and beside them the fields of all structs."""
    found: dict[str, Kind] = {}
    for name, kind in columns.items():
        found[name] = kind
        found |= with_fields({FieldPath(f"{sql_name(name)}.{quote(one)}"): of for one, of in kind.fields.items()})
    return found


def with_values(row: Mapping[str, Any], columns: Mapping[str, Kind]) -> dict[str, Any]:
    """Return a row's values, and beside them those of the fields of all structs, as :func:`with_fields` calls them."""
    found: dict[str, Any] = {}
    for name, kind in columns.items():
        found[name] = value = row[name]
        inner: dict[str, Any] = {
            FieldPath(f"{sql_name(name)}.{quote(one)}"): (value or {}).get(one) for one in kind.fields
        }
        kinds: dict[str, Kind] = dict(zip(inner, kind.fields.values(), strict=True))
        found |= with_values(inner, kinds)
    return found


def key(value: Any) -> Any:
    """Return what two values have in common exactly when they are equal: NaN equals NaN, and -0.0 equals 0.0."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value + 0.0)
    if isinstance(value, dict):
        return tuple((name, key(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(key(item) for item in value)
    return value


def written(value: Any) -> Any:
    """Return what two values have in common exactly when they were written alike: -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple((name, written(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(written(item) for item in value)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
