"""Iceberg tables written by PyIceberg, without a JVM: a main, and branches of it."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.resolver import resolve_writer
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from pyroaring import BitMap64

from lakegate.iceberg.files import local_path
from lakegate.iceberg.manifests import (
    SCHEMA_KEY,
    FileEntry,
    ListedManifest,
    ManifestList,
    encode,
    iceberg_schema,
    new_listed_manifest,
    read_container,
    read_entries,
    read_list,
    write_container,
    write_entries,
    write_list,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from support.pyiceberg_catalog import DictCatalog

NAME = TableIdentifier.parse("nyc.trips")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)


class IcebergTables:
    """Tables of one catalog. Each is one state of ``nyc.trips``, as a branch of Nessie holds it."""

    def __init__(self, warehouse: str, properties: Mapping[str, str]) -> None:
        self.catalog = DictCatalog(warehouse, **properties)

    def create(
        self,
        properties: Mapping[str, str] | None = None,
        schema: Schema = SCHEMA,
        spec: PartitionSpec | None = None,
    ) -> Table:
        options: dict[str, Any] = {"partition_spec": spec} if spec is not None else {}
        name = f"nyc.t{uuid4().hex}"
        return self.catalog.create_table(name, schema, properties=dict(properties or {}), **options)

    def at(self, pointer: TablePointer) -> Table:
        """Return a table that goes on from ``pointer``, as a branch does."""
        return self.catalog.register_table(f"nyc.t{uuid4().hex}", pointer.metadata_location)


@contextmanager
def iceberg_tables(warehouse: Path | str, properties: Mapping[str, str] | None = None) -> Iterator[IcebergTables]:
    """Open a catalog of tables.

    Args:
        warehouse: Folder or URI that all files are below.
        properties: What PyIceberg is told besides, such as ``s3.endpoint``.
    """
    made = IcebergTables(warehouse if isinstance(warehouse, str) else warehouse.as_uri(), properties or {})
    yield made
    made.catalog.close()


def append(table: Table, ids: Sequence[int], region: str = "north") -> int:
    """Append a data file and return the snapshot's id."""
    schema = table.schema().as_arrow()
    values: dict[str, list[Any]] = {"id": list(ids), "region": [region] * len(ids)}
    columns = {name: values.get(name, [None] * len(ids)) for name in schema.names}
    table.append(pa.table(columns, schema=schema))
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def pointer_to(table: Table, content_id: str | None = "main") -> TablePointer:
    table.refresh()
    snapshot = table.current_snapshot()
    return TablePointer(
        table=NAME,
        content_id=content_id,
        metadata_location=table.metadata_location,
        snapshot_id=-1 if snapshot is None else snapshot.snapshot_id,
        schema_id=table.metadata.current_schema_id,
        spec_id=table.metadata.default_spec_id,
        sort_order_id=table.metadata.default_sort_order_id,
    )


def data_file(partition: Sequence[Any] = (), **metrics: Any) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///f.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=1,
        **metrics,
    )


def vector_blob(positions: Sequence[int]) -> bytes:
    """Return a deletion vector as a Puffin file holds it."""
    content = bytes.fromhex("d1d33964") + BitMap64(positions).serialize()
    return len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def delete_by_vectors(table: Table, vectors: Sequence[tuple[str, bytes, int]], **changed: Any) -> Path:
    """Add deletion vectors to the newest snapshot of a table, in one Puffin file, and return that.

    Args:
        vectors: The data file that each is about, what it holds, and how many rows it is said to delete.
        changed: Fields that the manifest's entries get otherwise.
    """
    puffin = local_path(table.location()) / f"{uuid4()}.puffin"
    places, offset = [], 4
    for target, blob, _ in vectors:
        places.append({"referenced_data_file": target, "content_offset": offset, "content_size_in_bytes": len(blob)})
        offset += len(blob)
    blobs = [
        {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
         "offset": place["content_offset"], "length": place["content_size_in_bytes"],
         "properties": {"referenced-data-file": place["referenced_data_file"]}}
        for place in places
    ]  # fmt: skip
    footer = json.dumps({"blobs": blobs}).encode()
    content = b"".join((b"PFA1", *(blob for _, blob, _ in vectors), b"PFA1", footer))
    puffin.write_bytes(content + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1")
    files = [
        DataFile.from_args(
            3,
            content=DataFileContent.POSITION_DELETES,
            file_path=puffin.as_uri(),
            file_format=FileFormat.PUFFIN,
            partition=Record(),
            record_count=rows,
            file_size_in_bytes=puffin.stat().st_size,
            **{**place, **changed},
        )
        for place, (_, _, rows) in zip(places, vectors, strict=True)
    ]
    _add_deletes(table, files)
    return puffin


def delete_by_equality(table: Table, rows: pa.Table, keys: Sequence[int]) -> Path:
    """Add a file of equality deletes to the newest snapshot of a table, and return it.

    Args:
        rows: What is in the file.
        keys: Field ids of the columns by which it is said to delete.
    """
    path = local_path(table.location()) / f"{uuid4()}.parquet"
    pq.write_table(rows, path)
    file = DataFile.from_args(
        3,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=list(keys),
    )
    _add_deletes(table, [file])
    return path


def _add_deletes(table: Table, files: Sequence[DataFile]) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = local_path(table.location()) / f"{uuid4()}.avro"
    schema = json.dumps(AvroSchemaConversion().iceberg_to_avro(MANIFEST_ENTRY_SCHEMAS[3], schema_name="manifest_entry"))
    write = resolve_writer(MANIFEST_ENTRY_SCHEMAS[3], iceberg_schema(schema)).write
    added = {"status": ManifestEntryStatus.ADDED, "snapshot_id": snapshot.snapshot_id}
    records = [encode(write, ManifestEntry.from_args(3, data_file=file, **added)) for file in files]
    content, number = (
        write_container({SCHEMA_KEY: schema, "avro.codec": "null"}, records),
        snapshot.sequence_number or 0,
    )
    manifest.write_bytes(content)
    before = read_list(local_path(snapshot.manifest_list).read_bytes())
    line = new_listed_manifest(
        manifest.as_uri(), len(content), (), 0, snapshot.snapshot_id, number, None, ManifestContent.DELETES
    ).with_counts_from(content)
    after = ManifestList(before.meta, (*before.manifests, line))
    parent = snapshot.parent_snapshot_id
    local_path(snapshot.manifest_list).write_bytes(write_list(after, snapshot.snapshot_id, parent, number))
    metadata = local_path(table.metadata_location)
    document = json.loads(metadata.read_text())
    (summary,) = (one["summary"] for one in document["snapshots"] if one["snapshot-id"] == snapshot.snapshot_id)
    summary["total-delete-files"] = str(int(summary["total-delete-files"]) + len(files))
    metadata.write_text(json.dumps(document))


def merge_deletes(table: Table, change: Callable[[FileEntry], FileEntry | None]) -> None:
    """Rewrite the delete manifests of the newest snapshot into one of that snapshot, as appends may.

    Args:
        change: Changes an entry, or leaves it out.
    """
    snapshot = table.current_snapshot()
    assert snapshot is not None
    number, path = snapshot.sequence_number or 0, local_path(snapshot.manifest_list)
    known = read_list(path.read_bytes())
    lines = [one for one in known.manifests if one.file.content == ManifestContent.DATA]
    entries = list[FileEntry]()
    for line in known.manifests:
        if line not in lines:
            container = read_container(local_path(line.file.manifest_path).read_bytes())
            entries += [one.existing() for one in read_entries(container, line.file)]
    kept = [one for one in map(change, entries) if one is not None]
    merged = path.with_name(f"{uuid4()}-m0.avro")
    content = write_entries(container.meta, kept)
    merged.write_bytes(content)
    written = (merged.as_uri(), len(content), kept, 0, snapshot.snapshot_id, number, None, ManifestContent.DELETES)
    after = ManifestList(known.meta, (*lines, new_listed_manifest(*written)))
    path.write_bytes(write_list(after, snapshot.snapshot_id, snapshot.parent_snapshot_id, number))


def expire_parent(table: Table, *, loses: bool = False) -> TablePointer:
    """Return a state of a table without its newest snapshot's parent.

    Args:
        loses: Whether the newest snapshot doesn't list the parent's manifests, although its summary counts their rows.
    """
    snapshot, pointer = table.current_snapshot(), pointer_to(table)
    assert snapshot is not None
    if loses:
        path = local_path(snapshot.manifest_list)
        known = read_list(path.read_bytes())
        kept = tuple(one for one in known.manifests if one.file.added_snapshot_id == snapshot.snapshot_id)
        number, parent = snapshot.sequence_number or 0, snapshot.parent_snapshot_id
        path.write_bytes(write_list(ManifestList(known.meta, kept), snapshot.snapshot_id, parent, number))
    document = json.loads(local_path(pointer.metadata_location).read_text())
    document["snapshots"] = [one for one in document["snapshots"] if one["snapshot-id"] == snapshot.snapshot_id]
    document["snapshot-log"] = document["snapshot-log"][-1:]
    path = local_path(pointer.metadata_location).with_name(f"00009-{uuid4()}.metadata.json")
    path.write_text(json.dumps(document))
    return pointer.model_copy(update={"metadata_location": path.as_uri()})


def list_otherwise(table: Table, change: Callable[[Sequence[ListedManifest]], Sequence[ListedManifest]]) -> None:
    """Change which manifests the newest snapshot lists, and what its list says about them."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path, number = local_path(snapshot.manifest_list), snapshot.sequence_number or 0
    known = read_list(path.read_bytes())
    after = ManifestList(known.meta, tuple(change(known.manifests)))
    path.write_bytes(write_list(after, snapshot.snapshot_id, snapshot.parent_snapshot_id, number))


def listing_files_of(other: Table, own: Table, what: str, *, under: str | None = None) -> TablePointer:
    """Return a state of ``own``, in its own folder, that lists files of another table instead of its own.

    Args:
        what: Which: ``manifest list``, ``manifests`` or ``data files``.
        under: The folder that data files are said to be in.
    """
    pointer = pointer_to(own)
    document, theirs = (json.loads(local_path(one.metadata_location).read_text()) for one in (own, other))
    folder, number = local_path(pointer.metadata_location).parent, theirs["last-sequence-number"]
    snapshot = {**theirs["snapshots"][-1], "snapshot-id": 7, "parent-snapshot-id": None}
    held = read_list(local_path(snapshot["manifest-list"]).read_bytes())
    lines = list(held.manifests)
    if what == "data files":
        for at, line in enumerate(lines):
            container = read_container(local_path(line.file.manifest_path).read_bytes())
            entries = [one.existing() for one in read_entries(container, line.file)]
            if under is not None:
                entries = [_moved(one, under) for one in entries]
            content, path = write_entries(container.meta, entries), folder / f"{uuid4()}-m0.avro"
            path.write_bytes(content)
            lines[at] = new_listed_manifest(path.as_uri(), len(content), entries, 0, 7, number, None)
    if what != "manifest list":
        path = folder / f"snap-7-{uuid4()}.avro"
        path.write_bytes(write_list(ManifestList(held.meta, tuple(lines)), 7, None, number))
        snapshot["manifest-list"] = path.as_uri()
    document |= {"snapshots": [snapshot], "current-snapshot-id": 7, "last-sequence-number": number}
    document |= {"refs": {"main": {"snapshot-id": 7, "type": "branch"}}, "snapshot-log": []}
    path = folder / f"00009-{uuid4()}.metadata.json"
    path.write_text(json.dumps(document))
    return pointer.model_copy(update={"metadata_location": path.as_uri(), "snapshot_id": 7})


def _moved(entry: FileEntry, folder: str) -> FileEntry:
    """Return the entry of a data file with its path in another folder."""
    path = entry.file.file_path.encode()
    moved = f"{folder}/{entry.file.file_path.rpartition('/')[2]}".encode()
    old, new = (encode(lambda encoder, one: encoder.write_bytes(one), one) for one in (path, moved))
    assert old in entry.raw
    return replace(entry, raw=entry.raw.replace(old, new, 1))


def ids_at(pointer: TablePointer, **filters: Any) -> list[int]:
    """Return the ids of all rows, as PyIceberg reads them."""
    table = StaticTable.from_metadata(pointer.metadata_location)
    found: list[Any] = table.scan(**filters).to_arrow()["id"].to_pylist()
    return sorted(found)


def as_pyiceberg_has_it(location: str) -> StaticTable:
    """Return the table of a metadata file, read by PyIceberg's own file systems."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    known = {} if endpoint is None else {"s3.endpoint": endpoint, "s3.region": os.environ["AWS_REGION"]}
    return StaticTable.from_metadata(location, known)
