"""The runs of a period in figures, and the page that shows them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from lakegate.dashboard.model import Problem, ReadModel
from lakegate.dashboard.overview import LakeFacts, read_facts
from lakegate.errors import RetryableError
from lakegate.journal.pages import RunFilter
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import BRINGS_DATA, Run, RunLine
from lakegate.model.words import count, counted
from lakegate.reports.page import clipped, render, when
from lakegate.run_text import StatusText, describe_run, rows_of

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


_CHECKS = 100
_TABLES = 300
_RUNS = 100
_TEXT = 200


def period_page(found: PeriodRuns, *, link: str | None = None) -> str:
    """Return the page of a period, as one file that loads nothing.

    Args:
        link: URL of the dashboard.
    """
    report, runs = found.report, found.runs
    began = "Everything so far" if report.since is None else f"{when(report.since)} to {when(report.until)}"
    total = sum(report.runs.values())
    return render(
        status=_status_text(report, unknown=sum(run.may_be_published for run in runs)),
        heading=report.table or "All tables",
        eyebrow=began,
        now=report.until,
        notes=tuple(_notes(report, runs)),
        figures=(
            ("Published", f"{count(report.runs.get('published', 0))} of {counted(total, 'run')}"),
            ("Rows published", count(report.rows)),
            ("Rejected", count(report.runs.get("rejected", 0))),
            ("Failed", count(report.runs.get("failed", 0))),
        ),
        link=link,
        undecided=found.undecided,
        more_undecided=len(_waiting(report)) - len(found.undecided),
        tables=tuple(_tables(report, runs)),
    )


def _waiting(report: PeriodReport) -> set[str]:
    return {run_id for one in report.tables for run_id in one.waiting}


def _notes(report: PeriodReport, runs: Sequence[Run]) -> Iterator[str]:
    """Yield what the report leaves out."""
    uncounted = sum(run.status == "published" and run.rows_published is None for run in runs)
    if uncounted:
        yield f"The rows of {counted(uncounted, 'run')} aren't counted: the journal has only their commits."
    for problem in report.problems:
        yield f"{problem.message} Quarantined rows aren't counted, and decisions come from the journal alone."
    if not report.is_complete:
        yield f"Only the newest {count(sum(report.runs.values()))} runs of this period are counted."


def _status_text(report: PeriodReport, *, unknown: int) -> StatusText:
    """Return what a period's runs mean for readers; ``unknown`` is the number of failed ones that may be published."""
    undecided = len(_waiting(report))
    late = [one.table for one in report.tables if one.is_late]
    failed, total = report.runs.get("failed", 0), sum(report.runs.values())
    published = report.runs.get("published", 0)
    happened = (
        f"{count(published)} of {counted(total, 'run')} published {counted(report.rows, 'row')}." if total else ""
    )
    if undecided or late:
        parts = [f"{counted(undecided, 'rejected batch', 'rejected batches')} for you to decide on"] * bool(undecided)
        parts += [f"{counted(len(late), 'table')} later than expected: {', '.join(late[:3])}"] * bool(late)
        means = f"Open: {'; '.join(parts)}. What was rejected isn't on main; no reader sees it."
        return StatusText(
            "bad", "Needs a decision" if undecided else "Late", happened or "No runs in this period.", means, ()
        )
    if not total:
        table = () if report.table is None else ("--table", report.table)
        longer = ("Look further back", shlex.join(("lakegate", "report", *table, "--since", "90d")))
        means = "Nothing was published, and nothing is waiting."
        return StatusText("idle", "Quiet", "No runs in this period.", means, (longer,))
    if failed:
        means = f"{counted(failed, 'run')} couldn't finish; "
        if unknown:
            means += f"{'it' if failed == 1 else f'{count(unknown)} of them'} may still have been published."
        else:
            means += f"nothing of {'it' if failed == 1 else 'them'} was published."
        return StatusText("warn", "Some runs failed", happened, means, ())
    return StatusText("good", "All is well", happened, "Nothing is waiting for a decision.", ())


def _tables(report: PeriodReport, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    yield {
        "title": "Tables",
        "columns": ("Table", "Now", "Last publish", "Rows published"),
        "rows": [
            (one.table, _health(one), when(one.last_publish) or "never", count(one.rows))
            for one in report.tables[:_TABLES]
        ],
        "numbers": (3,),
    }
    yield {
        "title": "Checks that failed",
        "columns": ("Table", "Check", "Severity", "Runs", "Failing rows", "Last in run"),
        "rows": [
            (
                one.table,
                clipped(one.check, _TEXT),
                one.severity,
                f"{count(one.runs)} of {count(one.of_runs)}",
                count(one.failing_rows),
                one.last,
            )
            for one in report.checks[:_CHECKS]
        ],
        "numbers": (3, 4),
        "more": f"{count(len(report.checks) - _CHECKS)} more" if report.checks[_CHECKS:] else "",
    }
    yield {
        "title": "Runs",
        "columns": ("Run", "Table", "Status", "Rows", "Started", "What happened"),
        "rows": [_run(run) for run in runs[:_RUNS]],
        "numbers": (3,),
        "more": counted(len(runs) - _RUNS, "earlier run") if runs[_RUNS:] else "",
    }


def _run(run: Run) -> tuple[str, ...]:
    status = describe_run(run)
    happened = clipped(status.happened, _TEXT)
    return run.run_id, run.table, status.title, count(rows_of(run)), when(run.started_at), happened


def _health(one: TableReport) -> str:
    if one.waiting:
        return f"{len(one.waiting)} to decide"
    if one.is_late:
        return f"Late (every {one.late_after})"
    if one.quarantined:
        return f"{counted(one.quarantined, 'row')} in quarantine"
    if one.runs.get("failed", 0):
        return f"{one.runs['failed']} failed"
    return "OK" if one.runs.get("published") else "Quiet"
