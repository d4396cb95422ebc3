"""Inspect a table's metadata: list every file it reaches, and compare its totals and row ids with the manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus

from lakegate.errors import ConfigurationError, InputError, NotFoundError, SourceError
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.manifests import (
    ListedManifest,
    ManifestList,
    count_mismatches,
    counts_of,
    explicit_first_row_id,
    read_list,
    read_manifest,
)
from lakegate.iceberg.metadata import Document
from lakegate.model.maintenance import Flaw, NeededFile
from lakegate.model.refs import TablePointer

_PARQUET = "PARQUET"


class Inspector:
    """Inspects one state of a table; see :meth:`lakegate.ports.TableReader.inspect`."""

    def __init__(self, pointer: TablePointer, files: TableFiles, walked: set[str]) -> None:
        self._pointer = pointer
        self._files = files
        self._walked = walked
        self._is_current = True
        self._next_row_id = 0
        self._row_id_ranges: list[tuple[int, int, str]] = []

    def inspect(self) -> Iterator[NeededFile | Flaw]:
        """Yield the files and flaws of the state, those of its current snapshot first."""
        file = NeededFile(self._pointer.metadata_location, "metadata file")
        yield file
        if self._was_walked(file.path):
            return
        try:
            document = self._files.metadata(self._pointer).document
        except InputError as error:
            yield _read_flaw(file, error)
            return
        current = self._pointer.snapshot_id
        self._next_row_id = document.get("next-row-id") or 0
        for snapshot in sorted(document.get("snapshots") or (), key=lambda one: one["snapshot-id"] != current):
            self._is_current = snapshot["snapshot-id"] == current
            self._row_id_ranges = []
            yield from self._snapshot(snapshot)
            yield from self._overlapping_row_ids(file)
        for key in ("statistics", "partition-statistics"):
            for one in document.get(key) or ():
                is_current = one["snapshot-id"] == current
                size = one.get("file-size-in-bytes")
                yield NeededFile(one["statistics-path"], "statistics file", size, is_current=is_current)

    def _snapshot(self, snapshot: Document) -> Iterator[NeededFile | Flaw]:
        location = snapshot.get("manifest-list")
        if location is None:  # format version 1 may list the manifests in the snapshot itself
            for path in snapshot.get("manifests") or ():
                yield from self._manifest(NeededFile(path, "manifest", is_current=self._is_current), None)
            return
        file = NeededFile(location, "manifest list", is_current=self._is_current)
        yield file
        if self._was_walked(location):
            return
        try:
            manifests: ManifestList = self._files.read("Manifest list", location, self._pointer, read_list)
        except InputError as error:
            yield _read_flaw(file, error)
            return
        for line in manifests.manifests:
            size = line.file.manifest_length
            need = NeededFile(line.file.manifest_path, "manifest", size, is_current=self._is_current)
            yield from self._manifest(need, line)
        if all(line.has_counts for line in manifests.manifests):
            for problem in count_mismatches(snapshot, manifests):
                yield Flaw("wrong-count", file, problem)

    def _overlapping_row_ids(self, file: NeededFile) -> Iterator[Flaw]:
        """Yield files of one snapshot that share row ids, or have row ids that new rows will get."""
        previous_end, previous_path = 0, ""
        for first, end, path in sorted(self._row_id_ranges):
            if first < previous_end:
                yield Flaw("wrong-count", file, f"{path} and {previous_path} share row ids from {first} on")
                return
            previous_end, previous_path = end, path
        if previous_end > self._next_row_id:
            last = f"the last row id of {previous_path} is {previous_end - 1}"
            yield Flaw("wrong-count", file, f"{last}, but the table's next row id is {self._next_row_id}")

    def _manifest(self, file: NeededFile, line: ListedManifest | None) -> Iterator[NeededFile | Flaw]:
        yield file
        if self._was_walked(file.path):
            return
        try:
            entries = self._files.read("Manifest", file.path, self._pointer, read_manifest)
        except InputError as error:
            yield _read_flaw(file, error)
            return
        if line is not None:
            held = counts_of((entry.status, entry.data_file.record_count) for entry in entries)
            wrong = [key for key, number in held.items() if getattr(line.file, key) not in (None, number)]
            if wrong:
                says = ", ".join(f"{key} is {getattr(line.file, key)}, not {held[key]}" for key in wrong)
                yield Flaw("wrong-count", file, f"its counts in the manifest list don't match its entries: {says}")
            if line.first_row_id is not None and line.file.content == ManifestContent.DATA:
                self._note_row_id_ranges(entries, line.first_row_id)
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                yield self._live_file(entry, line)

    def _note_row_id_ranges(self, entries: Sequence[ManifestEntry], next_row_id: int) -> None:
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                file, first = entry.data_file, explicit_first_row_id(entry.data_file)
                if first is None:
                    first, next_row_id = next_row_id, next_row_id + file.record_count
                self._row_id_ranges.append((first, first + file.record_count, file.file_path))

    def _live_file(self, entry: ManifestEntry, line: ListedManifest | None) -> NeededFile:
        data = entry.data_file
        is_parquet = str(data.file_format).upper().endswith(_PARQUET)
        return NeededFile(
            data.file_path,
            "data file" if data.content in (None, DataFileContent.DATA) else "delete file",
            data.file_size_in_bytes,
            data.record_count if is_parquet else None,
            line.file.added_snapshot_id if entry.snapshot_id is None and line is not None else entry.snapshot_id,
            self._is_current,
        )

    def _was_walked(self, path: str) -> bool:
        known = path in self._walked
        self._walked.add(path)
        return known


def _read_flaw(file: NeededFile, error: InputError) -> Flaw:
    """Return the flaw of a file that couldn't be read; re-raise errors that aren't about the file itself."""
    if isinstance(error, (ConfigurationError, SourceError)):
        raise error
    return Flaw("missing-file" if isinstance(error, NotFoundError) else "unreadable-file", file, error.message)
