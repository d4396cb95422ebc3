"""Random checks of severity ``quarantine``, and which rows of a batch a slow reading in Python sets aside for them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from lakegate import checks
from lakegate.model.checks import Check, Tolerance, parse_tolerance
from proofs.asked import Row
from proofs.reference import condition, is_nan, is_plain
from proofs.values import Kind, key, with_fields, with_values

_PATTERN = re.compile("^[a-z]", re.ASCII)
Fails = Callable[[Row, Sequence[Row]], bool]
"""Whether a row fails among those that are looked at."""


@dataclass
class Diverting:
    """A check that sets rows aside.

    Attributes:
        check: The check.
        fails: Whether a row fails it, given the rows that it looks at.
        looks_at: Whether it looks at a row.
        set_aside: How many rows it set aside; of those left,
        failing: how many fail it, which its tolerance allows, and
        total: how many it looks at.
        blocks: Whether more fail than the tolerance allows. If so for the rows that are left, the batch is rejected.
    """

    check: Check
    fails: Fails
    looks_at: Callable[[Row], bool] = lambda _: True
    set_aside: int = 0
    failing: int = 0
    total: int = 0
    blocks: bool = False


def some_diverting(
    r: random.Random, columns: Mapping[str, Kind], batch: Sequence[Row], others: Sequence[Row]
) -> list[Diverting]:
    """Return up to three checks of severity ``quarantine``."""
    flat = with_fields(columns)
    rows, beside = ([with_values(row, columns) for row in one] for one in (batch, others))
    possible = [one for name, kind in flat.items() for one in _possible(r, name, kind, rows, beside)]
    chosen = r.sample(possible, min(len(possible), r.randint(1, 3)))
    for one in chosen:
        changed: dict[str, object] = {"severity": "quarantine"}
        if r.random() < 0.4 and one.check.scope == "batch":
            where, one.looks_at = condition(r, flat)
            changed["where"] = where
        if r.random() < 0.4:
            changed["tolerance"] = parse_tolerance(r.choice((1, 2, 5, "10%", "33.3%", "50%", "100%")))
        one.check = one.check.model_copy(update=changed)
    return list({str(one.check): one for one in chosen}.values())


def divert(diverting: Sequence[Diverting], columns: Mapping[str, Kind], batch: Sequence[Row]) -> list[Row]:
    """Set rows of ``batch`` aside as the checks say, once; return those that are left."""
    left = [(row, with_values(row, columns)) for row in batch]
    aside: set[int] = set()
    for one in diverting:
        failing = _judge(one, left)
        if one.blocks:
            one.set_aside = len(failing)
            aside.update(failing)
    if aside:
        left = [pair for at, pair in enumerate(left) if at not in aside]
        for one in diverting:
            _judge(one, left)
    return [row for row, _ in left]


def _judge(one: Diverting, rows: Sequence[tuple[Row, Row]]) -> list[int]:
    """Note how many rows fail; return their positions."""
    seen = [row for _, row in rows if one.looks_at(row)]
    failing = [at for at, (_, row) in enumerate(rows) if one.looks_at(row) and one.fails(row, seen)]
    one.failing, one.total = len(failing), len(seen)
    one.blocks = len(failing) > _most(one.check.tolerance, len(seen))
    return failing


def _most(tolerance: Tolerance | None, total: int) -> Fraction:
    if isinstance(tolerance, str):
        return Fraction(tolerance.rstrip("%")) * total / 100
    return Fraction(tolerance or 0)


def _possible(
    r: random.Random, name: str, kind: Kind, rows: Sequence[Row], others: Sequence[Row]
) -> Iterator[Diverting]:
    yield Diverting(checks.not_null(name), lambda row, _: row[name] is None)
    there = [row[name] for row in rows if is_plain(row[name])]
    if kind.ranges and there:
        limit = r.choice(there)
        written = limit.isoformat() if isinstance(limit, datetime) else limit
        yield Diverting(
            checks.in_range(name, min=written),
            lambda row, _: row[name] is not None and (is_nan(row[name]) or row[name] < limit),
        )
    if kind.spark == "string":
        yield Diverting(
            checks.matches(name, _PATTERN.pattern),
            lambda row, _: row[name] is not None and not _PATTERN.search(row[name]),
        )
    if kind.groups:
        known = {key(row[name]) for row in others if row[name] is not None}

        def repeats(row: Row, seen: Sequence[Row]) -> bool:
            counted = Counter(key(one[name]) for one in seen if one[name] is not None)
            return row[name] is not None and counted[key(row[name])] > 1

        yield Diverting(checks.unique(name), repeats)
        yield Diverting(
            checks.unique(name, scope="table"),
            lambda row, seen: repeats(row, seen) or (row[name] is not None and key(row[name]) in known),
        )
