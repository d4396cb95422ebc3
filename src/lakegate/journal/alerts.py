"""Which alerts were sent lately: one message of a kind covers the others for a while."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, select

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import ALERT_GROUPS as GROUPS
from lakegate.journal.schema import as_text

_KEPT = timedelta(days=90)


def claim(tx: JournalTransaction, channel: str, alert: str, lead_s: float) -> bool:
    """See :meth:`lakegate.journal.journal.Journal.claim_alert`."""
    tx.lock(f"alert {channel} {alert}")
    now = tx.now()
    query = select(GROUPS.c.ends_at).where(GROUPS.c.channel == channel, GROUPS.c.alert == alert)
    ends_at = tx.execute(query).scalar_one_or_none()
    if ends_at is not None and ends_at > as_text(now):
        return False
    tx.execute(delete(GROUPS).where(GROUPS.c.ends_at < as_text(now - _KEPT)))
    cover(tx, channel, alert, lead_s)
    return True


def cover(tx: JournalTransaction, channel: str, alert: str, for_s: float) -> None:
    """Send no message of this kind for the next seconds."""
    row = (channel, alert, as_text(tx.now() + timedelta(seconds=for_s)))
    tx.insert(GROUPS, [row], ("channel", "alert", "ends_at"), key="channel, alert")
