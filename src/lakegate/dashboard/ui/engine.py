"""Queries on the pages: their progress, a stop button, and the rows that a branch changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.branches import BranchOverview
from lakegate.dashboard.model import MAIN
from lakegate.dashboard.queries import Queries, QueryJob
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.session import Shared, shared
from lakegate.errors import LakegateError, RetryableError
from lakegate.lake import Lake, connect
from lakegate.model.figures import counted, duration
from lakegate.ports import Narrator
from lakegate.table import Query

_POLL_EVERY_S = 0.5
_ROWS = 20
_COLUMNS = 40
_SHOWN = "lg-rows"
_JOBS = ("lg-rows-added", "lg-rows-removed")


@cache
def queries(known: Shared) -> Queries:
    """Return the runner of all visitors' queries."""

    def open_lake(narrator: Narrator) -> Lake:
        return connect(known.lake.home, settings=known.lake.settings, narrator=narrator)

    return Queries(open_lake)


def keep_jobs_alive() -> None:
    """Keep this visitor's queries running: their page is still open."""
    for known in st.session_state.values():
        if isinstance(known, QueryJob):
            known.seen()


def watch(*jobs: QueryJob, key: str) -> None:
    """Show the progress of queries with a stop button. Redraw the page once all have ended."""

    @st.fragment(run_every=_POLL_EVERY_S)
    def look() -> None:
        running = [job for job in jobs if job.state == "running"]
        if not running:
            st.rerun()
        job = running[0]
        with st.container(border=True):
            live = markup.badge("running", tone="live", sign="●")
            parts.html(markup.joined(live, " ", markup.text(job.doing), f" · {duration(job.seconds)}"))
            if job.progress is not None and job.progress[1]:
                done, total = job.progress
                st.progress(min(done / total, 1.0))
            if st.button("Stop", key=key):
                for one in running:
                    one.stop()
                st.rerun()

    look()


def show_error(error: LakegateError) -> None:
    """Show why rows couldn't be read."""
    parts.show_alert(error.message, error.hint, tone="warn" if isinstance(error, RetryableError) else "bad")
    if isinstance(error, RetryableError):
        parts.html(Markup('<p class="muted">Only queries need Spark; all other pages work without it.</p>'))


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


def offer_rows(one: BranchOverview) -> None:
    """Show the rows that a branch changes, or a button to read them."""
    tables = [change.table for change in one.changes]
    if not tables:
        return
    parts.html(Markup("<h2>Rows it changes</h2>"))
    settings = shared().access.settings
    if settings.examples == 0 or settings.query is False:
        name = "ui.examples" if settings.examples == 0 else "ui.query"
        parts.html(Markup('<p class="muted">Rows of data are hidden by the setting {}.</p>').format(markup.code(name)))
        return
    table = tables[0]
    if len(tables) > 1:
        table = st.selectbox("Table", tables, key="lg-rows-table", width=340) or table
    base = None if one.run is None else one.base
    request = _RowsRequest(one.branch, one.head, table, one.target or MAIN, base)
    jobs = _jobs(request)
    if jobs is None:
        _offer(request)
        return
    if any(job.state == "running" for job in jobs):
        watch(*jobs, key="lg-rows-stop")
        return
    with parts.boundary("the rows"):
        _show(request, *jobs)


def _jobs(request: _RowsRequest) -> tuple[QueryJob, QueryJob] | None:
    """Return the two queries of a request; ``None`` unless it's the visitor's latest."""
    if st.session_state.get(_SHOWN) != request:
        return None
    added, removed = (st.session_state.get(key) for key in _JOBS)
    return None if added is None or removed is None else (added, removed)


def _offer(request: _RowsRequest) -> None:
    known = queries(shared())
    about = "Spark reads them." + ("" if known.is_open else " Starting it can take a minute.")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Show rows", key="lg-rows-show"):
            _forget()
            where = f"{request.branch} against {request.target}"
            st.session_state[_SHOWN] = request
            for key, plan in zip(_JOBS, (request.added, request.removed), strict=True):
                st.session_state[key] = known.read(plan, where=where, limit=_ROWS)
            st.rerun()
        parts.html(Markup('<span class="muted">{}</span>').format(about))


def _forget() -> None:
    for key in (_SHOWN, *_JOBS):
        job = st.session_state.pop(key, None)
        if isinstance(job, QueryJob):
            job.stop()


def _show(request: _RowsRequest, added: QueryJob, removed: QueryJob) -> None:
    against = request.target + (" as it is now" if request.base is None else " as it was when the run began")
    seconds = duration(max(job.seconds for job in (added, removed)))
    parts.html(Markup('<p class="muted">Against {}; read in {}.</p>').format(markup.text(against), seconds))
    failed = next((job.error for job in (added, removed) if job.error is not None), None)
    if failed is not None:
        show_error(failed)
    elif any(job.state == "stopped" for job in (added, removed)):
        parts.html(Markup('<p class="muted">Stopped.</p>'))
    else:
        _show_rows("Added", added)
        _show_rows("Removed", removed)
    if st.button("Read again", key="lg-rows-again"):
        _forget()
        st.rerun()


def _show_rows(verb: str, job: QueryJob) -> None:
    found = job.result
    if found is None or found.table.num_rows == 0:
        parts.html(Markup("<h3>{}</h3>").format(verb), Markup('<p class="muted">No rows.</p>'))
        return
    count, columns = found.table.num_rows, found.table.num_columns
    about = f"The first {count:,} rows of more" if found.cut else counted(count, "row")
    if columns > _COLUMNS:
        about += f", the first {_COLUMNS} of {columns:,} columns"
    rows = [dict(list(row.items())[:_COLUMNS]) for row in found.page(0, count)]
    parts.html(
        Markup("<h3>{}</h3><p class='muted'>{}</p>").format(verb, about),
        markup.example_rows(parts.unmasked(rows), (), caption=f"{verb} rows"),
    )
