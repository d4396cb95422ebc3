"""The files that paths name right now, none of them opened: for those who list them again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from lakegate.config import StorageSettings
from lakegate.model.batch import FileFormat
from lakegate.sources import local, remote
from lakegate.sources.files import Located
from lakegate.sources.inspection import suffixes_for
from lakegate.storage.objects import is_remote

_FILES_IN_A_TURN = 500


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as a listing has it.

    Attributes:
        uri: Absolute location by which it was found, links not followed.
        stamp: Changes when the file does, as :attr:`lakegate.model.batch.SourceFile.stamp`.
    """

    uri: str
    size_bytes: int
    stamp: str
    modified_at: datetime


def list_files(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,
    storage: StorageSettings | None = None,
) -> Iterator[FoundFile]:
    """Yield the files that ``paths`` name, each once, as they are found.

    What is missing, or vanishes meanwhile, is left out: a watcher may start before its files arrive.

    Args:
        paths: As :func:`lakegate.sources.discover` takes them: files, globs, folders, ``file:`` URIs, and those
            of object stores (``s3:``, ``gs:``, ``abfss:``).
        format: Whose endings the files of a folder have; any known format's when ``None``.
        storage: How to reach the object stores; by their own tools' variables and profiles when ``None``.

    Raises:
        InputError: When a path can't be one of files (empty, of an unknown scheme), whatever there is.
        SourceError: When a folder or bucket can't be read.
    """
    suffixes = suffixes_for(format)
    yield from _each_once(local.present(path, suffixes) for path in paths if not is_remote(path))
    in_stores = [path for path in paths if is_remote(path)]
    if in_stores:
        found = (remote.present(path, suffixes, storage or StorageSettings()) for path in in_stores)
        # the files seen are remembered only where two paths overlap: a bucket may hold millions
        yield from _each_once(found) if remote.overlap(in_stores) else _in_turns(found)


def _each_once(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    seen: set[Hashable] = set()
    for listing in listings:
        for file in listing:
            if file.identity not in seen:
                seen.add(file.identity)
                yield _found(file)


def _in_turns(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    """Yield some files of each listing in turn: new files needn't wait for a million in another place."""
    waiting = deque(listings)
    while waiting:
        listing = waiting.popleft()
        count = 0
        for file in islice(listing, _FILES_IN_A_TURN):
            count += 1
            yield _found(file)
        if count == _FILES_IN_A_TURN:
            waiting.append(listing)


def _found(file: Located) -> FoundFile:
    return FoundFile(file.found_uri, file.size_bytes, file.stamp, file.modified_at)
