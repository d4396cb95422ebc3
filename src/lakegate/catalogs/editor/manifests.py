"""Manifest lists and manifests as records that can be copied (Iceberg spec, "Manifests", "Manifest Lists", version 2).

PyIceberg decodes; what is kept of a file goes into the next one with the bytes it had.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import resolve_reader, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakegate.catalogs.editor.avro import (
    SCHEMA_KEY,
    Container,
    encoded,
    iceberg_schema,
    read_container,
    write_container,
)

_LIST_SCHEMA = MANIFEST_LIST_FILE_SCHEMAS[2]
_LIST_IDS = frozenset(field.field_id for field in _LIST_SCHEMA.fields)
_ENTRY_IDS = [0, 1, 3, 4, 2]
_OPTIONAL_LONG = ["null", "long"]
_DATA_FILE_ID = 2
_REFERENCED_ID = 143
_FILE_TYPE = StructType(
    *(field for field in DATA_FILE_TYPE[2].fields if field.field_id != _REFERENCED_ID),
    NestedField(_REFERENCED_ID, "referenced_data_file", StringType(), required=False),
)


class ForeignLayoutError(ValueError):
    """A manifest whose records do not start as those of format version 2 do."""


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A line of a manifest list; ``raw`` are its bytes there, ``None`` for a line that no list has yet."""

    file: ManifestFile
    raw: bytes | None = None

    @property
    def live_files(self) -> int:
        """Number of files that are not deleted."""
        return (self.file.added_files_count or 0) + (self.file.existing_files_count or 0)

    def added_at(self, sequence_number: int) -> ListedManifest:
        """Return the line of a manifest with nothing but additions in a snapshot of this sequence number.

        Its entries carry none of their own: they inherit this one (Iceberg spec, "Sequence Number Inheritance").
        """
        values = [self.file[position] for position in range(len(self.file))]
        renumbered = ManifestFile(*values)
        renumbered.sequence_number = renumbered.min_sequence_number = sequence_number
        return ListedManifest(renumbered)


@dataclass(frozen=True, slots=True)
class ManifestList:
    """The manifests of a snapshot, and how the file they were read from was written."""

    meta: Mapping[str, str]
    manifests: tuple[ListedManifest, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a manifest, with the numbers it inherited; ``raw`` are the bytes of its description."""

    status: int
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    file: DataFile
    raw: bytes

    @property
    def is_live(self) -> bool:
        """Whether the file is part of the table."""
        return self.status != ManifestEntryStatus.DELETED

    def existing(self) -> Entry:
        """Return the entry as a later manifest holds it."""
        return replace(self, status=int(ManifestEntryStatus.EXISTING))

    def deleted(self, snapshot_id: int) -> Entry:
        """Return the entry as the manifest of the snapshot that deletes the file holds it."""
        return replace(self, status=int(ManifestEntryStatus.DELETED), snapshot_id=snapshot_id)


def read_list(content: bytes) -> ManifestList:
    """Return the manifest list in ``content``."""
    container = read_container(content)
    read = _list_reader(container.schema)
    # Lists of format version 1, which an upgraded table may still have, lack what a new list must say.
    keeps = _takes_everything(container.schema)
    lines = (ListedManifest(file, raw if keeps else None) for file, raw in container.records(read))
    return ManifestList(meta=container.meta if keeps else _new_list_meta(), manifests=tuple(lines))


def no_manifests() -> ManifestList:
    """Return the manifest list of a table without a snapshot."""
    return ManifestList(meta=_new_list_meta())


def write_list(manifests: ManifestList, snapshot_id: int, parent_id: int | None, sequence_number: int) -> bytes:
    """Return the manifest list file of a snapshot."""
    meta = {
        **manifests.meta,
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": "2",
    }
    write = _list_writer(meta[SCHEMA_KEY]).write
    records = [
        encoded(lambda to, file=line.file: write(to, file)) if line.raw is None else line.raw  # type: ignore[misc]
        for line in manifests.manifests
    ]
    return write_container(meta, records)


def read_entries(container: Container, manifest: ManifestFile) -> list[Entry]:
    """Return all entries of a manifest, deleted ones too, with the sequence numbers they inherit.

    Raises:
        ForeignLayoutError: When the manifest was written in another layout than that of format version 2.
    """
    read_file = _file_reader(container.schema)

    def read(decoder: BinaryDecoder) -> tuple[int, int | None, int | None, int | None, DataFile, int]:
        status = decoder.read_int()
        numbers = [_optional_long(decoder) for _ in range(3)]
        start = decoder.tell()
        file = read_file(decoder)
        return status, *numbers, file, decoder.tell() - start  # type: ignore[return-value]

    def number(own: int | None, inherited: int | None) -> int:
        return (inherited or 0) if own is None else own

    return [
        Entry(
            status=status,
            snapshot_id=number(snapshot_id, manifest.added_snapshot_id),
            sequence_number=number(sequence_number, manifest.sequence_number),
            file_sequence_number=number(file_sequence_number, manifest.sequence_number),
            file=file,
            raw=raw[-length:],
        )
        for (status, snapshot_id, sequence_number, file_sequence_number, file, length), raw in container.records(read)
    ]


def write_entries(meta: Mapping[str, str], entries: Iterable[Entry], *, inherit: bool = False) -> bytes:
    """Return a manifest file of ``entries``.

    Args:
        meta: Of the manifest that they come from; all must come from manifests of one schema.
        entries: What to write.
        inherit: Leave their sequence numbers out, so that they take those of the snapshot that adds them.
    """
    return write_container(meta, [encoded(lambda to, e=entry: _write_entry(to, e, inherit)) for entry in entries])  # type: ignore[misc]


def listed(
    location: str,
    content: bytes,
    entries: Sequence[Entry],
    spec_id: int,
    snapshot_id: int,
    sequence_number: int,
    partitions: list[PartitionFieldSummary] | None,
) -> ListedManifest:
    """Return the line of a data manifest that was written in the snapshot ``snapshot_id``."""

    def files(status: ManifestEntryStatus) -> int:
        return sum(entry.status == status for entry in entries)

    def rows(status: ManifestEntryStatus) -> int:
        return sum(entry.file.record_count for entry in entries if entry.status == status)

    added, existing, deleted = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
    return ListedManifest(
        ManifestFile.from_args(
            manifest_path=location,
            manifest_length=len(content),
            partition_spec_id=spec_id,
            content=ManifestContent.DATA,
            sequence_number=sequence_number,
            min_sequence_number=min((e.sequence_number for e in entries if e.is_live), default=sequence_number),
            added_snapshot_id=snapshot_id,
            added_files_count=files(added),
            existing_files_count=files(existing),
            deleted_files_count=files(deleted),
            added_rows_count=rows(added),
            existing_rows_count=rows(existing),
            deleted_rows_count=rows(deleted),
            partitions=partitions,
            key_metadata=None,
        )
    )


def may_apply(delete: Entry, delete_spec_id: int, file: Entry, spec_id: int) -> bool:
    """Tell whether a delete file may delete rows of a data file (Iceberg spec, "Scan Planning")."""
    same_partition = delete_spec_id == spec_id and delete.file.partition == file.file.partition
    if delete.file.content == DataFileContent.POSITION_DELETES:
        targeted = same_partition and _may_name(delete.file, file.file.file_path)
        return targeted and delete.sequence_number >= file.sequence_number
    is_global = len(delete.file.partition) == 0
    return (same_partition or is_global) and delete.sequence_number > file.sequence_number


def _may_name(delete: DataFile, path: str) -> bool:
    referenced = delete[len(_FILE_TYPE) - 1]
    if referenced is not None:
        return bool(referenced == path)
    lower, upper = (delete.lower_bounds or {}), (delete.upper_bounds or {})
    known = _PATH_COLUMN in lower and _PATH_COLUMN in upper
    return not known or lower[_PATH_COLUMN] <= path.encode() <= upper[_PATH_COLUMN]


def _optional_long(decoder: BinaryDecoder) -> int | None:
    is_there = decoder.read_int() == 1
    return decoder.read_int() if is_there else None


_PATH_COLUMN = 2147483546
"""Field id of ``file_path`` in position delete files."""


def _write_entry(encoder: BinaryEncoder, entry: Entry, inherit: bool) -> None:  # noqa: FBT001 - ours alone
    encoder.write_int(entry.status)
    encoder.write_int(1)
    encoder.write_int(entry.snapshot_id)
    for number in (entry.sequence_number, entry.file_sequence_number):
        encoder.write_int(0 if inherit else 1)
        if not inherit:
            encoder.write_int(number)
    encoder.write(entry.raw)


@lru_cache(maxsize=32)
def _list_reader(avro_schema: str) -> Callable[[BinaryDecoder], ManifestFile]:
    return resolve_reader(
        iceberg_schema(avro_schema),
        _LIST_SCHEMA,
        {-1: ManifestFile, 508: PartitionFieldSummary},
        {517: ManifestContent},
    ).read


@lru_cache(maxsize=32)
def _list_writer(avro_schema: str) -> Writer:
    return resolve_writer(_LIST_SCHEMA, iceberg_schema(avro_schema))


@lru_cache(maxsize=32)
def _takes_everything(avro_schema: str) -> bool:
    return {field.field_id for field in iceberg_schema(avro_schema).fields} >= _LIST_IDS


@lru_cache(maxsize=1)
def _new_list_meta() -> Mapping[str, str]:
    schema = AvroSchemaConversion().iceberg_to_avro(_LIST_SCHEMA, schema_name="manifest_file")
    return {SCHEMA_KEY: json.dumps(schema), AVRO_CODEC_KEY: "deflate"}


@lru_cache(maxsize=128)
def _file_reader(avro_schema: str) -> Callable[[BinaryDecoder], DataFile]:
    fields = json.loads(avro_schema)["fields"]
    if [field.get("field-id") for field in fields] != _ENTRY_IDS or any(
        field["type"] != _OPTIONAL_LONG for field in fields[1:4]
    ):
        raise ForeignLayoutError("not the layout of format version 2")
    schema: Schema = iceberg_schema(avro_schema)
    described: Any = schema.fields[-1].field_type
    return resolve_reader(described, _FILE_TYPE, {-1: DataFile}, {134: DataFileContent}).read
