"""What began each run, which pages of runs are filtered by. Runs of earlier releases have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column and its index."""
    op.add_column("runs", sa.Column("orchestrator", _TEXT))
    op.create_index("runs_orchestrator", "runs", ["orchestrator", "started_at"])
