"""Leases in SQL: which process works on which run, and whether it still lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from lakegate.errors import RetryableError
from lakegate.journal import runs as stored
from lakegate.journal.database import Database
from lakegate.journal.holder import Holder
from lakegate.journal.tables import LEASES, RUNS, as_text
from lakegate.model.run import Run

NOBODY = ""
"""Holder of a lease that was given up, or is kept for the run's next step."""

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Leases:
    """The leases of one journal, as one process sees them.

    Args:
        database: Where they are.
        holder: This process.
        lease_s: How long one lasts that is not renewed, where its holder's life cannot be looked at.
    """

    def __init__(self, database: Database, holder: Holder, lease_s: float) -> None:
        self._database = database
        self._holder = holder
        self._lasts = timedelta(seconds=lease_s)

    def take(self, connection: Connection, run_id: str) -> None:
        """Take a run's lease.

        Raises:
            RetryableError: When another process works on the run.
        """
        self._database.lock(connection, [_lock_name(run_id)])
        lease, now = self._get(connection, run_id), self._database.now(connection)
        if lease is not None and lease.holder not in (NOBODY, self._holder.identity()) and self._is_live(lease, now):
            raise taken(run_id)
        row = self._row(run_id, now)
        insert = self._database.upsert(LEASES).values(row)
        connection.execute(insert.on_conflict_do_update(index_elements=["run_id"], set_=row))

    def renew(self, connection: Connection, run_id: str) -> bool:
        """Make our lease last longer; ``False`` when it is not ours."""
        ours = LEASES.c.run_id == run_id, LEASES.c.holder == self._holder.identity()
        row = self._row(run_id, self._database.now(connection))
        return connection.execute(update(LEASES).where(*ours).values(row)).rowcount == 1

    def drop(self, connection: Connection, run_id: str) -> None:
        """Give up a run's lease.

        Raises:
            RetryableError: When it was taken over.
        """
        self._database.lock(connection, [_lock_name(run_id)])
        lease = self._get(connection, run_id)
        if lease is not None and lease.holder != self._holder.identity():
            raise taken(run_id)
        connection.execute(delete(LEASES).where(LEASES.c.run_id == run_id))

    def park(self, connection: Connection, run_id: str, for_s: float) -> None:
        """Leave our lease to whoever takes it with :meth:`take`; it is abandoned after ``for_s`` seconds.

        Raises:
            RetryableError: When it was taken over.
        """
        self._database.lock(connection, [_lock_name(run_id)])
        lease, now = self._get(connection, run_id), self._database.now(connection)
        if lease is None or lease.holder != self._holder.identity():
            raise taken(run_id)
        parked = {"holder": NOBODY, "expires_at": as_text(now + timedelta(seconds=for_s))}
        connection.execute(update(LEASES).where(LEASES.c.run_id == run_id).values(parked))

    def parked(self, connection: Connection) -> Mapping[str, datetime]:
        """Return by run until when its lease is kept for its next step, the first to run out first."""
        query = select(LEASES).where(LEASES.c.holder == NOBODY).order_by(LEASES.c.expires_at, LEASES.c.run_id)
        leases = connection.execute(query.where(LEASES.c.expires_at > as_text(self._database.now(connection)))).all()
        return {lease.run_id: datetime.fromisoformat(lease.expires_at) for lease in leases}

    def abandon(self, connection: Connection, run_id: str) -> None:
        """Keep a run's lease as one that nobody holds, when it is ours."""
        ours = LEASES.c.run_id == run_id, LEASES.c.holder == self._holder.identity()
        connection.execute(update(LEASES).where(*ours).values(holder=NOBODY, expires_at=as_text(_LONG_AGO)))

    def abandoned(self, connection: Connection) -> Sequence[Run]:
        """Return the runs of leases that nobody keeps up, oldest first."""
        query = select(LEASES).join(RUNS, RUNS.c.run_id == LEASES.c.run_id)
        leases = connection.execute(query.order_by(RUNS.c.started_at, RUNS.c.run_id)).all()
        now = self._database.now(connection) if leases else None
        dead = (lease.run_id for lease in leases if now is not None and not self._is_live(lease, now))
        return [run for run_id in dead if (run := stored.get(connection, run_id)) is not None]

    def take_over(self, connection: Connection, run_id: str) -> bool:
        """Take an abandoned run's lease; ``False`` when it has none, or a live one."""
        self._database.lock(connection, [_lock_name(run_id)])
        lease, now = self._get(connection, run_id), self._database.now(connection)
        if lease is None or self._is_live(lease, now):
            return False
        connection.execute(update(LEASES).where(LEASES.c.run_id == run_id).values(self._row(run_id, now)))
        return True

    def _get(self, connection: Connection, run_id: str) -> Row[Any] | None:
        return connection.execute(select(LEASES).where(LEASES.c.run_id == run_id)).one_or_none()

    def _is_live(self, lease: Row[Any], now: datetime) -> bool:
        alive = None if lease.holder == NOBODY else self._holder.is_alive(lease.holder)
        return str(lease.expires_at) > as_text(now) if alive is None else alive

    def _row(self, run_id: str, now: datetime) -> dict[str, str]:
        return {
            "run_id": run_id,
            "holder": self._holder.identity(),
            "renewed_at": as_text(now),
            "expires_at": as_text(now + self._lasts),
        }


def taken(run_id: str) -> RetryableError:
    """Return the error for a run that another process works on."""
    return RetryableError(
        f"Another process works on run {run_id}.", hint=f"See what became of it: lakegate runs {run_id}", run=run_id
    )


def begun_before(run_id: str) -> RetryableError:
    """Return the error for a run that was to be begun anew, and that another process has begun meanwhile."""
    return RetryableError(
        f"Another process has begun run {run_id} meanwhile.",
        hint=f"See what became of it: lakegate runs {run_id}",
        run=run_id,
    )


def may_be_begun(known: Run | None) -> bool:
    """Tell whether a run may be begun anew."""
    return known is None or (known.status == "failed" and known.finished_at is not None)


def _lock_name(run_id: str) -> str:
    return f"run {run_id}"
