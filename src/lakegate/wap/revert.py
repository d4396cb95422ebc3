"""Revert runs, restore tables, and reset branches. Reverts and restores are runs of their own, in the journal.

A revert undoes a publish in one commit across its tables, and keeps later publishes. It works on each table in one of
these ways, and is refused as a whole if there's a table where none is possible:

- the run created the table, and nothing since stands: the table is dropped;
- the data files that the run added are all there, and nothing deletes rows from them: they're dropped;
- only appends came since: the state before the run is put back, and the appends are added to it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError, NotRevertableError
from lakegate.ledger.event import UNDOES, Event, File, event_of, family, run_of
from lakegate.ledger.publication import files_of_snapshots, find_commit
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import is_quarantine, table_of
from lakegate.model.refs import MAIN, Commit, Ref, TablePointer
from lakegate.model.run import Action, Run, UndoneTable
from lakegate.model.tables import DataFile
from lakegate.points import require_branch
from lakegate.wap.quarantine import quarantine_table
from lakegate.wap.retention import is_kept, require_kept, too_old
from lakegate.wap.table_commit import TablePlan, TablesPlan, dropped_table, rows_and_files, run_plan
from lakegate.wap.table_history import BY_ANOTHER, Change, TableHistory, delete_files


def revert(
    context: Context,
    run_id: str,
    *,
    new_run_id: str,
    target: str = MAIN,
    dry_run: bool = False,
    action: Action | None = None,
) -> Run:
    """Revert what ``run_id`` published, in one commit. Its source files can be ingested again.

    Args:
        action: Who reverts it, to be recorded with the revert.

    Returns:
        The new run, ``published``; ``skipped`` for a dry run.

    Raises:
        NotRevertableError: When later runs depend on it, or its data files aren't there any more.
        InputError: When it's already reverted, or is itself a revert, a restore or a rename.
        NotFoundError: When there's no such run.
        LakegateError: As for :func:`~lakegate.wap.table_commit.run_plan`.
    """

    def plan_at(head: Ref) -> TablesPlan:
        commit = _commit_to_revert(context, run_id, head)
        _require_publish(context, commit)
        history = TableHistory(context, head, since=commit.parent)
        return _Revert(context, history, history.commit_of(run_id), head).plan()

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


def _commit_to_revert(context: Context, run_id: str, head: Ref) -> Commit:
    try:
        return find_commit(context, run_id, head)
    except NotFoundError:
        run = context.journal.get(run_id)
        if run is None or run.publication is not None:
            raise
        raise InputError(
            f"Run {run_id} is {run.status}: it published nothing, so there's nothing to revert.",
            hint=f"lakegate runs {run_id}",
            run_id=run_id,
        ) from None


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
        InputError: When that state was replaced longer than ``gc.keep`` ago; when the commit isn't in the history of
            ``main``; when the table was renamed since; or when ``table`` is a quarantine table.
        LakegateError: As for :func:`~lakegate.wap.table_commit.run_plan`.
    """
    if is_quarantine(table):
        # Which runs stand is recorded for both as one, so neither can go back without the other.
        raise InputError(
            f"{table} can't be restored alone: it's the quarantine table of {table_of(table)}.",
            hint=f"To restore both: lakegate table restore {table_of(table)} --at {at.hash[:12]}",
            table=str(table),
        )
    then = context.catalog.get_table(table, at)
    if then is None:
        raise NotFoundError(
            f"Table {table} didn't exist at commit {at.hash[:12]}.",
            hint=f"To see which commits changed it: lakegate log {MAIN}",
            table=str(table),
            commit=at.hash,
        )

    def plan_at(head: Ref) -> TablesPlan:
        plans = {table: _restored(context, context.catalog.get_table(table, head), then)}
        quarantine, quarantine_then = quarantine_table(context, table, head), quarantine_table(context, table, at)
        if quarantine_then is not None:
            plans[quarantine_then.table] = _restored(context, quarantine, quarantine_then)
        elif quarantine is not None:
            plans[quarantine.table] = TablePlan(None, dropped_table(context, quarantine), now=quarantine)
        changed = {name: plan for name, plan in plans.items() if not _is_unchanged(plan)}
        if not changed:
            return TablesPlan("", plans, nothing=f"{table} is as it was at commit {at.hash[:12]}; nothing to do.")
        history = TableHistory(context, head, since=at.hash)
        if not history.is_whole:
            raise InputError(
                f"Commit {at.hash[:12]} isn't in the history of '{MAIN}'.",
                hint=f"lakegate log {MAIN}",
                commit=at.hash,
                ref=MAIN,
            )
        _require_restorable(history, table)
        superseded = next(one.time for one in history.commits if str(table) in map(family, one.tables))
        if not is_kept(context, superseded):
            raise too_old(context, f"That state of {table}")
        gained = history.span.gained(str(table))[::-1]
        lost = _files_of(context, history.span.lost(str(table)), head)
        plan = TablesPlan(
            f"Restore {table} as at commit {at.hash[:12]}",
            changed,
            removes=dict.fromkeys(changed, gained),
            adds=dict.fromkeys(changed, lost),
        )
        history.require_whole(plan, f"{table} can't be restored to its state at commit {at.hash[:12]}")
        return plan

    return run_plan(context, plan_at, run_id=new_run_id, kind="restore", text=f"Restoring {table}")


def reset_branch(context: Context, name: str, to: Ref, *, force: bool = False) -> Ref:
    """Point a branch at another commit. Commits that only this branch had are lost.

    Args:
        force: Whether the branch may be ``main``.

    Raises:
        NotFoundError: When the branch doesn't exist.
        InputError: When it's a tag, or ``main`` without ``force``, or when the commit is older than ``gc.keep``.
        ConflictError: When something was committed to it in the meantime.
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
    require_kept(context, to)
    moved = context.catalog.assign_ref(ref, to)
    if name == MAIN:
        sync(context, MAIN)
    return moved


class _Revert:
    """Plans the revert of one run, table by table, and collects the later commits that prevent it."""

    def __init__(self, context: Context, history: TableHistory, commit: Commit, head: Ref) -> None:
        self._context = context
        self._history = history
        self._commit = commit
        self._event = history.event(commit)
        self._run_id = self._event.run
        self._head = head
        self._blocking: dict[str, str] = {}  # what a later commit did, by its name

    def plan(self) -> TablesPlan:
        """Return the plan.

        Raises:
            NotRevertableError: When that's impossible.
            InputError: When the run is already reverted.
        """
        by = {name: self._history.span.remover(name, self._run_id) for name in self._event.tables}
        tables = [TableIdentifier.stored(name) for name, run_id in by.items() if run_id is None]
        if not tables:
            self._refuse_again(next(filter(None, by.values())))
        plans = {table: plan for table in tables if (plan := self._plan_table(table)) is not None}
        if self._blocking:
            later = "; ".join(f"{commit} {what}" for commit, what in self._blocking.items())
            self._refuse(later, tables[0], dependents=[name.removeprefix("run ") for name in self._blocking])
        replaced = _files_of(self._context, self._event.reverts, self._head)
        adds = {
            table: {run: files for run, files in replaced.items() if run in self._event.tables[str(table)].remove}
            for table in plans
        }
        self._require_not_published_again(adds)
        removes = dict.fromkeys(plans, (self._run_id,))
        whole = TablesPlan(f"Revert {self._commit.message!r}", plans, removes=removes, adds=adds)
        self._history.require_whole(whole, f"Run {self._run_id} can't be reverted")
        return whole

    def _plan_table(self, table: TableIdentifier) -> TablePlan | None:
        changes = self._history.changes(table)
        own = next((one for one in changes if run_of(one.commit) == self._run_id), None)
        if own is None:
            return None
        renamed = self._history.rename_of(table, self._commit)
        if renamed is not None:
            old, new = self._history.event(renamed).moved[0]
            self._refuse(f"run {run_of(renamed)} has since renamed {old} to {new}", new)
        now = changes[-1].after
        if now is None:
            self._refuse(f"{table} has since been dropped", table)
        if own.change.kind != "expire":
            self._note_readers(table)
        later = [one for one in self._history.later(own, changes, table) if one.change.kind != "expire"]
        if own.before is None and not later:
            return TablePlan(None, self._undone(table, now, {}, dropped=True), now=now)
        if own.before is None or own.change.only_adds:
            return self._without_files(table, own, later, now)
        return self._as_before(table, own, own.before, later, now)

    def _without_files(
        self, table: TableIdentifier, own: Change, later: Sequence[Change], now: TablePointer
    ) -> TablePlan:
        """Plan to drop the data files that the run added. All of them must still be there, with all of their rows."""
        after = own.after
        added = frozenset[str]()
        if after is not None:
            added = frozenset(self._files(after))
            if own.change.only_adds:
                added = files_of_snapshots(self._context, after, own.change.snapshot_ids)
        files = self._files(now)
        missing = added - files.keys()
        blocking = [one for one in later if missing and not one.change.only_adds]
        if delete_files(self._context, now):
            blocking += [one for one in later if one.adds_delete_files]
        if missing and not blocking:
            self._refuse(f"its data files aren't in {table} any more", table)
        self._block(blocking, f"has since deleted or rewritten its rows in {table}")
        kept = {path: file for path, file in files.items() if path not in added}
        return TablePlan(now, self._undone(table, now, kept), drops=added, now=now)

    def _as_before(
        self, table: TableIdentifier, own: Change, before: TablePointer, later: Sequence[Change], now: TablePointer
    ) -> TablePlan:
        """Plan to put back the state before the run, with the later appends. Nothing else may have come since."""
        if not is_kept(self._context, own.commit.time):
            raise too_old(self._context, f"The state of {table} before run {self._run_id}")
        appends: list[tuple[TablePointer, Sequence[int]]] = []
        files = self._files(before)
        for one in later:
            if not one.change.only_adds or one.before is None or one.after is None:
                self._block([one], f"has since changed {table} by more than adding rows")
            elif self._context.editor.rebase_problem(one.after, one.change.snapshot_ids, before) is not None:
                self._block([one], f"has since added rows that don't fit the earlier state of {table}")
            elif own.change.rows_removed != 0 and str(table) in self._history.event(one.commit).keys:
                self._block([one], f"checked its keys without the rows that would return to {table}")
            else:
                appends.append((one.after, one.change.snapshot_ids))
                added = self._context.reader.added_files(one.after, one.change.snapshot_ids)
                files |= {file.path: file for file in added.files}
        base = before.model_copy(update={"content_id": now.content_id})
        is_unknown = self._context.reader.metadata(before).rows is None
        return TablePlan(
            base, self._undone(table, now, files, is_unknown=is_unknown), appends, now=now, is_earlier=True
        )

    def _note_readers(self, table: TableIdentifier) -> None:
        """Block the revert by later runs that relied on this one's result, and stand."""
        later = self._history.commits[self._history.commits.index(self._commit) + 1 :]
        for commit in later:
            event = self._history.event(commit)
            if str(table) in event.reads and any(
                self._history.span.remover(name, event.run) is None for name in event.tables
            ):
                self._blocking.setdefault(_label(commit), f"read {table} as this run left it")

    def _block(self, changes: Iterable[Change], what: str) -> None:
        for one in changes:
            self._blocking.setdefault(_label(one.commit), what)

    def _require_not_published_again(self, adds: Mapping[TableIdentifier, Mapping[str, Collection[File]]]) -> None:
        """Refuse to bring back a file that was published again since, with whatever content."""
        journal = self._context.journal
        for table, runs in ((str(table), runs) for table, runs in adds.items()):
            back = [file for files in runs.values() for file in files]
            files = [SourceFile(uri=uri, size_bytes=0, version=version, rows=0) for uri, version in back]
            there = [*journal.known(table, files).published, *journal.earlier(table, files)]
            again = next((one for one in there if one.run_id != self._run_id), None)
            if again is not None:
                raise NotRevertableError(
                    f"Run {self._run_id} can't be reverted: that would restore the rows of {again.file.uri}, which run "
                    f"{again.run_id} has since published to {table}.",
                    hint=f"Revert the later run first: lakegate revert {again.run_id}",
                    run_id=self._run_id,
                    table=table,
                    other_run_id=again.run_id,
                )

    def _files(self, pointer: TablePointer) -> dict[str, DataFile]:
        return {file.path: file for file in self._context.reader.files(pointer)}

    def _undone(
        self,
        table: TableIdentifier,
        now: TablePointer,
        after: dict[str, DataFile],
        *,
        is_unknown: bool = False,
        dropped: bool = False,
    ) -> UndoneTable:
        before = self._files(now)
        rows = sum(file.rows for file in after.values()) - sum(file.rows for file in before.values())
        is_unknown = is_unknown or self._context.reader.metadata(now).rows is None  # it has delete files
        return UndoneTable(
            table=str(table),
            rows=None if is_unknown else rows,
            data_files=len(after) - len(before),
            dropped=dropped,
        )

    def _refuse(self, reason: str, table: TableIdentifier | str, dependents: Sequence[str] = ()) -> NoReturn:
        # Of commits without a run, such as a compaction's, none can be reverted.
        can_go_first = dependents and not any(one.startswith("commit ") for one in dependents)
        first = "Revert the later runs first, the newest first. Or restore" if can_go_first else "To restore"
        whole = table_of(table) if isinstance(table, TableIdentifier) and is_quarantine(table) else table
        raise NotRevertableError(
            f"Run {self._run_id} can't be reverted: {reason}.",
            hint=f"{first} the table to an earlier state: lakegate table restore {whole} --at TIME",
            run_id=self._run_id,
            table=str(table),
            dependents=list(dependents),
        )

    def _refuse_again(self, by: str) -> NoReturn:
        table = next(iter(self._event.tables))
        undone = next((one for one in self._history.commits if run_of(one) == by), None)
        parent = self._commit.hash if undone is None else undone.parent
        raise InputError(
            f"Run {self._run_id} is already reverted, by run {by}.",
            hint="You can ingest its source files again, or do again what it did."
            if _is_of_several(self._event)
            else "You can ingest its source files again. To restore its rows, without what came since: "
            f"lakegate table restore {table} --at {parent}",
            run_id=self._run_id,
            reverted_by=by,
        )


def _require_publish(context: Context, commit: Commit) -> None:
    """Refuse to revert a run that undid, renamed or compacted something."""
    event = event_of(commit) or BY_ANOTHER
    run_id, table = event.run, next(iter(event.tables))
    if event.compaction:
        before = next(iter(context.catalog.history(event.compaction))).parent or event.compaction
        raise InputError(
            f"Run {run_id} compacted {table}, which changed no row; it can't be reverted.",
            hint=f"To go back to the files before: lakegate table restore {table} --at {before[:12]}",
            run_id=run_id,
        )
    if event.moved:
        old, new = event.moved[0]
        raise InputError(
            f"Run {run_id} renamed {old} to {new}; a rename can't be reverted.",
            hint=f"To rename it back: lakegate table rename {new} {old}",
            run_id=run_id,
        )
    if event.kind in UNDOES:
        raise InputError(
            f"Run {run_id} is a {event.kind}; it can't be reverted.",
            hint=f"Do again what run {event.reverts[0]} did."
            if event.kind == "revert" and _is_of_several(event)
            else f"To restore the table's state before it: lakegate table restore {table} --at {commit.parent}",
            run_id=run_id,
        )


def _is_of_several(event: Event) -> bool:
    """Return whether a commit has several tables, so that no restore of one of them can bring back what it removed."""
    return len(set(map(family, event.tables))) > 1


def _require_restorable(history: TableHistory, table: TableIdentifier) -> None:
    """Refuse to restore a table across a rename."""
    renamed = history.rename_of(table)
    if renamed is not None:
        old, new = history.event(renamed).moved[0]
        raise InputError(
            f"{table} can't be restored to that state: run {run_of(renamed)} has since renamed {old} to {new}.",
            hint=f"Choose a state since then: lakegate table restore {new} --at {renamed.hash}",
            table=str(table),
            run_id=run_of(renamed),
        )


def _restored(context: Context, now: TablePointer | None, then: TablePointer) -> TablePlan:
    base = then.model_copy(update={"content_id": None if now is None else now.content_id})
    after = context.reader.metadata(then)
    rows, files = (0, 0) if now is None else rows_and_files(context, now)
    undone = UndoneTable(
        table=str(then.table),
        rows=None if after.rows is None or rows is None else after.rows - rows,
        data_files=(after.data_files or 0) - files,
    )
    return TablePlan(base, undone, now=now, is_earlier=True)


def _is_unchanged(plan: TablePlan) -> bool:
    return plan.base is not None and plan.now is not None and plan.base.metadata_location == plan.now.metadata_location


def _files_of(context: Context, runs: Iterable[str], head: Ref) -> dict[str, tuple[File, ...]]:
    """Return the source files of runs, oldest first: so the newest version of a file counts as its newest again."""
    commits = sorted((find_commit(context, run_id, head) for run_id in runs), key=lambda one: one.time)
    events = (event_of(commit) or BY_ANOTHER for commit in commits)
    return {event.run: event.files for event in events}


def _label(commit: Commit) -> str:
    run_id = run_of(commit)
    return f"run {run_id}" if run_id else f"commit {commit.hash[:12]} ({commit.message})"
