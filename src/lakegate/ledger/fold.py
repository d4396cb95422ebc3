"""What is published, as a fold over commits: each moves the entries of renamed tables, removes some, and adds some.

An entry says that a run's rows stand in a table (:data:`~lakegate.ledger.event.Entry`). It takes the run's source files
with it when it goes. Pure functions: the journal applies the same to its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lakegate.ledger.event import Entry, Event, File, PastCommit, family

FileKey = tuple[str, str, str]
"""A source file of a table: the table's name, URI and version."""


@dataclass(slots=True)
class Ledger:
    """The fold over some commits, as far as they say.

    Attributes:
        standing: The runs that stand in each table, each with source files that it published there.
        files: The run that published each source file and stands, the newest version of a path last.
        removed: Entries that the commits removed, whether or not they were added again.
        taken: The ``files``, and those that were published and removed again.
        moved: Old and new name of each renamed table, and the run that renamed it, in order.
        removed_by: The run that last removed an entry of each run.
        publications: The commit of each run.
    """

    standing: dict[Entry, set[FileKey]] = field(default_factory=dict)
    files: dict[FileKey, str] = field(default_factory=dict)
    removed: dict[Entry, None] = field(default_factory=dict)
    taken: dict[FileKey, None] = field(default_factory=dict)
    moved: list[tuple[str, str, str]] = field(default_factory=list)
    removed_by: dict[str, str] = field(default_factory=dict)
    publications: dict[str, PastCommit] = field(default_factory=dict)

    @property
    def runs(self) -> set[str]:
        """The runs that stand in some table."""
        return {run for _, run in self.standing}

    def apply(self, commit: PastCommit) -> None:
        """Apply a commit; one that lakegate didn't make changes nothing."""
        if (event := commit.event) is None:
            return
        self.publications[event.run] = commit
        for old, new in moves(event):
            self._move(old, new, event.run)
        for entry in event.removed:
            self._remove(entry, event.run)
        for entry, files in event.added:
            self._add(entry, files)

    def _remove(self, entry: Entry, by: str) -> None:
        self.removed[entry] = None
        self.removed_by[entry[1]] = by
        for key in self.standing.pop(entry, ()):
            if self.files.get(key) == entry[1]:  # otherwise, another run has published it again
                del self.files[key]

    def _move(self, old: str, new: str, by: str) -> None:
        self.moved.append((old, new, by))
        for entry in [one for one in self.standing if one[0] == new]:
            self._remove(entry, by)  # somebody else has dropped the table that had the name
        self.files = {_moved(key, old, new): run for key, run in self.files.items()}
        self.standing = {
            _moved(entry, old, new): {_moved(key, old, new) for key in keys} for entry, keys in self.standing.items()
        }

    def _add(self, entry: Entry, files: Iterable[File]) -> None:
        table, run = entry
        keys = [(table, *file) for file in files]
        self.standing.setdefault(entry, set()).update(keys)
        for key in keys:
            self.files.pop(key, None)  # it becomes the newest
            self.files[key] = run
            self.taken[key] = None


def fold(commits: Iterable[PastCommit]) -> Ledger:
    """Return the fold over ``commits``, oldest first."""
    ledger = Ledger()
    for commit in commits:
        ledger.apply(commit)
    return ledger


def segments(commits: Iterable[PastCommit]) -> Iterator[Ledger]:
    """Split the fold over ``commits`` at renames, for those who don't hold the entries before them in memory.

    Yields:
        The fold over each segment. What it ``moved`` comes first.
    """
    ledger = Ledger()
    for commit in commits:
        if commit.event is not None and commit.event.moved:
            yield ledger
            ledger = Ledger()
        ledger.apply(commit)
    yield ledger


def moves(event: Event) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each table that moves in the ledger."""
    return tuple(dict.fromkeys((family(old), family(new)) for old, new in event.moved))


@dataclass(slots=True)
class Span:
    """Who stands in which table before and after some commits, as far as these say, by the tables' names after them.

    Attributes:
        before: Whether each entry that they mention stood before them.
        after: Whether it stands after them.
        removed_by: The run that last removed each entry.
    """

    before: dict[Entry, bool] = field(default_factory=dict)
    after: dict[Entry, bool] = field(default_factory=dict)
    removed_by: dict[Entry, str] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Continue with the next event."""
        for old, new in moves(event):
            self.before = {_moved(entry, old, new): stood for entry, stood in self.before.items()}
            self.after = {_moved(entry, old, new): stands for entry, stands in self.after.items()}
            self.removed_by = {_moved(entry, old, new): run for entry, run in self.removed_by.items()}
        for entry in event.removed:
            self.before.setdefault(entry, True)
            self.after[entry] = False
            self.removed_by[entry] = event.run
        for entry, _ in event.added:
            self.before.setdefault(entry, False)
            self.after[entry] = True

    def remover(self, table: str, run: str) -> str | None:
        """Return the run that removed ``run`` from a table; ``None`` if it stands there, as far as is known."""
        entry = family(table), run
        return None if self.after.get(entry, True) else self.removed_by[entry]

    def gained(self, table: str) -> list[str]:
        """Return the runs that stand in a table after the commits but didn't before, oldest first."""
        return [run for name, run in self.after if name == family(table) and self._changed((name, run), to=True)]

    def lost(self, table: str) -> list[str]:
        """Return the runs that stood in a table before the commits but don't after them."""
        return [run for name, run in self.after if name == family(table) and self._changed((name, run), to=False)]

    def _changed(self, entry: Entry, *, to: bool) -> bool:
        return (self.before[entry], self.after[entry]) == (not to, to)


def _moved(key: tuple[str, *tuple[str, ...]], old: str, new: str) -> Any:
    """Return an entry or a file's key with the table's new name."""
    return (new, *key[1:]) if key[0] == old else key
