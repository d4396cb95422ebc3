"""Changes to whole tables, each in one commit: drop, rename, truncate, compact, expire.

Truncating writes files on a transaction's branch, and Iceberg compacts a table on ``main``. The others only change
metadata. Each but truncating is a run, and also raises the errors of
:func:`~lakegate.wap.table_commit.run_plan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    AuditFailedError,
    IdentifierError,
    InputError,
    OutcomeUnknownError,
)
from lakegate.ledger.event import Event, as_properties, effects_on, run_of
from lakegate.ledger.publication import publication_of
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.quarantine import is_quarantine, quarantine_of, table_of
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import BRINGS_DATA, Run, UndoneTable
from lakegate.model.schema import Schema
from lakegate.model.tables import REPLACE
from lakegate.model.words import counted, moment, unknown_column
from lakegate.points import unknown_table
from lakegate.ports import EngineTransaction
from lakegate.wap import failpoints
from lakegate.wap.commit_loop import commit_change
from lakegate.wap.publish_lock import redo
from lakegate.wap.quarantine import QUARANTINE_OF_PROPERTY, quarantine_table, require_not_reserved
from lakegate.wap.recover import recover, running
from lakegate.wap.session import RunSession
from lakegate.wap.table_commit import PlanAt, TablePlan, TablesPlan, dropped_table, run_plan
from lakegate.wap.transaction import Transaction

_ZORDER = re.compile(r"zorder\s*\(\s*(?P<columns>.*?)\s*\)", re.IGNORECASE | re.DOTALL)
_TERM = re.compile(
    r"(?P<column>.+?)(?P<order>\s+(?:asc|desc))?(?P<nulls>\s+nulls\s+(?:first|last))?", re.IGNORECASE | re.DOTALL
)


def drop_table(context: Context, table: TableIdentifier, *, new_run_id: str) -> Run:
    """Drop ``table`` and its quarantine table in one commit. Older commits still have them.

    The table's source files can be ingested again.
    """

    def plan_at(head: Ref) -> TablesPlan:
        _require_not_of_a_table(context, table, head)
        dropped = (_existing(context, table, head), quarantine_table(context, table, head))
        plans = {one.table: TablePlan(None, dropped_table(context, one)) for one in dropped if one is not None}
        return TablesPlan(f"Drop {table}", plans, removes=dict.fromkeys(plans, context.journal.standing(str(table))))

    return run_plan(context, plan_at, run_id=new_run_id, kind="restore", text=f"Dropping {table}")


def rename_table(context: Context, old: TableIdentifier, new: TableIdentifier, *, new_run_id: str) -> Run:
    """Rename a table and its quarantine table in one commit. No data file is written or moved.

    Its source files count as published under the new name. Ingesting into the old name creates a new table.

    Raises:
        AlreadyExistsError: When the new name, or that of its quarantine table, is taken.
        ConfigurationError: When the new name is reserved.
        IdentifierError: When there's a quarantine table, and its new name would be too long.
        InputError: When the table is a quarantine table itself.
    """
    require_not_reserved(new)
    names = f"Renaming {old}", f"rename {old} to {new}"
    return _maintain(context, lambda head: _plan_rename(context, old, new, head), new_run_id, *names)


def _plan_rename(context: Context, old: TableIdentifier, new: TableIdentifier, head: Ref) -> TablesPlan:
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
    return TablesPlan(f"Rename {old} to {new}", tables, renames=[(str(old), str(new))])


def truncate(context: Context, tx: Transaction, table: TableIdentifier) -> None:
    """Delete all rows of a table, and its quarantined ones, on a transaction's branch."""
    branch = context.catalog.get_ref(tx.branch)
    if context.catalog.get_table(table, branch) is None:
        return
    quarantine = quarantine_table(context, table, branch)
    if quarantine is not None:
        rows = f"FROM {'.'.join(map(quote, quarantine.table.parts))}"
        if tx.engine.fetch(f"SELECT 1 {rows} LIMIT 1"):
            tx.engine.sql(f"DELETE {rows} WHERE true")
    if context.catalog.get_ref(tx.branch).hash == branch.hash:
        tx.delete(str(table), "true")
    else:  # even if the table is empty: its source files can be ingested again only if the run changes it
        tx.sql(f"DELETE FROM {'.'.join(map(quote, table.parts))} WHERE true")  # noqa: S608 - quoted


def runs_in(context: Context, table: TableIdentifier, _: Ref) -> Sequence[str]:
    """Return the runs whose rows a table holds, newest first, as far as the journal has read the target."""
    return context.journal.standing(str(table), BRINGS_DATA)


def optimize(
    context: Context, table: TableIdentifier, *, sort: str | None, where: str | None, attempts: int, new_run_id: str
) -> Run:
    """Compact a table on ``main`` by Iceberg's procedure, and compare its numbers of rows before and after.

    Iceberg's commit names no run. A second commit, which changes nothing, says which run it was, and that no row is
    missing.

    Args:
        sort: Sort order of the rows in SQL (:func:`sort_order`).
        where: A validated condition that limits what is compacted.
        attempts: How often to try if others change the same files. From the third attempt on, they wait.

    Returns:
        The new run: ``published``, or ``skipped`` if there's nothing to compact.

    Raises:
        AuditFailedError: When the number of rows changed.
        NotReplayableError: When the last attempt conflicted, too.
    """
    recover(context)
    head = sync(context, MAIN)
    _existing(context, table, head)
    run = Run(
        run_id=new_run_id,
        kind="maintenance",
        name=f"optimize {table}",
        tables=(str(table),),
        branch="",
        status="planned",
        started_at=datetime.now(UTC),
        target=MAIN,
        base=head.hash,
    )
    with running(context, run) as session:
        context.require_writable()
        engine = context.engine().transaction(MAIN, new_run_id)
        try:
            with session.step("write"), context.narrator.step(f"Compacting {table}"):
                redo(
                    context,
                    MAIN,
                    partial(engine.compact, table, sort=sort, where=where),
                    attempts=attempts,
                    note=lambda error: f"{error.message} Compacting it again.",
                )
            failpoints.reach("before-publish")
            compaction = _compaction_since(context, table, head)
            if compaction is None:
                return session.end(status="skipped", detail=f"{table} has no files to compact.")
            with session.step("audit"):
                rows = _require_same_count(engine, table, compaction)
        finally:
            engine.close()
        with session.step("publish"):
            commit = _claim_compaction(context, session, compaction, rows)
        session.end(status="published", publication=publication_of(run, commit))
    return session.run


def _compaction_since(context: Context, table: TableIdentifier, head: Ref) -> Commit | None:
    """Return the newest commit since ``head`` that only put the table's rows into other files, and names no run."""
    for commit in context.catalog.history(MAIN, until=head.hash, operations=True):
        pointer = next((one for one in commit.puts if one.table == table), None)
        if pointer is not None and run_of(commit) is None:
            snapshot = context.reader.metadata(pointer).snapshot
            if snapshot is not None and snapshot.operation == REPLACE:
                return commit
    return None


def _require_same_count(engine: EngineTransaction, table: TableIdentifier, compaction: Commit) -> int:
    parent = str(compaction.parent)
    before, after = engine.count(table, at=parent), engine.count(table, at=compaction.hash)
    if before != after:
        raise AuditFailedError(
            f"The compaction of {table} changed its number of rows from {before:,} to {after:,}, in commit "
            f"{compaction.hash[:12]} on {MAIN}.",
            hint=f"Restore the table: lakegate table restore {table} --at {parent[:12]}. Then please report this.",
            table=str(table),
            commit=compaction.hash,
        )
    return after


def _claim_compaction(context: Context, session: RunSession, compaction: Commit, rows: int) -> str:
    """Make the commit that says which run made a compaction, and return its hash."""
    run = session.run
    unknown = OutcomeUnknownError(
        f"The catalog became unavailable while run {run.run_id} recorded the compaction of {run.table}. The table is "
        "compacted, and holds the same rows.",
        hint="When the catalog is back: lakegate log --limit 5",
        run_id=run.run_id,
    )
    head = Ref(name=MAIN, hash=compaction.hash)
    author = _Compaction(context, run, head, rows)
    return str(commit_change(context, run, author, head, unknown=unknown, confirm=session.require_lease))


@dataclass(frozen=True)
class _Compaction:
    """The author that says which run made a compaction."""

    context: Context
    run: Run
    at: Ref
    rows: int
    states: tuple[()] = ()

    def read_target(self) -> tuple[Ref, Sequence[Commit]]:
        """Return the target's head."""
        return self.context.catalog.get_ref(MAIN), ()

    def change(self, head: Ref, _: Sequence[Commit]) -> CommitRequest:
        """Return a change of nothing, with the run's properties."""
        event = Event(
            run=self.run.run_id,
            kind=self.run.kind,
            tables=effects_on(self.run.tables, self.run.run_id),
            audit=f"{counted(self.rows, 'row')} before and after",
            compaction=self.at.hash,
        )
        properties = as_properties(event)
        message = f"Optimize {self.run.table}: the same {counted(self.rows, 'row')} in other files"
        return CommitRequest(branch=MAIN, base=head.hash, message=message, at_head=True, properties=properties)


def sort_order(text: str, schema: Schema, table: TableIdentifier) -> str:
    """Return a sort order, such as ``a, b desc nulls last`` or ``zorder(a, b)``, with the table's columns quoted."""
    zorder = _ZORDER.fullmatch(text.strip())
    terms = (zorder["columns"] if zorder else text).split(",")
    if zorder:
        return f"zorder({', '.join(_column(term, schema, table) for term in terms)})"
    return ", ".join(_terms(terms, schema, table))


def expire_snapshots(context: Context, table: TableIdentifier, *, before: datetime, keep: int, new_run_id: str) -> Run:
    """Expire snapshots in the metadata of ``table``, in one commit. No file is deleted, and older commits don't change.

    Args:
        before: Expire snapshots older than this.
        keep: Number of newest snapshots to keep in any case.

    Returns:
        The new run: ``published``, or ``skipped`` if there's nothing to expire.
    """

    def plan_at(head: Ref) -> TablesPlan:
        now = _existing(context, table, head)
        shorter = context.editor.trim_snapshots(now, at_least=keep, before=before)
        gone = len(context.reader.snapshots(now)) - len(context.reader.snapshots(shorter))
        nothing = None if gone else f"{table} has no snapshots from before {moment(before)} that can expire."
        return _same_rows(f"Expire {counted(gone, 'snapshot')} of {table}", shorter, nothing)

    return _maintain(context, plan_at, new_run_id, f"Expiring snapshots of {table}", f"expire snapshots of {table}")


def _maintain(context: Context, plan_at: PlanAt, run_id: str, text: str, name: str) -> Run:
    return run_plan(context, plan_at, run_id=run_id, kind="maintenance", text=text, name=name)


def _require_not_of_a_table(context: Context, table: TableIdentifier, head: Ref) -> None:
    """Refuse to drop the quarantine table of an existing table: it says which rows mustn't be released again."""
    if not is_quarantine(table):
        return
    of = table_of(table)
    if context.catalog.get_table(of, head) is not None and quarantine_table(context, of, head) is not None:
        raise InputError(
            f"{table} can't be dropped: it's the quarantine table of {of}, and is dropped with it.",
            hint=f"To drop the rows that wait in it: lakegate quarantine drop {of} --yes",
            table=str(table),
        )


def _existing(context: Context, table: TableIdentifier, head: Ref) -> TablePointer:
    now = context.catalog.get_table(table, head)
    if now is None:
        raise unknown_table(context.catalog, str(table), head)
    return now


def _same_rows(message: str, state: TablePointer, nothing: str | None) -> TablesPlan:
    plans = {state.table: TablePlan(state, UndoneTable(table=str(state.table), rows=0, data_files=0))}
    return TablesPlan(message, plans, nothing=nothing)


def _terms(terms: list[str], schema: Schema, table: TableIdentifier) -> Iterator[str]:
    for term in terms:
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise InputError(
                f"{term.strip()!r} isn't a sort order.",
                hint="Write --sort 'pickup, zone desc', or --sort 'zorder(pickup, zone)'.",
                table=str(table),
            )
        words = " ".join(filter(None, (match["order"], match["nulls"]))).split()
        yield " ".join((_column(match["column"], schema, table), *(word.upper() for word in words)))


def _column(text: str, schema: Schema, table: TableIdentifier) -> str:
    name = text.strip().strip("`")
    found = schema.find(name)
    if found is None:
        raise unknown_column(f"{table} has no column '{name}' to sort by.", name, schema.names, table=str(table))
    return quote(found.name)
