"""One lakegate at a time: a lock that those who wait for it are told of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lakegate.errors import LocalStackError
from lakegate.protocols import Narrator

_MINUTE_S = 60


@contextlib.contextmanager
def locked(path: Path, doing: str, narrator: Narrator, *, timeout_s: float) -> Iterator[None]:
    """Hold the lock at ``path`` while the body runs. The operating system lets go of it when a process ends.

    Args:
        path: The lock's file; made if it is missing, readable by this user alone.
        doing: What all who take it do, for messages: ``starting or stopping MiniStack``.
        narrator: Told that somebody else has to be waited for.
        timeout_s: Seconds to wait, at most.

    Raises:
        LocalStackError: When that takes longer.
        OSError: When the file cannot be made.
    """
    import filelock  # noqa: PLC0415 - slow to import, and not needed while all is well

    lock = filelock.FileLock(path, mode=0o600)
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            with narrator.step(f"Waiting for another lakegate that is {doing}"):
                lock.acquire(timeout=timeout_s)
    except filelock.Timeout:
        took = f"{timeout_s:.0f} s" if timeout_s < _MINUTE_S else f"{timeout_s / _MINUTE_S:.0f} minutes"
        raise LocalStackError(
            f"Another lakegate has been {doing} for {took}.",
            hint="See what it waits for, or end it, and try again.",
            folder=str(path.parent),
        ) from None
    try:
        yield
    finally:
        lock.release()
