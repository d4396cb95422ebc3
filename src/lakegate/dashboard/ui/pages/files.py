"""Files: which file was published to which table, when, and by which run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.runs import FileLine, list_files
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import TableColumn
from lakegate.dashboard.ui.pages import Page
from lakegate.dashboard.ui.session import shared
from lakegate.model.words import count, size

_PAGE_SIZE = 50


def show() -> None:
    """Draw the page."""
    parts.heading("Files", "Source files that were published or are being ingested, newest first.")
    with st.container(horizontal=True):
        search = parts.search_box("Part of a file's path", key="search")
        table = parts.search_box("Table, such as nyc.trips", key="table")
    with parts.boundary("the files"):
        found = list_files(
            shared().model, search=search, table=table or None, limit=_PAGE_SIZE, cursor=parts.param("after")
        )
        parts.problems(found.problems)
        if not found.items and found.next is not None:
            parts.show_empty("No file matches among the newest ones", "The next page searches older files.")
            parts.show_pagination(found, "file")
            return
        if not found.items:
            _show_empty(search, table, is_first=parts.param("after") is None)
            return
        columns = (
            "File",
            "Table",
            TableColumn("State", "fit"),
            TableColumn("When", "fit"),
            "Run",
            TableColumn("Rows", "num"),
            TableColumn("Size", "num"),
        )
        parts.html(markup.table(columns, map(_row, found.items), caption="Files, newest first"))
        parts.show_pagination(found, "file")


def _show_empty(search: str, table: str, *, is_first: bool) -> None:
    if search or table:
        runs = markup.link("Runs", "runs", q=search or None, table=table or None)
        parts.show_empty(
            "No such file was published",
            Markup("To find files of rejected and failed runs, see {}.").format(runs),
        )
    elif is_first:
        command = markup.code("lakegate ingest nyc.trips trips.parquet")
        parts.show_empty("No file has been ingested yet", Markup("Ingest one: {}").format(command))
    else:
        parts.show_empty("There are no more files")


def _row(one: FileLine) -> Sequence[object]:
    state = markup.badge("published" if one.published else one.status or "running")
    return (
        Markup('<span title="{}">{}</span>').format(one.uri, markup.text(one.name, longest=80)),
        markup.table_link(one.table),
        state,
        markup.ago(one.at),
        markup.run_link(one.run_id),
        count(one.rows) or "–",
        size(one.size_bytes) or "–",
    )


PAGE = Page("Files", path="files", icon="draft", order=40, show=show)
