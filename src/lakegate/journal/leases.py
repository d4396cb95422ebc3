"""Leases in SQL: who works on which run, by a token, and until when."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from lakegate.errors import LeaseLostError, RetryableError
from lakegate.journal import runs as stored
from lakegate.journal.database import Database
from lakegate.journal.holder import Holder
from lakegate.journal.schema import LEASES, RUNS, as_text
from lakegate.model.run import Run

NOBODY = ""
"""Holder of a lease that was given up, or is kept for the run's next step."""

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Leases:
    """The leases of one journal.

    A lease belongs to whoever has its token, not to a process, one of whose threads may lose a run to another. It's
    live only while it's renewed, even if its process lives on. A process that is seen to be dead won't renew it.
    """

    def __init__(self, database: Database, holder: Holder, lease_s: float) -> None:
        self._database = database
        self._holder = holder
        self._lasts = timedelta(seconds=lease_s)

    def take(self, connection: Connection, run_id: str) -> str:
        """Take a run's lease, and return its token.

        Raises:
            RetryableError: When somebody works on the run.
        """
        lease, now = self._locked(connection, run_id), self._database.now(connection)
        if lease is not None and lease.holder != NOBODY and self._is_live(lease, now):
            raise taken(run_id)
        row = self._row(run_id, now)
        self._database.insert(connection, LEASES, [tuple(row.values())], tuple(row), key="run_id")
        return row["token"]

    def renew(self, connection: Connection, run_id: str, token: str) -> bool:
        """Make a lease last longer; ``False`` when the token is not its own any more."""
        now = self._database.now(connection)
        times = {"renewed_at": as_text(now), "expires_at": as_text(now + self._lasts)}
        return connection.execute(update(LEASES).where(*_owned(run_id, token)).values(times)).rowcount == 1

    def require(self, connection: Connection, run_id: str, token: str) -> None:
        """Keep everybody else from the run's lease until the transaction ends.

        Raises:
            LeaseLostError: When it was taken over.
        """
        lease = self._locked(connection, run_id)
        if lease is None or token == NOBODY or lease.token != token:
            raise lost(run_id)

    def require_none(self, connection: Connection, run_id: str) -> None:
        """Likewise, for a run that nobody is to be working on.

        Raises:
            RetryableError: When somebody does.
        """
        lease = self._locked(connection, run_id)
        if lease is not None and self._is_live(lease, self._database.now(connection)):
            raise taken(run_id)

    def drop(self, connection: Connection, run_id: str, token: str) -> None:
        """Give up a run's lease; raises as :meth:`require`."""
        self.require(connection, run_id, token)
        connection.execute(delete(LEASES).where(*_owned(run_id, token)))

    def suspend(self, connection: Connection, run_id: str, token: str, for_s: float) -> None:
        """Leave a lease to whoever takes it with :meth:`take`; it is abandoned after ``for_s`` seconds.

        Raises:
            LeaseLostError: When it was taken over.
        """
        self.require(connection, run_id, token)
        until = self._database.now(connection) + timedelta(seconds=for_s)
        suspended = {"holder": NOBODY, "token": NOBODY, "expires_at": as_text(until)}
        connection.execute(update(LEASES).where(*_owned(run_id, token)).values(suspended))

    def suspended(self, connection: Connection) -> Mapping[str, datetime]:
        """Return by run until when its lease is kept for its next step, the first to run out first."""
        query = select(LEASES).where(LEASES.c.holder == NOBODY).order_by(LEASES.c.expires_at, LEASES.c.run_id)
        leases = connection.execute(query.where(LEASES.c.expires_at > as_text(self._database.now(connection)))).all()
        return {lease.run_id: datetime.fromisoformat(lease.expires_at) for lease in leases}

    def abandon(self, connection: Connection, run_id: str, token: str) -> None:
        """Keep a run's lease as one that nobody holds, when the token is its own."""
        nobody = {"holder": NOBODY, "token": NOBODY, "expires_at": as_text(_LONG_AGO)}
        connection.execute(update(LEASES).where(*_owned(run_id, token)).values(nobody))

    def abandoned(self, connection: Connection) -> Sequence[Run]:
        """Return the runs of leases that nobody keeps up, oldest first."""
        query = select(LEASES).join(RUNS, RUNS.c.run_id == LEASES.c.run_id)
        leases = connection.execute(query.order_by(RUNS.c.started_at, RUNS.c.run_id)).all()
        now = self._database.now(connection) if leases else None
        dead = (lease.run_id for lease in leases if now is not None and not self._is_live(lease, now))
        return [run for run_id in dead if (run := stored.get(connection, run_id)) is not None]

    def take_over(self, connection: Connection, run_id: str) -> str | None:
        """Take an abandoned run's lease, and return its token; ``None`` when it has none, or a live one."""
        lease, now = self._locked(connection, run_id), self._database.now(connection)
        if lease is None or self._is_live(lease, now):
            return None
        row = self._row(run_id, now)
        connection.execute(update(LEASES).where(LEASES.c.run_id == run_id).values(row))
        return row["token"]

    def _locked(self, connection: Connection, run_id: str) -> Row[Any] | None:
        self._database.lock(connection, [f"run {run_id}"])
        return connection.execute(select(LEASES).where(LEASES.c.run_id == run_id)).one_or_none()

    def _is_live(self, lease: Row[Any], now: datetime) -> bool:
        expired = str(lease.expires_at) <= as_text(now)
        return not expired and (lease.holder == NOBODY or self._holder.is_alive(lease.holder) is not False)

    def _row(self, run_id: str, now: datetime) -> dict[str, str]:
        return {
            "run_id": run_id,
            "holder": self._holder.identity(),
            "token": secrets.token_hex(16),
            "renewed_at": as_text(now),
            "expires_at": as_text(now + self._lasts),
        }


def taken(run_id: str) -> RetryableError:
    """Return the error for a run that another process is working on."""
    return RetryableError(
        f"Another process is working on run {run_id}.",
        hint=f"See how it ended: lakegate runs {run_id}",
        run=run_id,
    )


def lost(run_id: str) -> LeaseLostError:
    """Return the error for a run that was ours to work on, and is no more."""
    return LeaseLostError(
        f"Run {run_id} lost its lease (it was not renewed in time); another process took the run over.",
        hint=f"See how it ended: lakegate runs {run_id}",
        run_id=run_id,
    )


def _owned(run_id: str, token: str) -> tuple[ColumnElement[bool], ...]:
    return LEASES.c.run_id == run_id, LEASES.c.token == token, LEASES.c.token != NOBODY
