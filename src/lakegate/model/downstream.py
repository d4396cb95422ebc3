"""What people and systems beyond the lake learn of a run: alerts, events, and their delivery."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import Notification, Run
from lakegate.model.schema import Schema
from lakegate.model.tables import ChangeKind

EVENT_VERSION = 1
"""Of :class:`DownstreamEvent` as JSON. Fields may be added within a version."""

DownstreamKind = Literal["published", "reverted", "restored", "current", "rejected", "failed"]
"""What happened. ``current`` is the state that a table is in now, whatever led to it: sent on request, after the target
was reset, and after the journal was lost."""
DeliveryState = Literal["pending", "sent", "failed", "skipped", "superseded"]
"""``failed`` was given up and waits for a decision; ``superseded`` was covered by a later event of the same tables."""


class ChangedTable(Value):
    """What happened to one table.

    Attributes:
        table: Its identifier, ``namespace.name``.
        before: Location of its metadata file before; ``None`` if it didn't exist, or in a ``current`` event.
        after: Location of its metadata file now; ``None`` if it was dropped, or if nothing was published.
        change: What was done to it, as :class:`~lakegate.model.tables.TableChange` says; ``None`` if unknown.
        created: Whether it didn't exist before.
        dropped: Whether it no longer exists.
        schema_changed: Whether its columns differ from before.
        location: Folder of its files.
        table_schema: Its columns now.
        snapshot_ids: The snapshots that were added, oldest first.
        rows: Its rows now; ``None`` if unknown.
        rows_added: ``None`` if unknown.
        rows_removed: ``None`` if unknown.
    """

    table: str
    before: str | None = None
    after: str | None = None
    change: ChangeKind | None = None
    created: bool = False
    dropped: bool = False
    schema_changed: bool = False
    location: str | None = None
    table_schema: Schema | None = None
    snapshot_id: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    rows: int | None = None
    rows_added: int | None = None
    rows_removed: int | None = None


class DownstreamEvent(Value):
    """What a downstream system is sent.

    It may be sent more than once: ``event_id`` stays the same.

    Attributes:
        version: Of this form.
        event_id: Identifies the event over all deliveries, to every system.
        kind: What happened.
        run_id: The run that did it; ``None`` for ``current``.
        ref: The branch that was published to.
        commit: The commit on it; ``None`` if nothing was published.
        parent: The commit before.
        actor: Who published, as far as known.
        at: When it was committed, or when the run ended.
        tables: The tables that it is about: those that the system's settings ask for.
    """

    version: int = EVENT_VERSION
    event_id: str
    kind: DownstreamKind
    run_id: str | None = None
    ref: str = "main"
    commit: str | None = None
    parent: str | None = None
    actor: str | None = None
    at: datetime
    tables: tuple[ChangedTable, ...]


class Subscription(Value):
    """Which events a downstream system gets.

    Attributes:
        name: The system's name.
        mirrors: Whether it points at the tables' metadata files, so that only the newest state of a table matters. Its
            readers see what the files hold, so it gets no quarantine tables.
    """

    name: str
    events: tuple[DownstreamKind, ...]
    tables: tuple[str, ...] = ("*",)
    mirrors: bool = False

    def wanted(self, kind: DownstreamKind, tables: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``tables`` that it's notified of in such an event.

        Example:
            >>> glue = Subscription(name="glue", events=("published",), tables=("nyc.*",))
            >>> glue.wanted("published", ["nyc.trips", "lab.runs"]), glue.wanted("rejected", ["nyc.trips"])
            (('nyc.trips',), ())
            >>> glue.model_copy(update={"mirrors": True}).wanted("published", ["nyc.trips", "nyc.trips__quarantine"])
            ('nyc.trips',)
        """
        if kind not in self.events:
            return ()
        found = (one for one in tables if any(fnmatchcase(one, pattern) for pattern in self.tables))
        return tuple(one for one in found if not (self.mirrors and is_quarantine(one)))


class Delivery(Value):
    """One event on its way to one downstream system, as the journal records it.

    Attributes:
        delivery_id: Its number; a system gets the events of a table in this order.
        downstream: The system's name.
        kind: What the event is about.
        commit: The commit whose tables it describes, if any.
        run_id: The run, if any.
        tables: The tables that the system is notified of.
        state: How far it is.
        tries: How often it was tried.
        queued_at: When it was queued.
        next_at: When it is tried again, if it's pending.
        failing_since: When it failed first, since somebody last asked to retry it.
        ended_at: When it was sent, given up or skipped.
        reason: Why the last try failed, or why it was skipped.
    """

    delivery_id: int
    downstream: str
    kind: DownstreamKind
    ref: str
    commit: str | None = None
    run_id: str | None = None
    tables: tuple[str, ...]
    state: DeliveryState = "pending"
    tries: int = 0
    queued_at: datetime
    next_at: datetime | None = None
    failing_since: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None


class DownstreamStatus(Value):
    """How far one downstream system is.

    Attributes:
        type: Its type; ``None`` if the settings here don't name it.
        mirrors: Whether it points at the tables' metadata files.
        since: When it was seen first: it gets the events from then on. ``None`` if nothing was published since it's in
            the settings.
        pending: Deliveries that are queued.
        failed: Deliveries that were given up and wait for a decision; later ones of their tables wait, too.
        sent: Deliveries that arrived.
        oldest: When the oldest one that is queued or given up was queued.
        next_at: When the next one is tried.
        last_sent_at: When the last one arrived.
        reason: Why the oldest one that failed failed last.
    """

    name: str
    type: str | None = None
    mirrors: bool = False
    since: datetime | None = None
    pending: int = 0
    failed: int = 0
    sent: int = 0
    oldest: datetime | None = None
    next_at: datetime | None = None
    last_sent_at: datetime | None = None
    reason: str | None = None


class DownstreamCheck(Value):
    """Whether a downstream system can be reached from here.

    Attributes:
        works: Whether it can.
        detail: What was checked, or what is wrong.
    """

    name: str
    type: str
    works: bool
    detail: str


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
