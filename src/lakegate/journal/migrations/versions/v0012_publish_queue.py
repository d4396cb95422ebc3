"""Runs that wait to publish, so that whoever publishes to their table takes them along."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "publish_queue",
        sa.Column("run_id", _TEXT, primary_key=True),
        sa.Column("target", _TEXT, nullable=False),
        sa.Column("table_name", _TEXT, nullable=False),
        sa.Column("queued_at", _TEXT, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    columns = ["target", "table_name", "queued_at", "run_id"]
    op.create_index("publish_queue_table", "publish_queue", columns)
