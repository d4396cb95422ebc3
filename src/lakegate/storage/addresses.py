"""Where an object lies, read from its URI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
        account: The storage account, on ADLS.
    """

    root: str
    service: Service
    bucket: str
    key: str
    account: str | None = None

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Return the address that ``uri`` is.

        Raises:
            InputError: When it names no bucket, or is no URI of an object store.

        Example:
            >>> address = Address.parse("abfss://lake@acme.dfs.core.windows.net/in/a.csv")
            >>> address.account, address.bucket, address.key
            ('acme', 'lake', 'in/a.csv')
        """
        match = _URI.fullmatch(uri)
        service = SERVICES.get(match[1].lower()) if match else None
        if match is None or service is None:
            known = ", ".join(f"{scheme}://" for scheme in SERVICES)
            raise InputError(f"'{uri}' lies in no object store that is known.", hint=f"Known are {known}.", path=uri)
        bucket, at, host = match[2].partition("@")
        account = _HOST.fullmatch(host)
        if not _BUCKET.fullmatch(bucket) or bool(at) != (service == "adls") or (at and not account):
            what = "container and account" if service == "adls" else "bucket"
            raise InputError(f"'{uri}' names no {what}.", hint=f"Write it as {_EXAMPLES[service]}.", path=uri)
        root = f"{match[1].lower()}://{match[2]}"
        return cls(root, service, bucket, match[3] or "", account[1].lower() if account else None)

    @property
    def uri(self) -> str:
        """The address as a URI."""
        return f"{self.root}/{self.key}"


def is_remote(uri: str) -> bool:
    """Tell whether a path lies in an object store.

    Example:
        >>> is_remote("s3a://lake/x"), is_remote("GS://lake/x"), is_remote("file:///lake/x"), is_remote("s3")
        (True, True, False, False)
    """
    scheme, found, _ = uri.partition("://")
    return bool(found) and scheme.lower() in SERVICES


def canonical(uri: str) -> str:
    """Return the URI by which an object is known, of those that name the same one.

    Example:
        >>> canonical("S3A://lake/a b.csv"), canonical("abfs://lake@acme.dfs.core.windows.net/a")
        ('s3://lake/a b.csv', 'abfss://lake@acme.dfs.core.windows.net/a')
    """
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri
    return f"{_CANONICAL.get(scheme.lower(), scheme.lower())}{found}{rest}"
