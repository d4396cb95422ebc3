"""Branches: the run on each, its failed checks, the changes it would publish, and the rows of each table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from lakegate.dashboard.model import CheckLine, Problem, ReadModel, ResultPage, paginate
from lakegate.dashboard.runs import RunSummary, TableDelta, checks_of, summary_of
from lakegate.errors import InputError, LakegateError, NotFoundError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TableDifference, TablePointer
from lakegate.model.run import Run, RunLine, StagedTable

_ORDER = ("rejected", "failed", "staged", None, "skipped", "discarded", "published", "reverted", "running")
"""Order of branches by their run's status, those that wait for a human first; ``None``: another writer's branch."""
_MOST_DIFFERENCES = 50


class BranchOverview(Value):
    """One branch other than ``main``.

    Attributes:
        run: The newest run that wrote to it; ``None`` if the journal has none.
        failing: Its failed checks, those that block the publish first.
        target: Branch that its run publishes to; ``None``, as is ``base``, if the journal has no run.
        base: Commit of the target that the run started from.
        as_staged: Whether its tables are still as the run left them; ``None`` if unknown.
    """

    branch: str
    head: str
    run: RunSummary | None = None
    failing: tuple[CheckLine, ...] = ()
    changes: tuple[TableDelta, ...] = ()
    target: str | None = None
    base: str | None = None
    as_staged: bool | None = None
    problem: Problem | None = None


class BranchRows(Value):
    """Rows of one table on one branch.

    Attributes:
        rows: Rows on the branch; ``None`` if delete files hide the number or the table can't be read.
        run_id: The newest run that wrote to the branch.
    """

    branch: str
    rows: int | None = None
    exists: bool = True
    run_id: str | None = None
    status: str | None = None
    problem: Problem | None = None


def list_branches(
    model: ReadModel,
    *,
    table: str | None = None,
    status: str | None = None,
    search: str = "",
    examples: int = 0,
    limit: int = 20,
    cursor: str | None = None,
) -> ResultPage[BranchOverview]:
    """Return a page of the branches other than ``main``: those that wait for a human first, then by age, newest first.

    Args:
        table: Only branches of runs that wrote to this table.
        status: Only branches of runs with this status; ``other`` for branches without a run in the journal.

    Returns:
        The page. Without the journal, branches have no runs, and ``problems`` says so.
    """
    problems: list[Problem] = []
    refs = [ref for ref in model.branches() if search.lower() in ref.name.lower()]
    lines: Mapping[str, RunLine] = {}
    runs: Mapping[str, Run] = {}
    with model.reading("journal", problems):
        lines = model.journal.pages.by_branch([ref.name for ref in refs])
        if table is not None:
            tables = model.journal.pages.tables_of([line.run_id for line in lines.values()])
            refs = [ref for ref in refs if ref.name in lines and table in tables.get(lines[ref.name].run_id, ())]
    if status is not None:
        statuses = {name: line.status for name, line in lines.items()}
        refs = [ref for ref in refs if statuses.get(ref.name, "other") == status]
    refs.sort(key=lambda ref: _urgency(ref, lines.get(ref.name)))
    shown, following = paginate(refs, cursor, limit)
    with model.reading("journal", problems):
        runs = model.journal.pages.runs_of([lines[ref.name].run_id for ref in shown if ref.name in lines])
    of = {name: runs.get(line.run_id) for name, line in lines.items()}
    items = tuple(BranchOverview(branch=ref.name, head=ref.hash) for ref in shown)
    with model.reading("catalog", problems):
        main = model.catalog.get_ref(MAIN)
        found = model.read_each(shown, lambda ref: _overview(model, ref, main, of.get(ref.name), examples=examples))
        items = tuple(_or_problem(ref, one) for ref, one in zip(shown, found, strict=True))
    return ResultPage[BranchOverview](items=items, next=following, total=len(refs), problems=tuple(problems))


def get_branch(model: ReadModel, name: str, *, examples: int = 10) -> BranchOverview:
    """Return one branch.

    Raises:
        InputError: ``name`` is ``main`` or a tag.
    """
    ref = model.catalog.get_ref(name)
    if ref.kind != "branch" or name == MAIN:
        raise InputError(f"'{name}' isn't a branch other than {MAIN}.", hint="lakegate branch list", ref=name)
    return _overview(model, ref, model.catalog.get_ref(MAIN), model.journal.find_by_branch(name), examples=examples)


def rows_by_branch(
    model: ReadModel, table: str, *, limit: int = 20, cursor: str | None = None
) -> ResultPage[BranchRows]:
    """Return how many rows a table has on ``main`` and on a page of branches.

    Branches whose runs wrote to the table come first, then branches that the journal doesn't know. Branches whose runs
    didn't touch the table are left out.

    Returns:
        The page. Each page starts with ``main``.
    """
    identifier, problems = TableIdentifier.parse(table), list[Problem]()
    refs = list(model.branches())
    lines: Mapping[str, RunLine] = {}
    with model.reading("journal", problems):
        lines = model.journal.pages.by_branch([ref.name for ref in refs])
        tables = model.journal.pages.tables_of([line.run_id for line in lines.values()])
        refs = [ref for ref in refs if ref.name not in lines or table in tables.get(lines[ref.name].run_id, ())]
    refs.sort(key=lambda ref: (ref.name not in lines, _urgency(ref, lines.get(ref.name))))
    shown, following = paginate(refs, cursor, limit)
    every = [model.catalog.get_ref(MAIN), *shown]
    found = model.read_each(every, lambda ref: model.facts(model.table(identifier, ref)).rows)
    items = tuple(_rows(ref, lines.get(ref.name), one) for ref, one in zip(every, found, strict=True))
    return ResultPage[BranchRows](items=items, next=following, total=len(refs), problems=tuple(problems))


def _rows(ref: Ref, line: RunLine | None, found: int | LakegateError | None) -> BranchRows:
    about = {} if line is None else {"run_id": line.run_id, "status": line.status}
    if isinstance(found, NotFoundError) and "path" not in found.context:
        return BranchRows(branch=ref.name, exists=False, **about)
    if isinstance(found, LakegateError):
        return BranchRows(branch=ref.name, problem=Problem.of("table", found), **about)
    return BranchRows(branch=ref.name, rows=found, **about)


def _urgency(ref: Ref, line: RunLine | None) -> tuple[int, float, str]:
    status = None if line is None else line.status
    return _ORDER.index(status), 0.0 if line is None else -line.started_at.timestamp(), ref.name


def _or_problem(ref: Ref, found: BranchOverview | LakegateError) -> BranchOverview:
    if isinstance(found, LakegateError):
        return BranchOverview(branch=ref.name, head=ref.hash, problem=Problem.of("catalog", found))
    return found


def _overview(model: ReadModel, ref: Ref, main: Ref, run: Run | None, *, examples: int) -> BranchOverview:
    if run is None:
        return BranchOverview(branch=ref.name, head=ref.hash, changes=_differences(model, main, ref))
    pointers = [_pointer(model, one.table, ref) for one in run.staged]
    changes = tuple(_delta(model, one, now) for one, now in zip(run.staged, pointers, strict=True))
    return BranchOverview(
        branch=ref.name,
        head=ref.hash,
        run=summary_of(run),
        failing=tuple(line for line in checks_of(model, run, examples=examples) if line.verdict == "fail"),
        changes=changes,
        target=run.target,
        base=run.base,
        as_staged=pointers == [one.pointer for one in run.staged] if run.staged else None,
    )


def _pointer(model: ReadModel, table: TableIdentifier, ref: Ref) -> TablePointer | None:
    with suppress(NotFoundError):
        return model.table(table, ref)
    return None


def _delta(model: ReadModel, staged: StagedTable, now: TablePointer | None) -> TableDelta:
    before, after = (_count(model, pointer) for pointer in (staged.before, now))
    as_staged = now == staged.pointer
    known = before is not None and after is not None
    return TableDelta(
        table=str(staged.table),
        change=staged.change if now is not None else "drop",
        rows_added=staged.rows if as_staged else None,
        rows_removed=staged.rows_removed if as_staged else None,
        rows_before=before,
        rows_after=after if known or now is not None else None,
        data_files=staged.data_files if as_staged else None,
        reason=staged.reason if as_staged else "the branch was written to after the run",
    )


def _differences(model: ReadModel, main: Ref, ref: Ref) -> tuple[TableDelta, ...]:
    """Return how the tables of a branch differ from ``main`` now."""
    tables = (one for one in model.catalog.diff(main, ref) if one.kind == "table")
    return tuple(_difference(model, one) for one in islice(tables, _MOST_DIFFERENCES))


def _difference(model: ReadModel, one: TableDifference) -> TableDelta:
    before, after = (_count(model, pointer) for pointer in (one.left, one.right))
    change = "create" if one.left is None else "drop" if one.right is None else "rewrite"
    return TableDelta(table=one.table, change=change, rows_before=before, rows_after=after)


def _count(model: ReadModel, pointer: TablePointer | None) -> int | None:
    if pointer is None:
        return 0
    with suppress(LakegateError):
        return model.facts(pointer).rows
    return None
