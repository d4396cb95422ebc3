"""Ingest the new files at some paths, as ``lakegate watch --once`` does: what an orchestrator's schedule starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext

from lakegate.errors import InputError, LakegateError
from lakegate.integrations import leaving_out_secrets
from lakegate.lake import Lake
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, FileLoader, Scan
from lakegate.loading.watch import PollingFeed, Summary, Watch
from lakegate.model.request import IngestOptions
from lakegate.model.run import FileCheckpoint, Run
from lakegate.progress import without_secrets


def ingest_new(
    open_lake: Callable[[], Lake],
    paths: Sequence[str],
    *,
    table: str | None = None,
    routes: Sequence[str] = (),
    options: IngestOptions | None = None,
    settle_s: float = 5.0,
    max_files: int = 100,
    log: Callable[[str], object],
    ingest: Callable[[Lake, str, Sequence[str], IngestOptions], Run] | None = None,
) -> dict[str, int]:
    """Ingest what's new, one chunk of files after another.

    The journal records which files were published, rejected or given up, so calling it again, twice at the same time or
    after a crash is harmless: each file is published once.

    Args:
        table: The table for all files. Pass either this or ``routes``.
        settle_s: Seconds for which a file must stay unchanged before it's ingested.
        max_files: Maximum number of files in a run.
        log: Gets a line about each chunk without a run, and each file without a table.
        ingest: Ingests the files of a chunk, as :meth:`lakegate.intake.Intake.ingest` does, which is the default.

    Returns:
        The number of chunks by outcome: a run's status, or ``failed``.

    Raises:
        InputError: If a path can't be read, or the settings are wrong.
        RetryableError: If the lake stayed unreachable. What's left is found by the next call.
    """
    if (table is None) == (not routes):
        raise InputError("Pass either a table for all files, or routes.")
    observer = _Observer(log)
    with leaving_out_secrets(), ExitStack() as stack:

        def opened() -> Lake:
            return stack.enter_context(open_lake())

        routing = Routes(routes) if table is None else Routes.to(table)
        loader = FileLoader(
            opened(), paths, routing, options=options, settle_s=settle_s, max_files=max_files, ingest=ingest
        )
        watch = Watch(loader, PollingFeed(math.inf), observer, reopen=opened, once=True, settle_s=settle_s)
        summary = watch.run()
        if summary.trouble is not None:
            raise summary.trouble
    return dict(observer.outcomes)


class _Observer:
    """Counts and logs what a watch does."""

    def __init__(self, log: Callable[[str], object]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._log = log

    def scanned(self, found: Scan) -> None:
        for file, why in found.unrouted:
            self._log(f"{file}: {why}")

    def ingested(
        self,
        chunk: Chunk,
        run: Run | None,
        saved: Collection[FileCheckpoint],  # noqa: ARG002 - the watch's
        failure: LakegateError | None,
    ) -> None:
        if run is None and failure is not None:
            self._log(without_secrets(f"{len(chunk.uris)} files for {chunk.table}: {failure.message}"))
        if run is not None or failure is not None:
            self.outcomes["failed" if run is None else run.status] += 1

    def backing_off(self, error: LakegateError, pause_s: float) -> None:
        self._log(without_secrets(f"{error.message} Trying again in {pause_s:.0f} s."))

    def waiting(self, summary: Summary) -> AbstractContextManager[None]:  # noqa: ARG002 - the watch's
        return nullcontext()
