"""Branches: why each waits, the rows of each table on it, and one branch with what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import streamlit as st

from lakegate.dashboard.branches import BranchOverview, TableDelta, get_branch, list_branches, rows_on_main
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.actions import offer_actions
from lakegate.dashboard.ui.session import shared

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
            st.metric("Rows on main", "unknown" if rows is None else rows)
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
            "No branches besides main. Each run writes to its own branch, which is deleted once the run is published. "
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
    return "other writer" if one.run is None else one.run.status


def _show_one(name: str) -> None:
    parts.heading(f"Branch {name}")
    parts.link("branches", "All branches")
    one = get_branch(shared().model, name, examples=shared().access.settings.examples)
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
    branch = shlex.quote(one.branch)
    accept = " --accept REASON" if run is not None and run.status == "rejected" else ""
    parts.commands([f"lakegate diff main {branch}", f"lakegate publish {branch}{accept}", f"lakegate discard {branch}"])


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
