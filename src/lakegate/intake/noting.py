"""Noting: what became of a chunk's files, as the journal's landings, and what follows from these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from lakegate.errors import EngineError, LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.intake.chunks import Chunk
from lakegate.intake.patience import Patience
from lakegate.intake.places import location
from lakegate.intake.settling import Clock
from lakegate.model.journal import Landing
from lakegate.model.notices import GivenUpFile
from lakegate.model.run import Run
from lakegate.sources.paths import shown

if TYPE_CHECKING:
    from lakegate.lake import Lake

TRIED_TOGETHER = 0
"""Tries of a file that failed or was rejected together with others: it is not known yet whether it is the one."""

_RETRY_S = 30.0
_LONGEST_S = 3600.0
_TOLD_CHECKS = 3
_TOLD_TOGETHER = 2
_TOLD_LETTERS = 500
_NEVER_FORGIVEN = frozenset({"done", "parked"})
_ENDED_WELL = frozenset({"published", "skipped", "reverted"})
_ENDED_BADLY = frozenset({"failed", "discarded"})


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody who tells of files, such as a queue, says of one.

    Attributes:
        at: When it was told of, repetitions apart. That the file was rejected or given up before that does not count:
            what was wrong may not have been the file.
        times: How often it was told of since, because nobody has said that it is done.
    """

    at: datetime
    times: int = 1


class Noting:
    """Writes landings, and reads from them what is left to do for a file.

    Args:
        clock: The time.
        max_tries: How often a file may fail in one state.
        again: Whether rejections and failures from before now do not count.
        told: By URI, when and how often somebody told of files.
    """

    def __init__(self, clock: Clock, *, max_tries: int, again: bool, told: Mapping[str, Told] | None = None) -> None:
        self._clock = clock
        self._max_tries = max_tries
        self._began = clock.now()
        self._again = again
        self._told = told or {}

    def still_true(self, landing: Landing | None, stamp: str) -> Landing | None:
        """Return the landing when it is of this state of the file, and counts."""
        if landing is None or landing.stamp != stamp:
            return None
        if landing.outcome in _NEVER_FORGIVEN:
            return landing
        forgiven = self._again and landing.noted_at < self._began
        told = self._told.get(landing.uri)
        return None if forgiven or (told is not None and landing.noted_at < told.at) else landing

    def wants_apart(self, uri: str) -> bool:
        """Tell whether those who were told of the file before did not come back from it, so that it goes by itself."""
        told = self._told.get(uri)
        return told is not None and told.times > _TOLD_TOGETHER

    def is_finished(self, landing: Landing) -> bool:
        """Tell whether the file is left alone for good, or until it changes."""
        if landing.outcome == "parked":
            return False
        if landing.outcome == "failed":
            return landing.tries >= self._max_tries
        return landing.outcome == "done" or landing.tries > TRIED_TOGETHER

    def left_s(self, landing: Landing | None) -> float:
        """Return the seconds until a file that failed by itself is tried again; 0 when it is time.

        Who starts anew has waited long enough: a schedule's next look is the next try.
        """
        if landing is None or landing.tries == TRIED_TOGETHER or landing.noted_at < self._began:
            return 0.0
        pause_s = min(_RETRY_S * 2.0 ** min(landing.tries - 1, 10), _LONGEST_S)
        return max(0.0, (landing.noted_at + timedelta(seconds=pause_s) - self._clock.now()).total_seconds())

    def note(
        self, lake: Lake, patience: Patience, chunk: Chunk, run: Run | None, error: LakegateError | None
    ) -> tuple[Landing, ...]:
        """Write down what became of a chunk, and return that; of trouble that is nobody's fault nothing is written."""
        if run is not None and error is None and run.status not in _ENDED_BADLY:
            landings = self._of_run(lake, patience, chunk, run)
        elif _is_trouble(run, error) and not _is_their_fault(patience, chunk, run, error):
            landings = self._parked(lake, chunk, error)
        else:
            landings = self._bad(lake, _culprits(chunk, error), run, "failed", _why_failed(run, error))
        for landing in landings:
            if landing.outcome == "failed" and self.is_finished(landing):
                # Before it is written down that nothing is left to do: it is told of once, but not lost.
                lake.notify_given_up(_given_up(chunk.table, landing, _code(run, error)))
        if landings:
            lake.note_landings(chunk.table, landings)
        for landing in landings:
            if landing.outcome != "parked":
                patience.forget(landing.uri)
        return landings

    def _of_run(self, lake: Lake, patience: Patience, chunk: Chunk, run: Run) -> tuple[Landing, ...]:
        if run.status == "rejected":
            patience.worked()
            return self._bad(lake, chunk, run, "rejected", _why_rejected(run))
        if run.status in _ENDED_WELL:
            patience.worked()
            return tuple(self._done(lake, patience, chunk, run))
        patience.leave(chunk.uris)
        return ()

    def _done(self, lake: Lake, patience: Patience, chunk: Chunk, run: Run) -> Iterator[Landing]:
        owners = {known.file.uri: known.run_id for known in run.skipped_files}
        busy = {run_id for run_id in set(owners.values()) if not _has_published(lake, run_id)}
        for uri, stamp in zip(chunk.uris, chunk.stamps, strict=True):
            owner = owners.get(uri)
            if owner in busy:
                patience.leave([uri])
                continue
            reason = run.detail if owner is None else f"Already published by run {owner}."
            yield Landing(
                uri=uri,
                stamp=stamp,
                outcome="done",
                run_id=owner or run.run_id,
                reason=reason,
                noted_at=self._clock.now(),
            )

    def _parked(self, lake: Lake, chunk: Chunk, error: LakegateError | None) -> tuple[Landing, ...]:
        """Return where the files are while their run waits; nothing, when it does not."""
        run = None if chunk.run_id is None else find_run(lake, chunk.run_id)
        if run is None or run.finished_at is not None:
            return ()
        known = lake.landings(chunk.table, chunk.uris)
        return tuple(
            Landing(
                uri=uri,
                stamp=stamp,
                outcome="parked",
                tries=self._tries(known.get(uri), stamp),
                run_id=run.run_id,
                reason=_why_failed(None, error),
                noted_at=self._clock.now(),
            )
            for uri, stamp in zip(chunk.uris, chunk.stamps, strict=True)
        )

    def _bad(
        self, lake: Lake, chunk: Chunk, run: Run | None, outcome: Literal["rejected", "failed"], reason: str
    ) -> tuple[Landing, ...]:
        known = lake.landings(chunk.table, chunk.uris) if chunk.alone else {}
        return tuple(
            Landing(
                uri=uri,
                stamp=stamp,
                outcome=outcome,
                tries=self._tries(known.get(uri), stamp) + 1 if chunk.alone else TRIED_TOGETHER,
                run_id=run.run_id if run is not None else None,
                reason=reason,
                noted_at=self._clock.now(),
            )
            for uri, stamp in zip(chunk.uris, chunk.stamps, strict=True)
        )

    def _tries(self, landing: Landing | None, stamp: str) -> int:
        known = self.still_true(landing, stamp)
        return TRIED_TOGETHER if known is None else known.tries


def find_run(lake: Lake, run_id: str) -> Run | None:
    """Return the run; ``None`` when the journal does not know it (any more)."""
    try:
        return lake.run(run_id)
    except NotFoundError:
        return None


def _has_published(lake: Lake, run_id: str) -> bool:
    run = find_run(lake, run_id)
    # A run that the journal has lost can only be known from what it published.
    return run is None or run.status in _ENDED_WELL


def _is_trouble(run: Run | None, error: LakegateError | None) -> bool:
    if error is None and run is not None and run.error is not None:
        return run.error.code in _codes(RetryableError) | {OutcomeUnknownError.code}
    return isinstance(error, (RetryableError, OutcomeUnknownError))


def _is_their_fault(patience: Patience, chunk: Chunk, run: Run | None, error: LakegateError | None) -> bool:
    failed = isinstance(error, EngineError)
    again = [patience.meet(uri, failed=failed) for uri in chunk.uris]
    if failed and run is not None and run.status in _ENDED_BADLY:
        # An orchestrator gave it up, which has tried more than once.
        return not chunk.alone or patience.has_worked
    return chunk.alone and failed and all(again)


def _codes(kind: type[LakegateError]) -> set[str]:
    return {kind.code}.union(*(_codes(below) for below in kind.__subclasses__()))


def _culprits(chunk: Chunk, error: LakegateError | None) -> Chunk:
    """Return those of a chunk's files that the error names, when it names some; the others may go on together."""
    context = {} if error is None else error.context
    paths = context.get("paths", context.get("path"))
    named = {paths} if isinstance(paths, str) else set(paths) if isinstance(paths, (list, tuple)) else set()
    files = [(uri, stamp) for uri, stamp in zip(chunk.uris, chunk.stamps, strict=True) if shown(location(uri)) in named]
    if not files:
        return chunk
    return replace(chunk, uris=tuple(uri for uri, _ in files), stamps=tuple(stamp for _, stamp in files))


def _given_up(table: str, landing: Landing, code: str) -> GivenUpFile:
    return GivenUpFile(
        table=table,
        uri=landing.uri,
        stamp=landing.stamp,
        tries=landing.tries,
        code=code,
        reason=landing.reason or "",
        run_id=landing.run_id,
    )


def _code(run: Run | None, error: LakegateError | None) -> str:
    known = error if error is not None else run.error if run is not None else None
    return LakegateError.code if known is None else known.code


def _why_failed(run: Run | None, error: LakegateError | None) -> str:
    message = error.message if error is not None else run.error.message if run is not None and run.error else None
    if message is not None:
        return " ".join(message.split())[:_TOLD_LETTERS]
    return "It came to nothing." if run is None else f"Run {run.run_id} is {run.status}."


def _why_rejected(run: Run) -> str:
    failures = [
        f"{result.check} ({result.failing_rows:,} rows)" if result.failing_rows else result.check
        for result in run.failures
    ]
    more = f" and {len(failures) - _TOLD_CHECKS} more" if len(failures) > _TOLD_CHECKS else ""
    return f"Rejected by {', '.join(failures[:_TOLD_CHECKS])}{more}."
