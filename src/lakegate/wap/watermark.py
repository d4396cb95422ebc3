"""Watermarks: which rows of another system's table are left to take, so that each is published once.

A version of such a source is a set of ranges of its marks. It's claimed, committed and reverted like a file's version,
so what was taken is what commits say: after a revert, its rows are left again, and no journal is needed to know that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from lakegate.errors import InputError
from lakegate.model.batch import KnownFile, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import WriteMode
from lakegate.model.source import MarkRanges, Source, highest_to_take, kind_of, to_take
from lakegate.wap.claims import wait_for
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
    """Return the rows of a source that no run has published to ``table``, and the version that they are.

    Their highest mark is fixed before any is read: rows that come meanwhile are left to the next run.

    Args:
        wait_s: Seconds to wait for another run that is taking rows of it; ``None`` to look only, for a plan: that
            neither waits nor settles the runs of dead processes.

    Raises:
        InputError: When there's no such column, it can't be a watermark, or runs took rows otherwise.
        RetryableError: When another run took longer than ``wait_s``.
    """
    column = source.watermark or ""
    if mode.needs_all_files:
        raise InputError(
            f"Mode {mode.name} would replace rows that a watermark has taken before.",
            hint="Use --mode append or upsert; or leave out --watermark, to take all rows each time.",
        )
    file = SourceFile(uri=source.uri, size_bytes=0, version="", rows=0)
    if wait_s is not None:
        recover(context)
    sync(context, "main")
    if wait_s is not None:
        _wait(context, str(table), file, run_id, wait_s)

    def within(spark_type: str) -> str | None:
        kind = kind_of(spark_type, column)
        limit = highest_to_take(column, kind, until=source.until, now=datetime.now(UTC))
        return None if limit is None else limit.where(spark_type)

    spark_type, highest = context.engine().highest_mark(frame, column, within)
    kind = kind_of(spark_type, column)
    published = context.journal.earlier(str(table), [file])
    taken = to_take(column, kind, highest, _like(table, published, column, kind))
    return (frame.where("false"), "") if taken is None else (frame.where(taken.where(spark_type)), taken.version)


def _like(table: TableIdentifier, published: Sequence[KnownFile], column: str, kind: str) -> Sequence[MarkRanges]:
    """Return what was taken, which must be by the same marks."""
    found = []
    for one in published:
        ranges = MarkRanges.parse(one.file.version)
        if ranges is None or not ranges.is_like(column, kind):
            how = "as a whole" if ranges is None else f"by {ranges.column} ({ranges.kind})"
            raise InputError(
                f"Run {one.run_id} took rows of {one.file.uri} for {table} {how}, not by {column} ({kind}), so "
                "lakegate can't tell which are left.",
                hint=f"Continue as that run did; or revert it, and start over: lakegate revert {one.run_id}",
                table=str(table),
                other_run_id=one.run_id,
            )
        found.append(ranges)
    return found


def _wait(context: Context, table: str, file: SourceFile, run_id: str, wait_s: float) -> None:
    """Wait until no other run is taking rows of it: only then is it known which are left."""

    def other() -> KnownFile | None:
        return next((one for one in context.journal.known(table, [file]).busy if one.run_id != run_id), None)

    busy = other()
    if busy is not None:
        wait_for(context, table, busy, other, wait_s=wait_s)
