"""One table: its columns, schema changes, snapshots, NULL rates, bounds, check history and files."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any
from urllib.parse import unquote_plus

from lakegate.dashboard.model import (
    Problem,
    ReadModel,
    ResultPage,
    TableFacts,
    lineage_of,
    page_size,
    paginate,
    rows_after,
    searchable,
)
from lakegate.dashboard.overview import TableOverview, table_overview
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.checks import Severity, Verdict
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, CheckRecord, RunLine
from lakegate.model.schema import MASK, Column, ColumnChange, column_changes
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile, Snapshot

Scalar = str | int | float | bool | None
_TRANSFORM_SUFFIX = re.compile(r"_(?:trunc|bucket|year|month|day|hour)(?:_[0-9]+)?$")
"""The suffix that Iceberg appends to a column's name to name a partition field."""
_PARTITION_FOLDER = re.compile(r"/([^/=]+)=[^/]*(?=/)")
"""A partition folder: the field's name and its value."""
_MOST_FILES = 10_000
_MOST_LISTINGS = 8
_MOST_COLUMNS = 200
_MOST_RUNS = 800
_LONGEST_BOUND = 200


class TableDetail(Value):
    """A table at one commit.

    Attributes:
        overview: The table as the home page shows it; ``None`` at another ref or time than ``main`` now.
    """

    table: str
    ref: str
    commit: str
    metadata_location: str
    location: str
    format_version: int
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str]
    facts: TableFacts
    overview: TableOverview | None = None
    problems: tuple[Problem, ...] = ()


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
        nulls: Number of NULLs; ``None`` if a file lacks the count.
        null_share: Share of NULLs, from 0 to 1.
        lower: Lower bound of the values; ``None`` if unknown, like ``upper``. Text may be truncated.
    """

    at: datetime
    rows: int
    nulls: int | None = None
    null_share: float | None = None
    lower: Scalar = None
    upper: Scalar = None


class ColumnHistory(Value):
    """A column over the newest snapshots that added rows, oldest first. Masked columns have no bounds."""

    column: str
    type: str
    masked: bool = False
    points: tuple[ColumnPoint, ...] = ()


class CheckPoint(Value):
    """A check's result in one run."""

    run_id: str
    at: datetime
    verdict: Verdict
    failing_rows: int
    total_rows: int


class CheckHistory(Value):
    """A check over the newest runs of a table, oldest first.

    Attributes:
        failing_since: The run in which it started to fail, without a pass since; ``None`` if it passed last.
        failing_runs: Number of runs since then.
        earlier: Whether it may have started to fail even earlier: it failed in all runs read, and there are older runs.
        last_pass: The newest of the runs that were read in which it passed.
    """

    name: str
    check: str
    severity: Severity
    points: tuple[CheckPoint, ...] = ()
    failing_since: CheckPoint | None = None
    failing_runs: int = 0
    earlier: bool = False
    last_pass: CheckPoint | None = None


class DataFileLine(Value):
    """A data file of a table."""

    path: str
    rows: int
    size_bytes: int
    partition: str


class PartitionLine(Value):
    """A partition of a table; ``partition`` is empty for a table without partitions."""

    partition: str
    rows: int
    files: int
    size_bytes: int


class FilesPage(ResultPage[DataFileLine]):
    """Data files of a table. ``complete`` is false if the table has more files than were read."""

    complete: bool = True


class PartitionsPage(ResultPage[PartitionLine]):
    """Partitions of a table, largest first. ``complete`` is false if the table has more files than were read."""

    complete: bool = True


def get_table(model: ReadModel, table: str, *, ref: str = MAIN, at: str | datetime | None = None) -> TableDetail:
    """Return a table."""
    identifier = TableIdentifier.parse(table)
    commit = model.resolve(ref, at)
    pointer = model.table(identifier, commit)
    found = model.metadata(pointer)
    problems: list[Problem] = []
    about = None
    if ref == MAIN and not at:
        about = table_overview(model, table, problems)
    return TableDetail(
        table=table,
        ref=ref,
        commit=commit.hash,
        metadata_location=found.metadata_location,
        location=found.location,
        format_version=found.format_version,
        columns=found.table_schema.columns,
        partition_by=found.partition_by,
        properties={key: str(value) for key, value in found.properties.items()},
        facts=model.facts(pointer),
        overview=about,
        problems=tuple(problems),
    )


def schema_changes(
    model: ReadModel, table: str, *, ref: str = MAIN, at: str | datetime | None = None
) -> tuple[SchemaLine, ...]:
    """Return how a table's schema evolved, oldest first. Arguments and errors are those of :func:`get_table`."""
    versions = model.reader.schemas(_pointer(model, table, ref, at))
    found = []
    before: Mapping[int, Column] = {}
    for version in versions:
        found.append(
            SchemaLine(
                schema_id=version.schema_id,
                since=version.since,
                run_id=version.run_id,
                columns=len(version.field_ids),
                changes=tuple(column_changes(before, version.by_id)),
            )
        )
        before = version.by_id
    return tuple(found)


def list_snapshots(
    model: ReadModel,
    table: str,
    *,
    ref: str = MAIN,
    at: str | datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> ResultPage[SnapshotLine]:
    """Return a page of the snapshots that led to a table's current state, newest first.

    Expired snapshots aren't among them; :func:`lakegate.dashboard.runs.list_runs` knows older publishes.
    """
    pointer = _pointer(model, table, ref, at)
    newest_first = lineage_of(model.reader.snapshots(pointer), pointer.snapshot_id)[::-1]
    shown, following = paginate(newest_first, cursor, limit)
    items = tuple(_snapshot(one, pointer) for one in shown)
    return ResultPage[SnapshotLine](items=items, next=following, total=len(newest_first))


def column_history(
    model: ReadModel, table: str, *, columns: Sequence[str] = (), limit: int = 20
) -> tuple[ColumnHistory, ...]:
    """Return each column's NULL rate and bounds in the data that the newest snapshots on ``main`` added.

    Args:
        columns: Only these columns. Default: the first 200.

    Returns:
        The columns, in the table's order.
    """
    pointer = _pointer(model, table, MAIN, None)
    wanted = [one for one in model.metadata(pointer).table_schema.columns if not columns or one.name in columns]
    snapshots = lineage_of(model.reader.snapshots(pointer), pointer.snapshot_id)
    adding = [one for one in snapshots if _summary_number(one, "added-records") != 0][-page_size(limit) :]
    found = model.read_each(adding, lambda snapshot: _column_sums(model, pointer, snapshot))
    for one in found:
        if isinstance(one, LakegateError):
            raise one
    pairs = [(one, added) for one, added in zip(adding, found, strict=True) if not isinstance(added, LakegateError)]
    return tuple(
        ColumnHistory(
            column=column.name,
            type=column.type,
            masked=model.is_masked(column.name),
            points=tuple(
                point
                for one, added in pairs
                if (point := _point(one, added, column.name, bounds=not model.is_masked(column.name))) is not None
            ),
        )
        for column in wanted[:_MOST_COLUMNS]
    )


def check_history(model: ReadModel, table: str, *, limit: int = 50) -> tuple[CheckHistory, ...]:
    """Return the results of each check of a table in its newest runs, failing checks first.

    If a check fails in all of them, looks for its first failure further back, in at most 800 runs.
    """
    table, number = searchable(table), page_size(limit)
    while True:
        lines = list(model.journal.pages.newest_of([table], limit=number + 1)[table])
        more, lines = len(lines) > number, lines[:number]
        found = _histories(model, table, lines, limit=limit, more=more)
        if number >= _MOST_RUNS or not any(one.earlier for one in found):
            return tuple(sorted(found, key=lambda one: (one.failing_since is None, one.severity == "warn", one.name)))
        number = min(number * 4, _MOST_RUNS)


def list_data_files(
    model: ReadModel,
    table: str,
    *,
    ref: str = MAIN,
    at: str | datetime | None = None,
    search: str = "",
    limit: int = 50,
    cursor: str | None = None,
) -> FilesPage:
    """Return a page of a table's data files, the largest first. Reads at most 10,000 files.

    Args:
        search: Only files whose path or partition contains this text.
    """
    files, complete = _files(model, _pointer(model, table, ref, at))
    wanted = [one for one in files if search in one.path or search in one.partition] if search else files
    items, following = paginate(wanted, cursor, limit)
    return FilesPage(items=items, next=following, total=len(wanted) if complete else None, complete=complete)


def list_partitions(
    model: ReadModel,
    table: str,
    *,
    ref: str = MAIN,
    at: str | datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> PartitionsPage:
    """Return a page of a table's partitions with their rows, files and bytes. Otherwise as :func:`list_data_files`."""
    files, complete = _files(model, _pointer(model, table, ref, at))
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for file in files:
        known = sums[file.partition]
        known[0], known[1], known[2] = known[0] + file.rows, known[1] + 1, known[2] + file.size_bytes
    lines = [PartitionLine(partition=key, rows=one[0], files=one[1], size_bytes=one[2]) for key, one in sums.items()]
    lines.sort(key=lambda one: (-one.size_bytes, one.partition))
    items, following = paginate(lines, cursor, limit)
    return PartitionsPage(items=items, next=following, total=len(lines), complete=complete)


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


def _pointer(model: ReadModel, table: str, ref: str, at: str | datetime | None) -> TablePointer:
    return model.table(TableIdentifier.parse(table), model.resolve(ref, at))


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


def _column_sums(model: ReadModel, pointer: TablePointer, snapshot: Snapshot) -> _ColumnSums:
    """Return the number of rows that a snapshot added, and the NULLs and bounds of each column."""
    key = (pointer.content_id, snapshot.snapshot_id, pointer.schema_id)
    return model.cached("columns", key, lambda: _sum_columns(model.reader.added_files(pointer, [snapshot.snapshot_id])))


def _sum_columns(added: AddedFiles) -> _ColumnSums:
    columns: dict[str, list[ColumnStatistics]] = defaultdict(list)
    for file in added.files:
        for name, statistics in file.columns.items():
            columns[name].append(statistics)
    return added.rows, {name: _merge_statistics(found) for name, found in columns.items()}


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


def _point(snapshot: Snapshot, added: _ColumnSums, column: str, *, bounds: bool) -> ColumnPoint | None:
    rows, columns = added
    if column not in columns:
        return None
    nulls, lower, upper = columns[column]
    return ColumnPoint(
        at=snapshot.time,
        rows=rows,
        nulls=nulls,
        null_share=nulls / rows if nulls is not None and rows else None,
        lower=lower if bounds else None,
        upper=upper if bounds else None,
    )


def _histories(model: ReadModel, table: str, lines: Sequence[RunLine], *, limit: int, more: bool) -> list[CheckHistory]:
    by_id = {line.run_id: line for line in lines}
    records: dict[str, list[CheckRecord]] = defaultdict(list)
    for record in model.journal.pages.checks(table, list(by_id)):
        records[record.check].append(record)
    return [_history(found, by_id, limit=limit, more=more) for found in records.values()]


def _history(records: Sequence[CheckRecord], lines: Mapping[str, RunLine], *, limit: int, more: bool) -> CheckHistory:
    ordered = sorted(records, key=lambda one: (lines[one.run_id].started_at, one.run_id))
    points = [_check_point(one, lines[one.run_id]) for one in ordered]
    judged = [one for one in points if one.verdict != "skipped"]
    passes = [at for at, one in enumerate(judged) if one.verdict == "pass"]
    failing = judged[passes[-1] + 1 :] if passes else judged
    return CheckHistory(
        name=ordered[-1].name,
        check=ordered[-1].check,
        severity=ordered[-1].severity,
        points=tuple(points[-limit:]),
        failing_since=failing[0] if failing else None,
        failing_runs=len(failing),
        earlier=bool(failing) and not passes and more,
        last_pass=judged[passes[-1]] if passes else None,
    )


def _check_point(record: CheckRecord, line: RunLine) -> CheckPoint:
    return CheckPoint(
        run_id=record.run_id,
        at=line.started_at,
        verdict=record.verdict,
        failing_rows=record.failing_rows,
        total_rows=record.total_rows,
    )


def _files(model: ReadModel, pointer: TablePointer) -> tuple[Sequence[DataFileLine], bool]:
    """Return a table's data files, largest first, and whether they are all of them."""

    def read() -> tuple[Sequence[DataFileLine], bool]:
        found = [_file(model, one) for one in islice(model.reader.files(pointer), _MOST_FILES + 1)]
        complete = len(found) <= _MOST_FILES
        return sorted(found[:_MOST_FILES], key=lambda one: (-one.size_bytes, one.path)), complete

    # Up to 10 MB each, and an open page reads the files of every new state.
    return model.cached("files", pointer, read, most=_MOST_LISTINGS)


def _is_hidden(model: ReadModel, file: DataFile, name: str) -> bool:
    """Return whether the settings hide the values of a partition field."""
    names = (name, _TRANSFORM_SUFFIX.sub("", name), file.partition_sources.get(name, name))
    return model.settings.ui.examples == 0 or any(map(model.is_masked, names))


def _file(model: ReadModel, file: DataFile) -> DataFileLine:
    masked = {name for name in file.partition if _is_hidden(model, file, name)}
    values = {name: MASK if name in masked else as_scalar(value) for name, value in file.partition.items()}
    # Iceberg's writers also put partition names and values into file paths, encoded like form fields.
    path = _PARTITION_FOLDER.sub(
        lambda found: f"/{found[1]}={MASK}" if {found[1], unquote_plus(found[1])} & masked else found[0], file.path
    )
    partition = ", ".join(f"{name}={value}" for name, value in values.items())
    return DataFileLine(path=path, rows=file.rows, size_bytes=file.size_bytes, partition=partition)
