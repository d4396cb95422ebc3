"""Watching a bucket of a million keys: what the last look costs against the first, and how often S3 is asked."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from unittest import mock

from benchmarks.harness import Figure, progress
from benchmarks.listing import CREDENTIALS, STORAGE, Pages
from lakegate.lake import Lake
from lakegate.loading.routes import Routes
from lakegate.loading.scan import FileLoader
from lakegate.model.request import WriteMode
from lakegate.model.run import FileCheckpoint, Run
from lakegate.sources.discovery import FoundFile, list_files
from lakegate.storage.s3 import s3_client

_KEYS = 1_000_000
_FILES_IN_A_CHUNK = 100  # ten chunks a look
_COMPARED = 50


class _Lake:
    """Publishes at once whatever it is given, and forgets it; what is listed goes through the client for S3."""

    def mode_of(self, *_: object, **__: object) -> WriteMode:
        return WriteMode()

    def list_files(self, paths: Sequence[str], **_: object) -> Iterator[FoundFile]:
        return list_files(paths, storage=STORAGE)

    def file_checkpoints(self, *_: object) -> Mapping[str, FileCheckpoint]:
        return {}

    def save_file_checkpoints(self, *_: object) -> None:
        pass

    def ingest(self, table: str, *_: object, **__: Any) -> Run:
        now = datetime.now(UTC)
        return Run(run_id="r", tables=(table,), branch="", status="published", started_at=now, finished_at=now)


def measure() -> Iterator[Figure]:
    """Yield the ratio of the looks at the end to those at the beginning."""
    with mock.patch.dict(os.environ, CREDENTIALS):
        events = s3_client(STORAGE.s3).meta.events
        pages = Pages(_KEYS)
        events.register("before-send.s3.ListObjectsV2", pages.answer)
        try:
            seconds, files = _watched()
        finally:
            events.unregister("before-send.s3.ListObjectsV2", pages.answer)
    first, last = (statistics.median(part) for part in (seconds[1 : _COMPARED + 1], seconds[-_COMPARED - 1 : -1]))
    assert files == _KEYS
    detail = f"{last * 1e3:.0f} ms / {first * 1e3:.0f} ms; {len(seconds):,} looks, {pages.answered:,} LIST calls"
    yield Figure("watch of 1M keys, last looks / first", last / first, 1.2, detail)


def _watched() -> tuple[Sequence[float], int]:
    """Take everything in; return how long each look took, and how many files there were."""
    loader = FileLoader(
        cast("Lake", _Lake()), ["s3://landing/in/"], Routes.to("n.t"), settle_s=0.0, max_files=_FILES_IN_A_CHUNK
    )
    seconds: list[float] = []
    files = 0
    more = True
    while more:
        began = time.perf_counter()
        found = loader.scan()
        seconds.append(time.perf_counter() - began)
        for chunk in found.chunks:
            files += len(chunk.uris)
            loader.ingest(chunk)
        more = found.more
        if len(seconds) % 200 == 0:
            progress(f"{files:,} files")
    return seconds, files
