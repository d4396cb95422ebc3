"""One run: its steps, checks, files, commit and alerts, and commands to run next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urljoin

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.runs import RunDetail, RunFile, StepLine, TableDelta, get_run, list_run_files
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.actions import undone_tables
from lakegate.dashboard.ui.checks import show_checks, show_quarantine
from lakegate.dashboard.ui.markup import Html, TableColumn, address
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.pages.runs import status_of
from lakegate.dashboard.ui.parts import show_deliveries
from lakegate.dashboard.ui.session import shared
from lakegate.model.words import count, counted, duration, size

_FILES = 25
_AGAIN_S = 3.0
_OUTCOMES: dict[str, tuple[markup.Tone, str]] = {"done": ("ok", "✓"), "failed": ("bad", "✕"), "running": ("live", "●")}
_CHANGES = {
    "append": "appended",
    "create": "created",
    "drop": "dropped",
    "evolve": "appended, with new columns",
    "expire": "snapshots expired",
    "metadata": "redefined",
    "rewrite": "changed",
}


def show() -> None:
    """Draw the page."""
    run_id = parts.param("run")
    if run_id is None:
        parts.heading("Run")
        parts.show_empty("No run was chosen", markup.link("See all runs", "runs"))
        return
    found = get_run(shared().model, run_id, examples=shared().access.settings.examples)
    parts.heading(f"Run {found.summary.run_id}")
    parts.problems(found.problems)
    _show_facts(found)
    if found.steps:
        parts.html(Markup("<h2>Steps</h2>"), _timeline(found))
    if found.changes or found.undone:
        verb = "would do" if found.summary.commit is None else "did"
        undone = undone_tables(found.undone, caption="What the revert changed") if found.undone else ""
        parts.html(Markup("<h2>What it {}</h2>").format(verb), _changes(found.changes), undone)
    if found.checks:
        parts.html(Markup("<h2>Checks</h2>"))
        show_checks(found.checks)
    if found.summary.quarantined and found.summary.status == "published":
        with parts.boundary("the quarantined rows"):
            parts.html(Markup("<h2>Quarantined rows</h2>"))
            show_quarantine(found.summary.tables[0], run_id=found.summary.run_id)
    with parts.boundary("the files"):
        _show_files(found)
    if found.notifications:
        parts.html(Markup("<h2>Alerts</h2>"), _alerts(found))
    show_deliveries(found.deliveries)
    if found.summary.finished_at is None and found.suspended_until is None:
        parts.redraw_every(_AGAIN_S)
    if found.commands:
        parts.html(
            Markup("<h2>Next</h2>"), markup.facts(*((one.purpose, markup.code(one.command)) for one in found.commands))
        )


def _show_facts(found: RunDetail) -> None:
    one, now = found.summary, shared().model.now()
    published = one.commit is not None
    rows = (
        None if one.rows is None else f"{one.rows:,}" + (f", {one.rows_removed:,} removed" if one.rows_removed else "")
    )
    parts.html(
        Markup('<div class="line">{} {}</div>').format(
            status_of(one), Markup(", ").join(markup.table_link(table) for table in one.tables)
        ),
    )
    if found.error is not None:
        parts.show_alert(found.error.message, found.error.hint, tone="bad")
    parts.html(
        markup.facts(
            ("Why", one.detail),
            ("Accepted", _accepted(found)),
            ("Reverted by", None if one.reverted_by is None else markup.run_link(one.reverted_by)),
            ("Reverts", Markup(", ").join(map(markup.run_link, one.reverts)) if one.reverts else None),
            ("Kind", one.kind + (f" {one.name}" if one.name else "")),
            ("Started by", one.orchestrator),
            (
                "Published, discarded or reverted by",
                ", ".join(f"{one.actor} ({one.action})" for one in found.actions) or None,
            ),
            ("Started", Markup("{} ({})").format(markup.clock(one.started_at), markup.ago(one.started_at, now))),
            ("Took", None if one.seconds is None else duration(one.seconds)),
            ("Suspended until", None if found.suspended_until is None else markup.clock(found.suspended_until)),
            ("Rows" if published else "Rows in the batch", rows),
            ("Quarantined", counted(one.quarantined, "row") if one.quarantined else None),
            ("Branch", _branch(found)),
            ("Commit", None if one.commit is None else markup.link(markup.code(one.commit), "history", ref=one.commit)),
            ("Link", markup.code(urljoin(st.context.url or "", address("run", run=one.run_id)))),
        )
    )


def _accepted(found: RunDetail) -> Html | None:
    if found.accepted is None:
        return None
    return Markup("{} by {}, {}").format(
        markup.text(found.accepted.reason, longest=1_000),
        markup.text(found.accepted.actor),
        markup.ago(found.accepted.at, shared().model.now()),
    )


def _branch(found: RunDetail) -> Html | None:
    name = found.summary.branch
    if not name:
        return None
    if found.branch_exists:
        return markup.branch_link(name)
    gone = "not there yet" if found.summary.finished_at is None and not found.changes else "dropped"
    return markup.joined(markup.code(name), markup.muted(gone if found.branch_exists is False else ""))


def _timeline(found: RunDetail) -> Html:
    now = shared().model.now()
    whole = max(*(step.starts_s + _length(step, now) for step in found.steps), 0.001)
    lines = []
    for step in found.steps:
        tone, sign = _OUTCOMES.get(step.outcome, ("off", "●"))
        seconds = _length(step, now)
        lines.append(
            Markup(
                '<span>{}</span><span class="track {}"><i style="left:{:.2f}%;width:{:.2f}%"></i></span>'
                '<span class="figure">{}</span>'
            ).format(
                markup.badge(step.name, tone=tone, sign=sign),
                tone,
                100 * step.starts_s / whole,
                100 * seconds / whole,
                duration(seconds) + (" so far" if step.seconds is None else ""),
            )
        )
    axis = Markup('<span class="axis"><span>0 s</span><span>{}</span></span>').format(duration(whole))
    return Markup('<div class="steps">{}{}</div>').format(Markup("").join(lines), axis)


def _length(step: StepLine, now: datetime) -> float:
    return max((now - step.started_at).total_seconds(), 0.0) if step.seconds is None else step.seconds


def _changes(changes: Sequence[TableDelta]) -> Html | str:
    if not changes:
        return ""
    columns = (
        "Table",
        "Change",
        TableColumn("Rows added", "num"),
        TableColumn("Removed", "num"),
        TableColumn("Data files", "num"),
    )
    rows = (
        (
            markup.table_link(one.table),
            _CHANGES[one.change] + (", rebased" if one.rebased else "") + (f": {one.reason}" if one.reason else ""),
            count(one.rows_added) or "unknown",
            "unknown" if one.rows_removed is None else f"{one.rows_removed:,}",
            count(one.data_files) or "unknown",
        )
        for one in changes
    )
    return markup.table(columns, rows, caption="What the run did to each table")


def _show_files(found: RunDetail) -> None:
    cursor = parts.param("files")
    search = ""
    if found.summary.files > _FILES:
        parts.html(Markup("<h2>Source files</h2>"))
        search = parts.search_box(f"Search {counted(found.summary.files, 'file')}", key="file", cursor_name="files")
    files = list_run_files(shared().model, found.summary.run_id, search=search, limit=_FILES, cursor=cursor)
    if not files.items:
        if search:
            parts.show_empty("No file matches")
        return
    if found.summary.files <= _FILES:
        parts.html(Markup("<h2>Source files</h2>"))
    columns = ("File", TableColumn("Rows", "num"), TableColumn("Size", "num"))
    parts.html(markup.table(columns, _file_rows(files.items), caption="Source files"))
    parts.show_pagination(files, "file", cursor_name="files")


def _file_rows(files: Sequence[RunFile]) -> Iterator[Sequence[object]]:
    for one in files:
        name = Markup('<span title="{}">{}</span>').format(one.uri[:2_000], markup.text(one.name))
        if one.skipped_by is not None:
            name += Markup('<div class="why"><span>skipped: published by {}</span></div>').format(
                markup.run_link(one.skipped_by)
            )
        elif one.same_as is not None:
            name += Markup('<div class="why"><span>same bytes as {}</span></div>').format(markup.text(one.same_as))
        yield name, count(one.rows), size(one.size_bytes)


def _alerts(found: RunDetail) -> Html:
    tones: dict[str, tuple[markup.Tone, str]] = {"sent": ("ok", "✓"), "grouped": ("off", "="), "failed": ("bad", "✕")}
    rows = (
        (
            markup.badge(one.outcome, tone=tones[one.outcome][0], sign=tones[one.outcome][1]),
            one.channel,
            one.event,
            markup.ago(one.at, shared().model.now()),
            one.reason or "",
        )
        for one in found.notifications
    )
    columns = (TableColumn("Outcome", "fit"), "Channel", "About", TableColumn("When", "fit"), "Why not")
    return markup.table(columns, rows, caption="Alerts")


PAGE = Page("Run", path="run", icon="list_alt", order=21, show=show, listed=False)
