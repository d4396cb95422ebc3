"""The home page: every table at a glance, those that need a human first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from lakegate.dashboard.model import Problem, ReadModel, ResultPage, TableFacts, paginate
from lakegate.dashboard.quarantine import count_waiting
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.downstream import DownstreamStatus
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import RunLine, RunStatus
from lakegate.model.words import parse_duration

Need = Literal["unreadable", "failed", "rejected", "late", "interrupted", "quarantined"]
"""Why a table needs attention, the most urgent first.

- ``unreadable``: its metadata can't be read (only known for tables on the current page);
- ``failed``: its newest run failed;
- ``rejected``: rejected batches wait on branches;
- ``late``: nothing was published for longer than ``notify.late`` expects;
- ``interrupted``: a run's process died;
- ``quarantined``: quarantined rows wait.
"""
_ORDER: tuple[Need, ...] = ("unreadable", "failed", "rejected", "late", "interrupted", "quarantined")
_MOST_TABLES = 20_000
_MOST_FAILED = 500
_MOST_REJECTED = 300
"""While the catalog is unavailable, the newest rejected runs to read for whether they kept their branch."""
_TREND = 20


class PublishPoint(Value):
    """The last publish of a table: its run, and when it ended."""

    run_id: str
    at: datetime


class ChecksPoint(Value):
    """How many checks failed in one run of a table, by severity."""

    run_id: str
    status: RunStatus
    errors: int
    warnings: int


class TableOverview(TableFacts):
    """One table on the home page, with its size on ``main``.

    Attributes:
        needs: Why a human should look at it, the most urgent reason first; empty if all is well.
        exists: Whether it's on ``main``; ``None`` if the catalog is unavailable.
        last_publish: The last run that brought data and wasn't reverted.
        expected_every: How often a publish is expected (``notify.late``); ``None`` if no limit is set.
        late_s: Seconds that it's overdue, 0 if nothing was ever published; ``None`` if it isn't late.
        waiting: Rejected batches that wait on their branches.
        waiting_runs: Up to five of their runs, newest first.
        quarantines: Whether rows of it were ever quarantined.
        checks_trend: Failed checks of its newest runs, oldest first.
    """

    table: str
    needs: tuple[Need, ...] = ()
    exists: bool | None = None
    last_publish: PublishPoint | None = None
    expected_every: str | None = None
    late_s: float | None = None
    waiting: int = 0
    waiting_runs: tuple[str, ...] = ()
    quarantined: int = 0
    quarantines: bool = False
    last_run: str | None = None
    last_status: RunStatus | None = None
    checks_trend: tuple[ChecksPoint, ...] = ()
    problem: Problem | None = None


class Overview(ResultPage[TableOverview]):
    """The home page: tables, those that need a human first, and figures about the lake.

    Attributes:
        needing: Number of tables that need a human, on all pages.
        branches: Number of branches besides ``main``; ``None`` if the catalog is unavailable.
        interrupted: Runs whose process died; ``lakegate recover`` finishes or undoes them.
    """

    needing: int = 0
    branches: int | None = None
    running: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    downstream: tuple[DownstreamStatus, ...] = ()


class LakeFacts:
    """Facts about all tables, read before the tables of one page are read in detail."""

    def __init__(self) -> None:
        self.pointers: Mapping[str, TablePointer] | None = None
        self.branches: tuple[str, ...] | None = None
        self.waiting: dict[str, list[RunLine]] = defaultdict(list)
        self.failed: set[str] = set()
        self.late: dict[str, float] = {}
        self.quarantined: dict[str, int] = {}
        self.interrupted: dict[str, list[str]] = defaultdict(list)
        self.names: set[str] = set()
        self.running: tuple[str, ...] = ()
        self.abandoned: tuple[str, ...] = ()


def overview(
    model: ReadModel, *, search: str = "", needing: bool = False, limit: int = 50, cursor: str | None = None
) -> Overview:
    """Return a page of tables, those that need a human first, then by name.

    Returns:
        The page. What couldn't be read is in its ``problems``.
    """
    problems: list[Problem] = []
    known = read_facts(model, problems)
    known.names.update(model.settings.notify.late, model.settings.tables, known.pointers or ())
    # Quarantined rows show with the table that they were meant for.
    shown = (name for name in known.names if not (is_quarantine(name) and name.removesuffix(SUFFIX) in known.names))
    wanted = sorted(name for name in shown if search.lower() in name.lower())
    needs = {name: _needs(known, name) for name in wanted}
    if needing:
        wanted = [name for name in wanted if needs[name]]
    wanted.sort(key=lambda name: (_rank(needs[name]), name))
    names, following = paginate(wanted, cursor, limit)
    found = sorted(_table_overviews(model, known, names, problems), key=lambda one: _rank(one.needs))
    return Overview(
        items=tuple(found),
        next=following,
        total=len(wanted),
        problems=tuple(problems),
        needing=sum(1 for one in needs.values() if one),
        branches=None if known.branches is None else len(known.branches),
        running=known.running,
        interrupted=known.abandoned,
        downstream=_downstream(model, problems),
    )


def _downstream(model: ReadModel, problems: list[Problem]) -> tuple[DownstreamStatus, ...]:
    types = {name: given.type for name, given in model.settings.downstream.items()}
    with model.reading("journal", problems):
        queued = {one.name: one for one in model.journal.outbox.status()}
        return tuple(
            queued.get(name, DownstreamStatus(name=name)).model_copy(update={"type": types.get(name)})
            for name in sorted(types.keys() | queued.keys())
        )
    return ()


def table_overview(model: ReadModel, table: str, problems: list[Problem]) -> TableOverview:
    """Return one table as the home page shows it."""
    return _table_overviews(model, read_facts(model, problems), [table], problems)[0]


def read_facts(model: ReadModel, problems: list[Problem]) -> LakeFacts:
    """Return which tables wait for a decision, failed or are late, and what is running. Adds to ``problems``."""
    known = LakeFacts()
    with model.reading("catalog", problems):
        _read_catalog(model, known)
    with model.reading("journal", problems):
        _read_journal(model, known)
    return known


def _read_catalog(model: ReadModel, known: LakeFacts) -> None:
    main = model.catalog.get_ref(MAIN)
    known.pointers = model.tables(main)
    known.branches = tuple(ref.name for ref in model.branches())
    known.quarantined = count_waiting(model, known.pointers)


def _read_journal(model: ReadModel, known: LakeFacts) -> None:
    pages = model.journal.pages
    known.names.update(pages.tables(limit=_MOST_TABLES))
    # A rejected batch waits as long as its branch exists.
    if known.branches is None:
        lines = pages.newest("rejected", limit=_MOST_REJECTED)
        kept = {
            run.run_id for run in pages.runs_of([one.run_id for one in lines], whole=False).values() if run.branch_kept
        }
        rejected: Sequence[RunLine] = [one for one in lines if one.run_id in kept]
    else:
        found = pages.by_branch(known.branches).values()
        rejected = sorted((one for one in found if one.status == "rejected"), key=lambda one: one.run_id, reverse=True)
    tables = pages.tables_of([one.run_id for one in rejected])
    for line in rejected:
        for table in tables.get(line.run_id, ()):
            known.waiting[table].append(line)
    failed = pages.newest("failed", limit=_MOST_FAILED)
    of_failed = {table for names in pages.tables_of([one.run_id for one in failed]).values() for table in names}
    newest = pages.newest_of(sorted(of_failed), limit=1)
    known.failed = {table for table, lines in newest.items() if lines and lines[0].status == "failed"}
    known.late = _late(model, model.now())
    known.abandoned = tuple(run.run_id for run in model.journal.abandoned())
    for run_id, names in pages.tables_of(known.abandoned).items():
        for table in names:
            known.interrupted[table].append(run_id)
    others = {*model.journal.suspended(), *known.abandoned}
    open_lines = (*pages.newest("running", limit=_MOST_FAILED), *pages.newest("staged", limit=_MOST_FAILED))
    known.running = tuple(one.run_id for one in open_lines if one.finished_at is None and one.run_id not in others)


def _late(model: ReadModel, now: datetime) -> dict[str, float]:
    """Return each late table with the seconds that it's overdue."""
    expected = model.settings.notify.late
    last = model.journal.pages.last_publishes(list(expected))
    found: dict[str, float] = {}
    for table, every in expected.items():
        line = last.get(table)
        if line is None:
            found[table] = 0.0
        elif (over := (now - (line.finished_at or line.started_at) - parse_duration(every)).total_seconds()) > 0:
            found[table] = over
    return found


def _needs(known: LakeFacts, table: str) -> tuple[Need, ...]:
    found: dict[Need, bool] = {
        "failed": table in known.failed,
        "rejected": table in known.waiting,
        "late": table in known.late,
        "interrupted": table in known.interrupted,
        "quarantined": table in known.quarantined,
    }
    return tuple(need for need in _ORDER if found.get(need))


def _rank(needs: Sequence[Need]) -> int:
    return min(map(_ORDER.index, needs), default=len(_ORDER))


def _table_overviews(
    model: ReadModel, known: LakeFacts, names: Sequence[str], problems: list[Problem]
) -> tuple[TableOverview, ...]:
    publishes: Mapping[str, RunLine] = {}
    trends: Mapping[str, tuple[ChecksPoint, ...]] = {}
    with model.reading("journal", problems):
        publishes = model.journal.pages.last_publishes(names)
        trends = checks_trends(model, names, limit=_TREND)
    pointers = known.pointers or {}
    present = [name for name in names if name in pointers]
    read = dict(zip(present, model.read_each(present, lambda name: model.facts(pointers[name])), strict=True))
    return tuple(
        _table_overview(model, known, name, publishes.get(name), trends.get(name, ()), read.get(name)) for name in names
    )


def _table_overview(
    model: ReadModel,
    known: LakeFacts,
    table: str,
    publish: RunLine | None,
    trend: tuple[ChecksPoint, ...],
    facts: TableFacts | LakegateError | None,
) -> TableOverview:
    pointers = known.pointers or {}
    needs = _needs(known, table)
    problem = None
    if isinstance(facts, LakegateError):
        problem, facts = Problem.of("table", facts), None
        needs = ("unreadable", *needs)
    at = None if publish is None else publish.finished_at or publish.started_at
    waiting = known.waiting.get(table, ())
    return TableOverview(
        **dict(facts or TableFacts()),
        table=table,
        needs=needs,
        exists=None if known.pointers is None else table in known.pointers,
        last_publish=None if publish is None or at is None else PublishPoint(run_id=publish.run_id, at=at),
        expected_every=model.settings.notify.late.get(table),
        late_s=known.late.get(table),
        waiting=len(waiting),
        waiting_runs=tuple(line.run_id for line in waiting[:5]),
        quarantined=known.quarantined.get(table, 0),
        quarantines=f"{table}{SUFFIX}" in pointers,
        last_run=trend[-1].run_id if trend else None,
        last_status=trend[-1].status if trend else None,
        checks_trend=trend,
        problem=problem,
    )


def checks_trends(model: ReadModel, tables: Sequence[str], *, limit: int) -> Mapping[str, tuple[ChecksPoint, ...]]:
    """Return how many checks failed in the newest runs of each table, oldest run first."""
    pages = model.journal.pages
    newest = pages.newest_of(tables, limit=limit)
    failing = pages.failing({line.run_id for lines in newest.values() for line in lines})
    return {
        table: tuple(_point(line, failing.get((line.run_id, table), (0, 0))) for line in reversed(lines))
        for table, lines in newest.items()
    }


def _point(line: RunLine, failing: tuple[int, int]) -> ChecksPoint:
    return ChecksPoint(run_id=line.run_id, status=line.status, errors=failing[0], warnings=failing[1])
