"""Rebuild: the journal's copy of what is published, read anew from the target's whole history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lakegate.flow.history import event_of
from lakegate.flow.rooms import Rooms
from lakegate.model.journal import HistoryEvent
from lakegate.model.keeping import RebuiltJournal
from lakegate.protocols import Step

_TELL_EVERY = 100
_FileKey = tuple[str, str, str]


def rebuild(rooms: Rooms, target: str) -> RebuiltJournal:
    """Have the journal forget what it knows of published files, and learn it from all commits of ``target``.

    Raises:
        RetryableError: When the catalog or the journal are away; the journal is then as it was.
    """
    with rooms.narrator.step(f"Reading the history of {target}") as step:
        head = rooms.catalog.get_ref(target)
        commits, events = _read(rooms, head.hash, step)
    with rooms.narrator.step("Writing the journal"):
        rooms.journal.record(target, events, head.hash, rebuild=True)
    runs = {event.run_id for event in events}
    return RebuiltJournal(head=head, commits=commits, runs=len(runs), files=_count_published(events))


def _read(rooms: Rooms, head: str, step: Step) -> tuple[int, list[HistoryEvent]]:
    """Return the number of commits and what they say of runs, oldest first."""
    commits = 0
    newest_first: list[HistoryEvent] = []
    for commits, commit in enumerate(rooms.catalog.history(head), 1):
        event = event_of(commit)
        if event is not None:
            newest_first.append(event)
        if commits % _TELL_EVERY == 0:
            step.progress(commits, 0, "commits")
    return commits, newest_first[::-1]


def _count_published(events: Sequence[HistoryEvent]) -> int:
    owners: dict[_FileKey, str] = {}
    published_by: dict[tuple[str, str], list[_FileKey]] = defaultdict(list)
    for event in events:
        for owner in ((run_id, table) for run_id in event.reverts for table in event.tables):
            for key in published_by.pop(owner, ()):
                if owners.get(key) == owner[0]:
                    del owners[key]
        for table in event.tables:
            keys = [(table, *file) for file in event.files]
            owners |= dict.fromkeys(keys, event.run_id)
            published_by[event.run_id, table] += keys
    return len(owners)
