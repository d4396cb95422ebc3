"""Remote signing: writers without keys for the object store, whose requests the gate signs one by one.

What is signed are reads of objects in the warehouse, and writes of new objects in the folders of the writer's opening.
Nothing else is: no deletion, no copy, no listing, and no object is ever written again, so that what was audited stays
as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakegate.config import StorageSettings
from lakegate.gate.locations import is_clean
from lakegate.gate.openings import folder_of
from lakegate.gate.refusals import RefusedError, bad_request
from lakegate.gate.updates import well_formed
from lakegate.model.locations import canonical
from lakegate.model.opening import Opening
from lakegate.storage.s3 import S3RequestSigner

ENDPOINTS: Final = ("POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign",)
"""The endpoint that signs, where clients look for it. Older ones know the path ``/v1/aws/s3/sign``."""

SIGNING: Final = "s3.remote-signing-enabled"

_READS = ("GET", "HEAD")
_READ_OPTIONS = frozenset({"x-id", "partNumber"})
_WRITE_OPTIONS = frozenset({"x-id", "uploads", "uploadId", "partNumber"})
_HEADERS = (
    "x-amz-checksum-",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-server-side-encryption",
    "x-amz-te",
    "x-amz-trailer",
    "x-amz-user-agent",
)
"""The headers for S3 that say nothing but how an object is sent. Others copy objects, or give them to others."""


def signer_for(warehouse: str, storage: StorageSettings) -> Signer | None:
    """Return what signs writers' requests to the store of a warehouse; ``None`` if that isn't on S3.

    Raises:
        ConfigurationError: The configuration for S3 is invalid.
    """
    on_s3 = canonical(warehouse).startswith("s3:")
    return Signer(S3RequestSigner(storage.s3), warehouse) if on_s3 else None


class Signer:
    """Signs the requests of writers to the store of a warehouse on S3.

    Args:
        warehouse: Root of the tables' files, ``s3://…``.
    """

    def __init__(self, signer: S3RequestSigner, warehouse: str) -> None:
        self._signer = signer
        self._warehouse = canonical(warehouse)
        place = urlsplit(signer.endpoint)
        self._scheme, self._host = place.scheme, place.netloc.lower()

    @property
    def client_config(self) -> Mapping[str, str]:
        """Settings with which Iceberg's own clients have their requests signed. They may set others."""
        return {
            SIGNING: "true",
            **dict.fromkeys(("signer.endpoint", "s3.signer.endpoint"), "v1/aws/s3/sign"),
            **self.place,
        }

    @property
    def place(self) -> Mapping[str, str]:
        """Settings with which clients find the store."""
        return {
            "s3.endpoint": self._signer.endpoint,
            "client.region": self._signer.region,
            "s3.region": self._signer.region,
            "s3.path-style-access": str(self._signer.path_style).lower(),
        }

    def signed(self, opening: Opening, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a request to sign a request.

        Raises:
            RefusedError: It isn't one that a writer may send.
        """
        with well_formed():
            method, uri = body["method"].upper(), body["uri"]
            headers = {key.lower(): ",".join(values) for key, values in (body.get("headers") or {}).items()}
            options = [key for key, _ in parse_qsl(urlsplit(uri).query, keep_blank_values=True)]
            location = self._location(uri)
        if method in _READS:
            is_allowed = location.startswith(f"{self._warehouse}/") and _READ_OPTIONS.issuperset(options)
        else:
            is_allowed = method in ("PUT", "POST") and self._is_own(opening, location)
            is_allowed = is_allowed and _WRITE_OPTIONS.issuperset(options) and (method == "PUT" or bool(options))
        header = next((one for one in headers if not _is_plain(one)), None)
        if header is not None:
            raise bad_request(f"A request with the header {header[:100]} isn't signed.")
        if not is_allowed:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "ForbiddenException",
                f"{method} {urlsplit(uri).path[:300]} isn't signed: writers read files of the warehouse, and write new "
                "ones into their own folders. They delete and overwrite none.",
            )
        if _completes(method, options):
            headers["if-none-match"] = "*"
        made = self._signer.signed(method, uri, headers)
        return {"uri": uri, "headers": {key: [value] for key, value in made.items()}}

    def _location(self, uri: str) -> str:
        """Return the object that a request is about, as ``s3:/bucket/key``."""
        place = urlsplit(uri)
        path, host = unquote(place.path, errors="strict"), place.netloc.lower()
        if place.scheme != self._scheme or place.fragment or not is_clean(path) or "//" in path:
            raise bad_request(f"{uri[:300]} isn't the address of an object in the warehouse.")
        if host != self._host:
            bucket, _, rest = host.partition(".")
            path = f"/{bucket}{path}" if rest == self._host else ""
        return f"s3:{path}"

    def _is_own(self, opening: Opening, location: str) -> bool:
        """Return whether an object is in a folder of an opening, in some table of the warehouse."""
        inner = location.removeprefix(f"{self._warehouse}/")
        own = folder_of(opening)
        folders = inner.split("/")[:-1]
        return inner != location and any(
            kind in ("data", "metadata") and name == own for kind, name in pairwise(folders)
        )


def _is_plain(header: str) -> bool:
    return not header.startswith("x-amz-") or header.startswith(_HEADERS)


def _completes(method: str, options: Sequence[str]) -> bool:
    """Return whether a request makes an object appear: a whole one, or one that was sent in parts."""
    return (method == "PUT" and "uploadId" not in options) or (method == "POST" and "uploadId" in options)
