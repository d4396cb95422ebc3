"""Home: every table, those that need a human first."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from lakegate.dashboard.overview import Overview, TableOverview, overview
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import shared
from lakegate.model.words import counted, duration

_PAGE_SIZE = 50
_DAY_S = 86_400


def show() -> None:
    """Draw the page."""
    parts.heading("Home")
    figures = st.container(horizontal=True)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        search = parts.search_box("Search tables", key="table")
        needing = st.toggle("Only what needs attention", key="needs", bind="query-params")
    found = parts.read_page(
        lambda cursor: overview(shared().model, search=search, needing=needing, limit=_PAGE_SIZE, cursor=cursor)
    )
    with figures:
        st.metric("Tables", f"{found.total or 0:,}")
        st.metric("Need attention", f"{found.needing:,}")
        st.metric("Other branches", "–" if found.branches is None else f"{found.branches:,}")
        st.metric("Running", f"{len(found.running):,}")
    parts.problems(found.problems)
    if found.interrupted:
        st.warning(f"{counted(len(found.interrupted), 'run')} lost the process. The next ingest finishes or undoes it.")
        parts.commands(["lakegate admin recover"])
    if found.items:
        parts.listing(
            [_row(one) for one in found.items],
            opens=("table", "table", [one.table if one.exists else None for one in found.items]),
            columns={
                "Trend": st.column_config.LineChartColumn(width="small", help="Rows after each of the newest publishes")
            },
            label="Tables",
        )
        parts.show_pagination(found, "table")
    elif search or needing:
        st.info("No table matches. Clear the search and the switch above to see all tables.")
    elif not found.problems:
        st.info("No tables yet. Write a batch to a branch, audit it, and publish it, or see it on generated data:")
        parts.commands(["lakegate ingest nyc.trips trips/*.parquet --check 'not_null(trip_id)'", "lakegate demo"])
    _show_downstream(found)


def _row(one: TableOverview) -> dict[str, object]:
    return {
        "Table": one.table,
        "Needs attention": "; ".join(_reasons(one)),
        "Rows": one.rows,
        "Trend": [rows for rows in one.trend if rows is not None],
        "Last publish": one.published_at,
        "Last run": one.last_status,
    }


def _reasons(one: TableOverview) -> Iterator[str]:
    for need in one.needs:
        if need == "unreadable":
            yield "unreadable: " + ("its metadata can't be read" if one.problem is None else one.problem.message)
        elif need == "failed":
            yield "its newest run failed"
        elif need == "rejected":
            yield counted(one.waiting, "rejected batch", "rejected batches")
        elif need == "late":
            late = f"late by {_days(one.late_s)}" if one.late_s else "nothing published yet"
            yield f"{late}, expected every {one.expected_every}"
        elif need == "interrupted":
            yield "a run's process died"
        elif need == "quarantined":
            yield counted(one.quarantined, "quarantined row")


def _days(seconds: float) -> str:
    return counted(int(seconds // _DAY_S), "day") if seconds >= 2 * _DAY_S else duration(seconds)


def _show_downstream(found: Overview) -> None:
    if not found.downstream:
        return
    st.subheader("Downstream systems", anchor=False)
    rows = [
        {
            "System": one.name,
            "Type": one.type or "not in the settings here",
            "Queued": one.pending,
            "Given up": one.failed,
            "Sent": one.sent,
            "Last sent": one.last_sent_at,
            "Why it waits": one.reason or "",
        }
        for one in found.downstream
    ]
    parts.table(rows, label="Downstream systems")
    parts.commands(f"lakegate admin downstream retry {one.name}" for one in found.downstream if one.failed)


if __name__ == "__main__":
    show()
