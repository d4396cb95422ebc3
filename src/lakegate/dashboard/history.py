"""The commits of ``main``, with the runs that made them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Literal

from lakegate.dashboard.model import Problem, ReadModel, ResultPage, invalid_cursor, page_size
from lakegate.errors import NewerFormatError
from lakegate.ledger.event import Event, event_of, run_of
from lakegate.model.base import Value
from lakegate.model.identifiers import is_commit_hash
from lakegate.model.refs import MAIN, Commit
from lakegate.model.run import RunKind, RunLine

CommitKind = Literal["publish", "revert", "restore", "other"]
_KINDS: Mapping[RunKind, CommitKind] = {"revert": "revert", "restore": "restore"}


class CommitLine(Value):
    """One commit.

    Attributes:
        kind: ``publish``, ``revert`` or ``restore`` by lakegate; ``other`` for another writer's, which wasn't audited.
        accepted: Why somebody published it although its audit failed.
    """

    hash: str
    at: datetime
    message: str
    author: str
    kind: CommitKind
    tables: tuple[str, ...] = ()
    run_id: str | None = None
    reverted_by: str | None = None
    reverts: tuple[str, ...] = ()
    accepted: str | None = None
    accepted_by: str | None = None


def list_commits(model: ReadModel, *, limit: int = 50, cursor: str | None = None) -> ResultPage[CommitLine]:
    """Return a page of the commits of ``main``, newest first.

    Returns:
        The page. Without the journal, no commit counts as reverted, and ``problems`` says so.

    Raises:
        InputError: The cursor isn't one, or isn't in the history of ``main``.
    """
    if cursor is not None:
        if not is_commit_hash(cursor):
            raise invalid_cursor(cursor)
        model.require_on_main(cursor)  # a commit of a branch must not show as published
    size, problems = page_size(limit), list[Problem]()
    found = list(islice(model.catalog.history(cursor or MAIN, operations=True), size + 1))
    shown = found[:size]
    runs: Mapping[str, RunLine] = {}
    with model.reading("journal", problems):
        runs = model.journal.pages.lines([run_id for commit in shown if (run_id := run_of(commit)) is not None])
    return ResultPage[CommitLine](
        items=tuple(_line(commit, runs) for commit in shown),
        next=found[size].hash if len(found) > size else None,
        problems=tuple(problems),
    )


def _line(commit: Commit, runs: Mapping[str, RunLine]) -> CommitLine:
    line = CommitLine(
        hash=commit.hash,
        at=commit.time,
        message=commit.message,
        author=commit.author,
        kind="other",
        tables=commit.tables,
    )
    try:
        event = event_of(commit)
    except NewerFormatError:
        event = Event(run=run_of(commit) or "", kind="branch")
    if event is None:
        return line
    run = runs.get(event.run)
    return line.model_copy(
        update={
            "kind": _KINDS.get(event.kind, "publish"),
            "tables": tuple(event.tables) or commit.tables,
            "run_id": event.run,
            "reverted_by": None if run is None else run.reverted_by,
            "reverts": event.reverts,
            "accepted": None if event.accepted is None else event.accepted.reason,
            "accepted_by": None if event.accepted is None else event.accepted.actor,
        }
    )
