"""A table in memory that backfills fill, and lakes on it: as many as are asked for, each for one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from lakegate.errors import NotFoundError
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.request import IngestOptions, IngestPlan, WriteMode
from lakegate.model.run import Run
from lakegate.model.schema import Column, Schema
from lakegate.sources.discovery import list_files
from support.cli_support import FAILED, PUBLICATION, REQUEST, make_run

ROWS = 10


def day_files(folder: Path, *days: int, month: str = "2024-01") -> list[Path]:
    """Write one file for each day, each with content of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"green_{month}-{day:02d}.parquet" for day in days]
    for path in paths:
        path.write_text(path.name, encoding="utf-8")
    return paths


@dataclass
class Archive:
    """The table.

    Attributes:
        published: Run by file name.
        troubles: What happens to a chunk that holds a file, by the file's name: an error is raised, a text is the
            status of its run (or ``held``: its last file is another run's), a function is called.
        ingested: Names of the files of each run, in the order in which the runs began.
        most_at_once: The most chunks that were under way at a time.
    """

    published: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, BaseException | str | Callable[[], object]] = field(default_factory=dict)
    ingested: list[tuple[str, ...]] = field(default_factory=list)
    options: list[IngestOptions] = field(default_factory=list)
    most_at_once: int = 0
    lakes: list[ArchiveLake] = field(default_factory=list)
    _under_way: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lake(self) -> Any:
        """Open a lake."""
        made = ArchiveLake(self)
        self.lakes.append(made)
        return made

    def begin(self, names: Sequence[str]) -> str:
        with self._lock:
            self.ingested.append(tuple(names))
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            return f"r{len(self.ingested)}"

    def end(self, names: Sequence[str], run_id: str | None) -> None:
        with self._lock:
            self._under_way -= 1
            if run_id is not None:
                self.published |= dict.fromkeys(names, run_id)


class ArchiveLake:
    """What a backfill asks of a lake."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.threads: set[int] = set()
        self.closed = False
        self.files = SimpleNamespace(list=list_files, known=self._known_files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    @property
    def intake(self) -> Self:
        return self

    def mode_of(self, table: str, options: IngestOptions) -> WriteMode:
        return WriteMode(name=options.mode or "append")

    def table(self, name: str) -> None:
        if not self._archive.published:
            raise NotFoundError(f"There is no table {name}.")

    def run(self, run_id: str) -> Run:
        if run_id == "lost":
            raise NotFoundError("There is no such run.")
        return make_run("planned" if run_id == "busy" else "published", run_id=run_id)

    def _known_files(self, table: str, uris: Sequence[str]) -> Claim:
        there = [uri for uri in uris if _name(uri) in self._archive.published]
        return Claim(published=tuple(self._known(uri) for uri in there))

    def plan(self, table: str, paths: Sequence[str], options: IngestOptions) -> IngestPlan:
        for name in map(_name, paths):
            trouble = self._archive.troubles.get(name)
            if isinstance(trouble, BaseException):
                raise trouble
        columns = Schema(columns=(Column(name="id", type="long"),))
        return IngestPlan(request=REQUEST, exists=bool(self._archive.published), table_schema=columns)

    def ingest(self, table: str, paths: Sequence[str], options: IngestOptions) -> Run:
        self.threads.add(threading.get_ident())
        names = [_name(path) for path in paths]
        self._archive.options.append(options)
        run_id = options.run_id or self._archive.begin(names)
        published = None
        try:
            status = self._trouble(names)
            if status in ("published", "held"):
                published = run_id
            return self._run(status, paths, run_id)
        finally:
            self._archive.end(names, published)

    def _trouble(self, names: Sequence[str]) -> str:
        for trouble in (self._archive.troubles[name] for name in names if name in self._archive.troubles):
            if isinstance(trouble, BaseException):
                raise trouble
            if isinstance(trouble, str):
                return trouble
            trouble()
        return "published"

    def _run(self, status: str, paths: Sequence[str], run_id: str) -> Run:
        if status == "published":
            publication = PUBLICATION.model_copy(update={"rows": ROWS * len(paths)})
            return make_run("published", run_id=run_id, publication=publication)
        if status == "held":
            publication = PUBLICATION.model_copy(update={"rows": ROWS * (len(paths) - 1)})
            held = (self._known(paths[-1], "busy"),)
            return make_run("published", run_id=run_id, publication=publication, skipped_files=held)
        if status == "rejected":
            return make_run("rejected", run_id=run_id, reports=(FAILED,), branch_kept=True)
        owner = {"left": "busy", "known": "lost"}.get(status)
        skipped = () if owner is None else tuple(self._known(path, owner) for path in paths)
        return make_run(status if owner is None else "skipped", run_id=run_id, skipped_files=skipped)

    def _known(self, uri: str, run_id: str | None = None) -> KnownFile:
        owner = run_id or self._archive.published[_name(uri)]
        return KnownFile(file=SourceFile(uri=uri, size_bytes=1, version="1", rows=1), run_id=owner)


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]
