"""Read tables without an engine: metadata files as JSON, and manifests through PyIceberg.

This loads only PyIceberg's schema and manifest modules: its table module takes a sixth of a second to import, and its
Arrow file system loads pandas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import from_json
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema as IcebergSchema

from lakegate.iceberg import metadata
from lakegate.iceberg.column_metrics import FileDecoder, partition_text, type_text
from lakegate.iceberg.files import TableFiles, metadata_errors, read_errors, unreadable_file_error
from lakegate.iceberg.inspection import Inspector
from lakegate.iceberg.lineage import TableState, classify, state_of
from lakegate.iceberg.manifests import read_list, read_manifest, target_data_file, vector_span
from lakegate.iceberg.metadata import Document, MetadataFile
from lakegate.iceberg.validation import require_loadable, require_same_past
from lakegate.model.maintenance import Flaw, NeededFile, TableLayout
from lakegate.model.refs import TablePointer
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, DataFile, SchemaVersion, Snapshot, TableChange, TableMetadata

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_THREADS = 16
_TARGET_BYTES, _TARGET_BYTES_DEFAULT = "write.target-file-size-bytes", 512 << 20
_ADDED_FILES_KEPT = 8
"""Snapshots whose added files are cached: classifying a change needs them, and then its audit."""
_CHANGES_KEPT = 4_096
"""Classified changes to cache: a revert past many appends needs them again whenever the target moves."""
_LAYOUTS_KEPT = 10_000
_Partition: TypeAlias = tuple[int, str]
"""A partition: its spec id and its values."""
_FileIdentity: TypeAlias = tuple[str, _Partition, tuple[int, int, int], tuple[object, ...], tuple[object, ...]]
"""A file as a manifest has it: path, partition, content, sequence number and rows, what it deletes, and its metrics."""


class IcebergTableReader:
    """Reads tables from their metadata files; implements :class:`~lakegate.ports.TableReader`.

    All methods that take a pointer also raise :class:`~lakegate.errors.NotFoundError` when one of the table's files is
    missing, :class:`~lakegate.errors.InputError` when one is damaged, and :class:`~lakegate.errors.EngineError` when
    one can't be read right now.

    Args:
        files: Reads the tables' files, and caches parsed metadata. By default, one with default settings.
    """

    def __init__(self, files: TableFiles | None = None) -> None:
        self._files = files or TableFiles()
        self._layout = lru_cache(maxsize=_LAYOUTS_KEPT)(self._read_layout)
        self._change = lru_cache(maxsize=_CHANGES_KEPT)(self._classify)
        self._added = lru_cache(maxsize=_ADDED_FILES_KEPT)(self._read_added)

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshot of the table at ``pointer``.

        Raises:
            NotFoundError: Also when the metadata file doesn't have the snapshot that ``pointer`` names.
        """
        file, schema = self._file_and_schema(pointer)
        document = file.document
        spec = file.specs.get(pointer.spec_id) or file.specs[document.get("default-spec-id") or 0]
        snapshot = metadata.snapshot_of(document, pointer)
        return TableMetadata(
            table=pointer.table,
            metadata_location=pointer.metadata_location,
            location=document["location"],
            table_schema=_columns_of(schema),
            partition_by=partition_text(spec, schema),
            properties=dict(metadata.properties(document)),
            snapshot=None if snapshot is None else metadata.to_snapshot(snapshot),
            format_version=document["format-version"],
            uuid=document["table-uuid"],
            updated_at=metadata.updated_at(document),
        )

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return all snapshots in the metadata file, oldest first."""
        return self._files.metadata(pointer).snapshots

    def schemas(self, pointer: TablePointer) -> Sequence[SchemaVersion]:
        """Return the schemas that the table has had up to ``pointer``, oldest first."""
        found = []
        for known in metadata.schemas(self._files.metadata(pointer).document):
            schema_id = known.get("schema-id", 0)
            with read_errors(f"Schema {schema_id} of {pointer.metadata_location}", pointer):
                schema = metadata.iceberg_schema(known)
            field_ids = tuple(field.field_id for field in schema.fields)
            found.append(SchemaVersion(schema_id=schema_id, table_schema=_columns_of(schema), field_ids=field_ids))
        return found

    def change(
        self,
        before: TablePointer | None,
        after: TablePointer | None,
        *,
        evolves: bool = False,
        compacted: bool = False,
    ) -> TableChange:
        """Return what happened to a table between ``before`` and ``after`` (:mod:`lakegate.iceberg.lineage`).

        Manifests, which :meth:`added_files` caches, are only read if the change looks like an append in the metadata
        files.
        """
        return self._change(before, after, evolves=evolves, compacted=compacted)

    def _classify(
        self,
        before: TablePointer | None,
        after: TablePointer | None,
        *,
        evolves: bool,
        compacted: bool,
    ) -> TableChange:
        was, now = (None if pointer is None else self._state(pointer) for pointer in (before, after))
        kept = set() if now is None else {one.snapshot_id for one in now.snapshots}

        def only_added(snapshot: Snapshot) -> bool:
            # If the later state no longer has the parent, the earlier one does.
            base = None if snapshot.parent_id in {None, *kept} else before
            return after is not None and self.added_files(after, [snapshot.snapshot_id], base).complete

        return classify(was, now, only_added, evolves=evolves, compacted=compacted)

    def require_loadable(self, pointer: TablePointer, branch: str, before: TablePointer | None = None) -> None:
        """Check that all readers can load the table at ``pointer`` on ``branch``, and see the same snapshot."""
        file = self._files.metadata(pointer)
        require_loadable(file.document, pointer, branch, as_named=file.as_named)
        if before is not None:
            require_same_past(file.document, self._files.metadata(before).document, pointer, branch)

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""
        file, schema = self._file_and_schema(pointer)
        snapshot = metadata.snapshot_of(file.document, pointer)
        for manifest in () if snapshot is None else self._manifests(snapshot, pointer):
            if manifest.content == ManifestContent.DATA:
                decoder = FileDecoder(schema, file.specs.get(manifest.partition_spec_id))
                for entry in self._entries(manifest, pointer):
                    if entry.status != ManifestEntryStatus.DELETED:
                        yield decoder.decode(entry.data_file)

    def has_other_specs(self, pointer: TablePointer) -> bool:
        """Return whether the snapshot at ``pointer`` has data files of another partition spec than the table's."""
        snapshot = metadata.snapshot_of(self._files.metadata(pointer).document, pointer)
        return any(
            manifest.content == ManifestContent.DATA
            and manifest.partition_spec_id != pointer.spec_id
            and _may_hold_files(manifest)
            for manifest in (() if snapshot is None else self._manifests(snapshot, pointer))
        )

    def layout(
        self, pointer: TablePointer, *, small_bytes: int, at_least: int, data_files: int = 0, delete_files: int = 0
    ) -> TableLayout:
        """Return how many files the snapshot at ``pointer`` has, and how many are small.

        If the table has few files, the snapshot's summary answers this, and no manifest is read.
        """
        document = self._files.metadata(pointer).document
        snapshot = metadata.snapshot_of(document, pointer)
        if snapshot is None:
            return TableLayout()
        counts = snapshot.get("summary") or {}
        data, size, deletes = (
            int(text) if (text := str(counts.get(f"total-{what}"))).isdecimal() else None
            for what in ("data-files", "files-size", "delete-files")
        )
        if data is not None and deletes is not None and data < data_files and deletes < delete_files:
            return TableLayout(data_files=data, size_bytes=size or 0)
        # Iceberg's compaction skips larger files (min-file-size-bytes).
        small_bytes = min(small_bytes, metadata.int_property(document, _TARGET_BYTES, _TARGET_BYTES_DEFAULT) * 3 // 4)
        return self._layout(pointer, small_bytes, at_least)

    def _read_layout(self, pointer: TablePointer, small_bytes: int, at_least: int) -> TableLayout:
        document = self._files.metadata(pointer).document
        snapshot = metadata.snapshot_of(document, pointer) or {}
        sizes, small = dict[str, int](), Counter[_Partition]()
        deletes = list[tuple[_Partition, ManifestDataFile, int]]()
        numbers, oldest = dict[str, int](), dict[_Partition, int]()
        unpartitioned = metadata.unpartitioned_specs(document)
        for manifest in self._manifests(snapshot, pointer):
            for entry in self._entries(manifest, pointer):
                file = entry.data_file
                if entry.status == ManifestEntryStatus.DELETED:
                    continue
                partition = manifest.partition_spec_id, repr(file.partition)
                number = _sequence_number(manifest, entry)
                if manifest.content != ManifestContent.DATA:
                    deletes.append((partition, file, number))
                    continue
                numbers[file.file_path] = number
                oldest[partition] = min(number, oldest.get(partition, number))
                sizes[file.file_path] = file.file_size_in_bytes
                if file.file_size_in_bytes < small_bytes:
                    small[partition] += 1

        def applies(partition: _Partition, delete: ManifestDataFile, number: int) -> bool:
            is_positional = delete.content == DataFileContent.POSITION_DELETES
            target = target_data_file(delete)
            first = oldest.get(partition) if target is None else numbers.get(target)
            if not is_positional and partition[0] in unpartitioned:
                first = min(oldest.values(), default=None)
            return first is not None and (first <= number if is_positional else first < number)

        return TableLayout(
            data_files=len(sizes),
            size_bytes=sum(sizes.values()),
            small_files=sum(number for number in small.values() if number >= at_least),
            # A compaction may leave delete files behind that only applied to files it replaced.
            delete_files=sum(applies(*delete) for delete in deletes),
        )

    def outdated_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> int:
        """Return how many snapshots the editor's ``trim_snapshots`` would drop."""
        document = self._files.metadata(pointer).document
        shorter = metadata.trim_snapshots(document, pointer.metadata_location, at_least, before)
        return len(document.get("snapshots") or ()) - len(shorter.get("snapshots") or ())

    def read_rows(
        self,
        pointer: TablePointer,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows at ``pointer``; see :func:`lakegate.iceberg.scan.open_scan`."""
        from lakegate.iceberg.scan import open_scan  # loads PyIceberg's table module, and Arrow

        return open_scan(pointer, self._files, columns=columns, where=where, limit=limit)

    def added_files(
        self, pointer: TablePointer, snapshot_ids: Sequence[int], base: TablePointer | None = None
    ) -> AddedFiles:
        """Return the data files that the given snapshots added.

        Only the manifests that each snapshot wrote itself are read, so it doesn't matter if a later one merged them.
        ``complete`` is false when one of the snapshots isn't a plain append, is no longer in the metadata, or added
        another number of rows than its summary says.

        Args:
            base: A state that has the snapshots' parents, if ``pointer`` doesn't.
        """
        file = self._files.metadata(pointer)
        files: list[DataFile] = []
        complete = True
        for snapshot_id in dict.fromkeys(snapshot_ids):
            snapshot = file.snapshot(snapshot_id)
            if snapshot is None:
                complete = False
                continue
            added, only_added = self._added(snapshot_id, pointer, base)
            is_counted = snapshot.summary.get("added-records", "0") == str(sum(one.rows for one in added))
            complete = complete and only_added and snapshot.operation == "append" and is_counted
            files += added
        return AddedFiles(files=tuple(files), complete=complete)

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield every file that the metadata at ``pointer`` reaches."""
        location = pointer.metadata_location

        def content(path: str) -> bytes:
            return self._files.read("File", path, pointer, bytes)

        with read_errors(f"A file that metadata file {location} of table {pointer.table} reaches", pointer):
            yield from reachable_files(location, content, set() if walked is None else walked)

    def new_files(self, before: TablePointer | None, pointer: TablePointer) -> Iterator[str]:
        """Yield what ``pointer`` reaches and ``before`` doesn't list."""
        walked, listed = set[str](), set[str]()
        if before is not None:
            for snapshot in self._files.metadata(before).document.get("snapshots") or ():
                walked.update(snapshot.get("manifests") or ())  # format version 1
                if snapshot.get("manifest-list") is not None:
                    walked.add(snapshot["manifest-list"])
            older = self._current_manifests(before)
            walked.update(manifest.manifest_path for manifest in older)
            listed = self._rewritten(older, before, self._current_manifests(pointer))
        yield from (path for path in self.reach(pointer, walked) if path not in listed)

    def _current_manifests(self, pointer: TablePointer) -> list[ManifestFile]:
        snapshot = metadata.find_snapshot(self._files.metadata(pointer).document, pointer.snapshot_id)
        return [] if snapshot is None or snapshot.get("manifest-list") is None else self._manifests(snapshot, pointer)

    def _rewritten(self, older: list[ManifestFile], before: TablePointer, newer: list[ManifestFile]) -> set[str]:
        """Return the files of manifests that others have taken the place of: an append merges many small ones."""
        kept, known = {one.manifest_path for one in newer}, {one.manifest_path for one in older}
        if not any(one.existing_files_count != 0 for one in newer if one.manifest_path not in known):
            return set()
        gone = (one for one in older if one.manifest_path not in kept and _may_hold_files(one))
        entries = (entry for manifest in gone for entry in self._entries(manifest, before))
        return {entry.data_file.file_path for entry in entries if entry.status != ManifestEntryStatus.DELETED}

    def inspect(self, pointer: TablePointer, walked: set[str]) -> Iterator[NeededFile | Flaw]:
        """Yield every file that the metadata at ``pointer`` reaches, and what's wrong with it."""
        return Inspector(pointer, self._files, walked).inspect()

    def footer_flaws(self, files: Sequence[NeededFile]) -> Iterator[Flaw | None]:
        """Count the rows of Parquet files by their footers, several files at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def flaw(file: NeededFile) -> Flaw | None:
            try:
                with self._files.open(file.path) as stream:
                    rows = pq.read_metadata(stream).num_rows
            except PermissionError as error:
                raise unreadable_file_error(f"Data file {file.path}", file.path, error) from error
            except (pa.ArrowException, OSError, EOFError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                return Flaw("unreadable-file", file, f"its footer can't be read: {reason}")
            return None if rows == file.rows else Flaw("wrong-rows", file, f"it holds {rows:,} rows, not {file.rows:,}")

        with ThreadPoolExecutor(_FILE_THREADS) as pool:
            yield from pool.map(flaw, files)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Return the files that don't exist, looking several up at a time."""

        def exists(path: str) -> bool:
            try:
                return self._files.exists(path)
            except OSError as error:
                raise unreadable_file_error(f"File {path}", path, error) from error

        with ThreadPoolExecutor(_FILE_THREADS) as pool:
            exist = list(pool.map(exists, paths))
        return [path for path, exists in zip(paths, exist, strict=True) if not exists]

    def _read_added(
        self, snapshot_id: int, pointer: TablePointer, base: TablePointer | None
    ) -> tuple[Sequence[DataFile], bool]:
        """Return the data files that a snapshot added and, judging by its manifests, whether it did nothing else.

        Args:
            base: A state that has the snapshot's parent, if ``pointer`` doesn't.
        """
        file, schema = self._file_and_schema(pointer)
        snapshot = metadata.find_snapshot(file.document, snapshot_id)
        assert snapshot is not None  # noqa: S101 - for the type checker; the caller found it
        added: list[DataFile] = []
        older, carried, only_added = list[ManifestFile](), Counter[_FileIdentity](), True
        for manifest in self._manifests(snapshot, pointer):
            # Format version 1 may leave the snapshot id out; the entries have it then.
            if manifest.added_snapshot_id not in (snapshot_id, None):
                older.append(manifest)
                continue
            is_data = manifest.content == ManifestContent.DATA
            decoder = FileDecoder(schema, file.specs.get(manifest.partition_spec_id))
            for entry in self._entries(manifest, pointer):
                # Entries without a snapshot id inherit the manifest's (spec, "Manifest Entry Fields").
                own = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
                if own != snapshot_id or entry.status == ManifestEntryStatus.EXISTING:
                    # An append may merge older manifests, also those of delete files.
                    carried[_file_identity(manifest, entry)] += entry.status != ManifestEntryStatus.DELETED
                    continue
                # Deletes that are older than a file don't apply to it, so one with an older number isn't a new file.
                is_new = _sequence_number(manifest, entry) == (snapshot.get("sequence-number") or 0)
                if entry.status == ManifestEntryStatus.DELETED or not is_data or not is_new:
                    only_added = False
                else:
                    added.append(decoder.decode(entry.data_file))
        return added, only_added and self._keeps_parent_files(snapshot, base or pointer, older, carried)

    def _keeps_parent_files(
        self,
        snapshot: Document,
        pointer: TablePointer,
        older: Sequence[ManifestFile],
        carried: Counter[_FileIdentity],
    ) -> bool:
        """Return whether a snapshot lists each file of its parent exactly once, with the rows it had.

        The audit of an append doesn't read these files, so a lost or duplicated one would be published unnoticed.

        Args:
            pointer: A state that has the parent, unless it expired there, too.
            older: The parent's manifests that the snapshot lists.
            carried: The parent's files that the snapshot's own manifests list, and how often.
        """
        parent_id = snapshot.get("parent-snapshot-id")
        if parent_id is None:
            return not (older or +carried)
        parent = metadata.find_snapshot(self._files.metadata(pointer).document, parent_id)
        if parent is None:
            return True
        known = {_manifest_identity(one): one for one in self._manifests(parent, pointer)}
        left = Counter(key for key, one in known.items() if _may_hold_files(one))
        # A manifest that the parent doesn't list counts, even if it's said to be empty: not all readers rely on that.
        left.subtract(key for one in older if (key := _manifest_identity(one)) not in known or _may_hold_files(one))
        merged = [known[key] for key, number in left.items() if number > 0]
        expected = Counter(
            _file_identity(manifest, entry)
            for manifest in merged
            for entry in self._entries(manifest, pointer)
            if entry.status != ManifestEntryStatus.DELETED
        )
        return min(left.values(), default=0) >= 0 and expected == +carried

    def _state(self, pointer: TablePointer) -> TableState:
        file = self._files.metadata(pointer)
        metadata.snapshot_of(file.document, pointer)  # raises if the metadata file doesn't have it
        return state_of(file.document, pointer, file.snapshots)

    def _file_and_schema(self, pointer: TablePointer) -> tuple[MetadataFile, IcebergSchema]:
        """Return the metadata file and the schema at ``pointer``, after checking that PyIceberg understands both."""
        file = self._files.metadata(pointer)
        with metadata_errors(file, pointer):
            return file, file.schema(pointer)

    def _manifests(self, snapshot: Document, pointer: TablePointer) -> list[ManifestFile]:
        return [line.file for line in self._files.manifest_list(snapshot, pointer).manifests]

    def _entries(self, manifest: ManifestFile, pointer: TablePointer) -> list[ManifestEntry]:
        return self._files.read("Manifest", manifest.manifest_path, pointer, read_manifest)


def _may_hold_files(manifest: ManifestFile) -> bool:
    # Format version 1 may leave the counts out.
    return (manifest.added_files_count, manifest.existing_files_count) != (0, 0)


def _manifest_identity(manifest: ManifestFile) -> tuple[object, ...]:
    """Return the part of a manifest's record in its list that decides which rows readers see."""
    return (
        manifest.manifest_path,
        manifest.partition_spec_id,
        int(manifest.content or 0),
        manifest.sequence_number or 0,
        *((one.contains_null, one.contains_nan, one.lower_bound, one.upper_bound) for one in manifest.partitions or ()),
    )


def _columns_of(schema: IcebergSchema) -> Schema:
    fields = schema.fields
    return Schema(
        columns=tuple(Column(name=one.name, type=type_text(one.field_type), required=one.required) for one in fields)
    )


def _file_identity(manifest: ManifestFile, entry: ManifestEntry) -> _FileIdentity:
    """Return everything that decides which rows readers see in a file, or delete because of it."""
    file = entry.data_file
    return (
        file.file_path,
        (manifest.partition_spec_id, repr(file.partition)),
        (int(file.content or 0), _sequence_number(manifest, entry), file.record_count),
        (target_data_file(file), *vector_span(file), *(file.equality_ids or ())),
        _file_metrics(file),
    )


def _sequence_number(manifest: ManifestFile, entry: ManifestEntry) -> int:
    """Return a file's data sequence number; 0 in format version 1."""
    own = entry.sequence_number
    return (manifest.sequence_number if own is None else own) or 0


def _file_metrics(file: ManifestDataFile) -> tuple[object, ...]:
    """Return the metrics by which readers skip a file, a part of it, or a delete file that can't apply."""
    counts = (file.value_counts, file.null_value_counts, file.nan_value_counts)
    found = (tuple(sorted((one or {}).items())) for one in (*counts, file.lower_bounds, file.upper_bounds))
    return *found, tuple(file.split_offsets or ())


def reachable_files(metadata_location: str, content: Callable[[str], bytes], walked: set[str]) -> Iterator[str]:
    """Yield the location of every file that the metadata file at ``metadata_location`` reaches, including itself.

    These are the manifest lists and manifests of all snapshots, their live data and delete files, and the table's
    statistics files. Files in the metadata log don't count, because no reader opens them.

    Args:
        metadata_location: A metadata file, compressed or not.
        content: Reads a file.
        walked: Metadata files, manifest lists and manifests to skip, because their files were already yielded. This
            adds the ones that it reads to the end.

    Raises:
        OSError: When a file is missing or can't be read.
        Exception: Whatever the parsers raise for a damaged file.
    """
    if metadata_location in walked:
        return
    document = from_json(metadata.decompressed(content(metadata_location)))
    # A file that isn't table metadata must fail, not look as if it reached nothing.
    if not isinstance(document["table-uuid"], str):
        raise TypeError("table-uuid isn't text")
    for snapshot in document.get("snapshots") or ():
        yield from _reachable_from_snapshot(snapshot, content, walked)
    for statistics in (*(document.get("statistics") or ()), *(document.get("partition-statistics") or ())):
        yield statistics["statistics-path"]
    yield metadata_location
    walked.add(metadata_location)


def _reachable_from_snapshot(
    snapshot: dict[str, Any], content: Callable[[str], bytes], walked: set[str]
) -> Iterator[str]:
    # Format version 1 may list the manifests in the snapshot itself.
    location = snapshot.get("manifest-list")
    if location is None:
        for manifest in snapshot["manifests"]:
            yield from _reachable_from_manifest(manifest, content, walked)
    elif location not in walked:
        for line in read_list(content(location)).manifests:
            yield from _reachable_from_manifest(line.file.manifest_path, content, walked)
        yield location
        walked.add(location)


def _reachable_from_manifest(location: str, content: Callable[[str], bytes], walked: set[str]) -> Iterator[str]:
    if location in walked:
        return
    for entry in read_manifest(content(location)):
        if entry.status != ManifestEntryStatus.DELETED:
            yield entry.data_file.file_path
    yield location
    walked.add(location)
