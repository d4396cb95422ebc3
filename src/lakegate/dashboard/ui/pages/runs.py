"""Runs: all runs, newest first, with filters."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import get_args

import streamlit as st

from lakegate.dashboard.runs import RunSummary, list_runs
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import shared
from lakegate.journal.pages import RunFilter
from lakegate.model.run import RunKind, RunStatus
from lakegate.model.words import counted

_PAGE_SIZE = 50
_SINCE = {
    "last hour": timedelta(hours=1),
    "last 24 hours": timedelta(days=1),
    "last 7 days": timedelta(days=7),
    "last 30 days": timedelta(days=30),
}
_RUN_ID = re.compile(r"\d{8}T\d*(?:-[0-9a-f]*)?|prefect-.*", re.IGNORECASE)
"""Text that is surely a run id. Users may name runs themselves, so other text may be either."""


def show() -> None:
    """Draw the page."""
    parts.heading("Runs")
    wanted = _filters()
    found = parts.read_page(lambda cursor: list_runs(shared().model, wanted, limit=_PAGE_SIZE, cursor=cursor))
    parts.problems(found.problems)
    if found.items:
        parts.listing(
            [_row(one) for one in found.items],
            opens=("run", "run", [one.run_id for one in found.items]),
            columns={"Took": st.column_config.NumberColumn(format="%.1f s")},
            label="Runs",
        )
    elif found.next is not None:
        st.info("No run matches among the newest ones. The next page searches older runs.")
    elif wanted != RunFilter():
        st.info("No run matches. Clear a filter above.")
    else:
        st.info("No runs yet. A run is one pass through write–audit–publish, such as:")
        parts.commands(["lakegate ingest nyc.trips trips/*.parquet --check 'not_null(trip_id)'"])
    parts.show_pagination(found, "run")


def _filters() -> RunFilter:
    with st.container(horizontal=True):
        text = parts.search_box("File or run id", key="q")
        table = parts.search_box("Table", key="table")
        status = parts.choice("Status", get_args(RunStatus), key="status")
        kind = parts.choice("Kind", get_args(RunKind), key="kind")
        period = parts.choice("Started in the", tuple(_SINCE), key="since")
    is_id = _RUN_ID.fullmatch(text) is not None
    return RunFilter(
        table=table or None,
        status=status,
        kind=kind,
        since=None if period is None else shared().model.now() - _SINCE[period],
        file=text if text and not is_id else None,
        or_id=bool(text) and not is_id,
        run_id=text if is_id else None,
    )


def _row(one: RunSummary) -> dict[str, object]:
    return {
        "Status": status_of(one),
        "Run": one.run_id,
        "Tables": ", ".join(one.tables),
        "Rows": one.rows,
        "Files": one.files,
        "Checks": _checks(one),
        "Took": one.seconds,
        "Began": one.started_at,
        "Kind": one.kind + (f" {one.name}" if one.name else ""),
        "By": one.orchestrator or "",
    }


def status_of(one: RunSummary) -> str:
    """Return a run's status, with who accepted or reverted it, or its error."""
    if one.status == "published" and one.accepted_by is not None:
        return f"accepted by {one.accepted_by}"
    note = one.reverted_by if one.status == "reverted" else one.error_code
    return f"{one.status}: {note}" if note else one.status


def _checks(one: RunSummary) -> str:
    """Return how many checks of a run failed, and which."""
    if not one.checks:
        return "none"
    if not one.failed_checks and not one.warned_checks:
        return f"{one.checks} passed"
    failed = [f"{one.failed_checks} of {one.checks} failed"] * bool(one.failed_checks)
    warned = [counted(one.warned_checks, "warning")] * bool(one.warned_checks)
    return f"{', '.join(failed + warned)}: {', '.join(one.failing)}"


if __name__ == "__main__":
    show()
