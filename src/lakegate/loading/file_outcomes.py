"""File outcomes: what happened to each file of a chunk, as the journal stores it, and when to retry it."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from lakegate.errors import (
    EngineError,
    LakegateError,
    NewerFormatError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.loading.routes import location
from lakegate.model.batch import FileFormat
from lakegate.model.run import CheckpointOutcome, FileCheckpoint, Run, RunError
from lakegate.model.words import counted
from lakegate.progress import without_secrets
from lakegate.sources.files import shown
from lakegate.sources.inspection import format_of

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.sources.discovery import FoundFile

_DIGEST_CHARS = 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Files to ingest into one table together.

    Attributes:
        table: ``namespace.table``.
        files: URI of each file, and its fingerprint when it was scanned.
        run_id: The run to resume; ``None`` if there's none yet.
    """

    table: str
    files: tuple[tuple[str, str], ...]
    run_id: str | None = None

    @property
    def uris(self) -> tuple[str, ...]:
        """URI of each file."""
        return tuple(uri for uri, _ in self.files)

    @property
    def alone(self) -> bool:
        """Whether it's a single file, so that the run's outcome is the file's own."""
        return len(self.files) == 1

    def derive_run_id(self, earlier: Sequence[str]) -> str:
        """Return a run id derived from these files and their fingerprints, the same on any machine.

        Args:
            earlier: Ids of earlier runs for these files, which the new id must differ from.

        Example:
            >>> Chunk("nyc.trips", (("s3://b/x.csv", "9-e"),)).derive_run_id(())
            'files-c317eeeb7db6f2dd61e2'
        """
        named = [self.table, sorted(self.files), sorted(set(earlier))]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
        return f"files-{digest[:_DIGEST_CHARS]}"


@dataclass(slots=True)
class Scan:
    """What one scan found.

    Attributes:
        chunks: What can be ingested now: runs to resume first, then chunks of several files, then single files.
        settling: Number of files that may be incomplete: they changed recently.
        done: Number of finished files.
        given_up: Files that were rejected or failed too often, and haven't changed since; a thousand at most.
        waiting: Number of files to try later: they failed, or another run holds them.
        unrouted: Files that aren't ingested, each with the reason: without a table, or of no known format.
        more: Whether the scan stopped early because it had found enough work.
        resumed: Whether it continued where the previous scan stopped.
        due_s: Seconds until the next settling or waiting file may be ready; ``None`` if there are none.
    """

    chunks: tuple[Chunk, ...] = ()
    settling: int = 0
    done: int = 0
    given_up: list[FileCheckpoint] = field(default_factory=list)
    waiting: int = 0
    unrouted: list[tuple[str, str]] = field(default_factory=list)
    more: bool = False
    due_s: float | None = None
    resumed: bool = False

    def add_settling(self, left_s: float) -> None:
        """Count a file that may be stable in ``left_s`` seconds."""
        self.settling += 1
        self._due(left_s)

    def add_waiting(self, left_s: float) -> None:
        """Count a file to try in ``left_s`` seconds."""
        self.waiting += 1
        self._due(left_s)

    def _due(self, left_s: float) -> None:
        self.due_s = left_s if self.due_s is None else min(self.due_s, left_s)


@dataclass(frozen=True, slots=True)
class ReadyFile:
    """A file that can be ingested.

    Attributes:
        alone: Whether to ingest it alone, for example because it failed together with others.
        checkpoint: Its last outcome in this state.
    """

    table: str
    file: FoundFile
    alone: bool
    checkpoint: FileCheckpoint | None = None


def in_chunks(ready: Sequence[ReadyFile], *, max_files: int, max_bytes: int) -> tuple[Chunk, ...]:
    """Group files into chunks of one table and format. Files to ingest alone come last.

    Args:
        max_bytes: Maximum size of a chunk. A larger file gets a chunk of its own.
    """
    together = defaultdict[tuple[str, FileFormat | None], list["FoundFile"]](list)
    for one in ready:
        if not one.alone:
            together[one.table, format_of(one.file.uri)].append(one.file)
    groups = [
        (table, group) for (table, _), files in together.items() for group in _groups(files, max_files, max_bytes)
    ]
    alone = [one for one in ready if one.alone]
    # Those with fewer tries first, in case one crashes the process.
    alone.sort(key=lambda one: 0 if one.checkpoint is None else one.checkpoint.tries)
    groups += [(one.table, [one.file]) for one in alone]
    return tuple(Chunk(table, tuple((file.uri, file.stamp) for file in group)) for table, group in groups)


def _groups(files: Sequence[FoundFile], max_files: int, max_bytes: int) -> Iterator[list[FoundFile]]:
    group: list[FoundFile] = []
    size_bytes = 0
    for file in files:
        if group and (len(group) == max_files or size_bytes + file.size_bytes > max_bytes):
            yield group
            group, size_bytes = [], 0
        group.append(file)
        size_bytes += file.size_bytes
    if group:
        yield group


TRIED_TOGETHER = 0
"""Tries of a file that failed or was rejected together with others: another file may be to blame."""

_RETRY_S = 30.0
_MAX_RETRY_S = 3600.0
_BUSY_S = 5.0
_MAX_CHECKS_SHOWN = 3
_MAX_REASON_CHARS = 500
_START_GRACE_S = 120.0
"""Seconds within which a starting run appears in the journal. If it isn't there by then, its process died."""
_ALWAYS_VALID = frozenset({"done", "parked", "trying"})
_ENDED_WELL = frozenset({"published", "skipped", "reverted"})
_ENDED_BADLY = frozenset({"failed", "discarded"})


class Clock:
    """The system's clocks; tests replace them."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)


class FileOutcomes:
    """Saves checkpoints, and decides from them what's left to do for a file, and when.

    Args:
        max_tries: How often one version of a file may fail.
        again: Ignore rejections and failures from before now.
        announced: By URI, when a notification named the file. Its earlier rejections and failures are ignored: the
            cause may have been elsewhere.
    """

    def __init__(
        self, clock: Clock, *, max_tries: int, again: bool, announced: Mapping[str, datetime] | None = None
    ) -> None:
        self._clock = clock
        self._max_tries = max_tries
        self._began = clock.now()
        self._again = again
        self._announced = announced or {}
        # In this process only: other runs hold these files, or what they need was unreachable.
        self._left_alone_until: dict[str, float] = {}

    def current(self, checkpoint: FileCheckpoint | None, stamp: str) -> FileCheckpoint | None:
        """Return the checkpoint if it applies to this version of the file."""
        if checkpoint is None or checkpoint.stamp != stamp:
            return None
        if checkpoint.outcome in _ALWAYS_VALID:
            return checkpoint
        forgiven = self._again and checkpoint.noted_at < self._began
        announced = self._announced.get(checkpoint.uri)
        return None if forgiven or (announced is not None and checkpoint.noted_at < announced) else checkpoint

    def is_finished(self, checkpoint: FileCheckpoint) -> bool:
        """Return whether nothing is left to do for the file until it changes."""
        if checkpoint.outcome in ("parked", "trying"):
            return False
        if checkpoint.outcome == "failed":
            return checkpoint.tries >= self._max_tries
        return checkpoint.outcome == "done" or checkpoint.tries > TRIED_TOGETHER

    def left_s(self, uri: str, checkpoint: FileCheckpoint | None = None) -> float:
        """Return the seconds until the file may be tried; 0 if it failed alone before this process started."""
        left_s = max(0.0, self._left_alone_until.get(uri, 0.0) - self._clock.monotonic())
        if checkpoint is None or checkpoint.tries == TRIED_TOGETHER or checkpoint.noted_at < self._began:
            return left_s
        pause_s = min(_RETRY_S * 2.0 ** min(checkpoint.tries - 1, 10), _MAX_RETRY_S)
        due = checkpoint.noted_at + timedelta(seconds=pause_s)
        return max(left_s, (due - self._clock.now()).total_seconds())

    def hold_off(self, uris: Iterable[str]) -> None:
        """Leave files alone for a few seconds: other runs hold them, or what they need was unreachable."""
        self._left_alone_until.update(dict.fromkeys(uris, self._clock.monotonic() + _BUSY_S))

    def begin(self, lake: Lake, chunk: Chunk) -> None:
        """Save that a run is about to try the files. If no outcome follows, one of them crashed the process.

        For a file that is ingested alone this counts as a try; :meth:`release` undoes that.
        """
        known = lake.files.checkpoints(chunk.table, chunk.uris)
        tried = [
            self._checkpoint(
                uri, stamp, "trying", tries=self._tries(known.get(uri), stamp) + chunk.alone, run=chunk.run_id
            )
            for uri, stamp in chunk.files
        ]
        lake.files.save_checkpoints(chunk.table, tried)

    def release(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[FileCheckpoint, ...]:
        """Undo :meth:`begin` for files that still have no outcome, and return their checkpoints."""
        known = lake.files.checkpoints(chunk.table, chunk.uris).values()
        begun = [one for one in known if _is_begun(one, chunk)]
        if not begun:
            return ()
        run = find_run(lake, str(chunk.run_id))
        # Without a run id if the run failed, or can't help with the remaining files.
        run_id = chunk.run_id if run is not None and run.finished_at is None else None
        why = _reason_of(None, error)
        left = tuple(
            self._checkpoint(one.uri, one.stamp, "parked", tries=one.tries - chunk.alone, run=run_id, reason=why)
            for one in begun
        )
        lake.files.save_checkpoints(chunk.table, left)
        return left

    def is_starting(self, checkpoint: FileCheckpoint) -> bool:
        """Return whether a file's run may be starting, so that it isn't in the journal yet."""
        age_s = (self._clock.now() - checkpoint.noted_at).total_seconds()
        return checkpoint.outcome == "trying" and age_s < _START_GRACE_S

    def after_crash(self, lake: Lake, table: str, checkpoint: FileCheckpoint, run: Run | None) -> FileCheckpoint | None:
        """Return the outcome of a file whose process died, because of this file or another one of its chunk.

        From now on the file is ingested alone. ``None`` if it should simply be retried.
        """
        if checkpoint.outcome != "trying" or (run is not None and run.status not in _ENDED_BADLY):
            return None
        why = "The process that was ingesting it died."
        died = checkpoint.model_copy(update={"outcome": "failed", "reason": why})
        if self.is_finished(died):
            lake.alerts.given_up(table, died)
            lake.files.save_checkpoints(table, (died,))
        return died

    def save_outcomes(
        self, lake: Lake, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> tuple[FileCheckpoint, ...]:
        """Save and return the outcomes of a chunk's files. Trouble that isn't the files' fault leaves no outcome."""
        checkpoints = self._outcomes_of(lake, chunk, run, error)
        for checkpoint in checkpoints:
            self._left_alone_until.pop(checkpoint.uri, None)
        if checkpoints:
            lake.files.save_checkpoints(chunk.table, checkpoints)
        if chunk.run_id is not None and len(checkpoints) < len(chunk.files):
            checkpoints += self.release(lake, chunk, error)
        return checkpoints

    def _outcomes_of(
        self, lake: Lake, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> tuple[FileCheckpoint, ...]:
        if run is None or error is not None or run.status in _ENDED_BADLY:
            problem = error or (run.error if run is not None else None)
            if _is_trouble(problem):
                self.hold_off(chunk.uris)
                return ()
            failed = self._failures(lake, chunk, _culprits(chunk, error), "failed", run, _reason_of(run, problem))
            for checkpoint in filter(self.is_finished, failed):
                # Before it's saved: after a crash between the two, a saved file would never be reported.
                lake.alerts.given_up(chunk.table, checkpoint)
            return failed
        if run.status == "rejected":
            return self._failures(lake, chunk, chunk.files, "rejected", run, _rejection_reason(run))
        if run.status in _ENDED_WELL:
            return tuple(self._finished_files(lake, chunk, run))
        self.hold_off(chunk.uris)
        return ()

    def _finished_files(self, lake: Lake, chunk: Chunk, run: Run) -> Iterator[FileCheckpoint]:
        # If a file was found through a link, the run reports the skipped file under its real path.
        owners = {uri: one.run_id for one in run.skipped_files for uri in (one.file.uri, *one.file.aliases)}
        busy = {run_id for run_id in set(owners.values()) if not has_published(lake, run_id)}
        for uri, stamp in chunk.files:
            owner = owners.get(uri)
            if owner in busy:
                self.hold_off([uri])
                continue
            reason = run.detail if owner is None else f"Already published by run {owner}."
            yield self._checkpoint(uri, stamp, "done", run=owner or run.run_id, reason=reason)

    def _failures(
        self,
        lake: Lake,
        chunk: Chunk,
        files: Sequence[tuple[str, str]],
        outcome: Literal["rejected", "failed"],
        run: Run | None,
        reason: str,
    ) -> tuple[FileCheckpoint, ...]:
        known = lake.files.checkpoints(chunk.table, chunk.uris) if chunk.alone else {}
        run_id = None if run is None else run.run_id
        made = []
        for uri, stamp in files:
            before = known.get(uri)
            is_counted = before is not None and _is_begun(before, chunk)
            tries = self._tries(before, stamp) + (chunk.alone and not is_counted)
            made.append(self._checkpoint(uri, stamp, outcome, tries=tries, run=run_id, reason=reason))
        return tuple(made)

    def _checkpoint(
        self,
        uri: str,
        stamp: str,
        outcome: CheckpointOutcome,
        *,
        tries: int = 1,
        run: str | None = None,
        reason: str | None = None,
    ) -> FileCheckpoint:
        now, why = self._clock.now(), without_secrets(reason) if reason else reason
        return FileCheckpoint(uri=uri, stamp=stamp, outcome=outcome, tries=tries, run_id=run, reason=why, noted_at=now)

    def _tries(self, checkpoint: FileCheckpoint | None, stamp: str) -> int:
        known = self.current(checkpoint, stamp)
        return TRIED_TOGETHER if known is None else known.tries


def find_run(lake: Lake, run_id: str) -> Run | None:
    """Return the run; ``None`` if the journal doesn't have it, or no longer does."""
    try:
        run = lake.run(run_id)
    except NotFoundError:
        return None
    return run if run.run_id == run_id else None


def has_published(lake: Lake, run_id: str) -> bool:
    """Return whether a run that had claimed a file has published it."""
    run = find_run(lake, run_id)
    # If the journal lost the run, the claim came from what the run published.
    return run is None or run.status in _ENDED_WELL


def _is_trouble(problem: LakegateError | RunError | None) -> bool:
    """Return whether the cause is outside the files. An engine that fails is reachable, so they may be the cause."""
    others = {OutcomeUnknownError.code, NewerFormatError.code}
    codes = (_codes(RetryableError) | others) - {EngineError.code}
    return problem is not None and problem.code in codes


def _codes(kind: type[LakegateError]) -> set[str]:
    return {kind.code}.union(*(_codes(below) for below in kind.__subclasses__()))


def _is_begun(checkpoint: FileCheckpoint, chunk: Chunk) -> bool:
    """Return whether the file's last outcome is what :meth:`FileOutcomes.begin` saved for this chunk's run."""
    return checkpoint.outcome == "trying" and checkpoint.run_id == chunk.run_id


def _culprits(chunk: Chunk, error: LakegateError | None) -> Sequence[tuple[str, str]]:
    """Return the files that the error names, or all if it names none. The others can still be ingested together."""
    context = {} if error is None else error.context
    paths = context.get("paths", context.get("path"))
    named = {paths} if isinstance(paths, str) else set(paths) if isinstance(paths, (list, tuple)) else set()
    return [(uri, stamp) for uri, stamp in chunk.files if shown(location(uri)) in named] or chunk.files


def _reason_of(run: Run | None, problem: LakegateError | RunError | None) -> str:
    if problem is not None:
        text = " ".join(problem.message.split())
        return text if len(text) <= _MAX_REASON_CHARS else text[: _MAX_REASON_CHARS - 1] + "…"
    return "It failed before a run started." if run is None else f"Run {run.run_id} is {run.status}."


def _rejection_reason(run: Run) -> str:
    failures = [
        f"{result.name} ({counted(result.failing_rows, 'row')})" if result.failing_rows else result.name
        for result in run.failures
    ]
    more = f" and {len(failures) - _MAX_CHECKS_SHOWN} more" if len(failures) > _MAX_CHECKS_SHOWN else ""
    return f"Rejected by {', '.join(failures[:_MAX_CHECKS_SHOWN])}{more}."
