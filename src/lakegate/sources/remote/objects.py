"""Single objects: looked at by their metadata, and read in ranges of one and the same content."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO

from lakegate.config import StorageSettings
from lakegate.storage.addresses import Address, canonical
from lakegate.storage.objects import StoredObject
from lakegate.storage.opening import open_store


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Implements :class:`~lakegate.sources.located.Located`.

    Its version and stamp are entity tag and size. On S3 those are of the content, so an object that is copied over
    itself is the same one, and its version id on a versioned bucket plays no part. Elsewhere every write makes another
    one of it.

    Attributes:
        found: The object, under its canonical URI.
        storage: How to reach it.
        partition_keys: See :class:`~lakegate.sources.located.Located`.
    """

    found: StoredObject
    storage: StorageSettings = field(repr=False)
    partition_keys: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The same as :attr:`uri`: how people write it."""
        return self.found.uri

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.found.uri.rpartition("/")[2]

    @property
    def key(self) -> str:
        """What follows the bucket."""
        return Address.parse(self.found.uri).key

    @property
    def uri(self) -> str:
        """``s3://bucket/key``, nothing encoded."""
        return self.found.uri

    @property
    def size_bytes(self) -> int:
        """Length in bytes."""
        return self.found.size_bytes

    @property
    def modified_at(self) -> datetime:
        """When it was written."""
        return self.found.modified_at

    @property
    def stamp(self) -> str:
        """Size and entity tag, ``<bytes>-<etag>``."""
        return f"{self.found.size_bytes}-{self.found.etag}"

    @property
    def version_id(self) -> str | None:
        """The store's word for this version, where the look that found it told one."""
        return self.found.version_id

    @property
    def identity(self) -> str:
        """The URI, which is canonical."""
        return self.found.uri

    def open(self) -> BinaryIO:
        """Return its content as a stream; see :meth:`~lakegate.sources.located.Located.open`."""
        found = self.found
        return open_store(found.uri, self.storage).open(found.uri, etag=found.etag, size_bytes=found.size_bytes)

    def content_version(self) -> str:
        """Return ``etag:<etag>:<bytes>``, as it was found; reads nothing."""
        return f"etag:{self.found.etag}:{self.found.size_bytes}"

    def stamp_now(self) -> str | None:
        """Return the stamp that the object has now; ``None`` when it is gone.

        Raises:
            StorageUnavailableError: When the store does not answer.
        """
        return stamp_now(self.found.uri, self.storage)


def locate(uri: str, storage: StorageSettings) -> RemoteFile | None:
    """Return the object of that very key as it stands now; ``None`` when there is none.

    Raises:
        PermissionError: When it may not be looked at.
        LakegateError: When its store cannot be asked.
    """
    known_as = canonical(uri)
    if not Address.parse(known_as).key:
        return None
    try:
        return RemoteFile(open_store(known_as, storage).stat(known_as), storage)
    except FileNotFoundError:
        return None


def stamp_now(uri: str, storage: StorageSettings) -> str | None:
    """Return the stamp of an object as it is now; ``None`` when it is gone or may not be looked at.

    Raises:
        StorageUnavailableError: When its store does not answer.
    """
    try:
        found = locate(uri, storage)
    except PermissionError:
        return None
    return None if found is None else found.stamp
