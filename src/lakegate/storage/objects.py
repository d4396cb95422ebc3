"""What all object stores share: addresses, errors, retries, ranged reads, and create-if-absent."""

from __future__ import annotations

import errno
import io
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar, cast

from lakegate.errors import ConfigurationError, InputError, SourceError, StorageUnavailableError

Service = Literal["s3", "gcs", "adls"]

SERVICES: Mapping[str, Service] = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "adls", "abfss": "adls"}
"""The service of each URI scheme."""

_CANONICAL = {"s3a": "s3", "abfs": "abfss"}
_EXAMPLES: Mapping[Service, str] = {
    "s3": "s3://bucket/prefix/*.parquet",
    "gcs": "gs://bucket/prefix/*.parquet",
    "adls": "abfss://container@account.dfs.core.windows.net/prefix/*.parquet",
}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(?:/(.*))?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,254}")
_HOST = re.compile(r"([a-z0-9]{3,24})\.[A-Za-z0-9.-]+", re.IGNORECASE)
ATTEMPTS = 6
"""How often to send a request before giving up, with waits of up to 20 s in between."""
LONGEST_WAIT_S = 20.0
_READ_AHEAD_BYTES = 64 << 10
_DELETED_AT_ONCE = 16
_MARK = "lakegatecreation"  # a metadata key that all stores accept
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """The bucket and key of an object, or the bucket and prefix of several objects.

    URIs aren't percent-decoded: ``%20`` means ``%20`` in the key.

    Attributes:
        root: The URI up to the bucket, without a final ``/``.
        bucket: The bucket; on ADLS, the container.
        key: The key or prefix; may be empty.
    """

    root: str
    service: Service
    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> ObjectAddress:
        """Parse a URI.

        Example:
            >>> address = ObjectAddress.parse("abfss://lake@acme.dfs.core.windows.net/in/a.csv")
            >>> address.root, address.bucket, address.key
            ('abfss://lake@acme.dfs.core.windows.net', 'lake', 'in/a.csv')
        """
        match = _URI.fullmatch(uri)
        service = SERVICES.get(match[1].lower()) if match else None
        if match is None or service is None:
            known = ", ".join(f"{scheme}://" for scheme in SERVICES)
            raise InputError(f"'{uri}' isn't in a supported object store.", hint=f"Supported: {known}", path=uri)
        bucket, at, host = match[2].partition("@")
        is_account = bool(at) and _HOST.fullmatch(host) is not None
        if not _BUCKET.fullmatch(bucket) or bool(at) != (service == "adls") or bool(at) != is_account:
            what = "container and account" if service == "adls" else "bucket"
            raise InputError(f"'{uri}' doesn't name a {what}.", hint=f"Write it as {_EXAMPLES[service]}.", path=uri)
        return cls(f"{match[1].lower()}://{match[2]}", service, bucket, match[3] or "")

    @property
    def uri(self) -> str:
        """The address as a URI."""
        return f"{self.root}/{self.key}"


def is_remote(uri: str) -> bool:
    """Return whether a path is in an object store.

    Example:
        >>> is_remote("s3a://lake/x"), is_remote("GS://lake/x"), is_remote("file:///lake/x"), is_remote("s3")
        (True, True, False, False)
    """
    scheme, found, _ = uri.partition("://")
    return bool(found) and scheme.lower() in SERVICES


def canonical(uri: str) -> str:
    """Return the URI that lakegate uses for an object, however its scheme and host are written.

    The host of an Azure account stays the one that the user chose, ``.dfs.`` or ``.blob.``: Spark has settings for
    each, and a network may admit only one.

    Example:
        >>> canonical("S3A://lake/a b.csv"), canonical("abfs://lake@ACME.dfs.core.windows.net/A")
        ('s3://lake/a b.csv', 'abfss://lake@acme.dfs.core.windows.net/A')
    """
    scheme, found, rest = uri.partition("://")
    scheme = scheme.lower()
    if SERVICES.get(scheme) == "adls":
        place, slash, key = rest.partition("/")
        container, at, host = place.partition("@")
        rest = f"{container}{at}{host.lower()}{slash}{key}"
    return f"{_CANONICAL.get(scheme, scheme)}{found}{rest}" if found else uri


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, as a request found it.

    Attributes:
        uri: Its location, with the root that was asked for, and not percent-encoded.
        modified_at: When it was written, in UTC.
        etag: Entity tag without quotes, which changes when the content does.
        version_id: The id of this version, if the bucket keeps versions and the response has it.
    """

    uri: str
    size_bytes: int
    modified_at: datetime
    etag: str
    version_id: str | None = None


class ReplacedError(OSError):
    """The object's content changed since it was found."""


class CutError(StorageUnavailableError):
    """A response was cut off, or the store asks to wait: try again."""


def gone(uri: str) -> FileNotFoundError:
    """Return the error for an object that doesn't exist."""
    return FileNotFoundError(errno.ENOENT, "it doesn't exist, or no longer", uri)


@dataclass(frozen=True, slots=True)
class StoreErrors:
    """Creates lakegate's errors for one store.

    Attributes:
        store: The store's name.
        endpoint: Names of the settings for its endpoint.
        address: What to check, besides the path, if it refuses a request.
        credentials: How to provide credentials.
    """

    store: str
    endpoint: str
    address: str
    credentials: str

    def no_bucket(self, uri: str) -> SourceError:
        """Return the error for a bucket that doesn't exist."""
        hint = f"Check its name, and the endpoint ({self.endpoint})."
        return SourceError(f"The bucket of '{uri}' doesn't exist.", hint=hint, file=uri)

    def unavailable(self, uri: str, reason: str) -> StorageUnavailableError:
        """Return the error for a store that failed every attempt."""
        return StorageUnavailableError(
            f"{self.store} couldn't serve '{uri}' after several attempts ({reason}).",
            hint=f"Nothing was published. Check the network and the endpoint ({self.endpoint}), then try again.",
            file=uri,
        )

    def unauthenticated(self, uri: str | None, reason: str) -> ConfigurationError:
        """Return the error for credentials that are missing or rejected."""
        target = "" if uri is None else f" for '{uri}'"
        return ConfigurationError(
            f"{self.store} rejected the credentials{target}, or there are none ({reason}).",
            hint=self.credentials,
            file=uri,
        )

    def refused(self, uri: str, status: int, reason: str) -> Exception:
        """Return the error for an HTTP status."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {
            HTTPStatus.TOO_MANY_REQUESTS,
            HTTPStatus.REQUEST_TIMEOUT,
        }:
            return self.unavailable(uri, reason)
        match status:
            case HTTPStatus.UNAUTHORIZED:
                return self.unauthenticated(uri, reason)
            case HTTPStatus.FORBIDDEN:
                return PermissionError(errno.EACCES, f"access denied ({reason})", uri)
            case HTTPStatus.NOT_FOUND:
                return gone(uri)
            case HTTPStatus.PRECONDITION_FAILED:
                return ReplacedError(errno.ESTALE, "it was replaced while it was read", uri)
        return SourceError(
            f"{self.store} refuses to serve '{uri}' ({reason}).", hint=f"Check the path, and {self.address}.", file=uri
        )


class ObjectStore(ABC):
    """The objects of one service. Thread-safe.

    All methods may also raise:

    Raises:
        PermissionError: When access to the object or bucket is denied.
        ConfigurationError: When credentials are missing, or the store rejects them.
        SourceError: When the bucket doesn't exist, or the store refuses for another reason.
        StorageUnavailableError: When the store can't be reached.
    """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose URIs start with ``prefix``, fetching page by page.

        Args:
            prefix: The bucket, and any start of the keys: ``s3://bucket/data/2024-``.
        """

    @abstractmethod
    def stat(self, uri: str) -> StoredObject:
        """Return the object with exactly this key.

        Raises:
            FileNotFoundError: When there is none.
        """

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Open an object as a buffered, seekable stream. All ranges are read from the same content.

        Args:
            etag: The content to read; by default, the current one.
            size_bytes: Size of that content. If it's given together with ``etag``, this saves a request.

        Raises:
            FileNotFoundError: When there is no such object. Reading raises it, too.
            ReplacedError: When its content changed. Reading raises it, too.
        """
        if etag is None or size_bytes is None:
            found = self.stat(uri)
            etag, size_bytes = etag or found.etag, found.size_bytes
        ranges = _Ranges(partial(self._read, uri, etag), size_bytes)
        return cast("BinaryIO", io.BufferedReader(ranges, _READ_AHEAD_BYTES))

    def read(self, uri: str) -> bytes:
        """Return an object's content. Raises what :meth:`open` does."""
        with self.open(uri) as stream:
            return stream.read()  # without a size, which would take another request for what doesn't fill a buffer

    def create(self, uri: str, content: bytes) -> None:
        """Create an object, completely or not at all, if it doesn't exist yet.

        If a response is lost, the store's library repeats the request, and finds the object that it created itself. A
        mark in the object's metadata distinguishes it from other clients' objects.

        Raises:
            FileExistsError: When the object exists.
        """
        mark = uuid.uuid4().hex
        try:
            retried(lambda: self._create(uri, content, {_MARK: mark}))
        except ReplacedError as error:
            found = None
            with suppress(FileNotFoundError):
                found = self._metadata(uri).get(_MARK)
            if found != mark:
                raise FileExistsError(errno.EEXIST, "it already exists", uri) from error

    def upload(self, uri: str, path: Path) -> None:
        """Copy a local file of any size to an object, completely or not at all. Replaces an existing object."""

        def upload() -> None:
            with path.open("rb") as file:
                self._upload(uri, file)

        retried(upload)

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, concurrently. Missing ones are ignored."""

        def delete(uri: str) -> None:
            with suppress(FileNotFoundError):
                self._delete(uri)

        with ThreadPoolExecutor(_DELETED_AT_ONCE, thread_name_prefix="lakegate-delete") as pool:
            for _ in pool.map(delete, uris):
                pass

    @abstractmethod
    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to ``end``. Called again after a :class:`CutError`."""

    @abstractmethod
    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        """Create an object. Raises :class:`ReplacedError` if it exists."""

    @abstractmethod
    def _upload(self, uri: str, file: BinaryIO) -> None:
        """Write a file to an object without holding all of it in memory."""

    @abstractmethod
    def _metadata(self, uri: str) -> Mapping[str, str]: ...

    def _delete(self, uri: str) -> None:
        raise NotImplementedError


def retried(work: Callable[[], _T]) -> _T:
    """Call ``work``, and call it again after a pause while it raises :class:`CutError`.

    The stores' libraries retry requests themselves, but not when a response is cut off while it's read.
    """
    from tenacity import (
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        wait_exponential_jitter,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(CutError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=0.1, max=LONGEST_WAIT_S),
        reraise=True,
    )
    return retrying(work)


def first_line(text: str) -> str:
    """Return the first line of a library's message, without the final period."""
    return (text.splitlines() or ["no reason given"])[0].rstrip(".")


class _Ranges(io.RawIOBase):
    """A stream over ranges of an object, fetched as they are read."""

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readall(self) -> bytes:
        return self._take(self._size_bytes)  # the default implementation would request 8 KiB at a time

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        content = self._take(min(self._position + len(view), self._size_bytes))
        view[: len(content)] = content
        return len(content)

    def _take(self, end: int) -> bytes:
        if end <= self._position:
            return b""
        content = retried(lambda: self._fetch(self._position, end))
        self._position += len(content)
        return content
