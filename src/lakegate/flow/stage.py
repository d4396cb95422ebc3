"""Stage: the batch, written to a branch that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.errors import AlreadyExistsError, ConflictError, EngineError, NotFoundError
from lakegate.flow import faults
from lakegate.flow.discard import is_named_for
from lakegate.flow.rooms import Rooms
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable, WriteRequest
from lakegate.model.tables import CreateTable, Snapshot, WriteTarget


def stage(rooms: Rooms, request: WriteRequest) -> StagedTable:
    """Write the request's batch to its branch, once.

    Called again with the same request, it finds the branch and the snapshot of the first call.

    Raises:
        AlreadyExistsError: When the branch exists and belongs to something else.
        ConfigurationError: When the warehouse cannot be written to.
        EngineError: When fewer or more rows arrived than the files hold.
        RetryableError: When catalog or engine are away.
    """
    faults.reach("before-stage")
    rooms.require_writable()
    branch = _ensure_branch(rooms, request)
    faults.reach("after-branch")
    base = Ref(name=request.base, hash=request.base, kind="detached")
    before = rooms.catalog.get_table(request.table, base)
    pointer = rooms.catalog.get_table(request.table, branch)
    written = _written(rooms, pointer, request.run_id)
    if not written:
        _write(rooms, request, before, branch)
        branch = rooms.catalog.get_ref(request.branch)
        pointer = rooms.catalog.get_table(request.table, branch)
        written = _written(rooms, pointer, request.run_id)
    if pointer is None or not written:
        raise EngineError(f"The write to {request.table} on branch {request.branch} left no snapshot of this run.")
    staged = staged_table(
        request.run_id,
        target=request.target,
        base=request.base,
        branch=branch,
        before=before,
        pointer=pointer,
        written=written,
    )
    _require_all_rows(staged, request)
    _require_same_files(rooms, request)
    faults.reach("after-stage")
    return staged


def wrote_since(rooms: Rooms, run: Run) -> bool:
    """Tell whether the run itself wrote to its branch after it was staged: a process that was given up went on."""
    if run.request is None or not run.staged:
        return False
    try:
        branch = rooms.catalog.get_ref(run.branch)
    except NotFoundError:
        return False
    written = _written(rooms, rooms.catalog.get_table(run.request.table, branch), run.run_id)
    return {snapshot.snapshot_id for snapshot in written} > set(run.staged[0].snapshot_ids)


def staged_table(
    run_id: str,
    *,
    target: str,
    base: str,
    branch: Ref,
    before: TablePointer | None,
    pointer: TablePointer,
    written: Sequence[Snapshot],
) -> StagedTable:
    """Return what ``written`` snapshots did to a table on its branch.

    Without any, the table was created empty or changed in its schema only.
    """
    appended = bool(written) and all(snapshot.operation == "append" for snapshot in written)
    return StagedTable(
        run_id=run_id,
        table=pointer.table,
        branch=branch.name,
        target=target,
        base=base,
        head=branch.hash,
        before=before,
        pointer=pointer,
        parent_snapshot_id=written[0].parent_id if appended else None,
        snapshot_ids=tuple(snapshot.snapshot_id for snapshot in written),
        change="append" if appended else "rewrite",
        rows=sum(int(snapshot.summary.get("added-records", 0)) for snapshot in written),
        data_files=sum(int(snapshot.summary.get("added-data-files", 0)) for snapshot in written),
    )


def _ensure_branch(rooms: Rooms, request: WriteRequest) -> Ref:
    source = Ref(name=request.target, hash=request.base)
    try:
        return rooms.catalog.create_branch(request.branch, source)
    except AlreadyExistsError:
        branch = rooms.catalog.get_ref(request.branch)
        named = is_named_for(request.branch, request.table, request.run_id)
        if not named and not _written(rooms, rooms.catalog.get_table(request.table, branch), request.run_id):
            raise
        if _made_at(rooms, branch, request.base):
            return branch
        # Of an earlier life of the run, which the journal has lost: what the target got since is not on it, and would
        # be taken away by publishing it.
        rooms.catalog.delete_ref(branch)
        return rooms.catalog.create_branch(request.branch, source)


def _made_at(rooms: Rooms, branch: Ref, base: str) -> bool:
    if branch.hash == base:
        return True
    commits = list(rooms.catalog.history(branch.hash, until=base))
    return bool(commits) and commits[-1].parent == base


def _written(rooms: Rooms, pointer: TablePointer | None, run_id: str) -> list[Snapshot]:
    if pointer is None:
        return []
    return [s for s in rooms.reader.snapshots(pointer) if s.summary.get(RUN_ID_PROPERTY) == run_id]


def _write(rooms: Rooms, request: WriteRequest, before: TablePointer | None, branch: Ref) -> None:
    create = None
    schema = None
    if before is None:
        ensure_namespace(rooms, request.table, branch.name, request.run_id)
        location = fresh_location(rooms, request.table, request.run_id)
        create = CreateTable(location=location, partition_by=request.partition_by)
    else:
        schema = rooms.reader.metadata(before).table_schema
    target = WriteTarget(
        table=request.table,
        ref=request.branch,
        table_schema=schema,
        create=create,
        snapshot_properties={RUN_ID_PROPERTY: request.run_id},
    )
    files = "file" if len(request.batch.files) == 1 else "files"
    text = f"Writing {request.batch.rows:,} rows of {len(request.batch.files)} {files} to branch {request.branch}"
    with rooms.narrator.step(text) as step:
        rooms.engine().append(request.batch, target, step)


def fresh_location(rooms: Rooms, table: TableIdentifier, run_id: str) -> str:
    """Return the folder for a table that a run creates: tables of one name on two branches must not share one."""
    return "/".join((rooms.warehouse.rstrip("/"), *table.namespace, f"{table.name}_{run_id}"))


def ensure_namespace(rooms: Rooms, table: TableIdentifier, branch_name: str, run_id: str) -> None:
    """Create the namespaces that ``table`` needs on a branch and that are not there."""
    branch = rooms.catalog.get_ref(branch_name)
    missing = missing_namespaces(rooms, table.namespace, branch)
    if not missing:
        return
    try:
        rooms.catalog.commit(
            CommitRequest(
                branch=branch.name,
                base=branch.hash,
                message=f"Create namespace {'.'.join(table.namespace)}",
                namespaces=missing,
                properties={RUN_ID_PROPERTY: run_id},
            )
        )
    except ConflictError:
        if missing_namespaces(rooms, table.namespace, rooms.catalog.get_ref(branch.name)):
            raise


def missing_namespaces(rooms: Rooms, namespace: tuple[str, ...], ref: Ref) -> tuple[tuple[str, ...], ...]:
    """Return ``namespace`` and its parents, outermost first, without those that exist at ``ref``."""
    known = set(rooms.catalog.list_namespaces(ref))
    levels = (namespace[:depth] for depth in range(1, len(namespace) + 1))
    return tuple(level for level in levels if level not in known)


def _require_all_rows(staged: StagedTable, request: WriteRequest) -> None:
    if staged.rows != request.batch.rows:
        raise EngineError(
            f"{staged.rows:,} rows arrived in {request.table} on branch {request.branch}, "
            f"but the {len(request.batch.files)} source file(s) hold {request.batch.rows:,}.",
            hint="A file may have changed while it was read. Nothing was published; run the ingest again.",
            table=str(request.table),
            branch=request.branch,
            run_id=request.run_id,
        )


def _require_same_files(rooms: Rooms, request: WriteRequest) -> None:
    changed = rooms.changed_files(request.batch)
    if changed:
        raise EngineError(
            f"{changed[0].uri} was changed or removed while it was read.",
            hint="Nothing was published; run the ingest again once the files are complete.",
            table=str(request.table),
            branch=request.branch,
            run_id=request.run_id,
            file=changed[0].uri,
        )
