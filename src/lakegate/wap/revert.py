"""Revert runs, restore tables, and reset branches. Reverts and restores are runs of their own, in the journal.

A revert undoes a publish in one commit across its tables, and keeps later publishes. It works on each table in one of
these ways, and is refused as a whole if there's a table where none is possible:

- the run created the table, and nothing since stands: the table is dropped;
- the data files that the run added are all there, and nothing deletes rows from them: they're dropped;
- only appends came since: the state before the run is put back, and the appends are added to it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError, NotRevertableError
from lakegate.ledger.event import (
    COMPACTION_PROPERTY,
    files_in,
    keys_in,
    kind_of,
    reads_in,
    renames_in,
    reverts_in,
    revived_in,
    run_of,
    tables_in,
)
from lakegate.ledger.publication import files_of_snapshots, find_commit
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import SUFFIX, is_quarantine, table_of
from lakegate.model.refs import MAIN, Commit, Ref, TablePointer
from lakegate.model.run import Action, Run, UndoneTable
from lakegate.model.tables import DataFile, TableChange
from lakegate.points import require_branch
from lakegate.wap.quarantine import quarantine_table
from lakegate.wap.reachable import is_kept, require_kept, too_old
from lakegate.wap.table_commit import TablePlan, TablesPlan, dropped_table, rows_and_files, run_plan


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
        NotFoundError: When it wasn't published.
        LakegateError: As for :func:`~lakegate.wap.table_commit.run_plan`.
    """

    def plan_at(head: Ref) -> TablesPlan:
        commit = find_commit(context, run_id, head)
        _require_publish(context, commit)
        history = _History(context, head, since=commit.parent)
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
        history = _History(context, head, since=at.hash)
        if not history.is_whole:
            raise InputError(
                f"Commit {at.hash[:12]} isn't in the history of '{MAIN}'.",
                hint=f"lakegate log {MAIN}",
                commit=at.hash,
                ref=MAIN,
            )
        _require_restorable(history, table)
        superseded = next(one.time for one in history.commits if not _family(table).isdisjoint(one.tables))
        if not is_kept(context, superseded):
            raise too_old(context, f"That state of {table}")
        lost, regained = history.difference(table)
        return TablesPlan(
            f"Restore {table} as at commit {at.hash[:12]}",
            changed,
            reverts=lost,
            revives=_revived(context, regained, changed, head),
        )

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


@dataclass(frozen=True, eq=False)
class _Change:
    """What one commit did to one table; ``None`` where the table didn't exist."""

    context: Context
    commit: Commit
    before: TablePointer | None
    after: TablePointer | None

    @cached_property
    def change(self) -> TableChange:
        """The change, classified by lineage and metadata."""
        return self.context.reader.change(self.before, self.after)

    @property
    def adds_delete_files(self) -> bool:
        """Whether it deletes rows from data files that stay."""
        if any(int(snapshot.summary.get("added-delete-files", 0)) for snapshot in self.change.written):
            return True
        # Of a change in several steps, only the last one is published.
        before, after = (_delete_files(self.context, state) for state in (self.before, self.after))
        return before < after


class _History:
    """The commits of a branch after ``since`` up to ``head``, oldest first.

    A table and its quarantine table count as one here: a run that is reverted in one of them is in both.

    Args:
        since: Hash of the commit before the first one; ``None`` for all.

    Attributes:
        is_whole: Whether ``since`` is in the history of ``head``.
    """

    def __init__(self, context: Context, head: Ref, *, since: str | None) -> None:
        self._context = context
        self._since = since
        self.commits = list(context.catalog.history(head.hash, until=since, operations=True))[::-1]
        self.is_whole = bool(self.commits) and self.commits[0].parent == since

    def commit_of(self, run_id: str) -> Commit:
        """Return the commit of a run."""
        return next(commit for commit in self.commits if run_of(commit) == run_id)

    def changes(self, table: TableIdentifier) -> Sequence[_Change]:
        """Return the changes of ``table``, oldest first."""
        state = None
        if self._since is not None:
            state = self._context.catalog.get_table(table, Ref.detached(self._since))
        changes: list[_Change] = []
        for commit in self.commits:
            if str(table) in commit.tables:
                before, state = state, next((pointer for pointer in commit.puts if pointer.table == table), None)
                changes.append(_Change(self._context, commit, before, state))
        return changes

    def reverters(self, table: TableIdentifier | str) -> dict[str, str | None]:
        """Return the run that took back each run in ``table``, as far as these commits say; ``None`` if it stands."""
        return {run_id: by[-1] for run_id, by in self._effects(table).items()}

    def difference(self, table: TableIdentifier) -> tuple[Sequence[str], Sequence[str]]:
        """Return the runs that stand in ``table`` only after these commits, and those that do only before them."""
        effects = self._effects(table)
        lost = [run_id for run_id, (stood, by) in effects.items() if not stood and by is None]
        regained = [run_id for run_id, (stood, by) in effects.items() if stood and by is not None]
        return lost[::-1], regained

    def _effects(self, table: TableIdentifier | str) -> dict[str, tuple[bool, str | None]]:
        """Return whether each run stood in ``table`` before these commits, and what took it back since."""
        names = _family(table)
        effects: dict[str, tuple[bool, str | None]] = {}
        for commit in self.commits:
            run_id = run_of(commit)
            if run_id is None or renames_in(commit) or names.isdisjoint(tables_in(commit)):
                continue
            for reverted in reverts_in(commit):
                effects[reverted] = effects.get(reverted, (True, None))[0], run_id
            for name, _, _, revived in revived_in(commit):
                if name in names:
                    effects[revived] = effects.get(revived, (False, None))[0], None
            effects[run_id] = False, None
        return effects

    def later(self, change: _Change, changes: Sequence[_Change], table: TableIdentifier) -> Sequence[_Change]:
        """Return those of a table's ``changes`` after one that stand; a revert that only undoes later ones doesn't."""
        reverters = self.reverters(table)
        after = changes[changes.index(change) + 1 :]
        runs = {run_of(one.commit) for one in after}

        def stands(one: _Change) -> bool:
            undoes_later = kind_of(one.commit) == "revert" and runs.issuperset(reverts_in(one.commit))
            return reverters.get(run_of(one.commit) or "") is None and not undoes_later

        return [one for one in after if stands(one)]

    def rename_of(self, table: TableIdentifier, since: Commit | None = None) -> Commit | None:
        """Return the first commit after ``since`` that renamed ``table`` or gave its name to another one."""
        start = 0 if since is None else self.commits.index(since) + 1
        return next((one for one in self.commits[start:] if any(str(table) in pair for pair in renames_in(one))), None)


class _Revert:
    """Plans the revert of one run, table by table, and collects the later commits that prevent it."""

    def __init__(self, context: Context, history: _History, commit: Commit, head: Ref) -> None:
        self._context = context
        self._history = history
        self._commit = commit
        self._run_id = run_of(commit) or ""
        self._head = head
        self._blocking: dict[str, str] = {}  # what a later commit did, by its name

    def plan(self) -> TablesPlan:
        """Return the plan.

        Raises:
            NotRevertableError: When that's impossible.
            InputError: When the run is already reverted.
        """
        by = {name: self._history.reverters(name).get(self._run_id) for name in tables_in(self._commit)}
        tables = [TableIdentifier.stored(name) for name, run_id in by.items() if run_id is None]
        if not tables:
            self._refuse_again(next(filter(None, by.values())))
        plans = {table: plan for table in tables if (plan := self._plan_table(table)) is not None}
        if self._blocking:
            later = "; ".join(f"{commit} {what}" for commit, what in self._blocking.items())
            self._refuse(later, tables[0], dependents=[name.removeprefix("run ") for name in self._blocking])
        replaced = reverts_in(self._commit)
        return TablesPlan(
            f"Revert {self._commit.message!r}",
            plans,
            reverts=(self._run_id,),
            revives=self._require_not_published_again(_revived(self._context, replaced, plans, self._head)),
        )

    def _plan_table(self, table: TableIdentifier) -> TablePlan | None:
        changes = self._history.changes(table)
        own = next((one for one in changes if run_of(one.commit) == self._run_id), None)
        if own is None:
            return None
        renamed = self._history.rename_of(table, self._commit)
        if renamed is not None:
            old, new = renames_in(renamed)[0]
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
        self, table: TableIdentifier, own: _Change, later: Sequence[_Change], now: TablePointer
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
        if _delete_files(self._context, now):
            blocking += [one for one in later if one.adds_delete_files]
        if missing and not blocking:
            self._refuse(f"its data files aren't in {table} any more", table)
        self._block(blocking, f"has since deleted or rewritten its rows in {table}")
        kept = {path: file for path, file in files.items() if path not in added}
        return TablePlan(now, self._undone(table, now, kept), drops=added, now=now)

    def _as_before(
        self, table: TableIdentifier, own: _Change, before: TablePointer, later: Sequence[_Change], now: TablePointer
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
            elif own.change.rows_removed != 0 and str(table) in keys_in(one.commit):
                self._block([one], f"checked its keys without the rows that would return to {table}")
            else:
                appends.append((one.after, one.change.snapshot_ids))
                added = self._context.reader.added_files(one.after, one.change.snapshot_ids)
                files |= {file.path: file for file in added.files}
        base = before.model_copy(update={"content_id": now.content_id})
        is_unknown = self._context.reader.metadata(before).rows is None
        return TablePlan(base, self._undone(table, now, files, is_unknown=is_unknown), appends, now=now)

    def _note_readers(self, table: TableIdentifier) -> None:
        """Block the revert by later runs that relied on this one's result, and stand."""
        later = self._history.commits[self._history.commits.index(self._commit) + 1 :]
        for commit in later:
            if str(table) in reads_in(commit) and any(
                self._history.reverters(name).get(run_of(commit) or "") is None for name in tables_in(commit)
            ):
                self._blocking.setdefault(_label(commit), f"read {table} as this run left it")

    def _block(self, changes: Iterable[_Change], what: str) -> None:
        for one in changes:
            self._blocking.setdefault(_label(one.commit), what)

    def _require_not_published_again(
        self, revived: Sequence[tuple[str, str, str, str]]
    ) -> Sequence[tuple[str, str, str, str]]:
        """Refuse to bring back a file that was published again since, with whatever content."""
        journal = self._context.journal
        for table in dict.fromkeys(table for table, *_ in revived):
            files = [
                SourceFile(uri=uri, size_bytes=0, version=version, rows=0)
                for name, uri, version, _ in revived
                if name == table and uri
            ]
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
        return revived

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
        table = tables_in(self._commit)[0]
        undone = next((one for one in self._history.commits if run_of(one) == by), None)
        parent = self._commit.hash if undone is None else undone.parent
        raise InputError(
            f"Run {self._run_id} is already reverted, by run {by}.",
            hint="You can ingest its source files again. To restore its rows, without what came since: "
            f"lakegate table restore {table} --at {parent}",
            run_id=self._run_id,
            reverted_by=by,
        )


def _require_publish(context: Context, commit: Commit) -> None:
    """Refuse to revert a run that undid, renamed or compacted something."""
    kind, run_id, table = kind_of(commit), run_of(commit), tables_in(commit)[0]
    renames, compaction = renames_in(commit), commit.properties.get(COMPACTION_PROPERTY)
    if compaction is not None:
        before = next(iter(context.catalog.history(compaction))).parent or compaction
        raise InputError(
            f"Run {run_id} compacted {table}, which changed no row; it can't be reverted.",
            hint=f"To go back to the files before: lakegate table restore {table} --at {before[:12]}",
            run_id=run_id,
        )
    if renames:
        old, new = renames[0]
        raise InputError(
            f"Run {run_id} renamed {old} to {new}; a rename can't be reverted.",
            hint=f"To rename it back: lakegate table rename {new} {old}",
            run_id=run_id,
        )
    if kind is not None:
        raise InputError(
            f"Run {run_id} is a {kind}; it can't be reverted.",
            hint=f"To restore the table's state before it: lakegate table restore {table} --at {commit.parent}",
            run_id=run_id,
        )


def _require_restorable(history: _History, table: TableIdentifier) -> None:
    """Refuse to restore a table across a rename."""
    renamed = history.rename_of(table)
    if renamed is not None:
        old, new = renames_in(renamed)[0]
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
    return TablePlan(base, undone, now=now)


def _is_unchanged(plan: TablePlan) -> bool:
    return plan.base is not None and plan.now is not None and plan.base.metadata_location == plan.now.metadata_location


def _revived(
    context: Context, runs: Iterable[str], tables: Collection[TableIdentifier], head: Ref
) -> list[tuple[str, str, str, str]]:
    """Return the source files of runs whose rows come back to ``tables``; see :class:`TablesPlan`."""
    names = {str(table) for table in tables if not is_quarantine(table)}
    changed = set(map(str, tables))
    lines: list[tuple[str, str, str, str]] = []
    # In this order, the newest version of a file counts as its newest again.
    for commit in sorted((find_commit(context, run_id, head) for run_id in runs), key=lambda one: one.time):
        files, run_id = files_in(commit), run_of(commit) or ""
        if files:
            lines += [(name, uri, version, run_id) for name in names for uri, version in files]
        elif changed >= set(tables_in(commit)):
            lines += [(name, "", "", run_id) for name in names]
    return lines


def _delete_files(context: Context, pointer: TablePointer | None) -> int:
    """Return how many delete files a table has."""
    snapshot = None if pointer is None else context.reader.metadata(pointer).snapshot
    return 0 if snapshot is None else int(snapshot.summary.get("total-delete-files", 0))


def _family(table: TableIdentifier | str) -> frozenset[str]:
    """Return the names of a table and its quarantine table, given one of them."""
    name = str(table).removesuffix(SUFFIX)
    return frozenset((name, f"{name}{SUFFIX}"))


def _label(commit: Commit) -> str:
    run_id = run_of(commit)
    return f"run {run_id}" if run_id else f"commit {commit.hash[:12]} ({commit.message})"
