"""Runs: all runs, newest first, with filters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import get_args

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.runs import RunSummary, list_runs
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Html, TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.session import shared
from lakegate.journal.pages import RunFilter
from lakegate.model.run import RunKind, RunStatus
from lakegate.model.words import counted, duration

_PAGE_SIZE = 50
_SINCE = {
    "last hour": timedelta(hours=1),
    "last 24 hours": timedelta(days=1),
    "last 7 days": timedelta(days=7),
    "last 30 days": timedelta(days=30),
}
_ORCHESTRATORS = ("cli", "python", "watch", "backfill", "prefect", "dbos", "aws-lambda", "airflow")
_RUN_ID = re.compile(r"\d{8}T\d*(?:-[0-9a-f]*)?|prefect-.*", re.IGNORECASE)
"""Text that is surely a run id. Users may name runs themselves, so other text may be either."""
_COLUMNS = (
    TableColumn("Status", "fit"),
    TableColumn("Run"),
    TableColumn("Tables"),
    TableColumn("Rows", "num"),
    TableColumn("Files", "num"),
    TableColumn("Checks"),
    TableColumn("Took", "num"),
    TableColumn("Started", "fit"),
)


def show() -> None:
    """Draw the page."""
    parts.heading("Runs")
    wanted = _filters()
    found = parts.read_page(lambda cursor: list_runs(shared().model, wanted, limit=_PAGE_SIZE, cursor=cursor))
    parts.problems(found.problems)
    if found.items:
        parts.html(markup.table(_COLUMNS, (_row(one) for one in found.items), caption="Runs"))
    elif found.next is not None:
        parts.show_empty("No run matches among the newest ones", "The next page searches older runs.")
    elif wanted != RunFilter():
        parts.show_empty("No run matches", "Clear a filter above.")
    else:
        parts.show_empty(
            "No runs yet",
            "A run is one pass through write–audit–publish, such as:",
            markup.commands("lakegate ingest nyc.trips trips/*.parquet --check 'not_null(trip_id)'"),
        )
    if found.items or found.next is not None:
        parts.show_pagination(found, "run")


def _filters() -> RunFilter:
    search, table, status, kind, began, since = st.columns([2.6, 1.9, 1.2, 1.2, 1.3, 1.4], gap="small")
    with search:
        text = parts.search_box("Search by file name or run id", key="q")
    with status:
        chosen = parts.choice("Any status", get_args(RunStatus), key="status")
    with table:
        of = parts.search_box("Table, such as nyc.trips", key="table")
    with kind:
        of_kind = parts.choice("Any kind", get_args(RunKind), key="kind")
    with began:
        by = parts.choice("Started by any", _ORCHESTRATORS, key="by")
    with since:
        period = parts.choice("Any time", tuple(_SINCE), key="since")
    is_id = _RUN_ID.fullmatch(text) is not None
    return RunFilter(
        table=of or None,
        status=chosen,
        kind=of_kind,
        orchestrator=by,
        since=None if period is None else shared().model.now() - _SINCE[period],
        file=text if text and not is_id else None,
        or_id=bool(text) and not is_id,
        run_id=text if is_id else None,
    )


def _row(one: RunSummary) -> Sequence[object]:
    notes = list(_notes(one))
    name = markup.run_link(one.run_id)
    if notes:
        name += Markup('<div class="why">{}</div>').format(Markup("").join(notes))
    return (
        status_of(one),
        name,
        Markup("<br>").join(markup.table_link(table) for table in one.tables[:3])
        + (" " + markup.muted(f"and {len(one.tables) - 3} more") if one.tables[3:] else ""),
        "–" if one.rows is None else f"{one.rows:,}",
        f"{one.files:,}",
        _checks(one),
        "–" if one.seconds is None else duration(one.seconds),
        markup.ago(one.started_at, shared().model.now()),
    )


def status_of(one: RunSummary) -> Html:
    """Return a run's status; ``accepted`` if it was published although its audit failed."""
    if one.status == "published" and one.accepted_by is not None:
        return markup.badge("accepted", tone="warn", sign="✓")
    return markup.badge(one.status)


def _checks(one: RunSummary) -> Html:
    """Return how many checks of a run failed, and which."""
    if not one.checks:
        return markup.muted("none")
    if not one.failed_checks and not one.warned_checks:
        return Markup('<span class="ok">✓ {:,}</span>').format(one.checks)
    words = []
    if one.failed_checks:
        words.append(Markup('<span class="bad">✕ {:,} of {:,}</span>').format(one.failed_checks, one.checks))
    if one.warned_checks:
        words.append(Markup('<span class="warn">! {}</span>').format(counted(one.warned_checks, "warning")))
    names = markup.text(", ".join(one.failing), longest=60)
    return Markup('{} <div class="why">{}</div>').format(Markup(" ").join(words), names)


def _notes(one: RunSummary) -> Iterator[Html]:
    """Yield notes about a run: its kind, matching files, who accepted or reverted it, its error."""
    if one.kind != "ingest":
        yield Markup("<span>{}</span>").format(markup.text(one.kind + (f" {one.name}" if one.name else ""), longest=60))
    for file in one.matching_files:
        yield Markup("<span>{}</span>").format(markup.text(file, longest=60))
    if one.accepted_by is not None:
        yield Markup("<span>by {}</span>").format(markup.text(one.accepted_by, longest=60))
    if one.reverted_by is not None:
        yield Markup("<span>by {}</span>").format(markup.run_link(one.reverted_by))
    if one.error_code is not None:
        yield Markup("<span>{}</span>").format(markup.code(one.error_code))


PAGE = Page("Runs", path="runs", icon="list_alt", order=20, show=show)
