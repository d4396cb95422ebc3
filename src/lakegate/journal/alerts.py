"""Messages that say the same of a table, counted, so that one of them stands for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, select

from lakegate.journal.database import Database
from lakegate.journal.tables import ALERT_GROUPS, as_text
from lakegate.model.notices import AlertGroup

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
    """

    ends_at: datetime
    number: int = 0
    untold: int = 0
    thread: str | None = None

    @property
    def place(self) -> AlertGroup:
        """The place of the newest message."""
        return AlertGroup(number=self.number, missed=self.untold - 1, thread=self.thread)


def joined(known: Tally | None, now: datetime, window_s: float) -> Tally:
    """Return the group with one message more; a new one when the known one is over."""
    untold = 0 if known is None else known.untold
    if known is None or known.ends_at <= now:
        known = Tally(ends_at=now + timedelta(seconds=window_s))
    return replace(known, number=known.number + 1, untold=untold + 1)


def settled(known: Tally, now: datetime, place: AlertGroup, *, sent: bool, thread: str | None) -> Tally:
    """Return the group after the message at ``place`` was sent, or was not."""
    if sent:
        return replace(known, untold=max(known.untold - place.missed - 1, 0), thread=thread or known.thread)
    return replace(known, ends_at=min(known.ends_at, now + timedelta(seconds=RETRY_AFTER_S)))


def join(database: Database, connection: Connection, channel: str, alert: str, window_s: float) -> AlertGroup:
    """Add one message to its group; see :meth:`lakegate.protocols.Journal.join_alert`."""
    database.lock(connection, [f"alert {channel} {alert}"])
    now = database.now(connection)
    tally = joined(_find(connection, channel, alert), now, window_s)
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
) -> None:
    """Write down whether a message was sent; see :meth:`lakegate.protocols.Journal.settle_alert`."""
    database.lock(connection, [f"alert {channel} {alert}"])
    known = _find(connection, channel, alert)
    if known is not None:
        tally = settled(known, database.now(connection), place, sent=sent, thread=thread)
        _put(database, connection, channel, alert, tally)


def _find(connection: Connection, channel: str, alert: str) -> Tally | None:
    query = select(ALERT_GROUPS).where(ALERT_GROUPS.c.channel == channel, ALERT_GROUPS.c.alert == alert)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return Tally(datetime.fromisoformat(row.ends_at), row.number, row.untold, row.thread)


def _put(database: Database, connection: Connection, channel: str, alert: str, tally: Tally) -> None:
    told = {
        "ends_at": as_text(tally.ends_at),
        "number": tally.number,
        "untold": tally.untold,
        "thread": tally.thread,
    }
    insert = database.upsert(ALERT_GROUPS).values(channel=channel, alert=alert, **told)
    connection.execute(insert.on_conflict_do_update(index_elements=["channel", "alert"], set_=told))
