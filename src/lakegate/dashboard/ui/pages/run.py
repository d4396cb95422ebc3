"""One run: its outcome, steps, what it did to tables, checks with failing rows, files, and alerts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import streamlit as st

from lakegate.dashboard.runs import RunDetail, get_run
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.pages.runs import status_of
from lakegate.dashboard.ui.session import shared
from lakegate.errors import NotFoundError
from lakegate.model.run import Run
from lakegate.model.words import count, counted, duration, size
from lakegate.run_text import rows_of

_MOST_FILES = 1_000
_MOST_LINKS = 5


def show() -> None:
    """Draw the page."""
    run_id = parts.param("run")
    if run_id is None:
        parts.heading("Run")
        parts.link("runs", "No run was chosen: see all runs")
        return
    try:
        found = get_run(shared().model, run_id, examples=shared().access.settings.examples)
    except NotFoundError:
        parts.heading(f"Run {run_id}")
        parts.link("runs", "All runs")
        raise
    run = found.run
    parts.heading(f"Run {run.run_id}")
    parts.problems(found.problems)
    if run.error is not None:
        st.error(parts.plain(run.error.message))
        parts.hint(run.error.hint)
    st.text(parts.clean(f"{found.happened} {found.means}", longest=1_000))
    parts.facts(*_facts(found))
    _show_links(found)
    if run.steps:
        st.subheader("Steps", anchor=False)
        parts.table(list(_steps(run)), label="Steps")
    if run.staged or run.undone:
        st.subheader("What it would do" if run.publication is None else "What it did", anchor=False)
        parts.table(list(_changes(run)), label="What the run did to each table")
    if found.checks:
        st.subheader("Checks", anchor=False)
        parts.show_checks(found.checks)
    _show_files(run)
    _show_messages(found)
    if found.commands:
        st.subheader("Next", anchor=False)
        parts.commands(found.commands)


def _show_links(found: RunDetail) -> None:
    run = found.run
    for table in run.tables[:_MOST_LINKS]:
        parts.link("table", f"Table {table}", table=table)
    if found.branch_exists:
        parts.link("branches", f"Branch {run.branch}", branch=run.branch)
    for other in (*run.reverts[:_MOST_LINKS], *([run.reverted_by] if run.reverted_by else [])):
        parts.link("run", f"{'Reverted by' if other == run.reverted_by else 'Reverts'} run {other}", run=other)


def _facts(found: RunDetail) -> Iterator[tuple[str, object]]:
    run, accepted = found.run, found.run.accepted
    yield "Status", status_of(run)
    yield "Note" if run.status == "published" else "Why", run.detail
    yield "Accepted", None if accepted is None else f"{accepted.reason} (by {accepted.actor}, {_utc(accepted.at)})"
    yield "Done by hand", ", ".join(f"{one.action} by {one.actor}" for one in run.actions)
    yield "Kind", run.kind + (f" {run.name}" if run.name else "")
    yield "Started by", run.orchestrator
    yield "Written by", ", ".join(run.opening.writers) if run.opening else None
    yield "Began", _utc(run.started_at)
    yield "Took", None if run.seconds is None else duration(run.seconds)
    yield "Suspended until", None if found.suspended_until is None else _utc(found.suspended_until)
    yield "Rows", count(rows_of(run))
    yield "Quarantined", counted(run.quarantined, "row") if run.quarantined else None
    gone = " (dropped)" if found.branch_exists is False and run.finished_at is not None else ""
    yield "Branch", f"{run.branch}{gone}" if run.branch else None
    yield "Commit", None if run.publication is None else run.publication.commit


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _steps(run: Run) -> Iterator[dict[str, object]]:
    for step in run.steps:
        ended = step.finished_at
        yield {
            "Step": step.name,
            "Began": step.started_at,
            "Took": "" if ended is None else duration((ended - step.started_at).total_seconds()),
            "Outcome": step.outcome,
        }


def _changes(run: Run) -> Iterator[dict[str, object]]:
    rebased = () if run.publication is None else run.publication.replayed
    for staged in run.staged:
        yield {
            "Table": str(staged.table),
            "Change": staged.change + (", rebased" if str(staged.table) in rebased else ""),
            "Rows added": staged.rows,
            "Rows removed": staged.rows_removed,
            "Data files": staged.data_files,
            "Why it isn't an append": staged.reason or "",
        }
    for undone in run.undone:
        yield {
            "Table": undone.table,
            "Change": "dropped" if undone.dropped else "put back",
            "Rows added": undone.rows,
            "Rows removed": None,
            "Data files": undone.data_files,
            "Why it isn't an append": "",
        }


def _show_files(run: Run) -> None:
    files = [(file, "") for file in (run.request.batch.files if run.request is not None else ())]
    files += [(known.file, f"skipped: published by {known.run_id}") for known in run.skipped_files]
    if not files:
        return
    st.subheader("Source files", anchor=False)
    rows = [
        {"File": file.uri, "Rows": file.rows, "Size": size(file.size_bytes), "Note": note}
        for file, note in files[:_MOST_FILES]
    ]
    parts.table(rows, label="Source files")
    if len(files) > _MOST_FILES:
        st.text(f"The first {_MOST_FILES:,} of {len(files):,} files.")


def _show_messages(found: RunDetail) -> None:
    if found.run.notifications:
        st.subheader("Alerts", anchor=False)
        alerts = [
            {
                "Channel": one.channel,
                "About": one.event,
                "Outcome": one.outcome,
                "When": one.at,
                "Why not": one.reason or "",
            }
            for one in found.run.notifications
        ]
        parts.table(alerts, label="Alerts")
    if found.deliveries:
        st.subheader("Downstream systems", anchor=False)
        rows = [
            {
                "System": one.downstream,
                "State": {"failed": "given up", "pending": "queued"}.get(one.state, one.state),
                "Tables": ", ".join(one.tables),
                "Tries": one.tries,
                "When": one.ended_at or one.queued_at,
                "Why not": one.reason or "",
            }
            for one in found.deliveries
        ]
        parts.table(rows, label="Downstream systems")


if __name__ == "__main__":
    show()
