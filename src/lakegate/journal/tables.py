"""The journal's tables, as the newest migration leaves them (``migrations/versions``).

Times are text, ISO 8601 in UTC with microseconds (:func:`as_text`), so that they sort in every database.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, UniqueConstraint

# Ids and times are compared byte by byte everywhere; other collations of Postgres do not sort punctuation.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite counts up by itself in this one integer type only.
COUNTER = BigInteger().with_variant(Integer(), "sqlite")

METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("kind", TEXT, nullable=False),
    Column("name", TEXT),
    Column("branch", TEXT, nullable=False),
    Column("status", TEXT, nullable=False),
    Column("started_at", TEXT, nullable=False),
    Column("finished_at", TEXT),
    Column("reverted_by", TEXT),
    Column("document", Text, nullable=False),
    Index("runs_started_at", "started_at", "run_id"),
    Index("runs_branch", "branch", "started_at"),
    Index("runs_status", "status", "started_at"),
    Index("runs_kind", "kind", "started_at"),
)

RUN_TABLES = Table(
    "run_tables",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("table_name", TEXT, primary_key=True),
    Column("started_at", TEXT, nullable=False),
    Index("run_tables_table", "table_name", "started_at", "run_id"),
)

STEPS = Table(
    "steps",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("name", TEXT, nullable=False),
    Column("started_at", TEXT, nullable=False),
    Column("finished_at", TEXT),
    Column("outcome", TEXT, nullable=False),
)

CHECK_RESULTS = Table(
    "check_results",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("table_name", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("check_text", TEXT, nullable=False),
    Column("severity", TEXT, nullable=False),
    Column("verdict", TEXT, nullable=False),
    Column("evidence", TEXT, nullable=False),
    Column("failing_rows", BigInteger, nullable=False),
    Column("total_rows", BigInteger, nullable=False),
)

CLAIMS = Table(
    "claims",
    METADATA,
    Column("claim_id", COUNTER, primary_key=True),
    Column("table_name", TEXT, nullable=False),
    Column("path", TEXT, nullable=False),
    Column("version", TEXT, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("run_id", TEXT, nullable=False),
    UniqueConstraint("table_name", "path", "version", name="claims_version"),
    Index("claims_run", "run_id", "state"),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("holder", TEXT, nullable=False),
    Column("renewed_at", TEXT, nullable=False),
    Column("expires_at", TEXT, nullable=False),
)

HISTORY = Table(
    "history",
    METADATA,
    Column("target", TEXT, primary_key=True),
    Column("head", TEXT, nullable=False),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("target", TEXT, primary_key=True),
    Column("commit_hash", TEXT, primary_key=True),
    Column("run_id", TEXT, nullable=False),
)

LANDINGS = Table(
    "landings",
    METADATA,
    Column("table_name", TEXT, primary_key=True),
    Column("uri", TEXT, primary_key=True),
    Column("stamp", TEXT, nullable=False),
    Column("outcome", TEXT, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("run_id", TEXT),
    Column("reason", TEXT),
    Column("noted_at", TEXT, nullable=False),
)

ALERT_GROUPS = Table(
    "alert_groups",
    METADATA,
    Column("channel", TEXT, primary_key=True),
    Column("alert", TEXT, primary_key=True),
    Column("ends_at", TEXT, nullable=False),
    Column("number", Integer, nullable=False),
    Column("untold", Integer, nullable=False),
    Column("thread", TEXT),
    Column("about", Text),
)


def as_text(time: datetime) -> str:
    """Return ``time`` as the journal stores it.

    Example:
        >>> as_text(datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC))
        '2026-01-31T07:05:09.000000+00:00'
    """
    return time.astimezone(UTC).isoformat(timespec="microseconds")
