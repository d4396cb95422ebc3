"""Objects on S3 and on stores that speak its language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from lakegate.config import S3Settings
from lakegate.errors import StorageUnavailableError
from lakegate.storage.addresses import Address
from lakegate.storage.creating import create_once
from lakegate.storage.objects import StoredObject
from lakegate.storage.ranges import ranged
from lakegate.storage.retrying import CutError, retried
from lakegate.storage.s3 import refusal, s3_client, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2RequestTypeDef

_DELETED_AT_ONCE = 1000


class S3Store:
    """Implements :class:`~lakegate.storage.objects.ObjectStore`.

    Args:
        settings: How to reach S3.

    Raises:
        ConfigurationError: When the library is not installed, or its own configuration is wrong.
    """

    def __init__(self, settings: S3Settings) -> None:
        self._client: S3Client = s3_client(settings)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``; uploads that are not complete, and delete markers, are none."""
        address = Address.parse(prefix)
        page, token = self._page(address, None)
        yield from page
        while token is not None:
            del page  # the next one takes its room
            page, token = self._page(address, token)
            yield from page

    def stat(self, uri: str) -> StoredObject:
        """Return the object of that very key; see :meth:`~lakegate.storage.objects.ObjectStore.stat`."""
        address = Address.parse(uri)
        with translated(uri):
            head = self._client.head_object(Bucket=address.bucket, Key=address.key)
        return StoredObject(
            uri, head["ContentLength"], head["LastModified"], _bare(head["ETag"]), head.get("VersionId")
        )

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Return its content as a stream; see :meth:`~lakegate.storage.objects.ObjectStore.open`."""
        if etag is None or size_bytes is None:
            found = self.stat(uri)
            etag, size_bytes = etag or found.etag, found.size_bytes
        return ranged(partial(self._read, uri, etag), size_bytes)

    def create(self, uri: str, content: bytes) -> None:
        """Write an object where there is none; see :meth:`~lakegate.storage.objects.ObjectStore.create`."""
        address = Address.parse(uri)
        create_once(uri, partial(self._create, address, content), partial(self._metadata, address))

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, a thousand in a request; ones that are gone already are no error."""
        by_bucket: dict[str, list[Address]] = defaultdict(list)
        for uri in uris:
            address = Address.parse(uri)
            by_bucket[address.bucket].append(address)
        for addresses in by_bucket.values():
            for start in range(0, len(addresses), _DELETED_AT_ONCE):
                retried(partial(self._delete, addresses[start : start + _DELETED_AT_ONCE]))

    def _page(self, address: Address, token: str | None) -> tuple[Sequence[StoredObject], str | None]:
        asked: ListObjectsV2RequestTypeDef = {"Bucket": address.bucket, "Prefix": address.key}
        if token is not None:
            asked["ContinuationToken"] = token
        with translated(address.uri):
            page = self._client.list_objects_v2(**asked)
        found = tuple(
            StoredObject(f"{address.root}/{entry['Key']}", entry["Size"], entry["LastModified"], _bare(entry["ETag"]))
            for entry in page.get("Contents", ())
        )
        return found, page.get("NextContinuationToken") if page.get("IsTruncated") else None

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        address = Address.parse(uri)
        with translated(uri):
            answer = self._client.get_object(
                Bucket=address.bucket, Key=address.key, Range=f"bytes={start}-{end - 1}", IfMatch=f'"{etag}"'
            )
        try:
            with translated(uri):
                return answer["Body"].read()
        except StorageUnavailableError as error:
            raise CutError(error.message, hint=error.hint, file=uri) from error

    def _create(self, address: Address, content: bytes, metadata: dict[str, str]) -> None:
        with translated(address.uri):
            self._client.put_object(
                Bucket=address.bucket, Key=address.key, Body=content, IfNoneMatch="*", Metadata=metadata
            )

    def _metadata(self, address: Address) -> Mapping[str, str]:
        with translated(address.uri):
            return self._client.head_object(Bucket=address.bucket, Key=address.key)["Metadata"]

    def _delete(self, addresses: Sequence[Address]) -> None:
        uris = {address.key: address.uri for address in addresses}
        with translated(addresses[0].uri):
            answer = self._client.delete_objects(
                Bucket=addresses[0].bucket, Delete={"Objects": [{"Key": key} for key in uris], "Quiet": True}
            )
        for problem in answer.get("Errors", ()):
            uri = uris.get(problem.get("Key", ""), addresses[0].uri)
            error = refusal(problem.get("Code", ""), problem.get("Message", ""), uri)
            if isinstance(error, StorageUnavailableError):
                raise CutError(error.message, hint=error.hint, file=uri)
            if not isinstance(error, FileNotFoundError):
                raise error


def _bare(etag: str) -> str:
    return etag.strip('"')
