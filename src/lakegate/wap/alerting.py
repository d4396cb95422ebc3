"""Alerts about runs, files, late tables and undelivered downstream events. They never change a run's outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from lakegate.context import Context
from lakegate.errors import LakegateError
from lakegate.model.downstream import Delivery, LateTable, Level, Notice
from lakegate.model.run import FileCheckpoint, Notification, Run
from lakegate.model.words import parse_duration
from lakegate.ports import Narrator, Notifier

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal

_LOG = logging.getLogger(__name__)


def alert_run(context: Context, run: Run, *, recovered: bool = False) -> Run:
    """Send alerts about a run that has ended, and record them in the journal.

    Returns:
        The run, with its ``notifications``.

    Raises:
        KeyboardInterrupt: When interrupted; the message says that the run had ended.
    """
    if context.notifier is None or run.finished_at is None or run.status not in ("published", "rejected", "failed"):
        return run
    severity = _severity(run, recovered=recovered)
    notice = Notice(
        event=run.status, recovered=recovered, severity=severity, tables=run.tables, run=run, at=run.finished_at
    )
    try:
        notifications = _send(context.notifier, notice)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Run {run.run_id} had ended: {run.status}. Some alerts weren't sent.") from None
    _record(context.journal, context.narrator, run.run_id, notifications)
    return run.model_copy(update={"notifications": (*run.notifications, *notifications)})


def alert_given_up(notifier: Notifier, journal: Journal, narrator: Narrator, table: str, file: FileCheckpoint) -> None:
    """Send alerts about a table's file that was given up; the file's last run records them."""
    notice = Notice(event="given_up", severity="error", tables=(table,), file=file, at=file.noted_at)
    _record(journal, narrator, file.run_id, _send(notifier, notice))


def alert_undelivered(context: Context, delivery: Delivery) -> None:
    """Send alerts about a downstream delivery that was given up; its run records them."""
    if context.notifier is None:
        return
    at = delivery.ended_at or delivery.queued_at
    notice = Notice(event="undelivered", severity="error", tables=delivery.tables, delivery=delivery, at=at)
    _record(context.journal, context.narrator, delivery.run_id, _send(context.notifier, notice))


def _record(journal: Journal, narrator: Narrator, run_id: str | None, notifications: Sequence[Notification]) -> None:
    _narrate(narrator, notifications)
    if notifications and run_id is not None:
        with suppress(LakegateError):  # without the journal, the run is shown without its alerts
            journal.note_notifications(run_id, notifications)


def _narrate(narrator: Narrator, notifications: Sequence[Notification]) -> None:
    for notification in notifications:
        if notification.outcome == "failed":
            narrator.note(f"The alert to channel '{notification.channel}' failed: {notification.reason}")


def _send(notifier: Notifier, notice: Notice) -> Sequence[Notification]:
    try:
        return tuple(notifier.send(notice))
    except Exception as error:  # noqa: BLE001 - a broken notifier must not fail a run
        # The error's text may contain secrets.
        _LOG.warning("No alert was sent: %s", type(error).__name__)
        return ()


def _severity(run: Run, *, recovered: bool) -> Level:
    if run.status != "published" or run.accepted is not None:
        return "error"
    warns = recovered or run.quarantined or any(report.warnings for report in run.reports)
    return "warn" if warns else "info"


def find_late(journal: Journal, expected: Mapping[str, str], now: datetime) -> tuple[LateTable, ...]:
    """Return the tables that nothing was published to within their ``expected`` interval, such as ``1d``.

    A publish that has been reverted doesn't count, and neither does the revert.
    """
    late, published = [], journal.pages.last_publishes(list(expected))
    for table, every in expected.items():
        run = published.get(table)
        last = None if run is None else run.finished_at or run.started_at
        if last is None or now - last > parse_duration(every):
            run_id = None if run is None else run.run_id
            late.append(LateTable(table=table, expected_every=every, last=last, run_id=run_id))
    return tuple(late)


def alert_late(notifier: Notifier, late: Sequence[LateTable], now: datetime) -> tuple[LateTable, ...]:
    """Send alerts about late tables, at most one per expected interval; return the tables with their notifications."""
    alerted = []
    for table in late:
        notice = Notice(event="late", severity="error", tables=(table.table,), late=table, at=now)
        alerted.append(table.model_copy(update={"notifications": tuple(notifier.send(notice))}))
    return tuple(alerted)
