"""Backfill: historical files, chunk by chunk, some at a time, gone on with by calling it again.

Chunks are plain ingests with run ids of their own, not ones derived from table and period. What makes a second backfill
go on where the first one stopped is that a file's content is published to a table once. An id that is derived could not
do better, and would do worse: a run of that id is found as it ended, so that a chunk which got more files since, was
rejected, or was reverted would never be ingested again. A run whose process died is finished or undone by the next
ingest, whatever its id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from lakegate.errors import NotFoundError
from lakegate.intake.backfill_plan import (
    BackfillChunk,
    BackfillPlan,
    Chunking,
    DatedBy,
    find_files,
    finest_unit,
    make_plan,
    parse_chunking,
)
from lakegate.intake.backfill_report import BackfillReport, ChunkResult, Outcome, Watcher
from lakegate.intake.crew import Crew
from lakegate.intake.periods import parse_range
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.lake.writing import IngestOptions


class Backfill:
    """A backfill of one table: what it would do, one chunk of it, or all of it.

    Args:
        lake_factory: Opens a lake; each thread that works gets one of its own.
        table: ``namespace.table``; created by its first chunk when it does not exist.
        paths: Files, folders, globs; also with a date in them, ``trips/%Y/%m/green_%Y-%m-%d*.parquet``
            (:class:`~lakegate.intake.templates.Template`).
        since: Date, month or time from which on files are wanted; all when ``None``.
        until: Likewise; it is in the range, to its end.
        by: What tells which time a file is about: a date in its path, or the time of its last change.
        chunk: What is ingested together: ``hour``, ``day``, ``month``, ``year``, ``file`` or a number of files; by
            default the finest unit in which the files tell their time.
        options: How to ingest, as for :meth:`lakegate.lake.Lake.ingest`; run ids and ``on_busy`` are
            set for each chunk.

    Raises:
        InputError: When the table's name, ``since``, ``until`` or ``chunk`` cannot be read.

    Example:
        .. code-block:: python

            backfill = Backfill(lakegate.connect, "nyc.trips", ["trips/%Y-%m-%d.parquet"], "2024-01", "2024-03")
            for chunk in backfill.plan().to_do:
                print(chunk.name, backfill.run(chunk).outcome)
    """

    def __init__(
        self,
        lake_factory: Callable[[], Lake],
        table: str,
        paths: Sequence[str],
        since: str | date | None = None,
        until: str | date | None = None,
        *,
        by: DatedBy = "path",
        chunk: str | None = None,
        options: IngestOptions | None = None,
    ) -> None:
        self._factory = lake_factory
        self._table = str(TableIdentifier.parse(table))
        self._paths = tuple(map(str, paths))
        self._wanted = parse_range(since, until)
        self._by = by
        self._chunking: Chunking | None = None if chunk is None else parse_chunking(chunk)
        self._options: IngestOptions = {**(options or {}), "on_busy": "skip"}

    def plan(self) -> BackfillPlan:
        """Return the chunks, oldest first, and what is published of them. Changes nothing.

        Raises:
            InputError: When no file of the range is there, or it cannot be told what time one is about.
            RetryableError: When catalog or journal are away.
        """
        with self._factory() as lake:
            listed = partial(lake.list_files, format=self._options.get("format"))
            files = find_files(listed, self._paths, self._wanted, by=self._by)
            known = lake.known_files(self._table, [one.file.uri for one in files])
            creates = not _exists(lake, self._table)
        default = "day" if self._by == "modified" else finest_unit(files)
        return make_plan(self._table, files, self._wanted, self._chunking or default, known, creates=creates)

    def run(self, chunk: BackfillChunk, *, run_id: str | None = None) -> ChunkResult:
        """Ingest one chunk of the plan, with a lake of its own; for orchestrators, which sequence chunks themselves.

        Args:
            chunk: Of :meth:`plan`; it may have been through JSON.
            run_id: Id of its run, if the orchestrator has one: calling it again then goes on with that run.

        Returns:
            Its result: ``published``, ``already``, ``empty``, ``rejected`` or ``later``.

        Raises:
            LakegateError: As :meth:`lakegate.lake.Lake.ingest`.
        """
        with self._factory() as lake:
            return self._ingest(lake, chunk, run_id)

    def run_all(
        self,
        plan: BackfillPlan,
        *,
        parallel: int = 4,
        stop_on_failure: bool = False,
        watcher: Watcher | None = None,
    ) -> BackfillReport:
        """Ingest all chunks of the plan that are not published, oldest first, some at a time.

        A chunk that fails stops no other one; when catalog or engine are gone for good, no more are begun. The first
        chunk of a table that does not exist goes alone: it settles the table's columns. On Ctrl-C what is under way is
        finished; on a second one it is left to the next command, which finishes or undoes it.

        Args:
            plan: Of :meth:`plan`.
            parallel: How many chunks at a time.
            stop_on_failure: Begin no more chunks after one that was not published.
            watcher: Who is told how it goes.
        """
        crew = Crew(self._factory, self._ingest, plan, stop_on_failure=stop_on_failure, watcher=watcher)
        return crew.work(parallel)

    def _ingest(self, lake: Lake, chunk: BackfillChunk, run_id: str | None = None) -> ChunkResult:
        began = time.monotonic()
        files = chunk.to_do
        if not files:
            return ChunkResult(chunk=chunk.name, outcome="already")
        options: IngestOptions = {**self._options, "run_id": run_id}
        run = lake.ingest(chunk.table, [file.uri for file in files], **options)
        return _result(lake, chunk, run, time.monotonic() - began)


def _exists(lake: Lake, table: str) -> bool:
    try:
        lake.table(table)
    except NotFoundError:
        return False
    return True


def _result(lake: Lake, chunk: BackfillChunk, run: Run, seconds: float) -> ChunkResult:
    left = sum(not _is_published(lake, known.run_id) for known in run.skipped_files)
    given = len(chunk.to_do)
    return ChunkResult(
        chunk=chunk.name,
        outcome=_outcome(run, left),
        run_id=run.run_id,
        given=given,
        files=0 if run.publication is None else given - len(run.skipped_files),
        rows=0 if run.publication is None else run.publication.rows,
        size_bytes=chunk.size_bytes,
        left=left,
        seconds=seconds,
        branch=run.branch if run.branch_kept else None,
        failed_checks=tuple(failure.check for failure in run.failures),
        error=run.error,
    )


def _outcome(run: Run, left: int) -> Outcome:
    if run.status == "published":
        return "published"
    if run.status == "rejected":
        return "rejected"
    if run.status != "skipped":
        return "failed"
    if left:
        return "later"
    return "already" if run.skipped_files else "empty"


def _is_published(lake: Lake, run_id: str) -> bool:
    try:
        return lake.run(run_id).status in ("published", "reverted")
    except NotFoundError:
        # A journal that was lost knows files from the history of main, whose runs were published.
        return True
