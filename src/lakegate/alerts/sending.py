"""Sending: tried again where that may help, and over in time."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

from lakegate.alerts.message import Message
from lakegate.credentials.webhook import UndeliveredError, quiet

TRIES = 4
_FIRST_WAIT_S = 0.3


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
