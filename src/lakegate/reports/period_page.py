"""The runs of a period in figures, and the page that shows them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lakegate.dashboard.model import Problem, ReadModel
from lakegate.dashboard.overview import LakeFacts, read_facts
from lakegate.errors import RetryableError
from lakegate.journal.pages import RunFilter
from lakegate.model.base import Value
from lakegate.model.checks import CheckResult
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import BRINGS_DATA, Run, RunLine
from lakegate.model.words import count, counted
from lakegate.reports.page import (
    Child,
    Html,
    badge,
    clipped,
    commands,
    figures,
    left_out,
    page,
    status,
    table,
    tag,
    when,
)
from lakegate.reports.status_text import StatusText, Tone, describe_run, failing, rows_of

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
_STRIP = 40
"""Most runs in a table's strip of recent runs."""
_OPEN = 25
"""Most runs that are shown unfolded."""
_TEXT = 200
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)


def period_page(found: PeriodRuns, *, link: str | None = None) -> str:
    """Return the page of a period, as one file that loads nothing.

    Args:
        link: URL of the dashboard.
    """
    report, runs = found.report, found.runs
    status_text = _status_text(report, unknown=sum(run.may_be_published for run in runs))
    about = report.table or "All tables"
    return page(
        f"{status_text.title}: {about} · lakegate",
        tag("p", _period_text(report), class_="eyebrow"),
        tag("h1", about),
        status(status_text, _notes(report, runs)),
        _figures(report) if runs else commands(status_text.commands),
        tag("p", tag("a", "Open the dashboard", href=link)) if link else None,
        _decisions(found.undecided, len({run_id for one in report.tables for run_id in one.waiting})),
        _tables(report, runs),
        _checks(report.checks),
        _runs(runs),
        now=report.until,
    )


def _period_text(report: PeriodReport) -> list[str | Html]:
    return ["Everything so far"] if report.since is None else [when(report.since), " to ", when(report.until)]


def _notes(report: PeriodReport, runs: Sequence[Run]) -> list[Html]:
    """Return what the report leaves out."""
    uncounted = sum(run.status == "published" and run.rows_published is None for run in runs)
    said = [f"The rows of {counted(uncounted, 'run')} aren't counted: the journal has only their commits."] * bool(
        uncounted
    )
    said += [
        f"{one.message} Quarantined rows aren't counted, and decisions come from the journal alone."
        for one in report.problems
    ]
    if not report.is_complete:
        said.append(f"Only the newest {count(sum(report.runs.values()))} runs of this period are counted.")
    return [tag("p", one, class_="small") for one in said]


def _status_text(report: PeriodReport, *, unknown: int) -> StatusText:
    """Return what a period's runs mean for readers; ``unknown`` is the number of failed ones that may be published."""
    undecided = len({run_id for one in report.tables for run_id in one.waiting})
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


def _figures(report: PeriodReport) -> Html:
    total, published = sum(report.runs.values()), report.runs.get("published", 0)
    undecided = len({run_id for one in report.tables for run_id in one.waiting})
    rejected, failed = report.runs.get("rejected", 0), report.runs.get("failed", 0)
    of = tag("small", f" of {counted(total, 'run')}")
    items: list[tuple[str, Child, Tone | None]] = [
        ("Published", [count(published), of], None),
        ("Rows published", count(report.rows), None),
        ("Rejected", count(rejected), "bad" if undecided else None),
        ("Failed", count(failed), "warn" if failed else None),
    ]
    return figures(items)


def _decisions(undecided: Sequence[Run], total: int) -> Html | None:
    if not undecided:
        return None
    left = total - len(undecided)
    more = left_out(left, f"{count(left)} more: lakegate runs --status rejected")
    return tag("section", tag("h2", "For you to decide"), [_decision(run) for run in undecided], more)


def _decision(run: Run) -> Html:
    failed = [
        tag("li", tag("code", clipped(result.check, _TEXT)), f": {count(result.failing_rows)}{failing(result)}")
        for result in run.failures[:5]
    ]
    rows = rows_of(run)
    what = "" if rows is None else f"{counted(rows, 'row')}, "
    return tag(
        "article",
        tag("header", tag("h3", run.table), badge("bad", f"{len(run.failures)} failed")),
        tag("p", what, "run ", tag("code", run.run_id), ", ", when(run.started_at), class_="small soft"),
        tag("ul", failed, class_="list small"),
        commands(describe_run(run).commands),
        class_="card bad",
    )


def _tables(report: PeriodReport, runs: Sequence[Run]) -> Html | None:
    if not report.tables:
        return None
    by_table: dict[str, list[Run]] = {}
    for run in runs:
        for name in run.tables:
            by_table.setdefault(name, []).append(run)
    rows = [
        (
            one.table,
            _health(one),
            [*_ago(one.last_publish, report.until)],
            count(one.rows),
            _run_strip(by_table.get(one.table, [])),
        )
        for one in report.tables[:_TABLES]
    ]
    columns = ("Table", "Now", "Last publish", "Rows published", "Recent runs, newest on the right")
    return tag("section", tag("h2", "Tables"), table(columns, rows, label="Tables", numbers=(3,)))


def _health(one: TableReport) -> Html:
    if one.waiting:
        return badge("bad", f"{len(one.waiting)} to decide")
    if one.is_late:
        return badge("bad", f"Late (every {one.late_after})")
    if one.quarantined:
        return badge("warn", f"{counted(one.quarantined, 'row')} in quarantine")
    if one.runs.get("failed", 0):
        return badge("warn", f"{one.runs['failed']} failed")
    return badge("good", "OK") if one.runs.get("published") else badge("idle", "Quiet")


def _ago(time: datetime | None, now: datetime) -> tuple[str | Html, ...]:
    if time is None:
        return ("never",)
    passed = now.astimezone(UTC) - time
    if passed < _HOUR:
        said = f"{max(int(passed.total_seconds() // 60), 0)} min ago"
    elif passed < 2 * _DAY:
        said = f"{int(passed / _HOUR)} h ago"
    else:
        said = f"{int(passed / _DAY)} days ago"
    return (
        tag("time", said, datetime=f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", title=f"{time:%Y-%m-%d %H:%M:%S}"),
    )


def _run_strip(newest_first: Sequence[Run]) -> Html:
    """Return a mark per run. Both its colour and its height show the outcome."""
    shown = list(reversed(newest_first[:_STRIP]))
    tones = [describe_run(run).tone for run in shown]
    heights: dict[Tone, int] = {"good": 14, "warn": 20, "bad": 26, "idle": 8}
    first = _STRIP - len(shown)
    marks = [
        tag("rect", class_=tone, x=10 * (first + at), y=26 - heights[tone], width=7, height=heights[tone], rx=1)
        for at, tone in enumerate(tones)
    ]
    legend = ", ".join(f"{tones.count(tone)} {name}" for tone, name in _STRIP_LEGEND if tone in tones) or "none"
    return tag(
        "svg",
        tag("title", legend),
        marks,
        class_="strip",
        viewBox=f"0 0 {10 * _STRIP} 26",
        preserveAspectRatio="none",
        role="img",
        aria_label=legend,
    )


_STRIP_LEGEND: tuple[tuple[Tone, str], ...] = (
    ("good", "published"),
    ("warn", "published with warnings"),
    ("bad", "rejected or failed"),
    ("idle", "other"),
)


def _checks(checks: Sequence[FailingCheck]) -> Html | None:
    if not checks:
        return None
    rows = [
        (
            one.table,
            tag("code", clipped(one.check, _TEXT)),
            badge("bad", "Failed")
            if one.severity == "error"
            else badge("warn", "Warning" if one.severity == "warn" else "Quarantined"),
            f"{count(one.runs)} of {count(one.of_runs)}",
            count(one.failing_rows),
            tag("code", one.last, class_="id"),
        )
        for one in checks[:_CHECKS]
    ]
    columns = ("Table", "Check", "Verdict", "Runs", "Failing rows", "Last in run")
    left = len(checks) - _CHECKS
    more = left_out(left, f"{count(left)} more")
    shown = table(columns, rows, label="Checks that failed", numbers=(3, 4), wide=(1,))
    return tag("section", tag("h2", "Checks that failed"), shown, more)


def _runs(runs: Sequence[Run]) -> Html | None:
    if not runs:
        return None
    rows = []
    for run in runs[:_RUNS]:
        status_text = describe_run(run)
        cells = (
            tag("code", run.run_id, class_="id"),
            run.table,
            badge(status_text.tone, status_text.title),
            count(rows_of(run)),
            when(run.started_at),
        )
        rows.append((*cells, clipped(status_text.happened, _TEXT)))
    left = len(runs) - _RUNS
    more = left_out(left, counted(left, "earlier run"))
    columns = ("Run", "Table", "Status", "Rows", "Started", "What happened")
    shown = table(columns, rows, label="Runs", numbers=(3,), wide=(5,))
    summary = tag("summary", f"{counted(len(runs), 'run')}, newest first")
    return tag("section", tag("h2", "Runs"), tag("details", summary, shown, more, open=len(runs) <= _OPEN))
