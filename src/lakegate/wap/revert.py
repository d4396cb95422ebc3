"""Revert runs, restore and rename tables, and reset branches.

A revert undoes a publish in one commit across its tables, and keeps later publishes: see
:mod:`lakegate.wap.revert_plan`. Reverts and restores are runs of their own, in the journal like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from lakegate.errors import (
    AlreadyExistsError,
    IdentifierError,
    InputError,
    NotFoundError,
    NotReplayableError,
    NotRevertableError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import is_quarantine, quarantine_of, table_of
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Action, Publication, Run, RunKind, UndoneTable, new_run_id
from lakegate.points import require_branch, unknown_table
from lakegate.wap import failpoints
from lakegate.wap.context import Context
from lakegate.wap.history import (
    FILES_PROPERTY,
    FORMERLY_PROPERTY,
    KIND_PROPERTY,
    RENAMES_PROPERTY,
    RENAMING,
    REVERTS_PROPERTY,
    REVIVES_PROPERTY,
    TABLES_PROPERTY,
    UNPUBLISHES_PROPERTY,
    encode_revived,
    files_in,
    find_commit,
    find_publication,
    identities_in,
    kind_of,
    packed,
    reads_in,
    renames_in,
    run_of,
    sync,
    tables_in,
    with_quarantine_renames,
)
from lakegate.wap.lifecycle import Progress, running
from lakegate.wap.optimistic_commit import commit_on_head, publish_lock
from lakegate.wap.quarantine import QUARANTINE_OF_PROPERTY, quarantine_table, require_not_reserved
from lakegate.wap.reachable import keep_files, keep_files_of
from lakegate.wap.revert_plan import BranchHistory, RevertPlan, TablePlan, plan_restore, plan_revert
from lakegate.wap.stage import namespaces_for

_APPENDS_TOGETHER = 100
"""How many later appends one metadata file rebases."""
PlanAt = Callable[[Ref], RevertPlan]
"""Makes the plan on top of the target's head; called again when the target moved."""


def revert(
    context: Context,
    run_id: str,
    *,
    new_run_id: str,
    target: str = MAIN,
    cascade: bool = False,
    dry_run: bool = False,
    action: Action | None = None,
) -> Run:
    """Revert what ``run_id`` published, in one commit. Its source files can be ingested again.

    A revert can itself be reverted, which restores the rows, if nothing has been published to its tables since then.

    Args:
        action: Who reverts it, to be recorded with the revert.

    Returns:
        The new run, ``published``; ``skipped`` for a dry run.

    Raises:
        NotRevertableError: When other runs depend on it, or a writer other than lakegate has changed its data since.
        InputError: When it's already reverted, or is a restore.
        NotFoundError: When it wasn't published.
        LakegateError: As for :func:`run_plan`.
    """

    def plan_at(head: Ref) -> RevertPlan:
        history = BranchHistory(context, head, since=find_commit(context, run_id, head).parent)
        commit = history.commit_of(run_id)
        _require_revertable(history, commit, run_id)
        renamed = renames_in(commit)
        if renamed:
            now, then = map(TableIdentifier.stored, reversed(renamed[0]))
            _require_same_table(context, commit, now, head)
            return plan_rename(context, now, then, head, reverts=(run_id,))
        return plan_revert(context, history, run_id, cascade=cascade)

    return run_plan(
        context,
        plan_at,
        run_id=new_run_id,
        kind="revert",
        text=f"Reverting run {run_id}",
        target=target,
        dry_run=dry_run,
        action=action,
    )


def restore_table(context: Context, table: TableIdentifier, at: Ref, *, new_run_id: str) -> Run:
    """Restore ``table`` and its quarantine table to their state at a commit, in one new commit.

    The tables lose every later change, whoever made it. What later runs wrote to other tables stays. Source files whose
    rows the table loses can be ingested again.

    Args:
        at: A commit in the history of ``main``.

    Returns:
        The new run: ``published``, or ``skipped`` when the table is in that state already.

    Raises:
        NotFoundError: When the table didn't exist then.
        InputError: When the commit isn't in the history of ``main``; or when ``table`` is a quarantine table, and
            rows were quarantined in it or released from it since.
        LakegateError: As for :func:`run_plan`.
    """
    then = context.catalog.get_table(table, at)
    if then is None:
        raise NotFoundError(
            f"Table {table} didn't exist at commit {at.hash[:12]}.",
            hint=f"To see which commits changed it: lakegate log {MAIN}",
            table=str(table),
            commit=at.hash,
        )

    def plan_at(head: Ref) -> RevertPlan:
        plans = {table: _restore_plan(context, context.catalog.get_table(table, head), then)}
        quarantine, quarantine_then = quarantine_table(context, table, head), quarantine_table(context, table, at)
        if quarantine_then is not None:
            plans[quarantine_then.table] = _restore_plan(context, quarantine, quarantine_then)
        elif quarantine is not None:
            plans[quarantine.table] = TablePlan(None, dropped_table(context, quarantine), now=quarantine)
        if all(plan.is_unchanged for plan in plans.values()):
            return RevertPlan("", (), plans, nothing=f"{table} is as it was at commit {at.hash[:12]}; nothing to do.")
        history = BranchHistory(context, head, since=at.hash)
        if not history.commits or history.commits[0].parent != at.hash:
            raise InputError(
                f"Commit {at.hash[:12]} isn't in the history of '{MAIN}'.",
                hint=f"lakegate log {MAIN}",
                commit=at.hash,
                ref=MAIN,
            )
        _require_not_renamed(history, table)
        _require_alone(history, table)
        changed = {name: plan for name, plan in plans.items() if not plan.is_unchanged}
        return plan_restore(f"Restore {table} as at commit {at.hash[:12]}", history, changed)

    return run_plan(context, plan_at, run_id=new_run_id, kind="restore", text=f"Restoring {table}")


def plan_rename(
    context: Context, old: TableIdentifier, new: TableIdentifier, head: Ref, *, reverts: tuple[str, ...] = ()
) -> RevertPlan:
    """Plan to rename a table together with its quarantine table.

    Args:
        reverts: The run whose rename this reverts.

    Raises:
        AlreadyExistsError: When the new name, or that of its quarantine table, is taken.
        ConfigurationError: When the new name is reserved.
        IdentifierError: When there's a quarantine table, and its new name would be too long.
        InputError: When the table is a quarantine table itself.
    """
    require_not_reserved(new)
    tables: dict[TableIdentifier, TablePlan] = {}
    renames = {old: new}
    try:
        renames[quarantine_of(old)] = quarantine_of(new)
    except IdentifierError:  # a name is too long to have one
        if quarantine_table(context, old, head) is not None:
            raise
    found = context.catalog.get_tables([*renames, *renames.values()], head)
    for then, name in renames.items():
        pointer = found[then]
        if pointer is None and then == old:
            raise unknown_table(context.catalog, str(old), head)
        if found[name] is not None:
            raise AlreadyExistsError(
                f"{old} can't be renamed: table {name} exists already.",
                hint=f"Choose another name, or drop that table first: lakegate table drop {name}",
                table=str(name),
            )
        if pointer is not None:
            metadata = context.reader.metadata(pointer)
            if then == old and QUARANTINE_OF_PROPERTY in metadata.properties:
                table = metadata.properties[QUARANTINE_OF_PROPERTY]
                raise InputError(
                    f"{old} can't be renamed: it's the quarantine table of {table}, and is renamed with it.",
                    hint=f"Rename the table: lakegate table rename {table} NAME",
                    table=str(old),
                )
            tables[then] = TablePlan(None, dropped_table(context, pointer))
            if then != old:
                pointer = context.editor.with_properties(pointer, {QUARANTINE_OF_PROPERTY: str(new)})
            moved = pointer.model_copy(update={"table": name, "content_id": None})
            kept = UndoneTable(table=str(name), rows=metadata.rows, data_files=metadata.data_files or 0)
            tables[name] = TablePlan(moved, kept)
    return RevertPlan(
        message=f"Rename {old} to {new}",
        reverts=reverts,
        tables=tables,
        renames=tuple((str(then), str(name)) for then, name in renames.items() if then in tables),
    )


def reset_branch(context: Context, name: str, to: Ref, *, force: bool = False) -> Ref:
    """Point a branch at another commit. Commits that only this branch had are lost.

    Args:
        force: Whether the branch may be ``main``.

    Raises:
        NotFoundError: When the branch doesn't exist.
        InputError: When it's a tag, or ``main`` without ``force``, or when files that the commit needs don't exist.
        ConflictError: When something was committed to it in the meantime.
        RetryableError: While files are being deleted.
    """
    ref = context.catalog.get_ref(name)
    require_branch(ref)
    if name == MAIN and not force:
        raise InputError(
            f"Resetting '{name}' removes commits from its history, including runs that others published.",
            hint="To keep the history, revert one publish (lakegate revert RUN) or restore one table (lakegate table "
            "restore TABLE --at TIME). To reset anyway: --force",
            branch=name,
        )
    with keep_files_of(context, to):
        moved = context.catalog.assign_ref(ref, to)
    if name == MAIN:
        sync(context, MAIN)
    return moved


def _require_revertable(history: BranchHistory, commit: Commit, run_id: str) -> None:
    tables = tables_in(commit)
    if kind_of(commit) == "restore":
        raise InputError(
            f"Run {run_id} is a restore; it can't be reverted.",
            hint=f"To restore the table's state before it: lakegate table restore {tables[0]} --at {commit.parent}",
            run_id=run_id,
        )
    by = [history.reverter(run_id, table) for table in tables]
    if all(by):
        last = history.commit_of(by[0]) if by[0] else commit
        back = f"table restore {tables[0]} --at {last.parent}" if kind_of(last) == "restore" else f"revert {by[0]}"
        raise InputError(
            f"Run {run_id} is already reverted, by run {by[0]}.",
            hint=f"You can ingest its source files again. To restore its rows: lakegate {back}",
            run_id=run_id,
            reverted_by=by[0],
        )


def _require_not_renamed(history: BranchHistory, table: TableIdentifier) -> None:
    """Refuse to restore a table across a rename of it or of its quarantine table, unless it got its name back."""
    if history.first_names.get(str(table), str(table)) == str(table):
        return
    renames = [
        one
        for one in reversed(history.commits)
        if any(str(table) in pair for pair in with_quarantine_renames(renames_in(one)))
    ]
    standing = (one for one in renames if kind_of(one) is None and history.is_in_effect(one, tables_in(one)[0]))
    commit = next(standing, renames[0])
    old, new = renames_in(commit)[0]
    raise InputError(
        f"{table} can't be restored to that state: {old} has since been renamed to {new}.",
        hint=f"Revert the rename first: lakegate revert {run_of(commit)}",
        table=str(table),
        run_id=run_of(commit),
    )


def _require_alone(history: BranchHistory, table: TableIdentifier) -> None:
    """Refuse to restore a quarantine table alone, if that would put a row in both tables or in neither."""
    both = {str(table), str(table_of(table))}
    commit = next((one for one in history.commits if is_quarantine(table) and both <= {*one.tables}), None)
    if commit is not None:
        by = f"run {run_of(commit)}" if run_of(commit) else f"commit {commit.hash[:12]}"
        raise InputError(
            f"{table} can't be restored alone: {by} has since changed it together with {table_of(table)}.",
            hint=f"Restore both: lakegate table restore {table_of(table)}",
            table=str(table),
            commit=commit.hash,
        )


def _restore_plan(context: Context, now: TablePointer | None, then: TablePointer) -> TablePlan:
    base = then.model_copy(update={"content_id": None if now is None else now.content_id})
    return TablePlan(base, _difference(context, now, then), now=now)


def dropped_table(context: Context, now: TablePointer) -> UndoneTable:
    """Return a run's record of a table that it drops."""
    rows, files = _rows_and_files(context, now)
    return UndoneTable(table=str(now.table), rows=None if rows is None else -rows, data_files=-files, dropped=True)


def _require_same_table(context: Context, commit: Commit, name: TableIdentifier, head: Ref) -> None:
    """Check that the table that ``commit`` renamed still has that name."""
    now = context.catalog.get_table(name, head)
    then = next((pointer for pointer in commit.puts if pointer.table == name), None)
    if now is not None and then is not None and context.reader.metadata(now).uuid != context.reader.metadata(then).uuid:
        raise NotRevertableError(
            f"Run {run_of(commit)} can't be reverted: its table was dropped, and {name} is another table now.",
            hint=f"To rename the current one: lakegate table rename {name} NAME",
            run_id=run_of(commit),
            table=str(name),
        )


def _difference(context: Context, now: TablePointer | None, then: TablePointer) -> UndoneTable:
    after = context.reader.metadata(then)
    rows_before, files_before = (0, 0) if now is None else _rows_and_files(context, now)
    return UndoneTable(
        table=str(then.table),
        rows=None if after.rows is None or rows_before is None else after.rows - rows_before,
        data_files=(after.data_files or 0) - files_before,
    )


def _rows_and_files(context: Context, now: TablePointer) -> tuple[int | None, int]:
    """Return the numbers of rows and files in a table; ``None`` and 0 if its metadata can't be read."""
    try:
        held = context.reader.metadata(now)
    except (NotFoundError, InputError):
        return None, 0  # damaged or missing metadata must not block going back to an intact state
    return held.rows, held.data_files or 0


def run_plan(
    context: Context,
    plan_at: PlanAt,
    *,
    run_id: str,
    kind: RunKind,
    text: str,
    target: str = MAIN,
    name: str | None = None,
    dry_run: bool = False,
    action: Action | None = None,
) -> Run:
    """Commit a plan as the run ``run_id``, in one commit on the target. If planning fails, nothing is recorded.

    Args:
        plan_at: Makes the plan on top of the target's head; called again when the target moved.
        text: What the run does, for progress messages.

    Raises:
        ConflictError: When the target kept moving.
        OutcomeUnknownError: When the catalog became unavailable during the commit and isn't back.
    """
    head = sync(context, target)
    plan = plan_at(head)
    run = Run(
        run_id=run_id,
        kind=kind,
        name=name,
        branch="",
        status="running",
        started_at=datetime.now(UTC),
        target=target,
        base=head.hash,
        actions=() if action is None else (action,),
        **_plan_fields(plan),
    )
    if dry_run:
        return run.model_copy(update={"status": "skipped", "detail": plan.nothing or f"Dry run: {text}."})
    with running(context, run) as progress:
        if plan.nothing is not None:
            return progress.end(status="skipped", detail=plan.nothing)
        _commit(context, progress, plan_at, head, plan, text)
    sync(context, target)
    return progress.run


def _plan_fields(plan: RevertPlan) -> dict[str, object]:
    undone = tuple(one.undone for one in plan.tables.values())
    return {"tables": tuple(one.table for one in undone), "reverts": plan.reverts, "undone": undone}


def _commit(
    context: Context, progress: Progress, plan_at: PlanAt, planned_at: Ref, plan: RevertPlan, text: str
) -> None:
    run = progress.run
    states: tuple[TablePointer, ...] | None = None
    appended: dict[TableIdentifier, _RebasedAppends] = {}
    kept = ExitStack()

    def build(head: Ref) -> CommitRequest | str:
        nonlocal plan, planned_at, states
        if head != planned_at:
            # The head may be our own commit: if a request is sent twice, the second answer is a conflict.
            own = find_publication(context, run, since=planned_at.hash)
            if own is not None:
                return own.commit
            if not _is_still_valid(context, plan, planned_at, head):
                plan, states = plan_at(head), None
                # If this process is killed after the commit, recovery publishes the run as the journal has it.
                progress.update(**_plan_fields(plan))
            planned_at = head
        if plan.nothing:
            return head.hash
        is_new = states is None
        if states is None:
            begun = _with_appends(context, run.run_id, plan, appended)
            states = tuple(
                _write(context, run.run_id, one, begun[name]) for name, one in plan.tables.items() if one.base
            )
        request = _request(context, progress.run, plan, states, head)
        if is_new and request.puts:
            kept.enter_context(keep_files(context, head, f"{run.run_id}.{new_run_id()[-8:]}", request))
        return request

    failpoints.reach("before-publish")
    unknown = OutcomeUnknownError(
        f"The catalog became unavailable while run {run.run_id} changed {run.table}; the change may or may not be "
        "published.",
        hint="When the catalog is back: lakegate log --limit 5",
        run_id=run.run_id,
    )
    lock = publish_lock(context, run.target, run.tables)
    with progress.step("publish"), context.narrator.step(text), ExitStack() as locked, kept:
        # Rebase before taking the lock, so that only later appends are left to do while others wait.
        _with_appends(context, run.run_id, plan, appended)
        locked.enter_context(lock)
        commit = commit_on_head(context, run.target, run.run_id, build, unknown=unknown, confirm=progress.require_lease)
    failpoints.reach("after-publish")
    if plan.nothing:
        progress.end(status="skipped", detail=plan.nothing)
        return
    publication = Publication(run_id=run.run_id, target=run.target, commit=commit, tables=progress.run.tables, rows=0)
    progress.end(status="published", publication=publication)


def _is_still_valid(context: Context, plan: RevertPlan, planned_at: Ref, head: Ref) -> bool:
    """Return whether the plan still holds after later commits, so that other publishes don't starve a revert."""
    commits = list(context.catalog.history(head.hash, until=planned_at.hash, operations=True))
    if plan.nothing or not commits or commits[-1].parent != planned_at.hash:
        return False
    ours = {str(table) for table in plan.tables}
    return all(
        kind_of(commit) is None and ours.isdisjoint((*commit.tables, *tables_in(commit), *reads_in(commit)))
        for commit in commits
    )


@dataclass(frozen=True, slots=True)
class _RebasedAppends:
    """The state ``base`` that a table goes back to, with later appends rebased onto it.

    Attributes:
        appends: The commit and the run of each of them.
        pointer: The result.
    """

    base: TablePointer
    appends: Sequence[tuple[str, str | None]]
    pointer: TablePointer


def _with_appends(
    context: Context, run_id: str, plan: RevertPlan, known: dict[TableIdentifier, _RebasedAppends]
) -> Mapping[TableIdentifier, TablePointer]:
    """Return the state that each table of a plan goes back to, with the later appends that stay.

    Args:
        known: What has been rebased so far; updated in place.
    """
    for table, one in plan.tables.items():
        if one.base is not None:
            with _as_revert_error(run_id, one):
                known[table] = _rebased(context, one, one.base, known.get(table))
    return {table: one.pointer for table, one in known.items()}


def _rebased(context: Context, plan: TablePlan, base: TablePointer, done: _RebasedAppends | None) -> _RebasedAppends:
    appends = [(one.commit.hash, run_of(one.commit)) for one in plan.appends]
    if done is None or done.base != base or appends[: len(done.appends)] != done.appends:
        done = _RebasedAppends(base, [], base)
    pointer = context.editor.raise_counters(done.pointer, plan.now, by_sequence=False)
    for start in range(len(done.appends), len(appends), _APPENDS_TOGETHER):
        later = plan.appends[start : start + _APPENDS_TOGETHER]
        sources = [(one.after, one.change.snapshot_ids) for one in later if one.after is not None]
        # These rows stay on the target, so they keep their row ids and last-updated sequence numbers.
        pointer, refused = context.editor.rebase_each(sources, pointer, keep_row_ids=True)
        for error in refused.values():
            raise error
    return _RebasedAppends(base, appends, pointer)


def _write(context: Context, run_id: str, plan: TablePlan, pointer: TablePointer) -> TablePointer:
    """Write the metadata of the planned state: the state at ``pointer`` without the dropped files. Return it."""
    with _as_revert_error(run_id, plan):
        pointer = context.editor.raise_counters(pointer, plan.now)
        if plan.drops:
            pointer = context.editor.drop_files(pointer, plan.drops, {RUN_ID_PROPERTY: run_id})
        if is_quarantine(pointer.table):
            # A state from before a rename names its table by the old name.
            owner = str(table_of(pointer.table))
            if context.reader.metadata(pointer).properties.get(QUARANTINE_OF_PROPERTY, owner) != owner:
                pointer = context.editor.with_properties(pointer, {QUARANTINE_OF_PROPERTY: owner})
    return pointer


@contextmanager
def _as_revert_error(run_id: str, plan: TablePlan) -> Iterator[None]:
    try:
        yield
    except NotReplayableError as error:
        raise NotRevertableError(
            f"Can't remove these rows from {plan.undone.table}: {error.message}",
            hint=f"To restore the table to an earlier state: lakegate table restore {plan.undone.table} --at TIME",
            run_id=run_id,
            table=plan.undone.table,
        ) from error


def _request(
    context: Context, run: Run, plan: RevertPlan, states: tuple[TablePointer, ...], head: Ref
) -> CommitRequest:
    properties = {
        RUN_ID_PROPERTY: run.run_id,
        KIND_PROPERTY: run.kind if run.kind in ("revert", "restore") else "",
        TABLES_PROPERTY: " ".join(run.tables),
        REVERTS_PROPERTY: packed(" ".join(plan.reverts)),  # a drop or restore may revert every run of its table
        REVIVES_PROPERTY: encode_revived(*_restored_files(plan)) if plan.restored or plan.unpublished else "",
        UNPUBLISHES_PROPERTY: " ".join(plan.unpublished),
        RENAMES_PROPERTY: " ".join(name for pair in plan.renames for name in pair),
        FILES_PROPERTY: RENAMING if plan.renames else "",
        FORMERLY_PROPERTY: " ".join(name for pair in plan.formerly for name in pair),
    }
    return CommitRequest(
        branch=run.target,
        base=head.hash,
        message=plan.message,
        puts=states,
        deletes=tuple(table for table, one in plan.tables.items() if one.base is None),
        # Only at the head: a run that only read these tables changes none of them, so its commit wouldn't conflict.
        at_head=True,
        namespaces=namespaces_for(context, states, head),
        properties={key: value for key, value in properties.items() if value},
    )


def _restored_files(plan: RevertPlan) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """Return the table, URI, version and run of each source file that is restored, newest first, and their identities.

    A run without source files is restored if all of its tables are; then URI and version are empty.
    """
    changed = {str(table) for table in plan.tables}
    found: list[tuple[str, str, str, str]] = []
    identities: list[str] = []
    for commit in plan.restored:
        files = files_in(commit)
        own = list(zip(files, identities_in(commit) or [""] * len(files), strict=True))[::-1]
        if not files and changed >= set(tables_in(commit)):
            own = [(("", ""), "")]
        for table in tables_in(commit):
            if table in changed:
                found += [(table, uri, version, run_of(commit) or "") for (uri, version), _ in own]
                identities += [identity for _, identity in own]
    return found, identities
