"""Messages that say the same of a table, counted, so that one of them stands for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from lakegate.journal.database import Database
from lakegate.journal.schema import ALERT_GROUPS, as_text
from lakegate.model.notices import AlertGroup, CountedAlert, Notice

RETRY_AFTER_S = 60.0
"""Seconds for which a message that could not be sent stands for others, lest each of them waits for a dead server."""
_KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Tally:
    """What is remembered of a group.

    Attributes:
        ends_at: When the next message begins a new one.
        number: Messages so far, told or not.
        untold: Messages since the last one that was sent.
        thread: Where the first one was sent, if the channel has threads.
        about: What they say, if they are to be told of together when the group is over.
    """

    ends_at: datetime
    number: int = 0
    untold: int = 0
    thread: str | None = None
    about: Notice | None = None

    @property
    def place(self) -> AlertGroup:
        """The place of the newest message."""
        return AlertGroup(number=self.number, missed=self.untold - 1, thread=self.thread)


def joined(known: Tally | None, now: datetime, lead_s: float, about: Notice | None = None) -> Tally:
    """Return the group with one message more; a new one when the known one is over.

    A new one is over in ``lead_s`` seconds, unless its first message is sent until then: whoever was to send it may
    be dead.
    """
    untold = 0 if known is None else known.untold
    if known is None or known.ends_at <= now:
        known = Tally(ends_at=now + timedelta(seconds=lead_s))
    return replace(known, number=known.number + 1, untold=untold + 1, about=about)


def settled(
    known: Tally, now: datetime, place: AlertGroup, *, sent: bool, thread: str | None, stands_s: float | None
) -> Tally:
    """Return the group after the message at ``place`` was sent, or was not."""
    if not sent:
        return replace(known, ends_at=min(known.ends_at, now + timedelta(seconds=RETRY_AFTER_S)))
    ends_at = known.ends_at if stands_s is None else now + timedelta(seconds=stands_s)
    untold = max(known.untold - place.missed - 1, 0)
    return replace(known, ends_at=ends_at, untold=untold, thread=thread or known.thread)


def is_counted(tally: Tally, now: datetime) -> bool:
    """Tell whether a group is over and holds messages that nobody was told of, though they are to be told of."""
    return tally.ends_at <= now and tally.untold > 0 and tally.about is not None


def join(
    database: Database, connection: Connection, channel: str, alert: str, lead_s: float, about: Notice | None
) -> AlertGroup:
    """Add one message to its group; see :meth:`lakegate.journal.journal.Journal.join_alert`."""
    database.lock(connection, [f"alert {channel} {alert}"])
    now = database.now(connection)
    tally = joined(_find(connection, channel, alert), now, lead_s, about)
    _put(database, connection, channel, alert, tally)
    if tally.number == 1:
        connection.execute(delete(ALERT_GROUPS).where(ALERT_GROUPS.c.ends_at < as_text(now - _KEPT)))
    return tally.place


def settle(
    database: Database,
    connection: Connection,
    channel: str,
    alert: str,
    place: AlertGroup,
    *,
    sent: bool,
    thread: str | None,
    stands_s: float | None,
) -> None:
    """Write down whether a message was sent; see :meth:`lakegate.journal.journal.Journal.settle_alert`."""
    database.lock(connection, [f"alert {channel} {alert}"])
    known = _find(connection, channel, alert)
    if known is not None:
        now = database.now(connection)
        tally = settled(known, now, place, sent=sent, thread=thread, stands_s=stands_s)
        _put(database, connection, channel, alert, tally)


def take_counted(
    database: Database, connection: Connection, channels: Sequence[str], lead_s: float, limit: int
) -> Iterator[CountedAlert]:
    """Yield groups that are over; see :meth:`lakegate.journal.journal.Journal.take_counted_alerts`."""
    # Others who take would lock the same groups in an order of their own.
    database.lock(connection, ["counted alerts"])
    known = ALERT_GROUPS.c
    over = known.ends_at <= as_text(database.now(connection))
    asked = known.channel.in_(channels) & over & (known.untold > 0) & known.about.is_not(None)
    query = select(known.channel, known.alert).where(asked).order_by(known.ends_at).limit(limit)
    for channel, alert in connection.execute(query).tuples().all():
        database.lock(connection, [f"alert {channel} {alert}"])
        now = database.now(connection)
        tally = _find(connection, channel, alert)
        # Somebody else may have taken it since.
        if tally is None or tally.about is None or not is_counted(tally, now):
            continue
        _put(database, connection, channel, alert, replace(tally, ends_at=now + timedelta(seconds=lead_s)))
        yield CountedAlert(channel=channel, alert=alert, about=tally.about, place=tally.place)


def _find(connection: Connection, channel: str, alert: str) -> Tally | None:
    query = select(ALERT_GROUPS).where(ALERT_GROUPS.c.channel == channel, ALERT_GROUPS.c.alert == alert)
    row = connection.execute(query).one_or_none()
    return None if row is None else _tally(row)


def _tally(row: Row[Any]) -> Tally:
    about = None if row.about is None else Notice.model_validate_json(row.about)
    return Tally(datetime.fromisoformat(row.ends_at), row.number, row.untold, row.thread, about)


def _put(database: Database, connection: Connection, channel: str, alert: str, tally: Tally) -> None:
    told: dict[str, str | int | None] = {
        "ends_at": as_text(tally.ends_at),
        "number": tally.number,
        "untold": tally.untold,
        "thread": tally.thread,
        "about": None if tally.about is None else tally.about.model_dump_json(),
    }
    row = {"channel": channel, "alert": alert, **told}
    database.insert(connection, ALERT_GROUPS, [tuple(row.values())], tuple(row), key="channel, alert")
