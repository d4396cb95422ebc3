"""The files of tables, on this machine or in an object store: read whole, and created where there is none yet.

PyIceberg's own ways to them go through Arrow or fsspec: slow to import, with credentials and retries of their own, and
they replace a file that exists, where a table's file must be new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from lakegate.config import StorageSettings
from lakegate.errors import ConfigurationError, EngineError, InputError, LakegateError, NotFoundError
from lakegate.iceberg.metadata import MetadataFile
from lakegate.model.refs import TablePointer
from lakegate.storage import open_store
from lakegate.storage.objects import Address, ObjectStore

_Parsed = TypeVar("_Parsed")
_METADATA_FILES_KEPT = 16
_SCHEME = "file:"
_WHOLLY_KNOWN = 2
"""The newest format version of which PyIceberg reads everything."""


def is_local(location: str) -> bool:
    """Return whether ``location`` is a file of this machine: a ``file:`` URI or an absolute path.

    Example:
        >>> is_local("file:///lake/t"), is_local("/lake/t"), is_local("s3://lake/t")
        (True, True, False)
    """
    return location.startswith((_SCHEME, "/"))


def local_path(location: str) -> Path:
    """Return the path of a local location. Nothing is unquoted: Hadoop and PyArrow take and write paths as they are.

    Example:
        >>> local_path("file:///lake/a b%20").as_posix(), local_path("file:/lake/t").as_posix()
        ('/lake/a b%20', '/lake/t')
    """
    path = location.removeprefix(_SCHEME)
    return Path(path[2:].removeprefix("localhost") if path.startswith("//") else path)


class TableFiles:
    """Reads and creates the files of tables; overwrites and deletes nothing. May be used from any thread.

    Args:
        storage: How to reach the object stores; by default as their own tools do.
    """

    def __init__(self, storage: StorageSettings | None = None) -> None:
        self._storage = storage or StorageSettings()
        self._stores: dict[str, ObjectStore] = {}
        # A metadata file never changes once it's written.
        self._load = lru_cache(_METADATA_FILES_KEPT)(lambda path: MetadataFile.parse(path, self.content(path)))

    def metadata(self, pointer: TablePointer) -> MetadataFile:
        """Return the metadata file of the table at ``pointer``; raises as :func:`reading`."""
        with reading(f"Metadata file {pointer.metadata_location} of table {pointer.table}", pointer):
            return self._load(pointer.metadata_location)

    def content(self, location: str) -> bytes:
        """Return what a file holds; raises as the file system or the object store does."""
        if is_local(location):
            return local_path(location).read_bytes()
        store = self._store(location)
        found = store.stat(location)
        # The whole of it in one request.
        with store.open(location, etag=found.etag, size_bytes=found.size_bytes) as stream:
            return stream.read(found.size_bytes)

    def open(self, location: str) -> Any:
        """Return a stream over a file, for Arrow to read parts of; raises as the file system or object store does."""
        if is_local(location):
            from pyarrow import OSFile  # which Arrow's threads read without Python

            return OSFile(str(local_path(location)), "rb")
        return self._store(location).open(location)

    def exists(self, location: str) -> bool:
        """Return whether there is such a file; there's none in a store that nobody knows.

        Raises:
            PermissionError: When the object or bucket may not be used so.
            ConfigurationError: When there are no credentials, or the store does not accept them.
            SourceError: When the bucket does not exist, or the store refuses for another reason.
            StorageUnavailableError: When the store does not answer, or can't serve, after several attempts.
        """
        if is_local(location):
            return local_path(location).exists()
        try:
            Address.parse(location)
        except InputError:
            return False
        try:
            self._store(location).stat(location)
        except FileNotFoundError:
            return False
        return True

    def read(self, what: str, location: str, pointer: TablePointer, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Return what ``parse`` makes of a file of the table at ``pointer``; raises as :func:`reading`.

        Args:
            what: What the file is, as a message starts with it: ``Manifest``.
        """
        with reading(f"{what} {location} of table {pointer.table}", pointer):
            return parse(self.content(location))

    def create(self, location: str, content: bytes, pointer: TablePointer) -> None:
        """Write a new metadata file of the table at ``pointer``: all of it or nothing.

        Raises:
            ConfigurationError: When it may not be written.
            EngineError: When it can't be written, or exists.
        """
        table, context = pointer.table, {"table": str(pointer.table), "path": location}
        try:
            if is_local(location):
                _create_local(local_path(location), content)
            else:
                self._store(location).create(location, content)
        except PermissionError as error:
            raise ConfigurationError(
                f"Can't write the metadata of table {table} to {location}: {error.strerror or error}.",
                hint="Nothing was published. Check the rights to the warehouse (setting catalog.warehouse).",
                **context,
            ) from error
        except OSError as error:
            raise EngineError(
                f"Metadata of table {table} cannot be written to {location}: {error.strerror or error}.",
                hint="Nothing was published. Check that the warehouse has room and may be written to, then try again.",
                **context,
            ) from error

    def _store(self, location: str) -> ObjectStore:
        bucket = "/".join(location.split("/", 3)[:3])
        if bucket not in self._stores:
            self._stores[bucket] = open_store(location, self._storage)
        return self._stores[bucket]


@contextmanager
def reading(what: str, pointer: TablePointer) -> Iterator[None]:
    """Raise whatever goes wrong with a table's metadata in the body as an error of ours.

    Args:
        what: The file, as a message starts with it.

    Raises:
        NotFoundError: When the file is missing.
        InputError: When it is damaged.
        EngineError: When it can't be read just now.
        ConfigurationError: When it may not be read.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{what} does not exist.",
            hint="Its files were moved or deleted outside lakegate, or this machine does not see them.",
            table=str(pointer.table),
            path=pointer.metadata_location,
        ) from error
    except LakegateError:
        raise
    except Exception as error:  # PyIceberg's parsers raise anything
        raise _unreadable(what, pointer, error) from error


@contextmanager
def reading_metadata(file: MetadataFile, pointer: TablePointer) -> Iterator[None]:
    """As :func:`reading`, of what PyIceberg makes of a table's metadata.

    Raises:
        InputError: Also when the table uses something of a newer format version that PyIceberg doesn't know.
    """
    try:
        with reading(f"Metadata file {pointer.metadata_location} of table {pointer.table}", pointer):
            yield
    except InputError as error:
        version = file.document["format-version"]
        if version <= _WHOLLY_KNOWN:
            raise
        unknown = f"uses something of format version {version}, such as a variant column, that only Spark reads"
        raise only_spark(pointer, unknown) from error


def only_spark(pointer: TablePointer, problem: str) -> InputError:
    """Return the error of a table that isn't read here, but by Spark."""
    return InputError(
        f"Table {pointer.table} {problem}.",
        hint="Read it with Spark: lake.query(), or lakegate query.",
        table=str(pointer.table),
    )


def _unreadable(what: str, pointer: TablePointer, error: Exception) -> LakegateError:
    context = {"table": str(pointer.table), "path": pointer.metadata_location}
    if isinstance(error, OSError) and not isinstance(error, (IsADirectoryError, NotADirectoryError)):
        return not_readable(what, pointer.metadata_location, error, **context)
    reason = _reason(error)
    return InputError(
        f"{what} is damaged: {reason}.", hint="Restore it, or read the table at an older commit.", **context
    )


def not_readable(what: str, location: str, error: OSError, **context: str) -> LakegateError:
    """Return the error for a file that its store or file system doesn't hand out.

    Args:
        what: The file, for the message.
        context: Of the error.
    """
    if isinstance(error, PermissionError) and not is_local(location):
        return ConfigurationError(
            f"{what} can't be read: {error.strerror or _reason(error)}.",
            hint="Check the credentials for the object store, and the setting catalog.warehouse.",
            setting="catalog.warehouse",
            **context,
        )
    return EngineError(
        f"{what} cannot be read: {_reason(error)}.",
        hint="Check that the warehouse is reachable and that its files may be read.",
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
        # What is buffered is written when it is closed, so a full disk may show there.
        path.unlink(missing_ok=True)
        raise
