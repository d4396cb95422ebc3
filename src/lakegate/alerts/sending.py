"""Sending: tried again where that may help, and over in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol

from lakegate.alerts.message import Message

TRIES = 4
_FIRST_WAIT_S = 0.3
_LOUD = ("apprise", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx", "urllib3.connectionpool")
"""Loggers that write addresses, which are secrets here."""
_SENDING: ContextVar[bool] = ContextVar("lakegate_notify_sending", default=False)


class UndeliveredError(Exception):
    """A message that could not be sent.

    Attributes:
        reason: Why, in words that hold no secret.
        again: Whether trying again may help.
        after_s: Seconds that the other side asks us to wait for before.
    """

    def __init__(self, reason: str, *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.after_s = after_s


class Deadline:
    """The time by which sending must be over.

    Args:
        in_s: Seconds from now.
    """

    def __init__(self, in_s: float) -> None:
        self._at = monotonic() + in_s

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 when it is over."""
        return max(self._at - monotonic(), 0.0)


class Sender(Protocol):
    """Sends messages to one channel. Made with the secrets that its settings refer to."""

    def send(self, message: Message, deadline: Deadline, thread: str | None) -> str | None:
        """Send a message, once; called again where that may help.

        Args:
            message: What to send.
            deadline: When to give up.
            thread: The message to put it under.

        Returns:
            What names the message as a thread, where there are threads.

        Raises:
            UndeliveredError: If it did not arrive, or may not have arrived.
        """
        ...


def deliver(sender: Sender, message: Message, deadline: Deadline, thread: str | None) -> str | None:
    """Send a message, again where that may help, but no later than ``deadline``.

    Raises:
        UndeliveredError: Of the last try.
    """
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.after_s if isinstance(error, UndeliveredError) else None
        return _FIRST_WAIT_S * 2 ** (state.attempt_number - 1) if asked is None else asked

    def is_over(state: RetryCallState) -> bool:
        return state.upcoming_sleep >= deadline.left_s

    trying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, UndeliveredError) and error.again),
        wait=wait_s,
        stop=lambda state: stop_after_attempt(TRIES)(state) or is_over(state),
        reraise=True,
    )
    with quiet():
        return trying(sender.send, message, deadline, thread)


def retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; ``None`` when there is none, or a date.

    Example:
        >>> retry_after_s("30"), retry_after_s("Wed, 21 Oct 2026 07:28:00 GMT")
        (30.0, None)
    """
    text = (value or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None  # noqa: PLR2004 - 11 days


def refused(status: int, *, said: str = "", after: str | None = None) -> UndeliveredError:
    """Return the error for an unsuccessful HTTP response.

    Args:
        status: Its status code.
        said: What it says; without secrets.
        after: Its ``Retry-After`` header.
    """
    waits = retry_after_s(after)
    words = f"it answered {status}" + (f" ({said})" if said else "")
    if waits is not None and waits > 0:
        words += f" and asked to wait {waits:g} s"
    return UndeliveredError(words, again=status == 429 or status >= 500, after_s=waits)  # noqa: PLR2004 - HTTP's own


@contextmanager
def quiet() -> Iterator[None]:
    """Keep libraries from logging addresses while the body runs, in this thread."""
    for name in _LOUD:
        logging.getLogger(name).addFilter(_is_not_ours)  # adding it twice changes nothing
    token = _SENDING.set(True)
    try:
        yield
    finally:
        _SENDING.reset(token)


def _is_not_ours(_record: logging.LogRecord) -> bool:
    return not _SENDING.get()
