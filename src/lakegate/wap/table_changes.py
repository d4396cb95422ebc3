"""Changes to whole tables, each in one commit: drop, rename, truncate, compact, expire, rewrite manifests.

Compacting and truncating write files on a transaction's branch. The others only change metadata; each of them is a
run, and also raises the errors of :func:`~lakegate.wap.revert.run_plan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from lakegate.errors import AuditFailedError, InputError, LakegateError, NotReplayableError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.quarantine import is_quarantine, table_of
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import PARTITIONS_LEFT_PROPERTY, RUN_ID_PROPERTY, Run, UndoneTable
from lakegate.model.schema import Schema
from lakegate.model.tables import REPLACE
from lakegate.model.words import counted, moment, unknown_column
from lakegate.points import unknown_table
from lakegate.wap.context import Context
from lakegate.wap.history import files_in, kind_of, run_of
from lakegate.wap.quarantine import quarantine_table
from lakegate.wap.revert import PlanAt, dropped_table, plan_rename, run_plan
from lakegate.wap.revert_plan import BranchHistory, RevertPlan, TablePlan, plan_restore
from lakegate.wap.transaction import Transaction

_ZORDER = re.compile(r"zorder\s*\(\s*(?P<columns>.*?)\s*\)", re.IGNORECASE | re.DOTALL)
_TERM = re.compile(
    r"(?P<column>.+?)(?P<order>\s+(?:asc|desc))?(?P<nulls>\s+nulls\s+(?:first|last))?", re.IGNORECASE | re.DOTALL
)


def drop_table(context: Context, table: TableIdentifier, *, new_run_id: str) -> Run:
    """Drop ``table`` and its quarantine table in one commit. Older commits still have them.

    The table's source files can be ingested again.
    """

    def plan_at(head: Ref) -> RevertPlan:
        _require_not_of_a_table(context, table, head)
        dropped = (_existing(context, table, head), quarantine_table(context, table, head))
        plans = {one.table: TablePlan(None, dropped_table(context, one)) for one in dropped if one is not None}
        return plan_restore(f"Drop {table}", BranchHistory(context, head, since=None), plans)

    return run_plan(context, plan_at, run_id=new_run_id, kind="restore", text=f"Dropping {table}")


def rename_table(context: Context, old: TableIdentifier, new: TableIdentifier, *, new_run_id: str) -> Run:
    """Rename a table and its quarantine table in one commit. No data file is written or moved.

    Its source files count as published under the new name, and earlier runs can be reverted there. Ingesting into the
    old name creates a new table.
    """
    names = f"Renaming {old}", f"rename {old} to {new}"
    return _maintain(context, lambda head: plan_rename(context, old, new, head), new_run_id, *names)


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


def runs_in(context: Context, table: TableIdentifier, head: Ref) -> tuple[str, ...]:
    """Return the runs whose rows a table may hold, newest first."""
    history = BranchHistory(context, head, since=None)
    now = context.catalog.get_table(table, head)
    snapshots = () if now is None else context.reader.snapshots(now)
    operations = {one.snapshot_id: one.operation for one in snapshots}
    runs = []
    for change in reversed(history.changes(table)):
        run, undoes = run_of(change.commit), kind_of(change.commit) is not None
        before, after = (None if one is None else one.snapshot_id for one in (change.before, change.after))
        brings_rows = not undoes and before != after and after is not None and operations.get(after) != REPLACE
        if run and (brings_rows or files_in(change.commit)) and history.reverter(run, table) is None:
            runs.append(run)
    # The journal knows the kind of runs whose snapshots have expired.
    known = context.journal.pages.lines(runs)
    return tuple(run for run in runs if run not in known or known[run].kind != "maintenance")


def optimize(
    context: Context,
    tx: Transaction,
    table: TableIdentifier,
    *,
    sort: str | None = None,
    where: str | None = None,
) -> None:
    """Compact the table on the transaction's branch.

    Args:
        sort: Sort order of the rows in SQL (:func:`sort_order`).
        where: A validated condition that limits what is compacted. All rows are compared nevertheless: rewritten files
            also contain rows that don't match it.

    Raises:
        AuditFailedError: When the compaction changed rows.
    """
    head = context.catalog.get_ref(tx.branch)
    tx.engine.compact(table, sort=sort, where=where)
    pointer = context.catalog.get_table(table, head)
    if pointer is None or context.catalog.get_ref(tx.branch).hash == head.hash:
        return  # nothing to compact, so nothing to compare
    found = context.reader.metadata(pointer)
    # If the partitioning has changed, a compaction moves rows from old partitions to new ones.
    by_partition = bool(found.partition_by) and not context.reader.has_other_specs(pointer)
    row_ids = found.format_version > 2  # version 3 is the first with row ids
    before = tx.engine.fingerprint(table, by_partition=by_partition, row_ids=row_ids, at=head.hash)
    after = tx.engine.fingerprint(table, by_partition=by_partition, row_ids=row_ids)
    for part in sorted(before.keys() | after.keys()):
        then, now = before.get(part), after.get(part)
        if not _is_same(then, now):
            raise AuditFailedError(
                f"The compaction of {table} isn't published: it changed rows ({part or 'of the table'}, "
                f"{then} before, {now} after).",
                hint="Nothing was changed. Please report this.",
                table=str(table),
                branch=tx.branch,
            )


def partitions_left(context: Context, run: Run, table: TableIdentifier) -> int:
    """Return how many partitions a compaction skipped because other runs had rewritten them."""
    if run.publication is None:
        return 0
    commit = Ref.detached(run.publication.commit)
    with suppress(LakegateError):  # the compaction is published, even if this can't be read
        pointer = context.catalog.get_table(table, commit)
        snapshot = None if pointer is None else context.reader.metadata(pointer).snapshot
        return 0 if snapshot is None else int(snapshot.summary.get(PARTITIONS_LEFT_PROPERTY, 0))
    return 0


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

    def plan_at(head: Ref) -> RevertPlan:
        now = _existing(context, table, head)
        shorter = context.editor.trim_snapshots(now, at_least=keep, before=before)
        gone = len(context.reader.snapshots(now)) - len(context.reader.snapshots(shorter))
        nothing = None if gone else f"{table} has no snapshots from before {moment(before)} that can expire."
        return _same_rows(f"Expire {counted(gone, 'snapshot')} of {table}", shorter, nothing)

    return _maintain(context, plan_at, new_run_id, f"Expiring snapshots of {table}", f"expire snapshots of {table}")


def rewrite_manifests(context: Context, table: TableIdentifier, *, new_run_id: str) -> Run:
    """Rewrite the manifests of ``table`` into fewer ones, sorted by partition, so that queries read fewer of them.

    Returns:
        The new run: ``published``, or ``skipped`` if fewer manifests aren't possible.

    Raises:
        AuditFailedError: When the new manifests don't list the same files.
        InputError: When the table has format version 1, whose metadata lakegate doesn't edit.
    """

    def plan_at(head: Ref) -> RevertPlan:
        now = _existing(context, table, head)
        try:
            fewer = context.editor.rewrite_manifests(now, {RUN_ID_PROPERTY: new_run_id})
        except NotReplayableError as error:  # trying again won't help
            raise InputError(error.message, hint=error.hint, table=str(table)) from error
        nothing = f"The files of {table} can't be listed in fewer manifests." if fewer == now else None
        return _same_rows(f"Rewrite the manifests of {table}", fewer, nothing)

    names = f"Rewriting the manifests of {table}", f"rewrite manifests of {table}"
    return _maintain(context, plan_at, new_run_id, *names)


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


def _same_rows(message: str, state: TablePointer, nothing: str | None) -> RevertPlan:
    plans = {state.table: TablePlan(state, UndoneTable(table=str(state.table), rows=0, data_files=0))}
    return RevertPlan(message, (), plans, nothing=nothing)


def _is_same(then: Sequence[Any] | None, now: Sequence[Any] | None) -> bool:
    """Return whether rows are the same. Rows from before an upgrade to version 3 may have got row ids since."""
    return then == now or bool(then and now and then[-1] is None and then[:-1] == now[:-1])


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
