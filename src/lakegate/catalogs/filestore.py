"""The warehouse's files, to be listed and deleted by what collects the ones that nothing needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lakegate.catalogs.localfiles import is_local, local_path
from lakegate.errors import ConfigurationError, EngineError, InputError
from lakegate.model.tables import StoredFile
from lakegate.protocols import FileStore


def open_file_store(warehouse: str) -> FileStore:
    """Return the store of the files under ``warehouse``, the root of all tables as URI.

    Raises:
        ConfigurationError: When there is none for its scheme.
    """
    if not is_local(warehouse):
        scheme = warehouse.partition(":")[0]
        raise ConfigurationError(
            f"Files in the warehouse {warehouse} cannot be collected: there is no file store for '{scheme}' yet.",
            hint="Only warehouses on this machine's file systems (file:///…) can be cleaned up.",
            setting="catalog.warehouse",
        )
    return LocalFileStore(warehouse)


class LocalFileStore:
    """Files of this machine; implements :class:`~lakegate.protocols.FileStore`.

    Args:
        root: Folder that holds all files, as URI; nothing outside it is ever deleted.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.normpath(local_path(root)))

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below ``prefix``. Links are not followed, and are no files.

        Raises:
            EngineError: When a folder cannot be read.
        """
        start = prefix.rstrip("/")
        folders = [(local_path(start), start)]
        while folders:
            folder, uri = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append((Path(entry.path), f"{uri}/{entry.name}"))
                        elif entry.is_file(follow_symlinks=False):
                            with suppress(FileNotFoundError):
                                yield _stored(f"{uri}/{entry.name}", entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise EngineError(
                    f"Folder {uri} cannot be listed: {error.strerror}.",
                    hint="Check that this user may read the warehouse.",
                    path=uri,
                ) from error

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and the folders that this leaves empty; ones that are gone already are no error.

        Raises:
            InputError: When a path lies outside the root; nothing is deleted then.
            EngineError: When one cannot be deleted.
        """
        files = [self._inside(path) for path in paths]
        for file in files:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise EngineError(
                    f"File {file} cannot be deleted: {error.strerror}.",
                    hint="Check that this user may write to the warehouse, then run it again.",
                    path=str(file),
                ) from error
        for folder in {file.parent for file in files}:
            self._remove_empty(folder)

    def _inside(self, location: str) -> Path:
        path = Path(os.path.normpath(local_path(location)))
        if not is_local(location) or self._root not in path.parents:
            raise InputError(f"File {location} is not in the warehouse {self._root}.", path=location)
        return path

    def _remove_empty(self, folder: Path) -> None:
        # rmdir refuses a folder that holds anything, so a writer's new file is never lost.
        with suppress(OSError):
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent


def _stored(uri: str, status: os.stat_result) -> StoredFile:
    modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    return StoredFile(path=uri, size_bytes=status.st_size, modified_at=modified)
