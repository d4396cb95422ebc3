"""A catalog whose ``main`` is the target, and whose branches are in the journal's database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from lakegate.catalogs.rules import Contents, Key, check_keys
from lakegate.catalogs.target import pruning
from lakegate.catalogs.target.capabilities import Capabilities
from lakegate.catalogs.target.first_seen import FirstSeen
from lakegate.catalogs.target.foreign import ForeignChanges
from lakegate.catalogs.target.one_journal import OneJournal
from lakegate.catalogs.target.overlay import OverlayCatalog
from lakegate.catalogs.target.publishing import Plan, Publisher, Window
from lakegate.catalogs.target.targets import Step, Target
from lakegate.errors import InputError, NotFoundError
from lakegate.iceberg.metadata import Document
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer


class TargetCatalog(OverlayCatalog):
    """Implements :class:`~lakegate.ports.Catalog` over a target.

    A commit to ``main`` changes the target. What others do there is logged when somebody asks for ``main`` with the
    tables in question. ``main`` can't be moved or deleted. All other branches are in the database alone.

    Args:
        database: The journal's. Closing the catalog doesn't close it.
        knows_run: Returns whether a run is in the journal.
        reach: Called in each window of a publish in which a process can die, for tests to stop there.
        page_size: Commits of a history to read at once.
    """

    def __init__(
        self,
        database: Database,
        target: Target,
        *,
        knows_run: Callable[[str], bool] = lambda _run: True,
        reach: Callable[[Window], None] = lambda _window: None,
        page_size: int = 50,
    ) -> None:
        super().__init__(database, page_size=page_size)
        self._target = target
        self._first_seen = FirstSeen(database, target)
        self._publisher = Publisher(database, self._log, target, reach)
        self._one_journal = OneJournal(database, knows_run)
        publisher = self._publisher
        self._foreign = ForeignChanges(database, self._log, target, self._logged, publisher.settle, publisher.reopen)

    def identity(self) -> str | None:
        """Return what distinguishes the target from other catalogs."""
        return self._target.identity()

    def capabilities(self) -> Capabilities:
        """Return what the target can do, found out on a scratch table where it isn't known."""
        scratch = TableIdentifier(namespace=("lakegate_probe",), name="scratch")
        with suppress(InputError):
            self._target.check([Step(table=scratch, base=None, staged=None)])
        return self._target.capabilities

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit if ``name`` is a hash."""
        if name == MAIN:
            self._publisher.settle()
        return super().get_ref(name)

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield commits, newest first; see :meth:`lakegate.ports.Catalog.history`.

        Raises:
            CatalogUnavailableError: If a publish of ``run_id`` is under way, or can't be settled now.
        """
        if run_id is not None:
            self._publisher.require_settled(run_id)
        return super().history(ref, until=until, run_id=run_id, operations=operations)

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and the state of each of ``tables`` at its head, as the target has it now."""
        if name == MAIN:
            self._foreign.notice(tables)
        return super().get_ref_with_tables(name, tables)

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request``; on ``main``, to the target first. See :meth:`lakegate.ports.Catalog.commit`.

        Where the target can't change several tables at once, its other readers may see a part for a moment.
        """
        if request.branch != MAIN:
            return super().commit(request)
        check_keys(request)
        if request.drops:
            raise InputError(
                f"lakegate drops no namespaces of {self._target.identity()}.", hint="Drop them there.", ref=MAIN
            )
        named = [*(pointer.table for pointer in request.puts), *request.deletes, *request.unchanged]
        self._foreign.notice(dict.fromkeys(named))
        return self._publisher.publish(request, lambda head: self._plan(request, head))

    def unsettled(self) -> Sequence[tuple[str, str]]:
        """Return the run and the tables of each publish that's neither made nor undone."""
        return self._publisher.unsettled()

    def notice_all(self) -> None:
        """Log what others have done to any table."""
        known = (pointer.table for pointer in self.list_tables(self._log.ref(MAIN)))
        self._foreign.notice(dict.fromkeys([*known, *self._target.list_tables()]))

    def abandoned_states(
        self, before: datetime, dropped: Collection[str]
    ) -> Sequence[tuple[TablePointer | None, TablePointer]]:
        """Return the states that no branch or tag reaches; see :class:`lakegate.ports.Overlay`."""
        with self._database.reading() as tx:
            commits = pruning.unreachable(tx, before, dropped)
        found: list[tuple[TablePointer | None, TablePointer]] = []
        for entry in map(self._log.entry, commits):
            staged = [content for content in entry.changes.values() if isinstance(content, TablePointer)]
            with suppress(NotFoundError):  # it was staged on a state that was forgotten
                found += [(self._logged(one.table, entry.parent), one) for one in staged]
        return found

    def prune(self, before: datetime) -> None:
        """Forget what no branch or tag has needed since ``before``; see :class:`lakegate.ports.Overlay`."""
        with self._database.writing() as tx:
            pruning.prune(tx, before)

    def accept_past(self) -> None:
        """Take what is published now as it is, whichever runs it is of."""
        self._one_journal.accept()

    def folder(self, namespace: Key) -> str | None:
        """Return the folder that the target has for a namespace's tables; ``None`` if it doesn't say."""
        return self._target.folder(namespace)

    def access(self, pointer: TablePointer) -> Document:
        """Return what the target gives readers of a table's files; see :class:`lakegate.ports.Overlay`."""
        return self._target.access(pointer)

    def list_namespaces(self, ref: Ref) -> Iterator[Key]:
        """Yield every namespace that exists at ``ref.hash``, without looking at the target's tables."""
        there = {**self._first_seen.of(list(self._target.list_namespaces())), **self._log.state(ref.hash)}
        return iter(
            sorted(
                key for key, content in there.items() if content is not None and not isinstance(content, TablePointer)
            )
        )

    def close(self) -> None:
        """Release the connections to the target; the others are the journal's."""
        self._target.close()

    def _plan(self, request: CommitRequest, head: str) -> Plan:
        changes = self._changes(request, head)
        now = self._contents(head, [*changes])
        old = {table: one for table in request.deletes if isinstance(one := now.get(table.parts), TablePointer)}
        steps: list[Step] = []
        for put in request.puts:
            base = now.get(put.table.parts)
            renamed = next((one for one in old.values() if one.content_id == put.content_id), None)
            steps.append(Step(table=put.table, base=base if isinstance(base, TablePointer) else renamed, staged=put))
            if base is None and renamed is not None:
                del old[renamed.table]
        steps += [Step(table=one.table, base=one, staged=None) for one in old.values()]
        for step in steps:
            if step.base is not None:
                self._one_journal.require(step.base.table, self._target.document(step.base))
        self._target.check(steps)
        return Plan(changes, steps)

    def _movable(self, ref: Ref) -> Ref:
        if ref.name == MAIN:
            raise InputError(
                f"main is what the catalog {self._target.identity()} has; it can't be moved or deleted.", ref=MAIN
            )
        return super()._movable(ref)

    def _contents(self, commit: str, keys: Collection[Key] | None = None) -> Contents:
        state = self._log.state(commit)
        wanted = None if keys is None else [key for key in keys if key not in state]
        first = self._first_seen.all() if wanted is None else self._first_seen.of(wanted) if wanted else {}
        return {key: content for key, content in {**first, **state}.items() if content is not None}

    def _logged(self, table: TableIdentifier, commit: str) -> TablePointer | None:
        content = self._contents(commit, [table.parts]).get(table.parts)
        return content if isinstance(content, TablePointer) else None
