"""Spark for the pages: opened for the first visitor who asks for rows, with progress, and a way to stop."""

from __future__ import annotations

from functools import cache

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.queries import Job, Queries
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import LakegateError, RetryableError
from lakegate.lake import Lake, connect
from lakegate.model.figures import duration
from lakegate.ports import Narrator

_LOOK_EVERY_S = 0.5


@cache
def queries(known: Shared) -> Queries:
    """Return what runs all visitors' queries."""

    def open_lake(narrator: Narrator) -> Lake:
        return connect(known.lake.home, settings=known.lake.settings, narrator=narrator)

    return Queries(open_lake)


def still_here() -> None:
    """Let what this visitor waits for go on: their page is still open."""
    for known in st.session_state.values():
        if isinstance(known, Job):
            known.seen()


def watch(*jobs: Job, key: str) -> None:
    """Show what runs and how far it is, with a button to stop it; draw the page anew once all have ended.

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
