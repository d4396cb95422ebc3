"""The warehouse and the files of its tables, on this machine or in an object store.

Metadata files are read whole, and never overwritten. PyIceberg's own file IO isn't used: it needs Arrow or fsspec,
which are slow to import and have credentials and retries of their own, and it overwrites existing files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar, cast

from lakegate.config import StorageSettings
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    InputError,
    LakegateError,
    NotFoundError,
    RetryableError,
    SourceError,
)
from lakegate.iceberg.manifests import ManifestList, read_list
from lakegate.iceberg.metadata import Document, MetadataFile
from lakegate.model.refs import TablePointer
from lakegate.model.tables import StoredFile
from lakegate.ports import WarehouseFiles
from lakegate.storage import open_store
from lakegate.storage.objects import ObjectAddress, ObjectStore, is_remote

_Parsed = TypeVar("_Parsed")
_METADATA_FILES_KEPT = 16
_SCHEME = "file:"
_PYICEBERG_VERSION = 2
"""The newest format version that PyIceberg reads completely."""


def is_local(location: str) -> bool:
    """Return whether ``location`` is on this machine: a ``file:`` URI or an absolute path.

    Example:
        >>> is_local("file:///lake/t"), is_local("/lake/t"), is_local("s3://lake/t")
        (True, True, False)
    """
    return location.startswith((_SCHEME, "/"))


def local_path(location: str) -> Path:
    """Return the path of a local location, without decoding ``%``: Hadoop and PyArrow don't encode paths.

    Example:
        >>> local_path("file:///lake/a b%20").as_posix(), local_path("file:/lake/t").as_posix()
        ('/lake/a b%20', '/lake/t')
    """
    path = location.removeprefix(_SCHEME)
    return Path(path[2:].removeprefix("localhost") if path.startswith("//") else path)


class TableFiles:
    """Reads and creates the files of tables. It never overwrites or deletes one, and is thread-safe.

    Args:
        storage: How to reach the object stores; by default, the same way as their own tools.
    """

    def __init__(self, storage: StorageSettings | None = None) -> None:
        self._storage = storage or StorageSettings()
        self._stores: dict[str, ObjectStore] = {}
        # Safe to cache: a metadata file never changes once it's written.
        self._load = lru_cache(_METADATA_FILES_KEPT)(lambda path: MetadataFile.parse(path, self.content(path)))

    def metadata(self, pointer: TablePointer) -> MetadataFile:
        """Return the metadata file of the table at ``pointer``. Raises what :func:`read_errors` does."""
        with read_errors(f"Metadata file {pointer.metadata_location} of table {pointer.table}", pointer):
            return self._load(pointer.metadata_location)

    def content(self, location: str) -> bytes:
        """Return a file's content. Raises what the file system or the object store raises."""
        if is_local(location):
            return local_path(location).read_bytes()
        return self._store(location).read(location)

    def open(self, location: str) -> Any:
        """Open a file for Arrow to read parts of. Raises what the file system or the object store raises."""
        if is_local(location):
            from pyarrow import OSFile  # Arrow's threads read it without the GIL

            return OSFile(str(local_path(location)), "rb")
        # Without its buffer, which would split each of Arrow's larger reads into two requests.
        return cast("BufferedReader", self._store(location).open(location)).detach()

    def exists(self, location: str) -> bool:
        """Return whether a file exists; ``False`` for an unknown kind of store. Raises what all stores' methods do."""
        if is_local(location):
            return local_path(location).exists()
        try:
            ObjectAddress.parse(location)
        except InputError:
            return False
        try:
            self._store(location).stat(location)
        except FileNotFoundError:
            return False
        return True

    def read(self, what: str, location: str, pointer: TablePointer, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Read and parse a file of the table at ``pointer``, with the errors of :func:`read_errors`.

        Args:
            what: What the file is, for an error message to start with, such as ``Manifest``.
        """
        with read_errors(f"{what} {location} of table {pointer.table}", pointer):
            return parse(self.content(location))

    def manifest_list(self, snapshot: Document, pointer: TablePointer) -> ManifestList:
        """Read the manifest list of a snapshot of the table at ``pointer``, which must have one."""
        require_manifest_list(snapshot, pointer)
        return self.read("Manifest list", snapshot["manifest-list"], pointer, read_list)

    def create(self, location: str, content: bytes, pointer: TablePointer) -> None:
        """Write a new metadata file of the table at ``pointer``, completely or not at all."""
        table, context = pointer.table, {"table": str(pointer.table), "path": location}
        try:
            if is_local(location):
                _create_local(local_path(location), content)
            else:
                self._store(location).create(location, content)
        except PermissionError as error:
            raise ConfigurationError(
                f"Can't write the metadata of table {table} to {location}: {error.strerror or error}.",
                hint="Nothing was published. Check your permissions on the warehouse (setting catalog.warehouse).",
                **context,
            ) from error
        except OSError as error:
            raise EngineError(
                f"Can't write the metadata of table {table} to {location}: {error.strerror or error}.",
                hint="Nothing was published. Check that the warehouse has free space and is writable, then try again.",
                **context,
            ) from error

    def _store(self, location: str) -> ObjectStore:
        bucket = "/".join(location.split("/", 3)[:3])
        if bucket not in self._stores:
            self._stores[bucket] = open_store(location, self._storage)
        return self._stores[bucket]


@contextmanager
def read_errors(what: str, pointer: TablePointer) -> Iterator[None]:
    """Turn any exception from reading or parsing a table's file into one of lakegate's errors.

    Args:
        what: The file, for the message to start with.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{what} doesn't exist.",
            hint="If nothing has needed it for gc.keep, `lakegate admin gc` deleted it. Otherwise, it was moved or "
            "deleted outside lakegate, or this machine can't reach it.",
            table=str(pointer.table),
            path=pointer.metadata_location,
        ) from error
    except LakegateError:
        raise
    except Exception as error:  # PyIceberg's parsers raise anything
        raise _read_error(what, pointer, error) from error


@contextmanager
def metadata_errors(file: MetadataFile, pointer: TablePointer) -> Iterator[None]:
    """Like :func:`read_errors`, for code in which PyIceberg parses a table's metadata.

    Raises:
        InputError: Also when the table uses a feature of a newer format version that PyIceberg doesn't support.
    """
    try:
        with read_errors(f"Metadata file {pointer.metadata_location} of table {pointer.table}", pointer):
            yield
    except InputError as error:
        version = file.document["format-version"]
        if version <= _PYICEBERG_VERSION:
            raise
        unknown = f"uses a feature of format version {version}, such as a variant column, that only Spark can read"
        raise needs_spark_error(pointer, unknown) from error


def require_manifest_list(snapshot: Document, pointer: TablePointer) -> None:
    """Refuse a snapshot without a manifest list, as old writers of format version 1 left it."""
    if snapshot.get("manifest-list") is None:
        raise InputError(
            f"Snapshot {snapshot['snapshot-id']} of table {pointer.table} has no manifest list: its metadata file "
            "lists the manifests itself, which lakegate doesn't read.",
            hint=f"Write one with Spark: CALL CATALOG.system.rewrite_manifests('{pointer.table}')",
            table=str(pointer.table),
        )


def needs_spark_error(pointer: TablePointer, problem: str) -> InputError:
    """Return the error for a table that only Spark can read."""
    return InputError(
        f"Table {pointer.table} {problem}.",
        hint="Read it with Spark: lake.query(), or lakegate query.",
        table=str(pointer.table),
    )


def _read_error(what: str, pointer: TablePointer, error: Exception) -> LakegateError:
    if "out of range for nanosecond" in str(error):
        return needs_spark_error(pointer, "has a time before 1677 or after 2262 in an ORC file, which Arrow can't read")
    context = {"table": str(pointer.table), "path": pointer.metadata_location}
    is_damage = type(error) is OSError and error.errno is None  # Arrow raises these for invalid content
    if isinstance(error, OSError) and not (is_damage or isinstance(error, (IsADirectoryError, NotADirectoryError))):
        return unreadable_file_error(what, pointer.metadata_location, error, **context)
    return InputError(
        f"{what} is damaged: {_reason(error).rstrip('.')}.",
        hint="Restore it from a backup, or read the table at an older commit (lakegate log).",
        **context,
    )


def unreadable_file_error(what: str, location: str, error: OSError, **context: str) -> LakegateError:
    """Return the error for a file that its store or file system refuses to read.

    Args:
        what: The file, for the message to start with.
    """
    if isinstance(error, PermissionError):
        return ConfigurationError(
            f"{what} can't be read: {error.strerror or _reason(error)}.",
            hint="Check the permissions of the file and of the folders above it."
            if is_local(location)
            else "Check the credentials for the object store, and the setting catalog.warehouse.",
            setting=None if is_local(location) else "catalog.warehouse",
            **context,
        )
    return EngineError(
        f"{what} can't be read: {_reason(error)}.",
        hint="Check that the warehouse is reachable and that you may read its files.",
        **context,
    )


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def _create_local(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("xb")
    try:
        with stream:
            stream.write(content)
    except BaseException:
        # Closing flushes the buffer, so a full disk may only show there.
        path.unlink(missing_ok=True)
        raise


MARKER = ".lakegate"
"""Name of the marker object in a warehouse's root. Creating it proves that the warehouse is writable."""
_CATALOG = "catalog:"
_CONTENT = b"Tables of lakegate lie below. See `lakegate table list`; do not delete files here by hand.\n"


def require_writable(warehouse: str, storage: StorageSettings, catalog: str | None = None) -> None:
    """Check that a warehouse in an object store is writable, by creating its marker. This takes two requests.

    Args:
        warehouse: URI of its root. A local one just gets its marker.
        catalog: Identity of the catalog whose tables it holds, to write into a new marker.

    Raises:
        ConfigurationError: When the bucket doesn't exist, or credentials are missing, rejected or insufficient.
    """
    content = _CONTENT + (f"{_CATALOG} {catalog}\n".encode() if catalog else b"")
    if is_local(warehouse):
        with suppress(OSError):
            root = local_path(warehouse)
            root.mkdir(parents=True, exist_ok=True)
            with root.joinpath(MARKER).open("xb") as stream:
                stream.write(content)
    if not is_remote(warehouse):
        return
    marker = f"{warehouse.rstrip('/')}/{MARKER}"
    try:
        store = open_store(warehouse, storage)
        with suppress(PermissionError):
            # Listing fails if the bucket is missing. Some stores would create it on write, and hide a misspelled name.
            next(store.list(marker), None)
        store.create(marker, content)
    except FileExistsError:
        return
    except OSError as error:
        hint = "These credentials need permission to read and write below it."
        raise _unusable(warehouse, error.strerror or str(error), hint) from error
    except RetryableError:
        raise
    except LakegateError as error:
        raise _unusable(warehouse, error.message, error.hint or "") from error


def require_same_catalog(warehouse: str, storage: StorageSettings, catalog: str | None) -> None:
    """Check that a warehouse doesn't belong to another catalog, before gc deletes files that ours doesn't reach.

    A marker without a catalog, as older versions wrote it, is accepted.
    """
    try:
        if is_remote(warehouse):
            content = open_store(warehouse, storage).read(f"{warehouse.rstrip('/')}/{MARKER}")
            text = content.decode(errors="replace")
        else:
            text = local_path(warehouse).joinpath(MARKER).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, SourceError):
        return
    except OSError as error:
        raise _unusable(warehouse, f"its marker {MARKER} can't be read: {error.strerror or error}", "") from error
    named = next((line.removeprefix(_CATALOG).strip() for line in text.splitlines() if line.startswith(_CATALOG)), None)
    if named is not None and named != catalog:
        raise ConfigurationError(
            f"The warehouse {warehouse} belongs to another catalog ({named}; this one is {catalog}). Files that the "
            "other catalog's tables need would look like garbage here, so nothing was deleted.",
            hint="Set catalog.warehouse and catalog.uri to a warehouse and its own catalog. If the other catalog is "
            f"gone for good, delete {warehouse.rstrip('/')}/{MARKER}",
            setting="catalog.warehouse",
            warehouse=warehouse,
        )


def open_file_store(warehouse: str, storage: StorageSettings | None = None) -> WarehouseFiles:
    """Open the store of the files below ``warehouse``, the root URI of all tables.

    Raises:
        ConfigurationError: When its scheme isn't supported, or its library is missing or misconfigured.
    """
    if is_local(warehouse):
        return LocalFileStore(warehouse)
    if is_remote(warehouse):
        return ObjectFileStore(warehouse, open_store(warehouse, storage or StorageSettings()))
    scheme = warehouse.partition(":")[0]
    raise ConfigurationError(
        f"gc can't delete files in the warehouse {warehouse}: '{scheme}' isn't supported.",
        hint="gc supports local warehouses (file:///…) and object stores. Nothing was deleted.",
        setting="catalog.warehouse",
    )


class LocalFileStore:
    """Local files below ``root``, the URI of a folder; implements :class:`~lakegate.ports.WarehouseFiles`.

    All methods raise :class:`~lakegate.errors.EngineError` when the file system refuses.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(os.path.normpath(local_path(root)))

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        with _file_errors(path, "read"):
            return self._inside(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """Write a file atomically. Its name identifies its content, so one that exists is equal."""
        file = self._inside(path)
        new = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        with _file_errors(path, "written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                new.write_bytes(content)
                new.replace(file)
            finally:
                new.unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below ``prefix``. Symbolic links are neither followed nor yielded."""
        start = prefix.rstrip("/")
        folders = [(local_path(start), start)]
        while folders:
            folder, uri = folders.pop()
            with _file_errors(uri, "listed"), suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((Path(entry.path), f"{uri}/{entry.name}"))
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
                            path = f"{uri}/{entry.name}"
                            yield StoredFile(path=path, size_bytes=status.st_size, modified_at=modified)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files, and the folders that this leaves empty. Missing files are ignored.

        Raises:
            InputError: When a path is outside the root; nothing is deleted then.
        """
        files = [self._inside(path) for path in paths]
        for file in files:
            with _file_errors(str(file), "deleted"):
                file.unlink(missing_ok=True)
        for folder in {file.parent for file in files}:
            self._remove_empty(folder)

    def _inside(self, location: str) -> Path:
        path = Path(os.path.normpath(local_path(location)))
        if not is_local(location) or self._root not in path.parents:
            raise InputError(f"File {location} isn't in the warehouse {self._root}.", path=location)
        return path

    def _remove_empty(self, folder: Path) -> None:
        # rmdir refuses a folder that isn't empty, so a writer's new file is never lost.
        with suppress(OSError):
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent


class ObjectFileStore:
    """Objects below ``root``, the URI of a prefix; implements :class:`~lakegate.ports.WarehouseFiles`.

    In a versioned bucket, deleted objects stay as older versions until the bucket's lifecycle rules remove them. All
    methods raise :class:`~lakegate.errors.EngineError` when the store refuses, and another
    :class:`~lakegate.errors.LakegateError` when it can't be reached.
    """

    def __init__(self, root: str, store: ObjectStore) -> None:
        self._root = root.rstrip("/")
        self._store = store

    def read(self, path: str) -> bytes:
        """Return an object's content."""
        with _file_errors(path, "read"):
            return self._store.read(path)

    def write(self, path: str, content: bytes) -> None:
        """Write an object. Its name identifies its content, so one that exists is equal."""
        with _file_errors(path, "written"), suppress(FileExistsError):
            self._store.create(path, content)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all objects below ``prefix``, except the marker of the warehouse."""
        marker = f"{self._root}/{MARKER}"
        with _file_errors(prefix, "listed"):
            for found in self._store.list(f"{prefix.rstrip('/')}/"):
                if found.uri != marker:
                    yield StoredFile(path=found.uri, size_bytes=found.size_bytes, modified_at=found.modified_at)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Missing ones are ignored.

        Raises:
            InputError: When a path is outside the root; nothing is deleted then.
        """
        for path in paths:
            if not path.startswith(f"{self._root}/"):
                raise InputError(f"File {path} isn't in the warehouse {self._root}.", path=path)
        with _file_errors(self._root, "deleted from"):
            self._store.delete(paths)


@contextmanager
def _file_errors(path: str, done: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} doesn't exist.", path=path) from error
    except OSError as error:
        raise EngineError(
            f"{path} can't be {done}: {error.strerror or error}.",
            hint="Check that you may read and write the warehouse, then run the command again.",
            path=path,
        ) from error


def _unusable(warehouse: str, reason: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"The warehouse {warehouse} can't be used: {reason.rstrip('.')}.",
        hint=f"Nothing was written. {hint} The setting is catalog.warehouse.".replace("  ", " "),
        setting="catalog.warehouse",
        warehouse=warehouse,
    )
