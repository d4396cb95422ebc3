"""What downstream systems are told, and how far each of them is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "downstreams",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("since", _TEXT, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", _COUNTER, primary_key=True),
        sa.Column("downstream", _TEXT, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("ref", _TEXT, nullable=False),
        sa.Column("commit_hash", _TEXT),
        sa.Column("run_id", _TEXT),
        sa.Column("tables", sa.Text, nullable=False),
        sa.Column("state", _TEXT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("queued_at", _TEXT, nullable=False),
        sa.Column("next_at", _TEXT),
        sa.Column("failing_since", _TEXT),
        sa.Column("ended_at", _TEXT),
        sa.Column("reason", sa.Text),
    )
    op.create_index("deliveries_downstream", "deliveries", ["downstream", "state", "delivery_id"])
    op.create_index("deliveries_run", "deliveries", ["run_id"])
    op.create_table(
        "mirrored",
        sa.Column("downstream", _TEXT, primary_key=True),
        sa.Column("table_name", _TEXT, primary_key=True),
        sa.Column("pointer", sa.Text, nullable=False),
        sa.Column("delivered_at", _TEXT, nullable=False),
    )
