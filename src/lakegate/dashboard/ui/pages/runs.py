"""Runs: all runs, newest first, with filters."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import get_args

import streamlit as st

from lakegate.dashboard.runs import list_runs
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import shared
from lakegate.journal.pages import RunFilter
from lakegate.model.run import Run, RunKind
from lakegate.model.states import RunStatus
from lakegate.model.words import counted
from lakegate.run_text import checks_of, rows_of

_PAGE_SIZE = 50
_MOST_NAMED = 5
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


def _row(run: Run) -> dict[str, object]:
    return {
        "Status": status_of(run),
        "Run": run.run_id,
        "Tables": ", ".join(run.tables),
        "Checks": _checks(run),
        "Rows": rows_of(run),
        "Files": 0 if run.request is None else len(run.request.batch.files),
        "Took": run.seconds,
        "Began": run.started_at,
        "Kind": run.kind + (f" {run.name}" if run.name else ""),
        "By": run.orchestrator or "",
    }


def status_of(run: Run) -> str:
    """Return a run's status, with who accepted or reverted it, or its error."""
    if run.status == "published" and run.accepted is not None:
        return f"accepted by {run.accepted.actor}"
    code = None if run.error is None else run.error.code
    note = run.reverted_by if run.status == "reverted" else code
    return f"{run.status}: {note}" if note else run.status


def _checks(run: Run) -> str:
    """Return how many checks of a run failed, and which, and how many rows it quarantined."""
    checks, warnings = checks_of(run), [result for report in run.reports for result in report.warnings]
    if not checks:
        return "none"
    aside = [f"{counted(run.quarantined, 'row')} quarantined"] * bool(run.quarantined)
    names = [result.name for result in (*run.failures, *warnings)]
    if not names:
        return ", ".join([f"{checks} passed", *aside])
    failed = [f"{len(run.failures)} of {checks} failed"] * bool(run.failures)
    warned = [counted(len(warnings), "warning")] * bool(warnings)
    return f"{', '.join(aside + failed + warned)}: {', '.join(names[:_MOST_NAMED])}"


if __name__ == "__main__":
    show()
