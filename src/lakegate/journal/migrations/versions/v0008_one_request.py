"""Runs hold one kind of request, which an older lakegate can't read."""

from __future__ import annotations

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Change no table: the version alone keeps older releases from taking runs for empty ones."""
