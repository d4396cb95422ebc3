"""Garbage collection: drop branches and delete files that nobody needs any more.

A file is deleted only if nothing has needed it for a while (:mod:`lakegate.upkeep.reachable`):

1. Drop expired branches of rejected and failed runs.
2. List all files in the warehouse. Those that are old enough are candidates.
3. Remove every file from the candidates that a branch or tag needs, or needed since the limit. So is every file of a
   state that a downstream system mirrors or hasn't been notified of yet.
4. Delete the rest. Before each batch, read the references again, to find what has been committed in the meantime.

If a table's metadata can't be read, all of its files are kept.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from lakegate.context import Context
from lakegate.errors import (
    LakegateError,
    StorageUnavailableError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.locations import canonical
from lakegate.model.maintenance import CollectedFolder, GcProblem, GcReport
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.states import OPEN
from lakegate.model.tables import CLOCKS_DIFFER, StoredFile
from lakegate.model.words import duration
from lakegate.ports import FileStore, Overlay, WarehouseFiles
from lakegate.upkeep.branches import expire_branches
from lakegate.upkeep.reachable import MARGIN, Reachable
from lakegate.upkeep.unpublished import Unpublished
from lakegate.wap.downstream import needed_states

_BATCH = 500
_CLOCK = ".lakegate-clock"
"""The folder below the warehouse's root for the file that shows what time it is there."""
_SAMPLE = 5
_ALL_RUNS = 1_000_000
_TABLE_FOLDERS = ("data", "metadata")
"""The folders of a table in Iceberg's default layout. Other files don't belong to the table."""
_RUN_FOLDER = re.compile(r".+_[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")
"""A table folder as :func:`lakegate.wap.stage.new_table` names it: the table's name and the run's id."""
_CHECKSUM = re.compile(r"\.(.+)\.crc")
"""A checksum file, which Hadoop's local file system writes next to each file."""
_UNKNOWN = TablePointer(
    table=TableIdentifier(namespace=("unknown",), name="unknown"),
    content_id=None,
    metadata_location="",
    snapshot_id=-1,
    schema_id=0,
    spec_id=0,
    sort_order_id=0,
)
"""A table that's known only by its metadata file."""


def gc(
    context: Context,
    *,
    files: FileStore,
    keep_rejected: timedelta,
    grace: timedelta,
    now: datetime,
    dry_run: bool = False,
    history: timedelta | None = None,
    keep_detail: timedelta | None = None,
) -> GcReport:
    """Drop expired branches, and delete the files that no branch or tag reaches.

    The warehouse must belong to this catalog alone: tables of another catalog would count as garbage. Beside a target,
    only what lakegate staged is deleted (:mod:`lakegate.upkeep.unpublished`).

    Args:
        keep_rejected: How long to keep the branch of a rejected or failed run after the run ended.
        grace: Keep files younger than this: a file is written long before it's committed. While runs are active, keep
            files written since ``grace`` before the first of them started.
        now: See :func:`warehouse_time`.
        history: How long to keep the files of states after the last commit that needed them; ``None`` for ever.
        keep_detail: How long the journal keeps reports and steps of ended runs; ``None`` for ever.

    Raises:
        RetryableError: When the catalog, the journal or the file system fails; some files may be deleted by then.
    """
    branches, problems = expire_branches(context, keep=keep_rejected, now=now, dry_run=dry_run)
    as_dropped = {branch.branch for branch in branches} if dry_run else set()
    oldest = None if history is None else now - history - MARGIN
    garbage: Garbage | Unpublished
    if isinstance(context.catalog, Overlay):
        garbage = Unpublished(context, context.catalog, files, as_dropped)
        folders = garbage.collect(collectable_before(context, now, grace), dry_run=dry_run)
        if oldest is not None and not dry_run:
            context.catalog.prune(min(oldest, collectable_before(context, now, grace)))
    else:
        garbage = Garbage(context, files, oldest=oldest, as_dropped=as_dropped)
        garbage.list_files(collectable_before(context, now, grace))
        garbage.drop_reachable()
        folders = garbage.collect(dry_run=dry_run)
    expired = 0
    if keep_detail is not None and not dry_run:
        with context.narrator.step("Deleting reports of old runs"):
            note = f"Its steps, reports and alerts were deleted on {now:%Y-%m-%d} (journal.keep_detail)."
            expired = context.journal.expire_detail(now - keep_detail, note)
    return GcReport(
        dry_run=dry_run,
        expired_runs=expired,
        branches=tuple(branches),
        folders=tuple(folders),
        reached_files=garbage.reached_files,
        young_files=garbage.young_files,
        ignored_files=0 if isinstance(garbage, Unpublished) else garbage.ignored_files,
        problems=(*problems, *garbage.problems),
    )


def warehouse_time(context: Context, files: WarehouseFiles) -> datetime:
    """Return the time for :func:`gc`: that of the warehouse's clock if this machine's clock is ahead of it.

    With a fast clock, gc would delete files that others have just written. To read the warehouse's clock, this writes a
    file and deletes it again.

    Raises:
        StorageUnavailableError: When the warehouse doesn't list that file.
    """
    folder = f"{context.warehouse.rstrip('/')}/{_CLOCK}"
    path = f"{folder}/clock-{secrets.token_hex(8)}"
    files.write(path, b"What time is it?")
    try:
        times = (file.modified_at for file in files.list(folder) if canonical(file.path) == canonical(path))
        there = next(times, None)
    finally:
        files.delete([path])
    if there is None:
        raise StorageUnavailableError(
            f"The warehouse {context.warehouse} doesn't list a file that was just written to it, so gc can't tell how "
            "old its files are. Nothing was deleted.",
            hint="Run it again. gc needs a store that lists new files at once.",
            warehouse=context.warehouse,
        )
    now = datetime.now(UTC)
    if now - there <= CLOCKS_DIFFER:
        return now
    ahead = duration((now - there).total_seconds())
    context.narrator.note(f"This machine's clock is {ahead} ahead of the warehouse's; gc uses the warehouse's.")
    return there


def collectable_before(context: Context, now: datetime, grace: timedelta) -> datetime:
    """Return the time before which an unreachable file must have been written to be garbage."""
    # Files of active runs may be about to be committed.
    runs = (run for status in OPEN for run in context.journal.runs(status=status, limit=_ALL_RUNS))
    return min([now, *(run.started_at for run in runs if run.finished_at is None)]) - grace


class Garbage:
    """The files that may be garbage, by canonical path.

    Args:
        oldest: Time of the oldest state that must stay readable; ``None`` for the whole history.
        as_dropped: Branches to treat as dropped.
        reach: As in :class:`~lakegate.upkeep.reachable.Reachable`.
    """

    def __init__(
        self,
        context: Context,
        files: FileStore,
        *,
        oldest: datetime | None,
        as_dropped: Collection[str] = (),
        reach: Callable[[TablePointer, set[str]], Iterator[str]] | None = None,
    ) -> None:
        self._context = context
        self._files = files
        self._as_dropped = as_dropped
        self._root = canonical(context.warehouse)
        self._candidates: dict[str, StoredFile] = {}
        self._checksums: dict[str, StoredFile] = {}  # by the path of the file that they're about
        self._elsewhere: set[str] = set()  # names of needed files outside the warehouse's root
        self._ours: dict[str, bool] = {}  # whether lakegate wrote the table in a folder
        self._respelled: dict[str, GcProblem] = {}  # by folder; see _is_respelled
        self._reachable = Reachable(context, self._root, oldest, self._keep, reach)
        self.reached_files = 0
        self.young_files = 0
        self.ignored_files = 0

    @property
    def problems(self) -> tuple[GcProblem, ...]:
        """Folders that are kept because their files may still be needed."""
        return (*self._reachable.problems, *self._respelled.values())

    def list_files(self, written_before: datetime) -> None:
        """List the warehouse, and make every file that's old enough a candidate."""
        with self._context.narrator.step("Listing the files in the warehouse") as step:
            for count, file in enumerate(self._files.list(self._context.warehouse), 1):
                if count % _BATCH == 0:
                    step.progress(count, 0, "files")
                folder, _, name = canonical(file.path).rpartition("/")
                checksum = _CHECKSUM.fullmatch(name)
                if checksum is not None:
                    self._checksums[f"{folder}/{checksum[1]}"] = file
                elif file.modified_at < written_before:
                    self._candidates[f"{folder}/{name}"] = file
                else:
                    self.young_files += 1

    def drop_reachable(self) -> None:
        """Remove files that references reach, or that downstream systems need, from the candidates."""
        with self._context.narrator.step("Finding the files that branches and tags need") as step:
            self._reachable.add(self._refs(), step)
            self._reachable.keep(needed_states(self._context))

    def collect(self, *, dry_run: bool) -> list[CollectedFolder]:
        """Delete the files that are certainly garbage; return them by folder."""
        unreachable = self._by_folder()
        collected: list[CollectedFolder] = []
        total, done = sum(map(len, unreachable.values())), 0
        text = "Counting unreachable files" if dry_run else "Deleting unreachable files"
        with self._context.narrator.step(text) as step:
            for folder, paths in sorted(unreachable.items()):
                deleted: list[StoredFile] = []
                for start in range(0, len(paths), _BATCH):
                    batch = paths[start : start + _BATCH]
                    deleted += self._delete(folder, batch, dry_run=dry_run)
                    done += len(batch)
                    step.progress(done, total, "files")
                if deleted:
                    size = sum(file.size_bytes for file in deleted)
                    sample = tuple(file.path for file in deleted[:_SAMPLE])
                    collected.append(CollectedFolder(folder=folder, files=len(deleted), size_bytes=size, sample=sample))
        return collected

    def _delete(self, folder: str, paths: list[str], *, dry_run: bool) -> list[StoredFile]:
        # Somebody may have created a branch or published in the meantime. Known commits cost nothing to add.
        self._reachable.add(self._refs())
        if self._reachable.must_keep(folder):
            return []
        sure = [path for path in paths if path in self._candidates and not self._is_respelled(folder, path)]
        files = [self._candidates[path] for path in sure]
        if not dry_run:
            checksums = [self._checksums[path] for path in sure if path in self._checksums]
            self._files.delete([file.path for file in (*files, *checksums)])
        return files

    def _refs(self) -> list[Ref]:
        refs = [ref for ref in self._context.catalog.list_refs() if ref.name not in self._as_dropped]
        # ``main`` once more at the end: a branch that was published and dropped while they were listed is in there.
        return [*sorted(refs, key=lambda ref: ref.name != MAIN), self._context.catalog.get_ref(MAIN)]

    def _keep(self, path: str) -> None:
        if self._candidates.pop(path, None) is not None:
            self.reached_files += 1
        if not path.startswith(f"{self._root}/"):
            self._elsewhere.add(path.rpartition("/")[2])

    def _is_respelled(self, folder: str, path: str) -> bool:
        """Return whether a table needs a file of this name under another path, after a move or through a link.

        Iceberg's file names contain UUIDs, so two paths with the same file name are the same file.
        """
        if path.rpartition("/")[2] not in self._elsewhere:
            return False
        problem = GcProblem(
            subject=folder,
            message=f"Tables refer to the files in {folder} by a different path from the one where gc found them.",
            hint="Set catalog.warehouse to what it was when the tables were written.",
        )
        self._respelled.setdefault(folder, problem)
        return True

    def _by_folder(self) -> dict[str, list[str]]:
        """Return the remaining candidates by table folder, if the table is lakegate's."""
        found: dict[str, list[str]] = {}
        metadata = {folder: path for path in sorted(self._candidates) if (folder := _folder_of_metadata(path))}
        for path in self._candidates:
            folder = next((folder for folder in self._tables_above(path) if self._is_ours(folder, metadata)), None)
            if folder is None:
                self.ignored_files += 1
            elif not self._reachable.must_keep(folder):
                found.setdefault(folder, []).append(path)
        return found

    def _tables_above(self, path: str) -> Iterator[str]:
        """Yield each folder below the root whose ``data`` or ``metadata`` folder contains the file, outermost first."""
        parts = path.removeprefix(f"{self._root}/").split("/")
        for depth in range(1, len(parts) - 1):
            if parts[depth] in _TABLE_FOLDERS:
                yield "/".join((self._root, *parts[:depth]))

    def _is_ours(self, folder: str, metadata: Mapping[str, str]) -> bool:
        if folder not in self._ours:
            known = self._reachable.has_table_in(folder) or _RUN_FOLDER.fullmatch(folder.rpartition("/")[2])
            self._ours[folder] = bool(known) or self._was_written_by_a_run(metadata.get(folder))
        return self._ours[folder]

    def _was_written_by_a_run(self, metadata: str | None) -> bool:
        if metadata is None:
            return False
        pointer = _UNKNOWN.model_copy(update={"metadata_location": self._candidates[metadata].path})
        try:
            snapshots = self._context.reader.snapshots(pointer)
        except LakegateError:
            return False
        return any(RUN_ID_PROPERTY in snapshot.summary for snapshot in snapshots)


def _folder_of_metadata(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    is_metadata = name.endswith((".metadata.json", ".metadata.json.gz")) and folder.endswith("/metadata")
    return folder.removesuffix("/metadata") if is_metadata else None
