"""What is known of the journal itself."""

from __future__ import annotations

from lakegate.model.base import Value
from lakegate.model.refs import Ref


class JournalStatus(Value):
    """Where the journal is, and how much of the truth it has seen.

    Attributes:
        location: Its file, or its database's URL without password.
        version: Version of its tables.
        synced: Commit of ``main`` up to which its history is known; ``None`` when nothing is.
        runs: Number of runs it knows by their status.
        files: Versions of source files that are published, counted once for each table.
        abandoned: Ids of those whose process is gone: they wait for ``lakegate recover``.
        newest: Id of the newest run.
    """

    location: str
    version: str
    synced: str | None
    runs: dict[str, int]
    files: int
    abandoned: tuple[str, ...] = ()
    newest: str | None = None


class RebuiltJournal(Value):
    """What a journal knows after it was rebuilt.

    Attributes:
        head: The branch at the commit up to which its history was read.
        commits: Commits read.
        runs: Runs that they tell of.
        files: Versions of source files that stand as published, counted once for each table.
    """

    head: Ref
    commits: int
    runs: int
    files: int
