"""Late: tables to which nothing was published for longer than is expected, by what the journal knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from lakegate.model.durations import parse_duration
from lakegate.model.notices import LateTable, Notice
from lakegate.model.run import Run, RunKind
from lakegate.protocols import Journal, Notifier

_BRINGS_DATA: tuple[RunKind, ...] = ("ingest", "transaction", "branch")


def find_late(journal: Journal, expected: Mapping[str, str], now: datetime) -> tuple[LateTable, ...]:
    """Return the tables that are late, as the settings list them.

    What was taken back since does not count, nor does taking back.

    Args:
        journal: The journal.
        expected: By table, the length of time within which something should be published: ``1d``.
        now: The time.

    Raises:
        RetryableError: When the journal is away.
    """
    late = []
    for table, every in expected.items():
        last = _last_publish(journal, table)
        if last is None or now - (last.finished_at or last.started_at) > parse_duration(every):
            told = {} if last is None else {"last": last.finished_at or last.started_at, "run_id": last.run_id}
            late.append(LateTable(table=table, expected_every=every, **told))
    return tuple(late)


def tell_late(notifier: Notifier, late: Sequence[LateTable], now: datetime) -> tuple[LateTable, ...]:
    """Tell of tables that are late, of each once in the time that is expected of it, until something is published.

    Returns:
        The tables, with what came of telling of them.
    """
    told = []
    for table in late:
        notice = Notice(event="late", severity="error", tables=(table.table,), late=table, at=now)
        again_s = parse_duration(table.expected_every).total_seconds()
        notifications = notifier.tell(notice, alert=f"late {table.table} {table.run_id}", window_s=again_s)
        told.append(table.model_copy(update={"notifications": tuple(notifications)}))
    return tuple(told)


def _last_publish(journal: Journal, table: str) -> Run | None:
    found = [run for kind in _BRINGS_DATA for run in journal.runs(table=table, status="published", kind=kind, limit=1)]
    return max(found, key=lambda run: run.finished_at or run.started_at, default=None)
