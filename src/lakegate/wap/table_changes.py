"""Changes to whole tables, each in one commit: drop, rename, truncate, compact, expire, rewrite manifests.

Compacting and truncating write files on a transaction's branch. The others only change metadata; each of them is a
run, and also raises the errors of :func:`~lakegate.wap.table_commit.run_plan`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from lakegate.errors import (
    AlreadyExistsError,
    AuditFailedError,
    IdentifierError,
    InputError,
    LakegateError,
    NotReplayableError,
)
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.quarantine import is_quarantine, quarantine_of, table_of
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import BRINGS_DATA, PARTITIONS_LEFT_PROPERTY, RUN_ID_PROPERTY, Run, RunKind, UndoneTable
from lakegate.model.schema import Schema
from lakegate.model.words import counted, moment, unknown_column
from lakegate.points import unknown_table
from lakegate.wap.context import Context
from lakegate.wap.quarantine import QUARANTINE_OF_PROPERTY, quarantine_table, require_not_reserved
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
        return TablesPlan(f"Drop {table}", plans, reverts=_standing_runs(context, table))

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
    return TablesPlan(
        f"Rename {old} to {new}",
        tables,
        renames=[(str(then), str(name)) for then, name in renames.items() if then in tables],
    )


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


def runs_in(context: Context, table: TableIdentifier, _: Ref) -> tuple[str, ...]:
    """Return the runs whose rows a table may hold, newest first, as far as the journal has read the target."""
    return _standing_runs(context, table, BRINGS_DATA)


def _standing_runs(context: Context, table: TableIdentifier, kinds: Collection[RunKind] = ()) -> tuple[str, ...]:
    """Return the runs of these kinds (all by default) that published to a table and stand, newest first.

    Those that published source files are found by its present name, whatever its name was then.
    """
    runs = [run.run_id for run, _ in context.journal.pages.published_to(str(table)) if not kinds or run.kind in kinds]
    return tuple(dict.fromkeys((*runs, *sorted(context.journal.runs_with_files(str(table)), reverse=True))))


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

    def plan_at(head: Ref) -> TablesPlan:
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

    def plan_at(head: Ref) -> TablesPlan:
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


def _same_rows(message: str, state: TablePointer, nothing: str | None) -> TablesPlan:
    plans = {state.table: TablePlan(state, UndoneTable(table=str(state.table), rows=0, data_files=0))}
    return TablesPlan(message, plans, nothing=nothing)


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
