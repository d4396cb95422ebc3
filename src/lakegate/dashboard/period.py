"""What the runs of a period add up to, for each table and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.overview import LakeFacts, read_facts
from lakegate.dashboard.values import Problem
from lakegate.journal.pages import RunFilter
from lakegate.model.base import Value
from lakegate.model.journal import RunLine
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import Run, RunKind

_MOST_RUNS = 2_000
"""Runs in a report: reading so many takes a second or two."""
_MOST_UNDECIDED = 20
_WRITES: tuple[RunKind, ...] = ("ingest", "transaction", "branch")
"""Runs that bring data; reverts and restores take it back."""


class FailingCheck(Value):
    """A check that failed in the period.

    Attributes:
        severity: ``error``, ``warn`` or ``quarantine``.
        failing_rows: Rows that failed it, in all these runs, also those that it set aside.
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
        rows: Rows published to it, without those that were reverted since.
        last_publish: When something was last published to it, in the period or before, that wasn't reverted since.
        late_after: How often something should be published to it, from the settings; ``None`` if they don't say.
        is_late: Whether it's later than that.
        waiting: Ids of the rejected runs whose branches wait for a decision now, newest first.
    """

    table: str
    runs: dict[str, int]
    rows: int
    last_publish: datetime | None = None
    late_after: str | None = None
    is_late: bool = False
    waiting: tuple[str, ...] = ()
    quarantined: int = 0


class PeriodReport(Value):
    """Many runs at a glance.

    Attributes:
        since: Beginning of the period; ``None`` for all that the journal has.
        table: The only table that it's about, if it is about one.
        rows: Rows published, without those that were reverted since.
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


class Period(NamedTuple):
    """A period: what its runs add up to, and the runs.

    Attributes:
        report: What they add up to.
        undecided: The newest runs whose branches wait for a decision, from before the period, too.
    """

    report: PeriodReport
    runs: Sequence[Run]
    undecided: Sequence[Run]


def period(model: ReadModel, *, since: datetime | None, table: str | None = None, most: int = _MOST_RUNS) -> Period:
    """Return what the runs of a period add up to, and what waits for somebody now.

    Args:
        since: Beginning of the period; ``None`` for all that the journal has.
        table: The only table to report on; runs may have written others, too.

    Returns:
        The period. If the catalog is unavailable, what is waiting comes from the journal alone.
    """
    pages, problems = model.journal.pages, list[Problem]()
    runs, end = pages.runs(RunFilter(table=table, since=since), limit=most, whole=False)
    facts = read_facts(model, problems)
    late = model.settings.notify.late
    # Quarantined rows belong to the table that they were to be published to.
    names = {name for run in runs for name in run.tables if not is_quarantine(name)}
    names |= {*late, *facts.waiting, *facts.quarantined}
    wanted = [name for name in sorted(names) if table in (None, name)]
    published = pages.last_publishes(wanted)
    tables = [_table(name, runs, facts, published.get(name), late.get(name)) for name in wanted]
    waiting = sorted({run_id for one in tables for run_id in one.waiting}, reverse=True)[:_MOST_UNDECIDED]
    documents = pages.runs_of(waiting, whole=False)
    report = PeriodReport(
        since=since,
        until=model.now(),
        table=table,
        runs=dict(Counter(run.status for run in runs)),
        rows=sum(one.rows for one in tables),
        tables=tuple(sorted(tables, key=lambda one: (not (one.waiting or one.is_late or one.quarantined), one.table))),
        checks=_checks(runs, table),
        is_complete=end is None,
    )
    return Period(report, runs, [documents[one] for one in waiting if one in documents])


def _table(name: str, runs: Sequence[Run], facts: LakeFacts, last: RunLine | None, every: str | None) -> TableReport:
    own = [run for run in runs if name in run.tables]
    return TableReport(
        table=name,
        runs=dict(Counter(run.status for run in own)),
        rows=sum(_rows_into(name, run) for run in own if run.status == "published" and run.kind in _WRITES),
        last_publish=None if last is None else last.finished_at or last.started_at,
        late_after=every,
        is_late=name in facts.late,
        waiting=tuple(line.run_id for line in facts.waiting.get(name, ())),
        quarantined=facts.quarantined.get(name, 0),
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
                if result.verdict != "fail" and not result.quarantined:
                    continue
                rows = result.failing_rows if result.verdict == "fail" else result.quarantined
                known = failed.get(key)
                failed[key] = FailingCheck(
                    table=report.table,
                    check=result.check,
                    name=result.name,
                    severity=result.severity,
                    runs=1 if known is None else known.runs + 1,
                    of_runs=0,
                    failing_rows=rows + (0 if known is None else known.failing_rows),
                    last=run.run_id if known is None else known.last,
                )
    counted = (one.model_copy(update={"of_runs": asked[key]}) for key, one in failed.items())
    return tuple(sorted(counted, key=lambda one: (one.severity != "error", -one.runs, one.table, one.name)))
