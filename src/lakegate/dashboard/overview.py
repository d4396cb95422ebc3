"""The home page: every table at a glance, those that need a human first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from lakegate.dashboard.model import Problem, ReadModel, ResultPage, TableFacts, paginate
from lakegate.errors import LakegateError
from lakegate.model.downstream import DownstreamStatus
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import RunLine
from lakegate.model.states import OPEN, RunStatus
from lakegate.model.words import parse_duration

Need = Literal["unreadable", "failed", "rejected", "late", "interrupted", "quarantined"]
"""Why a table needs attention, the most urgent first.

- ``unreadable``: its metadata can't be read (only known for tables on the current page);
- ``failed``: its newest run failed;
- ``rejected``: rejected batches wait on branches, and weren't tried again since;
- ``late``: nothing was published for longer than ``notify.late`` expects;
- ``interrupted``: a run's process died;
- ``quarantined``: quarantined rows wait.
"""
_ORDER: tuple[Need, ...] = ("unreadable", "failed", "rejected", "late", "interrupted", "quarantined")
_MOST_TABLES = 20_000
_MOST_FAILED = 500
_MOST_REJECTED = 300
"""The newest rejected runs to read: for whether they were tried again and, without the catalog, kept their branch."""


class TableOverview(TableFacts):
    """One table on the home page, with its size on ``main``.

    Attributes:
        needs: Why a human should look at it, the most urgent reason first; empty if all is well.
        exists: Whether it's on ``main``; ``None`` if the catalog is unavailable.
        published_at: When the last run that brought data and wasn't reverted ended.
        expected_every: How often a publish is expected (``notify.late``); ``None`` if no limit is set.
        late_s: Seconds that it's overdue, 0 if nothing was ever published; ``None`` if it isn't late.
        waiting: Rejected batches that wait on their branches.
        last_run: Its newest run.
    """

    table: str
    needs: tuple[Need, ...] = ()
    exists: bool | None = None
    published_at: datetime | None = None
    expected_every: str | None = None
    late_s: float | None = None
    waiting: int = 0
    quarantined: int = 0
    last_run: str | None = None
    last_status: RunStatus | None = None
    problem: Problem | None = None


class Overview(ResultPage[TableOverview]):
    """The home page: tables, those that need a human first, and figures about the lake.

    Attributes:
        needing: Number of tables that need a human, on all pages.
        branches: Number of branches besides ``main``; ``None`` if the catalog is unavailable.
        interrupted: Runs whose process died; ``lakegate admin recover`` finishes or undoes them.
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
    quarantines = [pointer for name, pointer in known.pointers.items() if is_quarantine(name)]
    counts = model.read_each(quarantines, model.count_waiting)
    known.quarantined = {
        str(pointer.table).removesuffix(SUFFIX): count
        for pointer, count in zip(quarantines, counts, strict=True)
        if not isinstance(count, LakegateError) and count
    }


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
    ids = [one.run_id for one in rejected]
    tables, superseded = pages.tables_of(ids), pages.superseded(ids[:_MOST_REJECTED])
    for line in rejected:
        if line.run_id in superseded:
            continue
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
    open_lines = [line for status in OPEN for line in pages.newest(status, limit=_MOST_FAILED)]
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
    newest: Mapping[str, Sequence[RunLine]] = {}
    with model.reading("journal", problems):
        publishes = model.journal.pages.last_publishes(names)
        newest = model.journal.pages.newest_of(names, limit=1)
    pointers = known.pointers or {}
    present = [name for name in names if name in pointers]
    read = dict(zip(present, model.read_each(present, lambda name: model.facts(pointers[name])), strict=True))
    return tuple(
        _table_overview(model, known, name, publishes.get(name), next(iter(newest.get(name, ())), None), read.get(name))
        for name in names
    )


def _table_overview(
    model: ReadModel,
    known: LakeFacts,
    table: str,
    publish: RunLine | None,
    newest: RunLine | None,
    facts: TableFacts | LakegateError | None,
) -> TableOverview:
    needs = _needs(known, table)
    problem = None
    if isinstance(facts, LakegateError):
        problem, facts = Problem.of("table", facts), None
        needs = ("unreadable", *needs)
    return TableOverview(
        **dict(facts or TableFacts()),
        table=table,
        needs=needs,
        exists=None if known.pointers is None else table in known.pointers,
        published_at=None if publish is None else publish.finished_at or publish.started_at,
        expected_every=model.settings.notify.late.get(table),
        late_s=known.late.get(table),
        waiting=len(known.waiting.get(table, ())),
        quarantined=known.quarantined.get(table, 0),
        last_run=None if newest is None else newest.run_id,
        last_status=None if newest is None else newest.status,
        problem=problem,
    )
