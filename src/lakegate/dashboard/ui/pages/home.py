"""Home: every table, and what needs a human first."""

from __future__ import annotations

from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.page import Page


def show() -> None:
    """Draw the page."""
    parts.heading("Home")


PAGE = Page("Home", path="", icon="home", order=0, show=show)
