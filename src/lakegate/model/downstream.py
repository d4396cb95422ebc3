"""Alerts to people and events for downstream systems, and their delivery."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import MAIN
from lakegate.model.run import FileCheckpoint, Notification, Run
from lakegate.model.schema import Schema
from lakegate.model.tables import ChangeKind

EVENT_VERSION = 1
"""Version of :class:`DownstreamEvent` as JSON. New fields don't change it."""

DownstreamKind = Literal["published", "reverted", "restored", "current", "rejected", "failed"]
"""What happened. ``current`` reports a table's present state, whatever led to it: on request, after a reset of the
target, and after the journal was lost."""
DeliveryState = Literal["pending", "sent", "failed", "skipped", "superseded"]
"""``failed``: given up, waiting for a decision. ``superseded``: covered by a later event for the same tables."""


class ChangedTable(Value):
    """What happened to one table.

    Attributes:
        before: Location of its metadata file before; ``None`` if it didn't exist, or in a ``current`` event.
        after: Location of its metadata file now; ``None`` if it was dropped, or if nothing was published.
        change: What was done to it, as :class:`~lakegate.model.tables.TableChange` says; ``None`` if unknown.
        schema_changed: Whether its columns differ from before.
        location: Folder of its files.
        table_schema: Its columns now.
        snapshot_ids: The snapshots that were added, oldest first.
        rows: Number of its rows now, like ``rows_added`` and ``rows_removed`` ``None`` if unknown.
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

    An event may be sent more than once, always with the same ``event_id``.

    Attributes:
        version: Version of this format.
        event_id: Identifies the event in all deliveries, to all systems.
        run_id: The run that did it; ``None`` for ``current``.
        ref: The branch that was published to.
        commit: The commit on it; ``None`` if nothing was published.
        parent: The commit before that one.
        actor: Who published, if known.
        at: When it was committed, or when the run ended.
        tables: The tables that it's about and that the system subscribes to.
    """

    version: int = EVENT_VERSION
    event_id: str
    kind: DownstreamKind
    run_id: str | None = None
    ref: str = MAIN
    commit: str | None = None
    parent: str | None = None
    actor: str | None = None
    at: datetime
    tables: tuple[ChangedTable, ...]


class Subscription(Value):
    """Which events a downstream system gets.

    Attributes:
        mirrors: Whether it points at the tables' metadata files. Then, only a table's newest state matters to it, and
            it gets no quarantine tables, because its readers would see their rows.
    """

    name: str
    events: tuple[DownstreamKind, ...]
    tables: tuple[str, ...] = ("*",)
    mirrors: bool = False

    def wanted(self, kind: DownstreamKind, tables: Iterable[str]) -> tuple[str, ...]:
        """Return which of ``tables`` it's notified of for this kind of event.

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
        commit: The commit whose tables it describes, if any.
        tables: The tables that the system is notified of.
        tries: Number of attempts.
        next_at: When it's tried next, if it's pending.
        failing_since: Time of the first failed attempt since the last manual retry.
        ended_at: When it was sent, given up or skipped.
        reason: Why the last attempt failed, or why it was skipped.
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
    """The state of one downstream system.

    Attributes:
        type: Its type; ``None`` if the settings here don't name it.
        mirrors: As in :class:`Subscription`.
        since: It gets events from this time on, when lakegate first saw it in the settings. ``None`` if nothing was
            published since.
        pending: Number of queued deliveries.
        failed: Number of deliveries that were given up. Later ones for their tables wait for a decision, too.
        sent: Number of deliveries that arrived.
        oldest: When the oldest delivery that is queued or given up was queued.
        next_at: When the next delivery is tried.
        last_sent_at: When the last delivery arrived.
        reason: Last error of the oldest failed delivery.
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
"""Events that a channel can subscribe to. A run that recovery ended is both ``recovered`` and how it ended. One that
set rows aside is both ``quarantined`` and ``published``."""
Level = Literal["info", "warn", "error"]
LEVELS: tuple[Level, ...] = ("info", "warn", "error")
"""From the least to the most severe."""


class Notice(Value):
    """One alert, before it is sent.

    Attributes:
        event: What happened; for a run that recovery ended, how it ended.
        recovered: Whether recovery ended the run.
        run: The run that ended, if it's about one.
        late: The late table, if it's about one.
        file: The file that was given up, if it's about one: it failed too often.
        delivery: The delivery to a downstream system that was given up, if it's about one.
        at: When it happened.
    """

    event: Event | Literal["test"]
    recovered: bool = False
    severity: Level
    tables: tuple[str, ...]
    run: Run | None = None
    late: LateTable | None = None
    file: FileCheckpoint | None = None
    delivery: Delivery | None = None
    at: datetime

    @property
    def quarantined(self) -> int:
        """Rows that the published run set aside."""
        published = None if self.run is None or self.event != "published" else self.run.publication
        return 0 if published is None else published.quarantined


class LateTable(Value):
    """A table without a publish for longer than expected.

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
