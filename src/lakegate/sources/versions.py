"""Versions: what tells one content of a source file from another, and whether a file is still as it was looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from lakegate.model.batch import Batch, SourceFile
from lakegate.sources.paths import LocalFile, from_uri, stat_file


def content_version(path: str) -> str:
    """Return the version of a local file: the SHA-256 of its bytes.

    Size and time alone would take a file that was only touched or copied anew for another version.

    Raises:
        OSError: When it cannot be read.
    """
    with Path(path).open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def source_file(file: LocalFile, rows: int) -> SourceFile:
    """Return ``file`` as a value, its version computed from its content; raises as :func:`content_version`."""
    return SourceFile(
        uri=file.uri, size_bytes=file.size_bytes, version=content_version(file.path), stamp=file.stamp, rows=rows
    )


def changed_files(batch: Batch) -> Sequence[SourceFile]:
    """Return the files of ``batch`` whose size or time of last change is no longer what it was, or that are gone."""
    return [file for file in batch.files if _stamp(file) != file.stamp]


def _stamp(file: SourceFile) -> str | None:
    try:
        found = stat_file(from_uri(file.uri))
    except OSError:
        return None
    return None if found is None else found.stamp
