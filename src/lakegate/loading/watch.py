"""Watch: feeds that name new files, and the loop that ingests them until it's stopped.

To read notifications from a queue (SQS, Pub/Sub, Kafka), write a class with the methods of :class:`Feed`: it waits
for messages, returns the URIs they name, and deletes a message once its file is acknowledged. Every feed also
requests a full scan from time to time, which finds files whose notifications got lost.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from lakegate.errors import ExitCode, LakegateError, OutcomeUnknownError, RetryableError, SourceError
from lakegate.lake import Lake
from lakegate.loading.scan import Chunk, FileLoader, Scan
from lakegate.model.run import FileCheckpoint, Run
from lakegate.sources.files import to_uri

if TYPE_CHECKING:
    from watchfiles import Change

EVERYTHING = None
"""Requests a full scan."""
_MAX_NAMED = 10_000
_DEBOUNCE_MS = 400
_READ_MS = 200


class Feed(Protocol):
    """Decides when to scan, and what."""

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for a reason to scan, for ``timeout_s`` seconds at most.

        Returns:
            The changed URIs, empty after a timeout; ``None`` to scan everything.
        """

    def acknowledge(self, uris: Collection[str]) -> None:
        """Mark files that :meth:`wait` named as finished. Until then it may name them again."""

    def wake(self) -> None:
        """End a wait at once. May be called by a signal handler."""

    def close(self) -> None:
        """Release all resources. Idempotent."""


class PollingFeed:
    """Requests a full scan at intervals."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next_scan_at = time.monotonic() + every_s
        # SimpleQueue.put is reentrant: a signal handler may call it while this same thread waits in get.
        self._wakeups: SimpleQueue[None] = SimpleQueue()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for the next full scan, for ``timeout_s`` seconds at most."""
        left_s = max(self._next_scan_at - time.monotonic(), 0.0)
        self._pause(left_s if timeout_s is None else min(left_s, timeout_s))
        if time.monotonic() < self._next_scan_at:
            return ()
        self._next_scan_at = time.monotonic() + self._every_s
        return EVERYTHING

    def acknowledge(self, uris: Collection[str]) -> None:
        """Do nothing: polling never names single files."""

    def wake(self) -> None:
        """End a wait."""
        self._wakeups.put(None)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def _pause(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until woken; return whether it was woken."""
        try:
            self._wakeups.get(timeout=seconds)
        except Empty:
            return False
        return True


class EventFeed(PollingFeed):
    """Names files in local folders from file system events, and requests a full scan at intervals.

    The full scans cover lost events: too many at once, network file systems, new and replaced folders.

    Args:
        folders: Returns the folders that exist now; called before each full scan.
        every_s: Seconds from one full scan to the next.
    """

    def __init__(self, folders: Callable[[], Sequence[str]], every_s: float) -> None:
        super().__init__(every_s)
        self._folders = folders
        self._named: set[str] = set()
        # It collects changes between two reads, too.
        self._changes: Generator[set[tuple[Change, str]], None, None] | None = None
        self._watch_folders()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for events or the next full scan."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while len(self._named) <= _MAX_NAMED and (now := time.monotonic()) < self._next_scan_at:
            self._read_changes()
            woken = self._pause(0.0 if self._changes is not None else max(min(self._next_scan_at, deadline) - now, 0.0))
            if self._named or woken or time.monotonic() >= deadline:
                named, self._named = self._named, set()
                return named
        self._watch_folders()  # before the scan, which finds what was there already
        self._named = set()
        self._next_scan_at = time.monotonic() + self._every_s
        return EVERYTHING

    def close(self) -> None:
        """Stop watching."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def _watch_folders(self) -> None:
        """Watch the folders that exist now."""
        from watchfiles import watch

        self.close()
        if folders := self._folders():
            self._changes = watch(
                *folders,
                watch_filter=None,
                rust_timeout=_READ_MS,
                yield_on_timeout=True,
                debounce=_DEBOUNCE_MS,
                ignore_permission_denied=True,
            )
            self._read_changes()

    def _read_changes(self) -> None:
        """Wait for events for a moment, and add the files they name."""
        from watchfiles import Change

        try:
            changed = set() if self._changes is None else next(self._changes)
        except (OSError, RuntimeError, StopIteration):
            self._changes = None  # if the system runs out of watches, the full scans still find everything
            return
        self._named |= {to_uri(path) for change, path in changed if change is not Change.deleted}


_MAX_PAUSE_S = 60.0
_MAX_FAILURES = 3
_MAX_GIVEN_UP = 1_000


@dataclass(slots=True)
class Summary:
    """What a watch has done so far, and what's left.

    Attributes:
        published: Number of runs that published something.
        files: Number of files finished.
        rows: Number of rows published.
        given_up: By URI, files that won't be retried until they change; a thousand at most.
        ended_badly: Number of files that this watch gave up on.
        unfinished: Number of files left for later, not counting those still being written.
        settling: Number of files still being written at the last scan.
        trouble: The error that currently stops all work.
        has_more: Whether it was stopped before it looked at all files.
    """

    published: int = 0
    files: int = 0
    rows: int = 0
    given_up: dict[str, FileCheckpoint] = field(default_factory=dict)
    ended_badly: int = 0
    unfinished: int = 0
    settling: int = 0
    trouble: LakegateError | None = None
    has_more: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """Exit code for ``lakegate watch --once``."""
        if self.ended_badly:
            return ExitCode.AUDIT_FAILED
        is_left = self.unfinished or self.has_more or self.trouble is not None
        return ExitCode.RETRYABLE if is_left else ExitCode.OK


class WatchObserver(Protocol):
    """Shows what a watch is doing."""

    def scanned(self, found: Scan) -> None:
        """Show what a scan found."""

    def ingested(
        self, chunk: Chunk, run: Run | None, saved: Collection[FileCheckpoint], failure: LakegateError | None
    ) -> None:
        """Show the outcome of a chunk: its run, or why there's none."""

    def backing_off(self, error: LakegateError, pause_s: float) -> None:
        """Show that a service is unavailable and the watch pauses for ``pause_s`` seconds."""

    def waiting(self, summary: Summary) -> AbstractContextManager[None]:
        """Show the current state while the body waits."""


class Watch:
    """Ingests files that arrive at its loader's paths.

    Args:
        reopen: Opens the lake again after an outage: its servers may have been replaced.
        once: Stop when nothing is left to ingest.
        settle_s: Seconds that a file must stay unchanged. With ``once``, it also limits how long to wait for files that
            keep changing.
        upkeep: Called after all files of a scan are ingested; never with ``once``.
    """

    def __init__(
        self,
        loader: FileLoader,
        feed: Feed,
        observer: WatchObserver,
        *,
        reopen: Callable[[], Lake],
        once: bool = False,
        settle_s: float = 5.0,
        upkeep: Callable[[Lake], object] = lambda _: None,
    ) -> None:
        self.summary = Summary()
        self._loader = loader
        self._feed = feed
        self._observer = observer
        self._reopen = reopen
        self._once = once
        self._settle_s = settle_s
        self._upkeep = upkeep
        self._stopping = False
        self._has_scanned = False
        self._failures = 0
        self._named: set[str] = set()
        self._settles_by = 0.0

    def stop(self) -> None:
        """Stop after the current run. May be called by a signal handler."""
        self._stopping = True
        self._feed.wake()

    def run(self) -> Summary:
        """Watch until :meth:`stop` is called or, with ``once``, until nothing is left.

        Raises:
            InputError: If the paths can't be read or the settings are wrong.
            KeyboardInterrupt: If interrupted; the current run is undone.
        """
        changed: Collection[str] | None = EVERYTHING
        has_more = True
        self._extend_settling()
        while not self._stopping:
            try:
                found = self._scan(changed)
                has_more = found.more
                if changed is EVERYTHING and not found.resumed:
                    self.summary.given_up.clear()
                self._record_scan(found)
                self._ingest_all(found.chunks)
            except (RetryableError, OutcomeUnknownError) as error:
                if self._back_off_or_stop(error):
                    break
                changed = EVERYTHING
                continue
            if not found.more:  # otherwise, files that the feed named may not have been looked at yet
                self._acknowledge()
            # Retries deliveries that failed when their run ended, even if no other run follows.
            self._loader.lake.downstream.send_due()
            if self._once and self._is_done(found):
                break
            if not self._once and not self._stopping:
                self._upkeep(self._loader.lake)
            changed = self._wait_for_work(found)
        self.summary.has_more = has_more and self._stopping
        return self.summary

    def _scan(self, changed: Collection[str] | None) -> Scan:
        try:
            found = self._loader.scan(changed)
        except SourceError as error:
            if not self._has_scanned:
                raise
            # The paths were readable before, so a mount or permission may come back.
            raise RetryableError(error.message, hint=error.hint, detail=error.detail) from error
        self._has_scanned = True
        return found

    def _record_scan(self, found: Scan) -> None:
        self._add_given_up(found.given_up)
        self.summary.settling = found.settling
        self.summary.unfinished = found.waiting + sum(len(chunk.files) for chunk in found.chunks)
        if not self.summary.unfinished:
            self.summary.trouble = None
        self._observer.scanned(found)

    def _ingest_all(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if self._stopping:
                return
            if not self._loader.is_free(chunk):
                continue
            run = self._loader.ingest(chunk)
            self._failures = 0
            self.summary.trouble = None
            self._record_outcome(chunk, run)
            self._extend_settling()

    def _record_outcome(self, chunk: Chunk, run: Run | None) -> None:
        saved = self._loader.saved
        summary = self.summary
        self._observer.ingested(chunk, run, saved, self._loader.failure)
        if run is not None and run.publication is not None:
            summary.published += 1
            summary.rows += run.publication.rows
        finished = [checkpoint for checkpoint in saved if checkpoint.uri not in self._loader.pending]
        bad = [checkpoint for checkpoint in finished if checkpoint.outcome != "done"]
        summary.unfinished -= len(finished)
        summary.files += len(finished) - len(bad)
        summary.ended_badly += len(bad)
        self._add_given_up(bad)

    def _add_given_up(self, checkpoints: Iterable[FileCheckpoint]) -> None:
        for checkpoint in checkpoints:
            if len(self.summary.given_up) < _MAX_GIVEN_UP:
                self.summary.given_up[checkpoint.uri] = checkpoint

    def _back_off_or_stop(self, error: LakegateError) -> bool:
        """Pause after an outage and reopen the lake; return whether to stop instead."""
        self.summary.trouble = error
        self._failures += 1
        if self._once and self._failures == _MAX_FAILURES:
            return True
        longest_s = min(2.0 ** min(self._failures - 1, 10), _MAX_PAUSE_S)
        # Jitter, so that several watchers of one catalog don't all come back at once.
        pause_s = longest_s * (0.5 + secrets.randbelow(1000) / 2000)
        self._observer.backing_off(error, pause_s)
        self._pause(pause_s)
        if not self._stopping:
            self._loader.lake = self._reopen()
        return self._stopping

    def _wait_for_work(self, found: Scan) -> Collection[str] | None:
        """Wait until there's something to scan, and return it."""
        if found.chunks:
            return EVERYTHING if found.more else ()
        if found.more or self._once:
            self._pause(found.due_s or 0.0)
            return EVERYTHING if found.more else ()
        with self._observer.waiting(self.summary):
            changed = self._feed.wait(found.due_s)
        self._named.update(changed or ())
        return changed

    def _acknowledge(self) -> None:
        finished = self._named.difference(self._loader.pending)
        if finished:
            self._feed.acknowledge(finished)
            self._named -= finished

    def _is_done(self, found: Scan) -> bool:
        if found.chunks or (found.more and not found.settling):
            return False
        return found.settling == 0 or time.monotonic() > self._settles_by

    def _extend_settling(self) -> None:
        self._settles_by = time.monotonic() + 2 * self._settle_s + 1.0

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._observer.waiting(self.summary):
            while not self._stopping and (left_s := deadline - time.monotonic()) > 0.0:
                self._feed.wait(left_s)
