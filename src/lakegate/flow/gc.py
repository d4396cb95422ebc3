"""Garbage collection: what no reference reaches, and nobody can be writing any more, goes.

In this order, so that nothing which is needed can be taken for garbage:

1. Branches of rejected runs go when their time is over.
2. All files in the warehouse that are old enough are candidates.
3. Every file that any commit in the history of any branch or tag needs is no candidate any more.
4. Before each batch of deletions the references are looked at again, for what was committed meanwhile.

What cannot be read is needed: its table keeps all its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from lakegate.errors import LakegateError
from lakegate.flow.expire import expire_branches
from lakegate.flow.reached import Reached, canonical
from lakegate.flow.rooms import Rooms
from lakegate.model.gc import CollectedFolder, GcProblem, GcReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import StoredFile
from lakegate.protocols import FileStore

_BATCH = 500
_SAMPLE = 5
_ALL_RUNS = 1_000_000
_PARTS = ("data", "metadata")
"""The folders of a table (Iceberg's default layout); files beside them are not the table's."""
_MADE_BY_US = re.compile(r".+_[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")
"""A folder as :func:`lakegate.flow.stage.stage` names it: the table's name and the run's id."""
_CHECKSUM = re.compile(r"\.(.+)\.crc")
"""What Hadoop's local file system puts beside each file it writes."""
_UNKNOWN = TablePointer(
    table=TableIdentifier(namespace=("unknown",), name="unknown"),
    content_id=None,
    metadata_location="",
    snapshot_id=-1,
    schema_id=0,
    spec_id=0,
    sort_order_id=0,
)
"""A table that is known by its metadata file only."""


def gc(
    rooms: Rooms,
    *,
    files: FileStore,
    keep_rejected: timedelta,
    grace: timedelta,
    now: datetime,
    dry_run: bool = False,
    history: timedelta | None = None,
) -> GcReport:
    """Drop branches whose time is over, and delete the files that no reference reaches.

    The warehouse must belong to this catalog alone: tables of another one are reached by none of its references.

    Args:
        rooms: What to work with.
        files: The warehouse's files.
        keep_rejected: How long the branch of a rejected or failed run is kept after the run ended.
        grace: Age below which a file is left alone: one is written long before it is committed. While runs go on, what
            they may have written is left alone, too: files are spared from ``grace`` before the first of them started.
        now: The time to reckon with.
        dry_run: Delete and drop nothing, only tell what would go.
        history: How far back states must stay readable; ``None`` for all that was ever committed.

    Raises:
        RetryableError: When the catalog, the journal or the file system fail; what was not reported may be gone then.
    """
    branches, problems = expire_branches(rooms, keep=keep_rejected, now=now, dry_run=dry_run)
    leaving = {branch.branch for branch in branches} if dry_run else set()
    garbage = _Garbage(rooms, files, oldest=None if history is None else now - history, leaving=leaving)
    garbage.list_files(_written_before(rooms, grace, now))
    garbage.sift()
    folders = garbage.collect(dry_run=dry_run)
    return GcReport(
        dry_run=dry_run,
        branches=tuple(branches),
        folders=tuple(folders),
        reached_files=garbage.reached_files,
        young_files=garbage.young_files,
        ignored_files=garbage.ignored_files,
        problems=(*problems, *garbage.problems),
    )


def _written_before(rooms: Rooms, grace: timedelta, now: datetime) -> datetime:
    going_on = [
        run
        for status in ("running", "staged")
        for run in rooms.journal.runs(status=status, limit=_ALL_RUNS)
        if run.finished_at is None
    ]
    return min([now, *(run.started_at for run in going_on)]) - grace


class _Garbage:
    """The candidates, and what becomes of them."""

    def __init__(self, rooms: Rooms, files: FileStore, *, oldest: datetime | None, leaving: set[str]) -> None:
        self._rooms = rooms
        self._files = files
        self._leaving = leaving
        self._root = canonical(rooms.warehouse)
        self._candidates: dict[str, StoredFile] = {}
        self._checksums: dict[str, StoredFile] = {}
        self._elsewhere: set[str] = set()
        self._ours: dict[str, bool] = {}
        self._misspelt: dict[str, GcProblem] = {}
        self._reached = Reached(rooms, self._root, oldest, self._spare)
        self.reached_files = 0
        self.young_files = 0
        self.ignored_files = 0

    @property
    def problems(self) -> tuple[GcProblem, ...]:
        """What was kept for want of certainty."""
        return (*self._reached.problems, *self._misspelt.values())

    def list_files(self, written_before: datetime) -> None:
        """Take every file that is old enough as a candidate."""
        with self._rooms.narrator.step("Listing the files in the warehouse") as step:
            for count, file in enumerate(self._files.list(self._rooms.warehouse), 1):
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

    def sift(self) -> None:
        """Take what references reach from the candidates."""
        with self._rooms.narrator.step("Finding what branches and tags reach") as step:
            self._reached.take_in(self._standing_refs(), step)

    def collect(self, *, dry_run: bool) -> list[CollectedFolder]:
        """Delete what is garbage for certain; return what went, by folder."""
        doomed = self._doomed()
        collected: list[CollectedFolder] = []
        total, done = sum(map(len, doomed.values())), 0
        with self._rooms.narrator.step("Counting" if dry_run else "Deleting what nothing reaches") as step:
            for folder, paths in sorted(doomed.items()):
                gone: list[StoredFile] = []
                for batch in _batches(paths):
                    gone += self._delete(folder, batch, dry_run=dry_run)
                    done += len(batch)
                    step.progress(done, total, "files")
                if gone:
                    collected.append(_collected(folder, gone))
        return collected

    def _delete(self, folder: str, paths: list[str], *, dry_run: bool) -> list[StoredFile]:
        # Somebody may have made a branch or published at this very moment; what is known by now costs nothing again.
        self._reached.take_in(self._standing_refs())
        if self._reached.spares(folder):
            return []
        sure = [path for path in paths if path in self._candidates and not self._is_misspelt(folder, path)]
        gone = [self._candidates[path] for path in sure]
        if not dry_run:
            checksums = [self._checksums[path] for path in sure if path in self._checksums]
            self._files.delete([file.path for file in (*gone, *checksums)])
        return gone

    def _standing_refs(self) -> list[Ref]:
        return [ref for ref in self._rooms.catalog.list_refs() if ref.name not in self._leaving]

    def _spare(self, path: str) -> None:
        if self._candidates.pop(path, None) is not None:
            self.reached_files += 1
        if not path.startswith(f"{self._root}/"):
            self._elsewhere.add(path.rpartition("/")[2])

    def _is_misspelt(self, folder: str, path: str) -> bool:
        """Tell whether a file of this name is reached under another root: by a link, or from before a move.

        Iceberg's file names hold UUIDs, so a name that occurs twice is one file spelt in two ways.
        """
        if path.rpartition("/")[2] not in self._elsewhere:
            return False
        problem = GcProblem(
            subject=folder,
            message=f"Files in {folder} are reached by another path than the one they were found at.",
            hint="Set catalog.warehouse as it was when the tables were written.",
        )
        self._misspelt.setdefault(folder, problem)
        return True

    def _doomed(self) -> dict[str, list[str]]:
        """Return the candidates left, by the folder of the table of ours that they are in."""
        doomed: dict[str, list[str]] = {}
        probes = {folder: path for path in sorted(self._candidates) for folder in _metadata_folder(path)}
        for path in self._candidates:
            folder = next((folder for folder in self._tables_above(path) if self._is_ours(folder, probes)), None)
            if folder is None:
                self.ignored_files += 1
            elif not self._reached.spares(folder):
                doomed.setdefault(folder, []).append(path)
        return doomed

    def _tables_above(self, path: str) -> Iterator[str]:
        """Yield each folder below the root in whose ``data`` or ``metadata`` the file is, outermost first."""
        parts = path.removeprefix(f"{self._root}/").split("/")
        for depth in range(1, len(parts) - 1):
            if parts[depth] in _PARTS:
                yield "/".join((self._root, *parts[:depth]))

    def _is_ours(self, folder: str, probes: Mapping[str, str]) -> bool:
        if folder not in self._ours:
            known = self._reached.knows(folder) or _MADE_BY_US.fullmatch(folder.rpartition("/")[2])
            self._ours[folder] = bool(known) or self._was_written_by_a_run(probes.get(folder))
        return self._ours[folder]

    def _was_written_by_a_run(self, metadata: str | None) -> bool:
        if metadata is None:
            return False
        pointer = _UNKNOWN.model_copy(update={"metadata_location": self._candidates[metadata].path})
        try:
            snapshots = self._rooms.reader.snapshots(pointer)
        except LakegateError:
            return False
        return any(RUN_ID_PROPERTY in snapshot.summary for snapshot in snapshots)


def _metadata_folder(path: str) -> Iterator[str]:
    folder, _, name = path.rpartition("/")
    if name.endswith(".metadata.json") and folder.endswith("/metadata"):
        yield folder.removesuffix("/metadata")


def _batches(paths: list[str]) -> Iterator[list[str]]:
    return (paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH))


def _collected(folder: str, files: list[StoredFile]) -> CollectedFolder:
    return CollectedFolder(
        folder=folder,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        sample=tuple(file.path for file in files[:_SAMPLE]),
    )
