"""Interleaved rounds, medians, and one line a figure."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

Prepare = Callable[[], Callable[[], object]]
"""Gets everything ready, which is not measured, and returns what is."""


@dataclass(frozen=True)
class Figure:
    """A ratio of two medians and the limit it is held to; ``None`` for one that is only shown.

    Attributes:
        bound: Whether the ratio may be at most, or must be at least, ``limit``.
    """

    name: str
    ratio: float
    limit: float | None
    detail: str
    bound: Literal["most", "least"] = "most"

    def __str__(self) -> str:
        return f"{self.name:<46} {self.ratio:6.2f}  limit {self._limit():>7}  {self._verdict():<5} {self.detail}"

    def _limit(self) -> str:
        if self.limit is None:
            return "-"
        return f"{'<=' if self.bound == 'most' else '>='} {self.limit:.2f}"

    def _verdict(self) -> str:
        if self.limit is None:
            return "info"
        if self.bound == "least":
            return "ok" if self.ratio >= self.limit else "under"
        return "ok" if self.ratio <= self.limit else "over"


def interleave(rounds: int, contestants: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Run all contestants in turn, one uncounted round first.

    Returns:
        Median wall time of each, in seconds.
    """
    return prepared(rounds, {name: _ready(run) for name, run in contestants.items()})


def prepared(rounds: int, contestants: Mapping[str, Prepare]) -> dict[str, float]:
    """Do as :func:`interleave` with contestants that need something new for each round.

    What runs returns in seconds, if it does, counts instead of the time the call took.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, prepare in contestants.items():
            run = prepare()
            started = time.perf_counter()
            measured = run()
            taken = time.perf_counter() - started
            if number:
                times[name].append(measured if isinstance(measured, float) else taken)
        progress(f"round {number} of {rounds}")
    return {name: median(values) for name, values in times.items()}


def progress(text: str) -> None:
    """Tell how far we are."""
    print(f"  {text}", file=sys.stderr, flush=True)


class Deliveries:
    """Delivers the same files again and again, each time under a path of its own, so that they are new to lakegate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def deliver(self, source: Path) -> Path:
        """Return a folder with copies of the files of ``source``; a link to one is known under all its names."""
        self._count += 1
        return shutil.copytree(source, self._folder / f"delivery-{self._count:05d}", copy_function=shutil.copyfile)


def _ready(run: Callable[[], object]) -> Prepare:
    return lambda: run


def write_parquet(frame: Any, target: Path) -> None:
    """Write a Spark frame to files, which SQL in lakegate's own sessions can't do."""
    key = "spark.sql.sources.commitProtocolClass"
    settings = frame.sparkSession.conf
    forbidden = settings.get(key)
    settings.unset(key)
    try:
        frame.write.parquet(target.as_uri())
    finally:
        settings.set(key, forbidden)
