"""What all object stores share: addresses, listing, errors, retries, reading in ranges, creating an object once."""

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
from typing import BinaryIO, Literal, TypeVar, cast

from lakegate.errors import ConfigurationError, InputError, SourceError, StorageUnavailableError

Service = Literal["s3", "gcs", "adls"]

SERVICES: Mapping[str, Service] = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "adls", "abfss": "adls"}
"""Which service a scheme means."""

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
"""How often a request is sent before it is given up, waiting up to 20 s in between."""
LONGEST_WAIT_S = 20.0
_READ_AHEAD_BYTES = 64 << 10
_DELETED_AT_ONCE = 16
_MARK = "lakegatecreation"  # a name that all stores accept for metadata
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Address:
    """Bucket and key of an object, or of all objects whose keys start so.

    Nothing in a URI is decoded: a ``%20`` in it is a ``%20`` in the key.

    Attributes:
        root: The URI up to the bucket, without ``/`` at its end.
        bucket: The bucket; a container on ADLS.
        key: What follows it; may be empty.
    """

    root: str
    service: Service
    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Return the address that ``uri`` is.

        Example:
            >>> address = Address.parse("abfss://lake@acme.dfs.core.windows.net/in/a.csv")
            >>> address.root, address.bucket, address.key
            ('abfss://lake@acme.dfs.core.windows.net', 'lake', 'in/a.csv')
        """
        match = _URI.fullmatch(uri)
        service = SERVICES.get(match[1].lower()) if match else None
        if match is None or service is None:
            known = ", ".join(f"{scheme}://" for scheme in SERVICES)
            raise InputError(f"'{uri}' is in no known object store.", hint=f"Known are {known}.", path=uri)
        bucket, at, host = match[2].partition("@")
        is_account = bool(at) and _HOST.fullmatch(host) is not None
        if not _BUCKET.fullmatch(bucket) or bool(at) != (service == "adls") or bool(at) != is_account:
            what = "container and account" if service == "adls" else "bucket"
            raise InputError(f"'{uri}' names no {what}.", hint=f"Write it as {_EXAMPLES[service]}.", path=uri)
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
    """Return the one URI that lakegate uses for an object, of those that name it.

    Example:
        >>> canonical("S3A://lake/a b.csv"), canonical("abfs://lake@acme.dfs.core.windows.net/a")
        ('s3://lake/a b.csv', 'abfss://lake@acme.dfs.core.windows.net/a')
    """
    scheme, found, rest = uri.partition("://")
    return f"{_CANONICAL.get(scheme.lower(), scheme.lower())}{found}{rest}" if found else uri


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, as a request found it.

    Attributes:
        uri: Its location, beginning as the one that was asked for; nothing encoded.
        modified_at: When it was written, in UTC.
        etag: Entity tag, without quotes: changes when the content does.
        version_id: The version of its key, where the bucket keeps versions and the answer names it.
    """

    uri: str
    size_bytes: int
    modified_at: datetime
    etag: str
    version_id: str | None = None


class ReplacedError(OSError):
    """The file has other content than when it was found."""


class CutError(StorageUnavailableError):
    """An answer broke off, or the store asks for a short pause."""


def gone(uri: str) -> FileNotFoundError:
    """Return the error for an object that doesn't exist."""
    return FileNotFoundError(errno.ENOENT, "it doesn't exist (any more)", uri)


@dataclass(frozen=True, slots=True)
class StoreErrors:
    """Turns one store's refusals into lakegate's errors.

    Attributes:
        endpoint: The settings of its address.
        address: What to check besides the path when it refuses a request.
        credentials: How to give credentials.
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
            hint=f"Nothing was published. Check the network and the endpoint ({self.endpoint}); try again.",
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
    """The objects of one service, and what doesn't depend on the service. May be used from any thread.

    All methods raise so, besides what each says:

    Raises:
        PermissionError: When the object or bucket may not be used so.
        ConfigurationError: When there are no credentials, or the store doesn't accept them.
        SourceError: When the bucket doesn't exist, or the store refuses for another reason.
    """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose URIs start with ``prefix``, fetched page by page as they are asked for.

        Args:
            prefix: Bucket and the beginning of keys, at any character: ``s3://bucket/data/2024-``.
        """

    @abstractmethod
    def stat(self, uri: str) -> StoredObject:
        """Return the object of that very key.

        Raises:
            FileNotFoundError: When there is none.
        """

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        """Return its content as a buffered stream that can seek, read in ranges of one and the same content.

        Args:
            etag: Which content; the present one by default.
            size_bytes: How long that content is, where it is known together with ``etag``: spares a request.

        Raises:
            FileNotFoundError: When there is none; from reading too, when it goes away meanwhile.
            ReplacedError: When it has other content; from reading too.
        """
        if etag is None or size_bytes is None:
            found = self.stat(uri)
            etag, size_bytes = etag or found.etag, found.size_bytes
        ranges = _Ranges(partial(self._read, uri, etag), size_bytes)
        return cast("BinaryIO", io.BufferedReader(ranges, _READ_AHEAD_BYTES))

    def create(self, uri: str, content: bytes) -> None:
        """Write an object where there is none: all of it or nothing.

        A library repeats a request whose answer was lost, and then finds the object that it made itself. A mark in the
        object's metadata distinguishes it from another's.

        Raises:
            FileExistsError: When there is one.
        """
        mark = uuid.uuid4().hex
        try:
            retried(lambda: self._create(uri, content, {_MARK: mark}))
        except ReplacedError as error:
            found = None
            with suppress(FileNotFoundError):
                found = self._metadata(uri).get(_MARK)
            if found != mark:
                raise FileExistsError(errno.EEXIST, "it exists already", uri) from error

    def delete(self, uris: Sequence[str]) -> None:
        """Delete objects, several at a time; missing ones are ignored."""

        def delete(uri: str) -> None:
            with suppress(FileNotFoundError):
                self._delete(uri)

        with ThreadPoolExecutor(_DELETED_AT_ONCE, thread_name_prefix="lakegate-delete") as pool:
            for _ in pool.map(delete, uris):
                pass

    @abstractmethod
    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to ``end``; called again after a :class:`CutError`."""

    @abstractmethod
    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        """Write an object; raises :class:`ReplacedError` when there is one."""

    @abstractmethod
    def _metadata(self, uri: str) -> Mapping[str, str]: ...

    def _delete(self, uri: str) -> None:
        raise NotImplementedError


def retried(work: Callable[[], _T]) -> _T:
    """Return what ``work`` returns, called again after pauses when it raises :class:`CutError`.

    The stores' libraries repeat requests by themselves, but not the reading of an answer that breaks off.
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
    """Return the first line of a library's message, without a full stop."""
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
        return self._take(self._size_bytes)  # by itself it would ask for 8 KiB at a time

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
