"""The journal, and how the settings open it: in a file of SQLite, or in Postgres."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, func, make_url, select
from sqlalchemy.exc import ArgumentError

from lakegate.config import HOME_NAME, JournalSettings
from lakegate.credentials.secret import Secret
from lakegate.errors import ConfigurationError, RetryableError
from lakegate.journal import alerts, files, history, runs
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.holder import Holder, ProcessHolder
from lakegate.journal.leases import Leases
from lakegate.journal.schema import CLAIMS, RUNS, ensure_schema
from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim, FileCheckpoint, HistoryEvent, Lease
from lakegate.model.notices import AlertGroup, CountedAlert, Notice
from lakegate.model.request import OnSameContent
from lakegate.model.run import KnownFile, Notification, Run

LEASE_S = 60.0
_DRIVER = "postgresql+pg8000"


class Journal:
    """What runs intended, how they ended, who works on them, and which source files they claimed.

    The catalog stays the truth about data: a lost journal loses none. Another database is a subclass of
    :class:`~lakegate.journal.database.Database`, picked in :func:`open_journal`.

    Args:
        database: Where the journal is. Its tables are created or upgraded first.
        holder: This process, as leases name it.
        lease_s: Seconds that a lease lasts unless it's renewed.

    Raises:
        RetryableError: From every method, if the database is locked for too long or unreachable.
        InputError: If the database holds something else.
        ConfigurationError: If a newer lakegate made the journal, or the database denies access.
    """

    def __init__(self, database: Database, *, holder: Holder | None = None, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._leases = Leases(database, holder or ProcessHolder(), lease_s)
        try:
            ensure_schema(database)
        except BaseException:
            database.close()
            raise

    # Runs

    def save(self, run: Run, token: str | None = None) -> Run:
        """Insert or replace ``run`` by its id, with its steps and check results.

        Args:
            run: The run.
            token: Token of its lease; ``None`` for a run that nobody is working on.

        Returns:
            The run as stored: what the target's history says of it is kept.

        Raises:
            RetryableError: If another process is working on the run. Nothing changes then.
        """
        with self._database.writing() as connection:
            if token is None:
                self._leases.require_none(connection, run.run_id)
            else:
                self._leases.require(connection, run.run_id, token)
            return runs.put(self._database, connection, run)

    def amend(self, run: Run, **changes: object) -> Run | None:
        """Change fields of a run that nobody is working on, if its status is still that of ``run``.

        Returns:
            The run as it is now, changed or not; ``None`` if it doesn't exist.

        Raises:
            RetryableError: If another process is working on the run.
        """
        with self._database.writing() as connection:
            self._leases.require_none(connection, run.run_id)
            known = runs.get(connection, run.run_id, to_change=True)
            if known is None or known.status != run.status:
                return known
            return runs.put(self._database, connection, known.model_copy(update=changes))

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        with self._database.reading() as connection:
            return runs.get(connection, run_id)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        with self._database.reading() as connection:
            return runs.find(connection, prefix)

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        with self._database.reading() as connection:
            return runs.find_by_branch(connection, branch)

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
            return runs.listed(connection, table=table, status=status, kind=kind, since=since, limit=limit)

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and of published file versions, counted once per table."""
        with self._database.reading() as connection:
            by_status = select(RUNS.c.status, func.count().label("number")).group_by(RUNS.c.status)
            counts = {str(row.status): int(row.number) for row in connection.execute(by_status)}
            published = select(func.count()).select_from(CLAIMS).where(CLAIMS.c.state == files.PUBLISHED)
            return counts, connection.execute(published).scalar_one()

    # Leases: who is working on a run. Taking one returns a token, which every change of the run must name. Whoever
    # takes the lease over gets another token.

    def begin(self, run: Run, *, anew: bool = False) -> str:
        """Save ``run`` and take its lease, in one transaction.

        Args:
            run: The run.
            anew: Refuse a run that exists already, unless it failed.

        Returns:
            The lease's token.

        Raises:
            RetryableError: If another process is working on the run, or has begun it and it must be ``anew``.
        """
        with self._database.writing() as connection:
            token = self._leases.take(connection, run.run_id)
            known = runs.get(connection, run.run_id) if anew else None
            if known is not None and (known.status != "failed" or known.finished_at is None):
                raise RetryableError(
                    f"Another process began run {run.run_id} meanwhile.",
                    hint=f"See how it ended: lakegate runs {run.run_id}",
                    run=run.run_id,
                )
            runs.put(self._database, connection, run)
            return token

    def renew(self, run_id: str, token: str) -> bool:
        """Renew a lease; return whether it still has this token."""
        with self._database.writing() as connection:
            return self._leases.renew(connection, run_id, token)

    def end(self, run: Run, token: str) -> Run:
        """Save ``run`` as it ended, drop its lease and settle its claims, in one transaction.

        A published run's claims become published files; any other run's claims are released.

        Returns:
            The run as stored: what the target's history says of it is kept.

        Raises:
            LeaseLostError: If another process took the run over. Nothing changes then.
        """
        with self._database.writing() as connection:
            self._leases.drop(connection, run.run_id, token)
            files.lock_claims_of(self._database, connection, run.run_id)
            kept = runs.put(self._database, connection, run)
            files.settle(connection, run.run_id, kept.status)
            return kept

    def abandoned(self) -> Sequence[Run]:
        """Return unfinished runs whose lease ran out, or whose process is known to be dead, oldest first."""
        with self._database.reading() as connection:
            return self._leases.abandoned(connection)

    def take_over(self, run_id: str) -> Lease | None:
        """Take an abandoned run's lease; ``None`` if another process was faster."""
        with self._database.writing() as connection:
            token = self._leases.take_over(connection, run_id)
            run = None if token is None else runs.get(connection, run_id)
            return None if run is None else Lease(run=run, token=token)

    def suspend(self, run: Run, token: str, *, for_s: float) -> None:
        """Save ``run`` and leave its lease to whoever takes its next step, in one transaction.

        For ``for_s`` seconds only :meth:`resume` and :meth:`begin` can take it; then it counts as abandoned.

        Raises:
            LeaseLostError: If another process took the run over. Nothing changes then.
        """
        with self._database.writing() as connection:
            self._leases.suspend(connection, run.run_id, token, for_s)
            runs.put(self._database, connection, run)

    def resume(self, run_id: str, *, ended: bool = False) -> Lease | None:
        """Take the lease of a run that hasn't ended, and return it with the run.

        Args:
            run_id: The run.
            ended: Take the lease of an ended run, too; without it, such a run is returned without a token.

        Returns:
            The lease; ``None`` if the run doesn't exist.

        Raises:
            RetryableError: If another process is working on the run.
        """
        with self._database.writing() as connection:
            run = runs.get(connection, run_id)
            if run is None or (run.finished_at is not None and not ended):
                return None if run is None else Lease(run=run)
            token = self._leases.take(connection, run_id)
            # Whoever held the lease may have ended the run while we waited for it.
            run = runs.get(connection, run_id) or run
            if run.finished_at is not None and not ended:
                self._leases.drop(connection, run_id, token)
                return Lease(run=run)
            return Lease(run=run, token=token)

    def suspended(self) -> Mapping[str, datetime]:
        """Return when each run that waits for its next step expires, by run id."""
        with self._database.reading() as connection:
            return self._leases.suspended(connection)

    def abandon(self, run_id: str, token: str) -> None:
        """Give up the lease of an unfinished run: anyone may take it over at once."""
        with self._database.writing() as connection:
            self._leases.abandon(connection, run_id, token)

    # Source files

    def claim(
        self,
        run_id: str,
        table: str,
        batch: Sequence[SourceFile],
        *,
        token: str,
        take_changed: bool = False,
        take_free: bool = True,
        on_same_content: OnSameContent = "append",
    ) -> Claim:
        """Claim source files for a run, each version once per table, in one transaction.

        Args:
            run_id: The run.
            table: Table that the files go to.
            batch: The files. ``uri`` and ``version`` count, and ``identity`` and ``aliases``, which recognize a file
                under another name.
            token: Token of the run's lease.
            take_changed: Claim files whose path was published in another version.
            take_free: Claim the free files if others are busy; otherwise nothing is claimed then.
            on_same_content: What to do with a file that has the bytes of another one, published or earlier in
                ``batch``: claim it anyway, count it as published, or leave it out.

        Returns:
            What was claimed, and why the rest wasn't.

        Raises:
            LeaseLostError: If another process took the run over: nobody would release what it claims now.
        """
        with self._database.writing() as connection:
            self._leases.require(connection, run_id, token)
            return files.claim(
                self._database,
                connection,
                run_id,
                table,
                batch,
                take_changed=take_changed,
                take_free=take_free,
                on_same_content=on_same_content,
            )

    def known(self, table: str, batch: Sequence[SourceFile]) -> Claim:
        """Return what :meth:`claim` would answer a new run, and claim nothing (``claimed`` is empty)."""
        with self._database.reading() as connection:
            return files.preview(batch, files.known_versions(self._database, connection, table, batch))

    def earlier(self, table: str, batch: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return what was published to ``table`` under the paths of ``batch`` in other versions."""
        with self._database.reading() as connection:
            return files.other_versions(batch, files.known_versions(self._database, connection, table, batch))

    def release(self, run_id: str, token: str) -> None:
        """Release what the run claimed and didn't publish.

        Raises:
            LeaseLostError: If another process took the run over.
        """
        with self._database.writing() as connection:
            self._leases.require(connection, run_id, token)
            files.lock_claims_of(self._database, connection, run_id)
            files.release(connection, run_id)

    def file_checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        """Return the files' checkpoints by URI; new files have none."""
        with self._database.reading() as connection:
            return files.checkpoints(self._database, connection, table, uris)

    def save_file_checkpoints(self, table: str, checkpoints: Sequence[FileCheckpoint]) -> None:
        """Save checkpoints, each in place of its URI's earlier one."""
        with self._database.writing() as connection:
            files.save_checkpoints(self._database, connection, table, checkpoints)

    # Alerts

    def note_notifications(self, run_id: str, notifications: Sequence[Notification]) -> None:
        """Add the outcomes of a run's alerts to the run, and change nothing else of it."""
        with self._database.writing() as connection:
            runs.add_notifications(self._database, connection, run_id, notifications)

    def join_alert(self, channel: str, alert: str, *, lead_s: float = 60.0, about: Notice | None = None) -> AlertGroup:
        """Add one message to the group of those that say the same, and return its place in it.

        Args:
            channel: Name of the channel.
            alert: What the message says, as a key.
            lead_s: Seconds in which the first message of a group must be sent; after that, the next one is first.
            about: The message, if it may be sent later with others of its group (:meth:`take_counted_alerts`).
        """
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
        """Record whether the message at ``place`` was sent.

        If it wasn't, its group ends in a minute, so that the next message is tried then.

        Args:
            channel: Name of the channel.
            alert: What the message says, as a key.
            place: As :meth:`join_alert` returned it.
            sent: Whether it was sent.
            thread: Where to, if the channel has threads.
            stands_s: Seconds from now after which the next message begins a new group; unchanged if ``None``.
        """
        with self._database.writing() as connection:
            alerts.settle(
                self._database, connection, channel, alert, place, sent=sent, thread=thread, stands_s=stands_s
            )

    def take_counted_alerts(
        self, channels: Sequence[str], *, lead_s: float = 60.0, limit: int = 10
    ) -> Sequence[CountedAlert]:
        """Return groups that ended with messages that were never sent, each group to one caller.

        Args:
            channels: Names of the channels.
            lead_s: Seconds in which nobody else gets them: send and :meth:`settle_alert` in that time.
            limit: How many at most, oldest first.
        """
        with self._database.writing() as connection:
            return tuple(alerts.take_counted(self._database, connection, channels, lead_s, limit))

    # The catalog's history

    def published(self) -> frozenset[str]:
        """Return the ids of all published runs. A history that's read *later* and lacks one has lost it."""
        with self._database.reading() as connection:
            return runs.published(connection)

    def synced(self, target: str) -> str | None:
        """Return the commit of ``target`` up to which its history is recorded, or ``None``."""
        with self._database.reading() as connection:
            return history.synced(connection, target)

    def record(
        self,
        target: str,
        events: Sequence[HistoryEvent],
        head: str,
        *,
        rebuild: bool = False,
        gone: Collection[str] = (),
    ) -> None:
        """Record what commits of ``target`` say, oldest first, in one transaction; ``head`` is synced then.

        Published files are kept as published, whoever claimed them, and those of reverted runs are dropped. Runs get
        the status that the commits give them.

        Args:
            target: The branch.
            events: One for each commit that concerns runs.
            head: The newest commit seen.
            rebuild: Drop all published files first: the events are the whole history. Files that were done with by
                other runs are looked at again.
            gone: Published runs that the history no longer holds, because ``target`` was reset or restored.
        """
        with self._database.writing() as connection:
            history.record(self._database, connection, target, events, head, rebuild=rebuild, gone=gone)

    # Publish locks

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait up to ``timeout_s`` seconds for the lock ``name`` (a table to publish to).

        It only spares concurrent commits to one table from being redone: no promise depends on it. It ends with the
        process that holds it.

        Returns:
            A context manager that yields whether we got the lock.
        """
        return self._database.turn(name, timeout_s=timeout_s)

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._database.close()


def open_journal(settings: JournalSettings, home: Path) -> Journal:
    """Open or create the journal that the settings name; by default the project's ``.lakegate/journal.db``.

    Args:
        settings: Section ``journal``.
        home: The project's folder; a relative path of SQLite starts there.

    Raises:
        ConfigurationError: If the URL isn't one of SQLite or Postgres or holds a password, the password's variable
            isn't set, the driver is missing, the database denies access, or a newer lakegate made the journal.
        RetryableError: If the database is unreachable, or locked for too long.
        InputError: If a file isn't a journal.
    """
    if settings.url is None:
        return open_sqlite(home / HOME_NAME / "journal.db", lease_s=settings.lease_s)
    url = _parse(settings.url)
    if url.get_backend_name() == "sqlite":
        return open_sqlite(home / _sqlite_path(url), lease_s=settings.lease_s)
    password = None if settings.password is None else Secret(settings.password, setting="journal.password")
    trust = trusted(settings.tls, settings.ca_file)
    return open_postgres(
        url, password=password, lease_s=settings.lease_s, tls=trust, max_connections=settings.max_connections
    )


def open_sqlite(path: Path, *, lease_s: float = LEASE_S) -> Journal:
    """Open or create the journal file at ``path``; raises as :func:`open_journal`."""
    return Journal(SqliteDatabase(path), lease_s=lease_s)


def open_postgres(
    url: URL,
    *,
    password: Secret | None = None,
    lease_s: float = LEASE_S,
    tls: ssl.SSLContext | Literal[False] | None = None,
    max_connections: int | None = None,
) -> Journal:
    """Open or create the journal in a Postgres database; raises as :func:`open_journal`.

    Args:
        url: With password, if it never changes.
        password: Instead of one in ``url``; read for each connection.
        lease_s: See :class:`Journal`.
        tls: How to use TLS; ``None`` uses it where it's offered, ``False`` never does.
        max_connections: How many to open at most; default 30.
    """
    from lakegate.journal.postgres import MAX_CONNECTIONS, PostgresDatabase

    most = max_connections or MAX_CONNECTIONS
    database = PostgresDatabase(url.set(drivername=_DRIVER), password=password, tls=tls, max_connections=most)
    return Journal(database, lease_s=lease_s)


def trusted(tls: bool | None, ca_file: Path | None) -> ssl.SSLContext | Literal[False] | None:  # noqa: FBT001 - a setting
    """Return how to use TLS by the settings ``journal.tls`` and ``journal.ca_file``; see :func:`open_postgres`.

    Raises:
        ConfigurationError: If the file can't be used, or TLS is off.
    """
    if ca_file is None and not tls:
        return tls
    if tls is False:
        raise ConfigurationError(
            "journal.ca_file is set, and journal.tls is false.",
            hint="Set journal.tls = true, or leave journal.ca_file out.",
            setting="journal.tls",
        )
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # of which ssl.SSLError is one
        reason = "holds no certificates" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
        raise ConfigurationError(
            f"The file {ca_file} with the authorities to trust {reason}.",
            hint="Name a file in PEM format in journal.ca_file.",
            setting="journal.ca_file",
            file=str(ca_file),
        ) from None


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Its text stays out of the message: it may hold a password where none is looked for.
        raise _not_usable("journal.url is not a URL of a database.") from None
    if url.password is not None or "password" in url.query:
        raise ConfigurationError(
            "journal.url holds a password.",
            hint='Put it in a variable, and write journal.password = "env:NAME_OF_THE_VARIABLE".',
            setting="journal.url",
        )
    if url.drivername not in ("sqlite", "postgresql", _DRIVER):
        raise _not_usable(f"journal.url: lakegate keeps no journal in '{url.drivername}'.")
    return url


def _sqlite_path(url: URL) -> str:
    if url.database in (None, "", ":memory:") or url.query:
        raise _not_usable("journal.url names no file.")
    return str(url.database)


def _not_usable(message: str) -> ConfigurationError:
    return ConfigurationError(
        message,
        hint="Write it as postgresql://user@host:5432/database or sqlite:///journal.db.",
        setting="journal.url",
    )
