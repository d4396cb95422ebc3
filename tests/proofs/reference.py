"""More random checks of a batch, each with what a slow reading of its rows in Python says of them.

Those of whole columns, of texts, of rows beside each other, of fields in structs, and with options.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, fsum, isfinite, isnan, sqrt
from typing import Any

from lakegate import checks
from lakegate.model.checks import Verdict, parse_tolerance
from proofs.asked import Asked, Row, ask
from proofs.values import Kind, key, sql_name, with_fields, with_values

_LARGEST_SUM = 10**37  # with the digits of its fraction
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_EMAIL = re.compile(rf"[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")
_NUMBERS = ("int", "bigint", "decimal", "float", "double")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_SHARES = (0.0, 0.07, 0.15, 0.25, 0.28, 1 / 3, 0.5, 0.55, 0.57, 0.7, 0.9, 1.0)
_OWN_JOB = frozenset({"custom_sql", "equal_rowcount", "fewer_rows_than", "mutually_exclusive_ranges", "outliers",
                      "relationships", "relationships_where", "sequential_values", "unique"})  # fmt: skip
_MOST_JOBS = 8  # of those: they take most of the time
_MOST_FILTERED = 12
Parents = tuple[str, str, Kind, Sequence[Any]]


def ask_all(
    r: random.Random,
    columns: Mapping[str, Kind],
    batch: Sequence[Row],
    others: Sequence[Row],
    parents: Parents | None,
) -> Iterator[Asked]:
    """Yield checks of ``batch`` as :func:`~proofs.asked.ask` and :func:`ask_more` do, and some of a part of it.

    Args:
        r: Where chance comes from.
        columns: The table's columns.
        batch: The rows that are audited.
        others: The rows that are beside them in the table.
        parents: A table, its column and the column's kind and values.
    """
    of_table = columns
    batch, others = ([with_values(row, columns) for row in rows] for rows in (batch, others))
    columns = with_fields(columns)
    asked = list(ask(r, columns, batch, others, parents))
    if batch:
        asked += ask_more(r, columns, batch)
        asked += _of_the_table(r, of_table, len(batch) + len(others), parents)
        where, is_chosen = condition(r, columns)
        chosen, beside = ([row for row in rows if is_chosen(row)] for rows in (batch, others))
        more = (*ask(r, columns, chosen, beside, parents), *ask_more(r, columns, chosen)) if chosen else ()
        plain = [one for one in more if one.check.where is None]
        for one in r.sample(plain, min(_MOST_FILTERED, len(plain))):
            asked.append(replace(one, check=one.check.model_copy(update={"where": where}), total=len(chosen)))
    own = [one for one in asked if one.check.kind in _OWN_JOB]
    left_out = set(map(id, r.sample(own, max(0, len(own) - _MOST_JOBS))))
    yield from (tolerating(r, one, len(batch)) for one in asked if id(one) not in left_out)


def tolerating(r: random.Random, asked: Asked, rows: int) -> Asked:
    """Return a check about single rows with a tolerance near the number or the share of rows that fail it."""
    total = rows if asked.total is None else asked.total
    if asked.verdict is not None or asked.check.tolerance is not None or not total or r.random() < 0.6:
        return asked
    if asked.check.kind in ("custom_sql", "row_count"):  # no row of the batch is to blame
        return asked
    if r.random() < 0.5:
        limit = max(0, asked.failing + r.choice((-1, 0, 0, 1, 3)))
        tolerance: int | str = limit or r.choice((1, 100))
        most = Fraction(tolerance)
    else:
        digits = r.choice((0, 1, 3, 9))
        step = Fraction(1, 10**digits)
        share = floor(Fraction(100 * asked.failing, total) / step) * step + r.choice((0, 0, 1, -1)) * step
        share = min(Fraction(100), max(step, share))
        tolerance = f"{float(share):.{digits}f}%"
        most = share * total / 100
    check = asked.check.model_copy(update={"tolerance": parse_tolerance(tolerance)})
    return replace(asked, check=check, verdict="fail" if asked.failing > most else "pass")


def ask_more(r: random.Random, columns: Mapping[str, Kind], batch: Sequence[Row]) -> Iterator[Asked]:
    """Yield checks of ``batch``; its columns are ``columns``."""
    for name, kind in columns.items():
        values = [row[name] for row in batch]
        there = [value for value in values if value is not None]
        yield from _shares(r, name, kind, values, there)
        if kind.ranges and there:
            yield from _extremes(r, name, there)
        if kind.spark.startswith(_NUMBERS):
            yield from _measures(r, name, there)
        if kind.spark == "string":
            yield from _texts(r, name, there)
        if kind.spark in ("int", "bigint", "date"):
            yield from _sequences(r, name, columns, batch)
        if kind.spark in _TIMES:
            late = sum(_is_late(value) for value in there)
            yield Asked(checks.not_in_future(name), late)
            yield _whole(checks.recency(name, "2 days"), fails=not any(_is_late(value, days=2) for value in there))
    yield from _pairs(r, columns, batch)
    yield from _options(r, columns, batch)


def _shares(r: random.Random, name: str, kind: Kind, values: Sequence[Any], there: Sequence[Any]) -> Iterator[Asked]:
    nulls = Fraction(len(values) - len(there), len(values))
    limit = r.choice((0, 0.25, 0.5, 1, float(nulls)))
    yield _whole(checks.null_rate(name, max=limit), fails=nulls > Fraction(str(limit)))
    yield _whole(checks.not_null_proportion(name, limit), fails=1 - nulls < Fraction(str(limit)))
    yield Asked(checks.custom_sql(f"SELECT 1 FROM batch WHERE {sql_name(name)} IS NULL"), len(values) - len(there))
    distinct = {key(value) for value in there} if kind.groups else set()
    if kind.groups:
        expected = max(0, len(distinct) + r.choice((0, 0, 1, -1)))
        yield _whole(checks.distinct_count(name, expected, expected), fails=expected != len(distinct))
        yield _whole(checks.not_constant(name), fails=len(distinct) == 1, skipped=len(there) < 2)
    if kind.listed and there:
        refused = [value for value in r.choices(there, k=2) if not isinstance(value, float) or isfinite(value)]
        if refused:
            written = [value.isoformat() if isinstance(value, datetime) else value for value in refused]
            yield Asked(checks.not_accepted_values(name, written), sum(value in refused for value in there))


def _extremes(r: random.Random, name: str, there: Sequence[Any]) -> Iterator[Asked]:
    has_nan = any(is_nan(value) for value in there)
    finite = [value for value in there if not isinstance(value, float) or isfinite(value)]
    if not finite:
        return
    limit = r.choice(finite)
    written = limit.isoformat() if isinstance(limit, datetime) else limit
    numbers = [value for value in there if not is_nan(value)]
    yield _whole(checks.column_min(name, min=written), fails=has_nan or min(numbers) < limit)
    yield _whole(checks.column_max(name, max=written), fails=has_nan or max(numbers) > limit)
    yield _whole(checks.column_min(name, max=written), fails=has_nan or min(numbers) > limit)
    yield _whole(checks.column_max(name, min=written), fails=has_nan or max(numbers) < limit)


def _measures(r: random.Random, name: str, there: Sequence[Any]) -> Iterator[Asked]:
    none = not there
    has_nan = any(is_nan(value) for value in there)
    if has_nan:
        yield _whole(checks.mean(name, max=1e300), fails=True)
        yield _whole(checks.column_sum(name, min=-1e300), fails=True)
        yield _whole(checks.quantile(name, 0.5, max=1e300), fails=True)
        return
    is_float = any(isinstance(value, float) for value in there)
    digits = max((-int(value.as_tuple().exponent) for value in there if isinstance(value, Decimal)), default=0)
    if not is_float and sum(abs(Fraction(value)) for value in there) < _LARGEST_SUM / Fraction(10) ** digits:
        total = sum((Fraction(value) for value in there), Fraction(0))
        mean = total / len(there) if there else Fraction(0)
        for found, make in ((total, checks.column_sum), (mean, checks.mean)):
            limit = r.choice((float(found), float(found) + 1, 0, int(found)))
            yield _whole(make(name, min=limit), fails=found < Fraction(str(limit)), skipped=none)
            yield _whole(make(name, max=limit), fails=found > Fraction(str(limit)), skipped=none)
    elif is_float and all(abs(value) < 1e12 for value in there):
        mean_of = fsum(there) / len(there)
        yield _whole(checks.mean(name, mean_of - 1, mean_of + 1), fails=False)
        yield _whole(checks.mean(name, min=mean_of + 1), fails=True)
    share = r.choice(_SHARES)
    ordered = sorted(map(float, there))
    if ordered:
        at = ordered[max(0, ceil(Fraction(str(share)) * len(ordered)) - 1)]
        if isfinite(at):
            yield _whole(checks.quantile(name, share, at, at), fails=False)
            if isfinite(beyond := at + abs(at) + 1):
                yield _whole(checks.quantile(name, share, min=beyond), fails=True)
    spread = [float(value) for value in there if isfinite(value) and abs(value) < 1e12]
    if len(spread) == len(there) > 1:
        mean_of = fsum(spread) / len(spread)
        deviation = sqrt(fsum((value - mean_of) ** 2 for value in spread) / (len(spread) - 1))
        border = 1.5 * deviation
        if deviation > 1e-3 and all(abs(abs(value - mean_of) - border) > 1e-6 * border for value in spread):
            yield Asked(checks.outliers(name, 1.5), sum(abs(value - mean_of) > border for value in spread))
            yield _whole(checks.stddev(name, max=deviation * 1.01), fails=False)
            yield _whole(checks.stddev(name, min=deviation * 1.01), fails=True)


def _texts(r: random.Random, name: str, there: Sequence[str]) -> Iterator[Asked]:
    yield Asked(checks.not_empty_string(name), sum(not value.strip() for value in there))
    yield Asked(checks.not_empty_string(name, trim=False), sum(not value for value in there))
    low, high = sorted((r.randint(0, 20), r.randint(0, 40)))
    yield Asked(checks.length_between(name, low, high), sum(not low <= len(value) <= high for value in there))
    yield Asked(checks.casing(name, "lower"), sum(value != value.lower() for value in there))
    yield Asked(checks.casing(name, "upper"), sum(value != value.upper() for value in there))
    yield Asked(checks.not_match_regex(name, "[a-c]'?"), sum(bool(re.search("[a-c]'?", value)) for value in there))
    like = re.compile(r"a.*", re.DOTALL)
    yield Asked(checks.match_like(name, "a%"), sum(not like.fullmatch(value) for value in there))
    yield Asked(checks.match_like(name, r"_\%%"), sum(value[1:2] != "%" for value in there))
    yield Asked(checks.valid_uuid(name), sum(not _UUID.fullmatch(value) for value in there))
    yield Asked(checks.valid_email(name), sum(not _EMAIL.fullmatch(value) for value in there))


def _sequences(r: random.Random, name: str, columns: Mapping[str, Kind], batch: Sequence[Row]) -> Iterator[Asked]:
    step, by = r.choice((1, 1, 2)), _some_group(r, columns, but=(name,))
    gaps = 0
    for rows in _grouped(batch, by):
        there = [row[name] for row in rows if row[name] is not None]
        numbers = sorted(value.toordinal() if isinstance(value, date) else value for value in there)
        gaps += sum(after != before + step for before, after in itertools.pairwise(numbers))
    yield Asked(checks.sequential_values(name, step, partition_by=_paths(by)), gaps)


def _some_group(r: random.Random, columns: Mapping[str, Kind], *, but: Sequence[str]) -> list[str]:
    groups = [name for name, kind in columns.items() if kind.groups and name not in but]
    return r.sample(groups, min(len(groups), r.choice((0, 0, 1, 2))))


def _grouped(batch: Sequence[Row], by: Sequence[str]) -> Iterator[list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in batch:
        groups.setdefault(tuple(key(row[name]) for name in by), []).append(row)
    yield from groups.values()


def _paths(names: Sequence[str]) -> list[str] | None:
    return list(names) or None


def _pairs(r: random.Random, columns: Mapping[str, Kind], batch: Sequence[Row]) -> Iterator[Asked]:
    alike = [
        (left, right)
        for left, kind in columns.items()
        for right, other in columns.items()
        if left != right and kind.spark == other.spark and kind.ranges
    ]
    if not alike:
        return
    left, right = r.choice(alike)
    pairs = [(row[left], row[right]) for row in batch if row[left] is not None and row[right] is not None]
    equal = r.random() < 0.5
    fails = sum(_rank(a) < _rank(b) or (not equal and _rank(a) == _rank(b)) for a, b in pairs)
    yield Asked(checks.column_pair_greater(left, right, or_equal=equal), fails)
    by, gaps, failing = _some_group(r, columns, but=(left, right)), r.random() < 0.7, 0
    for rows in _grouped(batch, by):
        there = [(row[left], row[right]) for row in rows if row[left] is not None and row[right] is not None]
        ranked, latest = sorted((_rank(low), _rank(high)) for low, high in there), None
        for low, high in ranked:
            apart = latest is not None and (low < latest or (not gaps and low != latest))
            failing += high < low or apart
            latest = high if latest is None else max(latest, high)
    yield Asked(checks.mutually_exclusive_ranges(left, right, partition_by=_paths(by), gaps=gaps), failing)


def condition(r: random.Random, columns: Mapping[str, Kind]) -> tuple[str, Callable[[Row], bool]]:
    """Return a condition about a row, as SQL and as a function."""
    name = r.choice(sorted(columns))
    column, spark = sql_name(name), columns[name].spark
    if spark == "boolean":
        return column, lambda row: row[name] is True
    if spark in ("int", "bigint") or spark.startswith("decimal"):
        return f"{column} >= 0 OR {column} IS NULL", lambda row: row[name] is None or row[name] >= 0
    if spark in ("float", "double"):
        return f"{column} <> 0", lambda row: row[name] is not None and row[name] != 0
    if spark == "string":
        return f"length({column}) < 3", lambda row: row[name] is not None and len(row[name]) < 3
    return f"{column} IS NOT NULL", lambda row: row[name] is not None


def _of_the_table(r: random.Random, columns: Mapping[str, Kind], rows: int, parents: Parents | None) -> Iterator[Asked]:
    names = list(columns)
    listed = r.sample(names, r.randint(1, len(names)))
    is_whole, in_order = len(listed) == len(names), r.random() < 0.5
    if not any(": " in name or name != name.strip() for name in listed):
        # Columns may have been moved: in what order they are, this proof doesn't know.
        yield _whole(checks.columns_match(listed, mode="additive"), fails=False)
        yield _whole(checks.columns_match(listed), fails=not is_whole)
        yield _whole(checks.columns_match([*listed, "missing"], ordered=in_order), fails=True)
    name, other = r.choice(names), columns[r.choice(names)].spark
    written = "timestamp_ltz" if other == "timestamp" else other  # which is Iceberg's name of another type
    yield _whole(checks.column_type(name, written), fails=columns[name].spark != other)
    yield _whole(checks.column_exists("no such column"), fails=True)
    if parents is None:
        return
    table, _, _, there = parents
    yield _whole(checks.equal_rowcount(table), fails=rows != len(there))
    yield _whole(checks.fewer_rows_than(table), fails=rows >= len(there))


def _options(r: random.Random, columns: Mapping[str, Kind], batch: Sequence[Row]) -> Iterator[Asked]:
    name, other = r.choice(sorted(columns)), r.choice(sorted(columns))
    condition, want = r.choice((("IS NULL", True), ("IS NOT NULL", False)))
    chosen = [row for row in batch if (row[other] is None) is want]
    where = f"{sql_name(other)} {condition}"
    nulls = sum(row[name] is None for row in chosen)
    verdict: Verdict | None = None if chosen else "skipped"
    yield Asked(checks.not_null(name, where=where), nulls, verdict, len(chosen))
    if columns[name].groups:
        counted = Counter(key(row[name]) for row in chosen if row[name] is not None)
        repeated = sum(count for count in counted.values() if count > 1)
        yield Asked(checks.unique(name, where=where), repeated, verdict, len(chosen))
        tolerance = r.randint(1, 5)
        fails: Verdict = "fail" if repeated > tolerance else "pass"
        yield Asked(checks.unique(name, where=where, tolerance=tolerance), repeated, verdict or fails, len(chosen))
    share = r.choice((10, 50, 100))
    everything = sum(row[name] is None for row in batch)
    passes = everything * 100 <= share * len(batch)
    yield Asked(checks.not_null(name, tolerance=f"{share}%"), everything, "pass" if passes else "fail")
    if columns[name].ranges and (drawn := [row[name] for row in batch if is_plain(row[name])]):
        limit = r.choice(drawn)
        outside = sum(is_nan(row[name]) or row[name] < limit for row in chosen if row[name] is not None)
        allowed = r.choice((1, 2, "10%", "33.3%", "50%"))
        most = allowed if isinstance(allowed, int) else Fraction(allowed.rstrip("%")) * len(chosen) / 100
        enough: Verdict = "pass" if outside <= most else "fail"
        written = limit.isoformat() if isinstance(limit, datetime) else limit
        check = checks.in_range(name, min=written, where=where, tolerance=allowed)
        yield Asked(check, outside, verdict or enough, len(chosen))
    low = r.randint(0, 5)
    off = max(low - len(chosen), 0)
    yield Asked(checks.row_count(low, where=where), off, None, len(chosen))


def _whole(check: checks.Check, *, fails: bool, skipped: bool = False) -> Asked:
    return Asked(check, 0, "skipped" if skipped else "fail" if fails else "pass")


def _is_late(value: Any, *, days: int | None = None) -> bool:
    """Return whether a time is later than now, or no longer ago than so many days."""
    then = datetime.now(UTC) - timedelta(days=days or 0)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) > then
    return bool(value > then.date() if days is None else value >= then.date())


def is_plain(value: Any) -> bool:
    """Return whether a value can be written as a limit."""
    return value is not None and (not isinstance(value, float) or isfinite(value))


def is_nan(value: Any) -> bool:
    """Return whether a value is a NaN."""
    return isinstance(value, float) and isnan(value)


def _rank(value: Any) -> Any:
    """Return what orders values as Spark does: NaN is greater than all numbers, and equals itself."""
    if isinstance(value, float):
        return (isnan(value), 0.0 if isnan(value) else value)
    return (False, value) if isinstance(value, (int, Decimal)) else value
