"""Objects in a store, whichever store it is: list, look at, read, create and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it stood when it was looked at.

    Attributes:
        uri: Its location, beginning as the one that was asked for; nothing encoded.
        size_bytes: Length in bytes.
        modified_at: When it was written, in UTC.
        etag: Entity tag, without quotes: another one when the content is.
        version_id: Which version of its key it is, where the bucket keeps versions and the look tells it.
    """

    uri: str
    size_bytes: int
    modified_at: datetime
    etag: str
    version_id: str | None = None


class ObjectStore(Protocol):
    """The objects of one service. May be used from any thread.

    All methods raise so, besides what each says:

    Raises:
        PermissionError: When the object or bucket may not be used so.
        ConfigurationError: When there are no credentials, or the store does not accept them.
        SourceError: When the bucket does not exist, or the store refuses for another reason.
        StorageUnavailableError: When the store does not answer, or cannot serve now, again and again.
    """

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose URIs start with ``prefix``, fetched page by page as they are asked for.

        Args:
            prefix: Bucket and the beginning of keys, at any character: ``s3://bucket/data/2024-``.
        """
        ...

    def stat(self, uri: str) -> StoredObject:
        """Return the object of that very key.

        Raises:
            FileNotFoundError: When there is none.
        """
        ...

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Return its content as a buffered stream that can seek, read in ranges of one and the same content.

        Args:
            uri: The object.
            etag: Which content; the present one by default.
            size_bytes: How long that content is, where it is known together with ``etag``: spares a request.

        Raises:
            FileNotFoundError: When there is none; from reading too, when it goes away meanwhile.
            ReplacedError: When it has other content; from reading too.
        """
        ...

    def create(self, uri: str, content: bytes) -> None:
        """Write an object where there is none: all of it or nothing.

        Raises:
            FileExistsError: When there is one.
        """
        ...

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects; ones that are gone already are no error."""
        ...
