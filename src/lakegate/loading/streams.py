"""Watch a stream: publish what is appended to an open branch, at intervals, until it's stopped."""

from __future__ import annotations

from typing import Protocol

from lakegate.errors import LakegateError, RetryableError
from lakegate.lake import Lake
from lakegate.loading.watch import PollingFeed
from lakegate.model.run import Run
from lakegate.wap.stream import StreamStoppedError


class StreamObserver(Protocol):
    """Is told what becomes of a stream."""

    def ended(self, run: Run) -> None:
        """Be told of a slice: ``published`` or ``rejected``."""

    def waiting(self, error: LakegateError) -> None:
        """Be told why nothing is published for now; only once for each reason."""


class StreamWatch:
    """Publishes what is appended to an open branch.

    Args:
        branch: The branch, or the run id of its opening.
        once: Whether to publish what's there now, and end.
    """

    def __init__(self, lake: Lake, branch: str, observer: StreamObserver, *, every_s: float, once: bool) -> None:
        self._lake = lake
        self._branch = branch
        self._observer = observer
        self._feed = PollingFeed(every_s)
        self._once = once
        self._is_stopping = False
        self._told: str | None = None

    def stop(self) -> None:
        """End after the slice that is being published. May be called by a signal handler."""
        self._is_stopping = True
        self._feed.wake()

    def run(self) -> Run | None:
        """Publish slices until it's stopped, and return the last one's run.

        Raises:
            InputError: When the stream can't go on, or has ended and is published.
            LakegateError: With ``once``, whatever went wrong.
        """
        run = self._publish_slice()
        while not (self._once or self._is_stopping):
            self._feed.wait()
            run = self._publish_slice()
        return run

    def _publish_slice(self) -> Run | None:
        try:
            run = self._lake.gate.publish_slice(self._branch)
        except (RetryableError, StreamStoppedError) as error:
            if self._once:
                raise
            if error.message != self._told:
                self._observer.waiting(error)
            self._told = error.message
            return None
        self._told = None
        if run is not None:
            self._observer.ended(run)
        return run
