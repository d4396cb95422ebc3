"""List the files that paths currently name, without opening any, for callers that poll."""

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
    """A file in a listing.

    Attributes:
        uri: Absolute location by which it was found, without following links.
        stamp: A fingerprint that changes when the file does, like :attr:`lakegate.model.batch.SourceFile.stamp`.
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

    Missing files are skipped: a watcher may start before its files arrive.

    Args:
        paths: Files, globs, folders, ``file:`` URIs and URIs in object stores, as for
            :func:`lakegate.sources.discover`.
        format: List only files of this format in folders; ``None`` for all known formats.
        storage: How to reach the object stores; ``None`` for the variables and profiles of their own tools.

    Raises:
        InputError: When a path is invalid (empty, or of an unknown scheme).
        SourceError: When a folder or bucket can't be read.
    """
    suffixes = suffixes_for(format)
    yield from _each_once(local.present(path, suffixes) for path in paths if not is_remote(path))
    in_stores = [path for path in paths if is_remote(path)]
    if in_stores:
        found = (remote.present(path, suffixes, storage or StorageSettings()) for path in in_stores)
        # A bucket may have millions of files: remember those seen only if two paths overlap.
        yield from _each_once(found) if remote.overlap(in_stores) else _in_turns(found)


def _each_once(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    seen: set[Hashable] = set()
    for listing in listings:
        for file in listing:
            if file.identity not in seen:
                seen.add(file.identity)
                yield _found(file)


def _in_turns(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    """Yield some files of each listing in turn, so that new files needn't wait for a million in another folder."""
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
