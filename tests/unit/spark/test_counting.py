"""Predicates shared out among passes: each is counted once, in its place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lakegate.errors import EngineError
from lakegate.spark.scans import count, key_ranges


class Frame:
    """Holds ten rows; of the predicate ``n`` it counts n rows. Its passes may see other numbers of rows."""

    def __init__(self, *totals: int, answers: tuple[str, ...] = ()) -> None:
        self.totals = list(totals)
        self.answers = answers
        self.passes: list[int] = []

    def selectExpr(self, *sql: str) -> Any:
        if not self.answers and "AS answers_" in sql[0]:
            made = Frame(answers=sql)
            made.totals, made.passes = self.totals, self.passes
            return made
        total, *counts = sql
        assert total == "count(1)"
        self.passes.append(len(counts))
        if counts and " AS a0" in counts[0]:
            return Collected((self.totals.pop(0) if self.totals else 10, *(one.partition(" AS ")[0] for one in counts)))
        return Collected((self.totals.pop(0) if self.totals else 10, *map(self._counted, counts)))

    def _counted(self, sql: str) -> int:
        found = re.fullmatch(r"count_if\(\(answers_(\d+) & (\d+)\) != 0\)", sql)
        assert found is not None
        number, bit = map(int, found.groups())
        return int(re.findall(rf"IF\((\d+), {bit}, 0\)", self.answers[number])[0])


class Collected:
    def __init__(self, row: tuple[int | str, ...]) -> None:
        self.row = row

    def collect(self) -> list[tuple[int | str, ...]]:
        return [self.row]


@pytest.mark.parametrize("number", [0, 1, 16, 17, 96, 97, 600])
def test_every_predicate_is_counted_in_its_place(number: int) -> None:
    frame = Frame()
    predicates = [str(one) for one in range(number)]
    counted = count(frame, predicates)
    assert (counted.total, list(counted.failing)) == (10, list(range(number)))
    assert max(frame.passes) <= 96
    assert len(frame.passes) == max(1, -(-number // 96))


def test_passes_that_saw_other_rows_are_not_believed() -> None:
    with pytest.raises(EngineError, match=r"10 and 11|11 and 10"):
        count(Frame(10, 11), ["1"] * 300)


@pytest.mark.parametrize(
    ("kind", "low", "high", "is_pushed"),
    [
        ("string", "a", "b~", True),
        ("string", "a", "b\x80", False),
        ("string", "\x80", "\x80", False),
        ("int", "1", "9", True),
    ],
)
def test_texts_are_looked_up_by_metrics_where_their_bounds_are_ascii(
    kind: str, low: str, high: str, is_pushed: bool
) -> None:
    (range_,) = key_ranges({"k": kind}, [low.encode(), high.encode()])
    assert range_.startswith("k BETWEEN") == is_pushed
