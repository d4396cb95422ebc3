"""Versions: what tells one content of a source file from another, and whether a file is still as it was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lakegate.config import StorageSettings
from lakegate.model.batch import Batch, SourceFile
from lakegate.sources import paths, remote
from lakegate.sources.located import Located

_LOOKS_AT_ONCE = 16


def source_file(file: Located, rows: int) -> SourceFile:
    """Return ``file`` as a value with its version; raises as :meth:`~lakegate.sources.located.Located.open`."""
    return SourceFile(
        uri=file.uri,
        size_bytes=file.size_bytes,
        version=file.content_version(),
        stamp=file.stamp,
        rows=rows,
        version_id=file.version_id,
    )


def changed_files(batch: Batch, storage: StorageSettings | None = None) -> Sequence[SourceFile]:
    """Return the files of ``batch`` whose stamp is no longer what it was, or that are gone.

    Args:
        batch: The files.
        storage: How to reach the object stores, for files that lie there.

    Raises:
        StorageUnavailableError: When the store they lie in does not answer.
    """
    settings = storage or StorageSettings()

    def stamp_now(file: SourceFile) -> str | None:
        if remote.is_remote(file.uri):
            return remote.stamp_now(file.uri, settings)
        return paths.stamp_now(paths.from_uri(file.uri))

    # each look at an object is a request: not one after the other
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="lakegate-stamps") as pool:
        stamps = pool.map(stamp_now, batch.files)
        return [file for file, stamp in zip(batch.files, stamps, strict=True) if stamp != file.stamp]
