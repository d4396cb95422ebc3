"""What commits of runs say, for tests that make commits themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lakegate.journal.journal import Journal
from lakegate.ledger.event import Event, File, PastCommit, as_properties, effects_on, event_of
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit
from lakegate.model.run import Run, RunKind


def said(
    run_id: str,
    *tables: str,
    files: Sequence[SourceFile | File] = (),
    removes: Sequence[str] = (),
    kind: RunKind | None = None,
    **more: Any,
) -> Event:
    """Return what a commit says by which a run published ``files`` to ``tables``, and ``removes`` others from them."""
    own = tuple((one.uri, one.version) if isinstance(one, SourceFile) else one for one in files)
    kind = kind or ("ingest" if own else "revert" if removes else "transaction")
    return Event(run=run_id, kind=kind, tables=effects_on(tables, run_id, own, removes), **more)


def past(commit: str, event: Event | None = None, *, time: datetime = datetime(2026, 1, 31, tzinfo=UTC)) -> PastCommit:
    """Return a commit as the journal records it."""
    return PastCommit(hash=commit, time=time, event=event)


def properties(*arguments: Any, **options: Any) -> dict[str, str]:
    """Return the properties of a commit that says what :func:`said` returns."""
    return as_properties(said(*arguments, **options))


def save_with_commits(journal: Journal, *runs: Run) -> None:
    """Save runs, and record a commit for each that is published."""
    for run in runs:
        journal.save(run)
        if run.status == "published":
            commit = f"c-{run.run_id}" if run.publication is None else run.publication.commit
            event = said(run.run_id, *run.tables, kind=run.kind)
            journal.record("main", [past(commit, event, time=run.finished_at or run.started_at)], commit)


def event_in(commit: Commit) -> Event:
    """Return what a run's commit says."""
    event = event_of(commit)
    assert event is not None
    return event
