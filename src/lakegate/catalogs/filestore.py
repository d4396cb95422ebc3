"""The warehouse's files, to be listed and deleted by what collects the ones that nothing needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lakegate.catalogs.localfiles import is_local, local_path
from lakegate.catalogs.warehouse import MARKER
from lakegate.config import StorageSettings
from lakegate.errors import ConfigurationError, EngineError, InputError
from lakegate.model.tables import StoredFile
from lakegate.protocols import FileStore

if TYPE_CHECKING:
    from lakegate.storage.objects import ObjectStore


def open_file_store(warehouse: str, storage: StorageSettings | None = None) -> FileStore:
    """Return the store of the files under ``warehouse``.

    Args:
        warehouse: The root of all tables, as URI.
        storage: How to reach the object stores; default: by the usual ways of their own tools.

    Raises:
        ConfigurationError: When there is none for its scheme, or its library is missing or wrongly configured.
    """
    if is_local(warehouse):
        return LocalFileStore(warehouse)
    from lakegate.storage.addresses import is_remote  # noqa: PLC0415 - for remote warehouses only
    from lakegate.storage.opening import open_store  # noqa: PLC0415 - for remote warehouses only

    if is_remote(warehouse):
        return ObjectFileStore(warehouse, open_store(warehouse, storage or StorageSettings()))
    scheme = warehouse.partition(":")[0]
    raise ConfigurationError(
        f"Files in the warehouse {warehouse} cannot be collected: there is no file store for '{scheme}'.",
        hint="Warehouses on file systems of this machine (file:///…) and in object stores can be cleaned up.",
        setting="catalog.warehouse",
    )


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


class ObjectFileStore:
    """Objects below one prefix; implements :class:`~lakegate.protocols.FileStore`.

    On a bucket that keeps versions, what is deleted here stays as an older version until the bucket's own rules end it.

    Args:
        root: Prefix of all files, as URI; nothing outside it is ever deleted.
        store: Where they are.
    """

    def __init__(self, root: str, store: ObjectStore) -> None:
        self._root = root.rstrip("/")
        self._store = store

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all objects below ``prefix``, but for the mark that it is a warehouse.

        Raises:
            EngineError: When they may not be listed.
            LakegateError: When the store cannot be asked.
        """
        marker = f"{self._root}/{MARKER}"
        try:
            for found in self._store.list(f"{prefix.rstrip('/')}/"):
                if found.uri != marker:
                    yield StoredFile(path=found.uri, size_bytes=found.size_bytes, modified_at=found.modified_at)
        except OSError as error:
            raise EngineError(
                f"The warehouse {prefix} cannot be listed: {error.strerror or error}.",
                hint="Check that these credentials may list it.",
                path=prefix,
            ) from error

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; ones that are gone already are no error.

        Raises:
            InputError: When a path lies outside the root; nothing is deleted then.
            EngineError: When one may not be deleted.
            LakegateError: When the store cannot be asked.
        """
        for path in paths:
            if not path.startswith(f"{self._root}/"):
                raise InputError(f"File {path} is not in the warehouse {self._root}.", path=path)
        try:
            self._store.delete(paths)
        except OSError as error:
            raise EngineError(
                f"Files in the warehouse {self._root} cannot be deleted: {error.strerror or error}.",
                hint="Check that these credentials may delete there, then run it again.",
                path=self._root,
            ) from error


def _stored(uri: str, status: os.stat_result) -> StoredFile:
    modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    return StoredFile(path=uri, size_bytes=status.st_size, modified_at=modified)
