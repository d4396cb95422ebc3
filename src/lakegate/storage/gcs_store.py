"""Objects on Google Cloud Storage, over its JSON API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from lakegate.config import GcsSettings
from lakegate.storage.addresses import Address
from lakegate.storage.creating import create_once
from lakegate.storage.errors import no_bucket
from lakegate.storage.gcs import ENDPOINT, gcs_client, gcs_retry, translated
from lakegate.storage.objects import StoredObject
from lakegate.storage.ranges import ranged
from lakegate.storage.retrying import CutError

_FIELDS = "items(name,size,generation,updated),nextPageToken"
_DELETED_AT_ONCE = 16


class GcsStore:
    """Implements :class:`~lakegate.storage.objects.ObjectStore`.

    An object's ``etag`` is its generation, which every write makes a new one of, as its ``version_id`` is: Google's own
    entity tags change with the metadata too.

    Args:
        settings: How to reach Google Cloud Storage.

    Raises:
        ConfigurationError: When the library is not installed, or there are no credentials.
    """

    def __init__(self, settings: GcsSettings) -> None:
        self._client = gcs_client(settings)
        self._retry = gcs_retry()

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``; see :meth:`~lakegate.storage.objects.ObjectStore.list`."""
        address = Address.parse(prefix)
        listed = iter(
            self._client.list_blobs(address.bucket, prefix=address.key or None, fields=_FIELDS, retry=self._retry)
        )
        while True:
            try:
                with translated(prefix):
                    blob = next(listed, None)
            except FileNotFoundError as error:
                raise no_bucket(prefix, ENDPOINT) from error
            if blob is None:
                return
            yield _stored(f"{address.root}/{blob.name}", blob)

    def stat(self, uri: str) -> StoredObject:
        """Return the object of that very key; see :meth:`~lakegate.storage.objects.ObjectStore.stat`."""
        blob = self._blob(uri)
        with translated(uri):
            blob.reload(retry=self._retry)
        return _stored(uri, blob)

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Return its content as a stream; see :meth:`~lakegate.storage.objects.ObjectStore.open`."""
        if etag is None or size_bytes is None:
            found = self.stat(uri)
            etag, size_bytes = etag or found.etag, found.size_bytes
        return ranged(partial(self._read, uri, int(etag)), size_bytes)

    def create(self, uri: str, content: bytes) -> None:
        """Write an object where there is none; see :meth:`~lakegate.storage.objects.ObjectStore.create`."""
        create_once(uri, partial(self._create, uri, content), partial(self._metadata, uri))

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, several at a time; ones that are gone already are no error."""
        with ThreadPoolExecutor(_DELETED_AT_ONCE, thread_name_prefix="lakegate-delete") as pool:
            for _ in pool.map(self._delete, uris):
                pass

    def _blob(self, uri: str) -> Any:
        address = Address.parse(uri)
        return self._client.bucket(address.bucket).blob(address.key)

    def _read(self, uri: str, generation: int, start: int, end: int) -> bytes:
        blob = self._blob(uri)
        with translated(uri):
            content: bytes = blob.download_as_bytes(
                start=start,
                end=end - 1,
                if_generation_match=generation,
                raw_download=True,  # as it is stored, and not decompressed on the way
                checksum=None,  # there is none of a range
                retry=self._retry,
            )
        if len(content) != end - start:
            raise CutError(f"The answer for '{uri}' broke off.", hint="Try again.", file=uri)
        return content

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        blob = self._blob(uri)
        blob.metadata = metadata
        with translated(uri):
            blob.upload_from_string(
                content, content_type="application/octet-stream", if_generation_match=0, retry=self._retry
            )

    def _metadata(self, uri: str) -> Mapping[str, str]:
        blob = self._blob(uri)
        with translated(uri):
            blob.reload(retry=self._retry)
        return blob.metadata or {}

    def _delete(self, uri: str) -> None:
        with suppress(FileNotFoundError), translated(uri):
            self._blob(uri).delete(retry=self._retry)


def _stored(uri: str, blob: Any) -> StoredObject:
    generation = str(blob.generation)
    return StoredObject(uri, blob.size, blob.updated, generation, generation)
