"""What tells that two paths are one file, and which files have the same content."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column and the index."""
    op.add_column("claims", sa.Column("identity", _TEXT, nullable=False, server_default=""))
    op.create_index("claims_content", "claims", ["table_name", "version"])
