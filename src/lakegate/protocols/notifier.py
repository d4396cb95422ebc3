"""Who is told outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakegate.model.notices import Notice
from lakegate.model.run import Notification


class Notifier(Protocol):
    """Tells people and programs outside of runs, files and tables that something is the matter with."""

    def tell(
        self, notice: Notice, *, alert: str | None = None, window_s: float | None = None
    ) -> Sequence[Notification]:
        """Tell every channel that asks for such notices, within the settings' time.

        Args:
            notice: What to tell.
            alert: Key of the notices for which one message stands; by default those that say the same of the same
                tables.
            window_s: Seconds for which it does; default: the settings'.

        Returns:
            What came of it, one for each channel that it concerns. That a message could not be sent is no exception.
        """
        ...

    def tell_counted(self) -> Sequence[Notification]:
        """Tell how many notices were counted, not told of, once the time is over for which one message stood for them.

        Returns:
            What came of it, one for each message.
        """
        ...

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all.

        Raises:
            NotFoundError: When there is no such channel, or none at all.
        """
        ...
