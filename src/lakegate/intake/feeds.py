"""Feeds: what says when to look for files and, where it can, at which.

A feed for a queue of notifications (SQS, Pub/Sub, Kafka) is a class with the methods of :class:`Feed`: it waits for
messages, hands out the URIs they name, and deletes a message when its file is acknowledged. What gets lost in between
is found by the looks at everything that every feed asks for now and then.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from lakegate.sources.paths import to_uri

EVERYTHING = None
"""Look at everything."""
_NAMED_AT_ONCE = 10_000
_FOLDERS_LOOKED_AT_S = 5.0
_GATHERED_MS = 400
_LISTENS_WITHIN_S = 10.0


class Feed(Protocol):
    """Says when to look, and at what."""

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait until there is a reason to look, for ``timeout_s`` seconds at most.

        Returns:
            URIs that something happened to: none when the time is over; ``None`` to look at everything.
        """
        ...

    def acknowledge(self, uris: Collection[str]) -> None:
        """Take note that nothing is left to do for files that :meth:`wait` named. Until then they may come again."""
        ...

    def wake(self) -> None:
        """End a wait at once. May be called by a signal handler."""
        ...

    def close(self) -> None:
        """Release what it holds. Idempotent."""
        ...


class PollingFeed:
    """Asks to look at everything, every so often.

    Args:
        every_s: Seconds from one look to the next.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next = time.monotonic() + every_s
        # The one queue that a signal handler may put something into while this very thread waits for it.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for the next look at everything, for ``timeout_s`` seconds at most."""
        left_s = max(self._next - time.monotonic(), 0.0)
        self._pause(left_s if timeout_s is None else min(left_s, timeout_s))
        if time.monotonic() < self._next:
            return ()
        self._next = time.monotonic() + self._every_s
        return EVERYTHING

    def acknowledge(self, uris: Collection[str]) -> None:
        """Do nothing: what is done is not named again."""

    def wake(self) -> None:
        """End a wait."""
        self._bell.put(None)

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    def _pause(self, seconds: float) -> bool:
        """Wait, until the bell rings at the latest; return whether it rang."""
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True


class EventFeed(PollingFeed):
    """Names the files of local folders that the operating system tells of, and asks for everything now and then.

    The system's events may get lost: too many at once, network file systems, folders that are replaced.

    Args:
        folders: Returns the folders that are there now; those that come later are watched from then on.
        every_s: Seconds from one look at everything to the next.
    """

    def __init__(self, folders: Callable[[], Sequence[str]], every_s: float) -> None:
        super().__init__(every_s)
        self._folders = folders
        self._lock = threading.Lock()
        self._named: set[str] | None = set()
        self._watched: dict[str, tuple[int, int]] = {}
        self._watcher: tuple[threading.Thread, _Stop] | None = None
        self._watch_anew()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for events, or the next look at everything."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._watch_anew():
            left_s = min(self._next, deadline) - time.monotonic()
            rang = self._pause(min(max(left_s, 0.0), _FOLDERS_LOOKED_AT_S))
            if time.monotonic() >= self._next:
                break
            named = self._take_named()
            if named is None:
                break
            if named or rang or time.monotonic() >= deadline:
                return named
        self._next = time.monotonic() + self._every_s
        return EVERYTHING

    def close(self) -> None:
        """End the watching."""
        if self._watcher is not None:
            thread, stop = self._watcher
            stop.stopped = True
            thread.join()
            self._watcher = None

    def _watch_anew(self) -> bool:
        """Watch the folders that are there now; return whether they are others than before."""
        watched = {folder: identity for folder in self._folders() if (identity := _identity(folder)) is not None}
        if watched == self._watched:
            return False
        self.close()
        self._watched = watched
        if watched:
            stop = _Stop()
            thread = threading.Thread(target=self._listen, args=(tuple(watched), stop), name="watch", daemon=True)
            self._watcher = (thread, stop)
            thread.start()
            # What comes from now on is named; what came before is found by the look that follows.
            stop.listening.wait(_LISTENS_WITHIN_S)
        return True

    def _listen(self, folders: Sequence[str], stop: _Stop) -> None:
        from watchfiles import Change, watch  # noqa: PLC0415 - only where something is watched

        changes = watch(
            *folders,
            watch_filter=None,
            stop_event=stop,
            rust_timeout=0,
            debounce=_GATHERED_MS,
            ignore_permission_denied=True,
        )
        try:
            # Where the system has no more events to give, the looks at everything remain.
            with suppress(OSError, RuntimeError):
                for changed in changes:
                    self._name({to_uri(path) for change, path in changed if change is not Change.deleted})
        finally:
            stop.listening.set()

    def _name(self, uris: set[str]) -> None:
        with self._lock:
            if self._named is not None:
                self._named |= uris
                if len(self._named) > _NAMED_AT_ONCE:
                    self._named = None
        self._bell.put(None)

    def _take_named(self) -> set[str] | None:
        with self._lock:
            named, self._named = self._named, set()
        return named


class _Stop:
    """Asked all the time, once the system has begun to tell of changes, whether that is to end."""

    def __init__(self) -> None:
        self.stopped = False
        self.listening = threading.Event()

    def is_set(self) -> bool:
        self.listening.set()
        return self.stopped


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = Path(folder).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
