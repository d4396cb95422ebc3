"""Rules: who is told of what, and which notices say the same."""

from __future__ import annotations

import hashlib
import json

from lakegate.model.channels import LEVELS, ChannelSettings
from lakegate.model.notices import AlertGroup, Notice


def concerns(channel: ChannelSettings, notice: Notice) -> bool:
    """Tell whether a channel asks for such notices."""
    events = {notice.event, "recovered"} if notice.recovered else {notice.event}
    return (
        not events.isdisjoint(channel.events)
        and LEVELS.index(notice.severity) >= LEVELS.index(channel.severity)
        and channel.concerns(notice.tables)
    )


def alert_of(notice: Notice) -> str:
    """Return a key that notices share which say the same of the same tables, for the same reason."""
    run = notice.run
    reasons: list[str] = []
    if run is not None:
        reasons = sorted({f"{report.table} {result.check}" for report in run.reports for result in report.failures})
        if run.error is not None:
            reasons.append(run.error.code)
    if notice.file is not None:
        reasons.append(notice.file.code)
    told = [notice.event, notice.recovered, sorted(notice.tables), reasons]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def once_of(notice: Notice) -> str | None:
    """Return a key of what is told of once only, whoever tells of it and when; ``None`` for anything else.

    A file is given up once in each of its states, though several processes may come to that at the same time.
    """
    if notice.file is None:
        return None
    told = json.dumps([notice.file.table, notice.file.uri, notice.file.stamp])
    return f"file {hashlib.sha256(told.encode()).hexdigest()[:32]}"


def is_sent(group: AlertGroup, *, threads: bool) -> bool:
    """Tell whether the message at ``group`` is sent: the first, and in its thread the second, fourth, eighth and so on.

    Example:
        >>> [number for number in range(1, 501) if is_sent(AlertGroup(number=number, thread="1.2"), threads=True)]
        [1, 2, 4, 8, 16, 32, 64, 128, 256]
        >>> is_sent(AlertGroup(number=2), threads=False)
        False
    """
    if group.number == 1:
        return True
    return threads and group.thread is not None and group.number & (group.number - 1) == 0
