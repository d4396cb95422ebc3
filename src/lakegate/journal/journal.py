"""The journal: runs, their leases, the source files that they claimed, and a copy of the catalog's history."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import tenacity
from sqlalchemy import Row as SqlRow
from sqlalchemy import bindparam, delete, func, literal, or_, select, union_all, update

from lakegate.errors import ConflictError, LeaseLostError, RetryableError
from lakegate.journal import alerts, files, history, metrics, runs
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.history import ANY_HEAD, JournalCommits
from lakegate.journal.holder import Holder, ProcessHolder
from lakegate.journal.outbox import Outbox, queue_end
from lakegate.journal.pages import JournalPages, RunFilter
from lakegate.journal.schema import CLAIMS, FORMATS, LEASES, RUNS, as_text, ensure_schema, is_time, require_catalog
from lakegate.ledger.event import PastCommit
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.run import FileCheckpoint, Lease, Notification, Run, RunKind
from lakegate.model.states import RunStatus
from lakegate.telemetry.metrics import LEASE_LOSSES, Sample

LEASE_S = 60.0
_POLL_S = 0.2
_EXPIRED_AT_ONCE = 500
_NOBODY = ""
_RECOVERING = "recovering-"
"""Prefix of the tokens of leases that were taken over from dead processes."""
"""Holder and token of a lease that was given up, or that waits for the run's next step."""
_LONG_AGO = as_text(datetime(1970, 1, 1, tzinfo=UTC))
_ALL_LEASES = select(LEASES)
_LEASE = _ALL_LEASES.where(LEASES.c.run_id == bindparam("run"))
_OWN_LEASE = LEASES.c.run_id == bindparam("run"), LEASES.c.token == bindparam("owner"), LEASES.c.token != _NOBODY
_CHANGE_LEASE = update(LEASES).where(*_OWN_LEASE)
_DROP_LEASE = delete(LEASES).where(*_OWN_LEASE)


class Journal:
    """Records what runs intended, how they ended, who works on them, and which source files they claimed.

    The catalog stays the truth about data: losing the journal loses no data. To support another database, write a
    subclass of :class:`~lakegate.journal.database.Database`, and pick it in
    :func:`lakegate.journal.factory.open_journal`.

    Args:
        database: Where the journal is. Its tables are created first.
        holder: Names this process in leases.
        lease_s: Seconds until a lease expires if it isn't renewed.

    Attributes:
        outbox: Events for downstream systems.
        publishes: Runs that wait to publish.

    Raises:
        RetryableError: From every method, if the database is locked for too long or unreachable.
        InputError: If the database isn't a journal.
        ConfigurationError: If the journal has another format, or the database denies access.
    """

    def __init__(self, database: Database, *, holder: Holder | None = None, lease_s: float = LEASE_S) -> None:
        self._database = database
        self._holder = holder or ProcessHolder()
        self._lease = timedelta(seconds=lease_s)
        self.outbox = Outbox(database)
        try:
            ensure_schema(database)
        except BaseException:
            database.close()
            raise

    @property
    def database(self) -> Database:
        """Where it is. A catalog without branches of its own has them there, too."""
        return self._database

    def require_catalog(self, identity: str | None) -> None:
        """Check that this is the journal of the catalog with this identity; an unused journal becomes that.

        Args:
            identity: See :meth:`lakegate.ports.Catalog.identity`. A catalog without one isn't checked.

        Raises:
            ConfigurationError: If it's another catalog's. Its runs and their branches mustn't be looked for in ours.
        """
        if identity is not None:
            require_catalog(self._database, identity)

    def gate_key(self) -> bytes:
        """Return the key that signs the tokens of the gate: the same for all that share the journal."""
        with self._database.reading() as tx:
            return bytes.fromhex(str(tx.scalar(select(FORMATS.c.gate_key))))

    @property
    def commits(self) -> JournalCommits:
        """The commits that the journal has read."""
        return JournalCommits(self._database)

    @property
    def pages(self) -> JournalPages:
        """Narrow queries that return a page at a time, for the dashboard."""
        return JournalPages(self._database)

    # Runs

    def save(self, run: Run, token: str | None = None, *, was: RunStatus | None = None) -> Run:
        """Insert or replace ``run`` by its id, with its steps and check results.

        Args:
            token: Token of its lease; ``None`` for a run that nobody is working on.
            was: The state that it must have, unless the target's history has changed that since; any by default.

        Returns:
            The run as stored: facts from the target's history are kept.

        Raises:
            LeaseLostError: If another process took over the run. Nothing changes then.
            RetryableError: If there's no token, and a process is working on the run. Nothing changes then.
        """
        with self._database.writing() as tx:
            if token is None:
                self._require_nobody(tx, run.run_id)
            else:
                _require_own(tx, run.run_id, token)
            known = runs.get(tx, run.run_id, to_change=True)
            if known is not None and was is not None and known.status not in (was, *history.ON_TARGET, "discarded"):
                raise ConflictError(
                    f"Run {run.run_id} was {was}, but is {known.status} in the journal.",
                    hint=f"To see its outcome: lakegate runs {run.run_id}",
                    run_id=run.run_id,
                )
            return runs.put(tx, run, known)

    def amend(self, run: Run, **changes: object) -> Run | None:
        """Change fields of a run that nobody is working on, if its status is still that of ``run``.

        A run that can't be read doesn't change.

        Returns:
            The run as it is now, changed or not; ``None`` if it doesn't exist.
        """
        with self._database.writing() as tx:
            self._require_nobody(tx, run.run_id)
            return _changed(tx, run, lambda known: known.model_copy(update=changes))

    def note(self, run: Run, change: Callable[[Run], Run]) -> Run | None:
        """Change a run as :meth:`amend` does, but also one that somebody is working on, who must expect it."""
        with self._database.writing() as tx:
            _locked(tx, run.run_id)
            return _changed(tx, run, change)

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        with self._database.reading() as tx:
            return runs.get(tx, run_id)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        with self._database.reading() as tx:
            return runs.read(tx, runs.newest_first().where(runs.has_prefix(prefix)).limit(10))

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        with self._database.reading() as tx:
            return next(iter(runs.read(tx, runs.newest_first().where(RUNS.c.branch == branch).limit(1))), None)

    def with_branch(self, statuses: Collection[str]) -> Sequence[Run]:
        """Return the runs with one of these statuses whose branch is kept, oldest first."""
        query = select(*runs.SHOWN).where(RUNS.c.branch_kept == 1, RUNS.c.status.in_(statuses))
        with self._database.reading() as tx:
            return runs.read(tx, query.order_by(RUNS.c.started_at, RUNS.c.run_id))

    def runs(
        self,
        *,
        table: str | None = None,
        status: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        orchestrator: str | None = None,
        file: str | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first; see :class:`~lakegate.journal.pages.RunFilter`."""
        wanted = RunFilter(table=table, status=status, kind=kind, since=since, orchestrator=orchestrator, file=file)
        return self.pages.runs(wanted, limit=limit)[0]

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and of published file versions, counted once per table."""
        status, most = RUNS.c.status, "published"
        by_status = select(status, func.count().label("number")).group_by(status)
        # SQLite counts all rows of a table ten times as fast as those with a status, and nearly all are published.
        number_of_runs = select(func.count()).select_from(RUNS).scalar_subquery()
        number_of_files = select(func.count()).select_from(CLAIMS).scalar_subquery()
        unpublished = select(func.count()).select_from(CLAIMS).where(CLAIMS.c.state == files.CLAIMED).scalar_subquery()
        # One statement, so that all counts are of the same moment, on Postgres too.
        query = union_all(
            by_status.where(status < most),
            by_status.where(status > most),
            select(literal("all runs"), number_of_runs),
            select(literal("all files"), number_of_files),
            select(literal("unpublished files"), unpublished),
        )
        with self._database.reading() as tx:
            counts = {str(row.status): int(row.number) for row in tx.execute(query)}
        published = counts.pop("all files") - counts.pop("unpublished files")
        left = counts.pop("all runs") - sum(counts.values())
        return counts | ({most: left} if left else {}), published

    def expire_detail(self, before: datetime, note: str) -> int:
        """Delete steps, reports and alerts of runs that ended before a time; return the number of these runs.

        What the runs did is kept, and runs whose branch is kept stay complete.

        Args:
            note: What to add to :attr:`~lakegate.model.run.Run.detail`.
        """
        number, after = 0, ""
        while True:
            with self._database.writing() as tx:
                expired, last = runs.expire(tx, before, note, after=after, limit=_EXPIRED_AT_ONCE)
            number += expired
            if last is None:
                return number
            after = last

    # Leases: who is working on a run. Taking a lease returns a token, which every change of the run must present, and
    # taking it over makes a new token. The lease belongs to the token, not to a process: one thread of a process may
    # lose a run to another. A lease is live only while it's renewed, even if its process lives on.

    def begin(self, run: Run, *, anew: bool = False) -> str:
        """Save ``run`` and take its lease, in one transaction.

        Args:
            anew: Refuse a run that exists already, unless it failed.

        Raises:
            RetryableError: If another process is working on the run, or with ``anew``, has started it before.
        """
        with self._database.writing() as tx:
            token = self._take(tx, run.run_id)
            known = runs.get(tx, run.run_id, to_change=True)
            if anew and known is not None and (known.status != "failed" or known.finished_at is None):
                raise RetryableError(
                    f"Another process started run {run.run_id} meanwhile.",
                    hint=f"To see its outcome: lakegate runs {run.run_id}",
                    run=run.run_id,
                )
            runs.put(tx, run, known)
            return token

    def renew(self, run_id: str, token: str) -> bool:
        """Renew a lease; return whether it's still ours."""
        with self._database.writing() as tx:
            now = tx.now()
            times = {"renewed_at": as_text(now), "expires_at": as_text(now + self._lease)}
            return tx.execute(_CHANGE_LEASE, {"run": run_id, "owner": token, **times}).rowcount == 1

    def end(self, run: Run, token: str, *, counted: Sequence[Sample] = ()) -> Run:
        """Save ``run`` as it ended, drop its lease and settle its claims, in one transaction.

        A published run's claims become published files; any other run's claims are released. For a rejected or failed
        run, this also queues the downstream events; for a publish, :meth:`record` does, which knows the order.

        Args:
            counted: Samples to add to the metrics.

        Returns:
            The run as stored: facts from the target's history are kept.

        Raises:
            LeaseLostError: If another process took over the run. Nothing changes then.
        """
        with self._database.writing() as tx:
            # Lock in the same order as _take.
            _require_own(tx, run.run_id, token)
            tx.execute(_DROP_LEASE, {"run": run.run_id, "owner": token})
            files.lock_claims_of(tx, run.run_id)
            known = runs.get(tx, run.run_id, to_change=True)
            kept = runs.put(tx, run, known)
            # If only the history calls it published, the history also has its files: an earlier attempt may have
            # published others.
            is_published = run.status == kept.status == "published"
            files.settle(tx, run.run_id, published=is_published)
            if is_published and kept.publication is not None:
                history.note_unread(tx, kept.publication)
            had_ended = known is not None and (known.status, known.finished_at) == (kept.status, kept.finished_at)
            if not had_ended:
                queue_end(tx, kept)
            metrics.add(tx, counted)
            return kept

    def abandoned(self) -> Sequence[Run]:
        """Return unfinished runs whose lease has expired, or whose process is known to be dead, oldest first."""
        with self._database.reading() as tx:
            # Read the few leases first: with a join, SQLite would search all runs for those that have one.
            leases = tx.execute(_ALL_LEASES).all()
            now = tx.now() if leases else None
            dead = [lease.run_id for lease in leases if now is not None and not self._is_live(lease, now)]
            found = (run for run_id in dead if (run := runs.get(tx, run_id)) is not None)
            return sorted(found, key=lambda run: (run.started_at, run.run_id))

    def without_lease(self) -> Sequence[Run]:
        """Return runs that are in progress, by their status or claims, but have no lease."""
        leased = select(LEASES.c.run_id)
        claiming = select(CLAIMS.c.run_id).where(CLAIMS.c.state == files.CLAIMED)
        under_way = or_(RUNS.c.status.in_(("created", "planned")), RUNS.c.run_id.in_(claiming))
        with self._database.reading() as tx:
            query = select(*runs.SHOWN).where(RUNS.c.finished_at.is_(None), under_way, RUNS.c.run_id.not_in(leased))
            return runs.read(tx, query.order_by(RUNS.c.started_at, RUNS.c.run_id))

    def take_over(self, run_id: str) -> Lease | None:
        """Take an abandoned run's lease; ``None`` if another process was faster."""
        with self._database.writing() as tx:
            lease = _locked(tx, run_id)
            run = None if lease is None or self._is_live(lease, tx.now()) else runs.get(tx, run_id)
            if lease is None or run is None:
                return None
            token = self._take(tx, run_id, prefix=_RECOVERING)
            if lease.token != _NOBODY:
                metrics.add(tx, [Sample(LEASE_LOSSES.name, (), 1)])
            return Lease(run=run, token=token)

    def recovering(self) -> Mapping[str, str]:
        """Return the runs that a live process took over, by run id: ``host:pid:start`` of that process."""
        with self._database.reading() as tx:
            leases, now = tx.execute(_ALL_LEASES).all(), tx.now()
            taken = (one for one in leases if one.token.startswith(_RECOVERING) and self._is_live(one, now))
            return {one.run_id: one.holder for one in taken}

    def suspend(self, run: Run, token: str, *, for_s: float, counted: Sequence[Sample] = ()) -> None:
        """Save ``run``, and leave its lease to the process that does its next step, in one transaction.

        For ``for_s`` seconds, only :meth:`resume` and :meth:`begin` can take the lease. Then the run counts as
        abandoned.

        Args:
            counted: Samples to add to the metrics.

        Raises:
            LeaseLostError: If another process took over the run. Nothing changes then.
        """
        with self._database.writing() as tx:
            _require_own(tx, run.run_id, token)
            _give_up(tx, run.run_id, token, until=as_text(tx.now() + timedelta(seconds=for_s)))
            runs.put(tx, run, runs.get(tx, run.run_id, to_change=True))
            metrics.add(tx, counted)

    def resume(self, run_id: str, *, ended: bool = False, wait_s: float = 0.0) -> Lease | None:
        """Take the lease of a run that hasn't ended, and return it with the run.

        Args:
            ended: Also take the lease of a run that has ended; otherwise, such a run is returned without a token.
            wait_s: Seconds to wait for another process that is working on the run.

        Returns:
            The lease; ``None`` if the run doesn't exist.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RetryableError),
            stop=tenacity.stop_after_delay(wait_s),
            wait=tenacity.wait_fixed(_POLL_S),
            reraise=True,
        )
        return retrying(self._resume, run_id, ended=ended)

    def suspended(self) -> Mapping[str, datetime]:
        """Return when each suspended run expires, by run id, soonest first."""
        query = select(LEASES).where(LEASES.c.holder == _NOBODY).order_by(LEASES.c.expires_at, LEASES.c.run_id)
        with self._database.reading() as tx:
            leases = tx.execute(query.where(LEASES.c.expires_at > as_text(tx.now()))).all()
            return {lease.run_id: datetime.fromisoformat(lease.expires_at) for lease in leases}

    def abandon(self, run_id: str, token: str) -> None:
        """Give up the lease of an unfinished run, so that any process can take it over immediately."""
        with self._database.writing() as tx:
            _give_up(tx, run_id, token, until=_LONG_AGO)

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
    ) -> Claim:
        """Claim source files for a run, each version once per table, in one transaction.

        Args:
            batch: The files. A file is identified by ``uri`` and ``version``.
            take_changed: Whether to claim files whose path was published in another version.
            take_free: Whether to claim the free files even if others are busy; otherwise, nothing is claimed then.

        Returns:
            What was claimed, and why the rest wasn't.

        Raises:
            LeaseLostError: If another process took over the run. Nobody would release new claims.
        """
        with self._database.writing() as tx:
            _require_own(tx, run_id, token)
            tx.lock(files.lock_name(table))
            known = files.known_versions(tx, table, batch)
            answer, taken = files.decide(run_id, batch, known, take_changed=take_changed, take_free=take_free)
            files.record_claims(tx, run_id, table, taken)
            return answer

    def known(self, table: str, batch: Sequence[SourceFile]) -> Claim:
        """Return what :meth:`claim` would return for a new run, without claiming anything (``claimed`` is empty)."""
        with self._database.reading() as tx:
            return files.preview(batch, files.known_versions(tx, table, batch))

    def earlier(self, table: str, batch: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return other versions of the files in ``batch`` that were published to ``table``."""
        with self._database.reading() as tx:
            return files.other_versions(batch, files.known_versions(tx, table, batch))

    def release(self, run_id: str, token: str) -> None:
        """Release the files that the run claimed but didn't publish."""
        with self._database.writing() as tx:
            _require_own(tx, run_id, token)
            files.lock_claims_of(tx, run_id)
            files.release(tx, run_id)

    def file_checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        """Return the files' checkpoints by URI; new files have none."""
        with self._database.reading() as tx:
            return files.checkpoints(tx, table, uris)

    def save_file_checkpoints(self, table: str, checkpoints: Sequence[FileCheckpoint]) -> None:
        """Save checkpoints, each in place of its URI's earlier one."""
        with self._database.writing() as tx:
            files.save_checkpoints(tx, table, checkpoints)

    # Metrics

    def metrics(self) -> Sequence[Sample]:
        """Return all counters, and how many runs are in progress. Takes as long with millions of runs as with one."""
        with self._database.reading() as tx:
            return metrics.read(tx)

    # Alerts

    def note_notifications(self, run_id: str, notifications: Sequence[Notification]) -> None:
        """Add notifications to a run as it is now, and change nothing else of it.

        A run that a newer lakegate wrote doesn't change.
        """
        with self._database.writing() as tx:
            run = runs.get(tx, run_id, to_change=True)
            if run is not None and not isinstance(run, runs.UnreadRun):
                sent = (*run.notifications, *notifications)
                runs.store_documents(tx, [run.model_copy(update={"notifications": sent})])

    def claim_alert(self, channel: str, alert: str, *, lead_s: float) -> bool:
        """Return whether to send a message of a kind: no other is being sent, or was sent lately.

        Args:
            alert: The kind: what its messages say.
            lead_s: Seconds in which nobody else sends one. Send it, and call :meth:`cover_alert`, within this time.
        """
        with self._database.writing() as tx:
            return alerts.claim(tx, channel, alert, lead_s)

    def cover_alert(self, channel: str, alert: str, *, for_s: float) -> None:
        """Have no message of a kind sent for the next ``for_s`` seconds."""
        with self._database.writing() as tx:
            alerts.cover(tx, channel, alert, for_s)

    # The catalog's history

    def published(self) -> frozenset[str]:
        """Return the ids of all runs that were published, even if they were reverted since.

        If a history that's read *later* lacks one, it has lost that run.
        """
        with self._database.reading() as tx:
            return frozenset(tx.scalars(select(RUNS.c.run_id).where(RUNS.c.status.in_(history.ON_TARGET))))

    def standing(self, table: str, kinds: Collection[RunKind] = get_args(RunKind)) -> Sequence[str]:
        """Return the runs of these kinds that stand in ``table``, newest first: those whose rows are published there.

        A run stands by the table's present name, whatever its name was then.
        """
        with self._database.reading() as tx:
            return history.standing_runs(tx, table, kinds)

    def synced(self, target: str) -> str | None:
        """Return the commit of ``target`` up to which its history is recorded, or ``None``."""
        with self._database.reading() as tx:
            return history.recorded_head(tx, target)

    def synced_and_unread(self, target: str) -> tuple[str | None, frozenset[str]]:
        """Return what :meth:`synced` does, and the commits that runs ended with and that aren't recorded yet."""
        with self._database.reading() as tx:
            return history.recorded_head(tx, target), history.unread_commits(tx, target)

    def record(
        self,
        target: str,
        commits: Sequence[PastCommit],
        head: str,
        *,
        rebuild: bool = False,
        known: str | None = ANY_HEAD,
        gone: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> bool:
        """Record commits of ``target``, oldest first, in one transaction. Afterwards, ``head`` is synced.

        What they add is published afterwards, whoever has claimed the files, and what they remove isn't. Runs get the
        status that they have by the commits.

        Args:
            commits: All commits that were read, even without runs, so that they're found by their digits and time.
            head: The last commit.
            rebuild: Forget what is published first: the commits are the whole history. Checkpoints of files that other
                runs handled are dropped, so that these files are considered again.
            gone: Published runs that the history no longer has, because ``target`` was reset or restored.
            unread: Commits of :meth:`synced_and_unread` that are in the history or, with ``rebuild``, that it has lost.

        Returns:
            Whether the commits are recorded; ``False`` if another process has recorded another history since.
        """
        with self._database.writing() as tx:
            if rebuild:
                is_current = history.is_at(tx, target, known)
            else:
                is_current = history.continues(tx, target, known, head, commits)
            if not is_current:
                return False
            history.record(tx, target, commits, head, rebuild=rebuild, gone=gone, unread=unread)
            return True

    # Locks

    def lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait up to ``timeout_s`` seconds for the lock ``name`` (a table to publish to).

        It saves retries of concurrent commits to one table, and whoever cancels a run waits for it. What's published
        doesn't depend on it. The lock is released when its process ends.

        Args:
            timeout_s: How long to wait; 0 to return immediately.

        Returns:
            A context manager that yields whether we got the lock.
        """
        return self._database.named_lock(name, timeout_s=timeout_s)

    def is_locked(self, name: str) -> bool:
        """Return whether somebody holds the lock ``name``."""
        return self._database.is_locked(name)

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._database.close()

    def _resume(self, run_id: str, *, ended: bool) -> Lease | None:
        with self._database.writing() as tx:
            run = runs.get(tx, run_id)
            if run is None or (run.finished_at is not None and not ended):
                return None if run is None else Lease(run=run)
            token = self._take(tx, run_id)
            # The process that held the lease may have ended the run while we waited.
            run = runs.get(tx, run_id) or run
            if run.finished_at is not None and not ended:
                tx.execute(_DROP_LEASE, {"run": run_id, "owner": token})
                return Lease(run=run)
            return Lease(run=run, token=token)

    def _take(self, tx: JournalTransaction, run_id: str, *, prefix: str = "") -> str:
        lease, now = _locked(tx, run_id), tx.now()
        if lease is not None and lease.holder != _NOBODY and self._is_live(lease, now):
            raise _busy_error(run_id)
        self._database.require_clock(now)
        token = f"{prefix}{secrets.token_hex(16)}"
        times = as_text(now), as_text(now + self._lease)
        names = ("run_id", "holder", "token", "renewed_at", "expires_at")
        tx.insert(LEASES, [(run_id, self._holder.identity(), token, *times)], names, key="run_id")
        return token

    def _require_nobody(self, tx: JournalTransaction, run_id: str) -> None:
        lease = _locked(tx, run_id)
        if lease is not None and lease.holder != _NOBODY and self._is_live(lease, tx.now()):
            raise _busy_error(run_id)

    def _is_live(self, lease: SqlRow[Any], now: datetime) -> bool:
        # A dead process won't renew its lease. An invalid time would never expire, so it counts as expired.
        expired = not is_time(lease.expires_at) or lease.expires_at <= as_text(now)
        return not expired and (lease.holder == _NOBODY or self._holder.is_alive(lease.holder) is not False)


def _changed(tx: JournalTransaction, run: Run, change: Callable[[Run], Run]) -> Run | None:
    known = runs.get(tx, run.run_id, to_change=True)
    if known is None or known.status != run.status or isinstance(known, runs.UnreadRun):
        return known
    return runs.put(tx, change(known), known)


def _locked(tx: JournalTransaction, run_id: str) -> SqlRow[Any] | None:
    """Return a run's lease, locked until the transaction ends."""
    tx.lock(f"run {run_id}")
    return tx.execute(_LEASE, {"run": run_id}).one_or_none()


def _require_own(tx: JournalTransaction, run_id: str, token: str) -> None:
    """Check that the run's lease is ours, and lock it until the transaction ends."""
    lease = _locked(tx, run_id)
    if lease is None or token == _NOBODY or lease.token != token:
        raise LeaseLostError(
            f"Run {run_id} lost its lease (it wasn't renewed in time); another process took over the run.",
            hint=f"To see its outcome: lakegate runs {run_id}",
            run_id=run_id,
        )


def _give_up(tx: JournalTransaction, run_id: str, token: str, *, until: str) -> None:
    nobody = {"holder": _NOBODY, "token": _NOBODY, "expires_at": until}
    tx.execute(_CHANGE_LEASE, {"run": run_id, "owner": token, **nobody})


def _busy_error(run_id: str) -> RetryableError:
    return RetryableError(
        f"Another process is working on run {run_id}.",
        hint=f"Stop it, or wait for it to end: lakegate runs {run_id}",
        run_id=run_id,
    )
