"""Deadlines: when a run must be left where it is, for another call to go on with."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Self

from lakegate.errors import (
    EngineError,
    EngineUnavailableError,
    RetryableError,
    SourceError,
    StorageUnavailableError,
)
from lakegate.flow.rooms import Rooms

_CAME_OF_IT = (EngineError, EngineUnavailableError, SourceError, StorageUnavailableError)
"""What an engine says whose work was cancelled, some of it in the middle of reading a file."""
_CANCEL_EVERY_S = 0.5
_LAST_CANCEL_S = 2.0


class DeadlineReachedError(RetryableError):
    """The time that was given is over. What was begun is parked: the next call goes on with it."""

    code = "deadline"


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which no more work may be begun, and the engine's is given up.

    Attributes:
        at: Of :func:`time.monotonic`; by default never.

    Example:
        >>> Deadline().is_over, Deadline.after(0).is_over
        (False, True)
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline in so many seconds from now; never for ``None``."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(0.0, self.at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it is over."""
        return self.left_s == 0.0

    def require_time(self, run_id: str) -> None:
        """Stop a run before it begins something.

        Raises:
            DeadlineReachedError: When it is over.
        """
        if self.is_over:
            raise DeadlineReachedError(
                f"The time for run {run_id} was over before it was done.",
                hint="Call it again with this run id to go on.",
                run_id=run_id,
            )


NEVER = Deadline()


@contextmanager
def held_to(deadline: Deadline, rooms: Rooms, run_id: str) -> Iterator[None]:
    """Cancel the engine's work in the body when the deadline comes.

    Raises:
        DeadlineReachedError: When the engine fails after that.
    """
    if math.isinf(deadline.at):
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(
        target=copy_context().run,
        args=(_cancel, rooms, deadline, stopped),
        name=f"deadline of {run_id}",
        daemon=True,
    )
    thread.start()
    try:
        yield
    except _CAME_OF_IT:
        deadline.require_time(run_id)
        raise
    finally:
        stopped.set()
        # An engine that does not even answer that is not worth the seconds that are left.
        thread.join(_LAST_CANCEL_S)


def _cancel(rooms: Rooms, deadline: Deadline, stopped: threading.Event) -> None:
    wait_s = deadline.left_s
    while not stopped.wait(wait_s):
        # Again and again: work may begin just after it was cancelled.
        with suppress(Exception):
            rooms.engine().cancel()
        wait_s = _CANCEL_EVERY_S
