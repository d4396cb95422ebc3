"""Query: read-only SQL at any ref, with its result as a table, a chart and a file."""

from __future__ import annotations

from typing import Any

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.queries import LIMITS, QueryJob, Result
from lakegate.dashboard.ui import charts, markup, parts
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.session import shared
from lakegate.model.refs import MAIN
from lakegate.model.words import counted, duration

_JOB = "query-job"
_ROWS_PER_PAGE = 500
_MOST_POINTS = 5_000
_SHORTEST_QUERY_S = 0.4
_KINDS: tuple[charts.Kind, ...] = ("bars", "line", "points")


def show() -> None:
    """Draw the page."""
    about = "Read-only Spark SQL on any branch, tag or commit. Table names refer to the tables there."
    parts.heading("Query", about)
    if not _may_query():
        names = map(markup.code, ("ui.query", "ui.examples", "ui.masked", "audit.mask"))
        why = Markup("They're off because {}, {}, {} or {} in lakegate.toml hides rows of data.").format(*names)
        parts.show_empty("Queries are turned off", why)
        return
    job: QueryJob | None = st.session_state.get(_JOB)
    asked = _ask(is_running=job is not None and job.state == "running")
    if asked is not None:
        if job is not None:
            job.stop()
        job = st.session_state[_JOB] = asked
        job.wait(_SHORTEST_QUERY_S)  # show a quick result at once
    if job is None:
        if not parts.queries(shared()).is_open:
            parts.note("The first query starts Spark, which can take a minute. No other page does.")
    elif job.state == "running":
        parts.watch(job, key="query-stop")
    else:
        with parts.boundary("the result"):
            _show(job)


def _may_query() -> bool:
    settings = shared().access.settings
    # SQL can give a masked column another name.
    return settings.query if settings.query is not None else settings.examples > 0 and not settings.masked


def _ask(*, is_running: bool) -> QueryJob | None:
    """Show the query form. Return the query when the visitor presses Run; a query from a link doesn't run by itself."""
    with st.form("query", border=False):
        sql = st.text_area(
            "SQL",
            placeholder="SELECT count(*) FROM nyc.trips",
            height=140,
            key="sql",
            bind="query-params",
            label_visibility="collapsed",
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            ref = st.text_input("Branch, tag or commit", value=MAIN, key="ref", bind="query-params", width=220)
            at = st.text_input(
                "As of (time in UTC, or commit)", placeholder="now", key="at", bind="query-params", width=220
            )
            limit = st.selectbox("Rows at most", LIMITS, format_func="{:,}".format, key="query-limit", width=130)
            pressed = st.form_submit_button("Run again" if is_running else "Run", type="primary")
    if not pressed or not sql.strip():
        return None
    return parts.queries(shared()).start(sql, ref=ref.strip() or MAIN, at=at.strip() or None, limit=limit or LIMITS[0])


def _show(job: QueryJob) -> None:
    if job.state == "stopped":
        parts.note(f"Stopped after {duration(job.seconds)}.")
    elif job.error is not None:
        parts.show_error(job.error)
    elif job.result is not None:
        _show_result(job, job.result)


def _show_result(job: QueryJob, result: Result) -> None:
    count = result.table.num_rows
    rows = f"The first {count:,} rows of more" if result.cut else counted(count, "row")
    columns = counted(result.table.num_columns, "column")
    parts.note(f"{rows} · {columns} · {duration(result.seconds)} · on ", markup.code(job.where))
    if count == 0:
        parts.show_empty("The query returned no rows")
        return
    view = st.segmented_control(
        "View", ["Table", "Chart"], default="Table", key="query-view", label_visibility="collapsed"
    )
    if view == "Chart":
        _chart(result)
    else:
        _table(result)
    _downloads(result)


def _table(result: Result) -> None:
    pages = -(-result.table.num_rows // _ROWS_PER_PAGE)
    number = 0
    if pages > 1:
        label = f"Page, of {pages:,}"
        number = int(st.number_input(label, min_value=1, max_value=pages, key="query-page", width=160)) - 1
    rows = result.page(number, _ROWS_PER_PAGE)
    # The grid draws only visible cells, however many columns there are, and shows data as plain text.
    grid = {name: [_cell(row[name]) for row in rows] for name in result.table.column_names}
    st.dataframe(grid, hide_index=True, width="stretch", height=min(38 * (len(rows) + 1), 560), key="query-grid")


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float)) else charts.plain(value)


def _chart(result: Result) -> None:
    types = charts.types_of(result.table)
    numbers = [name for name, kind in types.items() if kind == "Q"]
    if not numbers:
        parts.show_empty("A chart needs a column of numbers", "This result has none.")
        return
    names = list(types)
    first = next((name for name in names if types[name] != "Q"), names[0])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.selectbox("Chart", _KINDS, key="chart-kind", width=120)
        x = st.selectbox("Across", names, index=names.index(first), key="chart-x", format_func=charts.short, width=220)
        others = [name for name in numbers if name != x] or numbers
        ys = st.multiselect(
            "Up", numbers, default=others[:1], key="chart-y", format_func=charts.short, max_selections=6
        )
    if not ys:
        parts.show_empty("Choose at least one column for the vertical axis")
        return
    points = result.page(0, _MOST_POINTS)
    charts.free(points, kind=kind, x=x, ys=ys, types=types)
    if result.table.num_rows > _MOST_POINTS:
        parts.note(f"The first {_MOST_POINTS:,} rows.")


def _downloads(result: Result) -> None:
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "Download CSV",
            data=result.to_csv,
            file_name="query.csv",
            mime="text/csv",
            key="query-csv",
            on_click="ignore",
        )
        st.download_button(
            "Download Parquet",
            data=result.to_parquet,
            file_name="query.parquet",
            mime="application/vnd.apache.parquet",
            key="query-parquet",
            on_click="ignore",
        )


PAGE = Page("Query", path="query", icon="terminal", order=50, show=show)
