"""Scans: rows counted, rows fetched as examples, and the keys of a batch looked up in other rows.

Spark holds what Python doesn't: text that isn't UTF-8, and days before the year 1 or after 9999. One such value must
hide neither its row nor the verdict that the row is an example of.

Of the rows that keys are looked up in (``unique(…, scope='table')``, ``relationships``), Spark reads the key columns
only, and as few rows as their metrics allow: a filter by the batch's smallest and greatest key lets Iceberg skip
partitions, files and row groups. The rest goes through a semi join with the batch's distinct keys, the side that Spark
broadcasts while it is small. All of it is names and SQL text, which Spark Connect and classic sessions both take.

An aggregate for each predicate makes methods that Java doesn't compile but interprets: thirteen of them took twice the
time that they take here. So predicates are answered in a projection of their own, some to a number, a bit for each, and
the aggregation counts bits. Where there are more than a plan can hold well, several passes share them.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

from lakegate.errors import CheckError, EngineError
from lakegate.model.identifiers import quote
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import IntegerKey, Rows, ScanResult
from lakegate.spark.sessions import is_connect

LONGEST_TEXT = 2_000
"""Characters of a value that are shown; cells of megabytes would be kept in the journal, and sent in alerts."""

_PATH_PART = re.compile(r"(`)((?:[^`]|``)*)`|([^.`]+)")
_AS_TEXT = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
_NESTED = frozenset({"array", "map", "struct"})
_EXACT_AS_TEXT = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz", "boolean")
_LONGEST_BOUND = 1_000  # characters; a longer text makes a longer plan and skips no more
_DAYS_AND_TIMES = ("date", "timestamp", "timestamp_ntz")
_GREGORIAN = "1583"

KNOWN = "found OR count > 1"
"""The key occurs in the other rows, or more than once in the batch."""
FOUND = "found"
"""The key occurs in the other rows."""
ORPHAN = "NOT found"
"""The other rows lack the key."""
_BITS = 16
"""Predicates answered to one number: so many make a method that Java still compiles."""
_PASS = 96
"""Predicates answered in one pass.

Spark compiles no plan with more than a hundred fields to one function (``spark.sql.codegen.maxFields``): 1,000
predicates on as many columns took 11.4 s of processor time 256 at a time, and 9.2 s so; cold, 26 s and 14 s.
"""
_AGGREGATES = 50
"""Aggregates computed in one pass: 200 at once took 2.4 times as long as four times 50."""
_DISTINCT = 4
"""Distinct values counted in one pass, for each of which Spark repeats all rows: 24 at once took 2.2 times as long."""

_SAMPLE = 4_000
_OFTEN = 4
"""How often a value must occur in the sample, on average, for values to be looked up."""
_MOST_TEXTS = 1_000
_LONGEST_LOOKED_UP = 100


def collected(frame: Any) -> list[dict[str, Any]]:
    """Return all rows of a small DataFrame, column name to value.

    Where Python can't hold a value, the columns that may hold such are fetched as text; bytes that are no UTF-8 are
    shown as escapes.
    """
    from pyspark.errors import PySparkException

    try:
        return [row.asDict(recursive=True) for row in frame.collect()]
    except PySparkException:
        raise
    except (ValueError, ArithmeticError, TypeError):  # UnicodeDecodeError and OverflowError among them
        kinds = [field.dataType.typeName() for field in frame.schema.fields]
        names = list(frame.columns)
        shown = frame.selectExpr(*(_as_shown(name, kind) for name, kind in zip(names, kinds, strict=True)))
        return [
            {name: _value(value, kind) for name, kind, value in zip(names, kinds, row, strict=True)}
            for row in shown.collect()
        ]


def examples(frame: Any) -> tuple[dict[str, Any], ...]:
    """Return all rows of a small DataFrame in JSON's types. Raises what :func:`collected` does."""
    return tuple({name: _json_safe(value) for name, value in row.items()} for row in collected(frame))


def nested_fields(kind: Any) -> list[tuple[str, ...]]:
    """Return the paths of all fields of structs in a Spark type, also of those in arrays and maps."""
    inner = (getattr(kind, name, None) for name in ("elementType", "keyType", "valueType"))
    paths = [path for one in inner if one is not None for path in nested_fields(one)]
    for field in getattr(kind, "fields", ()):
        paths += [(field.name,), *((field.name, *below) for below in nested_fields(field.dataType))]
    return paths


def _as_shown(name: str, kind: str) -> str:
    column = quote(name)
    if kind == "string":
        return f"CAST({column} AS BINARY) AS {column}"
    if kind in _AS_TEXT:
        return f"CAST({column} AS STRING) AS {column}"
    if kind in _NESTED:
        return f"to_json(named_struct('value', {column}), map('ignoreNullFields', 'false')) AS {column}"
    return column


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "string":
        return bytes(value).decode(errors="backslashreplace")
    if kind in _AS_TEXT:
        return value.replace(" ", "T")  # as ISO 8601 has it, and other examples have
    return json.loads(value)["value"] if kind in _NESTED else value


def _json_safe(value: Any) -> Any:  # noqa: PLR0911 - a line for each type
    """Return a collected value in JSON's types: times in ISO 8601, decimals as text, bytes in hexadecimal."""
    if isinstance(value, Mapping):
        return {str(key): _json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return _cut(value[: LONGEST_TEXT // 2 + 1].hex(), 2 * len(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, str):
        return _cut(value, len(value))
    return str(value) if isinstance(value, Decimal) else value


def _cut(text: str, length: int) -> str:
    return text if length <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({length:,} characters)"


def difference(frame: Any, others: Any) -> Any:
    """Return a DataFrame of the rows of ``frame`` without those of ``others``, each as often as it is there.

    Rows are compared by the columns of both; what one of them lacks is NULL there. Nested values are compared as JSON,
    because Spark compares no maps, and columns that changed their type as the wider one, or else as text.
    """
    mine, theirs = ({field.name.lower(): field for field in one.schema.fields} for one in (frame, others))
    own: list[str] = []
    other: list[str] = []
    for key in dict.fromkeys([*mine, *theirs]):
        left, right = mine.get(key), theirs.get(key)
        fields = [one for one in (left, right) if one is not None]
        name, kinds = fields[0].name, [one.dataType for one in fields]
        as_text = kinds[0] != kinds[-1] and not _widens(*kinds)
        for field, columns in ((left, own), (right, other)):
            column = _null(kinds[0]) if field is None else _comparable(field.name, field.dataType, as_text=as_text)
            columns.append(f"{column} AS {quote(name)}")
    return frame.selectExpr(*own).exceptAll(others.selectExpr(*other))


def by_key(before: Any, after: Any, key: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return DataFrames of the rows that were added, those that were removed, and those that changed, by their key.

    A row that changed is a struct ``before`` and one ``after``. A key with a NULL equals none. Of rows that differ and
    share their key, as many on each side are taken for changed as the other side has.
    """
    names = free_names("__key", len(key) + 1, taken=(*before.columns, *after.columns))
    keys = [f"{quote(column)} AS {name}" for column, name in zip(key, names, strict=False)]
    same = ", ".join(map(quote, key))
    number = f"row_number() OVER (PARTITION BY {same} ORDER BY to_json(struct(*))) AS {names[-1]}"
    new = difference(after, before).selectExpr(*keys, number, "struct(*) AS after")
    old = difference(before, after).selectExpr(*keys, number, "struct(*) AS before")
    return (
        new.join(old, names, "left_anti").select("after.*"),
        old.join(new, names, "left_anti").select("before.*"),
        old.join(new, names).select("before", "after"),
    )


def _widens(left: Any, right: Any) -> bool:
    """Return whether Spark compares values of two types as those of the wider one, exactly."""
    names = {left.typeName(), right.typeName()}
    if names == {"decimal"}:
        return bool(left.scale == right.scale)
    return names in ({"integer", "long"}, {"float", "double"}, {"date", "timestamp_ntz"})


def _null(kind: Any) -> str:
    return f"CAST(NULL AS {'STRING' if kind.typeName() in _NESTED else kind.simpleString()})"


def _comparable(name: str, kind: Any, *, as_text: bool) -> str:
    if kind.typeName() in _NESTED:
        return f"to_json({quote(name)}, map('ignoreNullFields', 'false'))"
    return f"CAST({quote(name)} AS STRING)" if as_text else quote(name)


class KeyLookup:
    """The keys of ``batch``, grouped, and which of them occur in ``others``. A NULL in a key matches nothing.

    Args:
        other_columns: Their columns to compare with, in the order of ``columns``.
    """

    def __init__(self, batch: Any, columns: Sequence[str], others: Sequence[Any], other_columns: Sequence[str]) -> None:
        # Examples hold these and all columns of the batch.
        self._names = free_names("__lakegate_key", len(columns), taken=batch.columns)
        self._present = " AND ".join(f"{name} IS NOT NULL" for name in self._names)
        self._batch = batch
        self._named = self._selected(columns, batch.columns)
        self._others = [frame.selectExpr(*self._selected(other_columns, frame.columns)) for frame in others]

    def count(self, *conditions: str) -> ScanResult:
        """Count the rows whose key meets each of ``conditions``: :data:`KNOWN`, :data:`FOUND` or :data:`ORPHAN`."""
        cases = (f"CASE WHEN {self._present} AND ({condition}) THEN count END" for condition in conditions)
        sums = (f"coalesce(sum({case}), 0)" for case in ("count", *cases))
        total, *failing = self._judged.selectExpr(*sums).collect()[0]
        return ScanResult(total=total, failing=tuple(failing))

    def rows(self, condition: str, limit: int) -> Any:
        """Return a DataFrame of up to ``limit`` of the rows whose key meets ``condition``."""
        failing = self._judged.where(f"{self._present} AND ({condition})").select(*self._names)
        rows = self._batch.selectExpr("*", "_file", *self._named)
        return rows.join(failing, self._names, "left_semi").drop(*self._names).limit(limit)

    def keys(self, condition: str) -> tuple[Any, Sequence[str]]:
        """Return a DataFrame of the keys that meet ``condition``, each once, and the names of its columns."""
        return self._judged.where(f"{self._present} AND ({condition})").select(*self._names), self._names

    @cached_property
    def _keys(self) -> Any:
        return self._batch.selectExpr(*self._named)

    @cached_property
    def _judged(self) -> Any:
        """Each key once, with its number of rows of the batch (``count``) and whether others have it (``found``)."""
        grouped = self._keys.groupBy(*self._names).count()
        bounds = self._bounds() if self._others else None
        if bounds is None:
            return grouped.selectExpr("*", "FALSE AS found")
        wanted = grouped.where(self._present).select(*self._names)
        parts = [frame.where(bounds).join(wanted, self._names, "left_semi") for frame in self._others]
        met = reduce(lambda left, right: left.union(right), parts).distinct().selectExpr("*", "TRUE AS met")
        return grouped.join(met, self._names, "left").selectExpr(*self._names, "count", "met IS NOT NULL AS found")

    def _bounds(self) -> str | None:
        """Return the predicate of rows that may have one of the batch's keys; ``None`` when it has no keys."""
        types = [field.dataType.simpleString() for field in self._keys.schema.fields]
        bounded = {name: kind for name, kind in zip(self._names, types, strict=True) if _comparable_as_text(kind)}
        # As bytes: a string may not be UTF-8, which Python can't take.
        ends = (f"CAST(CAST({end}({name}) AS STRING) AS BINARY)" for name in bounded for end in ("min", "max"))
        keys, *found = self._keys.where(self._present).selectExpr("count(1)", *ends).collect()[0]
        if not keys:
            return None
        return " AND ".join(self._ranges(bounded, [bytes(end) for end in found])) or "TRUE"

    def _ranges(self, bounded: dict[str, str], ends: Sequence[bytes]) -> Iterator[str]:
        lows_and_highs = iter(ends)
        for name, kind in bounded.items():
            low, high = _text(next(lows_and_highs)), _text(next(lows_and_highs))
            # ORC's statistics of days before the Gregorian calendar (October 15, 1582) are off by days: as bounds they
            # would skip rows that are there.
            if low is None or high is None or (kind in _DAYS_AND_TIMES and low < _GREGORIAN):
                continue
            if max(len(low), len(high)) <= _LONGEST_BOUND:
                between = f"{name} BETWEEN CAST({sql_string(low)} AS {kind}) AND CAST({sql_string(high)} AS {kind})"
                # Where a file's strings aren't UTF-8, Iceberg makes other strings of them, and so bounds that leave out
                # rows that are there. But ASCII stays as it is, and what becomes another text begins, there and here,
                # beyond all ASCII: those bounds come before and after ASCII as the strings themselves do.
                is_kept = kind != "string" or (low.isascii() and high.isascii())
                yield between if is_kept else unpushed(between)

    def _selected(self, columns: Sequence[str], of: Sequence[str]) -> list[str]:
        return [f"{path(column, of)} AS {name}" for column, name in zip(columns, self._names, strict=True)]


def free_names(stem: str, count: int, *, taken: Collection[str]) -> list[str]:
    """Return ``count`` names that begin with ``stem`` and that no column has; Spark compares names without case.

    Example:
        >>> free_names("key", 2, taken=["Key_0", "id"])
        ['key_1', 'key_2']
    """
    known = {name.lower() for name in taken}
    numbered = (f"{stem}_{number}" for number in itertools.count())
    return list(itertools.islice((name for name in numbered if name not in known), count))


def require_columns(frame: Any, rows: Rows, columns: Sequence[str]) -> Any:
    """Return ``frame``, which reads ``rows``, if it has all of ``columns``."""
    known = {name.lower() for name in frame.columns}
    missing = next((column for column in columns if root(column, frame.columns).lower() not in known), None)
    if missing is None:
        return frame
    raise CheckError(
        f"{rows.table} on {rows.ref} has no column '{missing}', which a check compares with.",
        hint=f"Its columns: {', '.join(frame.columns)}.",
        table=str(rows.table),
        column=missing,
    )


def path(column: str, names: Collection[str]) -> str:
    """Return a column quoted for SQL; where no column of ``names`` has that name, the path to a field of a struct.

    Example:
        >>> path("a.b", ["A.B"]), path("a.b", ["a"]), path("a.`b.c`", ["a"])
        ('`a.b`', '`a`.`b`', '`a`.`b.c`')
    """
    if column.lower() in {name.lower() for name in names}:
        return quote(column)
    parts = [part.replace("``", "`") if ticks else plain for ticks, part, plain in _PATH_PART.findall(column)]
    return ".".join(map(quote, parts))


def root(column: str, names: Collection[str]) -> str:
    """Return the column of ``names`` that a path leads through: itself, or the struct."""
    if column.lower() in {name.lower() for name in names}:
        return column
    ticks, part, plain = next(iter(_PATH_PART.findall(column)), ("", "", column))
    return part.replace("``", "`") if ticks else plain


def matching(frame: Any, predicate: Any) -> Any:
    """Return the rows of ``frame`` for which ``predicate``, SQL or a ``Column``, is true.

    Spark hands filters on to Iceberg, whose bounds and partitions leave out NaN, and order -0.0 before 0.0: files would
    be skipped that have such rows. A filter on floats is made one that Iceberg doesn't take.
    """
    floats = [name for name, kind in frame.dtypes if "float" in kind or "double" in kind]
    text = str(predicate).lower()
    if any(name.lower().partition("`")[0] in text for name in floats):
        predicate = unpushed(predicate) if isinstance(predicate, str) else predicate.cast("string") == "true"
    return frame.where(predicate)


def unfiltered(frame: Any) -> Any:
    """Return ``frame`` such that no filter on floats in a query over it reaches Iceberg: see :func:`matching`."""

    def kept(name: str, kind: str) -> str:
        column = quote(name)
        if kind in {"float", "double"}:
            return f"nanvl({column}, {column}) AS {column}"
        if kind.startswith("struct<") and ("float" in kind or "double" in kind):
            return f"CASE WHEN rand() >= 0 THEN {column} END AS {column}"
        return column

    return frame.selectExpr(*(kept(name, kind) for name, kind in frame.dtypes))


def unpushed(predicate: str) -> str:
    """Return a predicate as one that Spark evaluates for each row, and doesn't hand on."""
    return f"CAST(({predicate}) AS STRING) = 'true'"  # a number's cast would be unwrapped again


def _comparable_as_text(kind: str) -> bool:
    # Floats are left out: Iceberg takes no NaN in a filter.
    return kind == "string" or kind.partition("(")[0] in _EXACT_AS_TEXT


def _text(given: bytes) -> str | None:
    try:
        return given.decode()
    except UnicodeDecodeError:
        return None


def count(
    frame: Any,
    predicates: Sequence[str],
    key: IntegerKey | None = None,
    others: Sequence[Any] = (),
    only: Mapping[int, str] | None = None,
) -> ScanResult:
    """Count the rows of ``frame`` that meet each predicate, and try to prove ``key`` unique, in ``others`` as well.

    Rows that meet a predicate of ``only``, by index, are read by themselves: for ``zone NOT IN (…)``, Iceberg skips
    each row group whose dictionary holds no other value.
    """
    if key is not None and key.is_hash:
        return _by_hash(frame, key)
    only = only or {}
    apart = [(frame.where(sql), (f"count_if({predicates[index]})",)) for index, sql in only.items()]
    parts = _parts([one for index, one in enumerate(predicates) if index not in only], _PASS) or [()]
    first, *found = _collected([_pass(frame, parts[0], key, others), *apart])
    passes = [_counted(first, key, others)]
    passes += [_counted(_collected([_pass(frame, part)])[0]) for part in parts[1:]]
    _require_same([one.total for one in passes])
    rest = itertools.chain.from_iterable(one.failing for one in passes)
    known = dict(zip(only, (number for (number,) in found), strict=True))
    failing = tuple(known[index] if index in known else next(rest) for index in range(len(predicates)))
    return ScanResult(total=passes[0].total, failing=failing, is_unique=passes[0].is_unique)


def aggregate(frame: Any, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
    """Return the number of rows of ``frame`` and the values of aggregates, in as few passes as pay."""
    distinct = [one for one in expressions if "DISTINCT" in one]
    plain = [one for one in expressions if "DISTINCT" not in one]
    known: dict[str, Any] = {}
    totals: list[int] = []
    for part in [*_parts(plain, _AGGREGATES), *_parts(distinct, _DISTINCT)] or [()]:
        named = (f"{expression} AS a{index}" for index, expression in enumerate(part))
        total, *values = frame.selectExpr("count(1)", *named).collect()[0]
        totals.append(total)
        known |= zip(part, values, strict=True)
    _require_same(totals)
    return totals[0], tuple(known[one] for one in expressions)


def passing_texts(frame: Any, asked: Sequence[tuple[str, str]]) -> list[frozenset[str]]:
    """Return, for each column of text and a predicate about it, values of a sample for which the predicate is false.

    None if values hardly repeat. Only plain ASCII, which is the same text in Python and in Spark, and not long.
    """
    wanted = (
        sql
        for index, (column, predicate) in enumerate(asked)
        for sql in (f"CAST({column} AS BINARY) AS v{index}", f"{predicate} AS p{index}")
    )
    rows = [tuple(row) for row in frame.selectExpr(*wanted).limit(_SAMPLE).collect()]
    found = [{bytes(row[at]) for row in rows if row[at + 1] is False} for at in range(0, 2 * len(asked), 2)]
    few = min(_MOST_TEXTS, len(rows) // _OFTEN)
    return [frozenset(_plain(values)) if len(values) <= few else frozenset() for values in found]


def _plain(values: Iterable[bytes]) -> Iterator[str]:
    texts = (_text(value) for value in values if len(value) <= _LONGEST_LOOKED_UP)
    return (text for text in texts if text is not None and text.isascii() and text.isprintable())


def _parts(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _require_same(totals: Sequence[int]) -> None:
    if len(set(totals)) > 1:
        seen = " and ".join(f"{total:,}" for total in dict.fromkeys(totals))
        raise EngineError(f"Passes over the same rows counted {seen} of them.", hint="Run it again.")


def _collected(asked: Sequence[tuple[Any, Sequence[str]]]) -> list[Sequence[int]]:
    """Return whole numbers that are aggregates of DataFrames, all by one query."""
    if len(asked) == 1:
        frame, aggregates = asked[0]
        return [tuple(frame.selectExpr(*aggregates).collect()[0])]
    frames = (
        frame.selectExpr(f"{number} AS number", f"array({', '.join(aggregates)}) AS found")
        for number, (frame, aggregates) in enumerate(asked)
    )
    rows = reduce(lambda left, right: left.union(right), frames).collect()
    return [found for _, found in sorted(tuple(row) for row in rows)]


def _counted(found: Sequence[int], key: IntegerKey | None = None, others: Sequence[Any] = ()) -> ScanResult:
    """Return what the aggregates of :func:`_pass` say."""
    total, *failing = found
    if key is None:
        return ScanResult(total=total, failing=tuple(failing))
    keys, *numbers = failing
    known, failing = (numbers[:3], numbers[3:]) if others else (numbers[:1], numbers[1:])
    is_unique = keys == known[0] and sum(known[:2]) == known[-1]
    return ScanResult(total=total, failing=tuple(failing), is_unique=True if is_unique else None)


def _pass(
    frame: Any, predicates: Sequence[str], key: IntegerKey | None = None, others: Sequence[Any] = ()
) -> tuple[Any, Sequence[str]]:
    parts = _parts(predicates, _BITS)
    answers = [
        " | ".join(f"IF({predicate}, {1 << bit}, 0)" for bit, predicate in enumerate(part)) + f" AS answers_{number}"
        for number, part in enumerate(parts)
    ]
    bits = [(number, 1 << bit) for number, part in enumerate(parts) for bit in range(len(part))]
    counts = [f"count_if((answers_{number} & {bit}) != 0)" for number, bit in bits]
    if key is not None:
        return _by_bucket(frame, answers, counts, key, others)
    return frame.selectExpr(*answers) if answers else frame, ["count(1)", *counts]


def _by_bucket(
    frame: Any, answers: Sequence[str], counts: Sequence[str], key: IntegerKey, others: Sequence[Any]
) -> tuple[Any, Sequence[str]]:
    """Count per 64 neighbouring integers of the key, with a bit for each, or per 32,768 with a bitmap; then add up.

    Where most integers are keys, 64 of them to a number leave few groups, which Spark finds by hashing. For bitmaps it
    sorts the rows, which hold no more than bits by then. Other rows have bits beside these: if both together have as
    many as the two have, they share no key.
    """
    if is_connect(frame):
        from pyspark.sql.connect.functions import expr
    else:
        from pyspark.sql.functions import expr
    present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
    if key.is_dense:
        bucket, position = f"shiftright({key.sql}, 6) AS bucket", f"shiftleft(1L, CAST({key.sql} & 63L AS INT))"
        bits = "bit_count(bit_or({}))"
    else:
        bucket, position = f"bitmap_bucket_number({key.sql}) AS bucket", f"bitmap_bit_position({key.sql})"
        bits = "bitmap_count(bitmap_construct_agg({}))"
    rows = frame.selectExpr(bucket, f"{position} AS position", f"{present} AS is_present", *answers)
    total, positions = "count(1)", ["position"]
    if others:
        total, positions = "count(is_present)", ["IF(is_present, position, NULL)", "IF(is_present, NULL, position)"]
        positions.append("position")
    for other in others:
        unasked = (f"0 AS answers_{number}" for number in range(len(answers)))
        rows = rows.union(other.selectExpr(bucket, f"{position} AS position", "CAST(NULL AS BOOLEAN)", *unasked))
    maps = [bits.format(one) for one in positions]
    wanted = [total, "count_if(is_present)", *maps, *counts]
    grouped = rows.groupBy("bucket").agg(*(expr(f"{sql} AS c{index}") for index, sql in enumerate(wanted)))
    return grouped, [f"coalesce(sum(c{index}), 0)" for index in range(len(wanted))]


def _by_hash(frame: Any, key: IntegerKey) -> ScanResult:
    """Group by a hash of each key; if none occurs twice, no key does.

    Shared out by the hash first, so that Spark doesn't group each task's rows, of which none have the same key, and in
    parts.
    """
    present = " AND ".join(f"{quote(column)} IS NOT NULL" for column in key.columns)
    hashes = frame.where(present).selectExpr(f"{key.sql} AS hash")
    keys = hashes.repartition(key.hash_parts, "hash").groupBy("hash").count()
    # One task would get all rows without a key.
    others = frame.where(f"NOT ({present})").selectExpr("CAST(NULL AS BIGINT) AS hash", "count(1) AS count")
    wanted = ("coalesce(sum(count), 0)", "count_if(count > 1 AND hash IS NOT NULL)")
    total, repeated = keys.union(others).selectExpr(*wanted).collect()[0]
    return ScanResult(total=total, failing=(), is_unique=None if repeated else True)
