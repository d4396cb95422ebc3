"""The journal's copy of the ledger: what is published, what became of each run, and which commits it has read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, bindparam, delete, or_, select, tuple_, update

from lakegate.journal import runs as stored
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.files import CLAIM_COLUMNS, CLAIMED, PUBLISHED, lock_name
from lakegate.journal.outbox import queue
from lakegate.journal.schema import (
    CLAIMS,
    EVENTS,
    FILE_CHECKPOINTS,
    HISTORY,
    LEASES,
    RUN_TABLES,
    RUNS,
    STANDING,
    as_text,
)
from lakegate.ledger.event import Event, PastCommit, family
from lakegate.ledger.fold import FileKey, Ledger, segments
from lakegate.model.downstream import DownstreamKind
from lakegate.model.run import Publication, Run, RunKind, published_tables, total_removed
from lakegate.model.states import RunStatus

_RUN_BATCH = 500
_AFTER_DIGITS = "g"
"""Greater than all digits of hashes."""
_RECENT = timedelta(days=1)
_TICK = timedelta(microseconds=1)
ANY_HEAD = "any"
"""Matches any recorded head."""
ON_TARGET = ("published", "reverted")
"""Statuses of runs whose commit is in the history of their target."""
_DELIVERED: Mapping[RunKind, DownstreamKind] = {"revert": "reverted", "restore": "restored"}
"""What downstream systems are told of a commit; of others, that it was published."""
_ENTRY = ("table_name", "run_id", "called")
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


def said(commits: Iterable[PastCommit]) -> Iterator[tuple[PastCommit, Event]]:
    """Yield each commit of a run with what it says."""
    yield from ((commit, commit.event) for commit in commits if commit.event is not None)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What the history says about one run.

    Attributes:
        published: Its commit; ``None`` if it's older than the commits that were read.
        reverted_by: The run that removed its last rows; ``None`` if it stands.
    """

    published: PastCommit | None = None
    reverted_by: str | None = None

    @property
    def status(self) -> RunStatus:
        """The run's status."""
        return "published" if self.reverted_by is None else "reverted"


def outcomes(ledgers: Sequence[Ledger], standing: Collection[str]) -> Mapping[str, RunOutcome]:
    """Return the outcome of each run that some commits concern, given their fold in one or more segments.

    A run that only moved or removed what others had published stands nowhere, and is published all the same.

    Args:
        standing: Those of the removed runs that still stand in some table, or again.
    """
    commits, removed_by = dict[str, PastCommit](), dict[str, str]()
    for ledger in ledgers:
        commits |= ledger.publications
        removed_by |= ledger.removed_by
    added = (run for ledger in ledgers for _, run in ledger.standing)
    return {
        run: RunOutcome(commits.get(run), None if run in standing else removed_by.get(run))
        for run in dict.fromkeys((*commits, *removed_by, *added))
    }


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

    A run that the journal doesn't know is created from its commit.
    """
    run = run if outcome.published is None else _published(run, run_id, outcome.published, target)
    if run is None:
        return None
    return run.model_copy(update={"status": outcome.status, "reverted_by": outcome.reverted_by})


def _published(run: Run | None, run_id: str, commit: PastCommit, target: str) -> Run:
    tables = () if commit.event is None else tuple(commit.event.tables)
    if run is None:
        run = Run(
            run_id=run_id,
            kind="branch" if commit.event is None else commit.event.kind,
            tables=tables,
            branch="",
            status="published",
            started_at=commit.time,
            detail=f"Known from commit {commit.hash[:12]} only.",
        )
    publication = Publication(
        run_id=run_id,
        target=target,
        commit=commit.hash,
        tables=tables,
        rows=sum(staged.rows for staged in published_tables(run.staged)),
        rows_removed=total_removed(run.staged),
        quarantined=run.quarantined,
    )
    known = run.publication is not None and run.publication.commit == commit.hash
    detail = run.detail
    if run.status in ("failed", "rejected", "discarded"):
        detail = f"Was recorded as {run.status}, but commit {commit.hash[:12]} published it."
    return run.model_copy(
        update={
            "detail": detail,
            "publication": run.publication if known else publication,
            "finished_at": run.finished_at or max(commit.time, run.started_at),
            "error": None,
        }
    )


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
    commits: Sequence[PastCommit],
    head: str,
    *,
    rebuild: bool,
    gone: Collection[str],
    unread: Collection[str],
) -> None:
    """Record ``commits``. Each is recorded once, so a process that read an older history overrides nothing."""
    by_runs = [commit for commit in commits if commit.event is not None]
    tables = {table for _, event in said(by_runs) for table in event.tables}
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
        tx.execute(delete(STANDING))
        tx.execute(delete(EVENTS).where(EVENTS.c.target == target))
        _reconsider_files(tx, by_runs)
    _retract(tx, target, list(gone))
    new = _unrecorded(tx, target, by_runs)
    has_head = _has_commit(tx, target, head)
    _update_runs(tx, _apply(tx, new), target, rebuild=rebuild)
    if first:
        # Nobody knows what was delivered before the journal was lost. Send recent events again; assume that older ones
        # were sent or given up.
        since = tx.now() - _RECENT
        recent = (event for commit, event in said(by_runs) if commit.time >= since)
        queue(tx, "current", [table for event in recent for table in event.tables], ref=target, commit=head)
    else:
        for commit, event in said(new):
            if commit.hash not in seen:
                what = _DELIVERED.get(event.kind, "published")
                queue(tx, what, event.tables, ref=target, commit=commit.hash, run_id=event.run)
        lost = seen.keys() - {commit.hash for commit in by_runs}
        queue(tx, "current", tables_of(tx, {seen[commit] for commit in lost}), ref=target, commit=head)
    tx.insert(EVENTS, [(target, one.hash, event.run) for one, event in said(new)], ("target", "commit_hash", "run_id"))
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


def _reconsider_files(tx: JournalTransaction, commits: Sequence[PastCommit]) -> None:
    """Drop the checkpoints of files that no run in the history loaded: their rows may be gone."""
    held = tx.values({event.run for _, event in said(commits)})
    others = or_(FILE_CHECKPOINTS.c.run_id.is_(None), FILE_CHECKPOINTS.c.run_id.not_in(held))
    tx.execute(delete(FILE_CHECKPOINTS).where(FILE_CHECKPOINTS.c.outcome == "done", others))


def _retract(tx: JournalTransaction, target: str, gone: Sequence[str]) -> None:
    for start in range(0, len(gone), _RUN_BATCH):
        known = stored.get_all(tx, gone[start : start + _RUN_BATCH]).values()
        _store(tx, (retracted(run, target) for run in known))


def _store(tx: JournalTransaction, runs: Iterable[Run | None]) -> None:
    stored.store(tx, *(run for run in runs if run is not None and not isinstance(run, stored.UnreadRun)))


def _unrecorded(tx: JournalTransaction, target: str, commits: Sequence[PastCommit]) -> Sequence[PastCommit]:
    if not commits:
        return commits
    hashes = tx.values([commit.hash for commit in commits])
    known = EVENTS.c.target == target, EVENTS.c.commit_hash.in_(hashes)
    recorded = set(tx.scalars(select(EVENTS.c.commit_hash).where(*known)))
    return [commit for commit in commits if commit.hash not in recorded]


def _apply(tx: JournalTransaction, commits: Sequence[PastCommit]) -> Sequence[Ledger]:
    """Apply new commits to what is published, and return their fold, in segments."""
    ledgers = list(segments(commits))
    for ledger in ledgers:
        for old, new, by in ledger.moved:
            removed = tx.scalars(select(STANDING.c.run_id).where(STANDING.c.table_name == new)).all()
            ledger.removed_by = dict.fromkeys(removed, by) | ledger.removed_by
            _remove(tx, new, removed)
            _move(tx, old, new)
        for table in dict.fromkeys(name for name, _ in ledger.removed):
            _remove(tx, table, [run for name, run in ledger.removed if name == table])
        entries = [(table, run, table) for table, run in ledger.standing]
        tx.insert(STANDING, entries, _ENTRY, key="table_name, run_id", replace=("called",))
        _publish_files(tx, ledger)
    if len(ledgers) > 1:
        # A run that was published before a rename but hasn't ended yet has claimed its files under the old name.
        settled = tx.values([event.run for _, event in said(commits)])
        tx.execute(delete(CLAIMS).where(CLAIMS.c.run_id.in_(settled), CLAIMS.c.state == CLAIMED))
    return ledgers


def _move(tx: JournalTransaction, old: str, new: str) -> None:
    """Move the entries of a table, and the files that were published to it, to its new name."""
    tx.execute(update(STANDING).where(STANDING.c.table_name == old).values(table_name=new))
    published = (CLAIMS.c.table_name == old) & (CLAIMS.c.state == PUBLISHED)
    same = select(CLAIMS.c.path, CLAIMS.c.version).where(published)
    tx.execute(delete(CLAIMS).where(CLAIMS.c.table_name == new, tuple_(CLAIMS.c.path, CLAIMS.c.version).in_(same)))
    tx.execute(update(CLAIMS).where(published).values(table_name=new))


def _remove(tx: JournalTransaction, table: str, runs: Sequence[str]) -> None:
    """Remove entries, and the source files that the runs published to the table or still claim for it."""
    if runs:
        gone = tx.values(runs)
        tx.execute(delete(STANDING).where(STANDING.c.table_name == table, STANDING.c.run_id.in_(gone)))
        tx.execute(delete(CLAIMS).where(CLAIMS.c.table_name == table, CLAIMS.c.run_id.in_(gone)))


def _publish_files(tx: JournalTransaction, ledger: Ledger) -> None:
    """Record the source files as published, and as the newest of their paths, as if the whole history were read."""
    paths: dict[str, set[str]] = defaultdict(set)
    for table, path, _ in ledger.taken:
        paths[table].add(path)
    known: dict[FileKey, Row[Any]] = {}
    for table, names in paths.items():
        query = select(CLAIMS).where(CLAIMS.c.table_name == table, CLAIMS.c.path.in_(tx.values(names)))
        known |= {(table, row.path, row.version): row for row in tx.execute(query)}
    # A file that was published and removed again may be claimed by another run since.
    older = [
        row.claim_id
        for key, row in known.items()
        if key in ledger.files or (key in ledger.taken and row.state == PUBLISHED)
    ]
    for start in range(0, len(older), _RUN_BATCH):
        tx.execute(_DELETE_CLAIMS, {"claims": older[start : start + _RUN_BATCH]})
    rows = []
    for key, run_id in ledger.files.items():
        was = known.get(key)
        size, count = (0, 0) if was is None else (was.size_bytes, was.rows)
        rows.append((*key, size, count, PUBLISHED, run_id))
    tx.insert(CLAIMS, rows, CLAIM_COLUMNS, key="table_name, path, version", replace=("state", "run_id"))


def _update_runs(tx: JournalTransaction, ledgers: Sequence[Ledger], target: str, *, rebuild: bool) -> None:
    removed = {run_id for ledger in ledgers for run_id in ledger.removed_by}
    query = select(STANDING.c.run_id).distinct().where(STANDING.c.run_id.in_(tx.values(removed)))
    concerned = outcomes(ledgers, set(tx.scalars(query)) if removed else ())
    if not concerned:
        return
    columns = RUNS.c.run_id, RUNS.c.status, RUNS.c.reverted_by
    elsewhere = _published_elsewhere(tx, concerned) if rebuild else set()
    known_as = {
        run_id: facts for run_id, *facts in tx.execute(select(*columns).where(RUNS.c.run_id.in_(tx.values(concerned))))
    }
    differing = [
        run_id
        for run_id, outcome in concerned.items()
        if known_as.get(run_id) != [outcome.status, outcome.reverted_by] or run_id in elsewhere
    ]
    for start in range(0, len(differing), _RUN_BATCH):
        batch = differing[start : start + _RUN_BATCH]
        known = stored.get_all(tx, batch)
        runs = (with_outcome(known.get(run_id), run_id, concerned[run_id], target) for run_id in batch)
        _store(tx, runs)


def _published_elsewhere(tx: JournalTransaction, concerned: Mapping[str, RunOutcome]) -> set[str]:
    """Return the runs whose documents don't name the commit that published them."""
    published = {run_id: one.published.hash for run_id, one in concerned.items() if one.published is not None}
    documents = tx.execute(select(RUNS.c.run_id, RUNS.c.document).where(RUNS.c.run_id.in_(tx.values(published))))
    return {run_id for run_id, document in documents.tuples() if published[run_id] not in str(document)}


def standing_runs(tx: JournalTransaction, table: str, kinds: Collection[RunKind]) -> Sequence[str]:
    """Return the runs of these kinds that stand in a table, newest first."""
    query = select(RUNS.c.run_id).join(STANDING, STANDING.c.run_id == RUNS.c.run_id)
    query = query.where(STANDING.c.table_name == family(table), RUNS.c.kind.in_(kinds))
    return tx.scalars(query.order_by(STANDING.c.entry_id.desc())).all()


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
    runs = {one.hash: one.event.run if one.event else "" for one in reversed(commits)}
    times, before = [one.time for one in reversed(commits)], ""
    while extends and times and before != (oldest := as_text(min(indexed_times(times)))):
        # Those that move to an earlier time may move others.
        for commit, made in tx.execute(_SINCE, {"target": target, "time": oldest}).tuples().all():
            with suppress(OverflowError, TypeError, ValueError):  # a damaged row, which `lakegate admin verify` reports
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
