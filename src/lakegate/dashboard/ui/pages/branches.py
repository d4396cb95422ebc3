"""Branches: why each waits, the rows of each table on it, and one branch with what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import streamlit as st

from lakegate.dashboard.branches import BranchOverview, TableDelta, get_branch, list_branches, rows_on_main
from lakegate.dashboard.model import searchable
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.actions import offer_actions
from lakegate.dashboard.ui.session import shared
from lakegate.errors import NotFoundError
from lakegate.model.run import Run
from lakegate.run_text import describe_run

_PAGE_SIZE = 20
_STATUSES = ("rejected", "failed", "staged", "audited", "published", "discarded", "other")
_MOST_TABLES = 2_000
_MOST_FAILING = 3


def show() -> None:
    """Draw the page."""
    if (name := parts.param("branch")) is not None:
        _show_one(name)
        return
    parts.heading("Branches")
    with st.container(horizontal=True):
        search = parts.search_box("Search branches", key="name")
        table = parts.choice("Table", _tables(), key="of")
        status = parts.choice("Status", _STATUSES, key="state")
    if table is not None:
        with parts.boundary("the table's rows"):
            rows = rows_on_main(shared().model, table)
            st.metric("Rows on main", "unknown" if rows is None else f"{rows:,}")
    found = parts.read_page(
        lambda cursor: list_branches(
            shared().model, table=table, status=status, search=search, limit=_PAGE_SIZE, cursor=cursor
        )
    )
    parts.problems(found.problems)
    if found.items:
        pairs = [(one, row) for one in found.items for row in _rows(one)]
        parts.listing(
            [row for _, row in pairs],
            opens=("branches", "branch", [one.branch for one, _ in pairs]),
            label="Branches",
        )
        parts.show_pagination(found, "branch")
    elif search or table or status:
        st.info("No branch matches. Clear a filter above.")
    else:
        st.info(
            "No other branches. Each run writes to its own branch, which is deleted once the run is published. "
            "A rejected batch's branch stays here for you to look at."
        )


def _tables() -> Sequence[str]:
    """Return the tables that runs wrote to, and the one that the URL names."""
    names: Sequence[str] = ()
    with parts.boundary("the tables"):
        names = shared().model.journal.pages.tables(limit=_MOST_TABLES)
    asked = parts.param("of")
    return names if asked is None or asked in names else (asked, *names)


def _rows(one: BranchOverview) -> Iterator[dict[str, object]]:
    """Yield a row for each table on a branch; one for a branch that changes nothing."""
    for change in one.changes or (None,):
        failing = [line for line in one.failing if change is None or line.table == change.table]
        yield {
            "Status": _status(one),
            "Table": "" if change is None else change.table,
            "Failing": "; ".join(
                f"{', '.join(line.columns) or line.name}: {line.failing_rows:,} of {line.total_rows:,} rows"
                for line in failing[:_MOST_FAILING]
            )
            + ("; …" if len(failing) > _MOST_FAILING else ""),
            "Rows before": None if change is None else change.rows_before,
            "Rows on branch": None if change is None else change.rows_after,
            "Began": None if one.run is None else one.run.started_at,
            "Branch": one.branch,
        }


def _status(one: BranchOverview) -> str:
    if one.problem is not None:
        return f"unreadable: {one.problem.message}"
    if one.superseded_by is not None:
        return f"superseded by {one.superseded_by}"
    return "other writer" if one.run is None else one.run.status


def _show_one(name: str) -> None:
    parts.heading(f"Branch {name}")
    parts.link("branches", "All branches")
    try:
        one = get_branch(shared().model, name, examples=shared().access.settings.examples)
    except NotFoundError:
        if (gone := shared().model.journal.find_by_branch(searchable(name))) is None:
            raise
        _show_gone(gone)
        return
    run = one.run
    parts.facts(
        ("Status", _status(one)),
        ("Began", None if run is None else f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("Head", one.head),
        ("Note", "It was written to after its run." if one.as_staged is False else None),
    )
    if run is not None:
        parts.link("run", f"Run {run.run_id}", run=run.run_id)
    offer_actions(one)
    if one.changes:
        st.subheader("What it would change", anchor=False)
        parts.table([_change(change) for change in one.changes], label="What the branch would change")
    if one.failing:
        st.subheader("Failing checks", anchor=False)
        parts.show_checks(one.failing)
    st.subheader("Next", anchor=False)
    parts.commands(_next(one))


def _next(one: BranchOverview) -> Sequence[str]:
    """Return the commands that lead on from a branch: its run's, if the run is as lakegate left it."""
    if one.run is not None and one.run.status not in ("published", "reverted"):
        return [command for _, command in describe_run(one.run.model_copy(update={"branch_kept": True})).commands]
    branch = shlex.quote(one.branch)
    return [f"lakegate diff main {branch}", f"lakegate publish {branch}", f"lakegate discard {branch}"]


def _show_gone(run: Run) -> None:
    told = describe_run(run.model_copy(update={"branch_kept": False}))
    st.info(f"This branch no longer exists: its run is {run.status}. {parts.plain(told.happened)}")
    st.text(parts.clean(told.means, longest=1_000))
    parts.link("run", f"Run {run.run_id}", run=run.run_id)


def _change(change: TableDelta) -> dict[str, object]:
    return {
        "Table": change.table,
        "Change": change.change,
        "Rows before": change.rows_before,
        "Rows on branch": change.rows_after,
        "Why it isn't an append": change.reason or "",
    }


if __name__ == "__main__":
    show()
