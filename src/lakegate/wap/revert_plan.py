"""Plan a revert: the new state of each table, and the later runs that depend on what is reverted.

To revert a run that only added rows, the plan drops its data files from the current table. To revert any other run, the
plan goes back to the state before it and rebases later appends onto that. This module writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lakegate.errors import NotRevertableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import SUFFIX
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.run import UndoneTable
from lakegate.model.tables import DataFile, TableChange
from lakegate.wap.context import Context
from lakegate.wap.history import (
    KEYS_PROPERTY,
    READS_PROPERTY,
    TABLES_PROPERTY,
    files_in,
    files_of_snapshots,
    find_commit,
    formerly_in,
    identities_in,
    keys_in,
    kind_of,
    reads_in,
    renames_in,
    reverts_in,
    run_of,
    tables_in,
    undo_renames,
    with_quarantine_renames,
)

_Key = tuple[str, str | None]
_LIST_TABLES = (TABLES_PROPERTY, READS_PROPERTY, KEYS_PROPERTY)


def _key(commit: Commit) -> _Key:
    """Return what identifies a commit, or one run's part of it."""
    return commit.hash, run_of(commit)


@dataclass(frozen=True, eq=False)
class CommitChange:
    """What one commit did to one table; ``None`` where the table didn't exist."""

    context: Context
    commit: Commit
    table: TableIdentifier
    before: TablePointer | None
    after: TablePointer | None

    @cached_property
    def change(self) -> TableChange:
        """The change, classified by lineage and metadata."""
        return self.context.reader.change(self.before, self.after)

    @property
    def only_adds(self) -> bool:
        """Whether it only added rows, to a table that may not have existed."""
        return self.change.only_adds

    @property
    def changes_nothing(self) -> bool:
        """Whether it changed no rows, so that nothing depends on it: it expired snapshots, or renamed the table."""
        return bool(renames_in(self.commit)) or self.change.kind == "expire"

    @property
    def only_compacts(self) -> bool:
        """Whether it only listed or stored the same rows in other files, by more than the snapshots' own word."""
        change = self.context.reader.change(self.before, self.after, compacted=True)
        return change.kind == "append" and not change.snapshots

    @property
    def removes_rows(self) -> bool:
        """Whether it may have removed rows, which a revert returns."""
        return not self.only_adds and not self.only_compacts and self.change.rows_removed != 0

    @property
    def adds_delete_files(self) -> bool:
        """Whether it deletes rows from data files that stay."""
        if any(int(snapshot.summary.get("added-delete-files", 0)) for snapshot in self.change.written):
            return True
        # Of a change in several steps, only the last one is published.
        before, after = (_delete_files(self.context, state) for state in (self.before, self.after))
        return before < after


def _delete_files(context: Context, pointer: TablePointer | None) -> int:
    """Return how many delete files a table has."""
    snapshot = None if pointer is None else context.reader.metadata(pointer).snapshot
    return 0 if snapshot is None else int(snapshot.summary.get("total-delete-files", 0))


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How one table changes.

    Attributes:
        base: The state to start from; ``None`` drops the table.
        undone: The run's record of the change.
        appends: Later appends to rebase onto ``base``, oldest first.
        drops: Paths of data files to drop after that.
        now: The state that is replaced.
    """

    base: TablePointer | None
    undone: UndoneTable
    appends: tuple[CommitChange, ...] = ()
    drops: frozenset[str] = frozenset()
    now: TablePointer | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether the table has the planned state already."""
        return (
            self.base is not None and self.now is not None and self.base.metadata_location == self.now.metadata_location
        )


@dataclass(frozen=True, slots=True)
class RevertPlan:
    """What to commit on top of one head.

    Attributes:
        reverts: Runs to revert, newest first.
        restored: Commits of runs whose rows are restored, newest first.
        unpublished: Runs that lose their rows because the revert that restored them is itself reverted.
        nothing: Why there's nothing to do; ``None`` if there is.
        renames: Old and new names of tables that are renamed.
        formerly: Names that tables had when ``reverts`` wrote to them, each with the current name.
    """

    message: str
    reverts: tuple[str, ...]
    tables: Mapping[TableIdentifier, TablePlan] = field(default_factory=dict)
    restored: tuple[Commit, ...] = ()
    unpublished: tuple[str, ...] = ()
    nothing: str | None = None
    renames: tuple[tuple[str, str], ...] = ()
    formerly: tuple[tuple[str, str], ...] = ()


class BranchHistory:
    """The commits of a branch after ``since`` up to ``head``, oldest first, and which of them are reverted.

    A renamed table has its current name in earlier commits too, so callers needn't know about renames.

    Args:
        head: The branch at its last commit to read.
        since: Hash of the commit before the first one; ``None`` for all.

    Attributes:
        first_names: Names of tables before the first commit, each with the current one if that differs.
        former: Former names of tables, each with the current name.
        gone: Tables that were dropped before a rename gave their name to another table: by the name that they have in
            ``commits``, their own name and the commit of the rename.
    """

    def __init__(self, context: Context, head: Ref, *, since: str | None) -> None:
        self._context = context
        self._head = head
        self._changes: dict[TableIdentifier, list[CommitChange]] = {}
        found = reversed(list(context.catalog.history(head.hash, until=since, operations=True)))
        self._names: dict[_Key, Mapping[str, str]] = {}
        self.first_names: Mapping[str, str] = {}
        self.former: list[tuple[str, str]] = []
        self.gone: dict[str, tuple[str, Commit]] = {}
        self.commits: tuple[Commit, ...] = self._with_current_names(list(found))
        self._runs = {run_id: commit for commit in self.commits if (run_id := run_of(commit))}
        self._reverters: dict[str, list[Commit]] = {}
        for commit in self.commits:
            self._add_reverts(commit)

    def changes(self, table: TableIdentifier) -> Sequence[CommitChange]:
        """Return the changes of ``table``, oldest first."""
        if table not in self._changes:
            found = self._changes[table] = []
            for commit in self.commits:
                if str(table) in commit.tables:
                    shared = bool(found) and found[-1].commit.hash == commit.hash
                    before = found[-1].before if shared else found[-1].after if found else self._before(commit, table)
                    after = next((pointer for pointer in commit.puts if pointer.table == table), None)
                    found.append(CommitChange(self._context, commit, table, before, after))
        return self._changes[table]

    def runs(self, *tables: TableIdentifier) -> Sequence[str]:
        """Return the runs that wrote to one of ``tables``, oldest first, except those that only renamed it."""
        names = set(map(str, tables))
        commits = (one for one in self.commits if not names.isdisjoint(one.tables) and not renames_in(one))
        return [run_id for commit in commits if (run_id := run_of(commit))]

    def commit_of(self, run_id: str) -> Commit:
        """Return the commit of a run in this history, or of one that a commit in it reverts."""
        return self._runs[run_id]

    def change_of(self, run_id: str, table: TableIdentifier) -> CommitChange | None:
        """Return how a run (see :meth:`commit_of`) changed ``table``; ``None`` if it didn't."""
        commit = self._runs[run_id]
        if str(table) not in tables_in(commit):
            return None
        after = next((pointer for pointer in commit.puts if pointer.table == table), None)
        return CommitChange(self._context, commit, table, self._before(commit, table), after)

    def reverter(self, run_id: str, table: TableIdentifier | str, *, without: Collection[str] = ()) -> str | None:
        """Return the run that reverted ``run_id`` in ``table`` or replaced its files; ``None`` if its rows are live.

        Args:
            without: Runs that count as reverted.
        """
        if run_id in without:
            return run_id
        return next((run_of(commit) for commit in self._effective_reverters(run_id, str(table), without)), None)

    def is_in_effect(self, commit: Commit, table: TableIdentifier | str, *, without: Collection[str] = ()) -> bool:
        """Return whether a commit's change of ``table`` is neither reverted nor replaced; see :meth:`reverter`."""
        return self.reverter(run_of(commit) or "", table, without=without) is None

    def appends_versions(self, commit: Commit) -> bool:
        """Return whether its run was to append changed files to their earlier versions, as far as the journal knows."""
        run = self._context.journal.get(run_of(commit) or "")
        request = None if run is None else run.request
        return request is not None and request.mode.appends and request.on_changed == "append"

    def side_effects(self, table: TableIdentifier, reverts: Collection[str]) -> tuple[list[str], list[Commit]]:
        """Return other runs that lose their rows in ``table`` through ``reverts``, and commits that get theirs back."""
        losing, regaining = [], []
        for run_id in self._reverters:
            commit = self._runs[run_id]
            if run_id in reverts or str(table) not in tables_in(commit):
                continue
            now, then = self.is_in_effect(commit, table), self.is_in_effect(commit, table, without=reverts)
            if now and not then:
                losing.append(run_id)
            elif then and not now:
                regaining.append(commit)
        return losing, regaining

    def newest_first(self, commits: Iterable[Commit]) -> tuple[Commit, ...]:
        """Sort ``commits`` from newest to oldest; each is in this history, or reverted by a commit in it."""
        places = {_key(commit): at for at, commit in enumerate(self.commits)}
        return tuple(sorted(commits, key=lambda one: (places.get(_key(one), -1), one.time), reverse=True))

    def is_neutral(self, commit: Commit, table: TableIdentifier, since: Collection[_Key]) -> bool:
        """Return whether a revert only removed from ``table`` what the commits ``since`` had added."""
        reverted = (self._runs[run_id] for run_id in reverts_in(commit))
        return kind_of(commit) == "revert" and all(
            _key(one) in since for one in reverted if str(table) in tables_in(one)
        )

    def _effective_reverters(self, run_id: str, table: str, without: Collection[str]) -> Iterator[Commit]:
        reverters = self._reverters.get(run_id, ())
        # A run reverted in a table is also reverted in its quarantine table, even if that didn't exist at the time.
        written = tables_in(self._runs[run_id]) if reverters else ()
        names = {table, *(one for one in written if f"{one}{SUFFIX}" == table)}
        for commit in reverters:
            by = run_of(commit) or ""
            if names.isdisjoint(tables_in(commit)) or by in without:
                continue
            over = list(self._effective_reverters(by, table, without))
            # A reverted run no longer reverts anything; a run whose files were replaced still does.
            if not over or any(kind_of(one) is None for one in over):
                yield commit

    def _add_reverts(self, commit: Commit) -> None:
        for run_id in reverts_in(commit):
            self._reverters.setdefault(run_id, []).append(commit)
            if run_id not in self._runs:
                names, found = self._names.get(_key(commit), {}), find_commit(self._context, run_id, self._head)
                # A run that knows a table by its new name means another table by the old name.
                former = {then: now for then, now in formerly_in(commit) if now not in tables_in(found)}
                now = {**names, **{then: names.get(name, name) for then, name in former.items()}}
                self.former += [(then, now[then]) for then in former]
                self._runs[run_id] = _renamed(found, now)
                self._names[_key(found)] = now
                self._add_reverts(self._runs[run_id])

    def _before(self, commit: Commit, table: TableIdentifier) -> TablePointer | None:
        """Return a table's state just before a commit, under its current name."""
        if commit.parent is None:
            return None
        parent = Ref.detached(commit.parent)
        names = self._names.get(_key(commit), {})
        then = next((TableIdentifier.stored(old) for old, new in names.items() if new == str(table)), table)
        found = self._context.catalog.get_tables([then], parent)[then]
        return None if found is None else found.model_copy(update={"table": table})

    def _with_current_names(self, commits: Sequence[Commit]) -> tuple[Commit, ...]:
        """Return commits, oldest first, with the names that their tables have after the last commit."""
        names, found = dict[str, str](), list[Commit]()
        for commit in reversed(commits):
            pairs = renames_in(commit)
            called = _renamed(commit, names, without=[old for old, _ in pairs])
            undo_renames(names, pairs, commit.hash)
            renamed = with_quarantine_renames(pairs)
            self.gone |= {names[new]: (new, commit) for _, new in renamed}
            self.former += [(old, names[old]) for old, _ in renamed]
            if names:
                self._names[_key(commit)] = dict(names)
            found.append(called)
        self.first_names = names
        return tuple(reversed(found))


def _renamed(commit: Commit, names: Mapping[str, str], *, without: Collection[str] = ()) -> Commit:
    """Return a commit with its tables renamed, and ``without`` some of them."""
    if not names and not without:
        return commit

    def listed(tables: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(one, one) for one in tables if one not in without)

    changes: dict[str, object] = {
        "tables": listed(commit.tables),
        "puts": tuple(
            put.model_copy(update={"table": TableIdentifier.stored(names.get(str(put.table), str(put.table)))})
            for put in commit.puts
        ),
        "properties": {
            key: " ".join(listed(value.split())) if key in _LIST_TABLES else value
            for key, value in commit.properties.items()
        },
    }
    return commit.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class _Dependent:
    """A later commit that must be reverted together with a run."""

    commit: Commit
    table: TableIdentifier
    what: str

    def __str__(self) -> str:
        return f"{_label(self.commit)} {self.what} {self.table}"


def plan_revert(context: Context, history: BranchHistory, run_id: str, *, cascade: bool) -> RevertPlan:
    """Plan the revert of ``run_id``.

    Args:
        history: The run's commit and all later ones.
        cascade: Whether to also revert the runs that depend on it.

    Raises:
        NotRevertableError: When later runs depend on it and ``cascade`` isn't set, or when one of those can't be
            reverted.
    """
    first = history.commit_of(run_id)
    reverts = {run_id: first}
    dependents: list[_Dependent] = []
    while True:
        planner = _Planner(context, history, reverts)
        tables = planner.plan()
        if not planner.dependents:
            break
        found = sorted(planner.dependents.values(), key=lambda one: -history.commits.index(one.commit))
        for one in found:
            reverts[_cascadable(run_id, one)] = one.commit
        dependents += found
    if dependents and not cascade:
        raise _dependents_error(run_id, dependents)
    message = f"Revert {first.message!r}" + (f" and {len(reverts) - 1} more" if len(reverts) > 1 else "")
    newest_first = sorted(reverts, key=lambda run: -history.commits.index(reverts[run]))
    return _with_side_effects(message, history, tables, newest_first, reverted=run_id)


def plan_restore(message: str, history: BranchHistory, tables: Mapping[TableIdentifier, TablePlan]) -> RevertPlan:
    """Plan to restore tables to earlier states, or to drop them: all runs in ``history`` lose their changes of them."""
    return _with_side_effects(message, history, tables, history.runs(*tables)[::-1])


def _with_side_effects(
    message: str,
    history: BranchHistory,
    tables: Mapping[TableIdentifier, TablePlan],
    reverts: Sequence[str],
    *,
    reverted: str | None = None,
) -> RevertPlan:
    """Return the plan to revert runs, with the other runs that lose their rows or get them back.

    Args:
        reverts: The runs, newest first.
        reverted: The run that the user reverts. It can't be if that would publish source files a second time.
    """
    unpublished: list[str] = []
    restored: dict[_Key, Commit] = {}
    for table in tables:
        losing, regaining = history.side_effects(table, reverts)
        unpublished += losing
        for commit in regaining:
            if reverted is not None:
                _require_not_published_again(history, commit, table, reverts, reverted)
            restored[_key(commit)] = commit
    return RevertPlan(
        message=message,
        reverts=tuple(reverts),
        tables=tables,
        restored=history.newest_first(restored.values()),
        unpublished=tuple(dict.fromkeys(unpublished)),
        formerly=tuple((then, now) for then, now in history.former if now in map(str, tables)),
    )


class _Planner:
    """Plans the revert of some runs, and collects the commits that depend on them."""

    def __init__(self, context: Context, history: BranchHistory, reverts: Mapping[str, Commit]) -> None:
        self._context = context
        self._history = history
        self._reverts = reverts
        self.dependents: dict[_Key, _Dependent] = {}

    def plan(self) -> dict[TableIdentifier, TablePlan]:
        """Return the plan for each table. It's only valid if there are no ``dependents``."""
        plans = {}
        for name in dict.fromkeys(name for commit in self._reverts.values() for name in tables_in(commit)):
            table = TableIdentifier.stored(name)
            mine = [
                one
                for one in self._history.changes(table)
                if run_of(one.commit) in self._reverts and self._history.is_in_effect(one.commit, table)
            ]
            if mine:
                self._require_name(mine[0])
                for one in mine:
                    if not one.only_compacts:
                        self._add_readers(one)
                plans[table] = self._plan_table(table, mine)
        return plans

    def _require_name(self, change: CommitChange) -> None:
        name, commit = self._history.gone.get(str(change.table), (None, None))
        if commit is not None:
            raise NotRevertableError(
                f"Run {run_of(change.commit)} can't be reverted: its table {name} was dropped, and {_label(commit)} "
                "gave that name to another table.",
                hint="Ingest its source files again.",
                run_id=run_of(change.commit),
                table=name,
            )

    def _plan_table(self, table: TableIdentifier, mine: Sequence[CommitChange]) -> TablePlan:
        """Plan how to revert the changes ``mine`` (oldest first) of one table."""
        first, now = mine[0], self._history.changes(table)[-1].after
        files_now = self._files(now)
        if first.before is None and all(one.changes_nothing for one in self._later(first)):
            return TablePlan(
                None, _undone(table, files_now, {}, rows_unknown=self._has_unknown_rows(now), dropped=True)
            )
        reset = next((one for one in mine if one.before is not None and not one.only_adds), None)
        if now is None and reset is None:
            raise _not_revertable(first, f"{table} has since been dropped. Create it again, or restore it first")
        base, files, appends = now, dict(files_now), tuple[CommitChange, ...]()
        drops: frozenset[str] = frozenset()
        if reset is not None and reset.before is not None:
            files = self._files(reset.before)
            appends, drops = self._split_later(reset, files.keys())
            self._add_keyed(mine[mine.index(reset) :])
            content_id = None if now is None else now.content_id
            base = reset.before.model_copy(update={"content_id": content_id})
            for one in appends:
                files |= self._added(one)
        for one in mine[: None if reset is None else mine.index(reset)]:
            drops |= self._files_to_drop(one, base, files.keys())
        kept = {path: file for path, file in files.items() if path not in drops}
        rows_unknown = self._has_unknown_rows(now) or self._has_unknown_rows(base)
        return TablePlan(base, _undone(table, files_now, kept, rows_unknown=rows_unknown), appends, drops, now)

    def _split_later(
        self, reset: CommitChange, files: Collection[str]
    ) -> tuple[tuple[CommitChange, ...], frozenset[str]]:
        """Return the later appends to rebase onto the state before ``reset``, and which of its ``files`` to drop.

        The files to drop are those that later reverts of earlier appends dropped. All other later changes depend on
        ``reset``.
        """
        later = self._later(reset)
        if kind_of(reset.commit) is not None:
            # Later publishes were audited without the rows that would come back.
            self._add_dependents(later, "was audited without the rows that would return to")
            return (), frozenset()
        appends = [one for one in later if one.only_adds and one.before is not None]
        movable = tuple(one for one in appends if self._fits(one, reset))
        self._add_dependents(
            [one for one in appends if one not in movable], "appended rows that don't fit the earlier state of"
        )
        later = [one for one in later if one not in appends]
        since = {_key(one.commit) for one in self._changes_from(reset)}
        others = [one for one in later if not one.changes_nothing]
        taken = {one: self._files_dropped_by(one, since) for one in others}
        redone = {one: paths for one, paths in taken.items() if paths is not None and paths <= set(files)}
        self._add_dependents([one for one in taken if one not in redone], "built on its result in")
        return movable, frozenset[str]().union(*redone.values())

    def _add_keyed(self, undone: Sequence[CommitChange]) -> None:
        """Add later runs whose keys were new without the rows that return with ``undone``, changes of one table."""
        first = next((one for one in undone if one.removes_rows), None)
        if first is not None:
            keyed = [one for one in self._later(first) if str(one.table) in keys_in(one.commit)]
            self._add_dependents(keyed, "checked its keys without the rows that would return to")

    def _fits(self, append: CommitChange, reset: CommitChange) -> bool:
        """Return whether a later append can be rebased onto the state before ``reset``."""
        before, after = reset.before, append.after
        if before is None or after is None:
            return False
        then, now = self._context.reader.metadata(before), self._context.reader.metadata(after)
        same = then.uuid == now.uuid and then.table_schema == now.table_schema
        if same and (before.schema_id, before.spec_id) == (after.schema_id, after.spec_id):
            return True  # the usual case, without reading manifests
        return self._context.editor.rebase_problem(after, append.change.snapshot_ids, before) is None

    def _files_dropped_by(self, change: CommitChange, since: Collection[_Key]) -> frozenset[str] | None:
        """Return the data files that a revert dropped of appends other than ``since``; ``None`` if it did more."""
        if kind_of(change.commit) != "revert":
            return None
        paths = frozenset[str]()
        for run_id in reverts_in(change.commit):
            one = self._history.change_of(run_id, change.table)
            if one is None or _key(one.commit) in since:
                continue
            if one.after is None or one.changes_nothing or not one.only_adds:
                return None
            paths |= files_of_snapshots(self._context, one.after, one.change.snapshot_ids)
        return paths

    def _files_to_drop(self, change: CommitChange, base: TablePointer | None, files: Collection[str]) -> frozenset[str]:
        """Return the data files that ``change`` added. All of them must still be in the table."""
        if change.after is None or base is None:
            return frozenset()
        paths = frozenset(self._files(change.after))
        if change.only_adds:
            paths = files_of_snapshots(self._context, change.after, change.change.snapshot_ids)
        missing = paths - set(files)
        later = self._later(change)
        blocking = [one for one in later if one.adds_delete_files] if _delete_files(self._context, base) else []
        if missing:
            rewriting = (one for one in later if not one.only_adds)
            blocking += [one for one in rewriting if not missing <= self._files(one.after).keys()]
        self._add_dependents(blocking, "deleted or rewrote the reverted rows in")
        if missing and not blocking:
            raise _not_revertable(change, f"its data files aren't in {change.table} any more")
        return paths

    def _later(self, change: CommitChange) -> list[CommitChange]:
        """Return the later changes of its table that stay in effect."""
        from_here = self._changes_from(change)
        since = {_key(one.commit) for one in from_here}
        return [
            one
            for one in from_here[1:]
            if self._history.is_in_effect(one.commit, one.table, without=self._reverts)
            and not self._history.is_neutral(one.commit, one.table, since)
        ]

    def _changes_from(self, change: CommitChange) -> Sequence[CommitChange]:
        changes = self._history.changes(change.table)
        return changes[changes.index(change) :]

    def _add_readers(self, change: CommitChange) -> None:
        commits = self._history.commits
        for commit in commits[commits.index(change.commit) + 1 :]:
            if str(change.table) in reads_in(commit) and any(
                self._history.is_in_effect(commit, written, without=self._reverts) for written in tables_in(commit)
            ):
                self.dependents.setdefault(_key(commit), _Dependent(commit, change.table, "read the reverted rows in"))

    def _add_dependents(self, changes: Sequence[CommitChange], what: str) -> None:
        for one in changes:
            if not one.changes_nothing:
                self.dependents.setdefault(_key(one.commit), _Dependent(one.commit, one.table, what))

    def _files(self, pointer: TablePointer | None) -> dict[str, DataFile]:
        return {} if pointer is None else {file.path: file for file in self._context.reader.files(pointer)}

    def _added(self, change: CommitChange) -> dict[str, DataFile]:
        if change.after is None:
            return {}
        added = self._context.reader.added_files(change.after, change.change.snapshot_ids)
        return {file.path: file for file in added.files}

    def _has_unknown_rows(self, pointer: TablePointer | None) -> bool:
        """Return whether the table's number of rows is unknown, because it has delete files."""
        return pointer is not None and self._context.reader.metadata(pointer).rows is None


def _undone(
    table: TableIdentifier,
    before: Mapping[str, DataFile],
    after: Mapping[str, DataFile],
    *,
    rows_unknown: bool,
    dropped: bool = False,
) -> UndoneTable:
    rows = sum(file.rows for file in after.values()) - sum(file.rows for file in before.values())
    return UndoneTable(
        table=str(table), rows=None if rows_unknown else rows, data_files=len(after) - len(before), dropped=dropped
    )


def _require_not_published_again(
    history: BranchHistory, commit: Commit, table: TableIdentifier, reverts: Collection[str], run_id: str
) -> None:
    for later in history.commits:
        again = _files_of(commit) & _files_of(later)
        if history.is_in_effect(later, table):  # and not about to be restored, too
            versions = _paths_of_both(commit, later)
            again |= set() if versions and history.appends_versions(later) else versions
        if _key(later) == _key(commit) or not again or str(table) not in tables_in(later):
            continue
        if history.is_in_effect(later, table, without=reverts):
            other = run_of(later)
            raise NotRevertableError(
                f"Run {run_id} can't be reverted: that would restore the rows of {min(again)[0]}, "
                f"which {_label(later)} has since published to {table}.",
                hint=f"Revert the later run first: lakegate revert {other}",
                run_id=run_id,
                table=str(table),
                other_run_id=other,
            )


def _files_of(commit: Commit) -> set[tuple[str, str]]:
    """Return the name and version of each source file that ``commit`` published, under all of its names."""
    files = files_in(commit)
    identities = zip(identities_in(commit), (version for _, version in files), strict=False)
    return {*files, *((identity, version) for identity, version in identities if identity)}


def _paths_of_both(commit: Commit, later: Commit) -> set[tuple[str, str]]:
    """Return the name and version of source files of ``commit`` that ``later`` published with any content."""
    theirs = {uri for uri, _ in files_in(later)}
    return {(uri, version) for uri, version in files_in(commit) if uri in theirs}


def _not_revertable(change: CommitChange, reason: str) -> NotRevertableError:
    return NotRevertableError(
        f"Run {run_of(change.commit)} can't be reverted: {reason}.",
        hint=f"To restore the table to an earlier state: lakegate table restore {change.table} --at TIME",
        run_id=run_of(change.commit),
        table=str(change.table),
    )


def _cascadable(run_id: str, one: _Dependent) -> str:
    """Return the dependent's run, if it can be reverted together with ``run_id``."""
    dependent = run_of(one.commit)
    if dependent is not None and kind_of(one.commit) is None:
        return dependent
    reason = "wasn't published by lakegate" if dependent is None else f"is a {kind_of(one.commit)} itself"
    raise NotRevertableError(
        f"Run {run_id} can't be reverted: {one}, and {reason}.",
        hint=f"To restore the table to an earlier state: lakegate table restore {one.table} --at TIME",
        run_id=run_id,
        table=str(one.table),
        commit=one.commit.hash,
    )


def _dependents_error(run_id: str, dependents: Sequence[_Dependent]) -> NotRevertableError:
    return NotRevertableError(
        f"Run {run_id} can't be reverted alone: {'; '.join(map(str, dependents))}.",
        hint=f"To revert them together: lakegate revert {run_id} --cascade",
        run_id=run_id,
        tables=list(dict.fromkeys(str(one.table) for one in dependents)),
        dependents=list(dict.fromkeys(run_of(one.commit) for one in dependents)),
    )


def _label(commit: Commit) -> str:
    run_id = run_of(commit)
    return f"run {run_id}" if run_id else f"commit {commit.hash[:12]} ({commit.message})"
