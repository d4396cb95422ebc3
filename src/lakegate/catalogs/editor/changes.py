"""The manifests of a table's next snapshot: added, merged, or without some files."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from uuid import uuid4

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    PartitionFieldSummary,
    construct_partition_summaries,
)

from lakegate.catalogs.editor.avro import Container, read_container
from lakegate.catalogs.editor.files import TableFiles
from lakegate.catalogs.editor.fit import refuse
from lakegate.catalogs.editor.manifests import (
    Entry,
    ForeignLayoutError,
    ListedManifest,
    listed,
    may_apply,
    read_entries,
    write_entries,
)
from lakegate.catalogs.editor.metadata import Document, bound_spec, properties, setting
from lakegate.model.refs import TablePointer

_MERGE_COUNT_DEFAULT = 100
_MERGE_BYTES_DEFAULT = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A manifest that was read."""

    spec_id: int
    container: Container
    entries: Sequence[Entry]

    @property
    def live(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_live]


@dataclass(frozen=True)
class NextSnapshot:
    """A snapshot in the making.

    Attributes:
        files: Where its metadata goes.
        document: The metadata it follows.
        pointer: Where the table stands.
        snapshot_id: Its id.
        sequence_number: Its sequence number.
    """

    files: TableFiles
    document: Document
    pointer: TablePointer
    snapshot_id: int
    sequence_number: int

    def added(self, manifest: ListedManifest) -> ListedManifest:
        """Return what the staged snapshot of the same id added with ``manifest``, for this one to list.

        A manifest with nothing but additions is taken as it is; of one that was merged with older ones, the
        additions go into a new manifest.
        """
        file = manifest.file
        if not file.existing_files_count and not file.deleted_files_count:
            return manifest.added_at(self.sequence_number)
        content = self._read(manifest)
        added = ManifestEntryStatus.ADDED
        ours = [e for e in content.entries if e.status == added and e.snapshot_id == self.snapshot_id]
        return self._write(content.container, ours, content.spec_id, inherit=True)

    def merged(self, manifests: Sequence[ListedManifest]) -> list[ListedManifest]:
        """Return ``manifests`` without those that hold no live file, and with many small ones put together.

        Manifests of about one size are merged when there are many of them: each entry is so written again only as often
        as the number of files has digits to the base of ``commit.manifest.min-count-to-merge``.
        """
        live = [manifest for manifest in manifests if manifest.live_files]
        if str(properties(self.document).get("commit.manifest-merge.enabled", "true")).lower() != "true":
            return live
        count = max(2, setting(self.document, "commit.manifest.min-count-to-merge", _MERGE_COUNT_DEFAULT))
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
        kept = dict.fromkeys(replaced.get(m.file.manifest_path, m) for m in live)
        return list(kept)

    def without(
        self, manifests: Sequence[ListedManifest], paths: Collection[str]
    ) -> tuple[list[ListedManifest], list[Entry]]:
        """Return ``manifests`` without the live files at ``paths``, and those files.

        Raises:
            NotReplayableError: When one of them is not live, or a delete file may apply to it.
        """
        wanted = set(paths)
        rewritten = dict[str, _Manifest]()
        for manifest in manifests:
            if wanted and manifest.file.content == ManifestContent.DATA and manifest.live_files:
                content = self._read(manifest)
                hits = {entry.file.file_path for entry in content.live} & wanted
                if hits:
                    rewritten[manifest.file.manifest_path] = content
                    wanted -= hits
        if wanted:
            path = min(wanted)
            refuse(
                self.pointer,
                f"{len(wanted)} of the {len(paths)} files to drop are not in it any more, such as {path}",
                "They were rewritten or deleted since. See the commits with 'lakegate log'.",
                path=path,
            )
        gone = set(paths)
        dropped = [(e, m.spec_id) for m in rewritten.values() for e in m.live if e.file.file_path in gone]
        self._check_deletes([m for m in manifests if m.file.content == ManifestContent.DELETES], dropped)
        kept = [
            self._without(rewritten[m.file.manifest_path], gone) if m.file.manifest_path in rewritten else m
            for m in manifests
        ]
        return kept, [entry for entry, _ in dropped]

    def _without(self, manifest: _Manifest, paths: Collection[str]) -> ListedManifest:
        entries = [e.deleted(self.snapshot_id) if e.file.file_path in paths else e.existing() for e in manifest.live]
        return self._write(manifest.container, entries, manifest.spec_id)

    def _bins(self, manifests: Sequence[ListedManifest]) -> Iterator[list[ListedManifest]]:
        limit = setting(self.document, "commit.manifest.target-size-bytes", _MERGE_BYTES_DEFAULT)
        current, size = list[ListedManifest](), 0
        for manifest in manifests:
            if current and size + manifest.file.manifest_length > limit:
                yield current
                current, size = [], 0
            current.append(manifest)
            size += manifest.file.manifest_length
        yield current

    def _merge(self, manifests: Sequence[ListedManifest]) -> Iterator[tuple[ListedManifest, ListedManifest]]:
        """Yield each manifest that was merged, with the one that holds its live entries now."""
        by_schema: defaultdict[str, list[tuple[ListedManifest, _Manifest]]] = defaultdict(list)
        for manifest in manifests:
            content = self._read_if_known(manifest)
            if content is not None:
                by_schema[content.container.schema].append((manifest, content))
        for group in by_schema.values():
            if len(group) > 1:
                existing = [entry.existing() for _, content in group for entry in content.live]
                newest = group[0][1]
                merged = self._write(newest.container, existing, newest.spec_id)
                yield from ((manifest, merged) for manifest, _ in group)

    def _check_deletes(self, manifests: Sequence[ListedManifest], files: Sequence[tuple[Entry, int]]) -> None:
        for manifest in manifests:
            deletes = self._read(manifest) if manifest.live_files else None
            for delete, (file, spec_id) in product(deletes.live if deletes else (), files):
                if may_apply(delete, manifest.file.partition_spec_id, file, spec_id):
                    path = file.file.file_path
                    refuse(
                        self.pointer,
                        f"rows of {path} were deleted by delete files since",
                        "Rewrite its data files (CALL system.rewrite_data_files), or undo the delete first.",
                        path=path,
                    )

    def _read(self, manifest: ListedManifest) -> _Manifest:
        content = self._read_if_known(manifest)
        if content is None:
            refuse(
                self.pointer,
                f"manifest {manifest.file.manifest_path} is of an older format version than the table",
                "CALL system.rewrite_manifests writes it anew; then try again.",
                path=manifest.file.manifest_path,
            )
        return content

    def _read_if_known(self, manifest: ListedManifest) -> _Manifest | None:
        def parse(content: bytes) -> _Manifest | None:
            container = read_container(content)
            try:
                return _Manifest(manifest.file.partition_spec_id, container, read_entries(container, manifest.file))
            except ForeignLayoutError:
                return None

        return self.files.read("Manifest", manifest.file.manifest_path, parse)

    def _write(
        self, container: Container, entries: Sequence[Entry], spec_id: int, *, inherit: bool = False
    ) -> ListedManifest:
        location = self.files.path(f"{uuid4()}-m0.avro")
        content = write_entries(container.meta, entries, inherit=inherit)
        self.files.write(location, content)
        line = listed(
            location,
            content,
            entries,
            spec_id,
            self.snapshot_id,
            self.sequence_number,
            self._summaries(entries, spec_id),
        )
        return line.added_at(self.sequence_number) if inherit else line

    def _summaries(self, entries: Sequence[Entry], spec_id: int) -> list[PartitionFieldSummary] | None:
        bound = bound_spec(self.document, spec_id)
        if bound is None:
            return None
        spec, schema = bound
        return construct_partition_summaries(spec, schema, [entry.file.partition for entry in entries])
