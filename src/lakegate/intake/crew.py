"""The threads that work off a backfill's plan, each with a lake of its own.

One lake is not for several threads: it makes its parts when they are first asked for, and interrupting its engine
interrupts all that runs in it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from lakegate.errors import (
    CatalogUnavailableError,
    EngineUnavailableError,
    LakegateError,
    LocalStackError,
    OutcomeUnknownError,
    RetryableError,
    StorageUnavailableError,
)
from lakegate.intake.backfill_plan import BackfillChunk, BackfillPlan
from lakegate.intake.backfill_report import BackfillReport, ChunkResult, Outcome, Watcher
from lakegate.model.run import RunError

if TYPE_CHECKING:
    from lakegate.lake import Lake

_AWAY = frozenset(
    error.code for error in (CatalogUnavailableError, EngineUnavailableError, LocalStackError, StorageUnavailableError)
)
_AWAY_ENOUGH = 3
_LOOK_S = 0.5
"""A signal that comes just before a thread begins to wait for a lock does not end that wait (CPython's locks)."""


class Crew:
    """Works off a plan, once.

    Args:
        factory: Opens a lake.
        ingest: Ingests a chunk.
        plan: The plan.
        stop_on_failure: Begin no more chunks after one that was not published.
        watcher: Who is told how it goes.
    """

    def __init__(
        self,
        factory: Callable[[], Lake],
        ingest: Callable[[Lake, BackfillChunk], ChunkResult],
        plan: BackfillPlan,
        *,
        stop_on_failure: bool,
        watcher: Watcher | None,
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
        self._away = 0
        self._stopped = False
        self._changed = threading.Condition()

    def work(self, parallel: int) -> BackfillReport:
        """Work off the plan, ``parallel`` chunks at a time."""
        began = time.monotonic()
        interrupted = given_up = False
        pool = ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="lakegate-backfill")
        workers: Sequence[Future[None]] = ()
        try:
            workers = [pool.submit(self._drain) for _ in range(min(parallel, len(self._waiting)))]
            _wait(workers)
        except KeyboardInterrupt:
            interrupted = True
            given_up = not self._finishes(workers)
        pool.shutdown(wait=False)
        for worker in workers:
            if worker.done():
                worker.result()
        with self._changed:
            results = tuple(self._results.get(at) or _untouched(chunk) for at, chunk in enumerate(self._plan.chunks))
        return BackfillReport(
            table=self._plan.table,
            results=results,
            seconds=time.monotonic() - began,
            interrupted=interrupted,
            given_up=given_up,
        )

    def _finishes(self, workers: Sequence[Future[None]]) -> bool:
        """Begin no more chunks, and wait for those under way; ``False`` when interrupted again meanwhile."""
        try:
            with self._changed:
                self._stop()
                if self._watcher is not None:
                    self._watcher.stopping(self._under_way)
                # Not by the workers alone: the interrupt may have come while they were begun.
                while self._under_way:
                    self._changed.wait(_LOOK_S)
            _wait(workers)
        except KeyboardInterrupt:
            return False
        return True

    def _drain(self) -> None:
        lake = _OwnLake(self._factory)
        try:
            while (taken := self._next()) is not None:
                at, chunk = taken
                self._note(at, self._attempt(lake, chunk))
        finally:
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

    def _attempt(self, lake: _OwnLake, chunk: BackfillChunk) -> ChunkResult:
        began = time.monotonic()
        try:
            return self._ingest(lake.open(), chunk)
        except LakegateError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - what is wrong with one chunk is kept from the others
            problem = LakegateError(f"Internal error: {error!r}")
        # A fresh one finds servers that were started again.
        lake.close()
        run_id = problem.context.get("run_id")
        return ChunkResult(
            chunk=chunk.name,
            outcome="later" if isinstance(problem, (RetryableError, OutcomeUnknownError)) else "failed",
            run_id=None if run_id is None else str(run_id),
            given=len(chunk.to_do),
            size_bytes=chunk.size_bytes,
            seconds=time.monotonic() - began,
            error=RunError.model_validate(problem.to_dict()),
        )

    def _note(self, at: int, result: ChunkResult) -> None:
        with self._changed:
            self._results[at] = result
            self._under_way -= 1
            self._creates = self._creates and result.outcome != "published"
            is_away = result.error is not None and result.error.code in _AWAY
            self._away = self._away + 1 if is_away else 0
            failed = result.outcome in ("rejected", "failed", "later")
            if self._away >= _AWAY_ENOUGH or (failed and self._stop_on_failure):
                self._stop()
            if self._watcher is not None:
                self._watcher.ended(result)
            self._changed.notify_all()

    def _stop(self) -> None:
        self._stopped = True
        self._changed.notify_all()


class _OwnLake:
    """The lake of one thread, opened when it is needed."""

    def __init__(self, factory: Callable[[], Lake]) -> None:
        self._factory = factory
        self._lake: Lake | None = None

    def open(self) -> Lake:
        if self._lake is None:
            self._lake = self._factory()
        return self._lake

    def close(self) -> None:
        lake, self._lake = self._lake, None
        if lake is not None:
            lake.close()


def _wait(workers: Sequence[Future[None]]) -> None:
    while wait(workers, _LOOK_S).not_done:
        pass


def _untouched(chunk: BackfillChunk) -> ChunkResult:
    outcome: Outcome = "waiting" if chunk.to_do else "already"
    return ChunkResult(
        chunk=chunk.name, outcome=outcome, given=len(chunk.files), size_bytes=sum(f.size_bytes for f in chunk.files)
    )
