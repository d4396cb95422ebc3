"""Counters that continue where earlier runs ended."""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ENDED = "status NOT IN ('running', 'staged')"


def upgrade() -> None:
    """Make the table, and count the runs so far."""
    table = op.create_table(
        "metrics",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("labels", _TEXT, primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
    )
    connection = op.get_bind()
    rows: list[dict[str, object]] = []
    by_kind = f"SELECT kind, status, count(*) FROM runs WHERE {_ENDED} GROUP BY kind, status"  # noqa: S608 - our own
    for kind, status, number in connection.execute(sa.text(by_kind)):
        rows.append(_row("lakegate_runs", number, kind=kind, status=status))
    joined = "FROM runs JOIN run_tables ON run_tables.run_id = runs.run_id"
    by_table = f"SELECT table_name, status, count(*) {joined} WHERE {_ENDED} GROUP BY table_name, status"
    for name, status, number in connection.execute(sa.text(by_table)):
        rows.append(_row("lakegate_table_runs", number, table=name, status=status))
    last = (
        f"SELECT table_name, max(coalesce(finished_at, runs.started_at)) {joined} "
        "WHERE status = 'published' AND kind NOT IN ('revert', 'restore') GROUP BY table_name"
    )
    for name, time in connection.execute(sa.text(last)):
        seconds = datetime.fromisoformat(time).timestamp()
        rows.append(_row("lakegate_last_publish_timestamp_seconds", seconds, table=name))
    if rows:
        op.bulk_insert(table, rows)


def _row(name: str, value: float, **labels: str) -> dict[str, object]:
    return {"name": name, "labels": json.dumps(list(labels.items())), "value": float(value)}
