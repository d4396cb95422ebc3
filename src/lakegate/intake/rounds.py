"""Rounds: look for files, take them in by chunks, and write down what became of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import TYPE_CHECKING

from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    LakegateError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.intake.chunks import Chunk, Ready, Round, chunk_to_go_on_with, in_chunks
from lakegate.intake.noting import Noting, Told, find_run
from lakegate.intake.patience import Patience
from lakegate.intake.places import Places
from lakegate.intake.settling import SECOND_LOOK_S, Clock, Settling
from lakegate.lake import Lake
from lakegate.lake.writing import IngestOptions
from lakegate.model.journal import Landing
from lakegate.model.order import IngestOrder
from lakegate.model.run import Run

if TYPE_CHECKING:
    from lakegate.intake.routes import Routes
    from lakegate.sources.listing import FoundFile

__all__ = ["Chunk", "Intake", "Round", "Told"]

_ASKED_AT_ONCE = 500
_CHUNKS_AHEAD = 10
_ALONE_AHEAD = 10
_SETTLING_AHEAD = 10_000
_TOLD = 1_000
_SAY_NOTHING = frozenset({"skipped", "discarded", "reverted"})
"""How runs end after which another one may be wanted for the same files."""


class Intake:
    """Looks for files below paths, and takes them in.

    What became of a file is in the journal, so that another intake, of this process or the next, goes on from there.
    A chunk that fails or is rejected with several files is offered file by file next, so that a bad one stops no other.

    Args:
        lake: The lake.
        paths: Files, folders, patterns, prefixes.
        routes: Which table each file goes to.
        options: How to ingest; ``run_id``, ``branch`` and ``on_busy`` are set for each chunk.
        settle_s: Seconds for which a file must have been left unchanged.
        max_files: Files in a chunk, at most.
        max_bytes: Bytes in a chunk, at most, unless one file alone has more.
        max_tries: How often a file is tried in one state before it is given up until it changes. One that an audit
            rejected is not tried again: its data are the same.
        again: Take up files again that were rejected or given up before this intake was made.
        told: By URI, when and how often somebody told of files.
        clock: The time.

    Attributes:
        lake: The lake; may be put in place by another one when its servers were started again.
        noted: What was written down last.
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
        told: Mapping[str, Told] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.lake = lake
        self.noted: tuple[Landing, ...] = ()
        self._paths = list(paths)
        self._routes = routes
        self._options: IngestOptions = {} if options is None else options
        self._format = self._options.get("format")
        self._places = Places(self._paths, self._format)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._clock = clock or Clock()
        self._settling = Settling(settle_s, self._clock)
        self._patience = Patience(self._clock)
        self._noting = Noting(self._clock, max_tries=max_tries, again=again, told=told)

    @property
    def pending(self) -> Collection[str]:
        """URIs of the files that are known and not done, nor given up."""
        return self._settling.pending

    def look(self, changed: Collection[str] | None = None) -> Round:
        """Return what is new and settled, in chunks.

        It stops looking when there is enough to do for a while; so a burst of files needs no more memory than a few.

        Args:
            changed: URIs or paths that something happened to: only these are looked at, and what an earlier look of
                this intake left for later. By default everything below the paths is.

        Raises:
            InputError: When a path cannot be looked at.
            RetryableError: When the journal or the store of the files is away.
        """
        look = _Look()
        found = self._found(changed)
        while files := list(islice(found, _ASKED_AT_ONCE)):
            self._sort(files, look)
            if self._is_enough(look):
                look.more = True
                break
        self._look_twice(look)
        if not look.more:
            self._settling.forget(set(self._settling.pending) - look.open)
        chunks = in_chunks(look.ready, max_files=self._max_files, max_bytes=self._max_bytes)
        return Round(
            chunks=(*map(chunk_to_go_on_with, look.parked.values()), *chunks),
            settling=look.settling,
            done=look.done,
            given_up=tuple(look.given_up),
            waiting=look.waiting,
            unrouted=tuple(look.unrouted.items()),
            more=look.more,
            due_s=look.due_s,
        )

    def take(self, chunk: Chunk, *, timeout_s: float | None = None) -> Run | None:
        """Ingest a chunk and note what became of it; files that changed or went since the look are left for later.

        Args:
            chunk: The chunk.
            timeout_s: Seconds after which its run is parked, for any intake of this lake to go on with. The id of the
                run is made from the chunk then, so that who is at the same chunk at the same time finds it.

        Returns:
            The run as it ended; ``None`` when it failed (which is noted), or nothing of the chunk is left.

        Raises:
            RetryableError: When catalog or engine are away. That is not the files' fault and not counted as a try.
            OutcomeUnknownError: Likewise.
            ConfigurationError: When the settings are wrong. Nor is that.
        """
        self.noted = ()
        left = chunk if chunk.run_id is not None else self._unchanged(chunk)
        if left is None:
            return None
        if timeout_s is not None and left.run_id is None:
            left = replace(left, run_id=self._run_id(left))
        try:
            run = self.lake.ingest(left.table, left.uris, **self._options_for(left, timeout_s))
        except ConfigurationError:
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
        except Exception as error:  # noqa: BLE001 - a file that trips us up must not do so for ever
            self.note(left, None, LakegateError(f"Internal error: {type(error).__name__}: {error}"))
            return None
        self.note(left, run)
        return run

    def note(
        self, chunk: Chunk, run: Run | None, error: LakegateError | None = None, *, others_worked: bool = False
    ) -> None:
        """Write down what became of a chunk, for orchestrators that ran the steps themselves.

        Args:
            chunk: The chunk.
            run: The run as it ended; ``None`` when it came to none.
            error: Why it failed. An error that another try may not meet is not counted; but when the engine failed at a
                run until that was given up, several files go apart, and a single one is counted if others worked.
            others_worked: Whether others did, though not by this intake.

        Raises:
            RetryableError: When the journal is away.
        """
        if others_worked:
            self._patience.worked()
        self.noted = self._noting.note(self.lake, self._patience, chunk, run, error)
        for landing in self.noted:
            # A run that was left and gone on with may have been of an earlier state than the one seen since.
            if self._noting.is_finished(landing) and self._settling.is_known_as(landing.uri, landing.stamp):
                self._settling.forget([landing.uri])

    def is_free(self, chunk: Chunk) -> bool:
        """Tell whether no process is at the chunk's run, for those who had rather do others than wait for it.

        A run whose process died is settled, one that is under way elsewhere left to that: the files of both are left
        alone for a while.

        Raises:
            RetryableError: When journal or catalog are away.
        """
        if chunk.run_id is None or chunk.run_id in self.lake.parked():
            return True
        self.lake.recover()
        self._patience.leave(chunk.uris)
        return False

    def _options_for(self, chunk: Chunk, timeout_s: float | None) -> IngestOptions:
        options: IngestOptions = {**self._options, "on_busy": "skip"}
        if not chunk.alone:
            # What is wrong with it is found file by file; nobody looks at the branch of all of them.
            options["on_failure"] = "drop"
        if chunk.run_id is not None:
            options["run_id"] = chunk.run_id
        if timeout_s is not None:
            options["timeout_s"] = timeout_s
        return options

    def _run_id(self, chunk: Chunk) -> str:
        """Return the id for a chunk's run: that of one under way or of one that tells how it ended, else a new one."""
        known = self.lake.landings(chunk.table, chunk.uris).values()
        ended = (landing for landing in known if landing.outcome != "parked")
        base = chunk.id_after([landing.run_id for landing in ended if landing.run_id is not None])
        for number in count(1):
            run_id = f"{base}-{number:03d}"
            run = find_run(self.lake, run_id)
            if run is None or run.status not in _SAY_NOTHING:
                return run_id
        raise AssertionError("there is always one more number")

    def _taken_back(self, chunk: Chunk, error: EngineError) -> Run:
        """Undo a run of several files at which the engine failed: which of them it was shows when each goes alone."""
        try:
            return self.lake.undo_run(str(chunk.run_id), reason=error.message)
        except RetryableError:
            self.note(chunk, None, error)
            raise

    def _found(self, changed: Collection[str] | None) -> Iterator[FoundFile]:
        if changed is None:
            return iter(self.lake.list_files(self._paths, format=self._format))
        asked = [*dict.fromkeys([*self._settling.pending, *changed])]
        found = self.lake.list_files(asked, format=self._format) if asked else iter(())
        return (file for file in found if self._places.hold(file.uri))

    def _is_enough(self, look: _Look) -> bool:
        ahead = len(look.ready) + len(look.soon)
        return ahead >= _CHUNKS_AHEAD * self._max_files or look.settling >= _SETTLING_AHEAD

    def _sort(self, files: Iterable[FoundFile], look: _Look) -> None:
        by_table = defaultdict[str, list["FoundFile"]](list)
        for file in files:
            table = self._table(file, look)
            if table is not None and file.uri not in look.open:
                by_table[table].append(file)
        for table, group in by_table.items():
            known = self.lake.landings(table, [file.uri for file in group])
            for file in group:
                self._place(Ready(table, file, alone=False), known, look)

    def _table(self, file: FoundFile, look: _Look) -> str | None:
        try:
            table = self._routes.table(file.uri)
            reason = "No route leads it to a table."
        except IdentifierError as error:
            table, reason = None, error.message
        if table is None and len(look.unrouted) < _TOLD:
            look.unrouted[file.uri] = reason
        return table

    def _place(self, one: Ready, known: Mapping[str, Landing], look: _Look) -> None:
        file = one.file
        landing = self._noting.still_true(known.get(file.uri), file.stamp)
        if landing is not None and landing.outcome == "parked":
            if self._goes_on(landing, look):
                self._settling.left_s(file)
                return
            landing = None
        if landing is not None and self._noting.is_finished(landing):
            self._settling.forget([file.uri])
            if landing.outcome == "done":
                look.done += 1
            elif len(look.given_up) < _TOLD:
                look.given_up.append(landing)
            return
        look.open.add(file.uri)
        alone = landing is not None or self._noting.wants_apart(file.uri) or self._patience.wants_apart(file.uri)
        left_s = self._settling.left_s(file)
        if 0.0 < left_s <= SECOND_LOOK_S:
            look.soon.append((Ready(one.table, file, alone), landing, left_s))
        elif left_s > 0.0:
            look.wait_to_settle(left_s)
        else:
            self._offer(Ready(one.table, file, alone), landing, look)

    def _goes_on(self, landing: Landing, look: _Look) -> bool:
        """Tell whether the run that a file was left to still waits; it is gone on with when it is time."""
        run_id = str(landing.run_id)
        if run_id not in look.runs:
            look.runs[run_id] = find_run(self.lake, run_id)
        run = look.runs[run_id]
        if run is None or run.finished_at is not None or run.order is None:
            return False
        look.open.add(landing.uri)
        left_s = self._patience.left_s(landing.uri)
        if left_s > 0.0:
            look.wait(left_s)
        else:
            look.parked[run_id] = run.order
        return True

    def _offer(self, one: Ready, landing: Landing | None, look: _Look) -> None:
        left_s = max(self._patience.left_s(one.file.uri), self._noting.left_s(landing))
        if left_s > 0.0:
            look.wait(left_s)
        elif one.alone and sum(ready.alone for ready in look.ready) >= _ALONE_AHEAD:
            look.more = True
        else:
            look.ready.append(one)

    def _look_twice(self, look: _Look) -> None:
        """Look again, after a moment, at the files of which only that is missing."""
        if not look.soon:
            return
        self._clock.sleep(max(left_s for _, _, left_s in look.soon))
        now = self._listed([one.file.uri for one, _, _ in look.soon])
        for one, landing, _ in look.soon:
            file = now.get(one.file.uri)
            if file is None:
                look.open.discard(one.file.uri)
                continue
            left_s = self._settling.left_s(file)
            if left_s > 0.0:
                look.wait_to_settle(left_s)
            else:
                self._offer(Ready(one.table, file, one.alone), landing, look)

    def _listed(self, uris: Sequence[str]) -> Mapping[str, FoundFile]:
        return {file.uri: file for file in self.lake.list_files(uris, format=self._format)}

    def _unchanged(self, chunk: Chunk) -> Chunk | None:
        """Return what of the chunk stands as it was seen; objects of a store cannot be seen half written."""
        if not any(uri.startswith("file:") for uri in chunk.uris):
            return chunk
        now = self._listed(chunk.uris)
        seen = zip(chunk.uris, chunk.stamps, strict=True)
        same = [now[uri] for uri, stamp in seen if uri in now and now[uri].stamp == stamp]
        made = in_chunks(
            [Ready(chunk.table, file, alone=False) for file in same],
            max_files=len(chunk.uris),
            max_bytes=sum(file.size_bytes for file in same),
        )
        return made[0] if made else None


@dataclass(slots=True)
class _Look:
    """One look under way."""

    ready: list[Ready] = field(default_factory=list)
    soon: list[tuple[Ready, Landing | None, float]] = field(default_factory=list)
    given_up: list[Landing] = field(default_factory=list)
    unrouted: dict[str, str] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    runs: dict[str, Run | None] = field(default_factory=dict)
    parked: dict[str, IngestOrder] = field(default_factory=dict)
    settling: int = 0
    waiting: int = 0
    done: int = 0
    more: bool = False
    due_s: float | None = None

    def wait_to_settle(self, left_s: float) -> None:
        self.settling += 1
        self._due(left_s)

    def wait(self, left_s: float) -> None:
        self.waiting += 1
        self._due(left_s)

    def _due(self, left_s: float) -> None:
        self.due_s = left_s if self.due_s is None else min(self.due_s, left_s)
