"""Scan: find new files, ingest them in chunks, and save the outcome of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING

from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    LakegateError,
    NewerFormatError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
    internal_error,
)
from lakegate.lake import Lake
from lakegate.loading.file_outcomes import Chunk, Clock, FileOutcomes, ReadyFile, Scan, find_run, in_chunks
from lakegate.loading.routes import WatchedPaths
from lakegate.model.batch import LeftOut
from lakegate.model.request import IngestOptions
from lakegate.model.run import FileCheckpoint, Run

if TYPE_CHECKING:
    from datetime import datetime

    from lakegate.loading.routes import Routes
    from lakegate.sources.discovery import FoundFile

__all__ = ["Chunk", "Clock", "FileLoader", "Scan"]

_BATCH_SIZE = 500
_MAX_CHUNKS = 10
_MAX_SINGLE_FILES = 10
_MAX_SETTLING = 10_000
_MAX_REPORTED = 1_000
_RECHECK_S = 0.5
"""Seconds until a file that looks old is checked again: its modification time may come from a wrong clock."""
_INCONCLUSIVE = frozenset({"skipped", "discarded", "reverted"})
"""Final statuses that still allow another run for the same files."""


class FileLoader:
    """Finds files at paths and ingests them.

    Outcomes are saved in the journal, so another loader resumes where this one stopped. When a chunk of several files
    fails or is rejected, its files are retried one by one, so that a bad file doesn't block the others.

    Args:
        options: How to ingest; ``run_id``, ``branch`` and ``on_busy`` are set for each chunk.
        settle_s: Seconds that a file must stay unchanged.
        max_bytes: Maximum size of a chunk. A larger file gets a chunk of its own.
        max_tries: How often to try a file before giving up on it until it changes. A rejected file isn't retried: its
            data would be the same.
        again: Retry files that were rejected or given up before this loader was created.
        announced: By URI, when a notification named the file. Its earlier rejections and failures are ignored.
        ingest: Ingests the files of a chunk into a table. Default: :meth:`lakegate.intake.Intake.ingest`.

    Attributes:
        lake: The lake. May be replaced after its servers were restarted.
        saved: The checkpoints saved last.
        failure: Why the last chunk has no run.
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
        ingest: Callable[[Lake, str, Sequence[str], IngestOptions], Run] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.lake = lake
        self.saved: tuple[FileCheckpoint, ...] = ()
        self.failure: LakegateError | None = None
        self._paths = paths
        self._routes = routes
        self._options = options or IngestOptions()
        self._ingest = ingest or _ingest_by_lake
        self._format = self._options.format
        self._places = WatchedPaths(self._paths)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._clock = clock or Clock()
        self._stable = _StableFiles(settle_s, self._clock)
        self._unlisted: Iterator[FoundFile] | None = None
        self._left_out: list[LeftOut] = []
        self._unseen: set[str] = set()
        self._outcomes = FileOutcomes(self._clock, max_tries=max_tries, again=again, announced=announced)

    @property
    def pending(self) -> Collection[str]:
        """URIs of known files that are neither finished nor given up."""
        return self._stable.pending

    def scan(self, changed: Collection[str] | None = None) -> Scan:
        """Return new, stable files in chunks.

        A scan stops once it has found enough work, so that a burst of files needs little memory. The next full scan
        resumes after the last file, so that a million files are listed once and not once per chunk. Files that arrive
        before that point are found when scanning starts over.

        Args:
            changed: URIs or paths to scan, in addition to the pending files; by default everything at the paths.

        Raises:
            InputError: If a path can't be read.
            RetryableError: If the journal or the files' store is unreachable.
        """
        found = Scan(resumed=changed is None and self._unlisted is not None)
        unseen = self._unseen if found.resumed else set(self._stable.pending)
        state = _ScanState(found, unseen)
        try:
            listed = self._files_to_scan(changed)
            while files := list(islice(listed, _BATCH_SIZE)):
                self._classify_all(files, state)
                ahead = len(state.ready) + len(state.recheck)
                if ahead >= _MAX_CHUNKS * self._max_files or found.settling >= _MAX_SETTLING:
                    found.more = True
                    break
            found.unrouted += [(one.uri, f"{one.reason[0].upper()}{one.reason[1:]}.") for one in self._left_out]
            self._left_out.clear()
            self._check_again(state)
        except BaseException:
            self._unlisted = None
            raise
        if changed is None:
            self._unlisted = self._unlisted if found.more else None
            self._unseen = unseen
        if not found.more:
            self._stable.forget(unseen)
        chunks = in_chunks(state.ready, max_files=self._max_files, max_bytes=self._max_bytes)
        found.chunks = (*state.suspended.values(), *chunks)
        return found

    def ingest(self, chunk: Chunk, *, timeout_s: float | None = None) -> Run | None:
        """Ingest a chunk and save the outcomes. Files that changed or vanished since the scan are left for later.

        Args:
            timeout_s: Seconds after which the run is suspended, for any loader of this lake to resume. The run id is
                then derived from the chunk, so that another process with the same chunk finds the run.

        Returns:
            The finished run. ``None`` if it failed, which is saved, or if no file of the chunk is left.

        Raises:
            EngineError: If the engine failed. Counts as a try of a single file; several are then tried one by one.
            RetryableError: If the catalog or engine is unreachable. Doesn't count as a try.
            OutcomeUnknownError: If a commit got no answer. Doesn't count as a try.
            ConfigurationError: If the settings are wrong. Doesn't count as a try.
            NewerFormatError: If a newer lakegate wrote to the lake, so that this one can't. Doesn't count as a try.
        """
        self.saved, self.failure = (), None
        left = chunk if chunk.run_id is not None else self._unchanged(chunk)
        if left is None:
            return None
        if timeout_s is not None:
            left = left if left.run_id is not None else replace(left, run_id=self._run_id(left))
            self._outcomes.begin(self.lake, left)
        try:
            run: Run | None = self._ingest(self.lake, left.table, left.uris, self._options_for(left, timeout_s))
        except ConfigurationError as error:
            if timeout_s is not None:
                self._outcomes.release(self.lake, left, error)
            raise
        except (RetryableError, OutcomeUnknownError, NewerFormatError) as error:
            is_begun = timeout_s is not None and isinstance(error, EngineError)
            self.save_outcomes(left, self._cancel(left, error) if is_begun else None, error)
            raise
        except Exception as error:  # noqa: BLE001 - a file that triggers a bug must not be retried forever
            self.save_outcomes(left, None, error if isinstance(error, LakegateError) else internal_error(error))
            return None
        self.save_outcomes(left, run)
        return run

    def save_outcomes(self, chunk: Chunk, run: Run | None, error: LakegateError | None = None) -> None:
        """Save the outcomes of a chunk.

        Args:
            run: The finished run; ``None`` if there's none.
            error: Why it failed. A retryable error doesn't count as a try, unless the engine failed.
        """
        self.failure = error
        self.saved = self._outcomes.save_outcomes(self.lake, chunk, run, error)
        for checkpoint in self.saved:
            # A resumed run may have ingested an older version of the file than the one seen since.
            if self._outcomes.is_finished(checkpoint) and self._stable.is_known_as(checkpoint.uri, checkpoint.stamp):
                self._stable.forget([checkpoint.uri])

    def is_free(self, chunk: Chunk) -> bool:
        """Return whether no process is working on the chunk's run.

        If one is, or died doing so, dead runs are recovered and the chunk's files are left alone for a few seconds.

        Raises:
            RetryableError: If the journal or catalog is unreachable.
        """
        if chunk.run_id is None or chunk.run_id in self.lake.maintenance.suspended_runs():
            return True
        self.lake.recover()
        self._outcomes.hold_off(chunk.uris)
        return False

    def _options_for(self, chunk: Chunk, timeout_s: float | None) -> IngestOptions:
        return replace(
            self._options,
            run_id=chunk.run_id,
            # The files are retried one by one, each with a branch of its own, so nobody needs the common branch.
            on_failure=self._options.on_failure if chunk.alone else "drop",
            on_busy="skip",
            timeout_s=timeout_s,
        )

    def _run_id(self, chunk: Chunk) -> str:
        """Return the id of the chunk's current or conclusive run, or a new id if it has none."""
        known = self.lake.files.checkpoints(chunk.table, chunk.uris).values()
        base = chunk.derive_run_id(
            [one.run_id for one in known if one.outcome not in ("parked", "trying") and one.run_id is not None]
        )
        for number in count(1):
            run_id = f"{base}-{number:03d}"
            run = find_run(self.lake, run_id)
            if run is None or run.status not in _INCONCLUSIVE:
                break
        return run_id

    def _cancel(self, chunk: Chunk, error: LakegateError) -> Run | None:
        """Cancel a suspended run after an engine failure, if it had started, so that its files are free."""
        try:
            # What the engine said, which may quote values, is in the run.
            return self.lake.cancel_run(str(chunk.run_id), reason="The engine failed.")
        except NotFoundError:
            return None
        except RetryableError:
            self.save_outcomes(chunk, None, error)
            raise

    def _files_to_scan(self, changed: Collection[str] | None) -> Iterator[FoundFile]:
        if changed is None:
            if self._unlisted is None:
                self._unlisted = iter(
                    self.lake.files.list(self._paths, format=self._format, left_out=self._left_out.append)
                )
                return self._unlisted
            return chain(self._passed_files(), self._unlisted)
        paths = [*dict.fromkeys([*self._stable.pending, *changed])]
        # A key that ends in "/" is an empty marker that a console created for a folder. Listing it would list the
        # whole folder.
        paths = [uri for uri in paths if "://" not in uri or not uri.endswith("/")]
        found = self.lake.files.list(paths, format=self._format) if paths else iter(())
        contain = self._places.contain
        return (file for file in found if contain(file.uri, is_recognised=file.is_recognised))

    def _passed_files(self) -> Sequence[FoundFile]:
        """List pending files that a resumed scan has already passed."""
        paths = list(islice(self._stable.pending, _BATCH_SIZE))
        found = self._listed(paths) if paths else {}
        self._stable.forget(set(paths) - found.keys())
        return list(found.values())

    def _classify_all(self, files: Iterable[FoundFile], state: _ScanState) -> None:
        by_table = defaultdict[str, list["FoundFile"]](list)
        for file in files:
            table = self._table(file, state.found)
            if table is not None and file.uri not in state.offered:
                by_table[table].append(file)
        for table, group in by_table.items():
            known = self.lake.files.checkpoints(table, [file.uri for file in group])
            alone = self._needs_order(table)
            for file in sorted(group, key=lambda one: one.uri) if alone else group:
                checkpoint = self._outcomes.current(known.get(file.uri), file.stamp)
                self._classify(ReadyFile(table, file, alone, checkpoint), state)

    def _needs_order(self, table: str) -> bool:
        """Return whether to ingest a table's files one by one, sorted by name: two may share a key or a partition."""
        try:
            return self.lake.intake.mode_of(table, self._options).name != "append"
        except LakegateError:
            return False  # ingesting them reports what's wrong

    def _table(self, file: FoundFile, found: Scan) -> str | None:
        try:
            table = self._routes.table(file.uri)
            reason = "No route matches it."
        except IdentifierError as error:
            table, reason = None, error.message
        if table is None and len(found.unrouted) < _MAX_REPORTED and (file.uri, reason) not in found.unrouted:
            found.unrouted.append((file.uri, reason))
        return table

    def _classify(self, one: ReadyFile, state: _ScanState) -> None:
        file, checkpoint = one.file, one.checkpoint
        state.unseen.discard(file.uri)
        if checkpoint is not None and checkpoint.outcome in ("parked", "trying"):
            if self._is_suspended(checkpoint, state):
                state.offered.add(file.uri)
                self._stable.left_s(file)  # remembers it as pending
                return
            run = state.runs[str(checkpoint.run_id)]
            checkpoint = self._outcomes.after_crash(self.lake, one.table, checkpoint, run)
        if checkpoint is not None and self._outcomes.is_finished(checkpoint):
            self._stable.forget([file.uri])
            if checkpoint.outcome == "done":
                state.found.done += 1
            elif len(state.found.given_up) < _MAX_REPORTED:
                state.found.given_up.append(checkpoint)
            return
        state.offered.add(file.uri)
        left_s = self._stable.left_s(file)
        one = ReadyFile(one.table, file, one.alone or checkpoint is not None, checkpoint)
        if 0.0 < left_s <= _RECHECK_S:
            state.recheck.append(one)
            state.recheck_s = max(left_s, state.recheck_s)
        elif left_s > 0.0:
            state.found.add_settling(left_s)
        else:
            self._add_when_due(one, state)

    def _is_suspended(self, checkpoint: FileCheckpoint, state: _ScanState) -> bool:
        """Return whether the file's run is suspended or starting; add it to the runs to resume when it's due."""
        run_id = str(checkpoint.run_id)
        if run_id not in state.runs:
            state.runs[run_id] = find_run(self.lake, run_id)
        run = state.runs[run_id]
        if run is None and self._outcomes.is_starting(checkpoint):
            state.found.add_waiting(_RECHECK_S)
            return True
        if run is None or run.finished_at is not None or run.order is None:
            return False
        left_s = self._outcomes.left_s(checkpoint.uri)
        if left_s > 0.0:
            state.found.add_waiting(left_s)
        else:
            files = tuple((file.uri, file.stamp) for file in run.order.batch.files)
            state.suspended[run_id] = Chunk(str(run.order.table), files, run_id)
        return True

    def _add_when_due(self, one: ReadyFile, state: _ScanState) -> None:
        left_s = self._outcomes.left_s(one.file.uri, one.checkpoint)
        if left_s > 0.0:
            state.found.add_waiting(left_s)
        elif one.alone and sum(ready.alone for ready in state.ready) >= _MAX_SINGLE_FILES:
            state.found.more = True
        else:
            state.ready.append(one)

    def _check_again(self, state: _ScanState) -> None:
        """Check files that look stable, but were seen for the first time, again after a moment."""
        if not state.recheck:
            return
        self._clock.sleep(state.recheck_s)
        now = self._listed([one.file.uri for one in state.recheck])
        for one in state.recheck:
            file = now.get(one.file.uri)
            if file is None:
                self._stable.forget([one.file.uri])
                continue
            left_s = self._stable.left_s(file)
            if left_s > 0.0:
                state.found.add_settling(left_s)
            else:
                self._add_when_due(replace(one, file=file), state)

    def _listed(self, uris: Sequence[str]) -> Mapping[str, FoundFile]:
        return {file.uri: file for file in self.lake.files.list(uris, format=self._format)}

    def _unchanged(self, chunk: Chunk) -> Chunk | None:
        """Return the chunk without local files that changed or vanished. Objects in a store are never half written."""
        if not any(uri.startswith("file:") for uri in chunk.uris):
            return chunk
        now = self._listed(chunk.uris)
        same = tuple((uri, stamp) for uri, stamp in chunk.files if uri in now and now[uri].stamp == stamp)
        return replace(chunk, files=same) if same else None


@dataclass(slots=True)
class _ScanState:
    """A scan in progress.

    Attributes:
        unseen: Pending files that it hasn't found yet.
        offered: Files that aren't finished.
        recheck: Files to check again in ``recheck_s`` seconds.
        runs: The runs of suspended files; ``None`` for one that the journal doesn't have.
        suspended: By run id, what to resume.
    """

    found: Scan
    unseen: set[str]
    offered: set[str] = field(default_factory=set)
    ready: list[ReadyFile] = field(default_factory=list)
    recheck: list[ReadyFile] = field(default_factory=list)
    recheck_s: float = 0.0
    runs: dict[str, Run | None] = field(default_factory=dict)
    suspended: dict[str, Chunk] = field(default_factory=dict)


def _ingest_by_lake(lake: Lake, table: str, uris: Sequence[str], options: IngestOptions) -> Run:
    return lake.intake.ingest(table, uris, options)


class _StableFiles:
    """Stable-file detection: remembers pending files, and since when each is unchanged.

    A file is stable once it's unchanged for ``settle_s`` seconds: by its modification time, confirmed by a second
    check, or by our own checks alone if that time can't be right. Objects in a store appear whole and need no second
    check.
    """

    def __init__(self, settle_s: float, clock: Clock) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    @property
    def pending(self) -> Collection[str]:
        """URIs of the pending files."""
        return self._seen.keys()

    def left_s(self, file: FoundFile) -> float:
        """Return the seconds until the next check may find the file stable; 0 if it's stable now."""
        now = self._clock.monotonic()
        stamp, since = self._seen.get(file.uri, ("", 0.0))
        if stamp != file.stamp:
            since = now
            self._seen[file.uri] = (file.stamp, now)
        seen_s = now - since
        age_s = (self._clock.now() - file.modified_at).total_seconds()
        recheck_s = min(_RECHECK_S, self._settle_s) if file.uri.startswith("file:") else 0.0
        return max(0.0, min(self._settle_s - seen_s, max(self._settle_s - age_s, recheck_s - seen_s)))

    def is_known_as(self, uri: str, stamp: str) -> bool:
        """Return whether the file was last seen with this fingerprint, or isn't pending."""
        return self._seen.get(uri, (stamp, 0.0))[0] == stamp

    def forget(self, uris: Iterable[str]) -> None:
        """Forget files that are finished, given up or gone."""
        for uri in uris:
            self._seen.pop(uri, None)
