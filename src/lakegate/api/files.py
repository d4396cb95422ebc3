"""``lake.files``: source files and what became of them, for programs that watch folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from lakegate.components import Components
from lakegate.config import StorageSettings
from lakegate.ledger.sync import sync
from lakegate.model.batch import Claim, FileFormat, KnownFile, LeftOut, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.run import FileCheckpoint
from lakegate.model.words import suggest_keywords
from lakegate.storage.objects import is_remote

if TYPE_CHECKING:
    from lakegate.sources.discovery import FoundFile

_FILES_AT_ONCE = 8


@suggest_keywords
class Files:
    """Source files and what became of them: ``lake.files``. For programs that watch folders.

    Raises:
        RetryableError: The catalog or the journal can't be reached.
    """

    def __init__(self, components: Components) -> None:
        self._components = components

    def list(
        self,
        paths: Sequence[str],
        *,
        format: FileFormat | None = None,
        left_out: Callable[[LeftOut], object] | None = None,
    ) -> Iterator[FoundFile]:
        """Iterate over the files at ``paths``. Paths that don't exist are skipped.

        Args:
            paths: Files, folders or glob patterns.
            format: From folders, take only files of this format. Default: of any known format. A file without an
                extension is opened: its first bytes say its format.
            left_out: Called at the end with each file in the folders that isn't read: its ``uri`` and the ``reason``.

        Returns:
            The files, as they are found.

        Raises:
            InputError: A path is malformed, or can't be read.

        Example:
            >>> sum(file.size_bytes > 0 for file in lake.files.list(["trips"]))
            1
        """
        from lakegate.sources.discovery import list_files

        return list_files(paths, format=format, storage=self._components.settings.storage, left_out=left_out)

    def known(self, table: str, uris: Sequence[str]) -> Claim:
        """Return which files are new to a table, published, being ingested, or changed since they were published.

        Claims nothing. Opens only files whose path was published before.

        Args:
            table: ``namespace.table``. It doesn't have to exist.
            uris: Files, as :attr:`lakegate.model.batch.SourceFile.uri` names them.

        Returns:
            Each file once: ``published``, ``busy``, ``changed``, or ``free`` if it's new. Sizes and rows are those of
            the published file, and 0 for new files. Files of ``published`` that changed and have their old content
            again are also in ``went_back``.

        Example:
            >>> uris = [file.uri for file in lake.files.list(["trips", "more"])]
            >>> known = lake.files.known("nyc.trips", uris)
            >>> len(known.published), len(known.free)
            (1, 1)
        """
        name = str(TableIdentifier.parse(table))
        real = {_real_uri(uri): uri for uri in uris}
        sync(self._components.context, MAIN)
        known = self._known(name, list(real))

        def as_given(file: SourceFile) -> SourceFile:
            return file.model_copy(update={"uri": real[file.uri]})

        def with_given(files: Sequence[KnownFile]) -> tuple[KnownFile, ...]:
            return tuple(one.model_copy(update={"file": as_given(one.file)}) for one in files)

        return Claim(
            published=with_given(known.published),
            busy=with_given(known.busy),
            changed=with_given(known.changed),
            went_back=with_given(known.went_back),
            free=tuple(map(as_given, known.free)),
        )

    def checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        """Return the outcomes of files that were ingested, or tried, into a table, by URI.

        Args:
            table: ``namespace.table``.
            uris: The files.
        """
        return self._components.journal.file_checkpoints(table, uris)

    def save_checkpoints(self, table: str, checkpoints: Sequence[FileCheckpoint]) -> None:
        """Save the outcomes of files. Each checkpoint replaces an earlier one with the same URI.

        Args:
            table: ``namespace.table``.
            checkpoints: The outcomes.
        """
        self._components.journal.save_file_checkpoints(table, checkpoints)

    def lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Hold a lock of this project while a block runs; other processes with the same journal wait.

        Args:
            name: Name of the lock.
            timeout_s: Seconds to wait for it.

        Returns:
            A context manager that yields whether the lock was acquired.
        """
        return self._components.journal.lock(name, timeout_s=timeout_s)

    def _known(self, table: str, uris: Sequence[str]) -> Claim:
        journal = self._components.journal
        by_path = journal.known(table, [_source_file(uri) for uri in uris])
        to_read = [known.file.uri for known in by_path.changed]
        if not to_read:
            return by_path
        read = {file.uri: file for file in self._read_versions(to_read)}
        by_content = journal.known(table, list(read.values()))
        # The ingest will say why a file can't be read.
        unreadable = (_source_file(uri) for uri in to_read if uri not in read)
        return Claim(
            published=by_content.published,
            busy=(*by_path.busy, *by_content.busy),
            changed=by_content.changed,
            went_back=by_content.went_back,
            free=(*by_path.free, *by_content.free, *unreadable),
        )

    def _read_versions(self, uris: Sequence[str]) -> Iterator[SourceFile]:
        read = partial(_read_version, storage=self._components.settings.storage)
        pool = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="lakegate-versions")
        try:
            with self._components.narrator.step(f"Comparing {len(uris):,} files with what is published") as step:
                for done, file in enumerate(pool.map(read, uris), start=1):
                    step.progress(done, len(uris), "files")
                    if file is not None:
                        yield file
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _real_uri(uri: str) -> str:
    """Resolve a link: claims are recorded for the file that it points to."""
    from lakegate.sources.files import from_uri, to_uri

    return to_uri(os.path.realpath(from_uri(uri))) if uri.startswith("file:") else uri


def _read_version(uri: str, storage: StorageSettings) -> SourceFile | None:
    from lakegate.sources.files import from_uri, stat_file, stat_object

    try:
        found = stat_object(uri, storage) if is_remote(uri) else stat_file(from_uri(uri))
        return None if found is None else _source_file(uri, found.content_version())
    except OSError:
        return None


def _source_file(uri: str, version: str = "") -> SourceFile:
    return SourceFile(uri=uri, size_bytes=0, version=version, rows=0)
