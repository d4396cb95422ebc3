"""Telling: those outside who want to know hear of runs that ended and of files that were given up.

It changes nothing of the run, and nothing for the file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from lakegate.errors import LakegateError
from lakegate.flow.rooms import Rooms
from lakegate.model.channels import Level
from lakegate.model.notices import GivenUpFile, Notice
from lakegate.model.run import Notification, Run
from lakegate.protocols import Journal, Narrator, Notifier

_LOG = logging.getLogger(__name__)


def tell(rooms: Rooms, run: Run, *, recovered: bool = False) -> Run:
    """Tell of a run that ended, and note in the journal what came of it.

    Whatever goes wrong with that, the run stays as it ended.

    Args:
        rooms: The lake's rooms.
        run: The run, as the journal has it.
        recovered: Whether recovery ended it.

    Returns:
        The run, with its ``notifications``.

    Raises:
        KeyboardInterrupt: When interrupted; the message says that the run had ended.
    """
    notice = None if rooms.notifier is None else _notice(run, recovered=recovered)
    if rooms.notifier is None or notice is None:
        return run
    try:
        notifications = _told(rooms.notifier, notice)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Run {run.run_id} had ended: {run.status}. Not everyone was told of it.") from None
    if not notifications:
        return run
    _narrate(rooms.narrator, notifications)
    # The run has ended, and is shown without them if need be.
    with suppress(LakegateError):
        rooms.journal.note_notifications(run.run_id, notifications)
    return run.model_copy(update={"notifications": (*run.notifications, *notifications)})


def tell_given_up(notifier: Notifier, journal: Journal, narrator: Narrator, file: GivenUpFile, now: datetime) -> None:
    """Tell of a file that was given up; what came of that is noted with its last run, if there is one.

    Each state of a file is told of once, whoever calls this and how often. Whatever goes wrong with that changes
    nothing for the file.

    Args:
        notifier: Tells.
        journal: The journal.
        narrator: Hears of channels that could not be told.
        file: The file.
        now: The time.
    """
    notice = Notice(event="given_up", severity="error", tables=(file.table,), file=file, at=now)
    notifications = _told(notifier, notice)
    _narrate(narrator, notifications)
    if notifications and file.run_id is not None:
        with suppress(LakegateError):
            journal.note_notifications(file.run_id, notifications)


def tell_counted(notifier: Notifier, narrator: Narrator) -> None:
    """Tell how many notices were counted, when the time is over for which one message stood for them.

    Those that cannot be told of are told of later.
    """
    try:
        _narrate(narrator, notifier.tell_counted())
    except Exception as error:  # noqa: BLE001 - as below
        _LOG.warning("Nobody was told: %s", type(error).__name__)


def _narrate(narrator: Narrator, notifications: Sequence[Notification]) -> None:
    for notification in notifications:
        if notification.outcome == "failed":
            narrator.note(f"Channel '{notification.channel}' was not told: {notification.reason}")


def _told(notifier: Notifier, notice: Notice) -> Sequence[Notification]:
    try:
        return tuple(notifier.tell(notice))
    except Exception as error:  # noqa: BLE001 - what is wrong with a notifier must not be a run's end
        # Its text may hold what must not be told.
        _LOG.warning("Nobody was told: %s", type(error).__name__)
        return ()


def _notice(run: Run, *, recovered: bool) -> Notice | None:
    if run.finished_at is None or run.status not in ("published", "rejected", "failed"):
        return None
    return Notice(
        event=run.status,
        recovered=recovered,
        severity=_severity(run, recovered=recovered),
        tables=run.tables,
        run=run,
        at=run.finished_at,
    )


def _severity(run: Run, *, recovered: bool) -> Level:
    if run.status != "published":
        return "error"
    return "warn" if recovered or any(report.warnings for report in run.reports) else "info"
