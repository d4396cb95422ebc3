"""Chunks: what is taken in together, and what one look found, as values."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakegate.model.journal import Landing
from lakegate.model.order import IngestOrder

_DIGEST_LETTERS = 20

if TYPE_CHECKING:
    from lakegate.sources.listing import FoundFile


@dataclass(frozen=True, slots=True)
class Chunk:
    """Files to ingest into one table together.

    Attributes:
        table: ``namespace.table``.
        uris: The files.
        size_bytes: Their length in bytes, together.
        alone: Whether it is one file, which then answers for what becomes of it.
        stamps: The state that each of ``uris`` was seen in.
        run_id: The run to go on with; ``None`` when there is none yet.
    """

    table: str
    uris: tuple[str, ...]
    size_bytes: int
    alone: bool
    stamps: tuple[str, ...]
    run_id: str | None = None

    def id_after(self, earlier: Sequence[str]) -> str:
        """Return the id of a run for just these files in these states, the same wherever and whenever it is made.

        Args:
            earlier: Ids of runs that had to do with them and came to nothing.

        Example:
            >>> Chunk("nyc.trips", ("s3://b/x.csv",), 9, True, ("9-e",)).id_after(())
            'files-c317eeeb7db6f2dd61e2'
        """
        files = sorted(zip(self.uris, self.stamps, strict=True))
        digest = hashlib.sha256(json.dumps([self.table, files, sorted(set(earlier))]).encode()).hexdigest()
        return f"files-{digest[:_DIGEST_LETTERS]}"


@dataclass(frozen=True, slots=True)
class Round:
    """What one look found.

    Attributes:
        chunks: What can be taken now: runs to go on with, then several files together, then the single ones.
        settling: Files that are still being written, or may be.
        done: Files for which nothing is left to do.
        given_up: Files that were rejected or failed too often, and have not changed since; a thousand at most.
        waiting: Files that will be tried again later: they failed, or another run is at them.
        unrouted: Files that no route leads to a table, and why; a thousand at most.
        more: Whether there is more to find now than this: the look stopped because there is enough to do.
        due_s: Seconds until one of the settling or waiting files may be ready; ``None`` when there are none.
    """

    chunks: tuple[Chunk, ...]
    settling: int
    done: int
    given_up: tuple[Landing, ...]
    waiting: int = 0
    unrouted: tuple[tuple[str, str], ...] = ()
    more: bool = False
    due_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A file that can be taken.

    Attributes:
        alone: Whether it goes by itself, because it failed or was rejected together with others.
    """

    table: str
    file: FoundFile
    alone: bool


def in_chunks(ready: Sequence[Ready], *, max_files: int, max_bytes: int) -> tuple[Chunk, ...]:
    """Put files into chunks, each in one, in the order given; files that go by themselves come last.

    Args:
        ready: The files.
        max_files: Files in a chunk, at most.
        max_bytes: Bytes in a chunk, at most, unless one file alone has more.
    """
    together = defaultdict[str, list["FoundFile"]](list)
    for one in ready:
        if not one.alone:
            together[one.table].append(one.file)
    groups = [(table, group) for table, files in together.items() for group in _groups(files, max_files, max_bytes)]
    groups += [(one.table, [one.file]) for one in ready if one.alone]
    return tuple(_chunk(table, group) for table, group in groups)


def chunk_to_go_on_with(order: IngestOrder) -> Chunk:
    """Return the chunk of a run that was left, with all of its files: they came to it together."""
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
