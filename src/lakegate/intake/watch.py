"""Watch: look, take what is there, wait, and look again, until told to stop."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from lakegate.errors import ExitCode, LakegateError, OutcomeUnknownError, RetryableError, SourceError
from lakegate.intake.feeds import EVERYTHING, Feed
from lakegate.intake.rounds import Chunk, Intake, Round
from lakegate.lake import Lake
from lakegate.model.journal import Landing
from lakegate.model.run import Run

_LONGEST_PAUSE_S = 60.0
_TROUBLES_AT_ONCE = 3
_TOLD = 1_000


@dataclass(slots=True)
class Summary:
    """What a watch has done, and what it leaves.

    Attributes:
        published: Runs that published something.
        files: Files for which nothing is left to do since.
        rows: Rows they published.
        rejected: Chunks that an audit rejected.
        failed: Chunks that failed.
        given_up: Files that are left alone until they change, by URI; a thousand at most.
        ended_badly: How many files were given up by this watch.
        left: Files that must be tried again, by URI.
        settling: Files that were still being written at the last look.
        trouble: What keeps it from working now.
    """

    published: int = 0
    files: int = 0
    rows: int = 0
    rejected: int = 0
    failed: int = 0
    given_up: dict[str, Landing] = field(default_factory=dict)
    ended_badly: int = 0
    left: set[str] = field(default_factory=set)
    settling: int = 0
    trouble: LakegateError | None = None

    @property
    def exit_code(self) -> ExitCode:
        """How a program ends that looked once."""
        if self.ended_badly:
            return ExitCode.AUDIT_FAILED
        return ExitCode.RETRYABLE if self.left or self.trouble is not None else ExitCode.OK


class Observer(Protocol):
    """Is told what a watch does, and shows it."""

    def looked(self, found: Round) -> None:
        """Take note of what a look found."""
        ...

    def took(self, chunk: Chunk, run: Run | None, noted: Collection[Landing]) -> None:
        """Take note of what became of a chunk."""
        ...

    def troubled(self, error: LakegateError, pause_s: float) -> None:
        """Take note that something is away, and that nothing is tried for ``pause_s`` seconds."""
        ...

    def waiting(self, summary: Summary, found: Round | None) -> AbstractContextManager[None]:
        """Show, while the body waits, how things stand."""
        ...


class Watch:
    """Takes in what lands below an intake's paths.

    Args:
        intake: What looks and takes.
        feed: What says when to look.
        observer: Who is told.
        reopen: Opens the lake again after trouble: its servers may be others then.
        once: End when nothing is left to take.
        settle_s: Seconds that files take to settle; with ``once``, how long to wait for those that are new.
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
    ) -> None:
        self.summary = Summary()
        self._intake = intake
        self._feed = feed
        self._observer = observer
        self._reopen = reopen
        self._once = once
        self._settle_s = settle_s
        self._stopping = False
        self._has_looked = False
        self._troubles = 0
        self._named: set[str] = set()
        self._settled_by = 0.0

    def stop(self) -> None:
        """End after the run under way. May be called by a signal handler."""
        self._stopping = True
        self._feed.wake()

    def run(self) -> Summary:
        """Watch until told to stop, or, when ``once``, until nothing is left.

        Raises:
            InputError: When the paths cannot be looked at, or the settings are wrong.
            KeyboardInterrupt: When interrupted; the run under way is undone.
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
            if self._once and self._is_over(found):
                break
            changed = self._next(found)
        return self.summary

    def _look(self, changed: Collection[str] | None) -> Round:
        try:
            found = self._intake.look(changed)
        except SourceError as error:
            if not self._has_looked:
                raise
            # What could be looked at before may come back: a folder that is mounted anew, a permission.
            raise RetryableError(error.message, hint=error.hint) from error
        self._has_looked = True
        return found

    def _note(self, found: Round, *, everything: bool) -> None:
        if everything and not found.more:
            self.summary.given_up.clear()
            # Others may have done it meanwhile, and files may have gone.
            self.summary.left.intersection_update(self._intake.pending)
        self._give_up(found.given_up)
        self.summary.settling = found.settling
        if not self.summary.left:
            self.summary.trouble = None
        self._observer.looked(found)

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
        summary.failed += any(landing.outcome == "failed" for landing in noted)
        summary.left.difference_update(chunk.uris)
        summary.left.update(landing.uri for landing in noted)
        finished = [landing for landing in noted if landing.uri not in self._intake.pending]
        bad = [landing for landing in finished if landing.outcome != "done"]
        summary.left.difference_update(landing.uri for landing in finished)
        summary.files += len(finished) - len(bad)
        summary.ended_badly += len(bad)
        self._give_up(bad)

    def _give_up(self, landings: Iterable[Landing]) -> None:
        for landing in landings:
            if len(self.summary.given_up) < _TOLD:
                self.summary.given_up[landing.uri] = landing

    def _gives_up(self, error: LakegateError) -> bool:
        """Wait for a while after trouble; return whether it has been met too often, or there was a call to stop."""
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

    def _next(self, found: Round) -> Collection[str] | None:
        """Wait until there is a reason to look; return at what."""
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

    def _is_over(self, found: Round) -> bool:
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
