"""Undoing in one commit: a run of its own, journaled like all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakegate.errors import OutcomeUnknownError
from lakegate.flow import faults
from lakegate.flow.history import (
    KIND_PROPERTY,
    REVERTS_PROPERTY,
    REVIVES_PROPERTY,
    TABLES_PROPERTY,
    encode_revived,
    sync,
)
from lakegate.flow.onhead import commit_on_head, turns
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress, running
from lakegate.flow.stage import missing_namespaces
from lakegate.flow.undo_past import files_of, run_of, tables_of
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Publication, Run, RunKind, UndoneTable


@dataclass(frozen=True, slots=True)
class Undoing:
    """What is to be committed on top of one head.

    Attributes:
        message: The commit's.
        reverts: Runs that it undoes, newest first.
        undone: What it does to their tables, as told to people.
        states: What the tables come to be; ``None`` for one that goes.
        revived: Commits of runs that stand again in these tables.
        nothing: Why there is nothing to do, if so.
    """

    message: str
    reverts: tuple[str, ...]
    undone: tuple[UndoneTable, ...]
    states: Mapping[TableIdentifier, Callable[[], TablePointer] | None] = field(default_factory=dict)
    revived: tuple[Commit, ...] = ()
    nothing: str | None = None


Look = Callable[[Ref], Undoing]
"""Works out at a head of the target what is to be done; called again when the target moved."""


def undo(rooms: Rooms, look: Look, *, run_id: str, kind: RunKind, target: str, text: str, dry_run: bool = False) -> Run:
    """Commit what ``look`` says, as the run ``run_id``.

    Args:
        rooms: The lake's rooms.
        look: Raises for what cannot be undone; nothing is written down then.
        run_id: Id of the new run.
        kind: Its kind.
        target: The branch.
        text: What is being done, for the narration.
        dry_run: Return the run as it would be, ``skipped``, and change nothing.

    Returns:
        The run: ``published``, or ``skipped`` when there was nothing to do.

    Raises:
        LakegateError: What ``look`` raises.
        ConflictError: When the target never stood still.
        OutcomeUnknownError: When the catalog went away with the commit and has not come back.
    """
    head = sync(rooms, target)
    first = look(head)
    run = _noted(_started(run_id, kind, target, head), first)
    if dry_run:
        return run.model_copy(update={"status": "skipped", "detail": first.nothing or f"Would be done: {text}."})
    with running(rooms, run) as progress:
        if first.nothing is not None:
            return progress.end(status="skipped", detail=first.nothing)
        ended = _commit(rooms, progress, look, _Seen(head, first), text)
    sync(rooms, target)
    return ended


@dataclass(slots=True)
class _Seen:
    """The head that was looked at last, and what is to be done on top of it."""

    head: Ref
    undoing: Undoing


def _commit(rooms: Rooms, progress: Progress, look: Look, seen: _Seen, text: str) -> Run:
    run = progress.run

    def build(head: Ref) -> CommitRequest | str:
        if head != seen.head:
            seen.head, seen.undoing = head, look(head)
            progress.run = _noted(progress.run, seen.undoing)
        return head.hash if seen.undoing.nothing else _request(rooms, progress.run, seen.undoing, head)

    faults.reach("before-publish")
    with progress.step("publish"), rooms.narrator.step(text), turns(rooms, run.target, run.tables):
        commit = commit_on_head(
            rooms,
            run.target,
            run.run_id,
            build,
            unknown=lambda: _unknown(run),
            require_lease=progress.require_lease,
        )
    faults.reach("after-publish")
    if seen.undoing.nothing:
        return progress.end(status="skipped", detail=seen.undoing.nothing)
    publication = Publication(run_id=run.run_id, target=run.target, commit=commit, tables=progress.run.tables, rows=0)
    return progress.end(status="published", publication=publication)


def _started(run_id: str, kind: RunKind, target: str, head: Ref) -> Run:
    return Run(
        run_id=run_id,
        kind=kind,
        tables=(),
        branch="",
        status="running",
        started_at=datetime.now(UTC),
        target=target,
        base=head.hash,
    )


def _noted(run: Run, undoing: Undoing) -> Run:
    return run.model_copy(
        update={
            "tables": tuple(one.table for one in undoing.undone),
            "reverts": undoing.reverts,
            "undone": undoing.undone,
        }
    )


def _request(rooms: Rooms, run: Run, undoing: Undoing, head: Ref) -> CommitRequest:
    states = {table: make() for table, make in undoing.states.items() if make is not None}
    deletes = tuple(table for table, make in undoing.states.items() if make is None)
    created = {table.namespace for table, pointer in states.items() if pointer.content_id is None}
    levels = {level for namespace in created for level in missing_namespaces(rooms, namespace, head)}
    properties = {
        RUN_ID_PROPERTY: run.run_id,
        KIND_PROPERTY: run.kind,
        TABLES_PROPERTY: " ".join(run.tables),
        REVERTS_PROPERTY: " ".join(undoing.reverts),
        REVIVES_PROPERTY: encode_revived(_revived_files(undoing)) if undoing.revived else "",
    }
    return CommitRequest(
        branch=run.target,
        base=head.hash,
        message=undoing.message,
        puts=tuple(states.values()),
        deletes=deletes,
        namespaces=tuple(sorted(levels, key=len)),
        properties={key: value for key, value in properties.items() if value},
    )


def _revived_files(undoing: Undoing) -> list[tuple[str, str, str, str]]:
    changed = {str(table) for table in undoing.states}
    return [
        (table, uri, version, run_of(commit) or "")
        for commit in undoing.revived
        for table in tables_of(commit)
        if table in changed
        for uri, version in sorted(files_of(commit))
    ]


def _unknown(run: Run) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"The catalog went away while {run.table} was changed by run {run.run_id}; it may or may not have happened.",
        hint="When the catalog is back: lakegate log --limit 5",
        run_id=run.run_id,
    )
