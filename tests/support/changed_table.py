"""A published table whose every engine-dependent turn was taken: for comparing what engines read of it."""

from __future__ import annotations

from pathlib import Path

from lakegate.lake import Lake


def publish_changed(lake: Lake, table: str, source: Path, tag: str) -> None:
    """Publish real trips as a partitioned table, tag it, then rename, add, drop and widen columns and delete rows."""
    namespace, _, name = table.rpartition(".")
    quoted = f"{namespace}.`{name}`"
    assert lake.ingest(table, source, partition_by=["days(lpep_pickup_datetime)"]).status == "published"
    lake.tags.create(tag)
    changes = (
        "SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')",
        "RENAME COLUMN lpep_pickup_datetime TO pickup",
        "RENAME COLUMN total_amount TO amount",
        "DROP COLUMN extra",
        "ADD COLUMN note string",
        "ALTER COLUMN PULocationID TYPE bigint",
    )
    with lake.transaction() as tx:
        for change in changes:
            tx.sql(f"ALTER TABLE {quoted} {change}")
    with lake.transaction() as tx:
        tx.sql(f"DELETE FROM {quoted} WHERE PULocationID % 10 = 3")
        tx.sql(f"UPDATE {quoted} SET note = 'refund', tip_amount = NULL WHERE fare_amount < 0")
    assert lake.table(table).rows is None  # delete files apply
