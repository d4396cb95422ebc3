"""Branches: the run on each, its failed checks, the changes it would publish, and the rows of a table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.branches import BranchOverview, BranchRows, get_branch, list_branches, rows_by_branch
from lakegate.dashboard.model import CheckLine
from lakegate.dashboard.queries import QueryJob
from lakegate.dashboard.runs import TableDelta
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.actions import has_succeeded, offer_actions, rows_of
from lakegate.dashboard.ui.checks import show_checks
from lakegate.dashboard.ui.markup import Html, TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.session import shared
from lakegate.errors import NotFoundError
from lakegate.lake import Lake
from lakegate.model.refs import MAIN
from lakegate.model.words import counted, duration, share
from lakegate.table import Query

_PAGE_SIZE = 20
_MAX_BRANCHES = 12
_STATUSES = ("rejected", "failed", "staged", "published", "discarded", "other")
_MAX_FAILING = 3
_MOST_TABLES = 2_000
_MAX_CHANGES = 4
_MAX_ROWS = 20
_MOST_COLUMNS = 40
_SHOWN = "lg-rows"
_JOBS = ("lg-rows-added", "lg-rows-removed")
_COLUMNS = (
    TableColumn("Status", "fit"),
    TableColumn("Branch"),
    TableColumn("Failing checks, with failing rows"),
    TableColumn("Would change"),
    TableColumn("Age", "fit"),
)


def show() -> None:
    """Draw the page."""
    name = parts.param("branch")
    if name is not None:
        _show_one(name)
        return
    parts.heading("Branches")
    search_in, of_table, with_status = st.columns([3, 2, 1.4], gap="small")
    with search_in:
        search = parts.search_box("Search branches", key="q")
    with of_table:
        tables = _tables()
        table = parts.choice("Any table", tables, key="table")
    with with_status:
        status = parts.choice("Any status", _STATUSES, key="status")
    # A lake's only table needs no choice. It isn't a filter then, which would hide other writers' branches.
    compared = tables[0] if table is None and len(tables) == 1 else table
    if compared is not None:
        with parts.boundary(f"the rows of {compared}"):
            _show_rows(compared)
    with parts.boundary("the branches"):
        _show_all(search, table, status)


def _tables() -> Sequence[str]:
    """Return the tables that runs wrote to, and the one that the URL names."""
    names: Sequence[str] = ()
    with parts.boundary("the tables"):
        names = shared().model.journal.pages.tables(limit=_MOST_TABLES)
    asked = parts.param("table")
    return names if asked is None or asked in names else (asked, *names)


def _show_all(search: str, table: str | None, status: str | None) -> None:
    found = parts.read_page(
        lambda cursor: list_branches(
            shared().model, table=table, status=status, search=search, limit=_PAGE_SIZE, cursor=cursor
        )
    )
    parts.problems(found.problems)
    if found.items:
        parts.html(markup.table(_COLUMNS, (_row(one) for one in found.items), caption="Branches"))
        parts.show_pagination(found, "branch")
    elif search or table or status:
        parts.show_empty("No branch matches", "Clear a filter above.")
    else:
        parts.show_empty(
            "No branches besides main",
            "Each run writes to its own branch, which is deleted once the run is published. A rejected batch's "
            "branch stays here for you to look at.",
        )


def _row(one: BranchOverview) -> Sequence[object]:
    return (
        _status(one),
        _name(one),
        _failing(one),
        _would_change(one.changes),
        markup.muted("unknown") if one.run is None else markup.ago(one.run.started_at, shared().model.now()),
    )


def _status(one: BranchOverview) -> Html:
    if one.problem is not None:
        return markup.badge("unreadable", tone="bad", sign="!")
    return markup.badge("other writer", tone="off", sign="·") if one.run is None else markup.badge(one.run.status)


def _name(one: BranchOverview) -> Html:
    name = markup.branch_link(one.branch)
    if one.problem is not None:
        return name + Markup('<div class="why">{}</div>').format(markup.text(one.problem.message))
    if one.run is None:
        return name
    return name + Markup('<div class="why">{}</div>').format(
        Markup(" ").join(markup.table_link(table) for table in one.run.tables[:_MAX_CHANGES])
    )


def _tone(line: CheckLine) -> str:
    return "warn" if line.severity == "warn" else "bad"


def _failing(one: BranchOverview) -> Html:
    if not one.failing:
        return markup.muted("–")
    lines = [
        Markup(
            '<div class="fails"><span class="{}">{}</span>{}<b class="{}">{:,}</b><span>of {:,}</span>{}</div>'
        ).format(
            _tone(line),
            "!" if line.severity == "warn" else "✕",
            markup.code(line.check),
            _tone(line),
            line.failing_rows,
            line.total_rows,
            markup.muted(share(line.failing_rows, line.total_rows)),
        )
        for line in one.failing[:_MAX_FAILING]
    ]
    if len(one.failing) > _MAX_FAILING:
        lines.append(Markup('<div class="muted">and {} more</div>').format(len(one.failing) - _MAX_FAILING))
    return Markup("").join(lines)


def _would_change(changes: Sequence[TableDelta]) -> Html:
    if not changes:
        return markup.muted("nothing")
    lines = [
        markup.joined(_delta(one), markup.muted(markup.text(one.table, longest=40))) for one in changes[:_MAX_CHANGES]
    ]
    if len(changes) > _MAX_CHANGES:
        lines.append(markup.muted(f"and {counted(len(changes) - _MAX_CHANGES, 'more table')}"))
    return Markup("<br>").join(lines)


def _delta(one: TableDelta) -> str:
    if one.change in ("create", "drop", "metadata"):
        return {"create": "creates", "drop": "drops", "metadata": "redefines"}[one.change]
    if one.rows_before is None or one.rows_after is None:
        return "rows unknown"
    difference = one.rows_after - one.rows_before
    return "rewrites" if not difference else f"{difference:+,} {'row' if abs(difference) == 1 else 'rows'}"


# One branch


def _show_one(name: str) -> None:
    parts.heading(f"Branch {name}", markup.link("All branches", "branches"))
    try:
        one = get_branch(shared().model, name, examples=shared().access.settings.examples)
    except NotFoundError:
        if has_succeeded(name):
            return
        raise
    run = one.run
    parts.html(
        markup.facts(
            ("Status", _status(one)),
            ("Run", None if run is None else markup.run_link(run.run_id)),
            ("Tables", None if run is None else Markup(", ").join(map(markup.table_link, run.tables))),
            ("Age", None if run is None else markup.ago(run.started_at, shared().model.now())),
            ("Head", markup.code(one.head)),
            ("Note", "It was written to after its run." if one.as_staged is False else None),
        )
    )
    offer_actions(one)
    if one.changes:
        parts.html(Markup("<h2>What it would change</h2>"), _changes(one.changes))
    if one.failing:
        parts.html(Markup("<h2>Failing checks</h2>"))
        show_checks(one.failing)
    with parts.boundary("the rows that it changes"):
        _offer_rows(one)
    table = next((change.table for change in one.changes), None)
    if table is not None:
        parts.html(Markup("<h2>Rows of {} on each branch</h2>").format(markup.table_link(table)))
        with parts.boundary("the rows on other branches"):
            _show_rows(table, mark=name)
    parts.html(Markup("<h2>Next</h2>"), markup.commands(*_commands(one)))


def _changes(changes: Sequence[TableDelta]) -> Html:
    columns = ("Table", "Change", TableColumn("Rows", "num"))
    rows = (
        (
            markup.table_link(one.table),
            _delta(one) + (f": {one.reason}" if one.reason else ""),
            rows_of(one.rows_before, one.rows_after),
        )
        for one in changes
    )
    return markup.table(columns, rows, caption="What the branch would change")


def _commands(one: BranchOverview) -> Iterator[str]:
    branch = shlex.quote(one.branch)
    yield f"lakegate diff main {branch}"
    accept = ' --accept "REASON"' if one.run is not None and one.run.status == "rejected" else ""
    yield f"lakegate publish {branch}{accept}"
    yield f"lakegate discard {branch}"


# The rows that a branch changes


@dataclass(frozen=True)
class _RowsRequest:
    """The rows to compare: a table on a branch at one commit, and at the commit that the branch started from."""

    branch: str
    head: str
    table: str
    target: str
    base: str | None

    def added(self, lake: Lake) -> Query | None:
        return lake.diff_rows(self.table, self.target, self.branch, left_at=self.base).added

    def removed(self, lake: Lake) -> Query | None:
        return lake.diff_rows(self.table, self.target, self.branch, left_at=self.base).removed


def _offer_rows(one: BranchOverview) -> None:
    """Show the rows that a branch changes, or a button to read them."""
    tables = [change.table for change in one.changes]
    if not tables:
        return
    parts.html(Markup("<h2>Rows it changes</h2>"))
    settings = shared().access.settings
    if settings.examples == 0 or settings.query is False:
        name = "ui.examples" if settings.examples == 0 else "ui.query"
        parts.note("Rows of data are hidden by the setting ", markup.code(name), ".")
        return
    table = tables[0]
    if len(tables) > 1:
        table = st.selectbox("Table", tables, key="lg-rows-table", width=340) or table
    base = None if one.run is None else one.base
    request = _RowsRequest(one.branch, one.head, table, one.target or MAIN, base)
    jobs = _jobs(request)
    if jobs is None:
        _offer_button(request)
        return
    if any(job.state == "running" for job in jobs):
        parts.watch(*jobs, key="lg-rows-stop")
        return
    with parts.boundary("the rows"):
        _show_result(request, *jobs)


def _jobs(request: _RowsRequest) -> tuple[QueryJob, QueryJob] | None:
    """Return the two queries of a request; ``None`` unless it's the visitor's latest."""
    if st.session_state.get(_SHOWN) != request:
        return None
    added, removed = (st.session_state.get(key) for key in _JOBS)
    return None if added is None or removed is None else (added, removed)


def _offer_button(request: _RowsRequest) -> None:
    known = parts.queries(shared())
    about = "Spark reads them." + ("" if known.is_open else " Starting it can take a minute.")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Show rows", key="lg-rows-show"):
            _forget()
            where = f"{request.branch} against {request.target}"
            st.session_state[_SHOWN] = request
            for key, plan in zip(_JOBS, (request.added, request.removed), strict=True):
                st.session_state[key] = known.read(plan, where=where, limit=_MAX_ROWS)
            st.rerun()
        parts.html(markup.muted(about))


def _forget() -> None:
    for key in (_SHOWN, *_JOBS):
        job = st.session_state.pop(key, None)
        if isinstance(job, QueryJob):
            job.stop()


def _show_result(request: _RowsRequest, added: QueryJob, removed: QueryJob) -> None:
    against = request.target + (" as it is now" if request.base is None else " as it was when the run began")
    seconds = duration(max(job.seconds for job in (added, removed)))
    parts.note("Against ", markup.text(against), f"; read in {seconds}.")
    failed = next((job.error for job in (added, removed) if job.error is not None), None)
    if failed is not None:
        parts.show_error(failed)
    elif any(job.state == "stopped" for job in (added, removed)):
        parts.note("Stopped.")
    else:
        _show_changed("Added", added)
        _show_changed("Removed", removed)
    if st.button("Read again", key="lg-rows-again"):
        _forget()
        st.rerun()


def _show_changed(verb: str, job: QueryJob) -> None:
    found = job.result
    if found is None or found.table.num_rows == 0:
        parts.html(Markup("<h3>{}</h3>").format(verb), markup.note("No rows."))
        return
    count, columns = found.table.num_rows, found.table.num_columns
    about = f"The first {count:,} rows of more" if found.cut else counted(count, "row")
    if columns > _MOST_COLUMNS:
        about += f", the first {_MOST_COLUMNS} of {columns:,} columns"
    rows = [dict(list(row.items())[:_MOST_COLUMNS]) for row in found.page(0, count)]
    parts.html(
        Markup("<h3>{}</h3>").format(verb),
        markup.note(about),
        markup.example_rows(parts.unmasked(rows), (), caption=f"{verb} rows"),
    )


# Rows of one table across branches


def _show_rows(table: str, mark: str | None = None) -> None:
    found = rows_by_branch(shared().model, table, limit=_MAX_BRANCHES)
    parts.problems(found.problems)
    highest = max((one.rows or 0 for one in found.items), default=0)
    columns = (
        TableColumn("Branch"),
        TableColumn("Rows", "num"),
        TableColumn("Against main", "num"),
        TableColumn(""),
        TableColumn("Run", "fit"),
    )
    main = next((one.rows for one in found.items if one.branch == MAIN), None)
    rows = (_rows_row(one, main, highest, mark) for one in found.items)
    parts.html(markup.table(columns, rows, caption=f"Rows of {table} on each branch"))
    if found.next is not None and found.total is not None:
        parts.note("and ", counted(found.total - _MAX_BRANCHES, "more branch"))


def _rows_row(one: BranchRows, main: int | None, highest: int, mark: str | None) -> Sequence[object]:
    name = Markup("<b>main</b>") if one.branch == MAIN else markup.branch_link(one.branch)
    if one.branch == mark:
        name = Markup("<b>{}</b>").format(markup.code(one.branch))
    if one.problem is not None or one.rows is None:
        why = "not there" if not one.exists else "unknown" if one.problem is None else one.problem.message
        return name, markup.muted(why), "", "", _run_badge(one)
    difference = "" if main is None or one.branch == MAIN else (f"{one.rows - main:+,}" if one.rows != main else "same")
    tone: markup.Tone = "ok" if one.branch == MAIN else "bad" if one.status == "rejected" else "off"
    return name, f"{one.rows:,}", difference, markup.bar(one.rows, highest, tone=tone, wide=True), _run_badge(one)


def _run_badge(one: BranchRows) -> Html:
    if one.run_id is None or one.status is None:
        return Markup("")
    return markup.link(markup.badge(one.status), "run", run=one.run_id)


PAGE = Page("Branches", path="branches", icon="account_tree", order=10, show=show)
