"""The token that owns a lease, whatever process holds it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. Nobody has a token for a lease from before: it lasts until it expires, or its process is gone."""
    op.add_column("leases", sa.Column("token", _TEXT, nullable=False, server_default=""))
