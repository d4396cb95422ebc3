"""Manifest lists as writers of format version 1 may leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakegate.iceberg.manifests import LIST_SCHEMA, encode, read_list, write_container

_COUNTS = (504, 505, 506, 512, 513, 514)
_ADDED_BY = 503


def leave_out_counts(path: Path, *, columns: bool = False, added_by: bool = True) -> None:
    """Write a manifest list again without counts.

    Args:
        path: Of the list.
        columns: Keep their columns, with NULL in them.
        added_by: Keep what says which snapshot added a manifest.
    """
    missing = {*_COUNTS, *(() if added_by else (_ADDED_BY,))}
    fields = [f for f in MANIFEST_LIST_FILE_SCHEMAS[1].fields if columns or f.field_id not in missing]
    schema = Schema(*(f.model_copy(update={"required": f.required and f.field_id not in missing}) for f in fields))
    write: Callable[..., None] = construct_writer(schema).write
    records = []
    for line in read_list(path.read_bytes()).manifests:
        known = {f.field_id: line.file[position] for position, f in enumerate(LIST_SCHEMA.fields)}
        record = Record(*(None if f.field_id in missing else known[f.field_id] for f in fields))
        records.append(encode(partial(write, val=record)))
    # Hadoop's file system checks what it wrote.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    avro = AvroSchemaConversion().iceberg_to_avro(schema, schema_name="manifest_file")
    path.write_bytes(write_container({"avro.schema": json.dumps(avro), "avro.codec": "null"}, records))
