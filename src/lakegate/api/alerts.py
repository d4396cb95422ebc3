"""``lake.alerts``: alerts besides those that each run sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from lakegate.components import Components
from lakegate.errors import NotFoundError
from lakegate.model.downstream import LateTable
from lakegate.model.run import FileCheckpoint, Notification
from lakegate.model.words import suggest_keywords
from lakegate.wap.alerting import alert_given_up, alert_late, find_late


@suggest_keywords
class Alerts:
    """Alerts besides those that each run sends: ``lake.alerts``. One that can't be sent isn't an exception.

    Raises:
        RetryableError: The journal can't be reached.
    """

    def __init__(self, components: Components) -> None:
        self._components = components

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all, and return each outcome. Starts no server.

        Raises:
            NotFoundError: There's no such channel, or none at all.
        """
        notifier = self._components.notifier
        if notifier is None:
            raise NotFoundError(
                "No alert channel is configured.",
                hint="Add a section [[notify.channels]] to lakegate.toml, with name, type and url.",
            )
        return notifier.test(channel)

    def given_up(self, table: str, file: FileCheckpoint) -> None:
        """Send the alert that a file failed too often to be tried again. It takes at most ``notify.timeout_s`` seconds.

        Args:
            table: The table that the file belongs to.
            file: Its last outcome, and why it failed.
        """
        notifier = self._components.notifier
        if notifier is not None:
            alert_given_up(notifier, self._components.journal, self._components.narrator, table, file)

    def expected_publishes(self) -> Mapping[str, str]:
        """Return how often each table should be published to, as a duration such as ``1d``.

        Covers the tables with a setting ``notify.late`` or a contract with ``freshness``.

        Raises:
            ConfigurationError: A contract can't be read, or a table has both.

        Example:
            >>> lake.alerts.expected_publishes()
            {}
        """
        return self._components.contracts.late()

    def late(self) -> Sequence[LateTable]:
        """Find tables to which nothing was published for longer than expected, and send alerts.

        Each late table is announced once per expected interval until something is published. Only reads the journal.

        Returns:
            The tables that are late, with the outcome of the alerts.
        """
        expected, notifier = self._components.contracts.late(), self._components.notifier
        now = datetime.now(UTC)
        late = find_late(self._components.journal, expected, now) if expected else ()
        return late if notifier is None else alert_late(notifier, late, now)
