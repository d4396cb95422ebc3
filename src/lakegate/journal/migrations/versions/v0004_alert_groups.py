"""Which messages stand for others of their kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "alert_groups",
        sa.Column("channel", _TEXT, primary_key=True),
        sa.Column("alert", _TEXT, primary_key=True),
        sa.Column("ends_at", _TEXT, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("untold", sa.Integer, nullable=False),
        sa.Column("thread", _TEXT),
    )
