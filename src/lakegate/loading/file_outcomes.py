"""File outcomes: what happened to a chunk's files, as the journal stores it, and when each is retried."""

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

from lakegate.errors import EngineError, LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.loading.routes import location
from lakegate.model.batch import FileFormat
from lakegate.model.downstream import GivenUpFile
from lakegate.model.journal import CheckpointOutcome, FileCheckpoint
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run, RunError
from lakegate.progress import without_secrets
from lakegate.sources.files import shown
from lakegate.sources.inspection import by_name

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.sources.listing import FoundFile

_DIGEST_LETTERS = 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Files to ingest into one table together.

    Attributes:
        table: ``namespace.table``.
        size_bytes: Their length in bytes, together.
        alone: Whether it's a single file, which then answers for the outcome.
        stamps: The fingerprint that each of ``uris`` was seen with.
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

    def id_after(self, earlier: Sequence[str]) -> str:
        """Return a run id for these files in these states, the same on any machine at any time.

        Args:
            earlier: Ids of their earlier runs that came to nothing.

        Example:
            >>> Chunk("nyc.trips", ("s3://b/x.csv",), 9, True, ("9-e",)).id_after(())
            'files-c317eeeb7db6f2dd61e2'
        """
        named = [self.table, sorted(self.files), sorted(set(earlier))]
        digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()
        return f"files-{digest[:_DIGEST_LETTERS]}"


@dataclass(slots=True)
class Scan:
    """What one scan found.

    Attributes:
        chunks: What can be ingested now: runs to resume, then several files together, then single ones.
        settling: Files that may still be being written.
        done: Files with nothing left to do.
        given_up: Files that were rejected or failed too often and haven't changed since; a thousand at most.
        waiting: Files to try later: they failed, another run is working on them, or they're behind such a file.
        unrouted: Files without a table, and why; a thousand at most.
        more: Whether the scan stopped early because there's enough to do.
        resumed: Whether it resumed where the scan before it stopped.
        due_s: Seconds until a settling or waiting file may be ready; ``None`` if there are none.
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

    def settle(self, left_s: float) -> None:
        """Count a file that may be stable in ``left_s`` seconds."""
        self.settling += 1
        self._due(left_s)

    def wait(self, left_s: float) -> None:
        """Count a file to try in ``left_s`` seconds."""
        self.waiting += 1
        self._due(left_s)

    def _due(self, left_s: float) -> None:
        self.due_s = left_s if self.due_s is None else min(self.due_s, left_s)


@dataclass(frozen=True, slots=True)
class Ready:
    """A file that can be ingested.

    Attributes:
        alone: Whether it's ingested alone because it failed or was rejected together with others.
        tries: How often: a file that may kill the process comes after unknown ones.
    """

    table: str
    file: FoundFile
    alone: bool
    tries: int = 0


def in_chunks(ready: Sequence[Ready], *, max_files: int, max_bytes: int) -> tuple[Chunk, ...]:
    """Group files into chunks of one format; tables take turns, and files that go by themselves come last.

    Args:
        max_bytes: Bytes in a chunk, at most, unless one file alone has more.
    """
    together = defaultdict[tuple[str, FileFormat | None], list["FoundFile"]](list)
    for one in ready:
        if not one.alone:
            together[one.table, by_name(one.file.uri)].append(one.file)
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
"""Tries of a file that failed or was rejected together with others: it may not be the one."""

_RETRY_S = 30.0
_LONGEST_S = 3600.0
_BUSY_S = 5.0
_TROUBLE_S = 5.0
_LONGEST_TROUBLE_S = 300.0
_APART_AFTER = 2
_TOLD_CHECKS = 3
_TOLD_LETTERS = 500
_DIED_AFTER_S = 120.0
"""A run that is about to begin may not be in the journal yet; if it isn't by then, it never will be."""
_NEVER_FORGIVEN = frozenset({"done", "parked", "trying"})
_ENDED_WELL = frozenset({"published", "skipped", "reverted"})
_ENDED_BADLY = frozenset({"failed", "discarded"})


class Clock:
    """The time, which tests replace."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(slots=True)
class _Trouble:
    times: int
    failures: int
    others: int
    until: float


class Backoff:
    """Remembers, while this process lives, which files others are working on and which met trouble.

    Trouble is the catalog's, engine's or machine's fault. But if the engine fails at one file and works for others in
    between, it's the file's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: dict[str, float] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._worked = 0

    @property
    def has_worked(self) -> bool:
        """Whether any run came to its end."""
        return self._worked > 0

    def left_s(self, uri: str) -> float:
        """Return for how many seconds to leave the file alone."""
        trouble = self._troubles.get(uri)
        until = max(self._busy.get(uri, 0.0), trouble.until if trouble else 0.0)
        return max(0.0, until - self._clock.monotonic())

    def wants_apart(self, uri: str) -> bool:
        """Return whether the engine failed at the file so often that it should be ingested alone."""
        trouble = self._troubles.get(uri)
        return trouble is not None and trouble.failures >= _APART_AFTER

    def leave(self, uris: Iterable[str]) -> None:
        """Leave files alone for a while: others are working on them."""
        self._busy.update(dict.fromkeys(uris, self._clock.monotonic() + _BUSY_S))

    def meet(self, uri: str, *, failed: bool) -> bool:
        """Note that a file met trouble.

        Args:
            failed: Whether the engine was there, and failed.

        Returns:
            Whether the engine failed at it before too, and not at others in between.
        """
        known = self._troubles.get(uri, _Trouble(0, 0, self._worked, 0.0))
        until = self._clock.monotonic() + min(_TROUBLE_S * 2.0 ** min(known.times, 10), _LONGEST_TROUBLE_S)
        failures = known.failures + failed
        self._troubles[uri] = _Trouble(known.times + 1, failures, self._worked, until)
        return failures >= _APART_AFTER and known.others < self._worked

    def worked(self) -> None:
        """Record that a run ended: the trouble isn't everyone's."""
        self._worked += 1

    def forget(self, uri: str) -> None:
        """Forget a file that has an outcome."""
        self._busy.pop(uri, None)
        self._troubles.pop(uri, None)


class FileOutcomes:
    """Saves checkpoints, and decides by them what's left to do for a file.

    Args:
        max_tries: How often a file may fail in one state.
        again: Ignore rejections and failures from before now.
        announced: By URI, when a notification named files. What was rejected or given up before that is tried
            again: something else may have been wrong.
    """

    def __init__(
        self, clock: Clock, *, max_tries: int, again: bool, announced: Mapping[str, datetime] | None = None
    ) -> None:
        self._clock = clock
        self._max_tries = max_tries
        self._began = clock.now()
        self._again = again
        self._announced = announced or {}
        self._failed_at: dict[str, datetime] = {}

    def still_true(self, checkpoint: FileCheckpoint | None, stamp: str) -> FileCheckpoint | None:
        """Return the checkpoint if it counts for this state of the file."""
        if checkpoint is None or checkpoint.stamp != stamp:
            return None
        if checkpoint.outcome in _NEVER_FORGIVEN:
            return checkpoint
        forgiven = self._again and checkpoint.noted_at < self._began
        announced = self._announced.get(checkpoint.uri)
        return None if forgiven or (announced is not None and checkpoint.noted_at < announced) else checkpoint

    def is_finished(self, checkpoint: FileCheckpoint) -> bool:
        """Return whether to leave the file alone until it changes."""
        if checkpoint.outcome in ("parked", "trying"):
            return False
        if checkpoint.outcome == "failed":
            return checkpoint.tries >= self._max_tries
        return checkpoint.outcome == "done" or checkpoint.tries > TRIED_TOGETHER

    def left_s(self, checkpoint: FileCheckpoint | None) -> float:
        """Return the seconds until a file that failed alone is retried: 0 after a restart."""
        if checkpoint is None or checkpoint.tries == TRIED_TOGETHER or checkpoint.noted_at < self._began:
            return 0.0
        pause_s = min(_RETRY_S * 2.0 ** min(checkpoint.tries - 1, 10), _LONGEST_S)
        return max(0.0, (checkpoint.noted_at + timedelta(seconds=pause_s) - self._clock.now()).total_seconds())

    def begin(self, lake: Lake, chunk: Chunk) -> None:
        """Save that a run is about to try the files: if nothing follows, one of them killed its process.

        For a file that is ingested alone this counts as a try; :meth:`release` takes that back.
        """
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        self._failed_at |= {one.uri: one.noted_at for one in known.values() if one.outcome in ("failed", "parked")}
        tried = (
            self._checkpoint(
                uri, stamp, "trying", tries=self._tries(known.get(uri), stamp) + chunk.alone, run=chunk.run_id
            )
            for uri, stamp in chunk.files
        )
        lake.save_file_checkpoints(chunk.table, tuple(tried))

    def release(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[FileCheckpoint, ...]:
        """Undo :meth:`begin` for files without an outcome since, and return their checkpoints."""
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        unfinished = [one for uri in chunk.uris if (one := known.get(uri)) is not None and one.outcome == "trying"]
        why = _why(None, error)
        # Without a run: this one failed, or is useless for the files that are left.
        left = tuple(
            self._checkpoint(one.uri, one.stamp, "parked", tries=one.tries - chunk.alone, reason=why)
            for one in unfinished
            if one.run_id == chunk.run_id
        )
        if left:
            lake.save_file_checkpoints(chunk.table, left)
        return left

    def is_starting(self, checkpoint: FileCheckpoint) -> bool:
        """Return whether a file's run that the journal doesn't know may be about to begin."""
        age_s = (self._clock.now() - checkpoint.noted_at).total_seconds()
        return checkpoint.outcome == "trying" and age_s < _DIED_AFTER_S

    def after_death(self, lake: Lake, table: str, checkpoint: FileCheckpoint, run: Run | None) -> FileCheckpoint | None:
        """Return the outcome of a file whose process died, because of it or another file of its chunk.

        It's ingested alone from now on. ``None`` if it should just be retried.
        """
        if checkpoint.outcome != "trying" or (run is not None and run.status not in _ENDED_BADLY):
            return None
        why = "The process that worked on it died."
        died = checkpoint.model_copy(update={"outcome": "failed", "reason": why})
        if self.is_finished(died):
            lake.notify_given_up(_given_up(table, died, LakegateError.code))
            lake.save_file_checkpoints(table, (died,))
        return died

    def note(
        self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> tuple[FileCheckpoint, ...]:
        """Save and return the outcomes of a chunk's files; trouble that isn't theirs leaves no outcome."""
        is_trouble = False
        problem = error or (run.error if run is not None else None)
        if run is not None and error is None and run.status not in _ENDED_BADLY:
            checkpoints = self._of_run(lake, backoff, chunk, run)
        elif _is_trouble(problem) and not self._is_their_fault(lake, backoff, chunk, run, error):
            is_trouble = True
            checkpoints = self._unfinished(lake, chunk, error)
        else:
            checkpoints = self._bad(lake, _culprits(chunk, error), run, "failed", _why(run, problem))
        for checkpoint in checkpoints:
            if checkpoint.outcome == "failed" and self.is_finished(checkpoint):
                # Before saving that nothing is left to do: the alert must not get lost.
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

    def _of_run(self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run) -> tuple[FileCheckpoint, ...]:
        if run.status == "rejected":
            backoff.worked()
            return self._bad(lake, chunk, run, "rejected", _why_rejected(run))
        if run.status in _ENDED_WELL:
            backoff.worked()
            return tuple(self._done(lake, backoff, chunk, run))
        backoff.leave(chunk.uris)
        return ()

    def _done(self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run) -> Iterator[FileCheckpoint]:
        # A file that was found by a link is skipped by the name of the file itself.
        owners = {uri: one.run_id for one in run.skipped_files for uri in (one.file.uri, *one.file.aliases)}
        busy = {run_id for run_id in set(owners.values()) if not has_published(lake, run_id)}
        for uri, stamp in chunk.files:
            owner = owners.get(uri)
            if owner in busy:
                backoff.leave([uri])
                continue
            reason = run.detail if owner is None else f"Already published by run {owner}."
            yield self._checkpoint(uri, stamp, "done", run=owner or run.run_id, reason=reason)

    def _unfinished(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[FileCheckpoint, ...]:
        """Return the files' checkpoints after trouble: suspended with their run, or waiting."""
        run = None if chunk.run_id is None else find_run(lake, chunk.run_id)
        known = lake.file_checkpoints(chunk.table, chunk.uris)
        if run is not None and run.finished_at is None:
            return self._for_all(chunk, "parked", known, run_id=run.run_id, reason=_why(None, error))
        if chunk.run_id is None or not chunk.alone or not isinstance(error, EngineError):
            return ()
        # The engine failed at it, and perhaps at everything: the next try shows whether others succeed.
        return self._for_all(chunk, "failed", known, reason=_why(None, error))

    def _bad(
        self, lake: Lake, chunk: Chunk, run: Run | None, outcome: Literal["rejected", "failed"], reason: str
    ) -> tuple[FileCheckpoint, ...]:
        known = lake.file_checkpoints(chunk.table, chunk.uris) if chunk.alone else {}
        run_id = None if run is None else run.run_id
        return self._for_all(chunk, outcome, known, more_tries=int(chunk.alone), run_id=run_id, reason=reason)

    def _for_all(
        self,
        chunk: Chunk,
        outcome: CheckpointOutcome,
        known: Mapping[str, FileCheckpoint],
        *,
        more_tries: int = 0,
        run_id: str | None = None,
        reason: str,
    ) -> tuple[FileCheckpoint, ...]:
        """Return checkpoints of one outcome for the chunk's files, with ``more_tries`` than before this chunk."""
        return tuple(
            self._checkpoint(
                uri,
                stamp,
                outcome,
                tries=self._before(chunk, known, uri, stamp) + more_tries,
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

    def _before(self, chunk: Chunk, known: Mapping[str, FileCheckpoint], uri: str, stamp: str) -> int:
        """Return how often the file was tried before this chunk."""
        checkpoint = known.get(uri)
        begun = checkpoint is not None and checkpoint.outcome == "trying" and checkpoint.run_id == chunk.run_id
        return self._tries(checkpoint, stamp) - (begun and chunk.alone)

    def _tries(self, checkpoint: FileCheckpoint | None, stamp: str) -> int:
        known = self.still_true(checkpoint, stamp)
        return TRIED_TOGETHER if known is None else known.tries

    def _is_their_fault(
        self, lake: Lake, backoff: Backoff, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> bool:
        failed = isinstance(error, EngineError)
        again = [backoff.meet(uri, failed=failed) for uri in chunk.uris]
        if failed and run is not None and run.status in _ENDED_BADLY:
            # An orchestrator gave it up, after more than one try.
            return not chunk.alone or backoff.has_worked
        return chunk.alone and failed and (all(again) or self._others_worked(lake, chunk))

    def _others_worked(self, lake: Lake, chunk: Chunk) -> bool:
        """Return whether the engine, in any process, has worked for others since it failed at the chunk's file."""
        failed_at = self._failed_at.get(chunk.uris[0])
        return failed_at is not None and bool(lake.runs(status="published", since=failed_at, limit=1))


def find_run(lake: Lake, run_id: str) -> Run | None:
    """Return the run; ``None`` when the journal doesn't know it (any more)."""
    try:
        run = lake.run(run_id)
    except NotFoundError:
        return None
    return run if run.run_id == run_id else None


def has_published(lake: Lake, run_id: str) -> bool:
    """Return whether a run that had claimed a file has published it."""
    run = find_run(lake, run_id)
    # A run that the journal has lost is only known from what it published.
    return run is None or run.status in _ENDED_WELL


def _is_trouble(problem: LakegateError | RunError | None) -> bool:
    return problem is not None and problem.code in _codes(RetryableError) | {OutcomeUnknownError.code}


def _codes(kind: type[LakegateError]) -> set[str]:
    return {kind.code}.union(*(_codes(below) for below in kind.__subclasses__()))


def _culprits(chunk: Chunk, error: LakegateError | None) -> Chunk:
    """Return the files that the error names, if any: the others may go together."""
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


def _why(run: Run | None, problem: LakegateError | RunError | None) -> str:
    if problem is not None:
        return " ".join(problem.message.split())[:_TOLD_LETTERS]
    return "It didn't get as far as a run." if run is None else f"Run {run.run_id} is {run.status}."


def _why_rejected(run: Run) -> str:
    failures = [
        f"{result.check} ({result.failing_rows:,} rows)" if result.failing_rows else result.check
        for result in run.failures
    ]
    more = f" and {len(failures) - _TOLD_CHECKS} more" if len(failures) > _TOLD_CHECKS else ""
    return f"Rejected by {', '.join(failures[:_TOLD_CHECKS])}{more}."
