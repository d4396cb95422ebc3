"""Files that are only told of, a lake that takes them in, and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self

from lakegate.config import Settings
from lakegate.errors import LakegateError, NotFoundError, OutcomeUnknownError, RetryableError
from lakegate.loading.file_outcomes import Clock
from lakegate.loading.routes import Routes, location
from lakegate.loading.scan import FileLoader
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestOptions, IngestRequest, WriteMode
from lakegate.model.run import FileCheckpoint, Run
from lakegate.sources.discovery import FoundFile
from support.cli_support import PUBLICATION, make_run

START = datetime(2026, 1, 31, 7, tzinfo=UTC)
LONG_AGO = START - timedelta(hours=1)
FOLDER = "/landing"
TABLE = "nyc.trips"

Outcome = str | LakegateError | BaseException


class FakeClock(Clock):
    """A clock that only advances in sleep. ``meanwhile`` is called in each sleep."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.meanwhile()


@dataclass
class FolderLake:
    """A lake with only files and checkpoints.

    ``becomes`` scripts the outcome of an ingest; listing files raises ``refuses``.
    """

    landed: dict[str, FoundFile] = field(default_factory=dict)
    known: dict[tuple[str, str], FileCheckpoint] = field(default_factory=dict)
    becomes: Callable[[Sequence[str]], Outcome] = lambda _: "published"
    taken: list[tuple[str, ...]] = field(default_factory=list)
    options: list[IngestOptions] = field(default_factory=list)
    run_status: dict[str, str] = field(default_factory=dict)
    given_up: list[FileCheckpoint] = field(default_factory=list)
    turns: set[str] = field(default_factory=set)
    listed: int = 0
    refuses: LakegateError | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def intake(self) -> Self:
        return self

    @property
    def maintenance(self) -> Self:
        return self

    @property
    def files(self) -> Any:
        return SimpleNamespace(
            list=self.list_files,
            checkpoints=self.file_checkpoints,
            save_checkpoints=self.save_file_checkpoints,
            lock=self.lock,
        )

    @property
    def alerts(self) -> Any:
        return SimpleNamespace(given_up=self.notify_given_up)

    @property
    def downstream(self) -> Any:
        return SimpleNamespace(send_due=tuple)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def put(self, *names: str, version: int = 1, modified_at: datetime = LONG_AGO, size_bytes: int = 10) -> None:
        for name in names:
            uri = name if "://" in name else f"file://{FOLDER}/{name}"
            self.landed[uri] = FoundFile(uri, size_bytes, str(version), modified_at, uri.endswith(".csv"))

    def mode_of(self, table: str, options: IngestOptions) -> WriteMode:
        return WriteMode(name=options.mode or "append")

    def list_files(self, paths: Sequence[str], **_: object) -> Iterator[FoundFile]:
        if self.refuses is not None:
            raise self.refuses
        for path in paths:
            below = [path] if path in self.landed else sorted(f for f in self.landed if location(f).startswith(path))
            for uri in below:
                self.listed += 1
                yield self.landed[uri]

    def file_checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        return {uri: self.known[table, uri] for uri in uris if (table, uri) in self.known}

    def save_file_checkpoints(self, table: str, landings: Iterable[FileCheckpoint]) -> None:
        self.known.update({(table, landing.uri): landing for landing in landings})

    def notify_given_up(self, table: str, file: FileCheckpoint) -> None:
        self.given_up.append(file)

    @contextmanager
    def lock(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        is_free = name not in self.turns
        self.turns.add(name)
        yield is_free
        if is_free:
            self.turns.discard(name)

    def ingest(self, table: str, uris: Sequence[str], options: IngestOptions) -> Run:
        self.taken.append(tuple(uris))
        self.options.append(options)
        outcome = self.becomes([uri.rpartition("/")[2] for uri in uris])
        if isinstance(outcome, BaseException):
            raise outcome
        publication = PUBLICATION if outcome == "published" else None
        return make_run(outcome, run_id=f"r{len(self.taken)}", tables=(table,), publication=publication)

    def run(self, run_id: str) -> Run:
        if run_id not in self.run_status:
            raise NotFoundError(run_id)
        return make_run(self.run_status[run_id], run_id=run_id)

    def outcomes(self) -> dict[str, tuple[str, int]]:
        return {uri.rpartition("/")[2]: (one.outcome, one.tries) for (_, uri), one in self.known.items()}

    def names(self) -> list[list[str]]:
        """Return the names of the files of each ingest."""
        return [[uri.rpartition("/")[2] for uri in uris] for uris in self.taken]


@dataclass
class SteppingLake(FolderLake):
    """A lake whose runs can be suspended, resumed and undone.

    ``at_work`` are runs of others, ``dead`` those whose process died.
    """

    made: dict[str, Run] = field(default_factory=dict)
    at_work: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)

    def leave(self, *names: str, run_id: str) -> None:
        """Add files that were written to a branch by a run that's suspended before its next step."""
        self.put(*names)
        uris = [f"file://{FOLDER}/{name}" for name in names]
        self.made[run_id] = self._begun(TABLE, uris, run_id).model_copy(update={"status": "staged"})
        parked = (
            FileCheckpoint(uri=uri, stamp=self.landed[uri].stamp, outcome="parked", run_id=run_id, noted_at=START)
            for uri in uris
        )
        self.save_file_checkpoints(TABLE, parked)

    def ingest(self, table: str, uris: Sequence[str], options: IngestOptions) -> Run:
        run_id = str(options.run_id)
        known = self.made.get(run_id)
        if known is not None and known.finished_at is not None and known.status != "failed":
            return known
        self.made.setdefault(run_id, self._begun(table, uris, run_id))
        try:
            ended = super().ingest(table, uris, options)
        except (RetryableError, OutcomeUnknownError):
            raise
        except LakegateError as error:
            self.made[run_id] = make_run("failed", run_id=run_id, finished_at=START, detail=error.message)
            raise
        self.made[run_id] = ended.model_copy(update={"run_id": run_id, "finished_at": START})
        return self.made[run_id]

    def run(self, run_id: str) -> Run:
        if run_id not in self.made:
            raise NotFoundError(run_id)
        return self.made[run_id]

    def cancel_run(self, run_id: str, *, reason: str) -> Run:
        self.run(run_id)
        self.made[run_id] = make_run("failed", run_id=run_id, finished_at=START, detail=reason)
        return self.made[run_id]

    def reconnect(self) -> None:
        pass

    def suspended_runs(self) -> Mapping[str, datetime]:
        left = (one.run_id for one in self.made.values() if one.finished_at is None)
        return dict.fromkeys((one for one in left if one not in self.at_work | self.dead), START)

    def recover(self) -> Sequence[Run]:
        return [self._become(run_id, "failed", finished_at=START) for run_id in self.dead]

    def _become(self, run_id: str, status: str, **changes: Any) -> Run:
        self.made[run_id] = self.made[run_id].model_copy(update={"status": status, **changes})
        return self.made[run_id]

    @staticmethod
    def _begun(table: str, uris: Sequence[str], run_id: str) -> Run:
        files = tuple(SourceFile(uri=uri, size_bytes=1, version="1", stamp="1", rows=1) for uri in uris)
        order = IngestRequest(
            run_id=run_id,
            table=TableIdentifier.parse(table),
            batch=Batch(format="csv", files=files, columns=()),
            branch=f"wap/{run_id}",
        )
        return make_run("planned", run_id=run_id, tables=(table,), order=order, finished_at=None)


def make_loader(
    lake: Any, clock: Clock, *, paths: Sequence[str] = (FOLDER,), routes: Routes | None = None, **options: Any
) -> FileLoader:
    return FileLoader(lake, paths, routes or Routes.to(TABLE), clock=clock, **options)
