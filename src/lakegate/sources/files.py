"""Source files as they were found, on disk or in an object store, and the URIs that name them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from lakegate.config import StorageSettings
from lakegate.errors import InputError
from lakegate.storage import open_store
from lakegate.storage.objects import Address, StoredObject, canonical, is_remote

SPARK_GLOB_CHARACTERS = frozenset("*?[]{}\\")
"""What Spark takes for part of a pattern, unless it is escaped."""
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_PARTITION_FOLDER = re.compile(r"([^=/]+)=[^/]*")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file as it was found.

    Attributes:
        path: Absolute path by which it was found, symbolic links not followed.
        real: Absolute path of the file itself, without any link.
        size_bytes: Length in bytes.
        mtime_ns: Time of the last change, in nanoseconds since the epoch.
        identity: Device and inode: the same for all names of one file.
        partition_keys: The ``key`` of each ``key=value`` folder between the folder asked for and the file.
    """

    path: str
    real: str
    size_bytes: int
    mtime_ns: int
    identity: tuple[int, int]
    partition_keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Last part of the path."""
        return Path(self.path).name

    @property
    def uri(self) -> str:
        """URI of the file itself."""
        return to_uri(self.real)

    @property
    def found_uri(self) -> str:
        """URI of the path by which it was found."""
        return to_uri(self.path)

    @property
    def lasting_identity(self) -> str:
        """Device, inode and time of last change, ``<device>-<inode>-<nanoseconds>``.

        All names of a file have them in common, before and after it was renamed. An inode that is used again for
        another file comes with another time.
        """
        device, inode = self.identity
        return f"{device}-{inode}-{self.mtime_ns}"

    @property
    def modified_at(self) -> datetime:
        """Time of the last change, in UTC."""
        return datetime.fromtimestamp(self.mtime_ns / 1e9, tz=UTC)

    @property
    def stamp(self) -> str:
        """Size and time of the last change, ``<bytes>-<nanoseconds>``: changes when the file is written to."""
        return f"{self.size_bytes}-{self.mtime_ns}"

    @property
    def version_id(self) -> None:
        """Local files have none."""
        return

    def open(self) -> BufferedReader:
        """Open it for reading."""
        return Path(self.real).open("rb")

    def content_version(self) -> str:
        """Return the SHA-256 of its bytes: by size and time alone, a new copy would be another file."""
        with self.open() as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile(StoredObject):
    """An object in a store, under its canonical URI.

    Its version and stamp are entity tag and size. On S3 those are of the content, so an object that is copied over
    itself is the same one, and its version id on a versioned bucket plays no part. Elsewhere every write makes another
    one of it.

    Attributes:
        storage: How to reach it.
        partition_keys: As those of a :class:`LocalFile`.
    """

    storage: StorageSettings = field(repr=False)
    partition_keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: StoredObject, storage: StorageSettings, partition_keys: tuple[str, ...] = ()) -> RemoteFile:
        """Return a stored object as a source file."""
        stored = (found.uri, found.size_bytes, found.modified_at, found.etag, found.version_id)
        return cls(*stored, storage=storage, partition_keys=partition_keys)

    @property
    def path(self) -> str:
        """How people write it: the URI."""
        return self.uri

    @property
    def found_uri(self) -> str:
        """The URI: there are no links."""
        return self.uri

    @property
    def identity(self) -> str:
        """The URI, which is canonical."""
        return self.uri

    @property
    def lasting_identity(self) -> str:
        """There is none: a renamed object is a new one."""
        return ""

    @property
    def key(self) -> str:
        """What follows the bucket."""
        return Address.parse(self.uri).key

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.uri.rpartition("/")[2]

    @property
    def stamp(self) -> str:
        """Size and entity tag, ``<bytes>-<etag>``."""
        return f"{self.size_bytes}-{self.etag}"

    def open(self) -> BinaryIO:
        """Return its content as a stream, of this version only."""
        return open_store(self.uri, self.storage).open(self.uri, etag=self.etag, size_bytes=self.size_bytes)

    def content_version(self) -> str:
        """Return ``etag:<etag>:<bytes>``, as it was found; reads nothing."""
        return f"etag:{self.etag}:{self.size_bytes}"


Located: TypeAlias = LocalFile | RemoteFile
"""A source file, hashable. Opening or reading it raises ``OSError`` or ``StorageUnavailableError``."""


def stat_file(path: str, partition_keys: tuple[str, ...] = ()) -> LocalFile | None:
    """Return the file at ``path``, ``None`` when it is not a regular file."""
    real = os.path.realpath(path)
    status = Path(real).stat()
    if not stat.S_ISREG(status.st_mode):
        return None
    return LocalFile(path, real, status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino), partition_keys)


def stat_object(uri: str, storage: StorageSettings) -> RemoteFile | None:
    """Return the object of that very key; ``None`` when there is none."""
    known_as = canonical(uri)
    if not Address.parse(known_as).key:
        return None
    try:
        return RemoteFile.of(open_store(known_as, storage).stat(known_as), storage)
    except FileNotFoundError:
        return None


def stamp_now(uri: str, storage: StorageSettings) -> str | None:
    """Return the present stamp of the file at ``uri``; ``None`` when it is gone or may not be looked at."""
    found: Located | None
    try:
        found = stat_object(uri, storage) if is_remote(uri) else stat_file(from_uri(uri))
    except OSError:
        return None
    return None if found is None else found.stamp


def to_uri(path: str | Path) -> str:
    """Return the ``file://`` URI of an absolute path (RFC 8089).

    The path's UTF-8 bytes are percent-encoded, all but ASCII letters, digits, ``_.-~`` and ``/``. So a URI is plain
    ASCII without spaces, quotes or glob characters, and :func:`from_uri` gives the very same path back.

    Example:
        >>> to_uri("/data/10% off/é#1 [a].csv")
        'file:///data/10%25%20off/%C3%A9%231%20%5Ba%5D.csv'
    """
    return "file://" + quote(os.fsencode(path), safe="/")


def from_uri(uri: str) -> str:
    """Return the path that a ``file:`` URI names.

    Args:
        uri: ``file:///path``, ``file:/path`` or ``file://localhost/path``, percent-encoded.

    Raises:
        InputError: When it is no ``file:`` URI of this machine.

    Example:
        >>> from_uri("file:///data/10%25%20off/%C3%A9%231%20%5Ba%5D.csv")
        '/data/10% off/é#1 [a].csv'
    """
    return os.fsdecode(unquote_to_bytes(path_of_uri(uri)))


def path_of_uri(uri: str) -> str:
    """Return the path in a ``file:`` URI, still percent-encoded."""
    match = _FILE_URI.match(uri)
    if match is None:
        raise InputError(f"'{uri}' is not the URI of a file here.", hint="Write it as file:///absolute/path.", path=uri)
    return uri[match.end() :]


def shown(path: str) -> str:
    """Return ``path`` so that it can be printed even when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def partition_keys(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the ``key`` of each of ``folders`` that is named ``key=value``.

    Example:
        >>> partition_keys(("day=1", "raw", "hour=07"))
        ('day', 'hour')
    """
    return tuple(match[1] for folder in folders if (match := _PARTITION_FOLDER.fullmatch(folder)))


def is_ignored(name: str) -> bool:
    """Tell whether Spark would leave out a file or folder of this name.

    The rule is that of ``HadoopFSUtils.shouldFilterOutPathName``: leading ``.``, leading ``_`` without a ``=``
    (``_SUCCESS``, ``_temporary``), and copies in progress.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
