"""A table's next snapshot: its manifests added, merged, or without some files, and its manifest list."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntryStatus,
    PartitionFieldSummary,
    construct_partition_summaries,
)

from lakegate.errors import AuditFailedError, InputError
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles, reading
from lakegate.iceberg.lineage import RUN_AGAIN, refuse
from lakegate.iceberg.manifests import (
    Container,
    Entry,
    ForeignLayoutError,
    ListedManifest,
    ManifestList,
    listed,
    may_apply,
    miscounted,
    no_manifests,
    read_container,
    read_entries,
    read_list,
    with_place_for_row_ids,
    write_entries,
    write_list,
)
from lakegate.iceberg.metadata import Document
from lakegate.model.figures import counted
from lakegate.model.refs import TablePointer

_MERGE_COUNT_DEFAULT = 100
_MERGE_BYTES_DEFAULT = 8 * 1024 * 1024
_Parsed = TypeVar("_Parsed")
_Place: TypeAlias = tuple[int, tuple[Any, ...]]
"""A partition: its spec and its values."""
_Deletes: TypeAlias = tuple[str, str | None, int, int]
"""A delete file: its path, the only data file that it applies to, its sequence number, and how many rows it deletes."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one state, with its metadata."""

    pointer: TablePointer
    document: Document
    files: TableFiles

    def new_path(self, name: str) -> str:
        """Return where a new metadata file called ``name`` goes."""
        return f"{metadata.folder(self.document)}/{name}"

    def read(self, what: str, location: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Return what ``parse`` makes of one of its files."""
        return self.files.read(what, location, self.pointer, parse)

    def manifests_of(self, snapshot: Document) -> ManifestList:
        """Return a snapshot's manifests; counts that the list lacks are counted in the manifests.

        Raises:
            InputError: When the snapshot counts other rows or files than they hold.
        """
        found = self.read("Manifest list", snapshot["manifest-list"], read_list)
        lines = (
            line if line.is_counted else self.read("Manifest", line.file.manifest_path, line.counted)
            for line in found.manifests
        )
        manifests = ManifestList(found.meta, tuple(lines))
        _check_totals(self.pointer, snapshot, manifests)
        return manifests


class Head(NamedTuple):
    """A table's newest snapshot and its manifests; ``None`` and none for a table without a snapshot.

    ``next_row_id`` is the id for the next new row of a table of version 3.
    """

    snapshot: Document | None
    manifests: ManifestList
    sequence_number: int
    next_row_id: int | None = None

    @classmethod
    def of(cls, table: Table) -> Head:
        """Return the head of ``table``."""
        snapshot = metadata.snapshot_of(table.document, table.pointer)
        manifests = no_manifests() if snapshot is None else table.manifests_of(snapshot)
        next_row_id = table.document["next-row-id"] if table.document["format-version"] > 2 else None
        return cls(snapshot, manifests, int(table.document.get("last-sequence-number", 0)), next_row_id)


@dataclass(frozen=True, slots=True)
class _Manifest:
    spec_id: int
    container: Container
    entries: Sequence[Entry]

    @property
    def live(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_live]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a compaction did.

    Attributes:
        added: The data files that it added, by manifest.
        gone: Those that it replaced, each with its partition spec.
        deletes: The delete files that it removed.
    """

    added: list[_Manifest] = field(default_factory=list)
    gone: list[tuple[Entry, int]] = field(default_factory=list)
    deletes: set[_Deletes] = field(default_factory=set)

    @property
    def paths(self) -> list[str]:
        """The files that it replaced."""
        return [entry.file.file_path for entry, _ in self.gone]

    def without(self, partitions: Collection[_Place]) -> Replacement | None:
        """Return what it did in other partitions; ``None`` if that's nothing, or can't be told apart."""
        rows = self._rows(self.gone), self._rows([(e, one.spec_id) for one in self.added for e in one.entries])
        specs = {spec_id for place in rows for spec_id, _ in place}
        if self.deletes or len(specs) != 1 or any(number > rows[0][place] for place, number in rows[1].items()):
            return None
        gone = [one for one in self.gone if _place(*one) not in partitions]
        added = [
            replace(one, entries=[entry for entry in one.entries if _place(entry, one.spec_id) not in partitions])
            for one in self.added
        ]
        return Replacement([one for one in added if one.entries], gone) if gone else None

    @staticmethod
    def _rows(files: Sequence[tuple[Entry, int]]) -> Counter[_Place]:
        counts = Counter[_Place]()
        for entry, spec_id in files:
            counts[_place(entry, spec_id)] += entry.file.record_count
        return counts

    def counts(self) -> dict[str, str]:
        """Return what it did, by the names that Iceberg counts it by."""
        added, gone = [entry for one in self.added for entry in one.entries], [entry for entry, _ in self.gone]
        found = {
            "added-data-files": len(added),
            "added-files-size": sum(entry.file.file_size_in_bytes for entry in added),
            "added-records": sum(entry.file.record_count for entry in added),
            "changed-partition-count": len({_place(*one) for one in self.gone}),
            "deleted-data-files": len(gone),
            "deleted-records": sum(entry.file.record_count for entry in gone),
            "removed-files-size": sum(entry.file.file_size_in_bytes for entry in gone),
        }
        return {key: str(number) for key, number in found.items()}


@dataclass(frozen=True)
class SnapshotProducer:
    """Makes the snapshot ``snapshot_id`` on top of ``head``, with a sequence number of ``at_least`` so much."""

    table: Table
    head: Head
    snapshot_id: int
    at_least: int = 0

    @property
    def sequence_number(self) -> int:
        """The new snapshot's sequence number."""
        return max(self.head.sequence_number + 1, self.at_least)

    def added(self, manifest: ListedManifest, *, keep_row_ids: bool = False) -> ListedManifest:
        """Return what the staged snapshot of the same id added with ``manifest``, for this one to list.

        A manifest with nothing but additions is taken as it is; of one that was merged with older ones, the
        additions go into a new manifest. ``keep_row_ids`` is for rows that have their ids on the target already.
        """
        file = manifest.file
        first_row_id = manifest.first_row_id if keep_row_ids and self.head.next_row_id is not None else None
        if not file.existing_files_count and not file.deleted_files_count:
            line = manifest.added_at(self.sequence_number)
            return line if first_row_id is None else line.with_row_ids(first_row_id)
        content = self._read(manifest)
        added = ManifestEntryStatus.ADDED
        ours = [e for e in content.entries if e.status == added and e.snapshot_id == self.snapshot_id]
        if first_row_id is None:
            return self._write(content.container, ours, content.spec_id, inherit=True)
        ours = [replace(entry, raw=entry.numbered or entry.raw) for entry in ours]
        return self._numbered(self._write(content.container, ours, content.spec_id, inherit=True), [manifest])

    def picked(
        self, manifest: ListedManifest, snapshot_id: int, *, without: Collection[str]
    ) -> tuple[ListedManifest | None, int, int]:
        """Return a manifest of what another snapshot added with ``manifest``, as this one's own additions.

        Returns:
            The new manifest, ``None`` if no file is left; the bytes in its files; and how many files were left out.
        """
        content = self._read(manifest)
        added = [e for e in content.entries if e.status == ManifestEntryStatus.ADDED and e.snapshot_id == snapshot_id]
        ours = [replace(e, snapshot_id=self.snapshot_id) for e in added if e.file.file_path not in without]
        some = self._write(content.container, ours, content.spec_id, inherit=True) if ours else None
        return some, sum(entry.file.file_size_in_bytes for entry in ours), len(added) - len(ours)

    def replacement(self, manifests: Sequence[ListedManifest]) -> Replacement:
        """Return what a staged compaction did.

        Args:
            manifests: Those that the staged snapshot, of the same id, wrote.
        """
        found = Replacement()
        for manifest in manifests:
            content = self._read(manifest)
            ours = [entry for entry in content.entries if entry.snapshot_id == self.snapshot_id]
            changed = [entry for entry in ours if entry.status != ManifestEntryStatus.EXISTING]
            if manifest.file.content != ManifestContent.DATA:
                if any(entry.is_live for entry in changed):
                    refuse(self.table.pointer, "the compaction added delete files", RUN_AGAIN)
                found.deletes.update(_key_of(entry) for entry in changed)
                continue
            found.gone.extend((entry, content.spec_id) for entry in changed if not entry.is_live)
            # Their data sequence numbers stay, which say what delete files apply to them.
            new = [replace(e, file_sequence_number=self.sequence_number) for e in changed if e.is_live]
            if new:
                found.added.append(replace(content, entries=new))
        return found

    def moved(self, done: Replacement, then: SnapshotProducer) -> frozenset[_Place]:
        """Return the partitions in which the files that a compaction replaced aren't as it found them.

        Args:
            then: A producer on the head that it began with.
        """
        began = then._among(then._holding(done.paths), done.paths)
        now = {_identity(entry) for entry, _ in self._among(self._holding(done.paths), done.paths)}
        # By the time it began, and by now: what is in one of them only came or went since.
        deletes = [{_key_of(one[0]): one for one in found} for found in (then._deletes(), self._deletes())]
        others = [one for ours, theirs in permutations(deletes) for key, one in ours.items() if key not in theirs]
        return frozenset(
            _place(*file)
            for file in began
            if _identity(file[0]) not in now or any(may_apply(*delete, *file) for delete in others)
        )

    def written(self, added: Sequence[_Manifest]) -> list[ListedManifest]:
        """Write manifests of these files."""
        return [self._write(content.container, content.entries, content.spec_id) for content in added]

    def replaced(
        self, paths: Collection[str], gone: Collection[_Deletes], then: SnapshotProducer
    ) -> tuple[list[ListedManifest], list[Entry], frozenset[_Deletes]]:
        """Return the head's manifests without what a compaction replaced.

        Args:
            then: A producer on the head that it began with.

        Returns:
            The manifests, the data files, and the delete files that the compaction began with.

        Raises:
            NotReplayableError: When a data file isn't live any more, or is with another sequence number or other row
                ids; when a delete file that the compaction hasn't seen may apply to one, or one that it has seen isn't
                live any more; or when one that it removed applies to others, too.
        """
        applied = list(then._deletes())
        known = frozenset(_key_of(delete) for delete, _ in applied)
        kept, dropped = self.without(paths, known=known)
        began = then._among(then._holding(paths), paths)
        # Put back by others, with another number or other row ids, a file is the same file with other rows.
        if {_identity(entry) for entry in dropped} != {_identity(entry) for entry, _ in began}:
            refuse(self.table.pointer, "its rows got other ids meanwhile", RUN_AGAIN)
        still = {_key_of(delete) for delete, _ in self._deletes()}
        lifted = (one for one in applied if _key_of(one[0]) not in still)
        if any(may_apply(*delete, *file) for delete, file in product(lifted, began)):
            refuse(
                self.table.pointer, "rows that delete files had hidden from the compaction are visible again", RUN_AGAIN
            )
        if not gone:
            return kept, dropped, known
        lines, missing = list[ListedManifest](), set(gone)
        for manifest in kept:
            line = manifest
            if manifest.file.content == ManifestContent.DELETES and manifest.live_files:
                content = self._read(manifest)
                hits = {_key_of(entry) for entry in content.live} & missing
                if hits:
                    missing -= hits
                    line = self._without(content, lambda entry: _key_of(entry) in gone, manifest.file.content)
            lines.append(line)
        if missing:
            files = f"{counted(len(missing), 'delete file')} that the compaction removed"
            reason = f"{files} {'is' if len(missing) == 1 else 'are'} no longer in it"
            refuse(self.table.pointer, reason, RUN_AGAIN)
        return lines, dropped, known

    def _deletes(self) -> Iterator[tuple[Entry, int]]:
        """Yield the head's delete files, each with its partition spec."""
        for manifest in self.head.manifests.manifests:
            if manifest.file.content == ManifestContent.DELETES and manifest.live_files:
                yield from ((entry, manifest.file.partition_spec_id) for entry in self._read(manifest).live)

    def _holding(self, paths: Collection[str]) -> dict[str, _Manifest]:
        """Return the head's manifests that hold the live data files at ``paths``, by their own paths."""
        found, missing = dict[str, _Manifest](), set(paths)
        for manifest in self.head.manifests.manifests:
            if missing and manifest.file.content == ManifestContent.DATA and manifest.live_files:
                content = self._read(manifest)
                hits = {entry.file.file_path for entry in content.live} & missing
                if hits:
                    found[manifest.file.manifest_path] = content
                    missing -= hits
        return found

    @staticmethod
    def _among(manifests: Mapping[str, _Manifest], paths: Collection[str]) -> list[tuple[Entry, int]]:
        """Return the live files at ``paths``, each with its partition spec."""
        wanted = set(paths)
        return [(e, m.spec_id) for m in manifests.values() for e in m.live if e.file.file_path in wanted]

    def merged(self, manifests: Sequence[ListedManifest]) -> list[ListedManifest]:
        """Return ``manifests`` without those that hold no live file, and with many small ones put together.

        Manifests of about one size are merged when there are many of them: each entry is so written again only as often
        as the number of files has digits to the base of ``commit.manifest.min-count-to-merge``.
        """
        live = [manifest for manifest in manifests if manifest.live_files]
        document = self.table.document
        if str(metadata.properties(document).get("commit.manifest-merge.enabled", "true")).lower() != "true":
            return live
        count = max(2, metadata.setting(document, "commit.manifest.min-count-to-merge", _MERGE_COUNT_DEFAULT))
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

    def rewritten(self) -> tuple[list[ListedManifest], dict[str, int]]:
        """Return the head's manifests with their data files in as few as their size allows, sorted by partition.

        Returns:
            The manifests, and what was done, by the names that Iceberg counts it by; nothing if nothing was.

        Raises:
            AuditFailedError: When what was written doesn't list the same files.
        """
        manifests = [manifest for manifest in self.head.manifests.manifests if manifest.live_files]
        replaced, written = set[str](), list[ListedManifest]()
        for group, parts in self._regrouped(manifests):
            first, lines = group[0][1], [line for line, _ in group]
            new = [self._numbered(self._write(first.container, one, first.spec_id), lines) for one in parts]
            self._require_same([entry for part in parts for entry in part], new)
            written += new
            replaced.update(line.file.manifest_path for line in lines)
        if not replaced:
            return manifests, {}
        kept = [manifest for manifest in manifests if manifest.file.manifest_path not in replaced]
        counts = {
            "manifests-created": len(written),
            "manifests-kept": len(kept),
            "manifests-replaced": len(replaced),
            "entries-processed": sum(line.live_files for line in written),
        }
        return [*written, *kept], counts

    def can_have_fewer(self) -> bool:
        """Return whether :meth:`rewritten` would do anything."""
        return any(self._regrouped([one for one in self.head.manifests.manifests if one.live_files]))

    def _regrouped(
        self, manifests: Sequence[ListedManifest]
    ) -> Iterator[tuple[list[tuple[ListedManifest, _Manifest]], list[list[Entry]]]]:
        """Yield the manifests that can be fewer, and the data files of each of those that they'd become."""
        groups: defaultdict[tuple[int, str], list[tuple[ListedManifest, _Manifest]]] = defaultdict(list)
        for manifest in manifests:
            content = self._read_if_known(manifest) if manifest.file.content == ManifestContent.DATA else None
            if content is not None:
                groups[content.spec_id, content.container.schema].append((manifest, content))
        limit = metadata.setting(self.table.document, "commit.manifest.target-size-bytes", _MERGE_BYTES_DEFAULT)
        for group in groups.values():
            entries = sorted((entry.existing() for _, one in group for entry in one.live), key=_by_partition)
            size = sum(line.file.manifest_length for line, _ in group) / sum(len(one.entries) for _, one in group)
            most = max(1, int(limit / size))
            parts = [entries[start : start + most] for start in range(0, len(entries), most)]
            if len(parts) < len(group):
                yield group, parts

    def _require_same(self, entries: Sequence[Entry], written: Sequence[ListedManifest]) -> None:
        """Read new manifests back, and check that they list exactly these files."""
        found = [entry for line in written for entry in self._read(line).live]
        wanted = Counter(map(_facts, entries))
        if Counter(map(_facts, found)) != wanted:
            raise AuditFailedError(
                f"The manifests of {self.table.pointer.table} aren't rewritten: the new ones list other files.",
                hint="Nothing was changed. Please report this.",
                table=str(self.table.pointer.table),
            )

    def without(
        self, paths: Collection[str], *, known: Collection[_Deletes] = ()
    ) -> tuple[list[ListedManifest], list[Entry]]:
        """Return the head's manifests without the live files at ``paths``, and those files.

        Delete files that are ``known`` may apply to them.

        Raises:
            NotReplayableError: When one of them isn't live, or a delete file may apply to it.
        """
        manifests, rewritten, removed = self.head.manifests.manifests, self._holding(paths), set(paths)
        dropped = self._among(rewritten, paths)
        missing = removed - {entry.file.file_path for entry, _ in dropped}
        if missing:
            path = min(missing)
            refuse(
                self.table.pointer,
                f"{len(missing)} of the {len(paths)} files to drop are no longer in it, such as {path}",
                "They were rewritten or deleted since. See the commits with 'lakegate log'.",
                path=path,
            )
        self._check_deletes([m for m in manifests if m.file.content == ManifestContent.DELETES], dropped, known)
        kept = [
            self._numbered(self._without(rewritten[m.file.manifest_path], lambda e: e.file.file_path in removed), [m])
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
            "summary": {"operation": operation, **metadata.with_totals(summary, self.head.snapshot)},
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

    def _without(
        self, manifest: _Manifest, gone: Callable[[Entry], bool], content: ManifestContent = ManifestContent.DATA
    ) -> ListedManifest:
        entries = [entry.deleted(self.snapshot_id) if gone(entry) else entry.existing() for entry in manifest.live]
        return self._write(manifest.container, entries, manifest.spec_id, content=content)

    def _numbered(self, line: ListedManifest, sources: Sequence[ListedManifest]) -> ListedManifest:
        """Return the line of a manifest whose files keep the row ids that they had in ``sources``: it needs no more."""
        if self.head.next_row_id is None or any(source.first_row_id is None for source in sources):
            return line
        return line.with_row_ids(self.head.next_row_id)

    def _bins(self, manifests: Sequence[ListedManifest]) -> Iterator[list[ListedManifest]]:
        limit = metadata.setting(self.table.document, "commit.manifest.target-size-bytes", _MERGE_BYTES_DEFAULT)
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
                merged = self._numbered(merged, [manifest for manifest, _ in group])
                yield from ((manifest, merged) for manifest, _ in group)

    def _check_deletes(
        self, manifests: Sequence[ListedManifest], files: Sequence[tuple[Entry, int]], known: Collection[_Deletes]
    ) -> None:
        for manifest in manifests:
            deletes = self._read(manifest).live if manifest.live_files else ()
            new = [delete for delete in deletes if _key_of(delete) not in known]
            for delete, (file, spec_id) in product(new, files):
                if may_apply(delete, manifest.file.partition_spec_id, file, spec_id):
                    path = file.file.file_path
                    refuse(
                        self.table.pointer,
                        f"rows of {path} were deleted by delete files since",
                        f"Rewrite its data files (lakegate table optimize {self.table.pointer.table}), or undo the "
                        "delete first.",
                        path=path,
                    )

    def _read(self, manifest: ListedManifest) -> _Manifest:
        content = self._read_if_known(manifest)
        if content is None:
            refuse(
                self.table.pointer,
                f"manifest {manifest.file.manifest_path} has an older format version than the table",
                f"Rewrite its data files, then try again: lakegate table optimize {self.table.pointer.table}",
                path=manifest.file.manifest_path,
            )
        return content

    def _read_if_known(self, manifest: ListedManifest) -> _Manifest | None:
        def parse(content: bytes) -> _Manifest | None:
            container = read_container(content)
            try:
                if manifest.first_row_id is not None:  # after an upgrade, those of version 2 have ids, too
                    container = with_place_for_row_ids(container)
                return _Manifest(manifest.file.partition_spec_id, container, read_entries(container, manifest.file))
            except ForeignLayoutError:
                return None

        return self.table.read("Manifest", manifest.file.manifest_path, parse)

    def _write(
        self,
        container: Container,
        entries: Sequence[Entry],
        spec_id: int,
        *,
        inherit: bool = False,
        content: ManifestContent = ManifestContent.DATA,
    ) -> ListedManifest:
        location = self.table.new_path(f"{uuid4()}-m0.avro")
        written = write_entries(container.meta, entries, inherit=inherit)
        self.table.files.create(location, written, self.table.pointer)
        summaries = self._summaries(entries, spec_id)
        line = listed(
            location, len(written), entries, spec_id, self.snapshot_id, self.sequence_number, summaries, content
        )
        return line.added_at(self.sequence_number) if inherit else line

    def _summaries(self, entries: Sequence[Entry], spec_id: int) -> list[PartitionFieldSummary] | None:
        with reading(f"Metadata of table {self.table.pointer.table}", self.table.pointer):
            bound = metadata.bound_spec(self.table.document, spec_id)
            if bound is None:
                return None
            return construct_partition_summaries(*bound, [entry.file.partition for entry in entries])


def _place(entry: Entry, spec_id: int) -> _Place:
    partition = entry.file.partition
    return spec_id, tuple(partition[at] for at in range(len(partition)))


def _identity(entry: Entry) -> tuple[str, int, int | None]:
    return entry.file.file_path, entry.sequence_number, entry.first_row_id


def _key_of(entry: Entry) -> _Deletes:
    """Return what identifies a delete file: of deletion vectors, several are in one file."""
    return entry.file.file_path, entry.file[-1], entry.sequence_number, entry.file.record_count


def _by_partition(entry: Entry) -> list[tuple[bool, Any]]:
    partition = entry.file.partition
    values = (partition[place] for place in range(len(partition)))
    return [(value is not None, value if value is not None else 0) for value in values]


def _facts(entry: Entry) -> tuple[Any, ...]:
    """Return what a manifest says of a file that decides which rows it has, and which deletes apply to them."""
    numbers = entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.first_row_id
    return entry.raw, *numbers


def _check_totals(pointer: TablePointer, snapshot: Document, manifests: ManifestList) -> None:
    """Check that a snapshot counts as many rows and data files as its manifests hold; unknown totals are left out.

    What a metadata edit lost or counted twice shows here.
    """
    problem = next(miscounted(snapshot, manifests), None)
    if problem is not None:
        raise InputError(
            f"Table {pointer.table}: {problem}.",
            hint="Nothing was committed. Find out which is right: count its rows, and compare older commits "
            "(lakegate log). If the rows are right, CREATE OR REPLACE TABLE … AS SELECT counts them again.",
            table=str(pointer.table),
            snapshot_id=snapshot["snapshot-id"],
        )
