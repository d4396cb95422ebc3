"""The facade's part that tells which of many files are published already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lakegate.config import StorageSettings
from lakegate.flow.history import sync
from lakegate.lake.base import MAIN, LakeBase
from lakegate.model.batch import SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.journal import Claim

_UNREAD = ""
_THREADS = 8


class Backfilling(LakeBase):
    """Knows files by the thousand."""

    def known_files(self, table: str, uris: Sequence[str]) -> Claim:
        """Return how files stand to a table: published, being ingested, published with other content, or new.

        Nothing is claimed. Only those are read whose path was published before: to see whether they are the same.

        Args:
            table: ``namespace.table``; it need not exist.
            uris: Files, as :attr:`lakegate.model.batch.SourceFile.uri` has them.

        Returns:
            Each file once: ``published``, ``busy``, ``changed``, or ``free`` when it is new. Sizes and rows are those
            of the published file, and 0 where nothing was.

        Raises:
            RetryableError: When catalog or journal are away.
        """
        name = str(TableIdentifier.parse(table))
        sync(self._wiring.rooms, MAIN)
        journal = self._wiring.journal
        glance = journal.known(name, [_file(uri, _UNREAD) for uri in uris])
        known_paths = [known.file.uri for known in glance.changed]
        if not known_paths:
            return glance
        read = {file.uri: file for file in self._read(known_paths)}
        closely = journal.known(name, list(read.values()))
        return Claim(
            published=closely.published,
            busy=(*glance.busy, *closely.busy),
            changed=closely.changed,
            # What cannot be read is left to the ingest, which says why.
            free=(*glance.free, *closely.free, *(_file(uri, _UNREAD) for uri in known_paths if uri not in read)),
        )

    def _read(self, uris: Sequence[str]) -> Iterator[SourceFile]:
        version = partial(_version, storage=self.settings.storage)
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="lakegate-versions")
        try:
            with self._wiring.narrator.step(f"Comparing {len(uris):,} files with what is published") as step:
                for done, file in enumerate(pool.map(version, uris), start=1):
                    step.progress(done, len(uris), "files")
                    if file is not None:
                        yield file
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _version(uri: str, storage: StorageSettings) -> SourceFile | None:
    from lakegate.sources.paths import from_uri, stat_file  # noqa: PLC0415 - loaded when files are read
    from lakegate.sources.remote import is_remote, locate  # noqa: PLC0415

    try:
        found = locate(uri, storage) if is_remote(uri) else stat_file(from_uri(uri))
        return None if found is None else _file(uri, found.content_version())
    except OSError:
        return None


def _file(uri: str, version: str) -> SourceFile:
    return SourceFile(uri=uri, size_bytes=0, version=version, rows=0)
