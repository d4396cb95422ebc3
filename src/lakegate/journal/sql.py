"""The journal in SQL, by SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sqlalchemy import func, select

from lakegate.journal import alerts, claims, history
from lakegate.journal import landings as landed
from lakegate.journal import runs as stored
from lakegate.journal.database import Database
from lakegate.journal.holder import Holder, ProcessHolder
from lakegate.journal.leases import Leases, begun_before, may_be_begun
from lakegate.journal.schema import ensure_schema
from lakegate.journal.tables import CLAIMS, RUNS
from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim, HistoryEvent, Landing
from lakegate.model.notices import AlertGroup, CountedAlert, Notice
from lakegate.model.run import KnownFile, Notification, Run

LEASE_S = 60.0


class SqlJournal:
    """Implements :class:`lakegate.protocols.Journal` on a database, bringing its tables up to date first.

    Args:
        database: Where it is; see :mod:`lakegate.journal.opening`.
        holder: Who we are, in leases.
        lease_s: How long a lease lasts that is not renewed, in seconds, where its holder's life cannot be looked at.

    Raises:
        RetryableError: From any method, when the database is locked or away.
        InputError: When the database holds something else.
        ConfigurationError: When a newer version of lakegate made the journal, or the database does not let us in.
    """

    def __init__(self, database: Database, *, holder: Holder | None = None, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._leases = Leases(database, holder or ProcessHolder(), lease_s)
        try:
            ensure_schema(database)
        except BaseException:
            database.close()
            raise

    def save(self, run: Run) -> None:
        """Insert or replace ``run``."""
        with self._database.writing() as connection:
            stored.store(self._database, connection, run)

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        with self._database.reading() as connection:
            return stored.get(connection, run_id)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        with self._database.reading() as connection:
            return stored.find(connection, prefix)

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        with self._database.reading() as connection:
            return stored.find_by_branch(connection, branch)

    def runs(
        self,
        *,
        table: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first."""
        with self._database.reading() as connection:
            return stored.listed(connection, table=table, status=status, kind=kind, since=since, limit=limit)

    def begin(self, run: Run, *, anew: bool = False) -> None:
        """Save ``run`` and take its lease.

        Raises:
            RetryableError: Also when another process works on the run, or has begun it when it is to be begun ``anew``.
        """
        with self._database.writing() as connection:
            self._leases.take(connection, run.run_id)
            if anew and not may_be_begun(stored.get(connection, run.run_id)):
                raise begun_before(run.run_id)
            stored.store(self._database, connection, run)

    def park(self, run: Run, *, for_s: float) -> None:
        """Save ``run`` and leave its lease to its next step.

        Raises:
            RetryableError: Also when another process has taken the run over; nothing is changed then.
        """
        with self._database.writing() as connection:
            self._leases.park(connection, run.run_id, for_s)
            stored.store(self._database, connection, run)

    def resume(self, run_id: str) -> Run | None:
        """Take the lease of a run that has not ended, and return the run.

        Raises:
            RetryableError: Also when another process works on the run.
        """
        with self._database.writing() as connection:
            run = stored.get(connection, run_id)
            if run is None or run.finished_at is not None:
                return run
            self._leases.take(connection, run_id)
            # Who held the lease may have ended the run while we waited for it.
            run = stored.get(connection, run_id)
            if run is not None and run.finished_at is not None:
                self._leases.drop(connection, run_id)
            return run

    def renew(self, run_id: str) -> bool:
        """Renew our lease; return whether it is still ours."""
        with self._database.writing() as connection:
            return self._leases.renew(connection, run_id)

    def end(self, run: Run) -> None:
        """Save ``run`` as it ended, drop its lease and settle its claims.

        Raises:
            RetryableError: Also when another process has taken the run over; nothing is changed then.
        """
        with self._database.writing() as connection:
            self._leases.drop(connection, run.run_id)
            claims.lock_claims_of(self._database, connection, run.run_id)
            claims.settle(connection, run.run_id, run.status)
            stored.store(self._database, connection, run)

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and that of published versions of files."""
        with self._database.reading() as connection:
            by_status = select(RUNS.c.status, func.count().label("number")).group_by(RUNS.c.status)
            runs = {str(row.status): int(row.number) for row in connection.execute(by_status)}
            published = select(func.count()).select_from(CLAIMS).where(CLAIMS.c.state == claims.PUBLISHED)
            return runs, connection.execute(published).scalar_one()

    def abandoned(self) -> Sequence[Run]:
        """Return the runs that nobody works on any more though they have not ended, oldest first."""
        with self._database.reading() as connection:
            return self._leases.abandoned(connection)

    def take_over(self, run_id: str) -> bool:
        """Take an abandoned run's lease; return whether we are the one who got it."""
        with self._database.writing() as connection:
            return self._leases.take_over(connection, run_id)

    def parked(self) -> Mapping[str, datetime]:
        """Return until when each run that waits for its next step is left alone."""
        with self._database.reading() as connection:
            return self._leases.parked(connection)

    def abandon(self, run_id: str) -> None:
        """Give up our lease of a run that has not ended."""
        with self._database.writing() as connection:
            self._leases.abandon(connection, run_id)

    def claim(
        self,
        run_id: str,
        table: str,
        files: Sequence[SourceFile],
        *,
        take_changed: bool = False,
        take_free: bool = True,
    ) -> Claim:
        """Claim source files for a run; see :meth:`lakegate.protocols.Journal.claim`."""
        choices = {"take_changed": take_changed, "take_free": take_free}
        with self._database.writing() as connection:
            return claims.claim(self._database, connection, run_id, table, files, **choices)

    def known(self, table: str, files: Sequence[SourceFile]) -> Claim:
        """Return what a claim would answer a new run."""
        with self._database.reading() as connection:
            return claims.preview(files, claims.known_versions(self._database, connection, table, files))

    def earlier(self, table: str, files: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return what was published under the files' paths in other versions."""
        with self._database.reading() as connection:
            return claims.other_versions(files, claims.known_versions(self._database, connection, table, files))

    def release(self, run_id: str) -> None:
        """Give back what the run claimed and did not publish."""
        with self._database.writing() as connection:
            claims.lock_claims_of(self._database, connection, run_id)
            claims.release(connection, run_id)

    def landings(self, table: str, uris: Sequence[str]) -> Mapping[str, Landing]:
        """Return what became of the files before; see :meth:`lakegate.protocols.Journal.landings`."""
        with self._database.reading() as connection:
            return landed.noted(self._database, connection, table, uris)

    def note_landings(self, table: str, landings: Sequence[Landing]) -> None:
        """Write down what became of files."""
        with self._database.writing() as connection:
            landed.note(self._database, connection, table, landings)

    def note_notifications(self, run_id: str, notifications: Sequence[Notification]) -> None:
        """Add to the run what came of telling of it."""
        with self._database.writing() as connection:
            stored.add_notifications(self._database, connection, run_id, notifications)

    def join_alert(self, channel: str, alert: str, *, lead_s: float = 60.0, about: Notice | None = None) -> AlertGroup:
        """Add one message to those that say the same; see :meth:`lakegate.protocols.Journal.join_alert`."""
        with self._database.writing() as connection:
            return alerts.join(self._database, connection, channel, alert, lead_s, about)

    def settle_alert(
        self,
        channel: str,
        alert: str,
        place: AlertGroup,
        *,
        sent: bool,
        thread: str | None = None,
        stands_s: float | None = None,
    ) -> None:
        """Write down whether a message was sent; see :meth:`lakegate.protocols.Journal.settle_alert`."""
        with self._database.writing() as connection:
            alerts.settle(
                self._database, connection, channel, alert, place, sent=sent, thread=thread, stands_s=stands_s
            )

    def take_counted_alerts(
        self, channels: Sequence[str], *, lead_s: float = 60.0, limit: int = 10
    ) -> Sequence[CountedAlert]:
        """Return groups that are over; see :meth:`lakegate.protocols.Journal.take_counted_alerts`."""
        with self._database.writing() as connection:
            return tuple(alerts.take_counted(self._database, connection, channels, lead_s, limit))

    def synced(self, target: str) -> str | None:
        """Return the commit up to which ``target``'s history is known."""
        with self._database.reading() as connection:
            return history.synced(connection, target)

    def record(self, target: str, events: Sequence[HistoryEvent], head: str, *, rebuild: bool = False) -> None:
        """Take over what commits say; see :meth:`lakegate.protocols.Journal.record`."""
        with self._database.writing() as connection:
            history.record(self._database, connection, target, events, head, rebuild=rebuild)

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for our turn at ``name``; see :meth:`lakegate.protocols.Journal.turn`."""
        return self._database.turn(name, timeout_s=timeout_s)

    def close(self) -> None:
        """Release connections."""
        self._database.close()
