"""The catalog's history of runs and files: its net effect (pure functions), and its record in the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, delete, or_, select, tuple_, update

from lakegate.journal import runs as stored
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.files import CLAIM_COLUMNS, CLAIMED, PUBLISHED, lock_name
from lakegate.journal.outbox import queue
from lakegate.journal.schema import CLAIMS, EVENTS, FILE_CHECKPOINTS, HISTORY, LEASES, RUN_TABLES, RUNS, as_text
from lakegate.model.quarantine import is_quarantine
from lakegate.model.run import HistoryEvent, PastCommit, Publication, Run, RunKind, published_tables, total_removed

_RUN_BATCH = 500
_AFTER_DIGITS = "g"
"""Greater than all digits of hashes."""
_RECENT = timedelta(days=1)
_TICK = timedelta(microseconds=1)
ANY_HEAD = "any"
"""Matches any recorded head."""
ON_TARGET = ("published", "reverted")
"""Statuses of runs whose commit is in the history of their target."""
_FileKey = tuple[str, str, str]
"""A file in the history: table, path and version."""
_HEAD = select(HISTORY.c.head).where(HISTORY.c.target == bindparam("target"))
_COMMITS = select(EVENTS.c.commit_hash).where(EVENTS.c.target == bindparam("target"))
_COMMIT = _COMMITS.where(EVENTS.c.commit_hash == bindparam("commit"))
_SINCE = (
    select(EVENTS.c.commit_hash, EVENTS.c.committed_at)
    .where(EVENTS.c.target == bindparam("target"), EVENTS.c.committed_at >= bindparam("time"))
    .order_by(EVENTS.c.committed_at.desc())
)
_TIME = _COMMIT.with_only_columns(EVENTS.c.committed_at).scalar_subquery()
_DELETE_CLAIMS = delete(CLAIMS).where(CLAIMS.c.claim_id.in_(bindparam("claims", expanding=True)))


@dataclass(slots=True)
class RunOutcome:
    """What the events say about one run."""

    published: HistoryEvent | None = None
    reverted: list[HistoryEvent] = field(default_factory=list)
    revived: bool = False

    @property
    def status(self) -> str:
        """The run's status."""
        return "reverted" if self.reverted else "published"

    @property
    def reverted_by(self) -> str | None:
        """The last run that reverted it."""
        return self.reverted[-1].run_id if self.reverted else None


@dataclass(slots=True)
class NetHistory:
    """The net effect of some events: later ones override earlier ones.

    Attributes:
        files: The run that published each (table, path, version) and wasn't reverted.
        taken: The ``files``, and those that were published and then reverted.
        dropped: (Run, table) pairs whose files are no longer published, including files recorded before.
        outcomes: Outcomes by run id.
        renames: Old and new names of tables, in order. All other attributes use the new names.
    """

    files: dict[_FileKey, str] = field(default_factory=dict)
    taken: dict[_FileKey, None] = field(default_factory=dict)
    dropped: dict[tuple[str, str], None] = field(default_factory=dict)
    outcomes: dict[str, RunOutcome] = field(default_factory=lambda: defaultdict(RunOutcome))
    renames: list[tuple[str, str]] = field(default_factory=list)

    def take(self, key: _FileKey, run_id: str) -> None:
        """Record that a run published a file. A file that was published before moves to the end."""
        self.files.pop(key, None)
        self.files[key] = run_id
        self.taken[key] = None

    def publish(self, event: HistoryEvent, keys: Sequence[_FileKey]) -> None:
        """Record that a run published files."""
        for key in keys:
            self.take(key, event.run_id)

    def revive(self, event: HistoryEvent) -> Sequence[tuple[str, _FileKey]]:
        """Record that ``event`` restored runs; return their files, each with its run."""
        files = []
        for table, path, version, run_id in event.revives:
            self.outcomes[run_id].reverted = []
            self.outcomes[run_id].revived = True
            if path:  # a run without source files has none
                key = (table, path, version)
                self.take(key, run_id)
                files.append((run_id, key))
        return files

    def rename(self, old: str, new: str, published_by: dict[tuple[str, str], list[_FileKey]]) -> None:
        """Rename a table in everything recorded so far."""
        for run_id, _ in [one for one in published_by if one[1] == old]:
            published_by[run_id, new] += [(new, *key[1:]) for key in published_by.pop((run_id, old))]
        self.renames.append((old, new))

        def moved(key: _FileKey) -> _FileKey:
            return (new, *key[1:]) if key[0] == old else key

        self.files = {moved(key): run_id for key, run_id in self.files.items()}
        self.taken = {moved(key): None for key in self.taken}
        self.dropped = {(run_id, new if table == old else table): None for run_id, table in self.dropped}


def net_history(events: Sequence[HistoryEvent]) -> NetHistory:
    """Return the net effect of ``events``, oldest first."""
    net = NetHistory()
    published_by: dict[tuple[str, str], list[_FileKey]] = defaultdict(list)
    for event in events:
        for run_id in event.reverts:
            net.outcomes[run_id].reverted.append(event)
            net.outcomes[run_id].revived = False
            for table in event.tables:
                net.dropped[run_id, table] = None
                for key in published_by.pop((run_id, table), ()):
                    if net.files.get(key) == run_id:
                        del net.files[key]
        for names in event.renames:
            net.rename(*names, published_by)
        net.outcomes[event.run_id].published = event
        # Source files are published to their table, whatever rows of them are quarantined.
        for table in (table for table in event.tables if not is_quarantine(table)):
            keys = [(table, path, version) for path, version in event.files]
            net.publish(event, keys)
            published_by[event.run_id, table].extend(keys)
        for run_id, key in net.revive(event):
            published_by[run_id, key[0]].append(key)
    return net


def retracted(run: Run, target: str) -> Run | None:
    """Return a run as discarded, because ``target`` lost the commit that published it; ``None`` for any other run."""
    publication = run.publication
    if run.status not in ON_TARGET or publication is None or publication.target != target:
        return None
    detail = f"Its commit {publication.commit[:12]} isn't in {target} any more: the branch was reset or restored."
    lost = {"status": "discarded", "publication": None, "reverted_by": None, "detail": detail}
    return run.model_copy(update=lost)


def with_outcome(run: Run | None, run_id: str, outcome: RunOutcome, target: str) -> Run | None:
    """Return the run with its outcome; ``None`` if the history doesn't know it either.

    A run that the journal doesn't know is created from its commit. A run counts as reverted if its rows were removed
    from all of its tables.
    """
    run = _published(run, run_id, outcome.published, target) if outcome.published is not None else run
    if run is not None and outcome.revived:
        run = run.model_copy(update={"status": "published", "reverted_by": None})
    if run is None:
        return None
    for event in reversed(outcome.reverted):
        if set(run.tables) <= set(event.tables):
            return run.model_copy(update={"status": "reverted", "reverted_by": event.run_id})
    return run


def _published(run: Run | None, run_id: str, event: HistoryEvent, target: str) -> Run:
    time = event.time or _time_of(run_id)
    if run is None:
        kind: RunKind = "ingest" if event.files else "revert" if event.reverts else "transaction"
        kind = "maintenance" if event.renames and not event.reverts else kind
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
        rows=sum(staged.rows for staged in published_tables(run.staged)),
        rows_removed=total_removed(run.staged),
        quarantined=run.quarantined,
    )
    known = run.publication is not None and run.publication.commit == event.commit
    detail = run.detail
    if run.status in ("failed", "rejected", "discarded"):
        detail = f"Was recorded as {run.status}, but commit {event.commit[:12]} published it."
    return run.model_copy(
        update={
            "detail": detail,
            "status": "published",
            "publication": run.publication if known else publication,
            "finished_at": run.finished_at or max(time, run.started_at),
            "reverted_by": None,
            "error": None,
        }
    )


def _time_of(run_id: str) -> datetime:
    # Run ids start with the time; see lakegate.model.run.new_run_id.
    try:
        return datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return datetime.now(UTC)


def recorded_head(tx: JournalTransaction, target: str) -> str | None:
    """Return the commit of ``target`` up to which its history is recorded, or ``None``."""
    head: str | None = tx.scalar(_HEAD, {"target": target})
    return head


def is_at(tx: JournalTransaction, target: str, known: str | None) -> bool:
    """Return whether the recorded head of ``target`` is ``known``, and stays so until the transaction ends."""
    tx.lock(_lock_name(target))
    return known in (ANY_HEAD, recorded_head(tx, target))


def continues(tx: JournalTransaction, target: str, known: str | None, head: str, commits: Sequence[PastCommit]) -> bool:
    """Return whether ``commits``, from after ``known`` up to ``head``, belong to the recorded history of ``target``.

    If not, another process has recorded since that the target was reset.
    """
    if is_at(tx, target, known):
        return True
    recorded = recorded_head(tx, target)
    return any(one.hash == recorded for one in commits) or _has_commit(tx, target, head)


def _lock_name(target: str) -> str:
    return f"history {target}"


def record(
    tx: JournalTransaction,
    target: str,
    events: Sequence[HistoryEvent],
    head: str,
    *,
    rebuild: bool,
    gone: Collection[str],
    commits: Sequence[PastCommit],
    unread: Collection[str],
) -> None:
    """Record ``events``. Each commit is recorded once, so a process that read an older history overrides nothing."""
    tables = {table for event in events for table in event.tables}
    if rebuild:
        tables.update(tx.scalars(select(CLAIMS.c.table_name).distinct()))
    tx.lock(_lock_name(target))
    tx.lock(*(lock_name(table) for table in tables))
    seen = _recorded(tx, target) if rebuild else {}
    first = rebuild and recorded_head(tx, target) is None
    if rebuild:
        # Also what a run has claimed that isn't in progress: it would block the files for ever.
        unfinished = select(RUNS.c.run_id).where(RUNS.c.finished_at.is_(None))
        leased = select(LEASES.c.run_id)
        is_dead = CLAIMS.c.run_id.not_in(unfinished) & CLAIMS.c.run_id.not_in(leased)
        tx.execute(delete(CLAIMS).where((CLAIMS.c.state == PUBLISHED) | is_dead))
        tx.execute(delete(EVENTS).where(EVENTS.c.target == target))
        _reconsider_files(tx, events)
    _retract(tx, target, list(gone))
    new = _unrecorded(tx, target, events)
    has_head = _has_commit(tx, target, head)
    net = net_history(new)
    for then, now in net.renames:
        _rename_claims(tx, then, now)
    _drop_claims(tx, net)
    _publish_files(tx, net)
    if net.renames:
        # A run that was published before a rename but hasn't ended yet has claimed its files under the old name.
        settled = tx.values([event.run_id for event in new])
        tx.execute(delete(CLAIMS).where(CLAIMS.c.run_id.in_(settled), CLAIMS.c.state == CLAIMED))
    _update_runs(tx, net, target, rebuild=rebuild)
    if first:
        # Nobody knows what was delivered before the journal was lost. Send recent events again; assume that older ones
        # were sent or given up.
        since = tx.now() - _RECENT
        recent = [event for event in events if event.time is None or event.time >= since]
        queue(tx, "current", [table for event in recent for table in event.tables], ref=target, commit=head)
    else:
        for event in new:
            if event.commit not in seen:
                queue(tx, event.kind, event.tables, ref=target, commit=event.commit, run_id=event.run_id)
        lost = seen.keys() - {event.commit for event in events}
        queue(tx, "current", tables_of(tx, {seen[commit] for commit in lost}), ref=target, commit=head)
    made = {one.commit: one.run_id for one in new}
    tx.insert(EVENTS, [(target, *one) for one in made.items()], ("target", "commit_hash", "run_id"))
    _add_commits(tx, target, commits, extends=not has_head)
    _forget_unread(tx, target, unread)
    if not has_head:  # otherwise another process has recorded this commit, and perhaps later ones
        tx.insert(HISTORY, [(target, head)], ("target", "head"), key="target")


def note_unread(tx: JournalTransaction, publication: Publication) -> None:
    """Note the commit of a run that ends, until its target's history is read.

    If the target loses it before that, nothing else shows that the run's files aren't published any more.
    """
    target, commit = publication.target, publication.commit
    if not _has_commit(tx, target, commit):
        row = (_unread_name(target), commit, publication.run_id)
        tx.insert(EVENTS, [row], ("target", "commit_hash", "run_id"), key="target, commit_hash")


def unread_commits(tx: JournalTransaction, target: str) -> frozenset[str]:
    """Return the commits of :func:`note_unread`."""
    return frozenset(tx.scalars(_COMMITS, {"target": _unread_name(target)}))


def _forget_unread(tx: JournalTransaction, target: str, commits: Collection[str]) -> None:
    if commits:
        these = EVENTS.c.target == _unread_name(target), EVENTS.c.commit_hash.in_(tx.values(commits))
        tx.execute(delete(EVENTS).where(*these))


def _unread_name(target: str) -> str:
    return f"{target} unread"  # no branch has a space in its name


def _recorded(tx: JournalTransaction, target: str) -> dict[str, str]:
    """Return a run of each recorded commit of ``target``."""
    query = select(EVENTS.c.commit_hash, EVENTS.c.run_id).where(EVENTS.c.target == target, EVENTS.c.run_id != "")
    return dict(tx.execute(query).tuples().all())


def tables_of(tx: JournalTransaction, run_ids: Collection[str]) -> Collection[str]:
    """Return the tables of runs, by the names that they had then."""
    if not run_ids:
        return ()
    query = select(RUN_TABLES.c.table_name).distinct().where(RUN_TABLES.c.run_id.in_(tx.values(run_ids)))
    return sorted(tx.scalars(query))


def _reconsider_files(tx: JournalTransaction, events: Sequence[HistoryEvent]) -> None:
    """Drop the checkpoints of files that no run in the history loaded: their rows may be gone."""
    held = tx.values({event.run_id for event in events})
    others = or_(FILE_CHECKPOINTS.c.run_id.is_(None), FILE_CHECKPOINTS.c.run_id.not_in(held))
    tx.execute(delete(FILE_CHECKPOINTS).where(FILE_CHECKPOINTS.c.outcome == "done", others))


def _retract(tx: JournalTransaction, target: str, gone: Sequence[str]) -> None:
    for start in range(0, len(gone), _RUN_BATCH):
        known = stored.get_all(tx, gone[start : start + _RUN_BATCH]).values()
        _store(tx, (retracted(run, target) for run in known))


def _store(tx: JournalTransaction, runs: Iterable[Run | None]) -> None:
    stored.store(tx, *(run for run in runs if run is not None and not isinstance(run, stored.UnreadRun)))


def _unrecorded(tx: JournalTransaction, target: str, events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    if not events:
        return events
    commits = tx.values([event.commit for event in events])
    known = EVENTS.c.target == target, EVENTS.c.commit_hash.in_(commits)
    recorded = set(tx.scalars(select(EVENTS.c.commit_hash).where(*known)))
    return [event for event in events if event.commit not in recorded]


def _rename_claims(tx: JournalTransaction, old: str, new: str) -> None:
    """Move the files that were published to a table to its new name."""
    published = (CLAIMS.c.table_name == old) & (CLAIMS.c.state == PUBLISHED)
    same = select(CLAIMS.c.path, CLAIMS.c.version).where(published)
    tx.execute(delete(CLAIMS).where(CLAIMS.c.table_name == new, tuple_(CLAIMS.c.path, CLAIMS.c.version).in_(same)))
    tx.execute(update(CLAIMS).where(published).values(table_name=new))


def _drop_claims(tx: JournalTransaction, net: NetHistory) -> None:
    run_ids: dict[str, list[str]] = defaultdict(list)
    for run_id, table in net.dropped:
        run_ids[table].append(run_id)
    for table, gone in run_ids.items():
        tx.execute(delete(CLAIMS).where(CLAIMS.c.run_id.in_(tx.values(gone)), CLAIMS.c.table_name == table))


def _publish_files(tx: JournalTransaction, net: NetHistory) -> None:
    """Record the files of ``net`` as published, and as the newest of their paths, as if the whole history were read."""
    paths: dict[str, set[str]] = defaultdict(set)
    for table, path, _ in net.taken:
        paths[table].add(path)
    known: dict[_FileKey, Row[Any]] = {}
    for table, names in paths.items():
        query = select(CLAIMS).where(CLAIMS.c.table_name == table, CLAIMS.c.path.in_(tx.values(names)))
        known |= {(table, row.path, row.version): row for row in tx.execute(query)}
    # A file that was published and reverted may be claimed by another run since.
    older = [
        row.claim_id for key, row in known.items() if key in net.files or (key in net.taken and row.state == PUBLISHED)
    ]
    for start in range(0, len(older), _RUN_BATCH):
        tx.execute(_DELETE_CLAIMS, {"claims": older[start : start + _RUN_BATCH]})
    rows = []
    for key, run_id in net.files.items():
        was = known.get(key)
        size, count = (0, 0) if was is None else (was.size_bytes, was.rows)
        rows.append((*key, size, count, PUBLISHED, run_id))
    tx.insert(CLAIMS, rows, CLAIM_COLUMNS, key="table_name, path, version", replace=("state", "run_id"))


def _update_runs(tx: JournalTransaction, net: NetHistory, target: str, *, rebuild: bool) -> None:
    if not net.outcomes:
        return
    columns = RUNS.c.run_id, RUNS.c.status, RUNS.c.reverted_by
    elsewhere = _published_elsewhere(tx, net) if rebuild else set()
    known_as = {
        run_id: facts
        for run_id, *facts in tx.execute(select(*columns).where(RUNS.c.run_id.in_(tx.values(net.outcomes))))
    }
    differing = [
        run_id
        for run_id, outcome in net.outcomes.items()
        if known_as.get(run_id) != [outcome.status, outcome.reverted_by] or run_id in elsewhere
    ]
    for start in range(0, len(differing), _RUN_BATCH):
        batch = differing[start : start + _RUN_BATCH]
        known = stored.get_all(tx, batch)
        runs = (with_outcome(known.get(run_id), run_id, net.outcomes[run_id], target) for run_id in batch)
        _store(tx, runs)


def _published_elsewhere(tx: JournalTransaction, net: NetHistory) -> set[str]:
    """Return the runs whose documents don't name the commit that published them."""
    published = {run_id: one.published.commit for run_id, one in net.outcomes.items() if one.published is not None}
    documents = tx.execute(select(RUNS.c.run_id, RUNS.c.document).where(RUNS.c.run_id.in_(tx.values(published))))
    return {run_id for run_id, document in documents.tuples() if published[run_id] not in str(document)}


class JournalCommits:
    """Finds commits that the journal has read, without reading the history; see :class:`lakegate.ports.CommitIndex`.

    Raises:
        RetryableError: From every method, if the database is locked for too long or unreachable.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self, target: str) -> str | None:
        """Return the newest known commit of ``target``, or ``None``."""
        with self._database.reading() as tx:
            head: str | None = tx.scalar(select(HISTORY.c.head).where(HISTORY.c.target == target))
            return head

    def with_prefix(self, target: str, prefix: str, *, limit: int) -> Sequence[str]:
        """Return commits whose hashes start with ``prefix``."""
        hashes = EVENTS.c.commit_hash
        query = select(hashes).where(EVENTS.c.target == target, hashes >= prefix, hashes < prefix + _AFTER_DIGITS)
        with self._database.reading() as tx:
            return list(tx.scalars(query.order_by(hashes).limit(limit)))

    def at(self, target: str, time: datetime) -> str | None:
        """Return the last commit in the history that was made by ``time``, or ``None``."""
        made = EVENTS.c.committed_at
        query = select(EVENTS.c.commit_hash).where(EVENTS.c.target == target, made <= as_text(time))
        with self._database.reading() as tx:
            found: str | None = tx.scalar(query.order_by(made.desc()).limit(1))
            return found

    def has(self, target: str, commit: str) -> bool:
        """Return whether ``commit`` is known."""
        with self._database.reading() as tx:
            return _has_commit(tx, target, commit)


def indexed_times(times: Iterable[datetime]) -> Iterator[datetime]:
    """Yield the times by which commits are found, given their own, both newest first.

    The catalog's clock may go back, or its servers' clocks may differ. Each commit counts as made before the next, so
    that a time finds the same commit as in the catalog: the last one in the history that was made by that time.
    """
    made = datetime.max.replace(tzinfo=UTC)
    for time in times:
        made = min(time, made - _TICK)
        yield made


def _add_commits(tx: JournalTransaction, target: str, commits: Sequence[PastCommit], *, extends: bool) -> None:
    """Add commits, oldest first; those that are known but not their time get it.

    Args:
        extends: Whether all other known commits are older.
    """
    runs = {one.hash: one.event.run_id if one.event else "" for one in reversed(commits)}
    times, before = [one.time for one in reversed(commits)], ""
    while extends and times and before != (oldest := as_text(min(indexed_times(times)))):
        # Those that move to an earlier time may move others.
        for commit, made in tx.execute(_SINCE, {"target": target, "time": oldest}).tuples().all():
            with suppress(OverflowError, TypeError, ValueError):  # a damaged row, which `lakegate verify` reports
                if commit not in runs:
                    times.append(datetime.fromisoformat(made).astimezone(UTC))
                    runs[commit] = ""
        before = oldest
    rows = [
        (target, commit, run_id, as_text(made))
        for (commit, run_id), made in zip(runs.items(), indexed_times(times), strict=True)
    ]
    time_known = "excluded.committed_at" if extends else "coalesce(events.committed_at, excluded.committed_at)"
    tx.insert(EVENTS, rows, key="target, commit_hash", change=f"committed_at = {time_known}")


def _has_commit(tx: JournalTransaction, target: str, commit: str) -> bool:
    return tx.scalar(_COMMIT, {"target": target, "commit": commit}) is not None
