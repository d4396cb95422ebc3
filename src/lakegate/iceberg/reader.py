"""Tables without an engine: metadata files as the JSON they are, and manifests, read by PyIceberg.

Only PyIceberg's schema and manifest modules are loaded. Its tables take a sixth of a second to import, its Arrow file
system brings pandas along.
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
from lakegate.iceberg.deletion_vectors import positions
from lakegate.iceberg.files import TableFiles, not_readable, reading, reading_metadata
from lakegate.iceberg.inspection import Inspector, footer_flaw, vector_flaw
from lakegate.iceberg.lineage import TableState, classify, state_of
from lakegate.iceberg.manifests import only_target, read_list, read_manifest
from lakegate.iceberg.metadata import Document, MetadataFile
from lakegate.iceberg.validation import require_loadable
from lakegate.model.maintenance import Flaw, NeededFile, TableLayout
from lakegate.model.refs import TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, DataFile, SchemaVersion, Snapshot, TableChange, TableMetadata

if TYPE_CHECKING:
    import pyarrow as pa

_LOOKED_UP_AT_ONCE = 16
_TARGET_BYTES, _TARGET_BYTES_DEFAULT = "write.target-file-size-bytes", 512 << 20
_CHANGES_REMEMBERED = 8
"""Snapshots whose files are kept: a change is first classified, and then its rows are audited."""
_CLASSIFIED = 4_096
"""Changes that are kept: a revert past many appends looks at them each time that the target moves."""
_LAYOUTS_KEPT = 10_000
_Place: TypeAlias = tuple[int, str]
"""A partition: its spec and its values."""


class IcebergTableReader:
    """Reads tables from their metadata files; implements :class:`~lakegate.ports.TableReader`.

    Besides what each method says, all that take a pointer raise :class:`~lakegate.errors.NotFoundError` when one of the
    table's files is missing, :class:`~lakegate.errors.InputError` when one is damaged, and
    :class:`~lakegate.errors.EngineError` when one can't be read just now.

    Args:
        files: The tables' files, which remembers parsed metadata; by default one of its own, with default settings.
    """

    def __init__(self, files: TableFiles | None = None) -> None:
        self._files = files or TableFiles()
        self._layouts: dict[tuple[str, int, int], TableLayout] = {}
        self._change = lru_cache(maxsize=_CLASSIFIED)(self._classified)
        self._added = lru_cache(maxsize=_CHANGES_REMEMBERED)(self._added_by)

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshot of the table at ``pointer``.

        Raises:
            NotFoundError: Also when the metadata file lacks the snapshot that ``pointer`` names.
        """
        file, schema = self._defined(pointer)
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
            snapshot=None if snapshot is None else metadata.snapshot_value(snapshot),
            format_version=document["format-version"],
            uuid=document["table-uuid"],
            updated_at=metadata.updated_at(document),
        )

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return all snapshots that the metadata file knows, oldest first."""
        return self._files.metadata(pointer).snapshots

    def schemas(self, pointer: TablePointer) -> Sequence[SchemaVersion]:
        """Return the schemas that the table has had up to ``pointer``, oldest first.

        A schema that was replaced before anything was written with it has no time.
        """
        file, _ = self._defined(pointer)
        document = file.document
        first: dict[int, Snapshot] = {}
        written = {one["snapshot-id"]: one.get("schema-id") for one in document.get("snapshots") or ()}
        for snapshot in file.snapshots:
            schema_id = written.get(snapshot.snapshot_id)
            if schema_id is not None:
                first.setdefault(schema_id, snapshot)
        found = []
        for known in metadata.schemas(document):
            schema_id = known.get("schema-id", 0)
            with reading(f"Schema {schema_id} of {pointer.metadata_location}", pointer):
                schema = metadata.iceberg_schema(known)
            at = first.get(schema_id)
            found.append(
                SchemaVersion(
                    schema_id=schema_id,
                    table_schema=_columns_of(schema),
                    field_ids=tuple(field.field_id for field in schema.fields),
                    since=None if at is None else at.time,
                    run_id=None if at is None else at.summary.get(RUN_ID_PROPERTY),
                )
            )
        return found

    def change(self, before: TablePointer | None, after: TablePointer | None, *, evolves: bool = False) -> TableChange:
        """Return what happened to a table on the way from ``before`` to ``after``.

        Both metadata files decide (:mod:`lakegate.iceberg.lineage`). Manifests are read only for what is an append by
        them, and :meth:`added_files` keeps them.
        """
        return self._change(before, after, evolves)

    def _classified(self, before: TablePointer | None, after: TablePointer | None, evolves: bool) -> TableChange:  # noqa: FBT001 - of a cache
        def only_added(snapshot: Snapshot) -> bool:
            return after is not None and self.added_files(after, [snapshot.snapshot_id]).complete

        then, now = (None if pointer is None else self._state(pointer) for pointer in (before, after))
        return classify(then, now, only_added, evolves=evolves)

    def require_loadable(self, pointer: TablePointer, branch: str) -> None:
        """Check that every reader can load the table at ``pointer`` on ``branch``, and sees the same snapshot.

        Raises:
            InputError: When they can't (:func:`lakegate.iceberg.validation.require_loadable`).
        """
        file = self._files.metadata(pointer)
        require_loadable(file.document, pointer, branch, as_named=file.as_named)

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""
        file, schema = self._defined(pointer)
        snapshot = metadata.snapshot_of(file.document, pointer)
        for manifest in () if snapshot is None else self._manifests(snapshot, pointer):
            if manifest.content == ManifestContent.DATA:
                decoder = FileDecoder(schema, file.specs.get(manifest.partition_spec_id))
                for entry in self._entries(manifest, pointer):
                    if entry.status != ManifestEntryStatus.DELETED:
                        yield decoder.decode(entry.data_file)

    def has_other_specs(self, pointer: TablePointer) -> bool:
        """Return whether data files of the snapshot at ``pointer`` are partitioned by another spec than the table."""
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
        """Return how the files of the snapshot at ``pointer`` lie; small ones count where there are ``at_least``.

        Fewer files than ``data_files`` and ``delete_files`` are counted by the snapshot, without reading a manifest.
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
            used = [line for line in self._manifests(snapshot, pointer) if line.content == ManifestContent.DATA]
            return TableLayout(data_files=data, size_bytes=size or 0, manifests=sum(map(_may_hold_files, used)))
        # No compaction touches larger ones: Iceberg's min-file-size-bytes.
        small_bytes = min(small_bytes, metadata.setting(document, _TARGET_BYTES, _TARGET_BYTES_DEFAULT) * 3 // 4)
        key = str(snapshot.get("manifest-list")), small_bytes, at_least
        if key not in self._layouts:
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            self._layouts[key] = self._layout(snapshot, pointer, small_bytes, at_least)
        return self._layouts[key]

    def _layout(self, snapshot: Document, pointer: TablePointer, small_bytes: int, at_least: int) -> TableLayout:
        sizes, small, deletes = dict[str, int](), Counter[_Place](), list[tuple[_Place, ManifestDataFile, int]]()
        numbers, oldest = dict[str, int](), dict[_Place, int]()
        used = set[str]()
        for manifest in self._manifests(snapshot, pointer):
            for entry in self._entries(manifest, pointer):
                file = entry.data_file
                if entry.status == ManifestEntryStatus.DELETED:
                    continue
                place = manifest.partition_spec_id, repr(file.partition)
                number = manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
                if manifest.content != ManifestContent.DATA:
                    deletes.append((place, file, number))
                    continue
                numbers[file.file_path] = number
                oldest[place] = min(number, oldest.get(place, number))
                used.add(manifest.manifest_path)
                sizes[file.file_path] = file.file_size_in_bytes
                if file.file_size_in_bytes < small_bytes:
                    small[place] += 1

        def applies(place: _Place, delete: ManifestDataFile, number: int) -> bool:
            by_position = delete.content == DataFileContent.POSITION_DELETES
            target = only_target(delete)
            first = oldest.get(place) if target is None else numbers.get(target)
            if not by_position and not len(delete.partition):
                first = min(oldest.values(), default=None)
            return first is not None and (first <= number if by_position else first < number)

        return TableLayout(
            data_files=len(sizes),
            size_bytes=sum(sizes.values()),
            small_files=sum(number for number in small.values() if number >= at_least),
            # A compaction may leave those of the files that it replaced, which do nothing.
            delete_files=sum(applies(*delete) for delete in deletes),
            manifests=len(used),
        )

    def outdated_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> int:
        """Return how many snapshots the editor's ``trimmed`` would drop."""
        document = self._files.metadata(pointer).document
        shorter = metadata.trimmed(document, pointer.metadata_location, at_least, before=before)
        then, now = (one.get("snapshots") or () for one in (document, shorter))
        return len(then) - len(now)

    def read_rows(
        self,
        pointer: TablePointer,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return a reader of the rows at ``pointer``; see :func:`lakegate.iceberg.scan.open_scan`."""
        from lakegate.iceberg.scan import open_scan  # PyIceberg's tables, and Arrow

        return open_scan(pointer, self._files, columns=columns, where=where, limit=limit)

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added.

        Each snapshot is asked for the manifests it wrote itself, so it doesn't matter whether a later one merged them.
        ``complete`` is false when one of the snapshots did anything but append, isn't known any more, or says that it
        added another number of rows than its files hold.
        """
        file = self._files.metadata(pointer)
        files: list[DataFile] = []
        complete = True
        for snapshot_id in dict.fromkeys(snapshot_ids):
            snapshot = file.snapshot(snapshot_id)
            if snapshot is None:
                complete = False
                continue
            added, only_added = self._added(snapshot_id, pointer)
            complete = complete and only_added and _is_plain_append(snapshot, sum(one.rows for one in added))
            files += added
        return AddedFiles(files=tuple(files), complete=complete)

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield every file that the metadata at ``pointer`` needs."""
        location = pointer.metadata_location
        with reading(f"What metadata file {location} of table {pointer.table} reaches", pointer):
            yield from reached_from(location, self._files.content, set() if walked is None else walked)

    def inspect(self, pointer: TablePointer, walked: set[str]) -> Iterator[NeededFile | Flaw]:
        """Yield every file that the metadata at ``pointer`` needs, and what is wrong with it."""
        yield from Inspector(pointer, self._files, walked).inspect()

    def footer_flaws(self, files: Sequence[NeededFile], *, pages: bool) -> Iterator[Flaw | None]:
        """Yield what is wrong with each of these, a parquet file by its footer, a deletion vector by its checksum.

        Many are read at once.

        Args:
            pages: Read all of each parquet file, too, and compare its pages with their checksums.

        Raises:
            LakegateError: When a file may not be read, or its store doesn't serve it: then nothing is known of it.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        def flaw(file: NeededFile) -> Flaw | None:
            is_footer_read = False
            try:
                if file.vector is not None:
                    return vector_flaw(file, positions(file.vector, self._files.open))
                with self._files.open(file.path) as stream:
                    parquet = pq.ParquetFile(stream, page_checksum_verification=True)
                    found = footer_flaw(file, parquet.metadata)
                    is_footer_read = True
                    if found is None and pages:
                        for _ in parquet.iter_batches():
                            pass
                    return found
            except pa.ArrowNotImplementedError:
                return None  # a type that Arrow doesn't know
            except PermissionError as error:
                raise not_readable(f"Data file {file.path}", file.path, error) from error
            except (pa.ArrowException, OSError, EOFError, ValueError) as error:
                reason = str(error).strip().partition("\n")[0] or type(error).__name__
                if file.vector is not None:
                    return Flaw("unreadable-file", file, f"{reason} (that of data file {file.vector.target})")
                what = "one of its pages" if is_footer_read else "its footer"
                return Flaw("unreadable-file", file, f"{what} can't be read: {reason}")

        with ThreadPoolExecutor(_LOOKED_UP_AT_ONCE) as pool:
            yield from pool.map(flaw, files)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        """Return those of the files that aren't there; many are asked for at once."""
        with ThreadPoolExecutor(_LOOKED_UP_AT_ONCE) as pool:
            exist = list(pool.map(self._files.exists, paths))
        return [path for path, exists in zip(paths, exist, strict=True) if not exists]

    def _added_by(self, snapshot_id: int, pointer: TablePointer) -> tuple[Sequence[DataFile], bool]:
        """Return the data files that a snapshot added, and whether its manifests say that it did nothing else."""
        file, schema = self._defined(pointer)
        snapshot = metadata.find_snapshot(file.document, snapshot_id)
        assert snapshot is not None  # noqa: S101 - for the type checker; the caller found it
        added: list[DataFile] = []
        older, carried, only_added = list[ManifestFile](), Counter[str](), True
        for manifest in self._manifests(snapshot, pointer):
            # Version 1 may leave the snapshot out; then the entries name it.
            if manifest.added_snapshot_id not in (snapshot_id, None):
                older.append(manifest)
                continue
            if manifest.content != ManifestContent.DATA:
                only_added = False
                continue
            decoder = FileDecoder(schema, file.specs.get(manifest.partition_spec_id))
            for entry in self._entries(manifest, pointer):
                # What names no snapshot is of the one that added the manifest (spec, "Manifest Entry Fields").
                own = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
                if own != snapshot_id or entry.status == ManifestEntryStatus.EXISTING:
                    carried[entry.data_file.file_path] += entry.status != ManifestEntryStatus.DELETED
                    continue
                if entry.status == ManifestEntryStatus.DELETED:
                    only_added = False
                else:
                    added.append(decoder.decode(entry.data_file))
        return added, only_added and self._keeps_older(file.document, snapshot, pointer, older, carried)

    def _keeps_older(
        self,
        document: Document,
        snapshot: Document,
        pointer: TablePointer,
        older: Sequence[ManifestFile],
        carried: Counter[str],
    ) -> bool:
        """Return whether a snapshot has each file of its parent once: in its manifests, or ``carried`` into its own.

        No check reads those files: one that is missing, or there twice, would be published unseen.
        """
        parent_id = snapshot.get("parent-snapshot-id")
        parent = None if parent_id is None else metadata.find_snapshot(document, parent_id)
        if parent is None:
            return parent_id is not None or not (older or +carried)
        before = {one.manifest_path: one for one in self._manifests(parent, pointer) if _may_hold_files(one)}
        left = Counter(before.keys())
        left.subtract(one.manifest_path for one in older if _may_hold_files(one))
        merged = [before[path] for path, number in left.items() if number > 0]
        there = Counter(
            entry.data_file.file_path
            for manifest in merged
            for entry in self._entries(manifest, pointer)
            if entry.status != ManifestEntryStatus.DELETED
        )
        return min(left.values(), default=0) >= 0 and there == +carried

    def _state(self, pointer: TablePointer) -> TableState:
        file = self._files.metadata(pointer)
        metadata.snapshot_of(file.document, pointer)  # raises when the file lacks it
        return state_of(file.document, pointer, file.snapshots)

    def _defined(self, pointer: TablePointer) -> tuple[MetadataFile, IcebergSchema]:
        """Return the file and the schema at ``pointer``, both such that PyIceberg knows all that they name."""
        file = self._files.metadata(pointer)
        with reading_metadata(file, pointer):
            return file, file.schema(pointer)

    def _manifests(self, snapshot: Document, pointer: TablePointer) -> list[ManifestFile]:
        lines = self._files.read("Manifest list", str(snapshot.get("manifest-list")), pointer, read_list).manifests
        return [line.file for line in lines]

    def _entries(self, manifest: ManifestFile, pointer: TablePointer) -> list[ManifestEntry]:
        return self._files.read(
            "Manifest", manifest.manifest_path, pointer, lambda content: list(read_manifest(content))
        )


def _may_hold_files(manifest: ManifestFile) -> bool:
    # Version 1 may leave the counts out.
    return (manifest.added_files_count, manifest.existing_files_count) != (0, 0)


def _columns_of(schema: IcebergSchema) -> Schema:
    fields = schema.fields
    return Schema(
        columns=tuple(Column(name=one.name, type=type_text(one.field_type), required=one.required) for one in fields)
    )


def _is_plain_append(snapshot: Snapshot, rows: int) -> bool:
    return snapshot.operation == "append" and snapshot.summary.get("added-records", "0") == str(rows)


def reached_from(metadata_location: str, content: Callable[[str], bytes], walked: set[str]) -> Iterator[str]:
    """Yield the location of every file that the table metadata at ``metadata_location`` needs, itself included.

    These are, for all its snapshots, the manifest lists, the manifests, and their live data and delete files; and the
    table's statistics files. The files of the metadata log aren't: nothing is read through them.

    Args:
        metadata_location: A metadata file, compressed or not.
        walked: Metadata files, manifest lists and manifests whose files were yielded before; they are left out, and
            the ones walked to their end now are added.

    Raises:
        OSError: When a file is missing or can't be read.
        Exception: Whatever the parsers raise about a damaged one.
    """
    if metadata_location in walked:
        return
    document = from_json(metadata.unpacked(content(metadata_location)))
    # What isn't table metadata must not look as if it reached nothing.
    if not isinstance(document["table-uuid"], str):
        raise TypeError("table-uuid isn't text")
    for snapshot in document.get("snapshots") or ():
        yield from _from_snapshot(snapshot, content, walked)
    for statistics in (*(document.get("statistics") or ()), *(document.get("partition-statistics") or ())):
        yield statistics["statistics-path"]
    yield metadata_location
    walked.add(metadata_location)


def _from_snapshot(snapshot: dict[str, Any], content: Callable[[str], bytes], walked: set[str]) -> Iterator[str]:
    # Version 1 may list the manifests in the snapshot itself.
    location = snapshot.get("manifest-list")
    if location is None:
        for manifest in snapshot["manifests"]:
            yield from _from_manifest(manifest, content, walked)
    elif location not in walked:
        for line in read_list(content(location)).manifests:
            yield from _from_manifest(line.file.manifest_path, content, walked)
        yield location
        walked.add(location)


def _from_manifest(location: str, content: Callable[[str], bytes], walked: set[str]) -> Iterator[str]:
    if location in walked:
        return
    for entry in read_manifest(content(location)):
        if entry.status != ManifestEntryStatus.DELETED:
            yield entry.data_file.file_path
    yield location
    walked.add(location)
