"""Scan: find new files, ingest them in chunks, and save the outcome of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING

from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    LakegateError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.lake import IngestOptions, Lake
from lakegate.loading.file_outcomes import (
    Backoff,
    Chunk,
    Clock,
    FileOutcomes,
    Ready,
    Scan,
    chunk_to_resume,
    find_run,
    in_chunks,
)
from lakegate.loading.routes import Places
from lakegate.model.journal import FileCheckpoint
from lakegate.model.request import IngestRequest
from lakegate.model.run import Run

if TYPE_CHECKING:
    from datetime import datetime

    from lakegate.loading.routes import Routes
    from lakegate.sources.listing import FoundFile

__all__ = ["Chunk", "Clock", "Intake", "Scan"]

_ASKED_AT_ONCE = 500
_CHUNKS_AHEAD = 10
_ALONE_AHEAD = 10
_SETTLING_AHEAD = 10_000
_TOLD = 1_000
_SECOND_LOOK_S = 0.5
"""Seconds between two looks at a file that seems old: other machines' clocks may be wrong."""
_SAY_NOTHING = frozenset({"skipped", "discarded", "reverted"})
"""Statuses after which another run may be wanted for the same files."""


class Intake:
    """Finds files below paths, and ingests them.

    Outcomes are in the journal, so another intake resumes from there. After a chunk of several files failed or was
    rejected, its files go one by one, so that a bad one stops no other.

    Args:
        options: How to ingest; ``run_id``, ``branch`` and ``on_busy`` are set for each chunk.
        settle_s: Seconds that a file must stay unchanged.
        max_bytes: Bytes in a chunk, at most, unless one file alone has more.
        max_tries: How often to try a file before giving it up until it changes. A rejected file isn't retried: its
            data is the same.
        again: Retry files that were rejected or given up before this intake was made.
        announced: By URI, when a notification named files. What was rejected or given up before that is retried.

    Attributes:
        lake: The lake; may be replaced after its servers were restarted.
        noted: The checkpoints saved last.
    """

    def __init__(
        self,
        lake: Lake,
        paths: Sequence[str],
        routes: Routes,
        *,
        options: IngestOptions | None = None,
        settle_s: float = 5.0,
        max_files: int = 100,
        max_bytes: int = 1 << 30,
        max_tries: int = 3,
        again: bool = False,
        announced: Mapping[str, datetime] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.lake = lake
        self.noted: tuple[FileCheckpoint, ...] = ()
        self._paths = list(paths)
        self._routes = routes
        self._options: IngestOptions = {} if options is None else options
        self._format = self._options.get("format")
        self._places = Places(self._paths, self._format)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._clock = clock or Clock()
        self._stable = _StableFiles(settle_s, self._clock)
        self._backoff = Backoff(self._clock)
        self._rest: Iterator[FoundFile] | None = None
        self._seen_open: set[str] = set()
        self._queued: dict[str, str] = {}
        self._outcomes = FileOutcomes(self._clock, max_tries=max_tries, again=again, announced=announced)

    @property
    def pending(self) -> Collection[str]:
        """URIs of known files that are neither done nor given up."""
        return self._stable.pending

    def scan(self, changed: Collection[str] | None = None) -> Scan:
        """Return new, stable files in chunks.

        It stops when there's enough to do for a while, so a burst of files needs little memory. The next full scan
        resumes behind the last file, so that a million files are listed once and not once per chunk; files that arrive
        in front of it are found by the scan that starts over.

        Args:
            changed: URIs or paths to scan, together with what an earlier scan left for later; by default everything
                below the paths.

        Raises:
            InputError: If a path can't be read.
            RetryableError: If the journal or the files' store is unreachable.
        """
        found = Scan(resumed=changed is None and self._rest is not None)
        look = _Look(found)
        try:
            listed = self._found(changed)
            while files := list(islice(listed, _ASKED_AT_ONCE)):
                self._sort(files, look)
                ahead = len(look.ready) + len(look.soon)
                if ahead >= _CHUNKS_AHEAD * self._max_files or found.settling >= _SETTLING_AHEAD:
                    found.more = True
                    break
            self._look_twice(look)
            self._leave_those_behind(look)
        except BaseException:
            self._rest = None
            raise
        if changed is None:
            self._rest = self._rest if found.more else None
            # Only what's pending: copying all that a pass has seen would make a million files cost a scan each.
            seen = {uri for uri in self._stable.pending if uri in self._seen_open} if found.resumed else set()
            self._seen_open = look.open | seen
        if not found.more:
            self._stable.forget(set(self._stable.pending) - (self._seen_open if changed is None else look.open))
        chunks = in_chunks(look.ready, max_files=self._max_files, max_bytes=self._max_bytes)
        found.chunks = (*map(chunk_to_resume, look.suspended.values()), *chunks)
        return found

    def take(self, chunk: Chunk, *, timeout_s: float | None = None) -> Run | None:
        """Ingest a chunk and save the outcomes; files that changed or vanished since the scan are left for later.

        Args:
            timeout_s: Seconds after which its run is suspended, for any intake of this lake to resume. The run's id is
                derived from the chunk then, so that another process with the same chunk finds it.

        Returns:
            The run as it ended; ``None`` if it failed (which is saved), or nothing of the chunk is left.

        Raises:
            RetryableError: If the catalog or engine is unreachable. It doesn't count as a try.
            OutcomeUnknownError: For the same reason.
            ConfigurationError: If the settings are wrong. It doesn't count either.
        """
        self.noted = ()
        left = chunk if chunk.run_id is not None else self._unchanged(chunk)
        if left is None:
            return None
        if timeout_s is not None:
            left = left if left.run_id is not None else replace(left, run_id=self._run_id(left))
            self._outcomes.begin(self.lake, left)
        try:
            run = self.lake.ingest(left.table, left.uris, **self._options_for(left, timeout_s))
        except ConfigurationError as error:
            if timeout_s is not None:
                self._outcomes.release(self.lake, left, error)
            raise
        except EngineError as error:
            if timeout_s is None or left.alone:
                self.note(left, None, error)
                raise
            run = self._taken_back(left, error)
        except (RetryableError, OutcomeUnknownError) as error:
            self.note(left, None, error)
            raise
        except LakegateError as error:
            self.note(left, None, error)
            return None
        except Exception as error:  # noqa: BLE001 - a file that trips us up must not do so forever
            self.note(left, None, LakegateError(f"Internal error: {type(error).__name__}: {error}"))
            return None
        self.note(left, run)
        return run

    def note(
        self, chunk: Chunk, run: Run | None, error: LakegateError | None = None, *, others_worked: bool = False
    ) -> None:
        """Save the outcomes of a chunk, for orchestrators that ran the steps themselves.

        Args:
            run: The run as it ended; ``None`` if there's none.
            error: Why it failed. An error that another try may not meet isn't counted; but when the engine failed at a
                run until that was given up, several files go apart, and a single one is counted if others worked.
            others_worked: Whether others did, though not by this intake.
        """
        if others_worked:
            self._backoff.worked()
        self.noted = self._outcomes.note(self.lake, self._backoff, chunk, run, error)
        for checkpoint in self.noted:
            # A resumed run may have been of an earlier state than the one seen since.
            if self._outcomes.is_finished(checkpoint) and self._stable.is_known_as(checkpoint.uri, checkpoint.stamp):
                self._stable.forget([checkpoint.uri])

    def is_free(self, chunk: Chunk) -> bool:
        """Return whether no process is working on the chunk's run.

        A run whose process died is settled, and one that is running elsewhere left to it. Both leave their files alone
        for a while.

        Raises:
            RetryableError: If the journal or catalog is unreachable.
        """
        if chunk.run_id is None or chunk.run_id in self.lake.suspended_runs():
            return True
        self.lake.recover()
        self._backoff.leave(chunk.uris)
        return False

    def _options_for(self, chunk: Chunk, timeout_s: float | None) -> IngestOptions:
        options: IngestOptions = {**self._options, "on_busy": "skip"}
        if not chunk.alone:
            # The chunk is retried file by file, and that shows what's wrong; nobody needs its common branch.
            options["on_failure"] = "drop"
        if chunk.run_id is not None:
            options["run_id"] = chunk.run_id
        if timeout_s is not None:
            options["timeout_s"] = timeout_s
        return options

    def _run_id(self, chunk: Chunk) -> str:
        """Return the id for a chunk's run: of one under way, or that has ended with an outcome, else a new one."""
        known = self.lake.file_checkpoints(chunk.table, chunk.uris).values()
        ended = (checkpoint for checkpoint in known if checkpoint.outcome not in ("parked", "trying"))
        base = chunk.id_after([checkpoint.run_id for checkpoint in ended if checkpoint.run_id is not None])
        numbered = (f"{base}-{number:03d}" for number in count(1))
        known_runs = ((run_id, find_run(self.lake, run_id)) for run_id in numbered)
        return next(run_id for run_id, run in known_runs if run is None or run.status not in _SAY_NOTHING)

    def _taken_back(self, chunk: Chunk, error: EngineError) -> Run:
        """Undo a run of several files at which the engine failed: trying each alone shows which one it was."""
        try:
            return self.lake.cancel_run(str(chunk.run_id), reason=error.message)
        except RetryableError:
            self.note(chunk, None, error)
            raise

    def _found(self, changed: Collection[str] | None) -> Iterator[FoundFile]:
        if changed is None:
            if self._rest is None:
                self._rest = iter(self.lake.list_files(self._paths, format=self._format))
                return self._rest
            return chain(self._again(), self._rest)
        asked = [*dict.fromkeys([*self._stable.pending, *changed])]
        # A key that ends in "/" is a folder that somebody created in a console, and no file; asked for, it would mean
        # all that is below it.
        asked = [uri for uri in asked if "://" not in uri or not uri.endswith("/")]
        found = self.lake.list_files(asked, format=self._format) if asked else iter(())
        return (file for file in found if self._places.hold(file.uri))

    def _again(self) -> Sequence[FoundFile]:
        """Return known files that come before those not listed yet; of a table whose files go alone, only the next one.

        To look at all of a long queue each time would cost as much again for each of its files.
        """
        next_ones: dict[str, str] = {}
        others: list[str] = []
        for uri in self._stable.pending:
            table = self._queued.get(uri)
            if table is not None:
                next_ones[table] = min(uri, next_ones.get(table, uri))
            elif len(others) < _ASKED_AT_ONCE:
                others.append(uri)
        asked = [*next_ones.values(), *others]
        found = self._listed(asked) if asked else {}
        self._stable.forget(set(asked) - found.keys())
        return list(found.values())

    def _sort(self, files: Iterable[FoundFile], look: _Look) -> None:
        by_table = defaultdict[str, list["FoundFile"]](list)
        for file in files:
            table = self._table(file, look)
            if table is not None and file.uri not in look.open:
                by_table[table].append(file)
        for table, group in by_table.items():
            known = self.lake.file_checkpoints(table, [file.uri for file in group])
            alone = self._goes_alone(table)
            for file in sorted(group, key=lambda one: one.uri) if alone else group:
                self._place(Ready(table, file, alone=alone), known, look)

    def _goes_alone(self, table: str) -> bool:
        """Return whether a table's files go one by one, in order: two may have the same key, or the same partition."""
        try:
            return self.lake.mode_of(table, **self._options).name != "append"
        except LakegateError:
            return False  # their ingest says what is wrong

    def _table(self, file: FoundFile, look: _Look) -> str | None:
        try:
            table = self._routes.table(file.uri)
            reason = "No route matches it."
        except IdentifierError as error:
            table, reason = None, error.message
        if table is None and len(look.found.unrouted) < _TOLD and (file.uri, reason) not in look.found.unrouted:
            look.found.unrouted.append((file.uri, reason))
        return table

    def _place(self, one: Ready, known: Mapping[str, FileCheckpoint], look: _Look) -> None:
        file = one.file
        checkpoint = self._outcomes.still_true(known.get(file.uri), file.stamp)
        if checkpoint is not None and checkpoint.outcome in ("parked", "trying"):
            if self._still_waits(checkpoint, look):
                self._stable.left_s(file)
                self._is_first(one, look)
                return
            checkpoint = self._outcomes.after_death(self.lake, one.table, checkpoint, look.runs[str(checkpoint.run_id)])
        if checkpoint is not None and self._outcomes.is_finished(checkpoint):
            self._stable.forget([file.uri])
            if checkpoint.outcome == "done":
                look.found.done += 1
            elif len(look.found.given_up) < _TOLD:
                look.found.given_up.append(checkpoint)
            return
        look.open.add(file.uri)
        alone = one.alone or checkpoint is not None or self._backoff.wants_apart(file.uri)
        left_s = self._stable.left_s(file)
        if not self._is_first(one, look):
            return  # taken now, an earlier file that is tried again would put its older rows over those of this one
        seen = Ready(one.table, file, alone, 0 if checkpoint is None else checkpoint.tries)
        if 0.0 < left_s <= _SECOND_LOOK_S:
            look.soon.append((seen, checkpoint, left_s))
        elif left_s > 0.0:
            look.found.settle(left_s)
        else:
            self._offer(seen, checkpoint, look)

    def _is_first(self, one: Ready, look: _Look) -> bool:
        """Return whether no file must be taken before this one: of a table whose files go alone, any before it."""
        if not one.alone:
            self._queued.pop(one.file.uri, None)
            return True
        self._queued[one.file.uri] = one.table
        return look.first.setdefault(one.table, one.file.uri) == one.file.uri

    def _still_waits(self, checkpoint: FileCheckpoint, look: _Look) -> bool:
        """Return whether the file's run still waits, and resume it when it's time."""
        run_id = str(checkpoint.run_id)
        if run_id not in look.runs:
            look.runs[run_id] = find_run(self.lake, run_id)
        run = look.runs[run_id]
        if run is None and self._outcomes.is_starting(checkpoint):
            look.open.add(checkpoint.uri)
            look.found.wait(_SECOND_LOOK_S)
            return True
        if run is None or run.finished_at is not None or run.order is None:
            return False
        look.open.add(checkpoint.uri)
        left_s = self._backoff.left_s(checkpoint.uri)
        if left_s > 0.0:
            look.found.wait(left_s)
        else:
            look.suspended[run_id] = run.order
        return True

    def _offer(self, one: Ready, checkpoint: FileCheckpoint | None, look: _Look) -> None:
        left_s = max(self._backoff.left_s(one.file.uri), self._outcomes.left_s(checkpoint))
        if left_s > 0.0:
            look.found.wait(left_s)
        elif one.alone and sum(ready.alone for ready in look.ready) >= _ALONE_AHEAD:
            look.found.more = True
        else:
            look.ready.append(one)

    def _look_twice(self, look: _Look) -> None:
        """Look again, after a moment, at the files that only need a second look."""
        if not look.soon:
            return
        self._clock.sleep(max(left_s for _, _, left_s in look.soon))
        now = self._listed([one.file.uri for one, _, _ in look.soon])
        for one, checkpoint, _ in look.soon:
            file = now.get(one.file.uri)
            if file is None:
                look.open.discard(one.file.uri)
                self._stable.forget([one.file.uri])
                continue
            left_s = self._stable.left_s(file)
            if left_s > 0.0:
                look.found.settle(left_s)
            else:
                self._offer(replace(one, file=file), checkpoint, look)

    def _leave_those_behind(self, look: _Look) -> None:
        """Have the files behind others scanned when those are done: at once, if they're taken now, or gone."""
        self._queued = {uri: table for uri, table in self._queued.items() if uri in self._stable.pending}
        # Only a resumed scan leaves some out that it knows of; what another didn't see is gone.
        there = Counter(table for uri, table in self._queued.items() if look.found.resumed or uri in look.open)
        taken = {one.table for one in look.ready} | {str(order.table) for order in look.suspended.values()}
        for table, number in there.items():
            if look.first.get(table) not in self._queued:
                look.found.more = True
            elif table not in taken:
                look.found.waiting += number - 1
            elif number > 1:
                look.found.more = True

    def _listed(self, uris: Sequence[str]) -> Mapping[str, FoundFile]:
        return {file.uri: file for file in self.lake.list_files(uris, format=self._format)}

    def _unchanged(self, chunk: Chunk) -> Chunk | None:
        """Return the chunk's unchanged files; objects in a store can't be half written."""
        if not any(uri.startswith("file:") for uri in chunk.uris):
            return chunk
        now = self._listed(chunk.uris)
        same = [now[uri] for uri, stamp in chunk.files if uri in now and now[uri].stamp == stamp]
        made = in_chunks(
            [Ready(chunk.table, file, alone=False) for file in same],
            max_files=len(chunk.uris),
            max_bytes=sum(file.size_bytes for file in same),
        )
        return made[0] if made else None


@dataclass(slots=True)
class _Look:
    """A scan under way, and what it has found so far."""

    found: Scan
    ready: list[Ready] = field(default_factory=list)
    soon: list[tuple[Ready, FileCheckpoint | None, float]] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    runs: dict[str, Run | None] = field(default_factory=dict)
    suspended: dict[str, IngestRequest] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)


class _StableFiles:
    """Stable-file detection: remembers the files that aren't ingested yet, and when each stops changing.

    A file is stable if it was unchanged for ``settle_s`` seconds, by its modification time and a second look, or by our
    own looks alone if its time can't be right. Objects in a store appear whole: they need no second look.
    """

    def __init__(self, settle_s: float, clock: Clock) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    @property
    def pending(self) -> Collection[str]:
        """URIs of the remembered files."""
        return self._seen.keys()

    def left_s(self, file: FoundFile) -> float:
        """Return the seconds until another look may find the file stable; 0 if it is."""
        now = self._clock.monotonic()
        stamp, since = self._seen.get(file.uri, ("", 0.0))
        if stamp != file.stamp:
            since = now
            self._seen[file.uri] = (file.stamp, now)
        seen_s = now - since
        age_s = (self._clock.now() - file.modified_at).total_seconds()
        second_look_s = min(_SECOND_LOOK_S, self._settle_s) if file.uri.startswith("file:") else 0.0
        return max(0.0, min(self._settle_s - seen_s, max(self._settle_s - age_s, second_look_s - seen_s)))

    def is_known_as(self, uri: str, stamp: str) -> bool:
        """Return whether the file was last seen in that state, or isn't remembered."""
        return self._seen.get(uri, (stamp, 0.0))[0] == stamp

    def forget(self, uris: Iterable[str]) -> None:
        """Forget files that are done, given up or gone."""
        for uri in uris:
            self._seen.pop(uri, None)
