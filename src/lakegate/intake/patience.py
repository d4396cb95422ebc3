"""Patience: what is left alone for a while, and whose fault trouble is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakegate.intake.settling import Clock

_BUSY_S = 5.0
_FIRST_S = 5.0
_LONGEST_S = 300.0
_APART_AFTER = 2


@dataclass(slots=True)
class _Trouble:
    times: int
    failures: int
    others: int
    until: float


class Patience:
    """Remembers, for as long as this process lives, the files that others are at and those that met trouble.

    Trouble is not the file's fault: catalog, engine or machine are. But when the engine fails at one file and does its
    work for others in between, it is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: dict[str, float] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._worked = 0

    @property
    def has_worked(self) -> bool:
        """Whether any run came to its end."""
        return self._worked > 0

    def left_s(self, uri: str) -> float:
        """Return for how many seconds the file is to be left alone; 0 when it is not."""
        trouble = self._troubles.get(uri)
        until = max(self._busy.get(uri, 0.0), trouble.until if trouble else 0.0)
        return max(0.0, until - self._clock.monotonic())

    def wants_apart(self, uri: str) -> bool:
        """Tell whether the engine failed at the file so often that it goes by itself, to see whether it is the one."""
        trouble = self._troubles.get(uri)
        return trouble is not None and trouble.failures >= _APART_AFTER

    def leave(self, uris: Iterable[str]) -> None:
        """Leave files alone for a while: others are at them."""
        self._busy.update(dict.fromkeys(uris, self._clock.monotonic() + _BUSY_S))

    def meet(self, uri: str, *, failed: bool) -> bool:
        """Note that a file met trouble.

        Args:
            uri: The file.
            failed: Whether the engine was there, and failed.

        Returns:
            Whether the engine failed at it before too, and not at others in between.
        """
        known = self._troubles.get(uri, _Trouble(0, 0, self._worked, 0.0))
        until = self._clock.monotonic() + min(_FIRST_S * 2.0 ** min(known.times, 10), _LONGEST_S)
        failures = known.failures + failed
        self._troubles[uri] = _Trouble(known.times + 1, failures, self._worked, until)
        return failures >= _APART_AFTER and known.others < self._worked

    def worked(self) -> None:
        """Note that a run came to its end: whatever the trouble was, it does not touch everyone."""
        self._worked += 1

    def forget(self, uri: str) -> None:
        """Forget a file of which something has become."""
        self._busy.pop(uri, None)
        self._troubles.pop(uri, None)
