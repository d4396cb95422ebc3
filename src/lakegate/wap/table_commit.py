"""Commit planned states of tables as one run: a revert, a restore, a drop, a rename or a change of metadata.

A plan is made for one head of the target. If the target moves before the commit, the plan is made again, unless the
commits since then concern none of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError, NotReplayableError, NotRevertableError, OutcomeUnknownError
from lakegate.ledger.event import UNDOES, Event, File, TableEffect, as_properties, event_of
from lakegate.ledger.publication import publication_of
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Action, Run, RunKind, UndoneTable
from lakegate.wap import failpoints
from lakegate.wap.commit_loop import commit_change
from lakegate.wap.recover import running
from lakegate.wap.session import RunSession


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How one table changes.

    Attributes:
        base: The state to start from; ``None`` drops the table.
        undone: The run's record of the change.
        appends: Later appends to rebase onto ``base``, oldest first: the state after each, and its snapshots.
        drops: Paths of data files to drop after that.
        now: The state that is replaced.
        is_earlier: Whether ``base`` is an earlier state, of which files may be gone.
    """

    base: TablePointer | None
    undone: UndoneTable
    appends: Sequence[tuple[TablePointer, Sequence[int]]] = ()
    drops: frozenset[str] = frozenset()
    now: TablePointer | None = None
    is_earlier: bool = False


@dataclass(frozen=True, slots=True)
class TablesPlan:
    """What to commit on top of one head.

    Attributes:
        removes: Runs that lose their rows in each of ``tables``, newest first.
        adds: Runs whose rows come back to each of ``tables``, oldest first, with their source files.
        nothing: Why there's nothing to do; ``None`` if there is.
        renames: Old and new names of tables that are renamed.
    """

    message: str
    tables: Mapping[TableIdentifier, TablePlan] = field(default_factory=dict)
    removes: Mapping[TableIdentifier, Sequence[str]] = field(default_factory=dict)
    adds: Mapping[TableIdentifier, Mapping[str, tuple[File, ...]]] = field(default_factory=dict)
    nothing: str | None = None
    renames: Sequence[tuple[str, str]] = ()

    def event(self, run: Run) -> Event:
        """Return what the commit says if ``run`` makes it."""
        own: dict[str, tuple[File, ...]] = {} if self.renames else {run.run_id: ()}
        effects = {
            str(table): TableEffect(add={**self.adds.get(table, {}), **own}, remove=tuple(self.removes.get(table, ())))
            for table in self.tables
        }
        return Event(run=run.run_id, kind=run.kind, tables=effects, moved=tuple(self.renames))


PlanAt = Callable[[Ref], TablesPlan]
"""Makes the plan on top of the target's head, up to which the journal is synced."""


def dropped_table(context: Context, now: TablePointer) -> UndoneTable:
    """Return a run's record of a table that it drops."""
    rows, files = rows_and_files(context, now)
    return UndoneTable(table=str(now.table), rows=None if rows is None else -rows, data_files=-files, dropped=True)


def rows_and_files(context: Context, now: TablePointer) -> tuple[int | None, int]:
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
        text: What the run does, for progress messages.

    Raises:
        ConflictError: When the target kept moving.
        OutcomeUnknownError: When the catalog became unavailable during the commit and isn't back.
    """
    plan = _Plan(context, plan_at, target)
    head, _ = plan.read_target()
    run = Run(
        run_id=run_id,
        kind=kind,
        name=name,
        branch="",
        status="planned",
        started_at=datetime.now(UTC),
        target=target,
        base=head.hash,
        actions=() if action is None else (action,),
        **plan.fields,
    )
    if dry_run:
        return run.model_copy(update={"status": "skipped", "detail": plan.now.nothing or f"Dry run: {text}."})
    with running(context, run) as session:
        commit = None if plan.now.nothing is not None else _commit(context, session, plan, head, text)
        if commit is None:
            return session.end(status="skipped", detail=plan.now.nothing)
        session.end(status="published", publication=publication_of(session.run, commit))
    return session.run


class _Plan:
    """The author of a plan, which it makes again for a later head if the commits since then concern its tables.

    Attributes:
        now: The plan for the last head.
        session: The run in progress, once it has begun. It records each new plan.
    """

    def __init__(self, context: Context, plan_at: PlanAt, target: str) -> None:
        self._context = context
        self._plan_at = plan_at
        self._target = target
        self._puts: list[TablePointer] | None = None
        self.now = TablesPlan("")
        self.session: RunSession | None = None

    @property
    def states(self) -> Sequence[tuple[TablePointer | None, TablePointer]]:
        """Earlier states that become current again, with the current one."""
        return [(one.now, one.base) for one in self.now.tables.values() if one.is_earlier and one.base is not None]

    @property
    def fields(self) -> dict[str, Any]:
        """What the plan changes, for the run."""
        undone = tuple(one.undone for one in self.now.tables.values())
        removed = dict.fromkeys(run_id for runs in self.now.removes.values() for run_id in runs)
        return {"tables": tuple(one.table for one in undone), "reverts": tuple(removed), "undone": undone}

    def read_target(self) -> tuple[Ref, Sequence[Commit]]:
        """Make the plan for the target's head."""
        return self._made_for(sync(self._context, self._target)), ()

    def change(self, head: Ref, newer: Sequence[Commit]) -> CommitRequest | None:
        """Return the planned change, for which it writes the tables' metadata."""
        if not all(map(self._is_unconcerned, newer)):
            sync(self._context, self._target)
            self._made_for(head)
        if self.session is None or self.now.nothing is not None:
            return None
        plan, run = self.now, self.session.run
        if self._puts is None:
            self._puts = [_write(self._context, run.run_id, one, one.base) for one in plan.tables.values() if one.base]
        return CommitRequest(
            branch=run.target,
            base=head.hash,
            message=plan.message,
            puts=tuple(self._puts),
            deletes=tuple(table for table, one in plan.tables.items() if one.base is None),
            # Only at the head: a run that only read these tables changes none of them, so its commit wouldn't conflict.
            at_head=True,
            properties=as_properties(plan.event(run)),
        )

    def _is_unconcerned(self, commit: Commit) -> bool:
        """Return whether the plan holds after ``commit``, so that publishes to other tables don't starve it."""
        ours, event = {str(table) for table in self.now.tables}, event_of(commit)
        says_nothing = event is None or (event.kind not in UNDOES and ours.isdisjoint((*event.tables, *event.reads)))
        return says_nothing and ours.isdisjoint(commit.tables)

    def _made_for(self, head: Ref) -> Ref:
        self.now, self._puts = self._plan_at(head), None
        if self.session is not None:
            # If this process is killed after the commit, recovery publishes the run as the journal has it.
            self.session.update(**self.fields)
        return head


def _commit(context: Context, session: RunSession, plan: _Plan, head: Ref, text: str) -> str | None:
    plan.session, run = session, session.run
    failpoints.reach("before-publish")
    unknown = OutcomeUnknownError(
        f"The catalog became unavailable while run {run.run_id} changed {run.table}; the change may or may not be "
        "published.",
        hint="When the catalog is back: lakegate log --limit 5",
        run_id=run.run_id,
    )
    with session.step("publish"), context.narrator.step(text):
        commit = commit_change(context, run, plan, head, unknown=unknown, confirm=session.require_lease)
    failpoints.reach("after-publish")
    return commit


def _write(context: Context, run_id: str, plan: TablePlan, base: TablePointer) -> TablePointer:
    """Write the metadata of the planned state: ``base`` with the later appends, without the dropped files."""
    with _as_revert_error(run_id, plan):
        pointer = base
        if plan.appends:
            pointer = context.editor.raise_counters(pointer, plan.now, by_sequence=False)
            # These rows stay on the target, so they keep their row ids and last-updated sequence numbers.
            pointer, refused = context.editor.rebase_each(plan.appends, pointer, keep_row_ids=True)
            for error in refused.values():
                raise error
        pointer = context.editor.raise_counters(pointer, plan.now)
        return context.editor.drop_files(pointer, plan.drops, {RUN_ID_PROPERTY: run_id}) if plan.drops else pointer


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
