"""Scans: count rows, fetch examples, and look the keys of a batch up in other rows.

Spark can hold values that Python can't: strings that aren't UTF-8, and dates before year 1 or after 9999. Rows with
such a value must still be shown as examples.

Key lookups (``unique(…, scope='table')``, ``relationships``) read only the key columns of the other rows, and as few
rows as possible: a filter by the batch's smallest and greatest key lets Iceberg skip partitions, files and row groups.
The rest is semi-joined with the batch's distinct keys, which Spark broadcasts while they are few. Everything is SQL
text that both Spark Connect and classic sessions accept.

One aggregate per predicate would generate methods too large for Java's JIT compiler; with thirteen predicates, that
took twice as long. So a projection evaluates the predicates first, several to one integer with a bit for each, and the
aggregation counts bits. Many predicates are split over several passes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

from lakegate.errors import CheckError, EngineError
from lakegate.model.identifiers import quote
from lakegate.model.schema import FILE_COLUMN
from lakegate.model.sqltext import not_pushed_down, sql_string
from lakegate.model.tables import IntegerKey, Rows, ScanResult
from lakegate.model.types import path_parts
from lakegate.spark.sessions import functions_for

LONGEST_TEXT = 2_000
"""Maximum characters of a value to show, because examples are stored in the journal and sent in alerts."""

_AS_TEXT = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
_NESTED = frozenset({"array", "map", "struct"})
_EXACT_AS_TEXT = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "timestamp_ntz", "boolean")
_LONGEST_BOUND = 1_000  # characters; longer bounds make longer plans without skipping more
_DAYS_AND_TIMES = ("date", "timestamp", "timestamp_ntz")
_GREGORIAN = "1583"

LOSSLESS_JSON = (
    "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""Options of ``to_json`` with which different values give different texts. By default, times have milliseconds."""

KNOWN = "found OR count > 1"
"""The key occurs in the other rows, or more than once in the batch."""
FOUND = "found"
"""The key occurs in the other rows."""
ORPHAN = "NOT found"
"""The other rows don't have the key."""
_BITS = 16
"""Predicates per integer. With more, Java no longer compiles the generated method."""
PREDICATES_PER_PASS = 96
"""Predicates per pass.

Spark disables whole-stage code generation for plans with more than 100 fields (``spark.sql.codegen.maxFields``). 1,000
predicates on as many columns took 9.2 s of CPU time with this value and 11.4 s with 256; cold, 14 s and 26 s.
"""
_AGGREGATES = 50
"""Aggregates per pass: 200 at once took 2.4 times as long as four passes of 50."""
_DISTINCT = 4
"""Distinct counts per pass. Spark repeats all rows for each: 24 at once took 2.2 times as long."""


def collect_rows(frame: Any) -> list[dict[str, Any]]:
    """Return all rows of a small DataFrame as dicts, with instants as times in UTC.

    If Python can't hold a value, columns of the affected types are fetched as text, with escapes for invalid UTF-8.
    """
    from pyspark.errors import PySparkException

    try:
        return [row.asDict(recursive=True) for row in _in_utc(frame).collect()]
    except PySparkException:
        raise
    except (ValueError, ArithmeticError, TypeError):  # includes UnicodeDecodeError and OverflowError
        kinds = [field.dataType.typeName() for field in frame.schema.fields]
        names = list(frame.columns)
        shown = frame.selectExpr(*(_as_shown(name, kind) for name, kind in zip(names, kinds, strict=True)))
        return [
            {name: _value(value, kind) for name, kind, value in zip(names, kinds, row, strict=True)}
            for row in shown.collect()
        ]


def examples(frame: Any) -> tuple[dict[str, Any], ...]:
    """Return all rows of a small DataFrame as dicts of JSON-safe values."""
    return tuple({name: _json_safe(value) for name, value in row.items()} for row in collect_rows(frame))


def nested_fields(kind: Any) -> list[tuple[str, ...]]:
    """Return the paths of all struct fields in a Spark type, including those in arrays and maps."""
    inner = (getattr(kind, name, None) for name in ("elementType", "keyType", "valueType"))
    paths = [path for one in inner if one is not None for path in nested_fields(one)]
    for field in getattr(kind, "fields", ()):
        paths += [(field.name,), *((field.name, *below) for below in nested_fields(field.dataType))]
    return paths


def _in_utc(frame: Any) -> Any:
    """Return ``frame`` with instants as times in UTC. PySpark would return them in this machine's zone, unmarked."""
    col = functions_for(frame).col
    kinds = {field.name: _without_zone(field.dataType) for field in frame.schema.fields}
    if all(kinds[field.name] == field.dataType for field in frame.schema.fields):
        return frame
    return frame.select(*(col(quote(name)).cast(kind).alias(name) for name, kind in kinds.items()))


def _without_zone(kind: Any) -> Any:
    """Return a type with ``timestamp_ntz`` in place of ``timestamp``, at any depth."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, TimestampNTZType

    match kind.typeName():
        case "timestamp":
            return TimestampNTZType()
        case "array":
            return ArrayType(_without_zone(kind.elementType), kind.containsNull)
        case "map":
            return MapType(_without_zone(kind.keyType), _without_zone(kind.valueType), kind.valueContainsNull)
        case "struct":
            fields = ((one.name, _without_zone(one.dataType), one.nullable) for one in kind.fields)
            return StructType([StructField(*field) for field in fields])
    return kind


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
        return value.replace(" ", "T")  # ISO 8601, as in other examples
    return json.loads(value)["value"] if kind in _NESTED else value


def _json_safe(value: Any) -> Any:  # noqa: PLR0911 - a line for each type
    """Convert a collected value to a JSON-safe one: times to ISO 8601, decimals to text, bytes to hexadecimal."""
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
    return f"{value:f}" if isinstance(value, Decimal) else value


def _cut(text: str, length: int) -> str:
    return text if length <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({length:,} characters)"


def difference(frame: Any, others: Any) -> Any:
    """Return the rows of ``frame`` that ``others`` doesn't have, counting duplicates (``EXCEPT ALL``).

    Rows are compared by the columns of both; a column that one side lacks is NULL there. Nested values are compared as
    JSON, because Spark can't compare maps. A column whose type changed is compared as the wider type, or else as text.
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
            column = _null_of(kinds[0]) if field is None else _comparable(field.name, field.dataType, as_text=as_text)
            columns.append(f"{column} AS {quote(name)}")
    return frame.selectExpr(*own).exceptAll(others.selectExpr(*other))


def difference_by_key(before: Any, after: Any, key: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return DataFrames of the added, the removed and the changed rows, matched by their key.

    A changed row has a struct ``before`` and a struct ``after``. Keys with a NULL match nothing. If several rows share
    a key, they are paired one to one; those left over count as added or removed.
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
    """Return whether Spark compares values of two types exactly, as values of the wider type."""
    names = {left.typeName(), right.typeName()}
    if names == {"decimal"}:
        return bool(left.scale == right.scale)
    return names in ({"integer", "long"}, {"float", "double"}, {"date", "timestamp_ntz"})


def _null_of(kind: Any) -> str:
    return f"CAST(NULL AS {'STRING' if kind.typeName() in _NESTED else kind.simpleString()})"


def _comparable(name: str, kind: Any, *, as_text: bool) -> str:
    if kind.typeName() in _NESTED:
        return f"to_json({quote(name)}, {LOSSLESS_JSON})"
    return f"CAST({quote(name)} AS STRING)" if as_text else quote(name)


class KeyLookup:
    """Looks up which keys of ``batch`` occur in ``others``. A key with a NULL matches nothing.

    Args:
        other_columns: The key columns of ``others``, in the order of ``columns``.
        is_measured: As in :class:`~lakegate.model.tables.AddedRows`, for ``batch``.
    """

    def __init__(
        self,
        batch: Any,
        columns: Sequence[str],
        others: Sequence[Any],
        other_columns: Sequence[str],
        *,
        is_measured: bool = False,
    ) -> None:
        # These names must differ from all columns of the batch, which examples have, too.
        self._names = free_names("__lakegate_key", len(columns), taken=batch.columns)
        self._present = " AND ".join(f"{name} IS NOT NULL" for name in self._names)
        self._batch = batch
        self._named = self._selected(columns, batch.columns, is_opaque=not is_measured)
        self._others = [frame.selectExpr(*self._selected(other_columns, frame.columns)) for frame in others]

    def count(self, *conditions: str) -> ScanResult:
        """Count the rows whose key meets each of ``conditions``: :data:`KNOWN`, :data:`FOUND` or :data:`ORPHAN`."""
        cases = (f"CASE WHEN {self._present} AND ({condition}) THEN count END" for condition in conditions)
        sums = (f"coalesce(sum({case}), 0)" for case in ("count", *cases))
        total, *failing = self._key_matches.selectExpr(*sums).collect()[0]
        return ScanResult(total=total, failing=tuple(failing))

    def rows(self, condition: str, limit: int, *, file: str) -> Any:
        """Return a DataFrame of up to ``limit`` of the rows whose key meets ``condition``, each with its data file.

        Args:
            file: SQL of a row's data file.
        """
        failing = self._key_matches.where(f"{self._present} AND ({condition})").select(*self._names)
        rows = self._batch.selectExpr("*", f"{file} AS {FILE_COLUMN}", *self._named)
        ordered = rows.join(failing, self._names, "left_semi").orderBy(*self._names)  # rows that share a key together
        return ordered.drop(*self._names).limit(limit)

    def keys(self, condition: str) -> tuple[Any, Sequence[str]]:
        """Return a DataFrame of the distinct keys that meet ``condition``, and the names of its columns."""
        return self._key_matches.where(f"{self._present} AND ({condition})").select(*self._names), self._names

    @cached_property
    def _keys(self) -> Any:
        return self._batch.selectExpr(*self._named)

    @cached_property
    def _key_matches(self) -> Any:
        """The distinct keys, with the number of their rows in the batch (``count``) and whether others have them."""
        grouped = self._keys.groupBy(*self._names).count()
        bounds = self.bounds() if self._others else None
        if bounds is None:
            return grouped.selectExpr("*", "FALSE AS found")
        wanted = grouped.where(self._present).select(*self._names)
        parts = [frame.where(bounds).join(wanted, self._names, "left_semi") for frame in self._others]
        met = reduce(lambda left, right: left.union(right), parts).distinct().selectExpr("*", "TRUE AS met")
        return grouped.join(met, self._names, "left").selectExpr(*self._names, "count", "met IS NOT NULL AS found")

    def bounds(self) -> str | None:
        """Return a predicate for rows that may have one of the batch's keys; ``None`` if it has no keys."""
        types = [field.dataType.simpleString() for field in self._keys.schema.fields]
        bounded = {name: kind for name, kind in zip(self._names, types, strict=True) if _comparable_as_text(kind)}
        # As bytes, because Python can't hold strings that aren't UTF-8.
        ends = (f"CAST(CAST({end}({name}) AS STRING) AS BINARY)" for name in bounded for end in ("min", "max"))
        keys, *found = self._keys.where(self._present).selectExpr("count(1)", *ends).collect()[0]
        if not keys:
            return None
        return " AND ".join(key_ranges(bounded, [bytes(end) for end in found])) or "TRUE"

    def _selected(self, columns: Sequence[str], of: Sequence[str], *, is_opaque: bool = False) -> list[str]:
        paths = (path(column, of) for column in columns)
        return [f"{opaque(one) if is_opaque else one} AS {name}" for one, name in zip(paths, self._names, strict=True)]


def key_ranges(bounded: Mapping[str, str], ends: Sequence[bytes]) -> Iterator[str]:
    """Yield a predicate per column for rows whose value lies in the column's range.

    Args:
        bounded: The columns and their types.
        ends: The lowest and the highest value of each column, as text in UTF-8.
    """
    lows_and_highs = iter(ends)
    for name, kind in bounded.items():
        low, high = _decoded(next(lows_and_highs)), _decoded(next(lows_and_highs))
        # ORC's statistics for dates before the Gregorian calendar (October 15, 1582) are off by days. Such bounds
        # would skip matching rows.
        if low is None or high is None or (kind in _DAYS_AND_TIMES and low < _GREGORIAN):
            continue
        if max(len(low), len(high)) <= _LONGEST_BOUND:
            between = f"{name} BETWEEN CAST({sql_string(low)} AS {kind}) AND CAST({sql_string(high)} AS {kind})"
            # Iceberg decodes invalid UTF-8 into other strings, so its bounds may exclude matching rows. ASCII
            # bounds are safe: ASCII decodes to itself, and an altered string sorts above all ASCII before and after
            # decoding.
            is_kept = kind != "string" or (low.isascii() and high.isascii())
            yield between if is_kept else not_pushed_down(between)


def free_names(stem: str, count: int, *, taken: Collection[str]) -> list[str]:
    """Return ``count`` names that start with ``stem`` and that aren't ``taken``, ignoring case as Spark does.

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
        f"Table {rows.table} on {rows.ref} has no column '{missing}', which a check needs.",
        hint=f"Its columns: {', '.join(frame.columns)}.",
        table=str(rows.table),
        column=missing,
    )


def path(column: str, names: Collection[str]) -> str:
    """Quote a column for SQL. If no column of ``names`` has that name, it's the path to a struct's field.

    Example:
        >>> path("a.b", ["A.B"]), path("a.b", ["a"]), path("a.`b.c`", ["a"])
        ('`a.b`', '`a`.`b`', '`a`.`b.c`')
    """
    if column.lower() in {name.lower() for name in names}:
        return quote(column)
    return ".".join(map(quote, path_parts(column) or [column]))


def root(column: str, names: Collection[str]) -> str:
    """Return the top-level column of a path: the column itself, or the struct."""
    if column.lower() in {name.lower() for name in names}:
        return column
    return next(iter(path_parts(column)), column)


def filter_rows(frame: Any, predicate: str, *, is_measured: bool = True) -> Any:
    """Return the rows of ``frame`` for which ``predicate`` (SQL) is true.

    Spark pushes filters down to Iceberg, whose bounds and partitions ignore NaN and order -0.0 before 0.0, so it would
    skip files with such rows. Filters on floats are rewritten so that they aren't pushed down, and so are all filters
    on files that lakegate's engine didn't measure.
    """
    floats = [name for name, kind in frame.dtypes if "float" in kind or "double" in kind]
    text = predicate.lower()
    if not is_measured or any(name.lower().partition("`")[0] in text for name in floats):
        predicate = not_pushed_down(predicate)
    return frame.where(predicate)


def without_pushdown(frame: Any, *, is_measured: bool = True) -> Any:
    """Wrap the float columns of ``frame`` so that filters on them aren't pushed down; see :func:`filter_rows`.

    Args:
        is_measured: Whether lakegate's engine measured the files; if not, all columns are wrapped.
    """

    def wrapped(name: str, kind: str) -> str:
        # To Spark, these are expressions whose value it can't know from the column's bounds.
        column = quote(name)
        if not is_measured and kind != "void":
            return f"{opaque(column)} AS {column}"
        if kind in {"float", "double"}:
            return f"nanvl({column}, {column}) AS {column}"
        if kind.startswith("struct<") and ("float" in kind or "double" in kind):
            return f"CASE WHEN monotonically_increasing_id() >= 0 THEN {column} END AS {column}"
        return column

    return frame.selectExpr(*(wrapped(name, kind) for name, kind in frame.dtypes))


def with_opaque(frame: Any, columns: Collection[str]) -> Any:
    """Wrap ``columns`` of ``frame`` so that no filter on them is pushed down."""
    names = map(quote, frame.columns)
    opaques = set(map(quote, columns))
    return (
        frame.selectExpr(*(f"{opaque(one)} AS {one}" if one in opaques else one for one in names)) if opaques else frame
    )


def opaque(column: str) -> str:
    """Return SQL for a column's value, of any type, on which Spark pushes no filter down."""
    return f"element_at(array({column}), 1)"


def _comparable_as_text(kind: str) -> bool:
    # Not floats: Iceberg refuses NaN in a filter.
    return kind == "string" or kind.partition("(")[0] in _EXACT_AS_TEXT


def _decoded(given: bytes) -> str | None:
    try:
        return given.decode()
    except UnicodeDecodeError:
        return None


def count(
    frame: Any, predicates: Sequence[str], key: IntegerKey | None = None, others: Sequence[Any] = ()
) -> ScanResult:
    """Count the rows of ``frame`` that meet each predicate, and try to prove ``key`` unique in them and ``others``."""
    first, *more = _chunks(predicates, PREDICATES_PER_PASS) or [()]
    passes = [_one_pass(frame, first, key, others), *(_one_pass(frame, part) for part in more)]
    _require_equal_totals([one.total for one in passes])
    failing = tuple(itertools.chain.from_iterable(one.failing for one in passes))
    return ScanResult(total=passes[0].total, failing=failing, is_unique=passes[0].is_unique)


def aggregate(frame: Any, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
    """Return the number of rows of ``frame`` and the values of aggregates, in as few passes as is efficient."""
    distinct = [one for one in expressions if "DISTINCT" in one]
    plain = [one for one in expressions if "DISTINCT" not in one]
    known: dict[str, Any] = {}
    totals: list[int] = []
    for part in [*_chunks(plain, _AGGREGATES), *_chunks(distinct, _DISTINCT)] or [()]:
        named = (f"{expression} AS a{index}" for index, expression in enumerate(part))
        total, *values = frame.selectExpr("count(1)", *named).collect()[0]
        totals.append(total)
        known |= zip(part, values, strict=True)
    _require_equal_totals(totals)
    return totals[0], tuple(known[one] for one in expressions)


def _chunks(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _require_equal_totals(totals: Sequence[int]) -> None:
    if len(set(totals)) > 1:
        seen = " and ".join(f"{total:,}" for total in dict.fromkeys(totals))
        raise EngineError(
            f"Several passes over the same rows counted {seen} rows.", hint="Nothing was published. Run it again."
        )


def _one_pass(
    frame: Any, predicates: Sequence[str], key: IntegerKey | None = None, others: Sequence[Any] = ()
) -> ScanResult:
    rows, aggregates = _pass_aggregates(frame, predicates, key, others)
    total, *failing = rows.selectExpr(*aggregates).collect()[0]
    if key is None:
        return ScanResult(total=total, failing=tuple(failing))
    keys, *numbers = failing
    known, failing = (numbers[:3], numbers[3:]) if others else (numbers[:1], numbers[1:])
    is_unique = keys == known[0] and sum(known[:2]) == known[-1]
    return ScanResult(total=total, failing=tuple(failing), is_unique=True if is_unique else None)


def _pass_aggregates(
    frame: Any, predicates: Sequence[str], key: IntegerKey | None = None, others: Sequence[Any] = ()
) -> tuple[Any, Sequence[str]]:
    parts = _chunks(predicates, _BITS)
    answers = [
        " | ".join(f"IF({predicate}, {1 << bit}, 0)" for bit, predicate in enumerate(part)) + f" AS answers_{number}"
        for number, part in enumerate(parts)
    ]
    bits = [(number, 1 << bit) for number, part in enumerate(parts) for bit in range(len(part))]
    counts = [f"count_if((answers_{number} & {bit}) != 0)" for number, bit in bits]
    if key is not None:
        return _bucket_aggregates(frame, answers, counts, key, others)
    return frame.selectExpr(*answers) if answers else frame, ["count(1)", *counts]


def _bucket_aggregates(
    frame: Any, answers: Sequence[str], counts: Sequence[str], key: IntegerKey, others: Sequence[Any]
) -> tuple[Any, Sequence[str]]:
    """Group the key's integers into buckets with a bit for each integer, and count the bits.

    A dense key is grouped by 64 integers, which leaves few enough groups for a hash aggregation. Other keys are grouped
    into bitmaps of 32,768 integers, for which Spark sorts the rows, by then reduced to bits. The bits of ``others`` are
    counted both alone and together with the batch's. The two share no key if the separate counts add up to the joint
    one.
    """
    expr = functions_for(frame).expr
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
