"""One table on ``main``: its columns, schema changes, snapshots, NULL rates, bounds and check history."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from lakegate.dashboard.model import ReadModel, ResultPage, TableFacts, lineage_of, paginate, rows_after, searchable
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.checks import Severity
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, CheckRecord, RunLine
from lakegate.model.schema import Column, ColumnChange, column_changes
from lakegate.model.tables import AddedFiles, ColumnStatistics, Snapshot

Scalar = str | int | float | bool | None
_MOST_COLUMNS = 200
_LONGEST_BOUND = 200


class TableDetail(Value):
    """A table on ``main``."""

    table: str
    commit: str
    metadata_location: str
    format_version: int
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    facts: TableFacts


class SchemaLine(Value):
    """One schema of a table's history.

    Attributes:
        since: Time of the first snapshot written with it.
        changes: Differences from the schema before; all columns for the first schema.
    """

    schema_id: int
    since: datetime | None = None
    run_id: str | None = None
    columns: int
    changes: tuple[ColumnChange, ...]


class SnapshotLine(Value):
    """One snapshot of a table, by a publish or another writer.

    Attributes:
        operation: ``append``, ``overwrite``, ``delete`` or ``replace``.
        rows_added: Rows added; ``None`` if its summary doesn't say, like ``rows_removed``.
        rows: Rows of the table after it; ``None`` if delete files hide the number.
        size_bytes: Bytes in all data files after it.
        run_id: The run that wrote it; ``None`` for other writers.
    """

    snapshot_id: str
    at: datetime
    operation: str | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    rows: int | None = None
    files_added: int | None = None
    size_bytes: int | None = None
    run_id: str | None = None
    is_current: bool = False


class ColumnPoint(Value):
    """The values that one snapshot added to a column, from the metrics of its data files.

    Attributes:
        null_share: Share of NULLs, from 0 to 1; ``None`` if a file lacks the count.
        lower: Lower bound of the values; ``None`` if unknown, like ``upper``. Text may be truncated.
    """

    at: datetime
    null_share: float | None = None
    lower: Scalar = None
    upper: Scalar = None


class ColumnHistory(Value):
    """A column over the newest snapshots that added rows, oldest first. Masked columns have no bounds."""

    column: str
    type: str
    points: tuple[ColumnPoint, ...] = ()


class CheckHistory(Value):
    """A check over the newest runs of a table.

    Attributes:
        failing: Rows that failed it in each run that judged it, oldest first; 0 where it passed.
        failing_since: The run in which it started to fail, without a pass since; ``None`` if it passed last.
        last_pass: When the newest of these runs in which it passed began.
    """

    check: str
    severity: Severity
    failing: tuple[int, ...] = ()
    failing_since: RunLine | None = None
    last_pass: datetime | None = None


def get_table(model: ReadModel, table: str) -> TableDetail:
    """Return a table."""
    main, pointer = model.catalog.get_ref(MAIN), _pointer(model, table)
    metadata = model.metadata(pointer)
    return TableDetail(
        table=table,
        commit=main.hash,
        metadata_location=metadata.metadata_location,
        format_version=metadata.format_version,
        columns=metadata.table_schema.columns,
        partition_by=metadata.partition_by,
        facts=model.facts(pointer),
    )


def schema_changes(model: ReadModel, table: str) -> tuple[SchemaLine, ...]:
    """Return how a table's schema evolved, oldest first."""
    lines = []
    before: Mapping[int, Column] = {}
    for version in model.reader.schemas(_pointer(model, table)):
        lines.append(
            SchemaLine(
                schema_id=version.schema_id,
                since=version.since,
                run_id=version.run_id,
                columns=len(version.field_ids),
                changes=tuple(column_changes(before, version.by_id)),
            )
        )
        before = version.by_id
    return tuple(lines)


def list_snapshots(
    model: ReadModel, table: str, *, limit: int = 50, cursor: str | None = None
) -> ResultPage[SnapshotLine]:
    """Return a page of the snapshots that led to a table's current state, newest first.

    Expired snapshots aren't among them; :func:`lakegate.dashboard.runs.list_runs` knows older publishes.
    """
    pointer = _pointer(model, table)
    newest_first = lineage_of(model.reader.snapshots(pointer), pointer.snapshot_id)[::-1]
    shown, following = paginate(newest_first, cursor, limit)
    items = tuple(_snapshot(snapshot, pointer) for snapshot in shown)
    return ResultPage[SnapshotLine](items=items, next=following, total=len(newest_first))


def column_history(model: ReadModel, table: str, *, limit: int = 20) -> tuple[ColumnHistory, ...]:
    """Return the NULL rate and bounds of a table's first 200 columns in what its newest ``limit`` snapshots added."""
    pointer = _pointer(model, table)
    snapshots = lineage_of(model.reader.snapshots(pointer), pointer.snapshot_id)
    adding = [one for one in snapshots if _summary_number(one, "added-records") != 0][-limit:]
    sums = model.read_each(adding, lambda snapshot: _column_sums(model, pointer, snapshot.snapshot_id))
    added = []
    for snapshot, values in zip(adding, sums, strict=True):
        if isinstance(values, LakegateError):
            raise values
        added.append((snapshot, values))
    return tuple(
        ColumnHistory(
            column=column.name,
            type=column.type,
            points=tuple(
                _point(snapshot, values, column.name, bounds=not model.is_masked(column.name))
                for snapshot, values in added
                if column.name in values[1]
            ),
        )
        for column in model.metadata(pointer).table_schema.columns[:_MOST_COLUMNS]
    )


def check_history(model: ReadModel, table: str, *, limit: int = 40) -> tuple[CheckHistory, ...]:
    """Return the results of each check of a table in its newest runs, failing checks first."""
    table = searchable(table)
    lines = {line.run_id: line for line in model.journal.pages.newest_of([table], limit=limit)[table]}
    records: dict[str, list[CheckRecord]] = defaultdict(list)
    for record in model.journal.pages.checks(table, list(lines)):
        records[record.check].append(record)
    histories = [_history(of_check, lines) for of_check in records.values()]
    return tuple(sorted(histories, key=lambda one: (one.failing_since is None, one.severity == "warn", one.check)))


def as_scalar(value: Any) -> Scalar:
    """Return a bound or partition value in a form that survives JSON.

    Example:
        >>> as_scalar(date(2026, 1, 31)), as_scalar(0.5), as_scalar(float("nan")), as_scalar(b"ab")
        ('2026-01-31', 0.5, 'nan', '0x6162')
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value[:_LONGEST_BOUND]
        case bytes():
            return f"0x{value[:_LONGEST_BOUND].hex()}"
        case date() | time():
            return value.isoformat()
        case _:
            return (f"{value:f}" if isinstance(value, Decimal) else str(value))[:_LONGEST_BOUND]


def _pointer(model: ReadModel, table: str) -> TablePointer:
    return model.table(TableIdentifier.parse(table), model.catalog.get_ref(MAIN))


def _summary_number(snapshot: Snapshot, key: str) -> int | None:
    value = snapshot.summary.get(key)
    return int(value) if value is not None and value.isdecimal() else None


def _snapshot(one: Snapshot, pointer: TablePointer) -> SnapshotLine:
    counted = "total-records" in one.summary
    default = 0 if counted else None
    added, removed, files = (
        default if (found := _summary_number(one, key)) is None else found
        for key in ("added-records", "deleted-records", "added-data-files")
    )
    return SnapshotLine(
        snapshot_id=str(one.snapshot_id),
        at=one.time,
        operation=one.operation,
        rows_added=added,
        rows_removed=removed,
        rows=rows_after(one),
        files_added=files,
        size_bytes=_summary_number(one, "total-files-size"),
        run_id=one.summary.get(RUN_ID_PROPERTY),
        is_current=one.snapshot_id == pointer.snapshot_id,
    )


_ColumnSums = tuple[int, Mapping[str, tuple[int | None, Scalar, Scalar]]]


@lru_cache(maxsize=2_000)
def _column_sums(model: ReadModel, pointer: TablePointer, snapshot_id: int) -> _ColumnSums:
    """Return the number of rows that a snapshot added, and the NULLs and bounds of each column."""
    added: AddedFiles = model.reader.added_files(pointer, [snapshot_id])
    columns: dict[str, list[ColumnStatistics]] = defaultdict(list)
    for file in added.files:
        for name, statistics in file.columns.items():
            columns[name].append(statistics)
    return added.rows, {name: _merge_statistics(statistics) for name, statistics in columns.items()}


def _merge_statistics(found: Sequence[ColumnStatistics]) -> tuple[int | None, Scalar, Scalar]:
    nulls = [one.null_count for one in found]
    # A file of only NULLs has no bounds, and doesn't change those of the others.
    bounded = [one for one in found if one.value_count is None or one.value_count != one.null_count]
    lower, upper = ([getattr(one, side) for one in bounded] for side in ("lower", "upper"))
    known = [None if None in side or not side else side for side in (lower, upper)]
    return (
        None if None in nulls else sum(filter(None, nulls)),
        as_scalar(None if known[0] is None else min(known[0])),
        as_scalar(None if known[1] is None else max(known[1])),
    )


def _point(snapshot: Snapshot, added: _ColumnSums, column: str, *, bounds: bool) -> ColumnPoint:
    rows, columns = added
    nulls, lower, upper = columns[column]
    return ColumnPoint(
        at=snapshot.time,
        null_share=nulls / rows if nulls is not None and rows else None,
        lower=lower if bounds else None,
        upper=upper if bounds else None,
    )


def _history(records: Sequence[CheckRecord], lines: Mapping[str, RunLine]) -> CheckHistory:
    ordered = sorted(records, key=lambda record: (lines[record.run_id].started_at, record.run_id))
    judged = [record for record in ordered if record.verdict != "skipped"]
    passed = [place for place, record in enumerate(judged) if record.verdict == "pass"]
    failing = judged[passed[-1] + 1 :] if passed else judged
    return CheckHistory(
        check=ordered[-1].check,
        severity=ordered[-1].severity,
        failing=tuple(record.failing_rows if record.verdict == "fail" else 0 for record in judged),
        failing_since=lines[failing[0].run_id] if failing else None,
        last_pass=lines[judged[passed[-1]].run_id].started_at if passed else None,
    )
