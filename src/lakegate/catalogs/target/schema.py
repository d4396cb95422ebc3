"""The overlay's tables, beside those of the journal."""

from __future__ import annotations

from typing import Final, cast
from uuid import uuid4

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text, insert, inspect, select

from lakegate.catalogs.rules import ROOT_HASH
from lakegate.errors import ConfigurationError
from lakegate.journal.database import Database
from lakegate.journal.schema import TEXT
from lakegate.model.refs import MAIN

FORMAT: Final = 1
"""The number of this schema. Raise it with each change of a table or of what a document in it may hold."""
METADATA = MetaData()
OVERLAY = Table(
    "overlay",
    METADATA,
    Column("format", Integer, primary_key=True),
    Column("identity", TEXT),
    Column("accepted_ms", BigInteger, nullable=False),
)
"""One row. What was published up to ``accepted_ms``, by the snapshots' times, may be of runs that nobody knows."""
COMMITS = Table(
    "overlay_commits",
    METADATA,
    Column("hash", TEXT, primary_key=True),
    Column("parent", TEXT, nullable=False),
    Column("number", Integer, nullable=False),
    Column("time", TEXT, nullable=False),
    Column("message", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("properties", Text, nullable=False),
    Column("changes", Text, nullable=False),
    Column("state", Text),
)
"""``number`` counts from the root, which has 0 and no row."""
REFS = Table(
    "overlay_refs",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("hash", TEXT, nullable=False),
    Column("kind", TEXT, nullable=False),
)
FIRST_SEEN = Table(
    "overlay_first_seen",
    METADATA,
    Column("name", TEXT, primary_key=True),
    Column("content", Text, nullable=False),
)
"""What the target had when lakegate first looked at a key."""
INTENTS = Table(
    "overlay_intents",
    METADATA,
    Column("intent_id", TEXT, primary_key=True),
    Column("document", Text, nullable=False),
    Column("given_up", Boolean, nullable=False),
)
"""What is about to be published, from before the target is touched until it's logged."""


def ensure_schema(database: Database) -> str:
    """Create the tables if they aren't there, with an empty branch ``main``; return the overlay's identity.

    Raises:
        ConfigurationError: If they have another format.
    """
    with database.creating() as tx:
        if OVERLAY.name not in inspect(tx.connection).get_table_names():
            METADATA.create_all(tx.connection)
            tx.execute(insert(OVERLAY).values(format=FORMAT, identity=f"overlay:{uuid4()}", accepted_ms=0))
            tx.execute(insert(REFS).values(name=MAIN, hash=ROOT_HASH, kind="branch"))
        number, identity = tx.execute(select(OVERLAY.c.format, OVERLAY.c.identity)).one()
    if number != FORMAT:
        raise ConfigurationError(
            f"The branches in the journal {database.name} are in format {number}; this lakegate reads and writes "
            f"format {FORMAT} only.",
            hint="Use the lakegate that created them.",
            format=number,
            known=FORMAT,
        )
    return cast("str", identity)
