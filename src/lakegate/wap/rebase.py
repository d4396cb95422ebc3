"""Rebase: put what a run staged of a table onto the state that the table has on the target by now.

A plain append gets new metadata; no data is read or written. Any other change is published as it is, unless the table
has changed.
"""

from __future__ import annotations

from lakegate.context import Context
from lakegate.errors import NotReplayableError
from lakegate.ledger.publication import published_to
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable


def rebase(context: Context, run: Run, staged: StagedTable, now: TablePointer | None, head: Ref) -> TablePointer:
    """Rebase a staged table onto its state on the target, ``now``; return the state to commit."""
    if now == staged.before or _only_expired(context, staged, now):
        # Anybody can read the snapshots in a table's metadata by their ids. Those that a change went through may hold
        # rows that were deleted before the audit.
        audited = staged.snapshot_ids if staged.only_adds else ()
        pointer = context.editor.as_audited(staged.pointer, now, {*audited, staged.pointer.snapshot_id})
        # A new table is put without a content id, an existing one with the target's.
        pointer = pointer.model_copy(update={"content_id": now.content_id if now else None})
    else:
        pointer = _rebased(context, run, staged, now)
    for run_id in run.request.replaces if run.request is not None else ():
        paths = published_to(context, run_id, head, pointer.table)
        pointer = context.editor.drop_files(pointer, paths, {RUN_ID_PROPERTY: run.run_id})
    return pointer


def _only_expired(context: Context, staged: StagedTable, now: TablePointer | None) -> bool:
    """Return whether nothing but an expiry of snapshots happened on the target since a run began that changed rows.

    Appends don't need this, because they're always rebased.
    """
    if staged.only_adds or staged.before is None or now is None:
        return False
    return context.reader.change(staged.before, now).kind == "expire"


def _rebased(context: Context, run: Run, staged: StagedTable, now: TablePointer | None) -> TablePointer:
    try:
        if not staged.only_adds:
            did = staged.reason or "it changed rows"
            reason = f"this run did more than add rows to it: {did}"
        elif now is None:
            reason = "it no longer exists"
        else:
            return context.editor.rebase(staged.pointer, staged.snapshot_ids, now, is_ours=not staged.by_anyone)
    except NotReplayableError as error:
        raise not_replayable(context, run, staged.table, error.message.rstrip(".")) from error
    raise not_replayable(context, run, staged.table, reason)


def not_replayable(context: Context, run: Run, table: TableIdentifier, reason: str) -> NotReplayableError:
    """Return the error for a table that changed on the target, naming the commit that changed it."""
    commits = context.catalog.history(run.target, until=run.base, operations=True)
    other = next((commit for commit in commits if str(table) in commit.tables), None)
    by = f" (commit {other.hash[:12]}: {other.message})" if other else ""
    hint = f"Drop the branch, then write it again on the current {run.target}: lakegate discard {run.branch}"
    if run.request is not None and not run.request.mode.appends:
        hint = (
            f"Ingest the files again when fewer runs publish to {table}. If the run's branch is still there, drop it "
            f"first: lakegate discard {run.branch}"
        )
    if run.kind in ("transaction", "maintenance"):
        hint = f"Run the transaction again on the current {run.target}; lake.transact(work) does that for you."
    return NotReplayableError(
        f"{table} changed on {run.target} after this run started{by}, and {reason}; nothing was published.",
        hint=hint,
        table=str(table),
        branch=run.branch,
        run_id=run.run_id,
        commit=other.hash if other else None,
    )
