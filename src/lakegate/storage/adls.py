"""Azure Data Lake Storage, through the Blob API, which all accounts support, with or without hierarchical folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from lakegate.config import AdlsSettings
from lakegate.errors import missing_package
from lakegate.model.secrets import is_loopback
from lakegate.progress import hide
from lakegate.storage.objects import (
    ATTEMPTS,
    ObjectAddress,
    ObjectStore,
    ReplacedError,
    StoredObject,
    StoreErrors,
    first_line,
    gone,
)

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobProperties, BlobServiceClient

ERRORS = StoreErrors(
    "Azure Data Lake Storage",
    endpoint="adls.endpoint",
    address="adls.endpoint",
    credentials="Provide credentials in the usual ways: AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, the AZURE_* "
    "variables of an identity, 'az login', or the machine's identity.",
)
_UNAUTHENTICATED = frozenset({"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"})
_NO_BUCKET = frozenset({"ContainerNotFound", "ContainerBeingDeleted"})
_FOLDER = "hdi_isfolder"  # metadata of a folder's placeholder, in accounts with hierarchical folders


class AdlsStore(ObjectStore):
    """Objects in the storage account of ``address``."""

    def __init__(self, address: ObjectAddress, settings: AdlsSettings) -> None:
        self._client = adls_client(address.root.partition("@")[2], settings)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``, without folders."""
        address = ObjectAddress.parse(prefix)
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
        """Return the object with exactly this key."""
        with translated(uri):
            found = self._blob(uri).get_blob_properties()
        if _FOLDER in (found.metadata or {}):
            raise gone(uri)
        return _stored(uri, found)

    def _blob(self, uri: str) -> BlobClient:
        address = ObjectAddress.parse(uri)
        return self._client.get_blob_client(address.bucket, address.key)

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        from azure.core import MatchConditions

        try:
            with translated(uri):
                answer = self._blob(uri).download_blob(
                    start, end - start, etag=f'"{etag}"', match_condition=MatchConditions.IfNotModified
                )
                return answer.readall()
        except ReplacedError:
            self.stat(uri)  # a deleted object fails the condition, too
            raise

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        with translated(uri):
            self._blob(uri).upload_blob(content, overwrite=False, metadata=metadata)

    def _upload(self, uri: str, file: BinaryIO) -> None:
        with translated(uri):
            self._blob(uri).upload_blob(file, overwrite=True)

    def _metadata(self, uri: str) -> Mapping[str, str]:
        with translated(uri):
            return self._blob(uri).get_blob_properties().metadata or {}

    def _delete(self, uri: str) -> None:
        with translated(uri):
            self._blob(uri).delete_blob(delete_snapshots="include")


@lru_cache(maxsize=8)
def adls_client(host: str, settings: AdlsSettings) -> BlobServiceClient:
    """Return the thread-safe client for a storage account.

    Args:
        host: The account's host, as in ``abfss://`` URIs: ``acme.dfs.core.windows.net``.
    """
    try:
        from azure.storage.blob import BlobServiceClient, ExponentialRetry
    except ImportError as error:
        raise missing_package("Files on Azure Data Lake Storage need", "azure-storage-blob", "azure") from error
    account = host.partition(".")[0].lower()
    blob_host = host.replace(".dfs.", ".blob.", 1)
    url = f"{settings.endpoint.rstrip('/')}/{account}" if settings.endpoint else f"https://{blob_host}"
    retry = ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=ATTEMPTS - 1, random_jitter_range=1)
    by_proxy = not is_loopback(urlsplit(url).hostname or "")
    return BlobServiceClient(url, credential=_credential(account), retry_policy=retry, use_env_settings=by_proxy)


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Translate exceptions of Azure's library about ``uri`` into the errors of an ``ObjectStore``."""
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
    )

    try:
        yield
    except HttpResponseError as error:
        status, reason = error.status_code or 0, first_line(str(error))
        code = str(getattr(error, "error_code", None) or "")
        if status < HTTPStatus.INTERNAL_SERVER_ERROR and code in _NO_BUCKET:
            raise ERRORS.no_bucket(uri) from error
        if not status and not isinstance(error, ClientAuthenticationError):  # a response that was cut off
            raise ERRORS.unavailable(uri, reason) from error
        raise ERRORS.refused(uri, _meaning(status, code), f"{status}: {reason}" if status else reason) from error
    except AzureError as error:
        raise ERRORS.unavailable(uri, first_line(str(error))) from error


def _meaning(status: int, code: str) -> int:
    if not status or (code in _UNAUTHENTICATED and status < HTTPStatus.INTERNAL_SERVER_ERROR):
        return HTTPStatus.UNAUTHORIZED
    return HTTPStatus.PRECONDITION_FAILED if status == HTTPStatus.CONFLICT else status


def _credential(account: str) -> Any:
    """Return the account's credential: from the variables of Azure's command line, or else an identity."""
    if os.environ.get("AZURE_STORAGE_ACCOUNT", account).lower() == account:
        if key := os.environ.get("AZURE_STORAGE_KEY"):
            hide(key)
            return {"account_name": account, "account_key": key}
        if token := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
            from azure.core.credentials import AzureSasCredential

            hide(token)
            return AzureSasCredential(token)
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


def _stored(uri: str, found: BlobProperties) -> StoredObject:
    return StoredObject(uri, found.size, found.last_modified, found.etag.strip('"'), found.version_id)
