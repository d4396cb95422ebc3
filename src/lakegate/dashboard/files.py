"""Source files: which file went where, when, and by which run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.runs import file_name
from lakegate.dashboard.values import Page, no_cursor, page_size, searchable
from lakegate.model.base import Value
from lakegate.model.journal import FileRecord, RunLine
from lakegate.model.run import RunStatus


class FileLine(Value):
    """A version of a source file that was published, or that a run is ingesting.

    Attributes:
        name: Last part of its path, as people wrote it.
        size_bytes: Length in bytes; ``None`` if the journal only knows it from a commit.
        rows: Number of rows; ``None`` likewise.
        published: Whether its rows are on ``main``.
        status: That run's status; ``None`` if the journal doesn't know it.
        at: When that run ended, or began if it hasn't ended.
    """

    name: str
    uri: str
    version: str
    size_bytes: int | None = None
    rows: int | None = None
    table: str
    published: bool
    run_id: str
    status: RunStatus | None = None
    at: datetime | None = None


def list_files(
    model: ReadModel,
    *,
    search: str = "",
    table: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[FileLine]:
    """Return a page of source files, newest first.

    Args:
        search: Only files whose URI contains this text, in any case. At most a million files are searched; ``next``
            continues there.

    Returns:
        The page. Files of rejected and failed runs aren't in it: :func:`lakegate.dashboard.runs.list_runs` finds them.
    """
    if cursor is not None and not (cursor.isdecimal() and cursor.isascii()):
        raise no_cursor(cursor)
    size, pages = page_size(limit), model.journal.pages
    before = None if cursor is None else int(cursor[:18])
    name, table = searchable(search) or None, None if table is None else searchable(table)
    found, end = pages.files(name=name, table=table, limit=size + 1, before=before)
    shown = found[:size]
    runs = pages.lines({one.run_id for one in shown})
    last = shown[-1].number if len(found) > size else end
    return Page[FileLine](items=tuple(_line(one, runs) for one in shown), next=None if last is None else str(last))


def _line(record: FileRecord, runs: Mapping[str, RunLine]) -> FileLine:
    run = runs.get(record.run_id)
    is_known = bool(record.size_bytes or record.rows)
    return FileLine(
        name=file_name(record.uri),
        uri=record.uri,
        version=record.version,
        size_bytes=record.size_bytes if is_known else None,
        rows=record.rows if is_known else None,
        table=record.table,
        published=record.published,
        run_id=record.run_id,
        status=None if run is None else run.status,
        at=None if run is None else run.finished_at or run.started_at,
    )
