"""Commit planned states of tables as one run: a revert, a restore, a drop, a rename or a change of metadata.

A plan is made for one head of the target. If the target moves before the commit, the plan is made again, unless the
commits since then concern none of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakegate.context import Context
from lakegate.errors import InputError, NotFoundError, NotReplayableError, NotRevertableError, OutcomeUnknownError
from lakegate.ledger.event import UNDOES, Event, File, TableEffect, as_properties, event_of
from lakegate.ledger.publication import find_publication
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Action, Publication, Run, RunKind, UndoneTable
from lakegate.wap import failpoints
from lakegate.wap.optimistic_commit import commit_on_head, publish_lock
from lakegate.wap.reachable import require_files
from lakegate.wap.recover import running
from lakegate.wap.session import RunSession
from lakegate.wap.stage import namespaces_for


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How one table changes.

    Attributes:
        base: The state to start from; ``None`` drops the table.
        undone: The run's record of the change.
        appends: Later appends to rebase onto ``base``, oldest first: the state after each, and its snapshots.
        drops: Paths of data files to drop after that.
        now: The state that is replaced.
    """

    base: TablePointer | None
    undone: UndoneTable
    appends: Sequence[tuple[TablePointer, Sequence[int]]] = ()
    drops: frozenset[str] = frozenset()
    now: TablePointer | None = None


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
    head = sync(context, target)
    plan = plan_at(head)
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
        **_plan_fields(plan),
    )
    if dry_run:
        return run.model_copy(update={"status": "skipped", "detail": plan.nothing or f"Dry run: {text}."})
    with running(context, run) as session:
        if plan.nothing is not None:
            return session.end(status="skipped", detail=plan.nothing)
        _commit(context, session, plan_at, head, plan, text)
    sync(context, target)
    return session.run


def _plan_fields(plan: TablesPlan) -> dict[str, object]:
    undone = tuple(one.undone for one in plan.tables.values())
    removed = dict.fromkeys(run_id for runs in plan.removes.values() for run_id in runs)
    return {"tables": tuple(one.table for one in undone), "reverts": tuple(removed), "undone": undone}


def _commit(
    context: Context, session: RunSession, plan_at: PlanAt, planned_at: Ref, plan: TablesPlan, text: str
) -> None:
    run = session.run
    states: list[TablePointer] | None = None

    def build(head: Ref) -> CommitRequest | str:
        nonlocal plan, planned_at, states
        if head != planned_at:
            # The head may be our own commit: if a request is sent twice, the second answer is a conflict.
            own = find_publication(context, run, since=planned_at.hash)
            if own is not None:
                return own.commit
            if not _is_still_valid(context, plan, planned_at, head):
                sync(context, run.target)
                plan, states = plan_at(head), None
                # If this process is killed after the commit, recovery publishes the run as the journal has it.
                session.update(**_plan_fields(plan))
            planned_at = head
        if plan.nothing:
            return head.hash
        if states is None:
            states = [_write(context, run.run_id, one, one.base) for one in plan.tables.values() if one.base]
            require_files(context, states)
        return _request(context, session.run, plan, states, head)

    failpoints.reach("before-publish")
    unknown = OutcomeUnknownError(
        f"The catalog became unavailable while run {run.run_id} changed {run.table}; the change may or may not be "
        "published.",
        hint="When the catalog is back: lakegate log --limit 5",
        run_id=run.run_id,
    )
    lock = publish_lock(context, run.target, run.tables)
    with session.step("publish"), context.narrator.step(text), lock:
        commit = commit_on_head(context, run.target, run.run_id, build, unknown=unknown, confirm=session.require_lease)
    failpoints.reach("after-publish")
    if plan.nothing:
        session.end(status="skipped", detail=plan.nothing)
        return
    publication = Publication(run_id=run.run_id, target=run.target, commit=commit, tables=session.run.tables, rows=0)
    session.end(status="published", publication=publication)


def _is_still_valid(context: Context, plan: TablesPlan, planned_at: Ref, head: Ref) -> bool:
    """Return whether the plan still holds after later commits, so that publishes to other tables don't starve it."""
    commits = list(context.catalog.history(head.hash, until=planned_at.hash, operations=True))
    if plan.nothing or not commits or commits[-1].parent != planned_at.hash:
        return False
    ours = {str(table) for table in plan.tables}
    said = [(commit.tables, event_of(commit)) for commit in commits]
    return all(
        ours.isdisjoint(tables)
        and (event is None or (event.kind not in UNDOES and ours.isdisjoint((*event.tables, *event.reads))))
        for tables, event in said
    )


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


def _request(context: Context, run: Run, plan: TablesPlan, states: Sequence[TablePointer], head: Ref) -> CommitRequest:
    return CommitRequest(
        branch=run.target,
        base=head.hash,
        message=plan.message,
        puts=tuple(states),
        deletes=tuple(table for table, one in plan.tables.items() if one.base is None),
        # Only at the head: a run that only read these tables changes none of them, so its commit wouldn't conflict.
        at_head=True,
        namespaces=namespaces_for(context, states, head),
        properties=as_properties(plan.event(run)),
    )
