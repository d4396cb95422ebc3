"""What messages say that are counted, so that they can be told of together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column."""
    op.add_column("alert_groups", sa.Column("about", sa.Text))
