"""Equality deletes as Flink writes them: Spark, PyIceberg and lakegate only read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.resolver import resolve_writer
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakegate.iceberg import metadata
from lakegate.iceberg.files import local_path
from lakegate.iceberg.manifests import (
    SCHEMA_KEY,
    ManifestList,
    encode,
    iceberg_schema,
    new_listed_manifest,
    read_list,
    write_container,
    write_list,
)
from lakegate.model.refs import TablePointer

_EQUALITY_IDS = 135


def delete_equal(
    pointer: TablePointer, rows: pa.Table, *, spec_id: int = 0, partition: Sequence[object] = ()
) -> TablePointer:
    """Return a state of a local table in which rows that equal one of ``rows`` are deleted.

    Args:
        pointer: The state before.
        rows: Values of the columns that are compared, which are found by their names.
        spec_id: Partition spec of the delete file. It applies to all partitions if that has no fields.
        partition: The only partition that it applies to.
    """
    location = local_path(pointer.metadata_location)
    document = json.loads(location.read_text())
    version: Any = document["format-version"]
    number = document["last-sequence-number"] + 1
    schema = Schema.model_validate(metadata.schema_of(document, pointer))
    keys = [schema.find_field(name).field_id for name in rows.column_names]
    fields = [
        field.with_metadata({b"PARQUET:field_id": str(key).encode()})
        for field, key in zip(rows.schema, keys, strict=True)
    ]
    path = location.parent / f"{uuid4()}-deletes.parquet"
    pq.write_table(rows.cast(pa.schema(fields)), path)
    file = DataFile.from_args(
        version,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=_uri(pointer, path.name),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=keys,
    )
    spec = PartitionSpec.model_validate(metadata.specs(document)[spec_id])
    snapshot_id = metadata.new_snapshot_id(document)
    content = _manifest(version, schema, spec, file, snapshot_id)
    manifest = location.parent / f"{uuid4()}-m0.avro"
    manifest.write_bytes(content)
    parent = metadata.find_snapshot(document, document["current-snapshot-id"]) or {}
    known = read_list(local_path(parent["manifest-list"]).read_bytes())
    line = new_listed_manifest(
        _uri(pointer, manifest.name), len(content), (), spec_id, snapshot_id, number, None, ManifestContent.DELETES
    ).with_counts_from(content)
    first_row_id = document.get("next-row-id")
    listed = location.parent / f"snap-{snapshot_id}-1-{uuid4()}.avro"
    after = ManifestList(known.meta, (*known.manifests, line))
    listed.write_bytes(write_list(after, snapshot_id, parent["snapshot-id"], number, first_row_id))
    counts = {
        "added-delete-files": "1",
        "added-equality-delete-files": "1",
        "added-equality-deletes": str(rows.num_rows),
        "added-files-size": str(path.stat().st_size),
    }
    snapshot = {
        "sequence-number": number,
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent["snapshot-id"],
        "timestamp-ms": metadata.now_ms(document),
        "summary": {"operation": "delete", **metadata.with_running_totals(counts, parent)},
        "manifest-list": _uri(pointer, listed.name),
        "schema-id": document["current-schema-id"],
        **({} if first_row_id is None else {"first-row-id": first_row_id, "added-rows": 0}),
    }
    changed = metadata.append_snapshots(document, pointer, [snapshot])
    at = _uri(pointer, metadata.next_name(changed, pointer.metadata_location))
    local_path(at).write_bytes(metadata.serialise(at, changed))
    return pointer.model_copy(update={"metadata_location": at, "snapshot_id": snapshot_id})


def _uri(pointer: TablePointer, name: str) -> str:
    return f"{pointer.metadata_location.rpartition('/')[0]}/{name}"


def _manifest(version: Any, schema: Schema, spec: PartitionSpec, file: DataFile, snapshot_id: int) -> bytes:
    types = data_file_with_partition(spec.partition_type(schema), version)
    entry_schema = manifest_entry_schema_with_data_file(version, types)
    described: Any = AvroSchemaConversion().iceberg_to_avro(entry_schema, schema_name="manifest_entry")
    write = resolve_writer(entry_schema, iceberg_schema(json.dumps(described))).write
    # PyIceberg has them as longs, but Java reads ints, as the specification has them. Both look alike in Avro.
    (ids,) = (one for one in described["fields"][-1]["type"]["fields"] if one["field-id"] == _EQUALITY_IDS)
    ids["type"][1]["items"] = "int"
    meta = {
        SCHEMA_KEY: json.dumps(described),
        "avro.codec": "null",
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps([one.model_dump(by_alias=True, mode="json") for one in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(version),
        "content": "deletes",
    }
    entry = ManifestEntry.from_args(version, status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
    return write_container(meta, [encode(write, entry)])
