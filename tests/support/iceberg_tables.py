"""Iceberg tables written by PyIceberg, without a JVM: a main, and branches of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

NAME = TableIdentifier.parse("nyc.trips")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)


class IcebergTables:
    """Tables of one catalog. Each is one state of ``nyc.trips``, as a branch of Nessie holds it."""

    def __init__(self, warehouse: str, properties: Mapping[str, str]) -> None:
        self.catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=warehouse, **properties)
        self.catalog.create_namespace("nyc")

    def create(
        self,
        properties: Mapping[str, str] | None = None,
        schema: Schema = SCHEMA,
        spec: PartitionSpec | None = None,
    ) -> Table:
        options = {"partition_spec": spec} if spec is not None else {}
        name = f"nyc.t{uuid4().hex}"
        return self.catalog.create_table(name, schema, properties=dict(properties or {}), **options)  # type: ignore[arg-type]

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
