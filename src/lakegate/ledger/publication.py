"""Find the commit that published a run, what it published, and whether a run may still be published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakegate.context import Context
from lakegate.errors import AlreadyPublishedError, ConflictError, InputError, NotFoundError, NotReplayableError
from lakegate.ledger.event import Event, PastCommit, event_of, family, run_of
from lakegate.ledger.fold import fold
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import NO_SNAPSHOT, Commit, Ref, TablePointer
from lakegate.model.run import (
    RUN_ID_PROPERTY,
    Publication,
    Run,
    StagedTable,
    published_tables,
    total_removed,
)


def find_commit(context: Context, run_id: str, target: Ref) -> Commit:
    """Return the commit that published ``run_id`` in the history of ``target``, with its tables."""
    known = _known_commit(context, run_id, target)
    if known is not None:
        return known
    for commit in context.catalog.history(target.hash, run_id=run_id, operations=True):
        return commit
    raise NotFoundError(
        f"Run {run_id} wasn't published: '{target.name}' has no commit of it.",
        hint=f"lakegate runs {run_id}",
        run_id=run_id,
        ref=target.name,
    )


def find_event(context: Context, run_id: str, target: Ref) -> Event:
    """Return what the commit that published ``run_id`` says. Raises the same errors as :func:`find_commit`."""
    return event_of(find_commit(context, run_id, target)) or Event(run=run_id, kind="branch")


def _known_commit(context: Context, run_id: str, target: Ref) -> Commit | None:
    """Return a run's commit by the journal, if the journal has read the history up to the head of ``target``."""
    run = context.journal.get(run_id)
    publication = None if run is None else run.publication
    if publication is None or publication.target != target.name or context.journal.synced(target.name) != target.hash:
        return None
    if not context.journal.commits.has(target.name, publication.commit):
        return None  # the target was reset, or restored
    commit = next(iter(context.catalog.history(publication.commit, operations=True)), None)
    return commit if commit is not None and run_of(commit) == run_id else None


def find_publication(context: Context, run: Run, *, since: str | None = None) -> Publication | None:
    """Return the run's publication from the target's history after ``since`` (default: its base), or ``None``.

    Raises:
        EarlierAttemptError: When an earlier attempt of the run, with other snapshots, was published.
    """
    commit = commit_of(context, run, since=since)
    if commit is None:
        return None
    require_this_attempt(context, run, commit)
    return publication_of(run, commit.hash)


def commit_of(context: Context, run: Run, *, since: str | None = None) -> Commit | None:
    """Return the run's commit on the target after ``since`` (default: its base), or ``None``."""
    until = since or run.base
    if until is None:
        return None
    for commit in context.catalog.history(run.target, until=until, run_id=run.run_id, operations=True):
        return commit
    return None


def publication_of(run: Run, commit: str, replayed: Sequence[TableIdentifier] = ()) -> Publication:
    """Return the publication of a run by ``commit``."""
    return Publication(
        run_id=run.run_id,
        target=run.target,
        commit=commit,
        tables=run.tables,
        rows=sum(one.rows for one in published_tables(run.staged)),
        rows_removed=total_removed(run.staged),
        quarantined=run.quarantined,
        replayed=tuple(str(table) for table in replayed),
    )


def published_files(context: Context, run_id: str, target: Ref) -> dict[TableIdentifier, frozenset[str]]:
    """Return the paths of the data files that a run's commit added to each of its tables."""
    commit = find_commit(context, run_id, target)
    before = before_commit(context, commit)
    return {pointer.table: _added_paths(context, before[pointer.table], pointer) for pointer in commit.puts}


def published_to(context: Context, run_id: str, target: Ref, table: TableIdentifier) -> frozenset[str]:
    """Return the paths of the data files that a run's commit added to a table, even if it had another name then."""
    now = context.catalog.get_table(table, target)
    try:
        found = published_files(context, run_id, target)
        if table in found or now is None:
            return found.get(table, frozenset())
        uuid = context.reader.metadata(now).uuid
        puts = find_commit(context, run_id, target).puts
        return next((found[put.table] for put in puts if context.reader.metadata(put).uuid == uuid), frozenset())
    except (NotFoundError, InputError):
        # gc has deleted those states; the table's own metadata still knows the run's snapshots until they expire.
        if now is None:
            raise
        snapshots = context.reader.snapshots(now)
        own = [one.snapshot_id for one in snapshots if one.summary.get(RUN_ID_PROPERTY) == run_id]
        if not own:
            raise
        return files_of_snapshots(context, now, own)


def before_commit(context: Context, commit: Commit) -> Mapping[TableIdentifier, TablePointer | None]:
    """Return the state that the tables changed by ``commit`` had before it."""
    tables = [pointer.table for pointer in commit.puts]
    if commit.parent is None:
        return dict.fromkeys(tables)
    return context.catalog.get_tables(tables, Ref.detached(commit.parent))


def files_of_snapshots(context: Context, pointer: TablePointer, snapshot_ids: Sequence[int]) -> frozenset[str]:
    """Return the paths of the data files that snapshots of a table added."""
    return frozenset(file.path for file in context.reader.added_files(pointer, snapshot_ids).files)


def _added_paths(context: Context, before: TablePointer | None, after: TablePointer) -> frozenset[str]:
    """Return the paths of the data files that a table gained between ``before`` and ``after``."""
    change = context.reader.change(before, after)
    if change.only_adds or change.snapshots:
        return files_of_snapshots(context, after, change.snapshot_ids)
    paths = frozenset(file.path for file in context.reader.files(after))
    return paths if before is None else paths - {file.path for file in context.reader.files(before)}


class EarlierAttemptError(ConflictError):
    """An earlier attempt of the run, with other snapshots, has been published."""


def find_unpublished(context: Context, run: Run, commit: Commit) -> StagedTable | None:
    """Return a staged table whose snapshots aren't all in ``commit``, which published ``run``, or ``None``.

    A publish keeps a run's snapshots, even when rebased, and no two attempts write the same snapshots.
    """
    puts = {pointer.table: pointer for pointer in commit.puts}
    for staged in run.staged:
        # If a change did more than append, only its last snapshot is published.
        own = {staged.pointer.snapshot_id, *(staged.snapshot_ids if staged.only_adds else ())} - {NO_SNAPSHOT}
        there = puts.get(staged.table)
        if there is None:
            return staged
        held = {there.snapshot_id}
        if not held >= own:
            held = {one.snapshot_id for one in context.reader.snapshots(there)}
        if not held >= own:
            return staged
    return None


def require_this_attempt(context: Context, run: Run, commit: Commit) -> None:
    """Check that ``commit``, which published ``run``, holds what the run has staged now.

    A run that's retried under the same id must not mistake an earlier attempt's rows for its own.

    Raises:
        EarlierAttemptError: When the commit holds something else.
    """
    try:
        other = find_unpublished(context, run, commit)
    except (NotFoundError, InputError):
        return  # published long ago: gc has deleted that state, so it can't be compared
    if other is not None:
        raise EarlierAttemptError(
            f"An earlier attempt of run {run.run_id} has been published (commit {commit.hash[:12]}); this one wasn't.",
            hint=f"See what it published: lakegate log {commit.hash} --limit 1. To publish this batch as well, give it "
            "another run id.",
            run_id=run.run_id,
            branch=run.branch or None,
            commit=commit.hash,
        )


def require_not_published(run: Run, commits: Sequence[PastCommit]) -> None:
    """Check that by none of ``commits``, oldest first, one of the run's source files is published now.

    That's also a file that has other content by now, unless the request says to append both.

    The journal keeps two runs from working on the same file, but only the catalog knows for sure: journals get lost,
    and a process that slept too long may still believe that it owns a file.

    Raises:
        AlreadyPublishedError: Naming the other run.
        NotReplayableError: When the table got or lost its name meanwhile: the files that count are another table's.
    """
    if run.request is None:
        return
    ledger, table = fold(commits), family(run.table)
    for old, new, by in ledger.moved:
        if table in (old, new):
            raise NotReplayableError(
                f"Run {by} renamed {old} to {new} during this run; nothing was published.",
                hint="Run it again.",
                table=run.table,
                run_id=run.run_id,
                other_run_id=by,
                branch=run.branch,
            )
    files = run.request.batch.files
    ours = {(file.uri, file.version) for file in files}
    paths = set() if run.request.on_changed == "append" else {file.uri for file in files}
    others = [
        (uri, version, other)
        for (name, uri, version), other in ledger.files.items()
        if name == table and other not in run.request.replaces
    ]
    both = [(uri, other) for uri, version, other in others if (uri, version) in ours]
    changed = [(uri, other) for uri, _, other in others if uri in paths]
    if both:
        uri, other = min(both)
        raise _already_published(
            run,
            other,
            f"{uri} is published in {run.table} already, by run {other}. Nothing was published twice.",
            f"To drop this branch: lakegate discard {run.branch}. To see that run: lakegate runs {other}",
        )
    if changed:
        uri, other = min(changed)
        raise _already_published(
            run,
            other,
            f"{uri} was published to {run.table} by run {other}, with other content, since this run began. Nothing was "
            "published.",
            f"To keep that run's rows, drop this branch: lakegate discard {run.branch}. To publish these instead, "
            f"revert that run first: lakegate revert {other}",
        )


def _already_published(run: Run, other: str, message: str, hint: str) -> AlreadyPublishedError:
    return AlreadyPublishedError(
        message, hint=hint, table=run.table, run_id=run.run_id, other_run_id=other, branch=run.branch
    )
