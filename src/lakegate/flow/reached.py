"""What references reach: every table state in their histories, and the files it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime

from lakegate.errors import LakegateError
from lakegate.flow.rooms import Rooms
from lakegate.model.gc import GcProblem
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.protocols import Step

_ALIASES = {"s3a": "s3", "s3n": "s3"}


def canonical(location: str) -> str:
    """Return one spelling for all that name the same file.

    Example:
        >>> canonical("file:///lake//t"), canonical("/lake/t"), canonical("s3a://bucket/t/")
        ('file:/lake/t', 'file:/lake/t', 's3:/bucket/t')
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", location
    elif scheme == "file":
        rest = rest.removeprefix("//localhost")
    return f"{_ALIASES.get(scheme, scheme)}:{re.sub('/+', '/', rest)}".rstrip("/")


class Reached:
    """All that references reach, taken in commit by commit, each one once.

    Args:
        rooms: Where to look.
        root: Folder of all tables, in canonical spelling.
        oldest: Time of the oldest state that must stay readable, as it was at that time; ``None`` for all of history.
        found: Called with each file reached, in canonical spelling.
    """

    def __init__(self, rooms: Rooms, root: str, oldest: datetime | None, found: Callable[[str], None]) -> None:
        self._rooms = rooms
        self._root = root
        self._oldest = oldest
        self._found = found
        self._commits: set[str] = set()
        self._states: set[str] = set()
        self._walked: set[str] = set()
        self._folders: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {}
        self._foreign: set[str] = set()
        self._broken: dict[str, GcProblem] = {}

    def take_in(self, refs: Iterable[Ref], step: Step | None = None) -> None:
        """Take in what ``refs`` reach and was not taken in before."""
        pending: dict[str, TablePointer] = {}
        for ref in refs:
            for pointer in self._new_states(ref):
                pending[pointer.metadata_location] = pointer
        for done, pointer in enumerate(pending.values(), 1):
            self._reach(pointer)
            if step is not None:
                step.progress(done, len(pending), "table states")

    @property
    def problems(self) -> tuple[GcProblem, ...]:
        """One for each table some state of which could not be read."""
        return tuple(self._broken.values())

    def knows(self, folder: str) -> bool:
        """Tell whether some commit put a table that stands in ``folder``."""
        return any(folder in folders for folders in self._folders.values())

    def spares(self, folder: str) -> bool:
        """Tell whether nothing in ``folder`` may go, because not everything that reaches into it could be read.

        That is so for the folders of views and the like, and for all folders of a table some state of which could not
        be read: those of its names, and those called as lakegate and Spark would call new ones (``<name>_…``), whose
        files may have been replayed onto it.
        """
        if folder in self._foreign:
            return True
        return any(
            folder in self._folders.get(name, ()) or folder.startswith(f"{self._root}/{name.replace('.', '/')}_")
            for name in self._broken_names()
        )

    def _new_states(self, ref: Ref) -> list[TablePointer]:
        found: list[TablePointer] = []
        last: Commit | None = None
        beyond = False
        for commit in self._rooms.catalog.history(ref.hash, operations=True):
            if not beyond and self._oldest is not None and commit.time <= self._oldest:
                beyond = True
                found += self._state(commit)
            if commit.hash in self._commits:
                return found
            self._commits.add(commit.hash)
            self._foreign.update(_folder(location) for location in commit.foreign)
            if not beyond:
                found += commit.puts
            last = commit
        if last is not None and not beyond:
            # A history that was cut short by the catalog's own maintenance begins with tables already there.
            found += self._state(last)
        return found

    def _state(self, commit: Commit) -> list[TablePointer]:
        if commit.hash in self._states:
            return []
        self._states.add(commit.hash)
        return list(self._rooms.catalog.list_tables(Ref(name=commit.hash, hash=commit.hash, kind="detached")))

    def _reach(self, pointer: TablePointer) -> None:
        name = str(pointer.table)
        self._folders.setdefault(name, set()).add(_folder(pointer.metadata_location))
        self._names.setdefault(pointer.content_id or name, set()).add(name)
        try:
            for path in self._rooms.reader.reach(pointer, self._walked):
                self._found(canonical(path))
        except LakegateError as error:
            self._broken.setdefault(name, GcProblem(subject=name, message=error.message, hint=error.hint))

    def _broken_names(self) -> set[str]:
        """Return the names of tables that could not be read, and all other names these tables ever had."""
        broken = set(self._broken)
        grown = 0
        while len(broken) != grown:
            grown = len(broken)
            for names in self._names.values():
                if names & broken:
                    broken |= names
        return broken


def _folder(metadata_location: str) -> str:
    return canonical(metadata_location).rpartition("/")[0].removesuffix("/metadata")
