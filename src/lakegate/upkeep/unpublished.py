"""Garbage collection beside a target: delete what lakegate staged and never published.

A target's tables and files belong to its users, and their own maintenance cleans up there. What lakegate knows for sure
are the states that it staged: a file is deleted only if such a state brought it, no branch or tag reaches that state
any more, and neither ``main`` nor the table as it is in the target reaches the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from lakegate.context import Context
from lakegate.errors import LakegateError
from lakegate.model.locations import canonical
from lakegate.model.maintenance import CollectedFolder, GcProblem
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.tables import StoredFile
from lakegate.ports import FileStore, Overlay

_BATCH = 500
_SAMPLE = 5


class Unpublished:
    """The files of states that were staged and abandoned.

    Args:
        as_dropped: Branches to treat as dropped.

    Attributes:
        reached_files: How many of the files that such states brought are needed.
        young_files: How many are too new.
        problems: Folders of tables with a state that can't be read: all of their files are kept.
    """

    def __init__(self, context: Context, overlay: Overlay, files: FileStore, as_dropped: Collection[str]) -> None:
        self._context = context
        self._as_dropped = as_dropped
        self._overlay = overlay
        self._files = files
        self.reached_files = 0
        self.young_files = 0
        self.problems: list[GcProblem] = []

    def collect(self, before: datetime, *, dry_run: bool) -> list[CollectedFolder]:
        """Delete such files from before ``before``; return them by table folder.

        Raises:
            RetryableError: When the catalog or the file system fails; some files may be deleted by then.
        """
        brought = self._brought(before)
        if not brought:
            return []
        self._overlay.notice_all()
        needed = self._needed(brought)
        kept = {problem.subject for problem in self.problems}
        collected: list[CollectedFolder] = []
        for folder, paths in sorted(brought.items()):
            self.reached_files += len(paths & needed)
            found = [] if folder in kept else self._found(folder, paths - needed, before)
            if found:
                collected.append(self._delete(folder, found, dry_run=dry_run))
        return collected

    def _brought(self, before: datetime) -> dict[str, set[str]]:
        """Return the files that abandoned states have and the states before them don't, by table folder."""
        root, brought = f"{canonical(self._context.warehouse)}/", dict[str, set[str]]()
        for base, state in self._overlay.abandoned_states(before, self._as_dropped):
            folder = _folder(state)
            if not folder.startswith(root):
                continue
            try:
                paths = set(map(canonical, self._context.reader.new_files(base, state)))
            except LakegateError:  # it was deleted already, or its base was
                continue
            brought.setdefault(folder, set()).update(path for path in paths if path.startswith(f"{folder}/"))
        return brought

    def _needed(self, folders: Collection[str]) -> set[str]:
        """Return the files that tables in ``folders`` need."""
        needed, walked = set[str](), set[str]()
        for pointer, is_current in self._states():
            if _folder(pointer) not in folders or pointer.metadata_location in walked:
                continue
            try:
                needed.update(map(canonical, self._context.reader.reach(pointer, walked)))
            except LakegateError as error:
                if is_current:  # earlier ones can be gone: the target deletes them by its own rules
                    self.problems.append(GcProblem(subject=_folder(pointer), message=error.message, hint=error.hint))
        return needed

    def _states(self) -> Iterator[tuple[TablePointer, bool]]:
        """Yield the tables of all branches and tags, and whether they're current, or earlier ones of ``main``."""
        catalog = self._context.catalog
        for ref in [*(ref for ref in catalog.list_refs() if ref.name not in self._as_dropped), catalog.get_ref(MAIN)]:
            yield from ((pointer, True) for pointer in catalog.list_tables(Ref.detached(ref.hash)))
        for commit in catalog.history(MAIN, operations=True):
            yield from ((pointer, False) for pointer in commit.puts)

    def _found(self, folder: str, paths: Collection[str], before: datetime) -> list[StoredFile]:
        """Return those of the files that exist and are old enough, metadata last: it says what else there is."""
        root = self._context.warehouse.rstrip("/")
        there = (
            self._files.list(f"{root}{folder.removeprefix(canonical(root))}") if paths else ()
        )  # as the store spells it
        files = [file for file in there if canonical(file.path) in paths]
        old = [file for file in files if file.modified_at < before]
        self.young_files += len(files) - len(old)
        return sorted(old, key=lambda file: (f"{folder}/metadata/" in canonical(file.path), file.path))

    def _delete(self, folder: str, files: Sequence[StoredFile], *, dry_run: bool) -> CollectedFolder:
        for start in range(0, 0 if dry_run else len(files), _BATCH):
            self._files.delete([file.path for file in files[start : start + _BATCH]])
        return CollectedFolder(
            folder=folder,
            files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            sample=tuple(file.path for file in files[:_SAMPLE]),
        )


def _folder(pointer: TablePointer) -> str:
    return canonical(pointer.metadata_location).rpartition("/")[0].removesuffix("/metadata")
