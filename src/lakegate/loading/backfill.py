"""Backfill: ingest historical files chunk by chunk, several at once. Running it again resumes it.

Each chunk is a plain ingest. Its run id isn't derived from table and period: ingesting under a finished run's id only
returns that run, so a chunk that got more files, was rejected or was reverted would never be ingested again. A second
backfill resumes the first, because each version of a file is published to a table only once. Each worker thread opens
its own lake: a lake isn't thread-safe, and interrupting its engine interrupts everything that runs in it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from lakegate.errors import (
    CatalogUnavailableError,
    EngineUnavailableError,
    InputError,
    LakegateError,
    LocalStackError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
    StorageUnavailableError,
    internal_error,
)
from lakegate.loading.backfill_plan import (
    BackfillChunk,
    BackfillObserver,
    BackfillPlan,
    BackfillReport,
    Chunking,
    ChunkResult,
    DatedBy,
    Outcome,
    find_files,
    finest_unit,
    make_chunks,
    parse_chunking,
)
from lakegate.loading.file_outcomes import has_published
from lakegate.loading.periods import parse_range
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run, RunError

if TYPE_CHECKING:
    from lakegate.lake import Lake

_UNREACHABLE = frozenset(
    error.code for error in (CatalogUnavailableError, EngineUnavailableError, LocalStackError, StorageUnavailableError)
)
_MAX_UNREACHABLE = 3
_POLL_S = 0.5
"""Waits are this short because CPython can miss a signal that arrives just before a wait on a lock begins."""


class WorkerPool:
    """Runs a plan once, with several workers.

    Args:
        stop_on_failure: Start no more chunks after one that isn't published, or only in part.
    """

    def __init__(
        self,
        factory: Callable[[], Lake],
        ingest: Callable[[Lake, BackfillChunk], ChunkResult],
        plan: BackfillPlan,
        *,
        stop_on_failure: bool,
        watcher: BackfillObserver | None,
    ) -> None:
        self._factory = factory
        self._ingest = ingest
        self._plan = plan
        self._stop_on_failure = stop_on_failure
        self._watcher = watcher
        self._waiting = deque((at, chunk) for at, chunk in enumerate(plan.chunks) if chunk.to_do)
        self._results: dict[int, ChunkResult] = {}
        self._creates = plan.creates
        self._under_way = 0
        self._unreachable = 0
        self._stopped = False
        self._changed = threading.Condition()

    def run(self, parallel: int) -> BackfillReport:
        """Run the plan, ``parallel`` chunks at a time."""
        began = time.monotonic()
        interrupted = given_up = False
        pool = ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="lakegate-backfill")
        workers: Sequence[Future[None]] = ()
        try:
            workers = [pool.submit(self._work) for _ in range(min(parallel, len(self._waiting)))]
            _wait(workers)
        except KeyboardInterrupt:
            interrupted = True
            given_up = not self._finish_running(workers)
        pool.shutdown(wait=False)
        for worker in workers:
            if worker.done():
                worker.result()
        with self._changed:
            results = tuple(self._results.get(at) or _not_run(chunk) for at, chunk in enumerate(self._plan.chunks))
        return BackfillReport(
            table=self._plan.table,
            results=results,
            seconds=time.monotonic() - began,
            interrupted=interrupted,
            given_up=given_up,
        )

    def _finish_running(self, workers: Sequence[Future[None]]) -> bool:
        """Start no more chunks and wait for the running ones; ``False`` if interrupted again."""
        try:
            with self._changed:
                self._stop()
                if self._watcher is not None:
                    self._watcher.stopping(self._under_way)
                # ``workers`` may be incomplete: the interrupt may have come while they were being submitted.
                while self._under_way:
                    self._changed.wait(_POLL_S)
            _wait(workers)
        except KeyboardInterrupt:
            return False
        return True

    def _work(self) -> None:
        lake: Lake | None = None
        try:
            while (taken := self._next()) is not None:
                at, chunk = taken
                began = time.monotonic()
                try:
                    lake = lake or self._factory()
                    result = self._ingest(lake, chunk)
                except Exception as error:  # noqa: BLE001 - one chunk's problem must not affect the others
                    # The next chunk opens a new lake, which finds restarted servers.
                    if lake is not None:
                        lake.close()
                        lake = None
                    result = _failure(chunk, error, time.monotonic() - began)
                self._record(at, result)
        finally:
            if lake is not None:
                lake.close()

    def _next(self) -> tuple[int, BackfillChunk] | None:
        with self._changed:
            while self._creates and self._under_way and not self._stopped:
                self._changed.wait()
            if self._stopped or not self._waiting:
                return None
            at, chunk = self._waiting[0]
            if self._watcher is not None:
                self._watcher.began(chunk)
            self._waiting.popleft()
            self._under_way += 1
            return at, chunk

    def _record(self, at: int, result: ChunkResult) -> None:
        with self._changed:
            self._results[at] = result
            self._under_way -= 1
            self._creates = self._creates and result.outcome != "published"
            is_unreachable = result.error is not None and result.error.code in _UNREACHABLE
            self._unreachable = self._unreachable + 1 if is_unreachable else 0
            failed = result.outcome in ("rejected", "failed", "later") or result.left > 0
            if self._unreachable >= _MAX_UNREACHABLE or (failed and self._stop_on_failure):
                self._stop()
            self._changed.notify_all()  # before the watcher, which may raise
            if self._watcher is not None:
                self._watcher.ended(result)

    def _stop(self) -> None:
        self._stopped = True
        self._changed.notify_all()


def _failure(chunk: BackfillChunk, error: Exception, seconds: float) -> ChunkResult:
    problem = error if isinstance(error, LakegateError) else internal_error(error)
    run_id = problem.context.get("run_id")
    return ChunkResult(
        chunk=chunk.name,
        outcome="later" if isinstance(error, (RetryableError, OutcomeUnknownError)) else "failed",
        run_id=None if run_id is None else str(run_id),
        given=len(chunk.to_do),
        size_bytes=chunk.size_bytes,
        seconds=seconds,
        error=RunError.model_validate(problem.to_dict()),
    )


def _wait(workers: Sequence[Future[None]]) -> None:
    while wait(workers, _POLL_S).not_done:
        pass


def _not_run(chunk: BackfillChunk) -> ChunkResult:
    outcome: Outcome = "waiting" if chunk.to_do else "already"
    return ChunkResult(
        chunk=chunk.name, outcome=outcome, given=len(chunk.files), size_bytes=sum(f.size_bytes for f in chunk.files)
    )


class Backfill:
    """A backfill of one table: plan it, run one chunk, or run all of them.

    Args:
        lake_factory: Opens a lake; each worker thread gets its own.
        table: ``namespace.table``. The first chunk creates it if it doesn't exist.
        paths: Files, folders and globs, with date fields, such as ``trips/%Y/%m/green_%Y-%m-%d*.parquet``
            (:class:`~lakegate.loading.periods.Template`).
        since: Start of the range: a date, month or time; open if ``None``.
        until: End of the range, inclusive; open if ``None``.
        by: Where a file's time comes from: the date fields in its path, or its modification time.
        chunk: Chunk size: ``hour``, ``day``, ``month``, ``year``, ``file`` or a number of files. By default the finest
            unit of the dates in the files' paths.
        options: How to ingest; ``run_id`` and ``on_busy`` are set for each chunk.

    Raises:
        InputError: If the table's name, ``since``, ``until`` or ``chunk`` is invalid.

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
        self._options = replace(options or IngestOptions(), on_busy="skip")

    def plan(self) -> BackfillPlan:
        """Return the chunks, oldest first, with what's already published. Changes nothing.

        Raises:
            InputError: If the range has no files, or a file's time is unknown.
            RetryableError: If the catalog or journal is unreachable.
        """
        with self._factory() as lake:
            listed = partial(lake.files.list, format=self._options.format)
            files = find_files(listed, self._paths, self._wanted, by=self._by)
            known = lake.files.known(self._table, [one.file.uri for one in files])
            creates = False
            try:
                lake.table(self._table)
            except NotFoundError:
                creates = True
            mode = lake.intake.mode_of(self._table, self._options)
        if mode.name == "overwrite":
            raise InputError(
                f"Can't backfill {self._table} with mode overwrite: each chunk would replace the rows of earlier ones.",
                hint="Use --mode append, upsert or replace-partitions, or one 'lakegate ingest --mode overwrite'.",
                table=self._table,
            )
        default = "day" if self._by == "modified" else finest_unit(files)
        chunks = make_chunks(
            self._table,
            files,
            self._chunking or default,
            known if mode.appends else known.with_changed_back(),
            whole=mode.needs_all_files,
        )
        return BackfillPlan(
            table=self._table,
            since=self._wanted.start,
            until=self._wanted.end,
            creates=creates,
            chunks=chunks,
            beyond=sum(not self._wanted.covers(one.period) for one in files),
            in_order=not mode.appends,
        )

    def find_problems(self, plan: BackfillPlan) -> Mapping[str, InputError]:
        """Return the errors that would stop chunks before they write anything. Changes nothing.

        Returns:
            By chunk name, what's wrong with its files or checks, and how they differ from an existing table. Chunks
            that could be written are left out.

        Raises:
            RetryableError: If the catalog, the journal or the engine is unreachable.
        """
        problems: dict[str, InputError] = {}
        with self._factory() as lake:
            for chunk in plan.to_do:
                try:
                    lake.intake.plan(chunk.table, [file.uri for file in chunk.to_do], self._options)
                except InputError as error:
                    problems[chunk.name] = error
        return problems

    def run(self, chunk: BackfillChunk, *, run_id: str | None = None) -> ChunkResult:
        """Ingest one chunk with its own lake, for orchestrators that schedule chunks themselves.

        Args:
            chunk: A chunk of :meth:`plan`, or one loaded from its JSON.
            run_id: Id for the run. Another call with the same id resumes that run.

        Returns:
            The result, with outcome ``published``, ``already``, ``empty``, ``rejected``, ``failed`` or ``later``.
        """
        with self._factory() as lake:
            return self._ingest(lake, chunk, run_id)

    def run_all(
        self,
        plan: BackfillPlan,
        *,
        parallel: int = 4,
        stop_on_failure: bool = False,
        watcher: BackfillObserver | None = None,
    ) -> BackfillReport:
        """Ingest every unpublished chunk of the plan, oldest first, several at a time.

        A failed chunk doesn't stop the others. If the catalog or engine stays unreachable, no more are started.
        The first chunk of a new table runs alone, since it decides the table's columns. Ctrl-C lets running chunks
        finish; a second Ctrl-C leaves them to the next command, which finishes or undoes them. If the mode lets a
        chunk change rows of earlier ones, chunks run one at a time, and the first that isn't published stops the rest;
        so does one without files that other runs hold.

        Args:
            stop_on_failure: Start no more chunks after one that isn't published, or only in part.
        """
        stop = stop_on_failure or plan.in_order
        pool = WorkerPool(self._factory, self._ingest, plan, stop_on_failure=stop, watcher=watcher)
        return pool.run(1 if plan.in_order else parallel)

    def _ingest(self, lake: Lake, chunk: BackfillChunk, run_id: str | None = None) -> ChunkResult:
        began = time.monotonic()
        files = chunk.to_do
        if not files:
            return ChunkResult(chunk=chunk.name, outcome="already")
        options = replace(self._options, run_id=run_id)
        run = lake.intake.ingest(chunk.table, [file.uri for file in files], options)
        return _result(lake, chunk, run, time.monotonic() - began)


def _result(lake: Lake, chunk: BackfillChunk, run: Run, seconds: float) -> ChunkResult:
    left = sum(not has_published(lake, known.run_id) for known in run.skipped_files)
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
        failed_checks=tuple(failure.name for failure in run.failures),
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
