"""Tables that PyIceberg writes, so that no JVM is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from lakegate.model.identifiers import TableIdentifier
from support.pyiceberg_catalog import DictCatalog

NAME = TableIdentifier.parse("nyc.trips")
NOON = datetime(2026, 1, 31, 12, 0, 0, 123456)


def create(iceberg: DictCatalog, rows: pa.Table, properties: Mapping[str, str] | None = None) -> Table:
    return iceberg.create_table("nyc.trips", schema=rows.schema, properties=dict(properties or {}))


def append(table: Table, rows: pa.Table) -> int:
    table.append(rows)
    table.refresh()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def trips(numbers: Sequence[int | None], region: str = "north") -> pa.Table:
    columns: list[pa.Field[Any]] = [
        pa.field("id", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("pickup", pa.timestamp("us")),
    ]
    schema = pa.schema(columns)
    size = len(numbers)
    return pa.table(
        {"id": list(numbers), "region": [region] * size, "pickup": [NOON + timedelta(days=i) for i in range(size)]},
        schema=schema,
    )


@contextmanager
def catalog_below(folder: Path) -> Iterator[DictCatalog]:
    """Open a catalog whose tables are in a folder with a space in its name."""
    (folder / "lake with space").mkdir()
    with closing(DictCatalog(f"file://{folder}/lake with space")) as catalog:
        yield catalog
