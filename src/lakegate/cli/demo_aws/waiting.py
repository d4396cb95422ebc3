"""Waiting for what becomes of a file: the journal and the queue are asked again and again, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from lakegate.cli.demo_aws.cloud import Cloud, DeadLetter
from lakegate.cli.demo_aws.files import DemoFile, Outcome
from lakegate.errors import LakegateError, RetryableError
from lakegate.protocols import Narrator

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run

_T = TypeVar("_T")
_POLL_S = 0.5
_LOG_LINES = 12
_CLOCKS_S = 5.0
_ENDED: dict[str, Outcome] = {"published": "published", "rejected": "rejected"}


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a file.

    Attributes:
        file: The file.
        uri: Where it was uploaded to.
        outcome: What became of it.
        run: Its run; ``None`` when it came to none.
        letter: The message about it in the dead-letter queue, where it is.
        seconds: From its upload to that.
    """

    file: DemoFile
    uri: str
    outcome: Outcome
    run: Run | None
    letter: DeadLetter | None
    seconds: float


class Patience:
    """Looks for what becomes of files.

    Args:
        lake: The lake that the function works on.
        cloud: Where they were uploaded to.
        narrator: Told what is waited for.
        timeout_s: Seconds to wait for one file, at most.
    """

    def __init__(self, lake: Lake, cloud: Cloud, narrator: Narrator, *, timeout_s: float) -> None:
        self._lake = lake
        self._cloud = cloud
        self._narrator = narrator
        self._timeout_s = timeout_s

    def fate(self, file: DemoFile, table: str, key: str, uri: str, since: datetime) -> Fate:
        """Wait until something has become of a file.

        Args:
            file: The file.
            table: Where its rows go.
            key: Its key in the bucket.
            uri: Its URI.
            since: When it was uploaded.

        Raises:
            RetryableError: When nothing has in time, or something else than should have; with the end of the function's
                log.
        """
        began = time.monotonic()

        def look() -> Fate | None:
            letter = self._cloud.dead_letter(key)
            run = self._run(table, uri, since)
            outcome = "dead-lettered" if letter else _ENDED.get(run.status) if run else None
            return outcome and Fate(file, uri, outcome, run, letter, time.monotonic() - began)

        found = self.wait(f"{file.kind} file: waiting until it is {file.expected}", look)
        if found is None:
            raise self._trouble(f"{uri} was not {file.expected} within {self._timeout_s:g} s.")
        if found.outcome != file.expected:
            raise self._trouble(f"{uri} was {found.outcome}, it should have been {file.expected}.")
        return found

    def wait(self, what: str, look: Callable[[], _T | None]) -> _T | None:
        """Return what ``look`` finds, or ``None`` when it finds nothing in time."""
        deadline = time.monotonic() + self._timeout_s
        with self._narrator.step(what[:1].upper() + what[1:]):
            while True:
                found = look()
                if found is not None or time.monotonic() > deadline:
                    return found
                time.sleep(_POLL_S)

    def _run(self, table: str, uri: str, since: datetime) -> Run | None:
        runs = self._lake.runs(table=table, since=since - timedelta(seconds=_CLOCKS_S))
        return next((run for run in runs if run.request is not None and uri in run.request.batch.uris), None)

    def _trouble(self, message: str) -> RetryableError:
        try:
            log = self._cloud.log_tail(_LOG_LINES)
        except LakegateError as error:
            log = [error.message]
        said = "\n".join(f"  {line}" for line in log) or "  (nothing)"
        return RetryableError(
            f"{message} The function's log ends:\n{said}",
            hint="Read the log above, then try again: lakegate demo --aws",
        )
