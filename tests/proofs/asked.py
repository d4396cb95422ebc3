"""Random checks of a batch, each with what a slow reading of its rows in Python says: how many of them fail."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from itertools import product
from math import isinf, isnan
from typing import Any

from lakegate import checks
from lakegate.model.checks import Check, Verdict
from proofs.values import Kind, key, sql_name

Row = Mapping[str, Any]

_PATTERNS = (
    r"^[a-z]+$",
    r"^sixteen",
    r"(?i)^SIXTEEN CHARACTERS",
    r"^.?$",
    r"\d",
    r"^\S*$",
    "é|\U0001f600",
    r"[^\x00-\x7f]",
    r"^$",
    r"\bcharacters\b",
    r"^(?!null)",
    "\uffff{2}",
    r"'",
    r"\\",
    r"\$\{",
    "[a-z]{3,}(!|z+)",
)
_OPERATORS = {"<": lambda a, b: a < b, "=": lambda a, b: a == b, ">=": lambda a, b: a >= b}


@dataclass(frozen=True)
class Asked:
    """A check, the number of rows that fail it, its verdict, and how many rows it looks at if these aren't all."""

    check: Check
    failing: int
    verdict: Verdict | None = None
    total: int | None = None

    @property
    def expected(self) -> Verdict:
        """The verdict."""
        return self.verdict or ("fail" if self.failing else "pass")


def ask(
    r: random.Random,
    columns: Mapping[str, Kind],
    batch: Sequence[Row],
    others: Sequence[Row],
    parents: tuple[str, str, Kind, Sequence[Any]] | None,
) -> Iterator[Asked]:
    """Yield checks of ``batch``, which is added to ``others``.

    Args:
        r: Where chance comes from.
        columns: The table's columns.
        batch: The rows that are audited.
        others: The rows that are beside them in the table.
        parents: A table, its column and the column's kind and values.
    """
    for name, kind in columns.items():
        values = [row[name] for row in batch]
        yield Asked(checks.not_null(name), sum(value is None for value in values))
        known = [*values, *(row[name] for row in others), kind.draw(r), kind.draw(r)]
        drawn = [value for value in known if value is not None and not _is_nan(value)]
        yield from _of_values(r, name, kind, values, drawn)
        if kind.groups and parents is not None and _comparable(kind, parents[2]):
            table, column, _, there = parents
            found = {key(value) for value in there if value is not None}
            lacking = sum(value is not None and key(value) not in found for value in values)
            yield Asked(checks.relationships(name, to=table, to_columns=column), lacking)
            none = sum(value is not None for value in values)
            for condition, orphans in (("K IS NOT NULL", lacking), ("K IS NULL", none)):
                check = checks.relationships_where(name, to=table, to_columns=column, to_condition=condition)
                yield Asked(check, orphans)
    yield from _of_keys(r, columns, batch, others)
    low, high = sorted((r.randint(0, 2 * len(batch)), r.randint(0, 2 * len(batch))))
    off = max(low - len(batch), len(batch) - high, 0)
    yield Asked(checks.row_count(low, high), off)


def _of_values(r: random.Random, name: str, kind: Kind, values: Sequence[Any], drawn: Sequence[Any]) -> Iterator[Asked]:
    if kind.ranges and drawn:
        yield from _ranges(r, name, values, sorted(drawn))
    finite = [value for value in drawn if not _is_infinite(value)]
    if kind.listed and finite:
        for accepted in (finite, r.choices(finite, k=r.randint(1, 3))):
            failing = sum(value is not None and value not in set(accepted) for value in values)
            yield Asked(checks.accepted_values(name, [_end(value) for value in accepted]), failing)
    if kind.spark == "string":
        for pattern in r.sample(_PATTERNS, 3):
            found = re.compile(pattern, re.ASCII)
            same = f"(?d){pattern}"  # as in Python, only a line feed ends a line
            yield Asked(checks.matches(name, same), sum(v is not None and not found.search(v) for v in values))
    if drawn and kind.spark.startswith(("int", "bigint", "decimal")):
        operator, other = r.choice(sorted(_OPERATORS)), r.choice(drawn)
        literal = f"CAST('{other:f}' AS {kind.spark})" if isinstance(other, Decimal) else f"({other})"
        failing = sum(value is not None and _OPERATORS[operator](value, other) for value in values)
        yield Asked(checks.sql(f"{sql_name(name)} {operator} {literal}"), failing)
        present = sum(value is not None for value in values)
        yield Asked(checks.expression_is_true(f"{sql_name(name)} {operator} {literal}"), present - failing)
    if kind.spark in ("float", "double"):
        yield Asked(checks.sql(f"isnan({sql_name(name)})"), sum(_is_nan(value) for value in values))


def _ranges(r: random.Random, name: str, values: Sequence[Any], spread: Sequence[Any]) -> Iterator[Asked]:
    two = sorted(r.choices(spread, k=2))
    for ends, inclusive in product(
        ((spread[0], spread[-1]), (two[0], two[1]), (r.choice(spread), None), (None, r.choice(spread))), (True, False)
    ):
        low, high = (_moved(r, end) for end in ends)
        if _is_infinite(low) or _is_infinite(high) or (None not in (low, high) and low > high):  # refused
            continue
        failing = sum(value is not None and not _inside(value, low, high, inclusive) for value in values)
        yield Asked(checks.in_range(name, _end(low), _end(high), inclusive=inclusive), failing)


def _of_keys(
    r: random.Random, columns: Mapping[str, Kind], batch: Sequence[Row], others: Sequence[Row]
) -> Iterator[Asked]:
    groupable = [name for name, kind in columns.items() if kind.groups]
    for _ in range(2):
        if groupable:
            names = r.sample(groupable, min(len(groupable), r.choice((1, 1, 2, 3))))
            here = Counter(found for row in batch if (found := _key(row, names)) is not None)
            there = {_key(row, names) for row in others}
            repeated = sum(count for count in here.values() if count > 1)
            yield Asked(checks.unique(*names), repeated)
            known = sum(count for found, count in here.items() if count > 1 or found in there)
            yield Asked(checks.unique(*names, scope="table"), known)


def _key(row: Row, names: Sequence[str]) -> Any:
    values = [row[name] for name in names]
    return None if any(value is None for value in values) else tuple(map(key, values))


def _inside(value: Any, low: Any, high: Any, inclusive: bool) -> bool:
    if _is_nan(value):
        return False
    if inclusive:
        return (low is None or low <= value) and (high is None or value <= high)
    return (low is None or low < value) and (high is None or value < high)


def _moved(r: random.Random, end: Any) -> Any:
    """Return an end, at times a little beside a value."""
    if r.random() < 0.6:
        return end
    step, moved = r.choice((-1, 1)), end
    with suppress(OverflowError), localcontext(prec=60):
        match end:
            case bool() | None | float():
                pass
            case int():
                moved = end + step
            case Decimal():
                moved = end + Decimal(step).scaleb(int(end.as_tuple().exponent) - r.choice((0, 1)))
            case datetime():
                moved = end + timedelta(microseconds=step)
            case date():
                moved = end + timedelta(days=step)
            case _:
                moved = f"{end}a"
    return moved


def _end(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and isinf(value)


def _comparable(left: Kind, right: Kind) -> bool:
    alike = ({"int", "bigint"}, {"float", "double"})
    return left.spark == right.spark or any({left.spark, right.spark} <= kinds for kinds in alike)
