"""The texts of counted messages, so that one message can cover them all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column."""
    op.add_column("alert_groups", sa.Column("about", sa.Text))
