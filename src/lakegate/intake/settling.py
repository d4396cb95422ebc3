"""Settling: whether a file is still being written, told from looking at it more than once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakegate.sources.listing import FoundFile

SECOND_LOOK_S = 0.5
"""Seconds between two looks at a file that seems to lie there for long: clocks of other machines may be wrong."""


class Clock:
    """The time, so that tests need not wait for it."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Settling:
    """Remembers the files that are not taken yet, and tells when each has settled.

    A file has settled when it lay unchanged for ``settle_s`` seconds, which is told by its own time of last change and
    a second look, or by our looks alone when its time cannot be right. Objects of a store appear at once and whole:
    they need no second look.

    Args:
        settle_s: Seconds.
        clock: The time.
    """

    def __init__(self, settle_s: float, clock: Clock) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    @property
    def pending(self) -> Collection[str]:
        """URIs of the files that are remembered."""
        return self._seen.keys()

    def left_s(self, file: FoundFile) -> float:
        """Return the seconds after which another look may find the file settled; 0 when it is."""
        now = self._clock.monotonic()
        stamp, since = self._seen.get(file.uri, ("", 0.0))
        if stamp != file.stamp:
            since = now
            self._seen[file.uri] = (file.stamp, now)
        seen_s = now - since
        age_s = (self._clock.now() - file.modified_at).total_seconds()
        second_look_s = min(SECOND_LOOK_S, self._settle_s) if file.uri.startswith("file:") else 0.0
        return max(0.0, min(self._settle_s - seen_s, max(self._settle_s - age_s, second_look_s - seen_s)))

    def is_known_as(self, uri: str, stamp: str) -> bool:
        """Tell whether that is the state in which the file was last seen; also when it is not remembered."""
        return self._seen.get(uri, (stamp, 0.0))[0] == stamp

    def forget(self, uris: Iterable[str]) -> None:
        """Forget files that are taken, given up or gone."""
        for uri in uris:
            self._seen.pop(uri, None)
