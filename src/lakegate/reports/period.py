"""The runs of a period in figures, and the page that shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from lakegate.dashboard.model import Problem, ReadModel
from lakegate.dashboard.overview import LakeFacts, read_facts
from lakegate.errors import RetryableError
from lakegate.journal.pages import RunFilter
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import BRINGS_DATA, Run, RunLine
from lakegate.model.words import command_line, count, counted
from lakegate.reports.page import render, when
from lakegate.run_text import StatusText

_MOST_RUNS = 2_000
"""Most runs in a report. Reading that many takes a second or two."""
_MOST_UNDECIDED = 20


class FailingCheck(Value):
    """A check that failed in the period.

    Attributes:
        severity: ``error``, ``warn`` or ``quarantine``. A check that set rows aside, and in another run failed because
            there were too many, counts as ``error``.
        failing_rows: Rows that failed it in all runs, including quarantined ones.
        last: The newest run in which it failed.
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
        rows: Rows published to it, without reverted ones.
        last_publish: Its last publish that wasn't reverted, in the period or before.
        late_after: How often a publish is expected, from the settings; ``None`` if no limit is set.
        is_late: Whether it's overdue.
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
    """The runs of a period at a glance.

    Attributes:
        since: Start of the period; ``None`` for all runs in the journal.
        table: The only table in the report, if it's limited to one.
        rows: Rows published, without reverted ones.
        checks: The failed checks: those that blocked a publish first, then by frequency.
        is_complete: Whether it covers all runs of the period.
        problems: Why the catalog couldn't be read, if so. Then ``waiting`` comes from the journal, and no quarantined
            rows are counted.
    """

    since: datetime | None
    until: datetime
    table: str | None = None
    runs: dict[str, int]
    rows: int
    tables: tuple[TableReport, ...]
    checks: tuple[FailingCheck, ...]
    is_complete: bool = True
    problems: tuple[Problem, ...] = ()


class PeriodRuns(NamedTuple):
    """The runs of a period, and their report.

    Attributes:
        undecided: The newest runs whose branches wait for a decision, including runs from before the period.
    """

    report: PeriodReport
    runs: Sequence[Run]
    undecided: Sequence[Run]

    @property
    def waiting(self) -> int:
        """Number of rejected runs that wait for a decision."""
        return len({run_id for one in self.report.tables for run_id in one.waiting})

    @property
    def uncounted(self) -> int:
        """Number of published runs whose rows are unknown."""
        return sum(run.status == "published" and run.rows_published is None for run in self.runs)


def period(model: ReadModel, *, since: datetime | None, table: str | None = None) -> PeriodRuns:
    """Return the runs of a period with their report, and the runs that wait for a decision now.

    Args:
        since: Start of the period; ``None`` for all runs in the journal.
        table: Report on this table only.

    Returns:
        The period. If the catalog is unavailable, waiting runs come from the journal alone.

    Raises:
        RetryableError: The journal can't be read.
    """
    pages, problems = model.journal.pages, list[Problem]()
    runs, end = pages.runs(RunFilter(table=table, since=since), limit=_MOST_RUNS, whole=False)
    facts = read_facts(model, problems)
    for problem in problems:
        if problem.part == "journal":  # without it, nothing would seem to wait or to be late
            raise RetryableError(problem.message, hint=problem.hint)
    late = model.settings.notify.late
    # Quarantined rows count for the table that they were meant for.
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
        checks=_failing_checks(runs, table),
        is_complete=end is None,
        problems=tuple(problems),
    )
    return PeriodRuns(report, runs, [documents[one] for one in waiting if one in documents])


def _table(name: str, runs: Sequence[Run], facts: LakeFacts, last: RunLine | None, every: str | None) -> TableReport:
    own = [run for run in runs if name in run.tables]
    return TableReport(
        table=name,
        runs=dict(Counter(run.status for run in own)),
        rows=sum(_rows_into(name, run) for run in own if run.status == "published" and run.kind in BRINGS_DATA),
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


def _failing_checks(newest_first: Sequence[Run], table: str | None) -> tuple[FailingCheck, ...]:
    answered: Counter[tuple[str, str]] = Counter()
    failed: dict[tuple[str, str], list[tuple[str, CheckResult]]] = {}
    for run in newest_first:
        for report in run.reports:
            for result in report.results if table in (None, report.table) else ():
                key = (report.table, result.check)
                answered[key] += 1
                if result.verdict == "fail" or result.quarantined:
                    failed.setdefault(key, []).append((run.run_id, result))
    checks = []
    for (of_table, check), failures in failed.items():
        results = [result for _, result in failures]
        has_blocked = any(one.blocks or one.severity == "error" for one in results)
        checks.append(
            FailingCheck(
                table=of_table,
                check=check,
                name=results[-1].name,
                severity="error" if has_blocked else results[-1].severity,
                runs=len(failures),
                of_runs=answered[of_table, check],
                failing_rows=sum(one.failing_rows if one.verdict == "fail" else one.quarantined for one in results),
                last=failures[0][0],
            )
        )
    return tuple(sorted(checks, key=lambda one: (one.severity != "error", -one.runs, one.table, one.name)))


def period_page(found: PeriodRuns, *, link: str | None = None) -> str:
    """Return the page of a period, as one file that loads nothing.

    Args:
        link: URL of the dashboard.
    """
    report = found.report
    return render(
        status=_status(found),
        heading=report.table or "All tables",
        eyebrow="Everything so far" if report.since is None else f"{when(report.since)} to {when(report.until)}",
        now=report.until,
        link=link,
        found=found,
    )


def _status(found: PeriodRuns) -> StatusText:
    """Return what a period's runs mean for readers."""
    report, total = found.report, len(found.runs)
    late, failed = [one.table for one in report.tables if one.is_late], report.runs.get("failed", 0)
    happened = "No runs in this period."
    if total:
        happened = f"{count(report.runs.get('published', 0))} of {counted(total, 'run')} published "
        happened += f"{counted(report.rows, 'row')}."
    if found.waiting or late:
        parts = [f"{counted(found.waiting, 'rejected batch', 'rejected batches')} for you to decide on"]
        parts = parts[: found.waiting]
        parts += [f"{counted(len(late), 'table')} later than expected: {', '.join(late[:3])}"] * bool(late)
        means = f"Open: {'; '.join(parts)}. What was rejected isn't on main; no reader sees it."
        return StatusText("bad", "Needs a decision" if found.waiting else "Late", happened, means, ())
    if not total:
        table = () if report.table is None else ("--table", report.table)
        longer = ("Look further back", command_line(("lakegate", "report", *table, "--since", "90d")))
        return StatusText("idle", "Quiet", happened, "Nothing was published, and nothing is waiting.", (longer,))
    if failed:
        unknown = sum(run.may_be_published for run in found.runs)
        published = f"{count(unknown)} may still have been published" if unknown else "none was published"
        means = f"{counted(failed, 'run')} couldn't finish; {published}."
        return StatusText("warn", "Some runs failed", happened, means, ())
    return StatusText("good", "All is well", happened, "Nothing is waiting for a decision.", ())
