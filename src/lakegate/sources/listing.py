"""What lies below paths right now, file by file and none of them opened: for those who look again and again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakegate.config import StorageSettings
from lakegate.model.batch import FileFormat
from lakegate.sources import remote
from lakegate.sources.formats import suffixes_for
from lakegate.sources.located import Located
from lakegate.sources.paths import present


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as a look from outside tells it.

    Attributes:
        uri: Absolute location, as :attr:`lakegate.model.batch.SourceFile.uri` has it.
        size_bytes: Length in bytes.
        stamp: Changes when the file does, as :attr:`lakegate.model.batch.SourceFile.stamp`.
        modified_at: Time of the last change, in UTC.
    """

    uri: str
    size_bytes: int
    stamp: str
    modified_at: datetime


def list_files(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,  # noqa: A002 - the word of the command line
    storage: StorageSettings | None = None,
) -> Iterator[FoundFile]:
    """Yield the files that ``paths`` name, each once, as they are found.

    What is not there (yet), and what vanishes while this looks, is left out: a watcher may be there before its files.

    Args:
        paths: As :func:`lakegate.sources.discover` takes them: files, globs, folders, ``file:`` URIs, and those
            of object stores (``s3:``, ``gs:``, ``abfss:``).
        format: Whose endings the files of a folder have; any known format's when ``None``.
        storage: How to reach the object stores; by their own tools' variables and profiles when ``None``.

    Raises:
        InputError: When a path cannot be one of files (empty, of an unknown scheme), whatever there is.
        SourceError: When a folder or bucket cannot be read.
        StorageUnavailableError: When an object store does not answer.
    """
    suffixes = suffixes_for(format)
    yield from _each_once(present(path, suffixes) for path in paths if not remote.is_remote(path))
    there = [path for path in paths if remote.is_remote(path)]
    if there:
        found = (remote.present(path, suffixes, storage or StorageSettings()) for path in there)
        # what was seen is remembered only where it could be seen again: a bucket may hold millions
        yield from _each_once(found) if remote.overlap(there) else _told(found)


def _each_once(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    seen: set[Hashable] = set()
    for listing in listings:
        for file in listing:
            if file.identity not in seen:
                seen.add(file.identity)
                yield _found(file)


def _told(listings: Iterable[Iterator[Located]]) -> Iterator[FoundFile]:
    return (_found(file) for listing in listings for file in listing)


def _found(file: Located) -> FoundFile:
    return FoundFile(file.uri, file.size_bytes, file.stamp, file.modified_at)
