"""Source files as found on disk or in an object store, and their URIs."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote_to_bytes

from lakegate.config import StorageSettings
from lakegate.errors import InputError
from lakegate.storage import open_store
from lakegate.storage.objects import ObjectAddress, StoredObject, canonical, is_remote

SPARK_GLOB_CHARACTERS = frozenset("*?[]{}\\")
"""Characters that Spark treats as part of a glob unless they're escaped."""
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_PARTITION_FOLDER = re.compile(r"([^=/]+)=[^/]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Located(ABC):
    """A source file as found.

    Attributes:
        path: Absolute path by which it was found, without following symbolic links; in a store, the object's URI.
        modified_at: Time of its last change, in UTC.
        stamp: A fingerprint that changes when the file is written to.
        version_id: The object store's id of this version, if it keeps versions.
        partition_keys: The ``key`` of each ``key=value`` folder between the given folder and the file.
    """

    path: str
    size_bytes: int
    modified_at: datetime
    stamp: str
    version_id: str | None = None
    partition_keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """The URI of the file itself."""
        return self.path

    @property
    def found_uri(self) -> str:
        """The URI of the path by which it was found."""
        return self.path

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open it for reading. This, and reading, raises ``OSError`` or ``StorageUnavailableError``."""

    @abstractmethod
    def content_version(self) -> str:
        """Return an id of its content. Raises what :meth:`open` does."""

    def has_changed(self) -> bool:
        """Return whether it may have been written to, replaced or deleted since it was found."""
        return False  # every read of an object names its version

    def has_version(self, version: str) -> bool:
        """Return whether its content is still ``version``, given that its stamp is still the same."""
        return self.content_version() == version


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile(Located):
    """A regular file; ``real`` is its absolute path with all links resolved.

    Its stamp is ``<bytes>-<nanoseconds>``, ``inode`` its device and inode. Programs can set the
    modification time, but not ``changed_ns``, the time of the inode's last change.
    """

    real: str
    inode: tuple[int, int]
    modified_ns: int
    changed_ns: int

    @property
    def uri(self) -> str:
        """The URI of the file itself."""
        return to_uri(self.real)

    @property
    def found_uri(self) -> str:
        """The URI of the path by which it was found."""
        return to_uri(self.path)

    def open(self) -> BufferedReader:
        """Open it for reading."""
        return Path(self.real).open("rb")

    def content_version(self) -> str:
        """Return the SHA-256 of its bytes, so that a copy has the same version."""
        with self.open() as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"

    def has_changed(self) -> bool:
        """Return whether it may have been written to, replaced or deleted since it was found."""
        try:
            now = stat_file(self.real)
        except OSError:
            return True
        return now is None or (now.stamp, now.inode, now.changed_ns) != (self.stamp, self.inode, self.changed_ns)

    def has_version(self, version: str) -> bool:
        """Return whether its content is still ``version``, given that its stamp is still the same.

        Writing sets both of a file's times. If they're equal, its modification time wasn't set back, and the stamp is
        proof. Otherwise (it was copied with its time, moved or linked), its bytes are read.
        """
        try:
            return self.changed_ns == self.modified_ns or self.content_version() == version
        except OSError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile(Located):
    """An object in a store, with its canonical URI.

    Its version and stamp are its entity tag and size. On S3, they depend only on the content: an object that is copied
    onto itself stays the same, and version ids don't matter. In other stores, every write gives a new version.
    """

    etag: str
    storage: StorageSettings = field(repr=False)

    @classmethod
    def of(cls, found: StoredObject, storage: StorageSettings, partition_keys: tuple[str, ...] = ()) -> RemoteFile:
        """Return a stored object as a source file."""
        return cls(
            path=found.uri,
            size_bytes=found.size_bytes,
            modified_at=found.modified_at,
            stamp=f"{found.size_bytes}-{found.etag}",
            version_id=found.version_id,
            partition_keys=partition_keys,
            etag=found.etag,
            storage=storage,
        )

    def open(self) -> BinaryIO:
        """Open the content of exactly this version."""
        return open_store(self.uri, self.storage).open(self.uri, etag=self.etag, size_bytes=self.size_bytes)

    def content_version(self) -> str:
        """Return ``etag:<etag>:<bytes>``, without reading anything."""
        return f"etag:{self.etag}:{self.size_bytes}"


def stat_file(path: str, partition_keys: tuple[str, ...] = ()) -> LocalFile | None:
    """Return the file at ``path``; ``None`` if it isn't a regular file."""
    real = os.path.realpath(path)
    status = Path(real).stat()
    if not stat.S_ISREG(status.st_mode):
        return None
    return LocalFile(
        path=path,
        real=real,
        size_bytes=status.st_size,
        modified_at=datetime.fromtimestamp(status.st_mtime_ns / 1e9, tz=UTC),
        stamp=f"{status.st_size}-{status.st_mtime_ns}",
        inode=(status.st_dev, status.st_ino),
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
        partition_keys=partition_keys,
    )


def stat_object(uri: str, storage: StorageSettings) -> RemoteFile | None:
    """Return the object with exactly this key; ``None`` if there is none."""
    known_as = canonical(uri)
    if not ObjectAddress.parse(known_as).key:
        return None
    try:
        return RemoteFile.of(open_store(known_as, storage).stat(known_as), storage)
    except FileNotFoundError:
        return None


def find(uri: str, storage: StorageSettings) -> Located | None:
    """Return the file at ``uri``; ``None`` if it isn't a regular file, or the store has no such object."""
    return stat_object(uri, storage) if is_remote(uri) else stat_file(from_uri(uri))


def find_now(uri: str, storage: StorageSettings) -> Located | None:
    """Return the file at ``uri`` as it is now; ``None`` if it's gone or inaccessible."""
    try:
        return find(uri, storage)
    except OSError:
        return None


def to_uri(path: str | Path) -> str:
    """Return the ``file://`` URI of an absolute path (RFC 8089).

    All bytes of the path except ASCII letters, digits, ``_.-~`` and ``/`` are percent-encoded. So a URI is plain ASCII
    without spaces, quotes or glob characters, and :func:`from_uri` returns exactly the same path.

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
        InputError: When it isn't a ``file:`` URI of this machine.

    Example:
        >>> from_uri("file:///data/10%25%20off/%C3%A9%231%20%5Ba%5D.csv")
        '/data/10% off/é#1 [a].csv'
    """
    return os.fsdecode(unquote_to_bytes(path_of_uri(uri)))


def path_of_uri(uri: str) -> str:
    """Return the path in a ``file:`` URI, still percent-encoded."""
    match = _FILE_URI.match(uri)
    if match is None:
        raise InputError(f"'{uri}' isn't the URI of a local file.", hint="Write it as file:///absolute/path.", path=uri)
    return uri[match.end() :]


def shown(path: str) -> str:
    """Return ``path`` in a printable form, even if it isn't valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def partition_keys(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of those ``folders`` that are named ``key=value``.

    Example:
        >>> partition_keys(("day=1", "raw", "hour=07"))
        ('day', 'hour')
    """
    return tuple(match[1] for folder in folders if (match := _PARTITION_FOLDER.fullmatch(folder)))


def is_ignored(name: str) -> bool:
    """Return whether Spark would skip a file or folder of this name, or it's Excel's lock file for an open workbook.

    Spark's rule is ``HadoopFSUtils.shouldFilterOutPathName``: a leading ``.``, a leading ``_`` without a ``=``
    (``_SUCCESS``, ``_temporary``), and copies in progress. Excel's lock files are named ``~$`` and the workbook's name.
    """
    is_hidden = name.startswith((".", "~$")) or (name.startswith("_") and "=" not in name)
    return is_hidden or name.endswith("._COPYING_")
