"""Read, copy and write manifest lists and manifests (Iceberg spec, "Manifests" and "Manifest Lists").

PyIceberg decodes the records. Records that stay are copied byte by byte into the new file (:class:`Container`):
encoding them again in Python would be slow, and would lose fields that this version doesn't know.

Lists of format version 1 may lack counts that version 2 requires; :meth:`ListedManifest.with_counts_from` takes them
from the manifest.
"""

from __future__ import annotations

import io
import json
import math
import secrets
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, StructProtocol
from pyiceberg.types import NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakegate.model.refs import NO_SNAPSHOT

_NEWEST: Final = 3
_VERSION_1_OPTIONAL = frozenset({503, 504, 505, 506, 512, 513, 514})

LIST_SCHEMA = Schema(
    *(
        field.model_copy(update={"required": field.required and field.field_id not in _VERSION_1_OPTIONAL})
        for field in MANIFEST_LIST_FILE_SCHEMAS[_NEWEST].fields
    )
)
"""Schema of a manifest list that reads all format versions."""
_LIST_IDS = {
    version: frozenset(field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[version].fields)
    for version in (_NEWEST - 1, _NEWEST)
}
_ROW_ID_PLACE = len(MANIFEST_LIST_FILE_SCHEMAS[_NEWEST].fields) - 1
"""Position of ``first_row_id`` (field 520) in a manifest list's record."""
_FIRST_ROW_ID = 142
_ROW_ID_FIELD = {"name": "first_row_id", "type": ["null", "long"], "default": None, "field-id": _FIRST_ROW_ID}
_NO_ROW_ID = b"\0"
_ENTRY_IDS = [0, 1, 3, 4, 2]
_OPTIONAL_LONG = ["null", "long"]
# By ManifestEntryStatus: 0 is existing, 1 added, 2 deleted.
_COUNTS = tuple(f"{status}_{what}_count" for what in ("files", "rows") for status in ("existing", "added", "deleted"))
_DATA_FILE_ID = 2
_REFERENCED_ID, _OFFSET_ID, _LENGTH_ID = 143, 144, 145
_DATA_FILE_IDS = [field.field_id for field in DATA_FILE_TYPE[_NEWEST].fields]
_FILE_TYPE = StructType(
    *(field for field in DATA_FILE_TYPE[2].fields if field.field_id != _REFERENCED_ID),
    NestedField(_REFERENCED_ID, "referenced_data_file", StringType(), required=False),
)

_PATH_COLUMN = 2147483546
"""Field id of ``file_path`` in position delete files."""
SCHEMA_KEY = "avro.schema"
_HEADER_READER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_HEADER_WRITER = construct_writer(META_SCHEMA)
_DOUBLE = struct.Struct("<d")


def _exact_double(_: DoubleReader, decoder: BinaryDecoder) -> float:
    """Decode a double exactly: PyIceberg 0.12's compiled decoder rounds it (apache/iceberg-python#3808)."""
    value: float
    (value,) = _DOUBLE.unpack(decoder.read(_DOUBLE.size))
    return value


DoubleReader.read = _exact_double  # type: ignore[method-assign, assignment]


_EntryParts: TypeAlias = tuple[int, int | None, int | None, int | None, DataFile, int]
"""Status, snapshot id, both sequence numbers, the ``data_file`` struct, and its length in bytes."""


class ForeignLayoutError(ValueError):
    """A manifest's records aren't laid out as format version 2 writes them."""


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest's record in a manifest list. ``raw`` holds its bytes there; ``None`` if it's new."""

    file: ManifestFile
    raw: bytes | None = None

    @property
    def live_files(self) -> int:
        """Number of files that aren't deleted; needs :attr:`has_counts`."""
        return _require_count(self.file.added_files_count) + _require_count(self.file.existing_files_count)

    @property
    def live_rows(self) -> int:
        """Number of rows in files that aren't deleted; for delete files, the number of deletes."""
        return _require_count(self.file.added_rows_count) + _require_count(self.file.existing_rows_count)

    @property
    def first_row_id(self) -> int | None:
        """First row id of the files that don't have one of their own (format version 3)."""
        found: int | None = self.file[_ROW_ID_PLACE]
        return found

    @property
    def has_counts(self) -> bool:
        """Whether it has the counts and the snapshot id that format version 2 requires."""
        return None not in [getattr(self.file, key) for key in ("added_snapshot_id", *_COUNTS)]

    def with_counts_from(self, content: bytes) -> ListedManifest:
        """Return the record with counts taken from the manifest ``content``, of any format version."""
        entries = read_manifest(content)
        file = self.file
        # Additions and deletions in a manifest are by the snapshot that wrote it.
        written = [e.snapshot_id for e in entries if e.status != ManifestEntryStatus.EXISTING]
        existing = [e.snapshot_id for e in entries if e.status == ManifestEntryStatus.EXISTING]
        known = (one for one in (file.added_snapshot_id, *written[-1:], *reversed(existing)) if one is not None)
        return ListedManifest(
            ManifestFile.from_args(
                _NEWEST,
                manifest_path=file.manifest_path,
                manifest_length=file.manifest_length,
                partition_spec_id=file.partition_spec_id,
                content=file.content,
                sequence_number=file.sequence_number,
                min_sequence_number=file.min_sequence_number,
                added_snapshot_id=next(known, NO_SNAPSHOT),
                first_row_id=self.first_row_id,
                **counts_of((entry.status, entry.data_file.record_count) for entry in entries),
                partitions=file.partitions,
                key_metadata=file.key_metadata,
            )
        )

    def with_sequence_number(self, sequence_number: int) -> ListedManifest:
        """Return the record of an additions-only manifest for a snapshot with this sequence number.

        The manifest's entries inherit the number (Iceberg spec, "Sequence Number Inheritance"). Its first row id is
        cleared: other rows of the target may have taken the ids that were assigned on the branch.
        """
        renumbered = self._copy()
        renumbered.sequence_number = renumbered.min_sequence_number = sequence_number
        renumbered[_ROW_ID_PLACE] = None
        return ListedManifest(renumbered)

    def with_first_row_id(self, first_row_id: int) -> ListedManifest:
        """Return the record with its first row id set (Iceberg spec, "First Row ID Assignment")."""
        numbered = self._copy()
        numbered[_ROW_ID_PLACE] = first_row_id
        return ListedManifest(numbered)

    def _copy(self) -> ManifestFile:
        return ManifestFile(*(self.file[position] for position in range(len(self.file))))


@dataclass(frozen=True, slots=True)
class ManifestList:
    """The manifests of a snapshot, and the Avro metadata of the list they were read from."""

    meta: Mapping[str, str]
    manifests: tuple[ListedManifest, ...] = ()

    def with_row_ids(self, next_row_id: int) -> tuple[ManifestList, int]:
        """Assign row ids from ``next_row_id`` on to data manifests that have none; return the next free one, too.

        After an upgrade to format version 3, that's all of them (Iceberg spec, "First Row ID Assignment").
        """
        numbered = []
        for line in self.manifests:
            if line.file.content == ManifestContent.DATA and line.first_row_id is None:
                numbered.append(line.with_first_row_id(next_row_id))
                next_row_id += line.live_rows
            else:
                numbered.append(line)
        return ManifestList(self.meta, tuple(numbered)), next_row_id


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file's entry in a manifest, with the values it inherits.

    ``raw`` is the encoded ``data_file`` struct. ``first_row_id`` may be inherited; ``numbered`` is then the struct with
    that id written into it.
    """

    status: int
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    file: DataFile
    raw: bytes
    numbered: bytes | None = None
    first_row_id: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether the file is part of the table."""
        return self.status != ManifestEntryStatus.DELETED

    def existing(self) -> FileEntry:
        """Return the entry with status "existing" and an explicit first row id, for a later manifest."""
        return replace(self, status=int(ManifestEntryStatus.EXISTING), raw=self.numbered or self.raw)

    def deleted(self, snapshot_id: int) -> FileEntry:
        """Return the entry with status "deleted", for a manifest of the snapshot that deletes the file."""
        deleted = int(ManifestEntryStatus.DELETED)
        return replace(self, status=deleted, snapshot_id=snapshot_id, raw=self.numbered or self.raw)


def read_list(content: bytes) -> ManifestList:
    """Return the manifest list in ``content``."""
    container = read_container(content)
    # Lists of format version 1, which an upgraded table may still have, lack fields that a new list requires.
    keeps = {field.field_id for field in iceberg_schema(container.schema).fields} >= _LIST_IDS[_NEWEST - 1]
    records = container.records(_list_reader(container.schema))
    lines = tuple(ListedManifest(file, raw if keeps else None) for file, raw in records)
    return ManifestList(meta=container.meta if keeps else _new_list_meta(), manifests=lines)


def no_manifests() -> ManifestList:
    """Return an empty manifest list, for a table without a snapshot."""
    return ManifestList(meta=_new_list_meta())


def write_list(
    manifests: ManifestList,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int | None = None,
) -> bytes:
    """Return the content of a snapshot's manifest list; format version 3 needs the snapshot's ``first_row_id``."""
    version = 2 if first_row_id is None else _NEWEST
    known = {field.field_id for field in iceberg_schema(manifests.meta[SCHEMA_KEY]).fields}
    if not known >= _LIST_IDS[version]:
        # The table was upgraded since the last list was written.
        manifests = ManifestList(_new_list_meta(version), tuple(replace(one, raw=None) for one in manifests.manifests))
    meta = {
        **manifests.meta,
        **({} if first_row_id is None else {"first-row-id": str(first_row_id)}),
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
        "format-version": str(version),
    }
    write = _list_writer(meta[SCHEMA_KEY]).write
    records = [encode(write, line.file) if line.raw is None else line.raw for line in manifests.manifests]
    return write_container(meta, records)


def read_entries(container: Container, manifest: ManifestFile) -> list[FileEntry]:
    """Return all entries of a manifest, including deleted ones, with the sequence numbers and row ids they inherit.

    Raises:
        ForeignLayoutError: When the manifest's layout isn't that of format version 2, or the manifest list gives it row
            ids and its entries have no field for them.
    """
    row_id_of = _row_id_locator(container.schema)

    def number(own: int | None, inherited: int | None) -> int:
        return (inherited or 0) if own is None else own

    next_row_id: int | None = manifest[_ROW_ID_PLACE]
    if next_row_id is not None and row_id_of is None:
        raise ForeignLayoutError("no field for row ids")
    entries = []
    read = _raw_entry_reader(container.schema)
    for (status, snapshot_id, sequence_number, file_sequence_number, file, length), record in container.records(read):
        raw, numbered = record[-length:], None
        own: int | None = None
        if row_id_of is not None and status != ManifestEntryStatus.DELETED:
            own, start, end = row_id_of(raw)
            if own is None and next_row_id is not None:
                # Inherited ("First Row ID Inheritance"): later manifests must have the id in the entry.
                own = next_row_id
                numbered = raw[:start] + encode(_write_optional_long, own) + raw[end:]
                next_row_id += file.record_count
        entries.append(
            FileEntry(
                status=status,
                snapshot_id=number(snapshot_id, manifest.added_snapshot_id),
                sequence_number=number(sequence_number, manifest.sequence_number),
                file_sequence_number=number(file_sequence_number, manifest.sequence_number),
                file=file,
                raw=raw,
                numbered=numbered,
                first_row_id=own,
            )
        )
    return entries


def with_row_id_field(container: Container) -> Container:
    """Return a manifest with format version 3's ``first_row_id`` field, empty, added to each entry if it's missing.

    Raises:
        ForeignLayoutError: When the manifest's layout isn't that of format version 2.
    """
    if _row_id_locator(container.schema) is not None:
        return container
    # `data_file` is a record's last field, so appending to the record appends to it.
    records = [(1, record + _NO_ROW_ID) for _, record in container.records(_raw_entry_reader(container.schema))]
    schema = json.loads(container.schema)
    schema["fields"][-1]["type"]["fields"].append(_ROW_ID_FIELD)
    meta = {**container.meta, SCHEMA_KEY: json.dumps(schema), "format-version": str(_NEWEST)}
    return Container(meta, records)


def without_row_ids(container: Container, entries: Iterable[FileEntry]) -> list[FileEntry]:
    """Return entries of a manifest without first row ids of their own, so that they inherit new ones."""
    find = _row_id_locator(container.schema)
    if find is None:
        return list(entries)

    def cleared(entry: FileEntry) -> FileEntry:
        _, start, end = find(entry.raw)
        raw = entry.raw[:start] + _NO_ROW_ID + entry.raw[end:]
        return replace(entry, raw=raw, numbered=None, first_row_id=None)

    return list(map(cleared, entries))


def write_entries(meta: Mapping[str, str], entries: Iterable[FileEntry], *, inherit: bool = False) -> bytes:
    """Return the content of a manifest of ``entries``.

    Args:
        meta: Avro metadata of the manifest that the entries come from; all must come from manifests of one schema.
        inherit: Leave the sequence numbers out, so that the entries inherit those of the snapshot that adds them.
    """
    return write_container(meta, [encode(_write_entry, entry, inherit=inherit) for entry in entries])


def new_listed_manifest(
    location: str,
    length: int,
    entries: Sequence[FileEntry],
    spec_id: int,
    snapshot_id: int,
    sequence_number: int,
    partitions: list[PartitionFieldSummary] | None,
    content: ManifestContent = ManifestContent.DATA,
) -> ListedManifest:
    """Return the manifest list's record of a manifest that snapshot ``snapshot_id`` wrote."""
    return ListedManifest(
        ManifestFile.from_args(
            _NEWEST,
            manifest_path=location,
            manifest_length=length,
            partition_spec_id=spec_id,
            content=content,
            sequence_number=sequence_number,
            min_sequence_number=min((e.sequence_number for e in entries if e.is_live), default=sequence_number),
            added_snapshot_id=snapshot_id,
            first_row_id=None,
            **counts_of((entry.status, entry.file.record_count) for entry in entries),
            partitions=partitions,
            key_metadata=None,
        )
    )


def counts_of(entries: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Return the counts of a manifest's record in the list, from the status and row count of each entry."""
    files, rows = [0, 0, 0], [0, 0, 0]
    for status, count in entries:
        files[status] += 1
        rows[status] += count
    return dict(zip(_COUNTS, (*files, *rows), strict=True))


def count_mismatches(snapshot: Mapping[str, Any], manifests: ManifestList) -> Iterator[str]:
    """Yield each total in a snapshot's summary that differs from its manifests."""
    data = [line for line in manifests.manifests if line.file.content == ManifestContent.DATA]
    summary = snapshot.get("summary") or {}
    for total, what, held in (
        ("total-records", "rows", sum(line.live_rows for line in data)),
        ("total-data-files", "data files", sum(line.live_files for line in data)),
    ):
        counted = summary.get(total)
        if counted is not None and str(counted) != str(held):
            yield (
                f"snapshot {snapshot['snapshot-id']} counts {counted} {what} ({total}), but its manifests hold {held}"
            )


def may_apply(
    delete: FileEntry, delete_spec_id: int, file: FileEntry, spec_id: int, *, unpartitioned: Collection[int] = ()
) -> bool:
    """Return whether a delete file may delete rows of a data file (Iceberg spec, "Scan Planning").

    Args:
        unpartitioned: The specs whose fields were all dropped; see
            :func:`lakegate.iceberg.metadata.unpartitioned_specs`.
    """
    # Cheap tests first: this runs for each pair of files.
    if delete.file.content == DataFileContent.POSITION_DELETES:
        if delete.sequence_number < file.sequence_number or not _may_reference(delete.file, file.file.file_path):
            return False
    elif delete.sequence_number <= file.sequence_number:
        return False
    elif delete_spec_id in unpartitioned or not len(delete.file.partition):
        return True
    return delete_spec_id == spec_id and (
        comparable_values(delete.file.partition) == comparable_values(file.file.partition)
    )


def comparable_values(partition: Record) -> list[Any]:
    """Return the values of a partition, comparable: NaN is a value like any other, but doesn't equal itself."""
    values = (partition[at] for at in range(len(partition)))
    return ["NaN" if isinstance(value, float) and math.isnan(value) else value for value in values]


def _may_reference(delete: DataFile, path: str) -> bool:
    referenced = delete[len(_FILE_TYPE) - 1]
    if referenced is not None:
        return bool(referenced == path)
    lower, upper = (delete.lower_bounds or {}), (delete.upper_bounds or {})
    known = _PATH_COLUMN in lower and _PATH_COLUMN in upper
    return not known or lower[_PATH_COLUMN] <= path.encode() <= upper[_PATH_COLUMN]


def explicit_first_row_id(file: DataFile) -> int | None:
    """Return the first row id in a file's own entry (from :func:`read_manifest`); ``None`` if it's inherited."""
    found: int | None = file[_DATA_FILE_IDS.index(_FIRST_ROW_ID)]
    return found


def target_data_file(delete: DataFile) -> str | None:
    """Return the only data file that a delete file (from :func:`read_manifest`) applies to, if it says so."""
    referenced: str | None = delete[_DATA_FILE_IDS.index(_REFERENCED_ID)]
    if referenced is not None:
        return referenced
    lower, upper = ((bounds or {}).get(_PATH_COLUMN) for bounds in (delete.lower_bounds, delete.upper_bounds))
    return lower.decode() if lower is not None and lower == upper else None


def vector_span(delete: DataFile) -> tuple[int | None, int | None]:
    """Return the offset and length of a deletion vector (from :func:`read_manifest`) in its file, in bytes."""
    offset, length = (delete[_DATA_FILE_IDS.index(one)] for one in (_OFFSET_ID, _LENGTH_ID))
    return offset, length


def _require_count(count: int | None) -> int:
    if count is None:
        raise ValueError("a missing count is unknown, not zero")
    return count


def _optional_long(decoder: BinaryDecoder) -> int | None:
    return decoder.read_int() if decoder.read_int() == 1 else None


def _write_optional_long(encoder: BinaryEncoder, value: int) -> None:
    encoder.write_int(1)
    encoder.write_int(value)


def _write_entry(encoder: BinaryEncoder, entry: FileEntry, *, inherit: bool) -> None:
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
    types: dict[int, Callable[..., StructProtocol]] = {-1: ManifestFile, 508: PartitionFieldSummary}
    return resolve_reader(iceberg_schema(avro_schema), LIST_SCHEMA, types, {517: ManifestContent}).read


@lru_cache(maxsize=32)
def _list_writer(avro_schema: str) -> Writer:
    return resolve_writer(LIST_SCHEMA, iceberg_schema(avro_schema))


@lru_cache(maxsize=2)
def _new_list_meta(version: int = 2) -> Mapping[str, str]:
    schema = AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file")
    return {SCHEMA_KEY: json.dumps(schema), AVRO_CODEC_KEY: "deflate"}


@lru_cache(maxsize=128)
def _raw_entry_reader(avro_schema: str) -> Callable[[BinaryDecoder], _EntryParts]:
    """Return a function that reads a manifest's entry: four fields of known layout, then its data file."""
    fields = json.loads(avro_schema)["fields"]
    if [field.get("field-id") for field in fields] != _ENTRY_IDS or any(
        field["type"] != _OPTIONAL_LONG for field in fields[1:4]
    ):
        raise ForeignLayoutError("not the layout of format version 2")
    schema: Schema = iceberg_schema(avro_schema)
    described: Any = schema.fields[-1].field_type
    read_file = resolve_reader(described, _FILE_TYPE, {-1: DataFile}, {134: DataFileContent}).read

    def read(decoder: BinaryDecoder) -> _EntryParts:
        status = decoder.read_int()
        snapshot_id, sequence_number, file_sequence_number = (_optional_long(decoder) for _ in range(3))
        start = decoder.tell()
        file = read_file(decoder)
        return status, snapshot_id, sequence_number, file_sequence_number, file, decoder.tell() - start

    return read


@lru_cache(maxsize=128)
def _row_id_locator(avro_schema: str) -> Callable[[bytes], tuple[int | None, int, int]] | None:
    """Return a function that finds the first row id in an encoded ``data_file``, as value, start and end.

    ``None`` if the schema has no such field.
    """
    described: Any = iceberg_schema(avro_schema).fields[-1].field_type
    ids = [field.field_id for field in described.fields]
    if _FIRST_ROW_ID not in ids:
        return None
    whole: Any = construct_reader(described)
    before = [reader for _, reader in whole.field_readers[: ids.index(_FIRST_ROW_ID)]]

    def find(raw: bytes) -> tuple[int | None, int, int]:
        decoder = new_decoder(raw)
        for reader in before:
            reader.skip(decoder)
        start = decoder.tell()
        return _optional_long(decoder), start, decoder.tell()

    return find


def read_manifest(content: bytes) -> list[ManifestEntry]:
    """Return all entries of a manifest, including deleted ones, as written: without inherited values."""
    container = read_container(content)
    return [entry for entry, _ in container.records(_entry_reader(container.schema))]


@lru_cache(maxsize=128)
def _entry_reader(avro_schema: str) -> Callable[[BinaryDecoder], ManifestEntry]:
    return resolve_reader(
        iceberg_schema(avro_schema),
        MANIFEST_ENTRY_SCHEMAS[_NEWEST],
        {-1: ManifestEntry, _DATA_FILE_ID: DataFile},
        {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ).read


@dataclass(frozen=True, slots=True)
class Container:
    """The content of an Avro object container file.

    Attributes:
        meta: Its metadata: schema, codec, and Iceberg's own keys.
        blocks: For each block, its number of records, and their bytes, uncompressed.
    """

    meta: Mapping[str, str]
    blocks: Sequence[tuple[int, bytes]]

    @property
    def schema(self) -> str:
        """The schema its records were written with, as JSON text."""
        return self.meta[SCHEMA_KEY]

    def records(self, read: Callable[[BinaryDecoder], Any]) -> Iterator[tuple[Any, bytes]]:
        """Yield each record, decoded by ``read``, and its bytes."""
        for count, content in self.blocks:
            decoder, start = new_decoder(content), 0
            for _ in range(count):
                record = read(decoder)
                end = decoder.tell()
                yield record, content[start:end]
                start = end


def read_container(content: bytes) -> Container:
    """Parse an Avro object container file."""
    if not content.startswith(MAGIC):
        raise ValueError("not an Avro file")
    decoder = new_decoder(content)
    header = _HEADER_READER.read(decoder)
    codec = _codec(header.meta)
    blocks = []
    while decoder.tell() < len(content):
        count, compressed, sync = decoder.read_int(), decoder.read_bytes(), decoder.read(SYNC_SIZE)
        if sync != header.sync:
            raise ValueError("a block doesn't end where it should")
        blocks.append((count, codec.decompress(compressed) if codec else compressed))
    return Container(meta=header.meta, blocks=blocks)


def write_container(meta: Mapping[str, str], records: Sequence[bytes]) -> bytes:
    """Write an Avro object container file with ``records``, already encoded with the schema in ``meta``."""
    codec, body = _codec(meta), b"".join(records)
    compressed = codec.compress(body)[0] if codec else body
    sync = secrets.token_bytes(SYNC_SIZE)
    stream = io.BytesIO()
    encoder = BinaryEncoder(cast("Any", stream))
    _HEADER_WRITER.write(encoder, AvroFileHeader(MAGIC, dict(meta), sync))
    if records:
        encoder.write_int(len(records))
        encoder.write_bytes(compressed)
        encoder.write(sync)
    return stream.getvalue()


def encode(write: Callable[..., None], *values: Any, **options: Any) -> bytes:
    """Return the bytes that ``write(encoder, *values, **options)`` writes."""
    stream = io.BytesIO()
    write(BinaryEncoder(cast("Any", stream)), *values, **options)
    return stream.getvalue()


@lru_cache(maxsize=256)
def iceberg_schema(avro_schema: str) -> Schema:
    """Convert an Avro schema to an Iceberg schema. Cached: it takes milliseconds, and few schemas are in use."""
    return AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))


def _codec(meta: Mapping[str, str]) -> type[Codec] | None:
    name = meta.get(AVRO_CODEC_KEY, "null")
    if name not in KNOWN_CODECS:
        raise ValueError(f"unknown codec {name}")
    return KNOWN_CODECS[name]
