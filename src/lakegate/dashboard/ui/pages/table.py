"""One table on main: its publishes, columns and checks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

import streamlit as st

from lakegate.dashboard.model import rows_after
from lakegate.dashboard.tables import TableDetail, check_history, get_table, list_snapshots
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import shared
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import Snapshot
from lakegate.model.words import counted, size

_PAGE_SIZE = 50
_CHECK_RUNS = 40


def show() -> None:
    """Draw the page."""
    name = parts.param("table")
    if name is None:
        parts.heading("Table")
        parts.link("home", "No table was chosen: see all tables")
        return
    parts.heading(name)
    detail = get_table(shared().model, name)
    rows, at_most = detail.facts.rows, detail.facts.rows_at_most
    with st.container(horizontal=True):
        st.metric("Rows", f"{rows:,}" if rows is not None else "unknown" if at_most is None else f"≤ {at_most:,}")
        st.metric("In data files", size(detail.facts.size_bytes) or "unknown")
        st.metric("Data files", "unknown" if detail.facts.data_files is None else f"{detail.facts.data_files:,}")
        st.metric("Columns", f"{len(detail.metadata.table_schema.columns):,}")
    parts.facts(
        ("Commit", detail.commit),
        ("Metadata file", detail.metadata.metadata_location),
        ("Format version", detail.metadata.format_version),
        ("Partitioned by", ", ".join(detail.metadata.partition_by)),
    )
    with st.container(horizontal=True):
        parts.link("runs", "Its runs", table=name)
        parts.link("branches", "Its branches", of=name)
    if detail.quarantined:
        st.warning(f"{counted(detail.quarantined, 'quarantined row')} to release or drop.")
        parts.commands([f"lakegate quarantine show {shlex.quote(name)}"])
    views: Mapping[str, Callable[[TableDetail], None]] = {
        "Publishes": _show_publishes,
        "Columns": _show_columns,
        "Checks": _show_checks,
    }
    chosen = st.segmented_control(
        "View", list(views), default="Publishes", required=True, key="view", bind="query-params"
    )
    with parts.boundary(f"the table's {chosen.lower()}"):
        views[chosen](detail)


def _show_publishes(detail: TableDetail) -> None:
    page = parts.read_page(lambda cursor: list_snapshots(shared().model, detail.table, limit=_PAGE_SIZE, cursor=cursor))
    if not page.items:
        st.info("Nothing has been written to this table yet.")
        return
    points = [(one.time, rows) for one in reversed(page.items) if (rows := rows_after(one)) is not None]
    if len(points) > 1:
        # Without their zone: charts would show the visitor's.
        times = [at.astimezone(UTC).replace(tzinfo=None) for at, _ in points]
        st.line_chart({"time": times, "rows": [rows for _, rows in points]}, x="time", y="rows")
    parts.listing(
        [_row(one) for one in page.items],
        opens=("run", "run", [one.summary.get(RUN_ID_PROPERTY) for one in page.items]),
        label="Snapshots",
    )
    parts.show_pagination(page, "snapshot")


def _row(snapshot: Snapshot) -> dict[str, object]:
    summary = snapshot.summary
    # A summary that has totals leaves out what is zero.
    default = "0" if "total-records" in summary else ""

    def number(key: str, default: str = "") -> int | None:
        value = summary.get(key, default)
        return int(value) if value.isdecimal() else None

    return {
        "When": snapshot.time,
        "Run": summary.get(RUN_ID_PROPERTY, "another writer"),
        "Operation": snapshot.operation or "",
        "Rows added": number("added-records", default),
        "Rows removed": number("deleted-records", default),
        "Rows after": rows_after(snapshot),
        "Files added": number("added-data-files", default),
        "Size after": size(number("total-files-size")),
        "Snapshot": str(snapshot.snapshot_id),
    }


def _show_columns(detail: TableDetail) -> None:
    columns = detail.metadata.table_schema.columns
    rows = [{"Column": one.name, "Type": one.type, "Required": one.required} for one in columns]
    parts.table(rows, label="Columns")


def _show_checks(detail: TableDetail) -> None:
    found = check_history(shared().model, detail.table, limit=_CHECK_RUNS)
    if not found:
        st.info("No checks have run on this table. Add some to lakegate.toml:")
        parts.commands([f'[tables."{detail.table}"]', 'checks = ["row_count(min=1)"]'])
        return
    failing = sum(one.failing_since is not None for one in found)
    words = f"{failing} of {len(found)} fail" if failing else f"All {len(found)} passed the last time"
    st.text(f"{words}, over the newest {_CHECK_RUNS} runs.")
    since: Sequence[str | None] = [None if one.failing_since is None else one.failing_since.run_id for one in found]
    rows = [
        {
            "Now": "pass" if one.failing_since is None else "fail",
            "Check": one.name,
            "Severity": one.severity,
            "Failing rows, run by run": list(one.failing),
            "Failing since": None if one.failing_since is None else one.failing_since.started_at,
            "Last pass": one.last_pass,
        }
        for one in found
    ]
    parts.listing(
        rows,
        opens=("run", "run", since),
        columns={
            "Check": st.column_config.TextColumn(width="medium"),
            "Failing rows, run by run": st.column_config.BarChartColumn(width="small", y_min=0),
        },
        label="Checks of the table",
    )


if __name__ == "__main__":
    show()
