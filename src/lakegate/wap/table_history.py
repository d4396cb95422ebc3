"""The commits that a revert or restore goes back over: what each did to a table, and who stands before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lakegate.context import Context
from lakegate.errors import NotRevertableError
from lakegate.ledger.event import UNDOES, Event, event_of, family, run_of
from lakegate.ledger.fold import Span
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.model.tables import TableChange
from lakegate.wap.table_commit import TablesPlan

BY_ANOTHER = Event(run="", kind="branch")
"""What a commit by another writer says: nothing."""


@dataclass(frozen=True, eq=False)
class Change:
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
        before, after = (delete_files(self.context, state) for state in (self.before, self.after))
        return before < after


class TableHistory:
    """The commits of a branch after ``since`` up to ``head``, oldest first.

    Args:
        since: Hash of the commit before the first one; ``None`` for all.

    Attributes:
        events: What those made by runs say, by hash.
        span: Who stands before and after them.
        is_whole: Whether ``since`` is in the history of ``head``.
    """

    def __init__(self, context: Context, head: Ref, *, since: str | None) -> None:
        self._context = context
        self._since = since
        self.commits = list(context.catalog.history(head.hash, until=since, operations=True))[::-1]
        self.is_whole = bool(self.commits) and self.commits[0].parent == since
        self.events = {commit.hash: event for commit in self.commits if (event := event_of(commit)) is not None}
        self.span = Span()
        for event in self.events.values():
            self.span.add(event)

    def event(self, commit: Commit) -> Event:
        """Return what a commit says; one by another writer says nothing."""
        return self.events.get(commit.hash, BY_ANOTHER)

    def commit_of(self, run_id: str) -> Commit:
        """Return the commit of a run."""
        return next(commit for commit in self.commits if run_of(commit) == run_id)

    def changes(self, table: TableIdentifier) -> Sequence[Change]:
        """Return the changes of ``table``, oldest first."""
        state = None
        if self._since is not None:
            state = self._context.catalog.get_table(table, Ref.detached(self._since))
        changes: list[Change] = []
        for commit in self.commits:
            if str(table) in commit.tables:
                before, state = state, next((pointer for pointer in commit.puts if pointer.table == table), None)
                changes.append(Change(self._context, commit, before, state))
        return changes

    def later(self, change: Change, changes: Sequence[Change], table: TableIdentifier) -> Sequence[Change]:
        """Return those of a table's ``changes`` after one that stand, without those that only undo later ones."""
        after = changes[changes.index(change) + 1 :]
        runs = {run_of(one.commit) for one in after}

        def stands(one: Change) -> bool:
            event = self.event(one.commit)
            undoes_later = event.kind in UNDOES and runs.issuperset(event.reverts)
            return self.span.remover(str(table), event.run) is None and not undoes_later

        return [one for one in after if stands(one)]

    def require_whole(self, plan: TablesPlan, problem: str) -> None:
        """Refuse to bring a run back by halves: its rows return to all tables that they were in at that time, or none.

        Raises:
            NotRevertableError: Beginning with ``problem``, and naming the run.
        """
        back = {(family(str(table)), run) for table, runs in plan.adds.items() for run in runs}
        gone = [entry for entry, stood in self.span.before.items() if stood and not self.span.after[entry]]
        for table, run in gone:
            tables = sorted(name for name, other in back if other == run)
            if tables and table not in tables:
                remover = self.span.removed_by[table, run]
                before = str(self.commit_of(remover).parent)[:12]
                all_at_once = any(self.span.removed_by[name, run] == remover for name in tables)
                raise NotRevertableError(
                    f"{problem}: the rows of run {run} would come back to {', '.join(tables)}, but not to {table}, "
                    f"from which run {remover} has removed them.",
                    hint="To have its rows back in all of its tables, do again what it did. To read them, pass this to "
                    f"lakegate query: --at {before}"
                    if all_at_once
                    else f"Bring them back to {table} first: lakegate table restore {table} --at {before}",
                    run_id=run,
                    table=table,
                    other_run_id=remover,
                )

    def rename_of(self, table: TableIdentifier, since: Commit | None = None) -> Commit | None:
        """Return the first commit after ``since`` that renamed ``table`` or gave its name to another one."""
        start, name = 0 if since is None else self.commits.index(since) + 1, family(str(table))
        later = self.commits[start:]
        return next((commit for commit in later if any(name in pair for pair in self.event(commit).moved)), None)


def delete_files(context: Context, pointer: TablePointer | None) -> int:
    """Return how many delete files a table has."""
    snapshot = None if pointer is None else context.reader.metadata(pointer).snapshot
    return 0 if snapshot is None else int(snapshot.summary.get("total-delete-files", 0))
