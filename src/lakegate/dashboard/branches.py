"""Branches: the run on each, its failed checks, and the rows of each table, on the branch and before."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from lakegate.config import HOME_NAME
from lakegate.dashboard.model import CheckLine, Problem, ReadModel, ResultPage, paginate
from lakegate.dashboard.runs import checks_of
from lakegate.errors import InputError, LakegateError, NotFoundError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TableDifference, TablePointer
from lakegate.model.run import Run, RunLine, StagedTable
from lakegate.model.tables import ChangeKind
from lakegate.model.words import counted
from lakegate.wap.stage import find_common_ancestor

_ORDER = (
    *("rejected", "failed", "audited", "staged", None, "skipped", "discarded"),
    *("published", "reverted", "planned", "created"),
)
"""Order of branches by their run's status, those that wait for a human first; ``None``: another writer's branch."""
_MOST_DIFFERENCES = 50


class TableDelta(Value):
    """What a branch would do to one table. Row counts are ``None`` if unknown.

    Attributes:
        change: ``append``, ``create``, ``rewrite``, ``metadata`` or ``drop``.
        reason: Why it isn't an append.
    """

    table: str
    change: ChangeKind
    rows_before: int | None = None
    rows_after: int | None = None
    reason: str | None = None


class BranchOverview(Value):
    """One branch other than ``main``.

    Attributes:
        run: The newest run that wrote to it; ``None`` if the journal has none. Its reports contain values that the
            settings may hide: show ``failing``.
        failing: Its failed checks, those that block the publish first.
        superseded_by: The newest later attempt at the files of its rejected run.
        as_staged: Whether its tables are still as the run left them; ``None`` if unknown.
    """

    branch: str
    head: str
    run: Run | None = None
    failing: tuple[CheckLine, ...] = ()
    changes: tuple[TableDelta, ...] = ()
    superseded_by: str | None = None
    as_staged: bool | None = None
    problem: Problem | None = None


def list_branches(
    model: ReadModel,
    *,
    table: str | None = None,
    status: str | None = None,
    search: str = "",
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
    superseded: Mapping[str, str] = {}
    with model.reading("journal", problems):
        lines = model.journal.pages.by_branch([ref.name for ref in refs])
        superseded = model.journal.pages.superseded([one.run_id for one in lines.values() if one.status == "rejected"])
        if table is not None:
            tables = model.journal.pages.tables_of([line.run_id for line in lines.values()])
            refs = [ref for ref in refs if ref.name in lines and table in tables.get(lines[ref.name].run_id, ())]
    if status is not None:
        statuses = {name: line.status for name, line in lines.items()}
        refs = [ref for ref in refs if statuses.get(ref.name, "other") == status]
    refs.sort(key=lambda ref: _urgency(ref, lines.get(ref.name), superseded))
    shown, following = paginate(refs, cursor, limit)
    with model.reading("journal", problems):
        runs = model.journal.pages.runs_of([lines[ref.name].run_id for ref in shown if ref.name in lines])
    run_of = {name: runs.get(line.run_id) for name, line in lines.items()}
    main = model.catalog.get_ref(MAIN)
    overviews = model.read_each(shown, lambda ref: _overview(model, ref, main, run_of.get(ref.name)))
    items = tuple(
        BranchOverview(branch=ref.name, head=ref.hash, problem=Problem.of("catalog", overview))
        if isinstance(overview, LakegateError)
        else overview.model_copy(update={"superseded_by": superseded.get(overview.run.run_id if overview.run else "")})
        for ref, overview in zip(shown, overviews, strict=True)
    )
    return ResultPage[BranchOverview](items=items, next=following, total=len(refs), problems=tuple(problems))


def get_branch(model: ReadModel, name: str, *, examples: int = 10) -> BranchOverview:
    """Return one branch.

    Raises:
        InputError: ``name`` is ``main`` or a tag.
    """
    ref = model.catalog.get_ref(name)
    if ref.kind != "branch" or name == MAIN:
        raise InputError(f"'{name}' isn't a branch other than {MAIN}.", hint="lakegate branch list", ref=name)
    run = model.journal.find_by_branch(name)
    by = {} if run is None or run.status != "rejected" else model.journal.pages.superseded([run.run_id])
    one = _overview(model, ref, model.catalog.get_ref(MAIN), run, examples=examples)
    return one.model_copy(update={"superseded_by": by.get(run.run_id if run else "")})


def losses_of(one: BranchOverview) -> tuple[str, ...]:
    """Return what's lost if a branch is discarded, and whether its source files can be ingested again."""
    lost = [_loss(change) for change in one.changes]
    told = f"Lost: {'; '.join(lost)}." if lost else "No table is lost: the branch changes none."
    return (told, _way_back(one.run), f"{MAIN} doesn't change.")


def _loss(change: TableDelta) -> str:
    before, after = change.rows_before, change.rows_after
    if change.change == "create":
        return f"the new table {change.table}" + ("" if after is None else f" with its {counted(after, 'row')}")
    if before is None or after is None or after <= before:
        return f"the change to {change.table}"
    return f"{counted(after - before, 'row')} added to {change.table}"


def _way_back(run: Run | None) -> str:
    if run is not None and run.publication is not None:
        return f"Its run was published before: {MAIN} keeps those rows."
    files = () if run is None or run.request is None else run.request.batch.files
    if not files or any(f"/{HOME_NAME}/sources/" in file.uri for file in files):
        return "No source file has these rows: only the program that wrote them can write them again."
    which = f"Its {counted(len(files), 'source file')}" if len(files) > 1 else "Its source file"
    return f"{which} can be ingested again."


def rows_on_main(model: ReadModel, table: str) -> int | None:
    """Return a table's rows on ``main`` now; ``None`` if it isn't there, or its metadata doesn't say."""
    pointer = _pointer(model, TableIdentifier.parse(table), model.catalog.get_ref(MAIN))
    return None if pointer is None else model.facts(pointer).rows


def _urgency(ref: Ref, line: RunLine | None, superseded: Mapping[str, str]) -> tuple[int, float, str]:
    status = None if line is None else "skipped" if line.run_id in superseded else line.status
    return _ORDER.index(status), 0.0 if line is None else -line.started_at.timestamp(), ref.name


def _overview(model: ReadModel, ref: Ref, main: Ref, run: Run | None, *, examples: int = 0) -> BranchOverview:
    if run is None:
        base = find_common_ancestor(model.catalog, main, ref)
        differences = (one for one in model.catalog.diff(base, ref) if one.kind == "table")
        changes = tuple(_difference(model, one) for one in islice(differences, _MOST_DIFFERENCES))
        return BranchOverview(branch=ref.name, head=ref.hash, changes=changes)
    pointers = [_pointer(model, staged.table, ref) for staged in run.staged]
    return BranchOverview(
        branch=ref.name,
        head=ref.hash,
        run=run,
        failing=tuple(line for line in checks_of(model, run, examples=examples) if line.verdict == "fail"),
        changes=tuple(_delta(model, staged, now) for staged, now in zip(run.staged, pointers, strict=True)),
        as_staged=pointers == [staged.pointer for staged in run.staged] if run.staged else None,
    )


def _pointer(model: ReadModel, table: TableIdentifier, ref: Ref) -> TablePointer | None:
    with suppress(NotFoundError):
        return model.table(table, ref)
    return None


def _delta(model: ReadModel, staged: StagedTable, now: TablePointer | None) -> TableDelta:
    return TableDelta(
        table=str(staged.table),
        change=staged.change if now is not None else "drop",
        rows_before=_count(model, staged.before),
        rows_after=_count(model, now),
        reason=staged.reason if now == staged.pointer else "the branch was written to after the run",
    )


def _difference(model: ReadModel, one: TableDifference) -> TableDelta:
    return TableDelta(
        table=one.table,
        change="create" if one.left is None else "drop" if one.right is None else "rewrite",
        rows_before=_count(model, one.left),
        rows_after=_count(model, one.right),
    )


def _count(model: ReadModel, pointer: TablePointer | None) -> int | None:
    if pointer is None:
        return 0
    with suppress(LakegateError):
        return model.facts(pointer).rows
    return None
