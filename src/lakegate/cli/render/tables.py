"""Tables: the list, one table's metadata, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.render.console import add_row, make_table, rows_or_nothing, safe, say, show
from lakegate.cli.render.text import cell, count, moment, size

if TYPE_CHECKING:
    from lakegate.model.files import DataFile
    from lakegate.model.tables import Snapshot, TableMetadata

_SNAPSHOTS = 10


def table_payload(metadata: TableMetadata) -> dict[str, Any]:
    """Return one line of the list of tables for machines."""
    snapshot = metadata.snapshot
    return {
        "table": str(metadata.table),
        "rows": metadata.rows,
        "data_files": metadata.data_files,
        "size_bytes": metadata.size_bytes,
        "snapshot_id": snapshot.snapshot_id if snapshot else None,
        "changed_at": snapshot.time if snapshot else None,
        "metadata_location": metadata.metadata_location,
    }


def show_tables(tables: Sequence[TableMetadata], ref: str) -> None:
    """Print the tables of a reference."""
    table = make_table("table", "rows", "files", "size", "changed", right=("rows", "files", "size"))
    rows = (
        (
            str(one.table),
            count(one.rows),
            count(one.data_files),
            size(one.size_bytes),
            moment(one.snapshot.time if one.snapshot else None),
        )
        for one in tables
    )
    rows_or_nothing(table, rows, empty=f"No tables on {ref}.")


def details_payload(metadata: TableMetadata, snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return all that ``table show`` knows, for machines."""
    return {
        **table_payload(metadata),
        "location": metadata.location,
        "columns": [column.model_dump(mode="json") for column in metadata.table_schema.columns],
        "partition_by": list(metadata.partition_by),
        "properties": metadata.properties,
        "snapshots": [snapshot.model_dump(mode="json") for snapshot in snapshots],
    }


def show_details(metadata: TableMetadata, snapshots: Sequence[Snapshot], ref: str) -> None:
    """Print a table's figures, columns and latest snapshots."""
    say(f"[bold]{safe(metadata.table)}[/] on {safe(ref)}")
    facts = {
        "rows": count(metadata.rows),
        "files": count(metadata.data_files),
        "size": size(metadata.size_bytes),
        "partitioned": ", ".join(metadata.partition_by) or "no",
        "location": metadata.location,
        "metadata": metadata.metadata_location,
    }
    say(*(f"  [dim]{name:<12}[/] {safe(value)}" for name, value in facts.items()), "")
    columns = make_table("column", "type", "required")
    for column in metadata.table_schema.columns:
        add_row(columns, column.name, column.type, "yes" if column.required else "")
    show(columns, indent=2)
    _show_snapshots(snapshots)


def _show_snapshots(snapshots: Sequence[Snapshot]) -> None:
    if not snapshots:
        return
    say("")
    table = make_table("snapshot", "time", "operation", "added rows", right=("added rows",))
    for snapshot in list(reversed(snapshots))[:_SNAPSHOTS]:
        added = snapshot.summary.get("added-records")
        cells = (str(snapshot.snapshot_id), moment(snapshot.time), snapshot.operation or "")
        add_row(table, *cells, count(int(added)) if added else "")
    show(table, indent=2)
    if len(snapshots) > _SNAPSHOTS:
        say(f"  [dim]… {len(snapshots) - _SNAPSHOTS} earlier; --output json has them all[/]")


def file_payload(file: DataFile) -> dict[str, Any]:
    """Return one data file for machines."""
    return {"path": file.path, "rows": file.rows, "size_bytes": file.size_bytes, "partition": dict(file.partition)}


def show_files(files: Iterable[DataFile], name: str) -> None:
    """Print the live data files of a table."""
    table = make_table("file", "rows", "size", "partition", right=("rows", "size"))
    rows = (
        (
            file.path,
            count(file.rows),
            size(file.size_bytes),
            ", ".join(f"{key}={cell(value)}" for key, value in file.partition.items()),
        )
        for file in files
    )
    rows_or_nothing(table, rows, empty=f"{name} has no data files.")
