"""Produce a table's next snapshot: append, merge and filter its manifests, and write its manifest list."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple, TypeVar
from uuid import uuid4

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    PartitionFieldSummary,
    construct_partition_summaries,
)
from pyiceberg.types import UUIDType

from lakegate.errors import InputError
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles, read_errors
from lakegate.iceberg.lineage import refuse
from lakegate.iceberg.manifests import (
    Container,
    FileEntry,
    ForeignLayoutError,
    ListedManifest,
    ManifestList,
    count_mismatches,
    explicit_first_row_id,
    may_apply,
    new_listed_manifest,
    no_manifests,
    read_container,
    read_entries,
    read_manifest,
    with_row_id_field,
    without_row_ids,
    write_entries,
    write_list,
)
from lakegate.iceberg.metadata import Document
from lakegate.model.refs import TablePointer

_MERGE_COUNT_DEFAULT = 100
_MERGE_BYTES_DEFAULT = 8 * 1024 * 1024
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table at one state, with its metadata."""

    pointer: TablePointer
    document: Document
    files: TableFiles

    def new_path(self, name: str) -> str:
        """Return where a new metadata file called ``name`` goes."""
        return f"{metadata.folder(self.document)}/{name}"

    def read(self, what: str, location: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Read one of the table's files and parse it."""
        return self.files.read(what, location, self.pointer, parse)

    def manifests_of(self, snapshot: Document) -> ManifestList:
        """Return a snapshot's manifests, with the counts that its manifest list lacks taken from the manifests.

        Raises:
            InputError: When the snapshot's totals differ from its manifests.
        """
        found = self.files.manifest_list(snapshot, self.pointer)
        lines = (
            line if line.has_counts else self.read("Manifest", line.file.manifest_path, line.with_counts_from)
            for line in found.manifests
        )
        manifests = ManifestList(found.meta, tuple(lines))
        _check_totals(self.pointer, snapshot, manifests)
        return manifests


class Head(NamedTuple):
    """A table's newest snapshot, ``None`` if it has none yet, and the snapshot's manifests.

    ``next_row_id`` is the id of the next new row (format version 3).
    """

    snapshot: Document | None
    manifests: ManifestList
    sequence_number: int
    next_row_id: int | None = None

    @classmethod
    def of(cls, table: LoadedTable) -> Head:
        """Return the head of ``table``."""
        snapshot = metadata.snapshot_of(table.document, table.pointer)
        manifests = no_manifests() if snapshot is None else table.manifests_of(snapshot)
        next_row_id = table.document["next-row-id"] if table.document["format-version"] > 2 else None
        return cls(snapshot, manifests, int(table.document.get("last-sequence-number", 0)), next_row_id)


@dataclass(frozen=True, slots=True)
class _ManifestContent:
    spec_id: int
    container: Container
    entries: Sequence[FileEntry]

    @property
    def live(self) -> list[FileEntry]:
        return [entry for entry in self.entries if entry.is_live]


@dataclass(frozen=True)
class SnapshotProducer:
    """Produces snapshot ``snapshot_id`` on top of ``head``, with a sequence number of at least ``at_least``."""

    table: LoadedTable
    head: Head
    snapshot_id: int
    at_least: int = 0

    @property
    def sequence_number(self) -> int:
        """The new snapshot's sequence number."""
        return max(self.head.sequence_number + 1, self.at_least)

    @cached_property
    def _may_apply(self) -> Callable[[FileEntry, int, FileEntry, int], bool]:
        """Returns whether a delete file may delete rows of a data file, given each with its spec."""
        return partial(may_apply, unpartitioned=metadata.unpartitioned_specs(self.table.document))

    def append_manifest(self, manifest: ListedManifest, *, is_ours: bool, keep_row_ids: bool = False) -> ListedManifest:
        """Return a manifest of the files that the staged snapshot of the same id added in ``manifest``.

        A manifest with nothing but additions is reused. A new one is written if it was merged with older ones, or if
        its files name a sequence number or row ids instead of inheriting them: here, equality deletes may have a
        greater number and would delete their rows, and other rows may have these ids.

        Args:
            is_ours: Whether lakegate's engine wrote it: its files inherit both.
            keep_row_ids: Keep the ids of rows that were published with them.
        """
        file = manifest.file
        first_row_id = manifest.first_row_id if keep_row_ids and self.head.next_row_id is not None else None
        if not file.existing_files_count and not file.deleted_files_count and (is_ours or self._inherits(manifest)):
            line = manifest.with_sequence_number(self.sequence_number)
            return line if first_row_id is None else line.with_first_row_id(first_row_id)
        content = self.read(manifest)
        added = ManifestEntryStatus.ADDED
        ours = [e for e in content.entries if e.status == added and e.snapshot_id == self.snapshot_id]
        if first_row_id is None:
            ours = without_row_ids(content.container, ours)
            return self.write_manifest(content.container, ours, content.spec_id, inherit=True)
        ours = [replace(entry, raw=entry.numbered or entry.raw) for entry in ours]
        return self._keep_row_ids(
            self.write_manifest(content.container, ours, content.spec_id, inherit=True), [manifest]
        )

    def _inherits(self, manifest: ListedManifest) -> bool:
        """Return whether all files of a manifest inherit their sequence numbers and row ids."""
        entries = self.table.read("Manifest", manifest.file.manifest_path, read_manifest)
        return all(one.sequence_number is None and explicit_first_row_id(one.data_file) is None for one in entries)

    def _delete_files(self) -> Iterator[tuple[FileEntry, int]]:
        """Yield the head's delete files, each with its partition spec."""
        for manifest in self.head.manifests.manifests:
            if manifest.file.content == ManifestContent.DELETES and manifest.live_files:
                yield from ((entry, manifest.file.partition_spec_id) for entry in self.read(manifest).live)

    def _manifests_with(self, paths: Collection[str]) -> dict[str, _ManifestContent]:
        """Return the head's manifests that hold live data files at ``paths``, keyed by manifest path."""
        found, missing = dict[str, _ManifestContent](), set(paths)
        for manifest in self.head.manifests.manifests:
            if missing and manifest.file.content == ManifestContent.DATA and manifest.live_files:
                content = self.read(manifest)
                hits = {entry.file.file_path for entry in content.live} & missing
                if hits:
                    found[manifest.file.manifest_path] = content
                    missing -= hits
        return found

    @staticmethod
    def _live_files(manifests: Mapping[str, _ManifestContent], paths: Collection[str]) -> list[tuple[FileEntry, int]]:
        """Return the live files at ``paths``, each with its partition spec."""
        wanted = set(paths)
        return [(e, m.spec_id) for m in manifests.values() for e in m.live if e.file.file_path in wanted]

    def merge_manifests(self, manifests: Sequence[ListedManifest]) -> list[ListedManifest]:
        """Return ``manifests`` without those that have no live file, and with small ones merged.

        Manifests of similar size are merged once there are ``commit.manifest.min-count-to-merge`` of them, so an entry
        is rewritten only a logarithmic number of times as the table grows.
        """
        live = [manifest for manifest in manifests if manifest.live_files]
        document = self.table.document
        if str(metadata.properties(document).get("commit.manifest-merge.enabled", "true")).lower() != "true":
            return live
        count = max(2, metadata.int_property(document, "commit.manifest.min-count-to-merge", _MERGE_COUNT_DEFAULT))
        tiers: defaultdict[tuple[int, int], list[ListedManifest]] = defaultdict(list)
        for manifest in live:
            if manifest.file.content == ManifestContent.DATA:
                tier = int(math.log(manifest.live_files, count) + 1e-9)
                tiers[manifest.file.partition_spec_id, tier].append(manifest)
        replaced = {
            old.file.manifest_path: new
            for tier in tiers.values()
            if len(tier) >= count
            for group in self._bins(tier)
            for old, new in self._merge(group)
        }
        return list(dict.fromkeys(replaced.get(m.file.manifest_path, m) for m in live))

    def _read_groups(
        self, manifests: Iterable[ListedManifest]
    ) -> Iterable[list[tuple[ListedManifest, _ManifestContent]]]:
        """Return the contents of manifests, grouped by partition spec and schema; without those in an older format."""
        groups: defaultdict[tuple[int, str], list[tuple[ListedManifest, _ManifestContent]]] = defaultdict(list)
        for manifest in manifests:
            content = self._try_read(manifest)
            if content is not None:
                groups[content.spec_id, content.container.schema].append((manifest, content))
        return groups.values()

    @property
    def _target_bytes(self) -> int:
        return metadata.int_property(self.table.document, "commit.manifest.target-size-bytes", _MERGE_BYTES_DEFAULT)

    def without_files(self, paths: Collection[str]) -> tuple[list[ListedManifest], list[FileEntry]]:
        """Return the head's manifests without the data files at ``paths``, and the entries of these files.

        Raises:
            NotReplayableError: When one of the files isn't live, or a delete file may apply to it.
        """
        manifests, rewritten, removed = self.head.manifests.manifests, self._manifests_with(paths), set(paths)
        dropped = self._live_files(rewritten, paths)
        missing = removed - {entry.file.file_path for entry, _ in dropped}
        if missing:
            path = min(missing)
            refuse(
                self.table.pointer,
                f"{len(missing)} of the {len(paths)} files to drop are no longer in it, such as {path}",
                "They were rewritten or deleted since. To see by which commit: lakegate log",
                path=path,
            )
        for delete, file in product(self._delete_files(), dropped):
            if self._may_apply(*delete, *file):
                path = file[0].file.file_path
                refuse(
                    self.table.pointer,
                    f"delete files deleted rows of {path} since",
                    f"Rewrite its data files (lakegate table optimize {self.table.pointer.table}), or revert the "
                    "delete first.",
                    path=path,
                )
        kept = [
            self._keep_row_ids(
                self._write_without(rewritten[m.file.manifest_path], lambda e: e.file.file_path in removed), [m]
            )
            if m.file.manifest_path in rewritten
            else m
            for m in manifests
        ]
        return kept, [entry for entry, _ in dropped]

    def write(self, manifests: ManifestList, operation: str, summary: Mapping[str, str]) -> Head:
        """Write the snapshot's manifest list, and return the table's new head."""
        parent_id = None if self.head.snapshot is None else self.head.snapshot["snapshot-id"]
        location = self.table.new_path(f"snap-{self.snapshot_id}-1-{uuid4()}.avro")
        snapshot = {
            "sequence-number": self.sequence_number,
            "snapshot-id": self.snapshot_id,
            **({} if parent_id is None else {"parent-snapshot-id": parent_id}),
            "timestamp-ms": metadata.now_ms(self.table.document),
            "summary": {"operation": operation, **metadata.with_running_totals(summary, self.head.snapshot)},
            "manifest-list": location,
            "schema-id": metadata.schema_id(self.table.document, self.table.pointer),
        }
        _check_totals(self.table.pointer, snapshot, manifests)
        first_row_id, next_row_id = self.head.next_row_id, self.head.next_row_id
        if first_row_id is not None:
            manifests, next_row_id = manifests.with_row_ids(first_row_id)
            snapshot |= {"first-row-id": first_row_id, "added-rows": next_row_id - first_row_id}
        content = write_list(manifests, self.snapshot_id, parent_id, self.sequence_number, first_row_id)
        self.table.files.create(location, content, self.table.pointer)
        return Head(snapshot, manifests, self.sequence_number, next_row_id)

    def _write_without(self, manifest: _ManifestContent, is_removed: Callable[[FileEntry], bool]) -> ListedManifest:
        """Write a manifest again without some of its files, and return its line for the manifest list."""
        entries = [
            entry.deleted(self.snapshot_id) if is_removed(entry) else entry.existing() for entry in manifest.live
        ]
        return self.write_manifest(manifest.container, entries, manifest.spec_id)

    def _keep_row_ids(self, line: ListedManifest, sources: Sequence[ListedManifest]) -> ListedManifest:
        """Mark a manifest as having row ids if its files have them from ``sources``, so that it gets no new ones."""
        if self.head.next_row_id is None or any(source.first_row_id is None for source in sources):
            return line
        return line.with_first_row_id(self.head.next_row_id)

    def _bins(self, manifests: Sequence[ListedManifest]) -> Iterator[list[ListedManifest]]:
        current, size = list[ListedManifest](), 0
        for manifest in manifests:
            if current and size + manifest.file.manifest_length > self._target_bytes:
                yield current
                current, size = [], 0
            current.append(manifest)
            size += manifest.file.manifest_length
        yield current

    def _merge(self, manifests: Sequence[ListedManifest]) -> Iterator[tuple[ListedManifest, ListedManifest]]:
        """Merge manifests of equal schemas; yield each merged one with its replacement."""
        for group in self._read_groups(manifests):
            if len(group) > 1:
                existing = [entry.existing() for _, content in group for entry in content.live]
                newest = group[0][1]
                merged = self.write_manifest(newest.container, existing, newest.spec_id)
                merged = self._keep_row_ids(merged, [manifest for manifest, _ in group])
                yield from ((manifest, merged) for manifest, _ in group)

    def read(self, manifest: ListedManifest) -> _ManifestContent:
        """Return a manifest's entries, or refuse one in an older format version than the table's."""
        content = self._try_read(manifest)
        if content is None:
            refuse(
                self.table.pointer,
                f"manifest {manifest.file.manifest_path} has an older format version than the table",
                f"Rewrite its data files, then try again: lakegate table optimize {self.table.pointer.table}",
                path=manifest.file.manifest_path,
            )
        return content

    def _try_read(self, manifest: ListedManifest) -> _ManifestContent | None:
        def parse(content: bytes) -> _ManifestContent | None:
            container = read_container(content)
            try:
                if manifest.first_row_id is not None:  # an upgrade assigns row ids to version 2 manifests, too
                    container = with_row_id_field(container)
                return _ManifestContent(
                    manifest.file.partition_spec_id, container, read_entries(container, manifest.file)
                )
            except ForeignLayoutError:
                return None

        return self.table.read("Manifest", manifest.file.manifest_path, parse)

    def write_manifest(
        self,
        container: Container,
        entries: Sequence[FileEntry],
        spec_id: int,
        *,
        inherit: bool = False,
        content: ManifestContent = ManifestContent.DATA,
    ) -> ListedManifest:
        """Write a manifest of ``entries`` with the header of ``container``; return its line for a manifest list."""
        location = self.table.new_path(f"{uuid4()}-m0.avro")
        written = write_entries(container.meta, entries, inherit=inherit)
        self.table.files.create(location, written, self.table.pointer)
        summaries = self._partition_summaries(entries, spec_id)
        line = new_listed_manifest(
            location, len(written), entries, spec_id, self.snapshot_id, self.sequence_number, summaries, content
        )
        return line.with_sequence_number(self.sequence_number) if inherit else line

    def _partition_summaries(self, entries: Sequence[FileEntry], spec_id: int) -> list[PartitionFieldSummary] | None:
        with read_errors(f"Metadata of table {self.table.pointer.table}", self.table.pointer):
            bound = metadata.bound_spec(self.table.document, spec_id)
            # Iceberg for Java orders UUIDs as signed numbers, so it would skip manifests by bounds in another order.
            if bound is None or any(
                isinstance(one.field_type, UUIDType) for one in bound[0].partition_type(bound[1]).fields
            ):
                return None
            return construct_partition_summaries(*bound, [entry.file.partition for entry in entries])


def _check_totals(pointer: TablePointer, snapshot: Document, manifests: ManifestList) -> None:
    """Check a snapshot's totals, as far as it has any, against its manifests.

    This catches a metadata edit that lost files or counted them twice.
    """
    problem = next(count_mismatches(snapshot, manifests), None)
    if problem is not None:
        raise InputError(
            f"Table {pointer.table}: {problem}.",
            hint="Nothing was committed. Count the table's rows, and compare with older commits (lakegate log) to find "
            "out which is right. If the rows are right, CREATE OR REPLACE TABLE … AS SELECT corrects the totals. "
            "Iceberg starts them at 0 when a write creates a branch inside the table, as with spark.wap.branch.",
            table=str(pointer.table),
            snapshot_id=snapshot["snapshot-id"],
        )
