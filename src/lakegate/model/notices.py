"""Alerts as values: what they are about, and how they are grouped."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.downstream import Delivery
from lakegate.model.run import Notification, Run

Event = Literal["rejected", "failed", "given_up", "recovered", "published", "quarantined", "late", "undelivered"]
"""What a channel may ask for. A run that recovery ended is ``recovered``, and also how it ended; one that set rows
aside is ``quarantined``, and also ``published``."""
Level = Literal["info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("info", "warn", "error")
"""From the least to the most severe."""


class Notice(Value):
    """One alert, before it is sent.

    Attributes:
        event: What happened; for a run that recovery ended, how it ended.
        recovered: Whether recovery ended the run.
        severity: How bad it is.
        tables: Tables it's about.
        run: The run that ended, if it's about one.
        late: The late table, if it's about one.
        file: The file that was given up, if it's about one.
        delivery: The delivery to a downstream system that was given up, if it's about one.
        counted: Number of suppressed alerts that it sums up; ``None`` for an alert of its own.
        at: When it happened.
    """

    event: Event | Literal["test"]
    recovered: bool = False
    severity: Level
    tables: tuple[str, ...]
    run: Run | None = None
    late: LateTable | None = None
    file: GivenUpFile | None = None
    delivery: Delivery | None = None
    counted: int | None = None
    at: datetime

    @property
    def quarantined(self) -> int:
        """Rows that the run published without, as it set them aside."""
        published = None if self.run is None or self.event != "published" else self.run.publication
        return 0 if published is None else published.quarantined


class AlertGroup(Value):
    """A message's place in the group of those that say the same of a table within ``notify.group``.

    Attributes:
        number: How many there were, including this one.
        missed: How many before this one were suppressed.
        thread: Where the first one was sent, if the channel has threads.
    """

    number: int
    missed: int = 0
    thread: str | None = None


class LateTable(Value):
    """A table to which nothing was published for longer than expected.

    Attributes:
        expected_every: The expected interval, from the settings.
        last: Time of the last publish; ``None`` if the journal has none.
        run_id: The run that published last.
    """

    table: str
    expected_every: str
    last: datetime | None = None
    run_id: str | None = None
    notifications: tuple[Notification, ...] = ()


class GivenUpFile(Value):
    """A source file that failed so often that it won't be tried again until it changes.

    Attributes:
        table: The table it was for.
        stamp: Its state, as in :class:`lakegate.model.journal.FileCheckpoint`.
        tries: How often it was tried in this state.
        code: Code of the last error.
        reason: The last error, in one sentence.
        run_id: The last run that tried; ``None`` if none began.
    """

    table: str
    uri: str
    stamp: str
    tries: int
    code: str
    reason: str
    run_id: str | None = None


class CountedAlert(Value):
    """A group that has ended with suppressed messages.

    Attributes:
        alert: Key of what they say.
        about: The last one, with just enough of its run to identify it.
        place: The place of the last one.
    """

    channel: str
    alert: str
    about: Notice
    place: AlertGroup
