"""Objects on Azure Data Lake Storage, over the Blob API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from lakegate.config import AdlsSettings
from lakegate.storage.addresses import Address
from lakegate.storage.adls import adls_client, translated
from lakegate.storage.creating import create_once
from lakegate.storage.errors import ReplacedError, gone
from lakegate.storage.objects import StoredObject
from lakegate.storage.ranges import ranged

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobProperties

_DELETED_AT_ONCE = 16
_FOLDER = "hdi_isfolder"  # metadata of what stands for a folder, in accounts that have them


class AdlsStore:
    """Implements :class:`~lakegate.storage.objects.ObjectStore` for one storage account.

    Args:
        address: Any address in the account.
        settings: How to reach it.

    Raises:
        ConfigurationError: When the library is not installed.
    """

    def __init__(self, address: Address, settings: AdlsSettings) -> None:
        self._client = adls_client(address.root.partition("@")[2], settings)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``, folders left out; see :class:`~lakegate.storage.objects.ObjectStore`."""
        address = Address.parse(prefix)
        container = self._client.get_container_client(address.bucket)
        listed = iter(container.list_blobs(name_starts_with=address.key or None, include=["metadata"]))
        while True:
            with translated(prefix):
                blob = next(listed, None)
            if blob is None:
                return
            if _FOLDER not in (blob.metadata or {}):
                yield _stored(f"{address.root}/{blob.name}", blob)

    def stat(self, uri: str) -> StoredObject:
        """Return the object of that very key; see :meth:`~lakegate.storage.objects.ObjectStore.stat`."""
        with translated(uri):
            found = self._blob(uri).get_blob_properties()
        if _FOLDER in (found.metadata or {}):
            raise gone(uri)
        return _stored(uri, found)

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Return its content as a stream; see :meth:`~lakegate.storage.objects.ObjectStore.open`."""
        if etag is None or size_bytes is None:
            found = self.stat(uri)
            etag, size_bytes = etag or found.etag, found.size_bytes
        return ranged(partial(self._read, uri, etag), size_bytes)

    def create(self, uri: str, content: bytes) -> None:
        """Write an object where there is none; see :meth:`~lakegate.storage.objects.ObjectStore.create`."""
        create_once(uri, partial(self._create, uri, content), partial(self._metadata, uri))

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, several at a time; ones that are gone already are no error."""
        with ThreadPoolExecutor(_DELETED_AT_ONCE, thread_name_prefix="lakegate-delete") as pool:
            for _ in pool.map(self._delete, uris):
                pass

    def _blob(self, uri: str) -> BlobClient:
        address = Address.parse(uri)
        return self._client.get_blob_client(address.bucket, address.key)

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        from azure.core import MatchConditions  # noqa: PLC0415 - an extra

        try:
            with translated(uri):
                answer = self._blob(uri).download_blob(
                    start, end - start, etag=f'"{etag}"', match_condition=MatchConditions.IfNotModified
                )
                return answer.readall()
        except ReplacedError:
            self.stat(uri)  # of what is gone, too, the condition is not met
            raise

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        with translated(uri):
            self._blob(uri).upload_blob(content, overwrite=False, metadata=metadata)

    def _metadata(self, uri: str) -> Mapping[str, str]:
        with translated(uri):
            return self._blob(uri).get_blob_properties().metadata or {}

    def _delete(self, uri: str) -> None:
        with suppress(FileNotFoundError), translated(uri):
            self._blob(uri).delete_blob(delete_snapshots="include")


def _stored(uri: str, found: BlobProperties) -> StoredObject:
    return StoredObject(uri, found.size, found.last_modified, found.etag.strip('"'), found.version_id)
