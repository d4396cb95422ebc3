"""What the catalog's history says of runs and files: put together (pure functions), and taken over in SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, select, tuple_

from lakegate.journal import runs as stored
from lakegate.journal.claims import PUBLISHED, lock_name
from lakegate.journal.database import Database, rows_of
from lakegate.journal.tables import CLAIMS, EVENTS, HISTORY, RUNS
from lakegate.model.journal import HistoryEvent
from lakegate.model.run import Publication, Run

_BATCH = 10_000
_RUN_BATCH = 500
_FileKey = tuple[str, str, str]


@dataclass(slots=True)
class Fate:
    """What became of one run, as far as the events tell."""

    published: HistoryEvent | None = None
    reverted: HistoryEvent | None = None
    revived: bool = False

    @property
    def status(self) -> str:
        """The status that it has then."""
        return "published" if self.reverted is None else "reverted"


@dataclass(slots=True)
class Tale:
    """All that some events say, the later ones over the earlier.

    Attributes:
        files: The run that published each (table, path, version) and was not reverted.
        forgotten: (Run, table) whose files are published no more, ones that were known before included.
        fates: What became of each run.
    """

    files: dict[_FileKey, str] = field(default_factory=dict)
    forgotten: dict[tuple[str, str], None] = field(default_factory=dict)
    fates: dict[str, Fate] = field(default_factory=lambda: defaultdict(Fate))


def put_together(events: Sequence[HistoryEvent]) -> Tale:
    """Return what ``events`` (oldest first) say together."""
    tale = Tale()
    published_by: dict[tuple[str, str], list[_FileKey]] = defaultdict(list)
    for event in events:
        for run_id in event.reverts:
            tale.fates[run_id].reverted = event
            tale.fates[run_id].revived = False
            for table in event.tables:
                tale.forgotten[run_id, table] = None
                for key in published_by.pop((run_id, table), ()):
                    if tale.files.get(key) == run_id:
                        del tale.files[key]
        tale.fates[event.run_id].published = event
        for table in event.tables:
            keys = [(table, path, version) for path, version in event.files]
            tale.files.update(dict.fromkeys(keys, event.run_id))
            published_by[event.run_id, table].extend(keys)
        for table, path, version, run_id in event.revives:
            tale.fates[run_id].reverted = None
            tale.fates[run_id].revived = True
            tale.files[table, path, version] = run_id
            published_by[run_id, table].append((table, path, version))
    return tale


def told(run: Run | None, run_id: str, fate: Fate, target: str) -> Run | None:
    """Return the run as the history tells it; ``None`` when it adds nothing to what is known.

    A run that the journal does not know becomes one that holds what its commit says. It counts as reverted when its
    rows were taken from all of its tables.
    """
    run = _published(run, run_id, fate.published, target) if fate.published is not None else run
    if run is not None and fate.revived:
        run = run.model_copy(update={"status": "published", "reverted_by": None})
    if run is None or fate.reverted is None or not set(run.tables) <= set(fate.reverted.tables):
        return run
    return run.model_copy(update={"status": "reverted", "reverted_by": fate.reverted.run_id})


def _published(run: Run | None, run_id: str, event: HistoryEvent, target: str) -> Run:
    time = event.time or _time_of(run_id)
    if run is None:
        kind = "ingest" if event.files else "revert" if event.reverts else "transaction"
        run = Run(
            run_id=run_id,
            kind=kind,
            tables=event.tables,
            branch="",
            status="published",
            started_at=time,
            detail=f"Known from commit {event.commit[:12]} only.",
        )
    publication = Publication(
        run_id=run_id,
        target=target,
        commit=event.commit,
        tables=event.tables,
        rows=sum(staged.rows for staged in run.staged),
    )
    known = run.publication is not None and run.publication.commit == event.commit
    return run.model_copy(
        update={
            "status": "published",
            "publication": run.publication if known else publication,
            "finished_at": run.finished_at or max(time, run.started_at),
            "reverted_by": None,
            "error": None,
        }
    )


def _time_of(run_id: str) -> datetime:
    # Run ids begin with the time; see lakegate.model.run.new_run_id.
    try:
        return datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def synced(connection: Connection, target: str) -> str | None:
    """Return the commit up to which ``target`` is known."""
    head: str | None = connection.scalar(select(HISTORY.c.head).where(HISTORY.c.target == target))
    return head


def record(
    database: Database,
    connection: Connection,
    target: str,
    events: Sequence[HistoryEvent],
    head: str,
    *,
    rebuild: bool,
) -> None:
    """Take over ``events``; see :meth:`lakegate.protocols.Journal.record`.

    Each commit counts once: one who read the history earlier and comes later does not undo what others have recorded.
    """
    tables = {table for event in events for table in event.tables}
    if rebuild:
        tables.update(connection.scalars(select(CLAIMS.c.table_name).distinct()))
    database.lock(connection, [f"history {target}"])
    database.lock(connection, [lock_name(table) for table in tables])
    if rebuild:
        connection.execute(delete(CLAIMS).where(CLAIMS.c.state == PUBLISHED))
        connection.execute(delete(EVENTS).where(EVENTS.c.target == target))
    new = _unheard(database, connection, target, events)
    tale = put_together(new)
    _forget(database, connection, tale)
    _publish(database, connection, tale)
    _mark(database, connection, tale, target)
    _remember(database, connection, target, new)
    if new or not events:
        insert = database.upsert(HISTORY).values(target=target, head=head)
        connection.execute(insert.on_conflict_do_update(index_elements=["target"], set_={"head": head}))


def _unheard(
    database: Database, connection: Connection, target: str, events: Sequence[HistoryEvent]
) -> Sequence[HistoryEvent]:
    if not events:
        return events
    asked = database.given([[event.commit] for event in events], ("commit_hash", str))
    known = EVENTS.c.target == target, EVENTS.c.commit_hash.in_(select(asked.c.commit_hash))
    heard = set(connection.scalars(select(EVENTS.c.commit_hash).where(*known)))
    return [event for event in events if event.commit not in heard]


def _remember(database: Database, connection: Connection, target: str, events: Sequence[HistoryEvent]) -> None:
    if events:
        rows = [(target, event.commit, event.run_id) for event in events]
        insert = rows_of(database, EVENTS, rows, "target", "commit_hash", "run_id")
        connection.execute(insert)


def _forget(database: Database, connection: Connection, tale: Tale) -> None:
    if not tale.forgotten:
        return
    gone = database.given(list(tale.forgotten), ("run_id", str), ("table_name", str))
    connection.execute(
        delete(CLAIMS).where(
            CLAIMS.c.run_id.in_(select(gone.c.run_id)),  # what the index helps with
            tuple_(CLAIMS.c.run_id, CLAIMS.c.table_name).in_(select(gone.c.run_id, gone.c.table_name)),
        )
    )


def _publish(database: Database, connection: Connection, tale: Tale) -> None:
    names = ("table_name", "path", "version", "size_bytes", "rows", "state", "run_id")
    rows = [(*key, 0, 0, PUBLISHED, run_id) for key, run_id in tale.files.items()]
    for start in range(0, len(rows), _BATCH):
        insert = rows_of(database, CLAIMS, rows[start : start + _BATCH], *names)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=["table_name", "path", "version"],
                set_={"state": insert.excluded.state, "run_id": insert.excluded.run_id},
            )
        )


def _mark(database: Database, connection: Connection, tale: Tale, target: str) -> None:
    if not tale.fates:
        return
    asked = database.given([[run_id] for run_id in tale.fates], ("run_id", str))
    query = select(RUNS.c.run_id, RUNS.c.status).where(RUNS.c.run_id.in_(select(asked.c.run_id)))
    statuses = dict(connection.execute(query).tuples().all())
    differing = [run_id for run_id, fate in tale.fates.items() if statuses.get(run_id) != fate.status]
    for start in range(0, len(differing), _RUN_BATCH):
        batch = differing[start : start + _RUN_BATCH]
        known = stored.get_all(database, connection, batch)
        runs = (told(known.get(run_id), run_id, tale.fates[run_id], target) for run_id in batch)
        stored.store(database, connection, *(run for run in runs if run is not None))
