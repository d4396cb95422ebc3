"""Who uses the local Spark: so that nobody starts it anew under somebody's run.

A user holds a lock that any number may share; who wants to start Spark anew needs it alone. The operating system lets
go of it when a process ends, however it ends (``flock(2)``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from lakegate.errors import LocalStackError
from lakegate.local.state import StackFolder

_POLL_S = 0.05


class SparkUsage:
    """This object's part in the use of the Spark of one project.

    Args:
        folder: The project's folder.
    """

    def __init__(self, folder: StackFolder) -> None:
        self._folder = folder
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object counts as a user."""
        return self._handle is not None

    def hold(self, timeout_s: float) -> None:
        """Count as a user from now on, waiting for whoever starts Spark anew at this moment. Idempotent.

        Args:
            timeout_s: How long to wait, at most.

        Raises:
            LocalStackError: When that takes longer.
        """
        if self._handle is not None:
            return
        handle = self._open()
        deadline = time.monotonic() + timeout_s
        while not _try(handle, fcntl.LOCK_SH):
            if time.monotonic() >= deadline:
                os.close(handle)
                raise LocalStackError(
                    f"Another lakegate has been starting the local Spark anew for {timeout_s:.0f} s.",
                    hint="See what it waits for, or end it, and try again.",
                    service="spark",
                )
            time.sleep(_POLL_S)
        self._handle = handle

    def release(self) -> None:
        """Not count as a user any more. Idempotent."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep all others from becoming users while the body runs; yield whether there was nobody but this object."""
        handle = self._open() if self._handle is None else self._handle
        try:
            yield _try(handle, fcntl.LOCK_EX)
        finally:
            if self._handle is None:
                os.close(handle)
            else:
                fcntl.flock(handle, fcntl.LOCK_SH)

    def _open(self) -> int:
        try:
            return os.open(self._folder.usage_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._folder.unusable(error) from error


def _try(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
