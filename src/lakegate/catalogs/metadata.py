"""Tables without an engine: metadata files and manifests, read by PyIceberg.

Only PyIceberg's metadata and manifest modules are loaded. Its Arrow file system, which brings pandas along, is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from lakegate.catalogs.evidence import FileDecoder, partition_text, type_text
from lakegate.catalogs.fileio import TableFileIO
from lakegate.catalogs.localfiles import is_local
from lakegate.catalogs.reach import reached_from
from lakegate.errors import ConfigurationError, EngineError, InputError, LakegateError, NotFoundError
from lakegate.model.files import AddedFiles, DataFile
from lakegate.model.refs import TablePointer
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import Snapshot, TableMetadata

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata as IcebergMetadata

    from lakegate.config import StorageSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_SNAPSHOT = -1
_Result = TypeVar("_Result")


class IcebergTableReader:
    """Reads tables from their metadata files; implements :class:`~lakegate.protocols.TableReader`.

    Args:
        storage: How to reach the object stores; default: by the usual ways of their own tools.
        remembered: Number of parsed metadata files to keep; they never change once written.
    """

    def __init__(self, storage: StorageSettings | None = None, *, remembered: int = 16) -> None:
        self._io = TableFileIO(storage).reading
        self._load = lru_cache(maxsize=remembered)(self._parse)

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshot of the table at ``pointer``.

        Raises:
            NotFoundError: When the metadata file is missing, or lacks the snapshot that ``pointer`` names.
            InputError: When the metadata file is not one.
            EngineError: When it cannot be read just now.
        """
        metadata = self._metadata(pointer)
        schema = _schema(metadata, pointer)
        spec = metadata.specs().get(pointer.spec_id, metadata.spec())
        snapshot = self._snapshot(metadata, pointer)
        return TableMetadata(
            table=pointer.table,
            metadata_location=pointer.metadata_location,
            location=metadata.location,
            table_schema=Schema(
                columns=tuple(
                    Column(name=field.name, type=type_text(field.field_type), required=field.required)
                    for field in schema.fields
                )
            ),
            partition_by=partition_text(spec, schema),
            properties=dict(metadata.properties),
            snapshot=None if snapshot is None else _snapshot(snapshot),
        )

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return all snapshots that the metadata file knows, oldest first; raises as :meth:`metadata`."""
        known = self._metadata(pointer).snapshots
        ordered = sorted(known, key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
        return [_snapshot(snapshot) for snapshot in ordered]

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``; raises as :meth:`metadata`."""
        metadata = self._metadata(pointer)
        snapshot = self._snapshot(metadata, pointer)
        if snapshot is None:
            return
        io = self._io(pointer.metadata_location)
        schema = _schema(metadata, pointer)
        for manifest in self._manifests(snapshot, io, pointer):
            if manifest.content == ManifestContent.DATA:
                decoder = _decoder(metadata, schema, manifest)
                for entry in self._entries(manifest, io, pointer):
                    if entry.status != ManifestEntryStatus.DELETED:
                        yield decoder.decode(entry.data_file)

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added; raises as :meth:`metadata`.

        Each snapshot is asked for the manifests it wrote itself, so it does not matter whether a later one merged them.
        ``complete`` is false when one of the snapshots did anything but append, is not known any more, or says that it
        added another number of rows than its files hold.
        """
        metadata = self._metadata(pointer)
        files: list[DataFile] = []
        complete = True
        for snapshot_id in dict.fromkeys(snapshot_ids):
            snapshot = metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                complete = False
                continue
            added, only_added = self._added_by(snapshot, metadata, pointer)
            complete = complete and only_added and _is_plain_append(snapshot, sum(file.rows for file in added))
            files += added
        return AddedFiles(files=tuple(files), complete=complete)

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield every file that the metadata at ``pointer`` needs; raises as :meth:`metadata`, also midway."""
        location = pointer.metadata_location
        files = reached_from(location, self._io(location), set() if walked is None else walked)
        what = f"What metadata file {location} of table {pointer.table} reaches"
        while (path := reading(what, pointer, lambda: next(files, None))) is not None:
            yield path

    def _added_by(
        self, snapshot: IcebergSnapshot, metadata: IcebergMetadata, pointer: TablePointer
    ) -> tuple[list[DataFile], bool]:
        """Return the data files that ``snapshot`` added, and whether its manifests say that it did nothing else."""
        io = self._io(pointer.metadata_location)
        schema = _schema(metadata, pointer)
        added: list[DataFile] = []
        only_added = True
        for manifest in self._manifests(snapshot, io, pointer):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content != ManifestContent.DATA:
                only_added = False
                continue
            decoder = _decoder(metadata, schema, manifest)
            for entry in self._entries(manifest, io, pointer):
                if entry.snapshot_id != snapshot.snapshot_id or entry.status == ManifestEntryStatus.EXISTING:
                    continue
                if entry.status == ManifestEntryStatus.DELETED:
                    only_added = False
                else:
                    added.append(decoder.decode(entry.data_file))
        return added, only_added

    def _metadata(self, pointer: TablePointer) -> IcebergMetadata:
        what = f"Metadata file {pointer.metadata_location} of table {pointer.table}"
        return reading(what, pointer, lambda: self._load(pointer.metadata_location))

    def _parse(self, location: str) -> IcebergMetadata:
        return FromInputFile.table_metadata(self._io(location).new_input(location))

    def _snapshot(self, metadata: IcebergMetadata, pointer: TablePointer) -> IcebergSnapshot | None:
        if pointer.snapshot_id == _NO_SNAPSHOT:
            return None
        snapshot = metadata.snapshot_by_id(pointer.snapshot_id)
        if snapshot is None:
            raise NotFoundError(
                f"Table {pointer.table} has no snapshot {pointer.snapshot_id} in {pointer.metadata_location}.",
                hint="It may have been expired. See the commits with 'lakegate log'.",
                table=str(pointer.table),
                snapshot_id=pointer.snapshot_id,
            )
        return snapshot

    def _manifests(self, snapshot: IcebergSnapshot, io: FileIO, pointer: TablePointer) -> list[ManifestFile]:
        what = f"Manifest list {snapshot.manifest_list} of table {pointer.table}"
        return reading(what, pointer, lambda: snapshot.manifests(io))

    def _entries(self, manifest: ManifestFile, io: FileIO, pointer: TablePointer) -> list[ManifestEntry]:
        what = f"Manifest {manifest.manifest_path} of table {pointer.table}"
        return reading(what, pointer, lambda: manifest.fetch_manifest_entry(io, discard_deleted=False))


def _schema(metadata: IcebergMetadata, pointer: TablePointer) -> IcebergSchema:
    by_id = {schema.schema_id: schema for schema in metadata.schemas}
    return by_id.get(pointer.schema_id, metadata.schema())


def _decoder(metadata: IcebergMetadata, schema: IcebergSchema, manifest: ManifestFile) -> FileDecoder:
    return FileDecoder(schema, metadata.specs().get(manifest.partition_spec_id))


def _snapshot(snapshot: IcebergSnapshot) -> Snapshot:
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        time=_EPOCH + timedelta(milliseconds=snapshot.timestamp_ms),
        operation=None if snapshot.summary is None else snapshot.summary.operation.value,
        summary={} if snapshot.summary is None else dict(snapshot.summary.additional_properties),
    )


def _is_plain_append(snapshot: IcebergSnapshot, rows: int) -> bool:
    if snapshot.summary is None or snapshot.summary.operation != Operation.APPEND:
        return False
    return str(snapshot.summary.additional_properties.get("added-records", "0")) == str(rows)


def reading(what: str, pointer: TablePointer, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` returns, and tell its failure in the words of :meth:`IcebergTableReader.metadata`.

    Args:
        what: The file, as a sentence starts with it.
        pointer: The table it belongs to.
        read: Reads and parses it.
    """
    try:
        return read()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{what} does not exist.",
            hint="Its files were moved or deleted outside lakegate, or this machine does not see them.",
            table=str(pointer.table),
            path=pointer.metadata_location,
        ) from error
    except LakegateError:
        raise
    except Exception as error:  # noqa: BLE001 - PyIceberg raises whatever its parsers and file systems raise
        _cannot_read(what, pointer, error)


def _cannot_read(what: str, pointer: TablePointer, error: Exception) -> NoReturn:
    reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    context = {"table": str(pointer.table), "path": pointer.metadata_location}
    if isinstance(error, PermissionError) and not is_local(pointer.metadata_location):
        raise ConfigurationError(
            f"{what} may not be read: {error.strerror or reason}.",
            hint="Check the credentials for the object store, and the setting catalog.warehouse.",
            setting="catalog.warehouse",
            **context,
        ) from error
    if isinstance(error, OSError):
        raise EngineError(
            f"{what} cannot be read: {reason}.",
            hint="Check that the warehouse is reachable and that its files may be read.",
            **context,
        ) from error
    raise InputError(
        f"{what} is damaged: {reason}.", hint="Restore it, or read the table at an older commit.", **context
    ) from error
