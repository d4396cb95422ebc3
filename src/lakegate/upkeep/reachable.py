"""Files that branches and tags reach, and how far back a state may be made current again.

``gc`` deletes a file only if nothing has needed it for ``gc.keep``: no branch or tag now, no commit in their history
since then, and neither did the state that was current at that time. A revert, a restore, a new branch or a new tag goes
back at most ``gc.keep``. So both can run at the same time without knowing of each other. ``gc`` waits for
:data:`MARGIN` longer, because clocks differ and a commit takes a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta

from lakegate.context import Context
from lakegate.errors import LakegateError
from lakegate.model.locations import canonical
from lakegate.model.maintenance import GcProblem
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.ports import Step

MARGIN = timedelta(hours=1)
"""How much longer than ``gc.keep`` files stay."""


def with_other_names(tables: Iterable[str], names: Collection[Collection[str]]) -> set[str]:
    """Return names of ``tables`` with all other names that the same tables had.

    Args:
        names: For each table, the names that it had. Several tables may have had the same name in turn.
    """
    found, known = set(tables), 0
    while len(found) != known:
        known = len(found)
        found.update(*(one for one in names if not found.isdisjoint(one)))
    return found


class Reachable:
    """The files that references reach, added commit by commit, each commit once.

    Args:
        root: Folder of all tables, as a canonical path.
        oldest: Time of the oldest state that must stay readable; ``None`` for the whole history.
        found: Called with the canonical path of each reachable file.
        reach: Yields the files that a state needs; by default :meth:`lakegate.ports.TableReader.reach`.
    """

    def __init__(
        self,
        context: Context,
        root: str,
        oldest: datetime | None,
        found: Callable[[str], None],
        reach: Callable[[TablePointer, set[str]], Iterator[str]] | None = None,
    ) -> None:
        self._context = context
        self._root = root
        self._oldest = oldest
        self._found = found
        self._files_of = reach or context.reader.reach
        self._heads: set[str] = set()  # whose history was added
        self._commits: set[str] = set()
        self._states: set[str] = set()  # commits of which all tables were added
        self._walked: set[str] = set()  # metadata files that were read
        self._folders: dict[str, set[str]] = {}  # by the table's name
        self._names: dict[str, set[str]] = {}  # by the table's content id
        self._foreign: set[str] = set()  # folders of views and other content
        self._unreadable: dict[str, GcProblem] = {}  # by the table's name

    def add(self, refs: Iterable[Ref], step: Step | None = None) -> None:
        """Add everything that ``refs`` reach. Commits that were added before cost nothing."""
        states = (pointer for ref in refs for pointer in self._new_states(ref))
        pending = {(pointer.table, pointer.metadata_location): pointer for pointer in states}
        for done, pointer in enumerate(pending.values(), 1):
            self._reach(pointer)
            if step is not None:
                step.progress(done, len(pending), "table states")

    def keep(self, states: Iterable[TablePointer]) -> None:
        """Add states that are needed whether references reach them or not."""
        for pointer in states:
            self._reach(pointer)

    @property
    def problems(self) -> tuple[GcProblem, ...]:
        """A problem for each table with a state that couldn't be read."""
        return tuple(self._unreadable.values())

    def has_table_in(self, folder: str) -> bool:
        """Return whether a commit put a table in ``folder``."""
        return any(folder in folders for folders in self._folders.values())

    def must_keep(self, folder: str) -> bool:
        """Return whether to keep all of ``folder``, because some of the metadata that may refer to it can't be read.

        That's true of the folders of views and other content, and of all folders of a table with an unreadable state:
        those that commits name, and those named like the folders of new tables (``<name>_…``), whose files may have
        been rebased onto the table.
        """
        if folder in self._foreign:
            return True
        return any(
            folder in self._folders.get(name, ()) or folder.startswith(f"{self._root}/{name.replace('.', '/')}_")
            for name in with_other_names(self._unreadable, self._names.values())
        )

    def _new_states(self, ref: Ref) -> list[TablePointer]:
        # A head's own state always counts, even if it's older than the limit.
        if ref.hash in self._heads or (self._oldest is None and ref.hash in self._commits):
            return []
        self._heads.add(ref.hash)
        found: list[TablePointer] = []
        last: Commit | None = None
        beyond = False
        for commit in self._context.catalog.history(ref.hash, operations=True):
            # Clocks may have gone back: an older commit can have a later time.
            if beyond != (self._oldest is not None and commit.time <= self._oldest):
                beyond = not beyond
                found += self._state(commit)
            if commit.hash in self._commits:
                return found
            self._commits.add(commit.hash)
            self._foreign.update(_folder(location) for location in commit.foreign)
            if not beyond:
                found += commit.puts
            last = commit
        if last is not None and not beyond:
            # If the catalog's own maintenance has cut the history, its first commit already has tables.
            found += self._state(last)
        return found

    def _state(self, commit: Commit) -> list[TablePointer]:
        if commit.hash in self._states:
            return []
        self._states.add(commit.hash)
        return list(self._context.catalog.list_tables(Ref.detached(commit.hash)))

    def _reach(self, pointer: TablePointer) -> None:
        name = str(pointer.table)
        self._folders.setdefault(name, set()).add(_folder(pointer.metadata_location))
        self._names.setdefault(pointer.content_id or name, set()).add(name)
        try:
            for path in self._files_of(pointer, self._walked):
                self._found(canonical(path))
        except LakegateError as error:
            self._unreadable.setdefault(name, GcProblem(subject=name, message=error.message, hint=error.hint))


def _folder(metadata_location: str) -> str:
    return canonical(metadata_location).rpartition("/")[0].removesuffix("/metadata")
