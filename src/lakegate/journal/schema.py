"""The journal's tables and their format, which one cheap query checks.

Times are text, ISO 8601 in UTC with microseconds (:func:`as_text`), so that they sort in every database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from secrets import token_hex

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from lakegate.errors import ConfigurationError
from lakegate.journal.database import Database, not_a_journal

# Ids and times are compared byte by byte everywhere; Postgres's other collations ignore punctuation.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite only auto-increments this integer type.
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
    Column("orchestrator", TEXT),
    Column("branch_kept", Integer, nullable=False),
    Index("runs_started_at", "started_at", "run_id"),
    Index("runs_branch", "branch", "started_at"),
    Index("runs_status", "status", "started_at"),
    Index("runs_kind", "kind", "started_at"),
    Index("runs_status_kind", "status", "kind", "started_at"),
    Index("runs_orchestrator", "orchestrator", "started_at"),
    Index("runs_branch_kept", "branch_kept", "status"),
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
    Index("claims_state", "state"),
)

STANDING = Table(
    "standing",
    METADATA,
    Column("entry_id", COUNTER, primary_key=True),
    Column("table_name", TEXT, nullable=False),
    Column("run_id", TEXT, nullable=False),
    Column("called", TEXT, nullable=False),
    UniqueConstraint("table_name", "run_id", name="standing_entry"),
    Index("standing_order", "table_name", "entry_id"),
    Index("standing_run", "run_id"),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("run_id", TEXT, primary_key=True),
    Column("holder", TEXT, nullable=False),
    Column("token", TEXT, nullable=False),
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
    Column("committed_at", TEXT),
    Index("events_time", "target", "committed_at"),
)

FILE_CHECKPOINTS = Table(
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
)

DOWNSTREAMS = Table(
    "downstreams",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("document", Text, nullable=False),
    Column("since", TEXT, nullable=False),
)

DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("delivery_id", COUNTER, primary_key=True),
    Column("downstream", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("ref", TEXT, nullable=False),
    Column("commit_hash", TEXT),
    Column("run_id", TEXT),
    Column("tables", Text, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("queued_at", TEXT, nullable=False),
    Column("next_at", TEXT),
    Column("failing_since", TEXT),
    Column("ended_at", TEXT),
    Column("reason", Text),
    Index("deliveries_downstream", "downstream", "state", "delivery_id"),
    Index("deliveries_run", "run_id"),
)

MIRRORED = Table(
    "mirrored",
    METADATA,
    Column("downstream", TEXT, primary_key=True),
    Column("table_name", TEXT, primary_key=True),
    Column("pointer", Text, nullable=False),
    Column("delivered_at", TEXT, nullable=False),
)

METRICS = Table(
    "metrics",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("labels", TEXT, primary_key=True),
    Column("value", Double, nullable=False),
)


def as_text(time: datetime) -> str:
    """Return ``time`` as the journal stores it.

    Example:
        >>> as_text(datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC))
        '2026-01-31T07:05:09.000000+00:00'
    """
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def is_time(text: object) -> bool:
    """Return whether this is a time as :func:`as_text` writes it."""
    try:
        return isinstance(text, str) and as_text(datetime.fromisoformat(text)) == text
    except ValueError:
        return False


def storable(text: str | None) -> str | None:
    """Return text without NUL, which Postgres can't store."""
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


FORMAT = 2
_KEY_BYTES = 32
"""The number of this schema. Raise it with each change of a table or of what a document in it may hold."""
FORMATS = Table(
    "journal_format",
    MetaData(),
    Column("number", Integer, primary_key=True),
    Column("catalog", TEXT),
    Column("gate_key", TEXT, nullable=False),
)
"""One row: the format; the identity of the catalog that the journal's runs are in, once there is one; and the key that
signs the tokens of the gate, which lakegate made."""


def ensure_schema(database: Database) -> None:
    """Create the journal's tables if the database is empty.

    Raises:
        ConfigurationError: If the journal has another format.
        InputError: If the database has other tables.
    """
    if _format_at_a_glance(database) == FORMAT:
        return
    with database.creating() as tx:
        names = set(inspect(tx.connection).get_table_names())
        if not names:
            create_schema(tx.connection)
            return
        number = tx.connection.scalar(select(FORMATS.c.number)) if FORMATS.name in names else None
        if number == FORMAT:
            return
        if number is None and not {RUNS.name, LEASES.name} <= names:
            raise not_a_journal(database.name, f"it has other tables ({', '.join(sorted(names)[:3])})")
        raise ConfigurationError(
            f"The journal {database.name} is in {'an unknown format' if number is None else f'format {number}'}; this "
            f"lakegate reads and writes format {FORMAT} only.",
            hint="Use the lakegate that created it. Or set journal.url or journal.path to an empty database, and fill "
            "it from the catalog: lakegate admin journal rebuild",
            format=number,
            known=FORMAT,
        )


def require_catalog(database: Database, identity: str) -> None:
    """Check that the journal is the catalog's; an unused journal becomes that.

    Raises:
        ConfigurationError: If it's the journal of another catalog.
    """
    with database.reading() as tx:
        known = tx.scalar(select(FORMATS.c.catalog))
    if known is None:
        with database.writing() as tx:
            tx.execute(update(FORMATS).where(FORMATS.c.catalog.is_(None)).values(catalog=identity))
            known = tx.scalar(select(FORMATS.c.catalog))
    if known != identity:
        raise ConfigurationError(
            f"The journal {database.name} is that of another catalog ({known}; this one is {identity}). The branches "
            "of its runs are there, so nothing was read or changed.",
            hint="Set journal.url to a database of this catalog's own. If this catalog has replaced the other one, set "
            "it to an empty database, and fill that from the catalog: lakegate admin journal rebuild",
            setting="journal.url",
            catalog=identity,
            journal_catalog=known,
        )


def create_schema(connection: Connection) -> None:
    """Create the tables in an empty database."""
    METADATA.create_all(connection, checkfirst=False)
    FORMATS.create(connection)
    connection.execute(insert(FORMATS).values(number=FORMAT, gate_key=token_hex(_KEY_BYTES)))


def _format_at_a_glance(database: Database) -> int | None:
    with database.translated():
        try:
            with database.engine.connect() as connection:
                number: int | None = connection.scalar(select(FORMATS.c.number))
                return number
        except DBAPIError as error:
            # There's no such table. Any other problem comes up again in the caller, with an explanation.
            if error.connection_invalidated:
                raise
            return None
