"""What the runs of a period add up to, for each table and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from lakegate.model.base import Value
from lakegate.model.run import Run, RunKind
from lakegate.model.words import parse_duration

_WRITES: tuple[RunKind, ...] = ("ingest", "transaction", "branch")
"""Runs that bring data; reverts and restores take it back."""


class FailingCheck(Value):
    """A check that failed in the period.

    Attributes:
        table: The table.
        check: The check in its canonical text.
        name: Its name.
        severity: ``error`` or ``warn``.
        runs: In how many runs it failed.
        of_runs: How many runs it was part of.
        failing_rows: Rows that failed it, in all these runs.
        last: The newest run that failed it.
    """

    table: str
    check: str
    name: str
    severity: str
    runs: int
    of_runs: int
    failing_rows: int
    last: str


class TableReport(Value):
    """One table in the period.

    Attributes:
        table: The table.
        runs: Its runs by status.
        rows: Rows published to it, without those that were reverted since.
        last_publish: When something was last published to it in the period.
        late_after: How often something should be published to it, as the settings have it; ``None`` if they don't.
        is_late: Whether it's later than that.
        waiting: Ids of the rejected runs whose branches wait for a decision, newest first.
    """

    table: str
    runs: dict[str, int]
    rows: int
    last_publish: datetime | None = None
    late_after: str | None = None
    is_late: bool = False
    waiting: tuple[str, ...] = ()


class PeriodReport(Value):
    """Many runs at a glance.

    Attributes:
        since: Beginning of the period; ``None`` for all that the journal has.
        until: Its end.
        table: The only table that it's about, if it is about one.
        runs: Runs by status.
        rows: Rows published, without those that were reverted since.
        tables: Each table, those that need somebody first.
        checks: The checks that failed, those that blocked a publish first, then the most frequent first.
        is_complete: Whether all runs of the period are in it.
    """

    since: datetime | None
    until: datetime
    table: str | None = None
    runs: dict[str, int]
    rows: int
    tables: tuple[TableReport, ...]
    checks: tuple[FailingCheck, ...]
    is_complete: bool = True


def period_report(
    runs: Sequence[Run],
    *,
    since: datetime | None,
    table: str | None = None,
    expected: Mapping[str, str] | None = None,
    is_complete: bool = True,
    now: datetime | None = None,
) -> PeriodReport:
    """Return what ``runs`` add up to.

    Args:
        runs: The runs of the period, newest first.
        since: Its beginning.
        table: The only table to report on; runs may have written others, too.
        expected: How often each table should be published to (the setting ``notify.late``).
        is_complete: Whether these are all runs of the period.
        now: Its end.
    """
    until = now or datetime.now(UTC)
    by_table: dict[str, list[Run]] = {}
    for run in runs:
        for name in run.tables:
            if table in (None, name):
                by_table.setdefault(name, []).append(run)
    late = {name: every for name, every in (expected or {}).items() if table in (None, name)}
    for name in late:
        by_table.setdefault(name, [])
    tables = [_table(name, found, late.get(name), until) for name, found in by_table.items()]
    return PeriodReport(
        since=since,
        until=until,
        table=table,
        runs=dict(Counter(run.status for run in runs)),
        rows=sum(one.rows for one in tables),
        tables=tuple(sorted(tables, key=lambda one: (not (one.waiting or one.is_late), one.table))),
        checks=_checks(runs, table),
        is_complete=is_complete,
    )


def waiting(runs: Iterable[Run]) -> list[Run]:
    """Return the rejected runs whose branches wait for a decision."""
    return [run for run in runs if run.status == "rejected" and run.branch_kept]


def _table(name: str, runs: Sequence[Run], every: str | None, until: datetime) -> TableReport:
    published = [run for run in runs if run.status == "published" and run.kind in _WRITES]
    last = max((run.finished_at or run.started_at for run in published), default=None)
    return TableReport(
        table=name,
        runs=dict(Counter(run.status for run in runs)),
        rows=sum(_rows_into(name, run) for run in published),
        last_publish=last,
        late_after=every,
        is_late=every is not None and (last is None or until - last > parse_duration(every)),
        waiting=tuple(run.run_id for run in waiting(runs)),
    )


def _rows_into(table: str, run: Run) -> int:
    if run.publication is not None and len(run.publication.tables) == 1:
        return run.publication.rows
    return sum(staged.rows for staged in run.staged if str(staged.table) == table)


def _checks(runs: Sequence[Run], table: str | None) -> tuple[FailingCheck, ...]:
    asked: Counter[tuple[str, str]] = Counter()
    failed: dict[tuple[str, str], FailingCheck] = {}
    for run in runs:
        for report in run.reports:
            if table not in (None, report.table):
                continue
            for result in report.results:
                key = (report.table, result.check)
                asked[key] += 1
                if result.verdict != "fail":
                    continue
                known = failed.get(key)
                failed[key] = FailingCheck(
                    table=report.table,
                    check=result.check,
                    name=result.name,
                    severity=result.severity,
                    runs=1 if known is None else known.runs + 1,
                    of_runs=0,
                    failing_rows=result.failing_rows + (0 if known is None else known.failing_rows),
                    last=run.run_id if known is None else known.last,
                )
    counted = (one.model_copy(update={"of_runs": asked[key]}) for key, one in failed.items())
    return tuple(sorted(counted, key=lambda one: (one.severity == "warn", -one.runs, one.table, one.name)))
