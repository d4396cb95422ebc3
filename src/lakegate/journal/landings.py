"""What became of the files that were looked for, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from lakegate.journal.database import Database, GivenRow, rows_of
from lakegate.journal.tables import LANDINGS, as_text
from lakegate.model.journal import Landing

_BATCH = 10_000


def noted(database: Database, connection: Connection, table: str, uris: Sequence[str]) -> Mapping[str, Landing]:
    """Return the files' landings by URI; see :meth:`lakegate.protocols.Journal.landings`."""
    asked = list(dict.fromkeys(uris))
    found: dict[str, Landing] = {}
    for start in range(0, len(asked), _BATCH):
        given = database.given([[uri] for uri in asked[start : start + _BATCH]], ("uri", str))
        query = select(LANDINGS).where(LANDINGS.c.table_name == table, LANDINGS.c.uri.in_(select(given.c.uri)))
        found.update((row.uri, _landing(row)) for row in connection.execute(query))
    return found


def note(database: Database, connection: Connection, table: str, landings: Sequence[Landing]) -> None:
    """Write ``landings`` down, the later of two for one URI over the earlier."""
    if not landings:
        return
    database.lock(connection, [f"landings {table}"])
    latest = list({landing.uri: landing for landing in landings}.values())
    names = LANDINGS.c.keys()
    for start in range(0, len(latest), _BATCH):
        rows = [_row(table, landing) for landing in latest[start : start + _BATCH]]
        insert = rows_of(database, LANDINGS, rows, *names)
        replaced = {name: insert.excluded[name] for name in names}
        connection.execute(insert.on_conflict_do_update(index_elements=["table_name", "uri"], set_=replaced))


def _row(table: str, landing: Landing) -> GivenRow:
    # A reason may quote what a file holds; Postgres has no text with NUL.
    reason = None if landing.reason is None else landing.reason.replace("\0", "\N{REPLACEMENT CHARACTER}")
    about = (landing.stamp, landing.outcome, landing.tries, landing.run_id, reason)
    return (table, landing.uri, *about, as_text(landing.noted_at))


def _landing(row: Row[Any]) -> Landing:
    return Landing(
        uri=row.uri,
        stamp=row.stamp,
        outcome=row.outcome,
        tries=row.tries,
        run_id=row.run_id,
        reason=row.reason,
        noted_at=datetime.fromisoformat(row.noted_at),
    )
