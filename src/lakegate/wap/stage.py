"""Stage: write a batch to a branch that nobody reads, and find out what a branch has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from types import MappingProxyType

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    ClockError,
    ConflictError,
    EngineError,
    InputError,
    NotFoundError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import MAIN, CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable, new_run_id
from lakegate.model.schema import ColumnChange, SchemaChange, column_changes
from lakegate.model.tables import (
    CLOCKS_DIFFER,
    DELETING_PROPERTIES,
    CreateTable,
    SchemaVersion,
    Snapshot,
    TableChange,
    WriteTarget,
    is_on,
)
from lakegate.model.words import counted, duration, moment
from lakegate.points import find, require_branch
from lakegate.ports import Catalog, TableReader
from lakegate.wap import failpoints
from lakegate.wap.branches import store_request, stored_runs
from lakegate.wap.discard import is_named_for, made_all_commits
from lakegate.wap.own_files import all_tables, require_own_files

_VERSION = 2
"""The Iceberg format version that new tables get by default."""


class NothingChangedError(InputError):
    """The batch's mode only changes rows, and there were none to change."""


def stage(context: Context, request: IngestRequest) -> StagedTable:
    """Write the request's batch to its branch, once: later calls find the branch and the snapshot of the first.

    Raises:
        AlreadyExistsError: When the branch exists and isn't this run's.
        ConfigurationError: When the warehouse can't be written to.
        ConflictError: When an earlier attempt that seemed dead has written to the branch, too.
        EngineError: When the number of rows written differs from the number in the files.
        InputError: When a key is repeated or NULL.
        NothingChangedError: When there was nothing to change.
        RetryableError: When the catalog or the engine is unavailable.
    """
    failpoints.reach("before-stage")
    context.require_writable()
    branch = _ensure_branch(context, request)
    failpoints.reach("after-branch")
    base = Ref.detached(request.base)
    before = context.catalog.get_table(request.table, base)
    pointer = before if branch.hash == request.base else context.catalog.get_table(request.table, branch)
    written = _own_snapshots(context, pointer, request.run_id)
    if not written:
        _write(context, request, before, store_request(context, request, branch))
        branch, tables = context.catalog.get_ref_with_tables(request.branch, [request.table])
        pointer = tables[request.table]
        written = _own_snapshots(context, pointer, request.run_id)
    if len(written) > 1:  # every mode writes one snapshot
        raise ConflictError(
            f"Run {request.run_id} was written to branch {request.branch} twice: a process that was believed dead kept "
            "writing. Nothing was published.",
            hint="Run the ingest again.",
            table=str(request.table),
            branch=request.branch,
            run_id=request.run_id,
        )
    if pointer is None or not written:
        if pointer == before and not request.mode.writes_each_row:
            raise NothingChangedError(f"The batch changes nothing in {request.table}.")
        raise EngineError(f"The write to {request.table} on branch {request.branch} left no snapshot of this run.")
    _require_clock(context, branch, [(before, pointer)])
    change = _checked_change(context, before, pointer, branch, evolves=bool(request.schema_changes))
    staged = staged_table(request.run_id, request.target, request.base, branch, before, pointer, change)
    if request.schema_changes:
        staged = staged.model_copy(update={"schema_changes": request.schema_changes})
    if request.mode.writes_each_row:
        _require_all_rows(staged, request)
    require_unchanged(context, request)
    failpoints.reach("after-stage")
    return staged


def find_changes(
    context: Context, known: StagedTable, tables: Sequence[TableIdentifier], *, evolves: bool = False
) -> dict[TableIdentifier, StagedTable]:
    """Return the changes that the run of ``known`` has made on its branch, for those of ``tables`` that exist there.

    Args:
        evolves: Whether the run was expected to add or widen columns.
    """
    branch, pointers = context.catalog.get_ref_with_tables(known.branch, tables)
    before = context.catalog.get_tables(tables, Ref.detached(known.base))
    found = {}
    for table in tables:
        pointer = pointers[table]
        if pointer is not None:
            change = _checked_change(context, before[table], pointer, branch, evolves=evolves)
            of_run = known.run_id, known.target, known.base
            found[table] = staged_table(*of_run, branch, before[table], pointer, change)
    return found


def kept_writing(context: Context, run: Run) -> bool:
    """Return whether all commits to a branch since it was staged are the run's, by a process that seemed dead."""
    if run.request is None or not run.staged:
        return False
    try:
        return made_all_commits(
            context, run.run_id, context.catalog.history(run.branch, until=run.staged[0].head, operations=True)
        )
    except NotFoundError:
        return False


def staged_table(
    run_id: str,
    target: str,
    base: str,
    branch: Ref,
    before: TablePointer | None,
    pointer: TablePointer,
    change: TableChange,
) -> StagedTable:
    """Return the staged table for a ``change`` on a branch, from ``before`` to ``pointer``."""
    written = change.live_snapshots
    rows = (
        sum(int(snapshot.summary.get("added-records", 0)) for snapshot in written)
        if change.rows_added is None
        else change.rows_added
    )
    removed = change.rows_removed
    if is_quarantine(pointer.table) and removed is not None:
        # Marking and dropping rows writes their files again, with the rows that stay.
        rows, removed = max(rows - removed, 0), max(removed - rows, 0)
    return StagedTable(
        run_id=run_id,
        table=pointer.table,
        branch=branch.name,
        target=target,
        base=base,
        head=branch.hash,
        before=before,
        pointer=pointer,
        parent_snapshot_id=change.parent_snapshot_id if change.keeps_rows else None,
        snapshot_ids=change.snapshot_ids,
        change=change.kind,
        reason=change.reason,
        rows=rows,
        rows_removed=removed,
        data_files=sum(int(snapshot.summary.get("added-data-files", 0)) for snapshot in written),
    )


def _checked_change(
    context: Context, before: TablePointer | None, pointer: TablePointer, branch: Ref, *, evolves: bool = False
) -> TableChange:
    """Classify the change of a table on its branch, and check that it can be published.

    Args:
        evolves: Whether the run was expected to add or widen columns.

    Raises:
        InputError: When some readers can't load the table; when it has rows in Iceberg branches or tags of its own,
            which no check reads; or when it turns on a property that lets statements on one branch delete files that
            other branches need.
    """
    change = context.reader.change(before, pointer, evolves=evolves)
    context.reader.require_loadable(pointer, branch.name, before)
    if change.refs:
        raise InputError(
            f"Table {pointer.table} on branch '{branch.name}' has an Iceberg branch or tag of its own, "
            f"'{change.refs[0]}', with rows that no check reads.",
            hint="Use the catalog's branches and tags instead. On the branch: "
            f"ALTER TABLE {pointer.table} DROP BRANCH (or TAG) {change.refs[0]}",
            branch=branch.name,
            table=str(pointer.table),
        )
    if change.kind != "append":  # an append leaves the format version and the properties unchanged
        require_safe_properties(context, before, pointer, branch.name)
    return change


def _require_clock(context: Context, branch: Ref, states: Sequence[tuple[TablePointer | None, TablePointer]]) -> None:
    """Refuse tables that were written by a clock that is ahead of the catalog's.

    Iceberg takes no snapshot that is more than a minute older than a table's newest one, so nobody could write to them.
    """
    newest = next(context.catalog.history(branch.hash), None)
    for before, pointer in states:
        written = context.reader.metadata(pointer).updated_at
        known = None if before is None else context.reader.metadata(before).updated_at
        if newest is None or written is None or (known is not None and written <= known):
            continue
        if written - newest.time > CLOCKS_DIFFER:
            raise ClockError(
                f"Table {pointer.table} on branch '{branch.name}' was written by a clock that is "
                f"{duration((written - newest.time).total_seconds())} ahead of the catalog's. It isn't published: "
                f"nobody could write to the table until {moment(written)}.",
                hint="Synchronize the clock of the machine that wrote it with NTP, drop the branch, and write again: "
                f"lakegate discard {branch.name}",
                table=str(pointer.table),
                branch=branch.name,
            )


def until_when(context: Context, error: ClockError, tables: Sequence[TablePointer]) -> ClockError:
    """Return the error with the time until which one of ``tables`` can't be written, and the way out of it."""
    times = {pointer.table: context.reader.metadata(pointer).updated_at for pointer in tables}
    table, until = max(((one, at) for one, at in times.items() if at), key=lambda pair: pair[1], default=(None, None))
    if table is None:
        return error
    return ClockError(
        f"{error.message} {table} can't be written until {moment(until)}.",
        hint=f"{error.hint} To write before, go back to the state that it replaced: lakegate table restore {table} "
        "--at COMMIT; lakegate log shows the commits.",
        table=str(table),
    )


def require_safe_properties(
    context: Context, before: TablePointer | None, pointer: TablePointer, branch_name: str
) -> None:
    """Refuse a change to a property that deletes other branches' files."""
    now = context.reader.metadata(pointer)
    then = None if before is None else context.reader.metadata(before)
    for key in sorted(DELETING_PROPERTIES):
        if is_on(now.properties, key) and not (then is not None and is_on(then.properties, key)):
            raise InputError(
                f"Branch '{branch_name}' sets the property '{key}' of {pointer.table} to true: Spark may then delete "
                f"files that other branches and older commits need. It isn't published.",
                hint=f"On the branch: ALTER TABLE {pointer.table} SET TBLPROPERTIES ('{key}' = 'false')",
                table=str(pointer.table),
                branch=branch_name,
                property=key,
            )


def _ensure_branch(context: Context, request: IngestRequest) -> Ref:
    source = Ref(name=request.target, hash=request.base)
    try:
        return context.catalog.create_branch(request.branch, source)
    except AlreadyExistsError:
        branch = context.catalog.get_ref(request.branch)
        named = is_named_for(request.branch, request.table, request.run_id)
        if not named and not _own_snapshots(context, context.catalog.get_table(request.table, branch), request.run_id):
            raise
        if _was_created_at(context, branch, request.base) and _holds_nothing_else(context, request, branch):
            return branch
        # It's from an earlier attempt that the journal has lost: publishing it would undo later commits to the target,
        # or publish what the files contained then.
        context.catalog.delete_ref(branch)
        return _ensure_branch(context, request)


def _was_created_at(context: Context, branch: Ref, base: str) -> bool:
    if branch.hash == base:
        return True
    commits = list(context.catalog.history(branch.hash, until=base))
    return bool(commits) and commits[-1].parent == base


def _holds_nothing_else(context: Context, request: IngestRequest, branch: Ref) -> bool:
    """Return whether the run has written nothing to its branch yet, or only what this request asks for."""
    if not _own_snapshots(context, context.catalog.get_table(request.table, branch), request.run_id):
        return True
    return any(run.request == request for run in stored_runs(context, branch.name, request.base))


def _own_snapshots(context: Context, pointer: TablePointer | None, run_id: str) -> list[Snapshot]:
    if pointer is None:
        return []
    return [s for s in context.reader.snapshots(pointer) if s.summary.get(RUN_ID_PROPERTY) == run_id]


def _write(context: Context, request: IngestRequest, before: TablePointer | None, branch: Ref) -> None:
    hidden = (column for check in request.checks if check.examples == 0 for column in check.columns)
    masked = (*context.masked, *request.masked, *hidden)
    create = None
    schema = None
    changes: tuple[SchemaChange, ...] = ()
    if before is None:
        ensure_namespace(context, request.table, branch.name, request.run_id)
        create = new_table(context, request.table, request.run_id, partition_by=request.partition_by)
        schema = request.create_as
    else:
        # A killed process may have made some of the changes already.
        there = context.catalog.get_table(request.table, branch)
        now = context.reader.metadata(there or before).table_schema
        schema = now.changed(request.schema_changes)
        changes = now.pending(request.schema_changes)
    target = WriteTarget(
        table=request.table,
        ref=request.branch,
        table_schema=schema,
        schema_changes=changes,
        create=create,
        snapshot_properties={RUN_ID_PROPERTY: request.run_id},
        masked=masked,
    )
    written, files = counted(request.batch.rows, "row"), counted(len(request.batch.files), "file")
    with context.narrator.step(f"Writing {written} of {files}") as step:
        try:
            context.engine().write(request.batch, target, request.mode, step)
        except ClockError as error:
            raise until_when(context, error, [] if before is None else [before]) from error


def new_table(
    context: Context,
    table: TableIdentifier,
    run_id: str,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
    format_version: int | None = None,
) -> CreateTable:
    """Return how a run creates a table, in a folder named after the run: a table on another branch may have this name.

    Args:
        format_version: The Iceberg format version; by default the one in the settings.
    """
    version = context.format_version(table) if format_version is None else format_version
    return CreateTable(
        location=f"{context.folder(table.namespace)}/{table.name}_{run_id}",
        partition_by=tuple(partition_by),
        properties={**properties, **({} if version == _VERSION else {"format-version": str(version)})},
    )


def ensure_namespace(context: Context, table: TableIdentifier, branch_name: str, run_id: str) -> None:
    """Create the namespaces of ``table`` that the branch lacks."""
    branch = context.catalog.get_ref(branch_name)
    missing = missing_namespaces(context, table.namespace, branch)
    if not missing:
        return
    try:
        context.catalog.commit(
            CommitRequest(
                branch=branch.name,
                base=branch.hash,
                message=f"Create namespace {'.'.join(table.namespace)}",
                namespaces=missing,
                properties={RUN_ID_PROPERTY: run_id},
            )
        )
    except ConflictError:
        if missing_namespaces(context, table.namespace, context.catalog.get_ref(branch.name)):
            raise


def namespaces_for(context: Context, puts: Sequence[TablePointer], head: Ref) -> tuple[tuple[str, ...], ...]:
    """Return the namespaces of new tables in ``puts`` that ``head`` lacks, outermost first."""
    created = {pointer.table.namespace for pointer in puts if pointer.content_id is None}
    levels = {level for namespace in created for level in missing_namespaces(context, namespace, head)}
    return tuple(sorted(levels, key=len))


def missing_namespaces(context: Context, namespace: tuple[str, ...], ref: Ref) -> tuple[tuple[str, ...], ...]:
    """Return those of ``namespace`` and its parents that don't exist at ``ref``, outermost first.

    Raises:
        InputError: When one of them is a table.
    """
    known = set(context.catalog.list_namespaces(ref))
    levels = (namespace[:depth] for depth in range(1, len(namespace) + 1))
    missing = tuple(level for level in levels if level not in known)
    names = [TableIdentifier(namespace=level[:-1], name=level[-1]) for level in missing if len(level) > 1]
    for name, pointer in context.catalog.get_tables(names, ref).items():
        if pointer is not None:
            raise InputError(
                f"{name} is a table, not a namespace, so it can't contain tables.",
                hint="Choose another name for the table. To see the existing ones: lakegate table list",
                table=str(name),
                ref=ref.name,
            )
    return missing


def _require_all_rows(staged: StagedTable, request: IngestRequest) -> None:
    """Check that all rows of the files arrived."""
    if staged.rows != request.batch.rows:
        raise EngineError(
            f"{staged.rows:,} rows arrived in {request.table} on branch {request.branch}, "
            f"but the {len(request.batch.files)} source file(s) contain {request.batch.rows:,}.",
            hint="A file may have changed while it was read. Nothing was published; run the ingest again.",
            table=str(request.table),
            branch=request.branch,
            run_id=request.run_id,
        )


def require_unchanged(context: Context, request: IngestRequest) -> None:
    """Check that the files haven't changed since they were inspected."""
    changed = context.changed_files(request.batch)
    if changed:
        raise EngineError(
            f"{changed[0].uri} was changed or removed while it was being read.",
            hint="Nothing was published; run the ingest again once the files are complete.",
            table=str(request.table),
            branch=request.branch,
            run_id=request.run_id,
            file=changed[0].uri,
        )


def find_staged(context: Context, branch_name: str) -> tuple[StagedTable, ...]:
    """Return what is staged on a branch to publish to ``main``, table by table, whoever wrote it.

    Raises:
        InputError: When it's ``main`` or isn't a branch, or changed no table; or as for :func:`staged_since`.
    """
    if branch_name == MAIN:
        raise InputError(
            f"'{MAIN}' is what everyone reads; nothing is staged there.",
            hint="To see the branches: lakegate branch list",
            branch=branch_name,
        )
    branch = find(context.catalog, branch_name)
    require_branch(branch)
    base = find_common_ancestor(context.catalog, branch, context.catalog.get_ref(MAIN))
    staged = staged_since(context, base, branch, target=MAIN, run_id=None)
    if not staged:
        raise InputError(
            f"Branch '{branch_name}' hasn't changed any table since it was created from {MAIN}.",
            hint=f"lakegate log {branch_name}",
            branch=branch_name,
        )
    return staged


def staged_since(
    context: Context, base: Ref, branch: Ref, *, target: str, run_id: str | None, by_anyone: bool = False
) -> tuple[StagedTable, ...]:
    """Return the change of each table that ``branch`` changed since ``base``.

    Args:
        base: Commit of ``target`` that the branch was created from.
        run_id: The run that made all changes; ``None`` to read it from the snapshots, or else make a new id.
        by_anyone: Whether others than lakegate's engine wrote; so it is without ``run_id``.

    Raises:
        InputError: When the branch drops a table, or leaves one in a state that can't be published.
    """
    found = []
    by_anyone = by_anyone or run_id is None
    tables = cache(lambda: all_tables(context, base, branch, target))
    for difference in context.catalog.diff(base, branch):
        if difference.kind != "table":
            continue
        if difference.right is None:
            raise InputError(
                f"Branch '{branch.name}' drops {difference.table}. Publishing a branch can't drop a table.",
                hint=f"lakegate diff {target} {branch.name}",
                branch=branch.name,
                table=difference.table,
            )
        change = _checked_change(context, difference.left, difference.right, branch)
        if by_anyone:  # a transaction chooses the folders, and refuses to move them
            require_own_files(context, difference.left, difference.right, branch, tables)
        found.append((difference.left, difference.right, change))
    _require_clock(context, branch, [(before, after) for before, after, _ in found])
    owners = {one.summary.get(RUN_ID_PROPERTY) for _, _, change in found for one in change.live_snapshots}
    owner = run_id or (owners.pop() if len(owners) == 1 else None) or new_run_id()
    return tuple(
        staged_table(owner, target, base.hash, branch, before, after, change).model_copy(
            update={"schema_changes": changes_between(context.reader, before, after), "by_anyone": by_anyone}
        )
        for before, after, change in found
    )


def changes_between(
    reader: TableReader, before: TablePointer | None, after: TablePointer | None
) -> tuple[ColumnChange, ...]:
    """Return how a table's columns differ between two states; nothing if one of them is ``None``."""
    if before is None or after is None or before.metadata_location == after.metadata_location:
        return ()
    then, now = reader.metadata(before), reader.metadata(after)
    is_same = then.table_schema == now.table_schema and before.schema_id == after.schema_id
    if is_same and then.uuid == now.uuid:
        return ()
    if then.uuid == now.uuid:
        old, new = (_version(reader, pointer) for pointer in (before, after))
        if old is not None and new is not None:
            return tuple(column_changes(old.by_id, new.by_id))
    # Field ids are comparable only within one table; compare other columns by name.
    return tuple(
        column_changes(*({column.name.lower(): column for column in one.table_schema.columns} for one in (then, now)))
    )


def _version(reader: TableReader, pointer: TablePointer) -> SchemaVersion | None:
    return next((one for one in reader.schemas(pointer) if one.schema_id == pointer.schema_id), None)


def find_common_ancestor(catalog: Catalog, left: Ref, right: Ref) -> Ref:
    """Return the newest commit that both histories contain, as a detached reference.

    Walks both histories in step, so it reads only as many commits as the longer side has had since they diverged.

    Raises:
        InputError: When the two have no commit in common.
    """
    seen: tuple[set[str], set[str]] = (set(), set())
    hashes = (_hashes(catalog, left), _hashes(catalog, right))
    for pair in zip_longest(*hashes):
        for side, commit in enumerate(pair):
            if commit is None:
                continue
            seen[side].add(commit)
            if commit in seen[1 - side]:
                return Ref.detached(commit)
    raise InputError(f"'{left.name}' and '{right.name}' have no history in common.")


def _hashes(catalog: Catalog, ref: Ref) -> Iterator[str]:
    """Yield the hashes in a reference's history, from its head to the root, which isn't a commit."""
    yield ref.hash
    for commit in catalog.history(ref.hash):
        if commit.parent is not None:
            yield commit.parent
