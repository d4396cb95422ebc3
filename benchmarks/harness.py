"""Interleaved rounds, medians, and one line a figure."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """A ratio of two medians and the limit it is held to; ``None`` for one that is only shown."""

    name: str
    ratio: float
    limit: float | None
    detail: str

    def __str__(self) -> str:
        verdict = "info" if self.limit is None else "ok" if self.ratio <= self.limit else "over"
        limit = "-" if self.limit is None else f"{self.limit:.2f}"
        return f"{self.name:<44} {self.ratio:6.2f}  limit {limit:>5}  {verdict:<5} {self.detail}"


def interleave(rounds: int, contestants: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Run all contestants in turn, one uncounted round first.

    Returns:
        Median wall time of each, in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            started = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - started)
        print(f"  round {number} of {rounds}", file=sys.stderr)
    return {name: median(values) for name, values in times.items()}
