"""Rivals: what others did to the target while a run was under way, and how a run is told that it came too late."""

from __future__ import annotations

from collections.abc import Iterable

from lakegate.errors import AlreadyPublishedError, NotReplayableError
from lakegate.flow.history import event_of
from lakegate.flow.rooms import Rooms
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit
from lakegate.model.run import Run


def require_not_published(run: Run, commits: Iterable[Commit]) -> None:
    """Check that none of the run's source files is in one of ``commits``, newest first, that still stands.

    The journal keeps two runs from working on one file, but only the catalog can tell for sure: journals get lost, and
    a process that slept too long wakes up believing that the file is still its own.

    Raises:
        AlreadyPublishedError: Naming the other run.
    """
    if run.request is None:
        return
    ours = {(file.uri, file.version) for file in run.request.batch.files}
    reverted: set[str] = set()
    for commit in commits:
        event = event_of(commit)
        if event is None:
            continue
        both = ours & {*event.files, *((uri, version) for _, uri, version, _ in event.revives)}
        if both and event.run_id not in reverted and set(event.tables) & set(run.tables):
            raise AlreadyPublishedError(
                f"{min(both)[0]} was published to {run.table} by run {event.run_id} while this run was under "
                f"way; nothing was published a second time.",
                hint=f"lakegate runs {event.run_id}",
                table=run.table,
                run_id=run.run_id,
                other_run_id=event.run_id,
                branch=run.branch,
            )
        reverted.update(event.reverts)


def not_replayable(rooms: Rooms, run: Run, table: TableIdentifier, reason: str) -> NotReplayableError:
    """Return the error of a table that moved on the target, naming the commit that moved it."""
    commits = rooms.catalog.history(run.target, until=run.base, operations=True)
    other = next((commit for commit in commits if str(table) in commit.tables), None)
    by = f" (commit {other.hash[:12]}: {other.message})" if other else ""
    return NotReplayableError(
        f"{table} changed on {run.target} after this run started{by}, and {reason}; nothing was published.",
        hint=f"Drop the branch and run it again: lakegate discard {run.branch}",
        table=str(table),
        branch=run.branch,
        run_id=run.run_id,
        commit=other.hash if other else None,
    )
