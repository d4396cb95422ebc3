"""Turns between processes of one machine: a file for each name, locked while somebody has the turn."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FileTurns:
    """Hands out turns by ``flock(2)``, whose waiters Linux wakes one by one, in order, and which a dead process drops.

    Args:
        folder: Where the files go. They stay, empty: deleting one would let two processes lock two files of one name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def turn(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        """Wait up to ``timeout_s`` seconds for the turn at ``name``, and yield whether we got it."""
        descriptor = self._acquire(name, timeout_s)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _acquire(self, name: str, timeout_s: float) -> int | None:
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _wait(descriptor, timeout_s)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor


def _wait(descriptor: int, timeout_s: float) -> int | None:
    # flock has no timeout, and asking again and again costs 16 waiters a good part of a core: a thread waits instead.
    # When it is too late it gives back what it gets.
    settled = threading.Lock()
    done = threading.Event()
    outcome: list[bool] = []

    def wait() -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            locked = True
        except OSError:
            locked = False
        with settled:
            late = bool(outcome)
            outcome.append(locked)
        if late or not locked:
            os.close(descriptor)
        done.set()

    def settle() -> bool:
        with settled:
            if not outcome:
                outcome.append(False)
            return outcome[0]

    try:
        threading.Thread(target=wait, name="lakegate-turn", daemon=True).start()
        done.wait(max(timeout_s, 0))
    except BaseException:
        if settle():
            os.close(descriptor)
        raise
    return descriptor if settle() else None
