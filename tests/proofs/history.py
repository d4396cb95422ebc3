"""What was done to a lake and what was seen of it: operations, each with the time in which it took effect, if it did.

A history is written as lines of JSON in the form that Jepsen's tools read, so that others can check it, too.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple

Result = Literal["ok", "failed", "unknown"]
"""``ok``: it took effect between start and end. ``failed``: it never does. ``unknown``: it may, at any time from its
start on, or never."""


class Step(NamedTuple):
    """One thing that an operation does to one key; all steps of an operation take effect at the same time.

    ========== ============================================ =========
    kind       what it does                                 the key is
    ========== ============================================ =========
    ``append`` puts a value at the end                      a list
    ``r``      reads all values                             a list
    ``w``      writes a value                               a register
    ``get``    reads the value; ``None`` if there's none    a register
    ``add``    adds values                                  a bag: the rows of a table
    ``remove`` removes values                               a bag
    ``reset``  removes all but these values, and adds these a bag
    ``rows``   reads all values                             a bag
    ========== ============================================ =========
    """

    kind: Literal["append", "r", "w", "get", "add", "remove", "reset", "rows"]
    key: str
    value: Any


READS = ("r", "get", "rows")


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation.

    Attributes:
        name: What it was.
        process: Who did it, one thing after the other.
        start: When it was asked for, in seconds.
        end: When it was answered; infinite if it never was.
        result: What the answer was.
        steps: What it does, and what it read, if it was answered.
    """

    name: str
    process: int
    start: float
    end: float
    result: Result
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        until = "never answered" if self.end == inf else f"{self.end:.3f} s"
        steps = ", ".join(f"{kind} {key} {_clipped(value)}" for kind, key, value in self.steps)
        return f"{self.name} by {self.process} ({self.start:.3f} s to {until}, {self.result}): {steps}"


@dataclass
class Pending:
    """An operation under way. What isn't said when it ends is unknown; it ended earlier if it says so."""

    steps: list[Step]
    result: Result = "unknown"
    end: float | None = None


@dataclass
class Recorder:
    """Records operations of any number of threads, by one clock."""

    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began

    @contextmanager
    def operation(self, name: str, process: int, *steps: Step) -> Iterator[Pending]:
        """Record what the body does; the body says how it ended, and what it read."""
        pending = Pending(list(steps))
        start = self.now()
        try:
            yield pending
        finally:
            end = inf if pending.result == "unknown" else pending.end or self.now()
            done = Operation(name, process, start, end, pending.result, tuple(pending.steps))
            with self._lock:
                self.operations.append(done)


def to_json_lines(history: Sequence[Operation], kinds: Collection[str] = ("append", "r")) -> Iterator[str]:
    """Yield the steps of these kinds as events of Jepsen's, an ``invoke`` and an ``ok``, ``fail`` or ``info`` each.

    Args:
        history: The operations.
        kinds: ``append`` and ``r`` are what Elle knows as list-append, ``w`` and ``get`` as rw-register.
    """
    events: list[tuple[float, int, dict[str, Any]]] = []
    for number, one in enumerate(history):
        chosen = [step for step in one.steps if step.kind in kinds]
        if not chosen:
            continue
        # Nobody does anything else before an answer comes: who got none is somebody else afterwards.
        event = {"process": number, "f": "txn"}
        asked = [_micro(step, known=False) for step in chosen]
        events.append((one.start, 0, {"type": "invoke", **event, "value": asked}))
        kind = {"ok": "ok", "failed": "fail", "unknown": "info"}[one.result]
        answered = [_micro(step, known=one.result == "ok") for step in chosen]
        events.append((one.end, 1, {"type": kind, **event, "value": answered}))
    events.sort(key=lambda event: event[:2])
    latest = 0.0
    for index, (when, _, event) in enumerate(events):
        latest = latest if when == inf else when
        yield json.dumps({"index": index, "time": round(latest * 1e9), **event})


def _micro(step: Step, *, known: bool) -> list[Any]:
    reads = step.kind in READS
    return ["r" if reads else step.kind, step.key, None if reads and not known else step.value]


def _clipped(value: Any) -> str:
    text = str(sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)
    return text if len(text) <= 60 else f"{text[:28]} … {text[-28:]}"
