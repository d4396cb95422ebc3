"""The facade's part that tells others: trying out channels, and looking for tables that are late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lakegate.errors import NotFoundError
from lakegate.flow.late import find_late, tell_late
from lakegate.flow.telling import tell_counted, tell_given_up
from lakegate.lake.base import LakeBase
from lakegate.model.notices import GivenUpFile, LateTable
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

    def notify_given_up(self, file: GivenUpFile) -> None:
        """Tell the channels that ask for it that a file failed so often that it is left alone until it changes.

        Each state of a file is told of once, whoever calls this and how often. It takes ``notify.timeout_s`` at most,
        and whatever goes wrong with it is no exception.

        Args:
            file: The file, and why it was given up.
        """
        notifier = self._wiring.notifier
        if notifier is not None:
            tell_given_up(notifier, self._wiring.journal, self._wiring.narrator, file, datetime.now(UTC))

    def notify_late(self) -> Sequence[LateTable]:
        """Look for tables to which nothing was published for longer than ``notify.late`` expects, and tell of them.

        Each is told of once in the time that is expected of it, until something is published. Then tell of what was
        counted meanwhile (``notify.group``), so that it does not wait for the next run. Only the journal is asked,
        nothing is started.

        Returns:
            The tables that are late, with what came of telling of them.

        Raises:
            RetryableError: When the journal is away.
        """
        expected, notifier = self.settings.notify.late, self._wiring.notifier
        now = datetime.now(UTC)
        late = find_late(self._wiring.journal, expected, now) if expected else ()
        if notifier is None:
            return late
        told = tell_late(notifier, late, now)
        tell_counted(notifier, self._wiring.narrator)
        return told
