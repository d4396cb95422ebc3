"""Spark for the pages: opened for whoever first asks for rows, with progress and a way to stop; a branch's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.branches import BranchOverview
from lakegate.dashboard.model import MAIN
from lakegate.dashboard.queries import Job, Queries
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.session import Shared, shared
from lakegate.errors import LakegateError, RetryableError
from lakegate.lake import Lake, connect
from lakegate.model.figures import counted, duration
from lakegate.ports import Narrator
from lakegate.table import Query

_LOOK_EVERY_S = 0.5
_ROWS = 20
_COLUMNS = 40
_SHOWN = "lg-rows"
_JOBS = ("lg-rows-added", "lg-rows-removed")


@cache
def queries(known: Shared) -> Queries:
    """Return what runs all visitors' queries."""

    def open_lake(narrator: Narrator) -> Lake:
        return connect(known.lake.home, settings=known.lake.settings, narrator=narrator)

    return Queries(open_lake)


def still_here() -> None:
    """Keep what this visitor waits for running: their page is still open."""
    for known in st.session_state.values():
        if isinstance(known, Job):
            known.seen()


def watch(*jobs: Job, key: str) -> None:
    """Show what runs and how far it is, with a button to stop it; redraw the page once all have ended.

    Args:
        *jobs: What runs, one after the other.
    """

    @st.fragment(run_every=_LOOK_EVERY_S)
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
    """Say why rows couldn't be read."""
    parts.trouble(error.message, error.hint, tone="warn" if isinstance(error, RetryableError) else "bad")
    if isinstance(error, RetryableError):
        parts.html(Markup('<p class="muted">Only queries need Spark: all other pages work without it.</p>'))


@dataclass(frozen=True)
class _Question:
    """Which rows: a table on a branch at one commit, against the commit that the branch started from."""

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
    """Put the rows that a branch changes on the page, or the button that asks for them."""
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
    question = _Question(one.branch, one.head, table, one.target or MAIN, base)
    jobs = _jobs(question)
    if jobs is None:
        _offer(question)
        return
    if any(job.state == "running" for job in jobs):
        watch(*jobs, key="lg-rows-stop")
        return
    with parts.boundary("the rows"):
        _show(question, *jobs)


def _jobs(question: _Question) -> tuple[Job, Job] | None:
    """Return what reads the rows, if the visitor asked for these and not for others."""
    if st.session_state.get(_SHOWN) != question:
        return None
    added, removed = (st.session_state.get(key) for key in _JOBS)
    return None if added is None or removed is None else (added, removed)


def _offer(question: _Question) -> None:
    known = queries(shared())
    about = "Spark reads them; the rest of this page needs none." + (
        "" if known.is_open else " It starts first, which can take a minute."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Show rows", key="lg-rows-show"):
            _forget()
            where = f"{question.branch} against {question.target}"
            st.session_state[_SHOWN] = question
            for key, plan in zip(_JOBS, (question.added, question.removed), strict=True):
                st.session_state[key] = known.read(plan, where=where, limit=_ROWS)
            st.rerun()
        parts.html(Markup('<span class="muted">{}</span>').format(about))


def _forget() -> None:
    for key in (_SHOWN, *_JOBS):
        job = st.session_state.pop(key, None)
        if isinstance(job, Job):
            job.stop()


def _show(question: _Question, added: Job, removed: Job) -> None:
    against = question.target + (" as it is now" if question.base is None else " as it was when the run began")
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


def _show_rows(verb: str, job: Job) -> None:
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
