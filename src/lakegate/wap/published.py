"""What is published: what a run's commit brought to the target, read back from the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakegate.errors import AlreadyPublishedError, NotFoundError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import Publication, Run, total_removed
from lakegate.wap.context import Context
from lakegate.wap.history import event_of


def find_commit(context: Context, run_id: str, target: Ref) -> Commit:
    """Return the commit by which ``run_id`` was published in the history of ``target``, with its tables.

    Raises:
        NotFoundError: When there is none.
    """
    for commit in context.catalog.history(target.hash, run_id=run_id, operations=True):
        return commit
    raise NotFoundError(
        f"Run {run_id} was not published: '{target.name}' has no commit of it.",
        hint=f"lakegate runs {run_id}",
        run_id=run_id,
        ref=target.name,
    )


def find_publication(context: Context, run: Run, *, since: str | None = None) -> Publication | None:
    """Return the run's publication as the target's history has it since ``since`` (default: its base), or ``None``."""
    until = since or run.base
    if until is None:
        return None
    for commit in context.catalog.history(run.target, until=until, run_id=run.run_id):
        return publication_of(run, commit.hash)
    return None


def publication_of(run: Run, commit: str, replayed: Sequence[TableIdentifier] = ()) -> Publication:
    """Return the publication of a run that ``commit`` made visible."""
    return Publication(
        run_id=run.run_id,
        target=run.target,
        commit=commit,
        tables=run.tables,
        rows=sum(one.rows for one in run.staged),
        rows_removed=total_removed(run.staged),
        replayed=tuple(str(table) for table in replayed),
    )


def published_files(context: Context, run_id: str, target: Ref) -> dict[TableIdentifier, frozenset[str]]:
    """Return the paths of the data files that a run's commit added to each of its tables."""
    commit = find_commit(context, run_id, target)
    before = before_commit(context, commit)
    return {pointer.table: added_paths(context, before[pointer.table], pointer) for pointer in commit.puts}


def before_commit(context: Context, commit: Commit) -> Mapping[TableIdentifier, TablePointer | None]:
    """Return the state of the tables that ``commit`` changed as it was before it."""
    tables = [pointer.table for pointer in commit.puts]
    if commit.parent is None:
        return dict.fromkeys(tables)
    return context.catalog.get_tables(tables, Ref(name=commit.parent, hash=commit.parent, kind="detached"))


def added_paths(context: Context, before: TablePointer | None, after: TablePointer) -> frozenset[str]:
    """Return the paths of the data files that a table gained between ``before`` and ``after``."""
    change = context.reader.change(before, after)
    if change.only_adds or change.snapshots:
        return frozenset(file.path for file in context.reader.added_files(after, change.snapshot_ids).files)
    paths = frozenset(file.path for file in context.reader.files(after))
    return paths if before is None else paths - {file.path for file in context.reader.files(before)}


def require_not_published(run: Run, commits: Iterable[Commit]) -> None:
    """Check that no publish among ``commits``, newest first, has one of the run's source files, unless reverted.

    The journal keeps two runs from working on one file, but only the catalog knows for sure: journals get lost, and a
    process that slept too long wakes up believing that the file is still its own.

    Raises:
        AlreadyPublishedError: Naming the other run.
    """
    if run.request is None:
        return
    files = run.request.batch.files
    ours = {(file.uri, file.version) for file in files}
    links = {(file.identity, file.version): file.uri for file in files if file.identity}
    contents = {file.version: file.uri for file in files if file.names_content and file.rows}
    if run.request.on_same_content == "append":
        contents = {}
    reverted: set[str] = set()
    for commit in commits:
        event = event_of(commit)
        if event is None:
            continue
        theirs = {*event.files, *((uri, version) for _, uri, version, _ in event.revives)}
        versions = [version for _, version in event.files]
        both = {
            *(uri for uri, _ in ours & theirs),
            *(links[one] for one in links.keys() & set(zip(event.identities, versions, strict=False))),
            *(contents[version] for version in contents.keys() & {version for _, version in theirs}),
        }
        if both and event.run_id not in reverted and set(event.tables) & set(run.tables):
            raise AlreadyPublishedError(
                f"{min(both)} was published to {run.table} by run {event.run_id} during this run; nothing was "
                f"published a second time.",
                hint=f"lakegate runs {event.run_id}",
                table=run.table,
                run_id=run.run_id,
                other_run_id=event.run_id,
                branch=run.branch,
            )
        reverted.update(event.reverts)
