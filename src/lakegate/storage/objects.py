"""Objects in a store, whichever store it is: their addresses, and how to list, read, create and delete them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Literal, Protocol

from lakegate.config import StorageSettings
from lakegate.errors import InputError

Service = Literal["s3", "gcs", "adls"]

SERVICES: Mapping[str, Service] = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "adls", "abfss": "adls"}
"""Which service a scheme stands for."""

_CANONICAL = {"s3a": "s3", "abfs": "abfss"}
_EXAMPLES: Mapping[Service, str] = {
    "s3": "s3://bucket/prefix/*.parquet",
    "gcs": "gs://bucket/prefix/*.parquet",
    "adls": "abfss://container@account.dfs.core.windows.net/prefix/*.parquet",
}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(?:/(.*))?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,254}")
_HOST = re.compile(r"([a-z0-9]{3,24})\.[A-Za-z0-9.-]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """Bucket and key of an object, or of all objects whose keys start so.

    Nothing in a URI is decoded: a ``%20`` in it is a ``%20`` in the key.

    Attributes:
        root: The URI up to the bucket, without ``/`` at its end.
        service: Whose the bucket is.
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

        Raises:
            InputError: When it names no bucket, or is no URI of an object store.

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
    """Tell whether a path is in an object store.

    Example:
        >>> is_remote("s3a://lake/x"), is_remote("GS://lake/x"), is_remote("file:///lake/x"), is_remote("s3")
        (True, True, False, False)
    """
    scheme, found, _ = uri.partition("://")
    return bool(found) and scheme.lower() in SERVICES


def canonical(uri: str) -> str:
    """Return the one URI by which lakegate knows an object, of those that name it.

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
        size_bytes: Length in bytes.
        modified_at: When it was written, in UTC.
        etag: Entity tag, without quotes: changes when the content does.
        version_id: The version of its key, where the bucket keeps versions and the answer names it.
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
        StorageUnavailableError: When the store does not answer, or cannot serve, after several attempts.
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


def open_store(uri: str, settings: StorageSettings) -> ObjectStore:
    """Return the store that ``uri`` is in.

    Args:
        uri: An object, or only its bucket: ``s3://…``, ``s3a://…``, ``gs://…``, ``abfs://…``, ``abfss://…``.
        settings: How to reach the stores.

    Raises:
        InputError: When it names no bucket, or is of another scheme.
        ConfigurationError: When the library of the store is not installed, or its own configuration is wrong.
    """
    address = Address.parse(uri)
    if address.service == "s3":
        from lakegate.storage.s3 import S3Store

        return S3Store(settings.s3)
    if address.service == "gcs":
        from lakegate.storage.gcs import GcsStore

        return GcsStore(settings.gcs)
    from lakegate.storage.adls import AdlsStore

    return AdlsStore(address, settings.adls)
