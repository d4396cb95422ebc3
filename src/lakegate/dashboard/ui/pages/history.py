"""History: the commits of main with their runs, unaudited commits of other writers, and reverts."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.history import CommitLine, list_commits
from lakegate.dashboard.ui import actions, markup, parts
from lakegate.dashboard.ui.markup import TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.session import current_visitor, shared
from lakegate.model.refs import MAIN
from lakegate.model.words import counted

_PAGE_SIZE = 50
_MOST_TABLES = 3


def show() -> None:
    """Draw the page."""
    head = st.container()
    with st.container(width=340):
        ref = parts.ref_box(parts.forget_cursor("after"))
    with head:
        parts.heading("History", markup.joined("Commits of ", markup.code(ref), ", newest first.", by=""))
    may_act = current_visitor().may_act
    if (run_id := parts.param("revert")) is not None:
        with parts.boundary("the revert"):
            actions.show_revert(run_id, may_act=may_act)
    with parts.boundary("the history"):
        found = list_commits(shared().model, ref, limit=_PAGE_SIZE, cursor=parts.param("after"))
        parts.problems(found.problems)
        if not found.items:
            command = markup.code("lakegate ingest nyc.trips trips.parquet")
            parts.show_empty("There are no commits yet", Markup("Publish something: {}").format(command))
            return
        foreign = sum(line.kind == "other" for line in found.items)
        if foreign and ref == MAIN:
            were = "was" if foreign == 1 else "were"
            parts.show_alert(
                f"{counted(foreign, 'commit')} on this page {were} not made by lakegate and never audited.",
                "Let only lakegate commit to main: docs/explanation/security.md",
            )
        columns: list[str | TableColumn] = [
            TableColumn("When", "fit"),
            TableColumn("What", "fit"),
            "Message",
            "Tables",
            TableColumn("Run", "fit"),
            TableColumn("Commit", "fit"),
        ]
        can_revert = may_act and ref == MAIN
        if can_revert:
            columns.append(TableColumn("", "fit"))
        rows = (_row(line, can_revert=can_revert) for line in found.items)
        parts.html(markup.table(columns, rows, caption=f"Commits of {ref}, newest first"))
        parts.show_pagination(found, "commit")


def _row(line: CommitLine, *, can_revert: bool) -> Sequence[object]:
    cells: list[object] = [
        markup.ago(line.at),
        _kind(line),
        markup.joined(markup.text(line.message, longest=120), _remarks(line)),
        _tables(line.tables),
        markup.run_link(line.run_id) if line.run_id else markup.joined("by ", markup.text(line.author, longest=60)),
        Markup('<span title="{}">{}</span>').format(line.hash, markup.code(line.hash[:10])),
    ]
    if can_revert:
        is_open = line.run_id is not None and line.reverted_by is None and line.kind in ("publish", "revert")
        cells.append(markup.link("Revert…", "history", revert=line.run_id) if is_open else "")
    return cells


def _kind(line: CommitLine) -> Markup:
    if line.kind == "other":
        return markup.badge("not audited", tone="warn", sign="!")
    if line.kind == "checkpoint":
        return markup.badge("checkpoint", tone="off", sign="·")
    if line.reverted_by is not None:
        return markup.badge("reverted")
    if line.kind in ("revert", "restore"):
        return markup.badge(line.kind, tone="live", sign="↺")
    return markup.badge("accepted", tone="warn", sign="✓") if line.accepted else markup.badge("published")


def _remarks(line: CommitLine) -> Markup:
    said = []
    if line.reverted_by is not None:
        said.append(markup.joined("reverted by ", markup.run_link(line.reverted_by)))
    if line.reverts:
        said.append(markup.joined("reverts ", markup.joined(*map(markup.run_link, line.reverts[:5]), by=", ")))
    if line.accepted:
        by = markup.joined(" by ", markup.text(line.accepted_by, longest=60)) if line.accepted_by else ""
        said.append(markup.joined("accepted", by, ": ", markup.text(line.accepted, longest=160)))
    if not said:
        return Markup()
    return Markup('<div class="muted">{}</div>').format(markup.joined(*said, by="; "))


def _tables(names: Sequence[str]) -> Markup:
    shown = markup.joined(*map(markup.table_link, names[:_MOST_TABLES]), by=", ")
    more = len(names) - _MOST_TABLES
    return markup.joined(shown, f" and {more:,} more") if more > 0 else shown


PAGE = Page("History", path="history", icon="history", order=30, show=show)
