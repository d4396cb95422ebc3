"""Branches."""

from __future__ import annotations

from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.page import Page


def show() -> None:
    """Draw the page."""
    parts.heading("Branches")


PAGE = Page("Branches", path="branches", icon="account_tree", order=10, show=show)
