"""Commit properties: what lakegate writes into commits and reads back, as the truth about what is published.

The journal holds a copy, so that finding a source file doesn't mean searching thousands of commits. :func:`sync` keeps
the copy up to date, commit by commit, and a lost journal is rebuilt from the same properties.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    InputError,
    NewerFormatError,
    NotFoundError,
    NotReplayableError,
)
from lakegate.model.batch import SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import SUFFIX, is_quarantine
from lakegate.model.refs import NO_SNAPSHOT, Commit, Ref, TablePointer
from lakegate.model.run import (
    RUN_ID_PROPERTY,
    HistoryEvent,
    PastCommit,
    Publication,
    Run,
    StagedTable,
    published_tables,
    total_removed,
)
from lakegate.ports import Step
from lakegate.wap.context import Context

BRANCH_PROPERTY = "lakegate.branch"
AUDIT_PROPERTY = "lakegate.audit"
ACCEPTED_PROPERTY = "lakegate.accepted"
"""Why somebody published a branch that failed its audit; ``lakegate.accepted-by`` says who."""
ACCEPTED_BY_PROPERTY = "lakegate.accepted-by"
TABLES_PROPERTY = "lakegate.tables"
FILES_PROPERTY = "lakegate.files"
READS_PROPERTY = "lakegate.reads"
KEYS_PROPERTY = "lakegate.keys"
"""The tables in which a run checked that its keys were new, so that no rows may be restored to them."""
REVERTS_PROPERTY = "lakegate.reverts"
MODE_PROPERTY = "lakegate.mode"
"""The write mode of an ingest, if it did more than append."""
SCHEMA_PROPERTY = "lakegate.schema"
"""Columns that an ingest added or widened, as text for people."""
REVIVES_PROPERTY = "lakegate.revives"
"""Source files whose rows a revert or restore brings back: table, URI, version and run of each."""
KIND_PROPERTY = "lakegate.kind"
"""``revert`` or ``restore``, on the commit of one; other commits lack it."""

RENAMES_PROPERTY = "lakegate.renames"
"""Renamed tables: the old name of each, followed by the new one."""

_KINDS: Mapping[str, Literal["reverted", "restored"]] = {"revert": "reverted", "restore": "restored"}

COMPACTION_PROPERTY = "lakegate.compaction"
"""The commit in which Iceberg compacted the run's table; it names no run itself."""

FORMAT = 1
"""Format of the properties that name source files. Who doesn't know a commit's format publishes nothing."""
_REVIVED_WIDTH = 4

_PROGRESS_EVERY = 100

_ZIPPED = "zlib:"
_LONGEST_PLAIN = 2_000


def run_properties(
    run: Run, *, audit: str, reads: Sequence[str], keys: Sequence[str], reverts: Sequence[str]
) -> dict[str, str]:
    """Return the properties of a commit that publishes ``run``."""
    changes = (f"{one.table}: {change}" for one in run.staged for change in one.schema_changes)
    properties = {
        RUN_ID_PROPERTY: run.run_id,
        BRANCH_PROPERTY: run.branch,
        TABLES_PROPERTY: " ".join(run.tables),
        AUDIT_PROPERTY: audit,
        READS_PROPERTY: " ".join(reads),
        KEYS_PROPERTY: " ".join(keys),
        ACCEPTED_PROPERTY: "" if run.accepted is None else run.accepted.reason,
        ACCEPTED_BY_PROPERTY: "" if run.accepted is None else run.accepted.actor,
        SCHEMA_PROPERTY: "; ".join(changes),
        MODE_PROPERTY: mode_of(run) or "",
        FILES_PROPERTY: "" if run.request is None else encode_files(run.request.own_files),
        REVERTS_PROPERTY: packed(" ".join(reverts)),  # a truncate reverts every run of its table
    }
    return {key: value for key, value in properties.items() if value}


def mode_of(run: Run) -> str | None:
    """Return the run's write mode, if it did more than append."""
    return None if run.request is None or run.request.mode.appends else run.request.mode.name


def run_of(commit: Commit) -> str | None:
    """Return the run that made ``commit``; ``None`` if lakegate didn't make it."""
    return commit.properties.get(RUN_ID_PROPERTY)


def kind_of(commit: Commit) -> str | None:
    """Return ``revert`` or ``restore`` for the commit of one, else ``None``."""
    return commit.properties.get(KIND_PROPERTY)


def reverts_in(commit: Commit) -> tuple[str, ...]:
    """Return the runs that ``commit`` reverted, or whose files it replaced."""
    try:
        return tuple(unpacked(commit.properties.get(REVERTS_PROPERTY, "")).split())
    except (ValueError, zlib.error) as error:
        raise _unreadable(commit, REVERTS_PROPERTY, error) from None


def renames_in(commit: Commit) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each table that ``commit`` renamed."""
    names = commit.properties.get(RENAMES_PROPERTY, "").split()
    return tuple(zip(names[::2], names[1::2], strict=False))


def with_quarantine_renames(renames: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Add the renames of quarantine tables to ``renames``, also of those that didn't exist at that moment."""
    found = dict(renames)
    own = [(f"{old}{SUFFIX}", f"{new}{SUFFIX}") for old, new in found.items() if not is_quarantine(old)]
    return tuple((dict(own) | found).items())


def tables_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables that a commit of lakegate wrote to."""
    listed = tuple(commit.properties.get(TABLES_PROPERTY, "").split())
    return listed or tuple(str(pointer.table) for pointer in commit.puts)


def reads_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables that the run of ``commit`` relied on."""
    return tuple(commit.properties.get(READS_PROPERTY, "").split())


def keys_in(commit: Commit) -> tuple[str, ...]:
    """Return the tables of ``commit`` whose keys its run checked as new."""
    return tuple(commit.properties.get(KEYS_PROPERTY, "").split())


def encode_files(files: Iterable[SourceFile]) -> str:
    """Return source files as a commit property: the format, then URI and version of each, compressed if it's long.

    Example:
        >>> encode_files([SourceFile(uri="file:///a", size_bytes=1, version="v1", rows=1)])
        '{"format":1,"files":[["file:///a","v1"]]}'
    """
    return _encode([(file.uri, file.version) for file in files])


def encode_revived(files: Sequence[tuple[str, str, str, str]]) -> str:
    """Return restored source files (table, URI, version, run) as a commit property."""
    return _encode(files)


def _encode(lines: Sequence[Sequence[str]]) -> str:
    what = {"format": FORMAT, "files": lines}
    return packed(json.dumps(what, separators=(",", ":")))


def packed(text: str) -> str:
    """Return text as a commit property, compressed if it's long."""
    if len(text) <= _LONGEST_PLAIN:
        return text
    return _ZIPPED + base64.b64encode(zlib.compress(text.encode(), level=9)).decode("ascii")


def unpacked(text: str) -> str:
    """Return the text from a property that :func:`packed` made.

    Raises:
        ValueError, zlib.error: When it isn't such a property.
    """
    if not text.startswith(_ZIPPED):
        return text
    return zlib.decompress(base64.b64decode(text.removeprefix(_ZIPPED), validate=True)).decode()


def files_in(commit: Commit) -> tuple[tuple[str, str], ...]:
    """Return URI and version of each source file that ``commit`` published."""
    return tuple((uri, version) for uri, version in _lines(commit, FILES_PROPERTY, 2))


def revived_in(commit: Commit) -> tuple[tuple[str, str, str, str], ...]:
    """Return table, URI, version and run of each source file that ``commit`` restored. Raises the same errors."""
    lines = _lines(commit, REVIVES_PROPERTY, _REVIVED_WIDTH)
    return tuple((table, uri, version, run) for table, uri, version, run in lines)


def unreadable_in(commit: Commit) -> str | None:
    """Return why this release can't read the source files that ``commit`` names; ``None`` if it can."""
    try:
        files_in(commit), revived_in(commit)
    except NewerFormatError as error:
        return error.message
    return None


def _lines(commit: Commit, key: str, width: int) -> list[list[str]]:
    text = commit.properties.get(key, "")
    try:
        return _decode(text, width) if text else []
    except (ValueError, TypeError, LookupError, zlib.error, binascii.Error) as error:
        raise _unreadable(commit, key, error) from None


def _unreadable(commit: Commit, key: str, error: Exception) -> NewerFormatError:
    reason = str(error) if isinstance(error, _UnknownFormatError) else "it can't be parsed"
    tables = commit.properties.get(TABLES_PROPERTY, "")
    return NewerFormatError(
        f"Commit {commit.hash[:12]} names the source files that it published to {tables or 'unknown tables'} in a "
        f"format that this version of lakegate can't read ({key}: {reason}). It was written by a newer lakegate.",
        hint=f"Upgrade: pip install --upgrade lakegate. To see the commit: lakegate log {commit.hash} --limit 1",
        commit=commit.hash,
        table=tables or None,
        run_id=commit.properties.get(RUN_ID_PROPERTY),
        property=key,
    )


class _UnknownFormatError(ValueError):
    """A newer lakegate wrote the property."""


def _decode(text: str, width: int) -> list[list[str]]:
    """Return the lines of a property."""
    found = json.loads(unpacked(text))
    if found["format"] != FORMAT:
        raise _UnknownFormatError(f"format {found['format']}, known is {FORMAT}")
    lines = found["files"]
    if not isinstance(lines, list) or not all(_is_line(line, width) for line in lines):
        raise ValueError("no list of files")
    return lines


def _is_line(line: object, width: int) -> bool:
    return isinstance(line, list) and len(line) == width and all(isinstance(value, str) for value in line)


def event_of(commit: Commit) -> HistoryEvent | None:
    """Return the event of the run that made ``commit``; ``None`` if lakegate didn't make it."""
    properties = commit.properties
    run_id = properties.get(RUN_ID_PROPERTY)
    if run_id is None:
        return None
    return HistoryEvent(
        commit=commit.hash,
        run_id=run_id,
        time=commit.time,
        tables=tuple(properties.get(TABLES_PROPERTY, "").split()),
        files=files_in(commit),
        reverts=reverts_in(commit),
        revives=revived_in(commit),
        kind=_KINDS.get(kind_of(commit) or "", "published"),
        renames=renames_in(commit),
    )


def sync(context: Context, target: str) -> Ref:
    """Record the commits of ``target`` that the journal hasn't read yet, and return the head up to which it has now.

    The journal is rebuilt from the whole history if it's new, or if the target has lost the last commit that it had
    read, or the commit of a run that has ended since.

    Raises:
        NewerFormatError: When a commit names source files in an unknown format, so that they could be published a
            second time. The journal doesn't change.
    """
    if context.downstreams:
        # First, so that events recorded now are also queued for a system that is new in the settings.
        context.journal.outbox.register([one.subscription for one in context.downstreams])
    # In this order: if the head were read first, commits that others record in between would look like a reset.
    known, unread = context.journal.synced_and_unread(target)
    head = context.catalog.get_ref(target)
    if known == head.hash and not unread:
        return head
    past = History((), whole=False) if known == head.hash else read_history(context, head.hash, until=known)
    ended_with = () if past.whole else unread - {commit.hash for commit in past.commits}
    if not all(context.journal.commits.has(target, commit) for commit in ended_with):
        past = read_history(context, head.hash)  # the target has lost the commit that a run ended with
    gone = frozenset[str]()
    if known is not None and past.whole:
        # The branch was reset and lost the commit that we knew: only its current history counts.
        published = context.journal.published()
        if context.catalog.get_ref(target).hash != head.hash:
            return sync(context, target)
        gone = published - {event.run_id for event in past.events}
    if not context.journal.record(
        target, past.events, head.hash, rebuild=past.whole, known=known, gone=gone, commits=past.commits, unread=unread
    ):
        return sync(context, target)  # another process rebuilt it while we read
    return head


@dataclass(frozen=True)
class History:
    """The commits of a branch, oldest first, as far as they were read.

    Attributes:
        whole: Whether this is the branch's whole history, from its first commit on.
    """

    commits: Sequence[PastCommit]
    whole: bool

    @property
    def events(self) -> list[HistoryEvent]:
        """Their events, oldest first."""
        return [commit.event for commit in self.commits if commit.event is not None]


def read_history(context: Context, head: str, *, until: str | None = None, step: Step | None = None) -> History:
    """Read the history of ``head`` back to ``until``; all of it if it doesn't contain ``until``.

    Raises:
        NewerFormatError: When a commit names source files in an unknown format.
    """
    newest_first: list[PastCommit] = []
    oldest: str | None = None
    for commit in context.catalog.history(head, until=until):
        newest_first.append(PastCommit(hash=commit.hash, time=commit.time, event=event_of(commit)))
        oldest = commit.parent
        if step is not None and len(newest_first) % _PROGRESS_EVERY == 0:
            step.progress(len(newest_first), 0, "commits")
    return History(newest_first[::-1], whole=until is None or oldest != until)


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


def require_not_published(run: Run, events: Iterable[HistoryEvent]) -> None:
    """Check that none of ``events`` (newest first) published one of the run's source files without being reverted.

    That's also a file that has other content by now, unless the request says to append both.

    The journal keeps two runs from working on the same file, but only the catalog knows for sure: journals get lost,
    and a process that slept too long may still believe that it owns a file.

    Raises:
        AlreadyPublishedError: Naming the other run.
        NotReplayableError: When the table got or lost its name meanwhile: the files that count are another table's.
    """
    if run.request is None:
        return
    files = run.request.batch.files
    ours = {(file.uri, file.version) for file in files}
    paths = set() if run.request.on_changed == "append" else {file.uri for file in files}
    reverted = {*run.request.replaces}
    for event in events:
        if any(run.table in pair for pair in event.renames):
            old, new = event.renames[0]
            raise NotReplayableError(
                f"Run {event.run_id} renamed {old} to {new} during this run; nothing was published.",
                hint="Run it again.",
                table=run.table,
                run_id=run.run_id,
                other_run_id=event.run_id,
                branch=run.branch,
            )
        theirs = {*event.files, *((uri, version) for _, uri, version, _ in event.revives)}
        both = {uri for uri, _ in ours & theirs}
        changed = paths & {uri for uri, _ in theirs}
        if (both or changed) and event.run_id not in reverted and set(event.tables) & set(run.tables):
            by = f"was published to {run.table} by run {event.run_id}"
            problem = f"{min(both)} {by} during this run; nothing was published twice." if both else ""
            raise AlreadyPublishedError(
                problem or f"{min(changed)} {by}, with other content, since this run began. Nothing was published.",
                hint=f"lakegate runs {event.run_id}"
                if both
                else f"To keep that run's rows, drop this branch: lakegate discard {run.branch}. To publish these "
                f"instead, revert that run first: lakegate revert {event.run_id}",
                table=run.table,
                run_id=run.run_id,
                other_run_id=event.run_id,
                branch=run.branch,
            )
        reverted.update(event.reverts)
