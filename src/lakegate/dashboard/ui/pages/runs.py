"""Runs."""

from __future__ import annotations

from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.page import Page


def show() -> None:
    """Draw the page."""
    parts.heading("Runs")


PAGE = Page("Runs", path="runs", icon="list_alt", order=20, show=show)
