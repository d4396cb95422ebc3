"""A journal that lasts as long as the process."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter

from lakegate.journal.alerts import Tally, is_counted, joined, settled
from lakegate.journal.claims import CLAIMED, PUBLISHED, KnownVersion, decide, other_versions, preview
from lakegate.journal.database import Clock, utc_now
from lakegate.journal.history import Tale, put_together, told
from lakegate.journal.holder import Holder, ProcessHolder
from lakegate.journal.leases import NOBODY, begun_before, may_be_begun, taken
from lakegate.model.batch import SourceFile
from lakegate.model.journal import Claim, HistoryEvent, Landing
from lakegate.model.notices import AlertGroup, CountedAlert, Notice
from lakegate.model.run import KnownFile, Notification, Run


@dataclass(frozen=True, slots=True)
class _Lease:
    holder: str
    expires_at: datetime


@dataclass(slots=True)
class MemoryStore:
    """What several journals share, as processes share a database; ``versions`` and ``landings`` by table and path."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    runs: dict[str, Run] = field(default_factory=dict)
    leases: dict[str, _Lease] = field(default_factory=dict)
    versions: dict[tuple[str, str], list[KnownVersion]] = field(default_factory=lambda: defaultdict(list))
    paths: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    events: set[tuple[str, str]] = field(default_factory=set)
    landings: dict[tuple[str, str], Landing] = field(default_factory=dict)
    alerts: dict[tuple[str, str], Tally] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    turns: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def put(self, table: str, version: KnownVersion) -> None:
        """Write down one version of a path, in the place of what was known of it."""
        versions = self.versions[table, version.file.uri]
        for at, known in enumerate(versions):
            if known.file.version == version.file.version:
                versions[at] = KnownVersion(known.file, version.run_id, version.state)
                break
        else:
            versions.append(version)
        self.paths[version.run_id].add((table, version.file.uri))

    def settle(self, run_id: str, *, published: bool) -> None:
        """Publish or give back what the run claimed."""
        for key in self.paths[run_id]:
            kept = []
            for known in self.versions[key]:
                if known.run_id != run_id or known.state == PUBLISHED:
                    kept.append(known)
                elif published:
                    kept.append(KnownVersion(known.file, run_id, PUBLISHED))
            self.versions[key] = kept

    def forget(self, run_id: str, table: str) -> None:
        """Drop what the run claimed or published of a table."""
        for key in [key for key in self.paths[run_id] if key[0] == table]:
            self.versions[key] = [known for known in self.versions[key] if known.run_id != run_id]


class MemoryJournal:
    """Implements :class:`lakegate.protocols.Journal` for unit tests; may be used by many threads.

    Args:
        store: What it shares with other journals.
        holder: Who we are, in leases.
        clock: Replaces the machine's clock.
        lease_s: How long a lease lasts that is not renewed, in seconds.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        holder: Holder | None = None,
        clock: Clock = utc_now,
        lease_s: float = 60.0,
    ) -> None:
        self._store = store or MemoryStore()
        self._holder = holder or ProcessHolder()
        self._clock = clock
        self._lasts = timedelta(seconds=lease_s)

    def save(self, run: Run) -> None:
        """Insert or replace ``run``."""
        with self._store.lock:
            self._store.runs[run.run_id] = Run.model_validate_json(run.model_dump_json())

    def get(self, run_id: str) -> Run | None:
        """Return the run, or ``None``."""
        return self._store.runs.get(run_id)

    def find(self, prefix: str) -> Sequence[Run]:
        """Return up to 10 runs whose id starts with ``prefix``, newest first."""
        return [run for run in self._newest_first() if run.run_id.startswith(prefix)][:10]

    def find_by_branch(self, branch: str) -> Run | None:
        """Return the newest run that wrote to ``branch``, or ``None``."""
        return next((run for run in self._newest_first() if run.branch == branch), None)

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
        chosen = (
            run
            for run in self._newest_first()
            if (table is None or table in run.tables)
            and status in (None, run.status)
            and kind in (None, run.kind)
            and (since is None or run.started_at >= since)
        )
        return [run for run, _ in zip(chosen, range(limit), strict=False)]

    def begin(self, run: Run, *, anew: bool = False) -> None:
        """Save ``run`` and take its lease."""
        with self._store.lock:
            if anew and not may_be_begun(self.get(run.run_id)):
                raise begun_before(run.run_id)
            self._take(run.run_id)
            self.save(run)

    def park(self, run: Run, *, for_s: float) -> None:
        """Save ``run`` and leave its lease to its next step."""
        with self._store.lock:
            lease = self._store.leases.get(run.run_id)
            if lease is None or not self._is_ours(lease):
                raise taken(run.run_id)
            self._store.leases[run.run_id] = _Lease(NOBODY, self._clock() + timedelta(seconds=for_s))
            self.save(run)

    def resume(self, run_id: str) -> Run | None:
        """Take the lease of a run that has not ended, and return the run."""
        with self._store.lock:
            run = self.get(run_id)
            if run is not None and run.finished_at is None:
                self._take(run_id)
            return run

    def renew(self, run_id: str) -> bool:
        """Renew our lease; return whether it is still ours."""
        with self._store.lock:
            lease = self._store.leases.get(run_id)
            if lease is None or not self._is_ours(lease):
                return False
            self._lease(run_id)
            return True

    def end(self, run: Run) -> None:
        """Save ``run`` as it ended, drop its lease and settle its claims."""
        with self._store.lock:
            lease = self._store.leases.get(run.run_id)
            if lease is not None and not self._is_ours(lease):
                raise taken(run.run_id)
            self._store.leases.pop(run.run_id, None)
            self._store.settle(run.run_id, published=run.status == "published")
            self.save(run)

    def count(self) -> tuple[Mapping[str, int], int]:
        """Return the number of runs by status, and that of published versions of files."""
        with self._store.lock:
            known = [version for versions in self._store.versions.values() for version in versions]
            published = sum(version.state == PUBLISHED for version in known)
            return Counter(run.status for run in self._store.runs.values()), published

    def abandoned(self) -> Sequence[Run]:
        """Return the runs that nobody works on any more though they have not ended, oldest first."""
        with self._store.lock:
            dead = {run_id for run_id, lease in self._store.leases.items() if not self._is_live(lease)}
            return [run for run in reversed(self._newest_first()) if run.run_id in dead]

    def take_over(self, run_id: str) -> bool:
        """Take an abandoned run's lease; return whether we are the one who got it."""
        with self._store.lock:
            lease = self._store.leases.get(run_id)
            if lease is None or self._is_live(lease):
                return False
            self._lease(run_id)
            return True

    def parked(self) -> Mapping[str, datetime]:
        """Return until when each run that waits for its next step is left alone."""
        with self._store.lock:
            now = self._clock()
            until = {run: one.expires_at for run, one in self._store.leases.items() if one.holder == NOBODY}
            return dict(sorted(((run, time) for run, time in until.items() if time > now), key=itemgetter(1, 0)))

    def abandon(self, run_id: str) -> None:
        """Give up our lease of a run that has not ended."""
        with self._store.lock:
            lease = self._store.leases.get(run_id)
            if lease is not None and self._is_ours(lease):
                self._store.leases[run_id] = _Lease(NOBODY, self._clock())

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
        with self._store.lock:
            answer, new = decide(
                run_id, files, self._known(table, files), take_changed=take_changed, take_free=take_free
            )
            for file in new:
                kept = file.model_copy(update={"stamp": "", "version_id": None})
                self._store.put(table, KnownVersion(kept, run_id, CLAIMED))
            return answer

    def known(self, table: str, files: Sequence[SourceFile]) -> Claim:
        """Return what a claim would answer a new run."""
        with self._store.lock:
            return preview(files, self._known(table, files))

    def earlier(self, table: str, files: Sequence[SourceFile]) -> Sequence[KnownFile]:
        """Return what was published under the files' paths in other versions."""
        with self._store.lock:
            return other_versions(files, self._known(table, files))

    def release(self, run_id: str) -> None:
        """Give back what the run claimed and did not publish."""
        with self._store.lock:
            self._store.settle(run_id, published=False)

    def landings(self, table: str, uris: Sequence[str]) -> Mapping[str, Landing]:
        """Return what became of the files before, by URI."""
        with self._store.lock:
            known = {uri: self._store.landings.get((table, uri)) for uri in uris}
            return {uri: landing for uri, landing in known.items() if landing is not None}

    def note_landings(self, table: str, landings: Sequence[Landing]) -> None:
        """Write down what became of files."""
        with self._store.lock:
            self._store.landings.update({(table, landing.uri): landing for landing in landings})

    def note_notifications(self, run_id: str, notifications: Sequence[Notification]) -> None:
        """Add to the run what came of telling of it."""
        with self._store.lock:
            run = self.get(run_id)
            if run is not None:
                self.save(run.model_copy(update={"notifications": (*run.notifications, *notifications)}))

    def join_alert(self, channel: str, alert: str, *, lead_s: float = 60.0, about: Notice | None = None) -> AlertGroup:
        """Add one message to those that say the same; see :meth:`lakegate.protocols.Journal.join_alert`."""
        with self._store.lock:
            tally = joined(self._store.alerts.get((channel, alert)), self._clock(), lead_s, about)
            self._store.alerts[channel, alert] = tally
            return tally.place

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
        with self._store.lock:
            known = self._store.alerts.get((channel, alert))
            if known is not None:
                tally = settled(known, self._clock(), place, sent=sent, thread=thread, stands_s=stands_s)
                self._store.alerts[channel, alert] = tally

    def take_counted_alerts(
        self, channels: Sequence[str], *, lead_s: float = 60.0, limit: int = 10
    ) -> Sequence[CountedAlert]:
        """Return groups that are over; see :meth:`lakegate.protocols.Journal.take_counted_alerts`."""
        with self._store.lock:
            now = self._clock()
            over = [(key, tally) for key, tally in self._store.alerts.items() if is_counted(tally, now)]
            asked = sorted((one for one in over if one[0][0] in channels), key=lambda one: one[1].ends_at)[:limit]
            for key, tally in asked:
                self._store.alerts[key] = replace(tally, ends_at=now + timedelta(seconds=lead_s))
            return tuple(
                CountedAlert(channel=channel, alert=alert, about=tally.about, place=tally.place)
                for (channel, alert), tally in asked
                if tally.about is not None
            )

    def synced(self, target: str) -> str | None:
        """Return the commit up to which ``target``'s history is known."""
        return self._store.heads.get(target)

    def record(self, target: str, events: Sequence[HistoryEvent], head: str, *, rebuild: bool = False) -> None:
        """Take over what commits say; see :meth:`lakegate.protocols.Journal.record`."""
        store = self._store
        with store.lock:
            if rebuild:
                store.events = {event for event in store.events if event[0] != target}
                for key, versions in store.versions.items():
                    store.versions[key] = [known for known in versions if known.state != PUBLISHED]
            new = [event for event in events if (target, event.commit) not in store.events]
            self._take_over_files(put_together(new))
            self._mark(put_together(new), target)
            store.events.update((target, event.commit) for event in new)
            if new or not events:
                store.heads[target] = head

    def turn(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Wait for our turn at ``name``; see :meth:`lakegate.protocols.Journal.turn`."""
        return self._turn(name, timeout_s)

    @contextmanager
    def _turn(self, name: str, timeout_s: float) -> Iterator[bool]:
        with self._store.lock:
            lock = self._store.turns[name]
        got = lock.acquire(timeout=max(timeout_s, 0))
        try:
            yield got
        finally:
            if got:
                lock.release()

    def close(self) -> None:
        """Nothing to release."""

    def _known(self, table: str, files: Sequence[SourceFile]) -> dict[str, list[KnownVersion]]:
        return {file.uri: self._store.versions[table, file.uri] for file in files}

    def _take_over_files(self, tale: Tale) -> None:
        for run_id, table in tale.forgotten:
            self._store.forget(run_id, table)
        for (table, path, version), run_id in tale.files.items():
            file = SourceFile(uri=path, version=version, size_bytes=0, rows=0)
            self._store.put(table, KnownVersion(file, run_id, PUBLISHED))

    def _mark(self, tale: Tale, target: str) -> None:
        for run_id, fate in tale.fates.items():
            known = self._store.runs.get(run_id)
            if known is None or known.status != fate.status:
                run = told(known, run_id, fate, target)
                if run is not None:
                    self.save(run)

    def _take(self, run_id: str) -> None:
        lease = self._store.leases.get(run_id)
        if lease is not None and lease.holder != NOBODY and not self._is_ours(lease) and self._is_live(lease):
            raise taken(run_id)
        self._lease(run_id)

    def _lease(self, run_id: str) -> None:
        self._store.leases[run_id] = _Lease(self._holder.identity(), self._clock() + self._lasts)

    def _is_ours(self, lease: _Lease) -> bool:
        return lease.holder == self._holder.identity()

    def _is_live(self, lease: _Lease) -> bool:
        alive = None if lease.holder == NOBODY else self._holder.is_alive(lease.holder)
        return lease.expires_at > self._clock() if alive is None else alive

    def _newest_first(self) -> list[Run]:
        with self._store.lock:
            return sorted(self._store.runs.values(), key=lambda run: (run.started_at, run.run_id), reverse=True)
