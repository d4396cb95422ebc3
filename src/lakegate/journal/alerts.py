"""Groups of alerts that say the same about a table: one message is sent, and the others are only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import ValidationError
from sqlalchemy import delete, select

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import ALERT_GROUPS as GROUPS
from lakegate.journal.schema import as_text
from lakegate.model.downstream import AlertGroup, CountedAlert, Notice

RETRY_AFTER_S = 60.0
"""Seconds after a failed message in which no other message of its group is tried: each would wait for a dead server."""
_KEPT = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Tally:
    """What the journal knows about a group.

    Attributes:
        ends_at: When the group ends: a later message starts a new one.
        number: Number of messages so far, sent or counted.
        untold: Number of messages since the last one that was sent.
        thread: Thread of the first message, if the channel has threads.
        about: What the messages say, if a final message gives their number and this version can read it.
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
    """Return the group with one more message; a new group if the known one has ended.

    A new group ends after ``lead_s`` seconds, unless its first message is sent by then: the sender may be dead.
    """
    untold = 0 if known is None else known.untold
    if known is None or known.ends_at <= now:
        known = Tally(ends_at=now + timedelta(seconds=lead_s))
    return replace(known, number=known.number + 1, untold=untold + 1, about=about)


def settled(
    known: Tally, now: datetime, place: AlertGroup, *, sent: bool, thread: str | None, window_s: float | None
) -> Tally:
    """Return the group after the message at ``place`` was sent or failed."""
    if not sent:
        return replace(known, ends_at=min(known.ends_at, now + timedelta(seconds=RETRY_AFTER_S)))
    ends_at = known.ends_at if window_s is None else now + timedelta(seconds=window_s)
    untold = max(known.untold - place.missed - 1, 0)
    return replace(known, ends_at=ends_at, untold=untold, thread=thread or known.thread)


def lock(tx: JournalTransaction, channel: str, alert: str) -> Tally | None:
    """Return a group, locked until the transaction ends; ``None`` if there's none."""
    tx.lock(f"alert {channel} {alert}")
    row = tx.execute(select(GROUPS).where(GROUPS.c.channel == channel, GROUPS.c.alert == alert)).one_or_none()
    if row is None:
        return None
    about: Notice | None = None
    if row.about is not None:
        with suppress(ValidationError):  # a newer lakegate wrote it, and will send the group's number
            about = Notice.model_validate_json(row.about)
    return Tally(datetime.fromisoformat(row.ends_at), row.number, row.untold, row.thread, about)


def put(tx: JournalTransaction, channel: str, alert: str, tally: Tally) -> None:
    """Insert or replace a group."""
    about = None if tally.about is None else tally.about.model_dump_json()
    row = (channel, alert, as_text(tally.ends_at), tally.number, tally.untold, tally.thread, about)
    names = ("channel", "alert", "ends_at", "number", "untold", "thread", "about")
    tx.insert(GROUPS, [row], names, key="channel, alert")


def forget_old(tx: JournalTransaction, now: datetime) -> None:
    """Delete groups that ended long ago."""
    tx.execute(delete(GROUPS).where(GROUPS.c.ends_at < as_text(now - _KEPT)))


def take_counted(tx: JournalTransaction, channels: Sequence[str], lead_s: float, limit: int) -> Iterator[CountedAlert]:
    """Yield groups that have ended; see :meth:`lakegate.journal.journal.Journal.take_counted_alerts`."""
    # Without this lock, a concurrent call could lock the same groups in another order.
    tx.lock("counted alerts")
    known = GROUPS.c
    has_ended = known.ends_at <= as_text(tx.now())
    wanted = known.channel.in_(channels) & has_ended & (known.untold > 0) & known.about.is_not(None)
    query = select(known.channel, known.alert).where(wanted).order_by(known.ends_at)
    taken = 0
    for channel, alert in tx.execute(query).tuples().all():
        if taken == limit:
            return
        tally, now = lock(tx, channel, alert), tx.now()
        if tally is None or tally.about is None or tally.untold == 0 or tally.ends_at > now:
            continue  # another process has taken it since
        put(tx, channel, alert, replace(tally, ends_at=now + timedelta(seconds=lead_s)))
        taken += 1
        yield CountedAlert(channel=channel, alert=alert, about=tally.about, place=tally.place)
