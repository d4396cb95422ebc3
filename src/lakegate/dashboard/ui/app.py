"""The frame around each page: navigation, login, and who is looking."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.access import Visitor
from lakegate.dashboard.ui.session import current_visitor, shared
from lakegate.progress import redact

_LOGO = (Path(__file__).parent / "logo.svg").read_text(encoding="utf-8")
_PAGES = Path(__file__).parent / "pages"
_LISTED = ("home", "branches", "runs", "history")
_REACHED_BY_LINKS = ("run", "table")


def show() -> None:
    """Draw the requested page."""
    st.set_page_config(page_title="lakegate", page_icon=_LOGO, layout="wide")
    visitor = current_visitor()

    def ask() -> None:
        _ask_to_log_in(visitor)

    # No icons: a page's icon would also become the tab's, which browsers fetch from elsewhere.
    pages = [
        st.Page(
            _PAGES / f"{name}.py" if visitor.may_see else ask,
            title=name.capitalize(),
            url_path=None if name == "home" else name,
            default=name == "home",
            visibility="visible" if name in _LISTED else "hidden",
        )
        for name in (*_LISTED, *_REACHED_BY_LINKS)
    ]
    opened = st.navigation(pages, position="sidebar" if visitor.may_see else "hidden")
    if visitor.may_see:
        st.logo(_LOGO, size="large")
        with st.sidebar:
            _show_lake(visitor)
    with parts.boundary("this page"):
        opened.run()


def _ask_to_log_in(visitor: Visitor) -> None:
    if visitor.name is None:
        parts.heading("This lakehouse's dashboard")
        if st.button("Log in", type="primary"):
            st.login()
        return
    parts.heading("You don't have access to this dashboard")
    st.text(f"You are logged in as {parts.clean(visitor.name)}. Its operator can add you to ui.users in lakegate.toml.")
    if st.button("Log out"):
        st.logout()


def _show_lake(visitor: Visitor) -> None:
    lake = shared().lake
    address = lake.settings.catalog.place
    lines = [
        parts.clean(lake.home.name or "/", longest=40),
        "local stack" if address is None else parts.clean(redact(address), longest=60),
        "actions allowed" if visitor.may_act else "read-only",
        parts.clean(visitor.name or "", longest=60),
    ]
    st.text("\n".join(lines))
    if visitor.name is not None and st.button("Log out", type="tertiary"):
        st.logout()
