"""Outcomes of files found in folders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "landings",
        sa.Column("table_name", _TEXT, primary_key=True),
        sa.Column("uri", _TEXT, primary_key=True),
        sa.Column("stamp", _TEXT, nullable=False),
        sa.Column("outcome", _TEXT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("run_id", _TEXT),
        sa.Column("reason", _TEXT),
        sa.Column("noted_at", _TEXT, nullable=False),
    )
