"""File outcomes: what happened to each file of a chunk, as the journal stores it, and when to retry it."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
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
from lakegate.model.downstream import GivenUpFile
from lakegate.model.request import IngestRequest
from lakegate.model.run import CheckpointOutcome, FileCheckpoint, Run, RunError
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
        size_bytes: Total size of the files.
        alone: Whether it's a single file, so that the run's outcome is the file's own.
        stamps: The fingerprint of each of ``uris`` when it was scanned.
        run_id: The run to resume; ``None`` if there's none yet.
    """

    table: str
    uris: tuple[str, ...]
    size_bytes: int
    alone: bool
    stamps: tuple[str, ...]
    run_id: str | None = None

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """URI and fingerprint of each file."""
        return list(zip(self.uris, self.stamps, strict=True))

    def derive_run_id(self, earlier: Sequence[str]) -> str:
        """Return a run id derived from these files and their fingerprints, the same on any machine.

        Args:
            earlier: Ids of earlier runs for these files, which the new id must differ from.

        Example:
            >>> Chunk("nyc.trips", ("s3://b/x.csv",), 9, True, ("9-e",)).derive_run_id(())
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
        unrouted: Files without a table, each with the reason; a thousand at most.
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
        tries: How often it was tried. Files with fewer tries go first, in case this one crashes the process.
    """

    table: str
    file: FoundFile
    alone: bool
    tries: int = 0


def in_chunks(ready: Sequence[ReadyFile], *, max_files: int, max_bytes: int) -> tuple[Chunk, ...]:
    """Group files into chunks of one table and format. Tables take turns; files to ingest alone come last.

    Args:
        max_bytes: Maximum size of a chunk. A larger file gets a chunk of its own.
    """
    together = defaultdict[tuple[str, FileFormat | None], list["FoundFile"]](list)
    for one in ready:
        if not one.alone:
            together[one.table, format_of(one.file.uri)].append(one.file)
    by_table = [
        [(table, group) for group in _groups(files, max_files, max_bytes)] for (table, _), files in together.items()
    ]
    groups = [group for turn in zip_longest(*by_table) for group in turn if group is not None]
    alone = sorted((one for one in ready if one.alone), key=lambda one: one.tries)
    groups += [(one.table, [one.file]) for one in alone]
    return tuple(_chunk(table, group) for table, group in groups)


def chunk_to_resume(order: IngestRequest) -> Chunk:
    """Return the chunk of a suspended run, with all of its files."""
    files = order.batch.files
    return Chunk(
        table=str(order.table),
        uris=order.batch.uris,
        size_bytes=order.batch.size_bytes,
        alone=len(files) == 1,
        stamps=tuple(file.stamp for file in files),
        run_id=order.run_id,
    )


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


def _chunk(table: str, files: Sequence[FoundFile]) -> Chunk:
    return Chunk(
        table,
        tuple(file.uri for file in files),
        sum(file.size_bytes for file in files),
        len(files) == 1,
        tuple(file.stamp for file in files),
    )


TRIED_TOGETHER = 0
"""Tries of a file that failed or was rejected together with others: another file may be to blame."""

_RETRY_S = 30.0
_MAX_RETRY_S = 3600.0
_BUSY_S = 5.0
_TROUBLE_S = 5.0
_MAX_TROUBLE_S = 300.0
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


class Backoff:
    """Remembers, in this process, which files to leave alone for a while.

    Other runs hold them, or what they need was unreachable.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def left_s(self, uri: str) -> float:
        """Return how many seconds to leave the file alone."""
        return max(0.0, self._until.get(uri, 0.0) - self._clock.monotonic())

    def hold_off(self, uris: Iterable[str]) -> None:
        """Leave files alone for a few seconds: other runs hold them."""
        self._until.update(dict.fromkeys(uris, self._clock.monotonic() + _BUSY_S))

    def record_trouble(self, uris: Iterable[str]) -> None:
        """Leave files alone after trouble that isn't their fault: longer each time."""
        for uri in uris:
            times = self._times.get(uri, 0)
            self._times[uri] = times + 1
            self._until[uri] = self._clock.monotonic() + min(_TROUBLE_S * 2.0 ** min(times, 10), _MAX_TROUBLE_S)

    def forget(self, uri: str) -> None:
        """Forget a file that has an outcome."""
        self._times.pop(uri, None)
        self._until.pop(uri, None)


class FileOutcomes:
    """Saves checkpoints, and decides from them what's left to do for a file.

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

    def left_s(self, checkpoint: FileCheckpoint | None) -> float:
        """Return the seconds until a file that failed alone is retried; 0 if it failed before this process started."""
        if checkpoint is None or checkpoint.tries == TRIED_TOGETHER or checkpoint.noted_at < self._began:
            return 0.0
        pause_s = min(_RETRY_S * 2.0 ** min(checkpoint.tries - 1, 10), _MAX_RETRY_S)
        return max(0.0, (checkpoint.noted_at + timedelta(seconds=pause_s) - self._clock.now()).total_seconds())

    def begin(self, lake: Lake, chunk: Chunk) -> None:
        """Save that a run is about to try the files. If no outcome follows, one of them crashed the process.

        For a file that is ingested alone this counts as a try; :meth:`release` undoes that.
        """
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        tried = (
            self._checkpoint(
                uri, stamp, "trying", tries=self._tries(known.get(uri), stamp) + chunk.alone, run=chunk.run_id
            )
            for uri, stamp in chunk.files
        )
        lake.save_file_checkpoints(chunk.table, tuple(tried))

    def release(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[FileCheckpoint, ...]:
        """Undo :meth:`begin` for files that still have no outcome, and return their checkpoints."""
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        unfinished = [one for uri in chunk.uris if (one := known.get(uri)) is not None and one.outcome == "trying"]
        why = _reason_of(None, error)
        # Without a run id: this run failed, or can't help with the remaining files.
        left = tuple(
            self._checkpoint(one.uri, one.stamp, "parked", tries=one.tries - chunk.alone, reason=why)
            for one in unfinished
            if one.run_id == chunk.run_id
        )
        if left:
            lake.save_file_checkpoints(chunk.table, left)
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
            lake.notify_given_up(_given_up(table, died, LakegateError.code))
            lake.save_file_checkpoints(table, (died,))
        return died

    def save_outcomes(
        self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> tuple[FileCheckpoint, ...]:
        """Save and return the outcomes of a chunk's files. Trouble that isn't the files' fault leaves no outcome."""
        problem = error or (run.error if run is not None else None)
        is_trouble = False
        if run is not None and error is None and run.status not in _ENDED_BADLY:
            checkpoints = self._outcomes_of_run(lake, backoff, chunk, run)
        elif is_trouble := _is_trouble(problem):
            backoff.record_trouble(chunk.uris)
            checkpoints = self._suspended(lake, chunk, error)
        else:
            checkpoints = self._failures_of(lake, _culprits(chunk, error), run, "failed", _reason_of(run, problem))
        for checkpoint in checkpoints:
            if checkpoint.outcome == "failed" and self.is_finished(checkpoint):
                # Alert first: after a crash between the two, a saved file would never be reported.
                code = LakegateError.code if problem is None else problem.code
                lake.notify_given_up(_given_up(chunk.table, checkpoint, code))
        if checkpoints:
            lake.save_file_checkpoints(chunk.table, checkpoints)
        if not is_trouble:
            for checkpoint in checkpoints:
                backoff.forget(checkpoint.uri)
        if chunk.run_id is not None and len(checkpoints) < len(chunk.uris):
            checkpoints += self.release(lake, chunk, error)
        return checkpoints

    def _outcomes_of_run(self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run) -> tuple[FileCheckpoint, ...]:
        if run.status == "rejected":
            return self._failures_of(lake, chunk, run, "rejected", _rejection_reason(run))
        if run.status in _ENDED_WELL:
            return tuple(self._finished_files(lake, backoff, chunk, run))
        backoff.hold_off(chunk.uris)
        return ()

    def _finished_files(self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run) -> Iterator[FileCheckpoint]:
        # If a file was found through a link, the run reports the skipped file under its real path.
        owners = {uri: one.run_id for one in run.skipped_files for uri in (one.file.uri, *one.file.aliases)}
        busy = {run_id for run_id in set(owners.values()) if not has_published(lake, run_id)}
        for uri, stamp in chunk.files:
            owner = owners.get(uri)
            if owner in busy:
                backoff.hold_off([uri])
                continue
            reason = run.detail if owner is None else f"Already published by run {owner}."
            yield self._checkpoint(uri, stamp, "done", run=owner or run.run_id, reason=reason)

    def _suspended(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[FileCheckpoint, ...]:
        """Return the files' checkpoints after trouble: none, unless their run is suspended."""
        run = None if chunk.run_id is None else find_run(lake, chunk.run_id)
        if run is None or run.finished_at is not None:
            return ()
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        return self._checkpoints(chunk, "parked", known, run_id=run.run_id, reason=_reason_of(None, error))

    def _failures_of(
        self, lake: Lake, chunk: Chunk, run: Run | None, outcome: Literal["rejected", "failed"], reason: str
    ) -> tuple[FileCheckpoint, ...]:
        known = lake.file_checkpoints(chunk.table, chunk.uris) if chunk.alone else {}
        run_id = None if run is None else run.run_id
        return self._checkpoints(chunk, outcome, known, more_tries=int(chunk.alone), run_id=run_id, reason=reason)

    def _checkpoints(
        self,
        chunk: Chunk,
        outcome: CheckpointOutcome,
        known: Mapping[str, FileCheckpoint],
        *,
        more_tries: int = 0,
        run_id: str | None = None,
        reason: str,
    ) -> tuple[FileCheckpoint, ...]:
        """Return checkpoints with one outcome for all files of the chunk, adding ``more_tries`` to their tries."""
        return tuple(
            self._checkpoint(
                uri,
                stamp,
                outcome,
                tries=self._tries_before(chunk, known, uri, stamp) + more_tries,
                run=run_id,
                reason=reason,
            )
            for uri, stamp in chunk.files
        )

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

    def _tries_before(self, chunk: Chunk, known: Mapping[str, FileCheckpoint], uri: str, stamp: str) -> int:
        """Return how often the file was tried before this chunk."""
        checkpoint = known.get(uri)
        begun = checkpoint is not None and checkpoint.outcome == "trying" and checkpoint.run_id == chunk.run_id
        return self._tries(checkpoint, stamp) - (begun and chunk.alone)

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


def _culprits(chunk: Chunk, error: LakegateError | None) -> Chunk:
    """Return the files that the error names, or all if it names none. The others can still be ingested together."""
    context = {} if error is None else error.context
    paths = context.get("paths", context.get("path"))
    named = {paths} if isinstance(paths, str) else set(paths) if isinstance(paths, (list, tuple)) else set()
    files = [(uri, stamp) for uri, stamp in chunk.files if shown(location(uri)) in named]
    if not files:
        return chunk
    return replace(chunk, uris=tuple(uri for uri, _ in files), stamps=tuple(stamp for _, stamp in files))


def _given_up(table: str, checkpoint: FileCheckpoint, code: str) -> GivenUpFile:
    return GivenUpFile(
        table=table,
        uri=checkpoint.uri,
        stamp=checkpoint.stamp,
        tries=checkpoint.tries,
        code=code,
        reason=checkpoint.reason or "",
        run_id=checkpoint.run_id,
    )


def _reason_of(run: Run | None, problem: LakegateError | RunError | None) -> str:
    if problem is not None:
        text = " ".join(problem.message.split())
        return text if len(text) <= _MAX_REASON_CHARS else text[: _MAX_REASON_CHARS - 1] + "…"
    return "It failed before a run started." if run is None else f"Run {run.run_id} is {run.status}."


def _rejection_reason(run: Run) -> str:
    failures = [
        f"{result.check} ({result.failing_rows:,} rows)" if result.failing_rows else result.check
        for result in run.failures
    ]
    more = f" and {len(failures) - _MAX_CHECKS_SHOWN} more" if len(failures) > _MAX_CHECKS_SHOWN else ""
    return f"Rejected by {', '.join(failures[:_MAX_CHECKS_SHOWN])}{more}."
