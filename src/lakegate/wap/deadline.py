"""Deadlines: when to suspend a run, so that a later call resumes it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Self

from lakegate.context import Context
from lakegate.errors import (
    EngineError,
    EngineUnavailableError,
    RetryableError,
    SourceError,
    StorageUnavailableError,
)

_AFTER_CANCEL = (EngineError, EngineUnavailableError, SourceError, StorageUnavailableError)
"""Errors that an engine raises when its work is cancelled, perhaps while it reads a file."""
_CANCEL_EVERY_S = 0.5
_LAST_CANCEL_S = 2.0
"""How long to wait for the engine to answer the last cancel."""


class DeadlineReachedError(RetryableError):
    """Time ran out. The run is suspended, and the next call resumes it."""

    code = "deadline"


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which no work starts and the engine's work is cancelled.

    Attributes:
        at: Time on the clock of :func:`time.monotonic`; by default never.

    Example:
        >>> Deadline().is_over, Deadline.after(0).is_over
        (False, True)
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline ``seconds`` from now; ``None`` means no deadline."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left; 0 when time is over."""
        return max(0.0, self.at - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether time is over."""
        return self.left_s == 0.0

    def require_time(self, run_id: str) -> None:
        """Raise if time is over, before the run starts more work."""
        if self.is_over:
            raise DeadlineReachedError(
                f"Time ran out before run {run_id} was done.",
                hint="Call it again with the same run id to resume it.",
                run_id=run_id,
            )


NEVER = Deadline()


@contextmanager
def cancel_engine_at(deadline: Deadline, context: Context, run_id: str) -> Iterator[None]:
    """Cancel the body's work in the engine when the deadline passes."""
    if math.isinf(deadline.at):
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(
        target=copy_context().run,
        args=(_cancel, context, deadline, stopped),
        name=f"deadline of {run_id}",
        daemon=True,
    )
    thread.start()
    try:
        yield
    except _AFTER_CANCEL:
        deadline.require_time(run_id)
        raise
    finally:
        stopped.set()
        thread.join(_LAST_CANCEL_S)


def _cancel(context: Context, deadline: Deadline, stopped: threading.Event) -> None:
    wait_s = deadline.left_s
    while not stopped.wait(wait_s):
        # Repeatedly, because work may start right after a cancel.
        with suppress(Exception):
            context.engine().cancel()
        wait_s = _CANCEL_EVERY_S
