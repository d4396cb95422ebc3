"""The frame around each page: navigation, login, style, and polling for changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st
from markupsafe import Markup

from lakegate.dashboard.ui import actions, engine, markup, parts
from lakegate.dashboard.ui.access import Visitor
from lakegate.dashboard.ui.document import LOGO, style
from lakegate.dashboard.ui.pages import Page, find_pages
from lakegate.dashboard.ui.session import actor, current_visitor, shared
from lakegate.errors import LakegateError
from lakegate.progress import redact

_POLL_EVERY_S = 4.0
_PAGE = "lg-page"


def show() -> None:
    """Draw the requested page."""
    pages = find_pages()
    st.set_page_config(page_title="lakegate", page_icon=LOGO, layout="wide", initial_sidebar_state="auto")
    st.html(style(pages))
    visitor = current_visitor()
    if not visitor.may_see:
        # Register every page: for an unknown path, Streamlit would show its own dialog.
        closed = [_streamlit_page(replace(page, show=lambda: _ask_to_log_in(visitor))) for page in pages]
        st.navigation(closed, position="hidden").run()
        return
    st.logo(LOGO, size="large")
    opened = st.navigation([_streamlit_page(page) for page in pages], position="sidebar")
    if st.session_state.get(_PAGE) != opened.url_path:
        st.session_state[_PAGE] = opened.url_path
        parts.forget_filters()
    with st.sidebar:
        _show_sidebar_footer(visitor)
    actions.show_outcomes()
    with parts.boundary("this page"):
        opened.run()
    _poll_for_changes()


def _streamlit_page(page: Page) -> Any:
    return st.Page(
        page.show,
        title=page.title,
        url_path=page.path or None,
        default=not page.path,
        visibility="visible" if page.listed else "hidden",
    )


def _ask_to_log_in(visitor: Visitor) -> None:
    if visitor.name is not None:
        parts.html(
            markup.empty(
                "You don't have access to this dashboard",
                Markup("You are logged in as {}.").format(markup.text(visitor.name)),
                Markup("Its operator can add you to {} in lakegate.toml.").format(markup.code("ui.users")),
            )
        )
        if shared().access.login == "oidc" and st.button("Log out"):
            st.logout()
        return
    parts.html(markup.empty("This lakehouse's dashboard", "Log in to see it."))
    if shared().access.login == "oidc" and st.button("Log in", type="primary"):
        st.login()


def _show_sidebar_footer(visitor: Visitor) -> None:
    lake = shared().lake
    where = lake.settings.catalog.uri
    lines = [
        Markup('<div title="{}"><b>{}</b></div>').format(lake.home, markup.text(lake.home.name or "/", longest=40)),
        Markup("<div>{}</div>").format(markup.text("local stack" if where is None else redact(where), longest=60)),
        Markup("<div>{}</div>").format("actions allowed" if visitor.may_act else "read-only"),
    ]
    if visitor.name is not None:
        lines.append(Markup("<div>{}</div>").format(markup.text(visitor.name, longest=60)))
    parts.html(Markup('<div class="who">{}</div>').format(Markup("").join(lines)))
    if shared().access.login == "oidc" and st.button("Log out", type="tertiary"):
        st.logout()


def _poll_for_changes() -> None:
    """Redraw the page when the journal has changed, unless a dialog is open."""
    seen: list[object] = []

    @st.fragment(run_every=_POLL_EVERY_S)
    def look() -> None:
        engine.keep_jobs_alive()
        version = _version()
        if not seen:
            seen.append(version)
        elif version not in seen and not st.session_state.get("lg-busy"):
            st.rerun()

    with st.container(key="lg-pulse"):
        look()


def _version() -> object:
    """Return a value that changes when a run or an action of the visitor starts, progresses or ends."""
    model = shared().model
    works = tuple((id(work), work.is_done) for work in shared().actions.of(actor()))
    try:
        journal = model.journal
        runs, _ = journal.count()
        return works, tuple(sorted(runs.items())), tuple(journal.pages.with_prefix("", limit=1))
    except LakegateError as error:
        model.mark_unavailable("journal", error)
        return works, error.code
