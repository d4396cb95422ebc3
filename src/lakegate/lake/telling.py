"""The facade's part that tells others: trying out channels, and looking for tables that are late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lakegate.errors import NotFoundError
from lakegate.flow.late import find_late, tell_late
from lakegate.lake.base import LakeBase
from lakegate.model.notices import LateTable
from lakegate.model.run import Notification


class Telling(LakeBase):
    """Tells others. That runs have ended is told by the runs themselves."""

    def notify_test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel of the settings, or to all. Starts nothing.

        Returns:
            What came of it, by channel. That a message could not be sent is no exception.

        Raises:
            NotFoundError: When there is no such channel, or none at all.
        """
        notifier = self._wiring.notifier
        if notifier is None:
            raise NotFoundError(
                "No channel is configured, so nobody is told of anything.",
                hint="Add a section [[notify.channels]] to lakegate.toml, with name, type and url.",
            )
        return notifier.test(channel)

    def notify_late(self) -> Sequence[LateTable]:
        """Look for tables to which nothing was published for longer than ``notify.late`` expects, and tell of them.

        Each is told of once in the time that is expected of it, until something is published. Only the journal is
        asked, nothing is started.

        Returns:
            The tables that are late, with what came of telling of them.

        Raises:
            RetryableError: When the journal is away.
        """
        expected = self.settings.notify.late
        if not expected:
            return ()
        now = datetime.now(UTC)
        late = find_late(self._wiring.journal, expected, now)
        notifier = self._wiring.notifier
        return late if notifier is None else tell_late(notifier, late, now)
