"""Watermarks: which rows of another system's table are left to ingest, so that each row is published once.

A version of such a source is a set of ranges of its watermark column. It's claimed, committed and reverted like the
version of a file, so the commits say which rows were taken. After a revert, its rows are left to ingest again, even if
the journal was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lakegate.errors import InputError
from lakegate.model.batch import KnownFile, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import WriteMode
from lakegate.model.source import Source, WatermarkRanges, allowed_range, kind_of, untaken_ranges
from lakegate.wap.claims import wait_for_file
from lakegate.wap.context import Context
from lakegate.wap.history import sync
from lakegate.wap.recover import recover


def rows_left(
    context: Context,
    table: TableIdentifier,
    source: Source,
    frame: Any,
    *,
    run_id: str,
    mode: WriteMode,
    wait_s: float | None,
) -> tuple[Any, str]:
    """Return the rows of a source that no run has published to ``table``, and their version.

    The highest mark is fixed before any row is read, so rows that arrive meanwhile are left to the next run.

    Args:
        wait_s: Seconds to wait for another run that is taking rows of the source; ``None`` for a plan, which neither
            waits nor settles the runs of dead processes.

    Raises:
        InputError: When there's no such column, it can't be a watermark, or earlier runs took rows in another way.
        RetryableError: When another run took longer than ``wait_s``.
    """
    column = source.watermark or ""
    if mode.needs_all_files:
        raise InputError(
            f"Mode {mode.name} would replace the rows that earlier runs took by watermark.",
            hint="Use --mode append or upsert. Or leave out --watermark to take all rows each time.",
        )
    file = SourceFile(uri=source.uri, size_bytes=0, version="", rows=0)
    if wait_s is not None:
        recover(context)
    sync(context, "main")
    if wait_s is not None:
        _wait(context, str(table), file, run_id, wait_s)

    def within(spark_type: str) -> str | None:
        kind = kind_of(spark_type, column)
        limit = allowed_range(column, kind, until=source.until, now=datetime.now(UTC))
        return None if limit is None else limit.where(spark_type)

    spark_type, highest = context.engine().highest_watermark(frame, column, within)
    kind = kind_of(spark_type, column)
    published = context.journal.earlier(str(table), [file])
    taken = untaken_ranges(column, kind, highest, _taken_ranges(table, published, column, kind))
    return (frame.where("false"), "") if taken is None else (frame.where(taken.where(spark_type)), taken.version)


def _taken_ranges(
    table: TableIdentifier, published: Sequence[KnownFile], column: str, kind: str
) -> Sequence[WatermarkRanges]:
    """Return the ranges that were taken; all must be of the same watermark column."""
    found = []
    for one in published:
        ranges = WatermarkRanges.parse(one.file.version)
        if ranges is None or not ranges.is_like(column, kind):
            how = "as a whole" if ranges is None else f"by {ranges.column} ({ranges.kind})"
            raise InputError(
                f"Run {one.run_id} took rows of {one.file.uri} for {table} {how}, not by {column} ({kind}), so "
                "lakegate can't tell which rows are left.",
                hint=f"Use the same watermark as that run. Or revert it and start over: lakegate revert {one.run_id}",
                table=str(table),
                other_run_id=one.run_id,
            )
        found.append(ranges)
    return found


def _wait(context: Context, table: str, file: SourceFile, run_id: str, wait_s: float) -> None:
    """Wait until no other run is taking rows of the source: only then is it known which rows are left."""

    def other() -> KnownFile | None:
        return next((one for one in context.journal.known(table, [file]).busy if one.run_id != run_id), None)

    busy = other()
    if busy is not None:
        wait_for_file(context, table, busy, other, wait_s=wait_s)
