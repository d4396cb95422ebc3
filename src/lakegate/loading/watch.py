"""Watch: feeds that name new files, and the loop that ingests them until it's stopped.

A feed for a queue of notifications (SQS, Pub/Sub, Kafka) is a class with the methods of :class:`Feed`: it waits for
messages, returns the URIs they name, and deletes a message when its file is acknowledged. What gets lost in between
is found by the full scans that every feed requests from time to time.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from lakegate.errors import ExitCode, LakegateError, OutcomeUnknownError, RetryableError, SourceError
from lakegate.lake import Lake
from lakegate.loading.scan import Chunk, Intake, Scan
from lakegate.model.journal import FileCheckpoint
from lakegate.model.run import Run
from lakegate.sources.files import to_uri

EVERYTHING = None
"""Scan everything."""
_NAMED_AT_ONCE = 10_000
_FOLDERS_LOOKED_AT_S = 5.0
_GATHERED_MS = 400
_LISTENS_WITHIN_S = 10.0


class Feed(Protocol):
    """Says when to scan, and what."""

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for a reason to scan, for ``timeout_s`` seconds at most.

        Returns:
            Changed URIs: none if the time is over; ``None`` to scan everything.
        """

    def acknowledge(self, uris: Collection[str]) -> None:
        """Confirm files that :meth:`wait` named: nothing is left to do for them. Until then they may come again."""

    def wake(self) -> None:
        """End a wait at once. May be called by a signal handler."""

    def close(self) -> None:
        """Release what it holds. Idempotent."""


class PollingFeed:
    """Requests a full scan at intervals."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next = time.monotonic() + every_s
        # The one queue that a signal handler may put something into while this very thread waits for it.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for the next full scan, for ``timeout_s`` seconds at most."""
        left_s = max(self._next - time.monotonic(), 0.0)
        self._pause(left_s if timeout_s is None else min(left_s, timeout_s))
        if time.monotonic() < self._next:
            return ()
        self._next = time.monotonic() + self._every_s
        return EVERYTHING

    def acknowledge(self, uris: Collection[str]) -> None:
        """Do nothing: finished files aren't named again."""

    def wake(self) -> None:
        """End a wait."""
        self._bell.put(None)

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    def _pause(self, seconds: float) -> bool:
        """Wait until the bell rings, or the time is over; return whether it rang."""
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True


class EventFeed(PollingFeed):
    """Names files in local folders by the operating system's events, and requests a full scan at intervals.

    The system's events may get lost: too many at once, network file systems, folders that are replaced.

    Args:
        folders: Returns the existing folders; later ones are watched once they exist.
        every_s: Seconds from one full scan to the next.
    """

    def __init__(self, folders: Callable[[], Sequence[str]], every_s: float) -> None:
        super().__init__(every_s)
        self._folders = folders
        self._lock = threading.Lock()
        self._named: set[str] | None = set()
        self._watched: dict[str, tuple[int, int]] = {}
        self._watcher: tuple[threading.Thread, _Stop] | None = None
        self._watch_anew()

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        """Wait for events, or the next full scan."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._watch_anew():
            left_s = min(self._next, deadline) - time.monotonic()
            rang = self._pause(min(max(left_s, 0.0), _FOLDERS_LOOKED_AT_S))
            if time.monotonic() >= self._next:
                break
            named = self._take_named()
            if named is None:
                break
            if named or rang or time.monotonic() >= deadline:
                return named
        self._next = time.monotonic() + self._every_s
        return EVERYTHING

    def close(self) -> None:
        """End the watching."""
        if self._watcher is not None:
            thread, stop = self._watcher
            stop.stopped = True
            thread.join()
            self._watcher = None

    def _watch_anew(self) -> bool:
        """Watch the existing folders; return whether they changed."""
        watched = {folder: identity for folder in self._folders() if (identity := _identity(folder)) is not None}
        if watched == self._watched:
            return False
        self.close()
        self._watched = watched
        if watched:
            stop = _Stop()
            thread = threading.Thread(target=self._listen, args=(tuple(watched), stop), name="watch", daemon=True)
            self._watcher = (thread, stop)
            thread.start()
            # Files from now on are named; earlier ones are found by the scan that follows.
            stop.listening.wait(_LISTENS_WITHIN_S)
        return True

    def _listen(self, folders: Sequence[str], stop: _Stop) -> None:
        from watchfiles import Change, watch

        changes = watch(
            *folders,
            watch_filter=None,
            stop_event=stop,
            rust_timeout=0,
            debounce=_GATHERED_MS,
            ignore_permission_denied=True,
        )
        try:
            # If the system can't give more events, the full scans remain.
            with suppress(OSError, RuntimeError):
                for changed in changes:
                    self._name({to_uri(path) for change, path in changed if change is not Change.deleted})
        finally:
            stop.listening.set()

    def _name(self, uris: set[str]) -> None:
        with self._lock:
            if self._named is not None:
                self._named |= uris
                if len(self._named) > _NAMED_AT_ONCE:
                    self._named = None
        self._bell.put(None)

    def _take_named(self) -> set[str] | None:
        with self._lock:
            named, self._named = self._named, set()
        return named


class _Stop:
    """A stop event that ``watchfiles`` polls once it listens."""

    def __init__(self) -> None:
        self.stopped = False
        self.listening = threading.Event()

    def is_set(self) -> bool:
        self.listening.set()
        return self.stopped


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = Path(folder).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


_LONGEST_PAUSE_S = 60.0
_TROUBLES_AT_ONCE = 3
_TOLD = 1_000


@dataclass(slots=True)
class Summary:
    """What a watch did, and what it leaves.

    Attributes:
        published: Runs that published something.
        files: Files that are done since.
        rows: Rows they published.
        given_up: Files given up until they change, by URI; a thousand at most.
        ended_badly: How many files this watch gave up.
        left: Files to retry, by URI.
        waiting: Files to try later, at the last scan: those to retry, those of other runs, and all behind them.
        settling: Files that were still being written at the last scan.
        trouble: What stops it now.
    """

    published: int = 0
    files: int = 0
    rows: int = 0
    rejected: int = 0
    failed: int = 0
    given_up: dict[str, FileCheckpoint] = field(default_factory=dict)
    ended_badly: int = 0
    left: set[str] = field(default_factory=set)
    waiting: int = 0
    settling: int = 0
    trouble: LakegateError | None = None

    @property
    def unfinished(self) -> int:
        """How many files are there to be ingested by a later watch, besides those still being written."""
        return max(len(self.left), self.waiting)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a program that scanned once."""
        if self.ended_badly:
            return ExitCode.AUDIT_FAILED
        return ExitCode.RETRYABLE if self.unfinished or self.trouble is not None else ExitCode.OK


class Observer(Protocol):
    """Shows what a watch does."""

    def scanned(self, found: Scan) -> None:
        """Show what a scan found."""

    def took(self, chunk: Chunk, run: Run | None, noted: Collection[FileCheckpoint]) -> None:
        """Show the outcome of a chunk."""

    def troubled(self, error: LakegateError, pause_s: float) -> None:
        """Show that something is unavailable, and that nothing is tried for ``pause_s`` seconds."""

    def waiting(self, summary: Summary, found: Scan | None) -> AbstractContextManager[None]:
        """Show the current state while the body waits."""


class Watch:
    """Ingests files that arrive below an intake's paths.

    Args:
        reopen: Opens the lake again after trouble: its servers may have been replaced.
        once: End when nothing is left to ingest.
        settle_s: Seconds that files must stay unchanged; with ``once``, how long to wait for new ones.
        upkeep: Called after each scan, when what it found is ingested, but not with ``once``.
    """

    def __init__(
        self,
        intake: Intake,
        feed: Feed,
        observer: Observer,
        *,
        reopen: Callable[[], Lake],
        once: bool = False,
        settle_s: float = 5.0,
        upkeep: Callable[[Lake], object] = lambda _: None,
    ) -> None:
        self.summary = Summary()
        self._intake = intake
        self._feed = feed
        self._observer = observer
        self._reopen = reopen
        self._once = once
        self._settle_s = settle_s
        self._upkeep = upkeep
        self._stopping = False
        self._has_looked = False
        self._troubles = 0
        self._named: set[str] = set()
        self._settled_by = 0.0

    def stop(self) -> None:
        """End after the current run. May be called by a signal handler."""
        self._stopping = True
        self._feed.wake()

    def run(self) -> Summary:
        """Watch until :meth:`stop` is called, or, with ``once``, until nothing is left.

        Raises:
            InputError: When the paths can't be read, or the settings are wrong.
            KeyboardInterrupt: When interrupted; the current run is undone.
        """
        changed: Collection[str] | None = EVERYTHING
        self._put_off_the_end()
        while not self._stopping:
            try:
                found = self._look(changed)
                self._note(found, everything=changed is EVERYTHING)
                self._take(found.chunks)
            except (RetryableError, OutcomeUnknownError) as error:
                if self._gives_up(error):
                    break
                changed = EVERYTHING
                continue
            self._acknowledge()
            # What couldn't be delivered when its run ended, even if no other run comes.
            self._intake.lake.send_downstream()
            if self._once and self._is_over(found):
                break
            if not self._once and not self._stopping:
                self._upkeep(self._intake.lake)
            changed = self._next(found)
        return self.summary

    def _look(self, changed: Collection[str] | None) -> Scan:
        try:
            found = self._intake.scan(changed)
        except SourceError as error:
            if not self._has_looked:
                raise
            # What was readable before may come back: a mount, a permission.
            raise RetryableError(error.message, hint=error.hint) from error
        self._has_looked = True
        return found

    def _note(self, found: Scan, *, everything: bool) -> None:
        if everything and not found.resumed:
            self.summary.given_up.clear()
        if everything and not found.more:
            # Others may have ingested them meanwhile, and files may be gone.
            self.summary.left.intersection_update(self._intake.pending)
        self._give_up(found.given_up)
        self.summary.settling = found.settling
        self.summary.waiting = found.waiting
        if not self.summary.left:
            self.summary.trouble = None
        self._observer.scanned(found)

    def _take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if self._stopping:
                return
            try:
                if not self._intake.is_free(chunk):
                    self.summary.left.update(chunk.uris)
                    continue
                run = self._intake.take(chunk)
            except (RetryableError, OutcomeUnknownError):
                self.summary.left.update(chunk.uris)
                raise
            self._troubles = 0
            self.summary.trouble = None
            self._count(chunk, run)
            self._put_off_the_end()

    def _count(self, chunk: Chunk, run: Run | None) -> None:
        noted = self._intake.noted
        summary = self.summary
        self._observer.took(chunk, run, noted)
        if run is not None and run.publication is not None:
            summary.published += 1
            summary.rows += run.publication.rows
        summary.rejected += run is not None and run.status == "rejected"
        summary.failed += any(checkpoint.outcome == "failed" for checkpoint in noted)
        summary.left.difference_update(chunk.uris)
        summary.left.update(checkpoint.uri for checkpoint in noted)
        finished = [checkpoint for checkpoint in noted if checkpoint.uri not in self._intake.pending]
        bad = [checkpoint for checkpoint in finished if checkpoint.outcome != "done"]
        summary.left.difference_update(checkpoint.uri for checkpoint in finished)
        summary.files += len(finished) - len(bad)
        summary.ended_badly += len(bad)
        self._give_up(bad)

    def _give_up(self, checkpoints: Iterable[FileCheckpoint]) -> None:
        for checkpoint in checkpoints:
            if len(self.summary.given_up) < _TOLD:
                self.summary.given_up[checkpoint.uri] = checkpoint

    def _gives_up(self, error: LakegateError) -> bool:
        """Pause after trouble; return whether it came too often, or :meth:`stop` was called."""
        self.summary.trouble = error
        self._troubles += 1
        if self._once and self._troubles == _TROUBLES_AT_ONCE:
            return True
        longest_s = min(2.0 ** min(self._troubles - 1, 10), _LONGEST_PAUSE_S)
        # Several watchers of one catalog must not come back all at once.
        pause_s = longest_s * (0.5 + secrets.randbelow(1000) / 2000)
        self._observer.troubled(error, pause_s)
        self._pause(pause_s)
        if not self._stopping:
            self._intake.lake = self._reopen()
        return self._stopping

    def _next(self, found: Scan) -> Collection[str] | None:
        """Wait for a reason to scan; return what to scan."""
        if found.chunks:
            return EVERYTHING if found.more else ()
        if found.more or self._once:
            self._pause(found.due_s or 0.0)
            return EVERYTHING if found.more else ()
        with self._observer.waiting(self.summary, found):
            changed = self._feed.wait(found.due_s)
        self._named.update(changed or ())
        return changed

    def _acknowledge(self) -> None:
        finished = self._named.difference(self._intake.pending)
        if finished:
            self._feed.acknowledge(finished)
            self._named -= finished

    def _is_over(self, found: Scan) -> bool:
        if found.chunks or (found.more and not found.settling):
            return False
        return found.settling == 0 or time.monotonic() > self._settled_by

    def _put_off_the_end(self) -> None:
        self._settled_by = time.monotonic() + 2 * self._settle_s + 1.0

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._observer.waiting(self.summary, None):
            while not self._stopping and (left_s := deadline - time.monotonic()) > 0.0:
                self._feed.wait(left_s)
