"""The connection to Azure Data Lake Storage: made by Azure's library, by the usual rules for credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from lakegate.config import AdlsSettings
from lakegate.errors import ConfigurationError, SourceError
from lakegate.narration import hide
from lakegate.storage.errors import denied, gone, no_bucket, replaced, unavailable
from lakegate.storage.retrying import ATTEMPTS

if TYPE_CHECKING:
    from azure.storage.blob import BlobServiceClient

CREDENTIALS_HINT = (
    "Give credentials in the usual ways: AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, the AZURE_* variables of an "
    "identity, 'az login', or the machine's identity."
)
_STORE = "Azure Data Lake Storage"
_ENDPOINT = "adls.endpoint"
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT})
_REFUSED_CODES = frozenset({"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"})
_NO_BUCKET_CODES = frozenset({"ContainerNotFound", "ContainerBeingDeleted"})


@lru_cache(maxsize=8)
def adls_client(host: str, settings: AdlsSettings) -> BlobServiceClient:
    """Return the client for a storage account; may be used from any thread.

    Args:
        host: The account's host, as it stands in ``abfss://`` URIs: ``acme.dfs.core.windows.net``.
        settings: How to reach it.

    Raises:
        ConfigurationError: When the library is not installed.
    """
    try:
        from azure.storage.blob import BlobServiceClient, ExponentialRetry  # noqa: PLC0415 - an extra, slow to import
    except ImportError as error:
        raise ConfigurationError(
            "Files on Azure Data Lake Storage need the package azure-storage-blob, which is not installed.",
            hint="pip install 'lakegate[azure]'",
            extra="azure",
        ) from error
    account = host.partition(".")[0].lower()
    # every account speaks the Blob API, with folders or without
    url = f"{settings.endpoint.rstrip('/')}/{account}" if settings.endpoint else f"https://{_blob_host(host)}"
    retry = ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=ATTEMPTS - 1, random_jitter_range=1)
    return BlobServiceClient(url, credential=_credential(account), retry_policy=retry)


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Turn what Azure's library raises in the body into the errors of :class:`~lakegate.storage.objects.ObjectStore`.

    Args:
        uri: What the body looks at, for the message.
    """
    from azure.core.exceptions import (  # noqa: PLC0415 - an extra, and slow to import
        AzureError,
        HttpResponseError,
    )

    try:
        yield
    except HttpResponseError as error:
        raise _refusal(error, uri) from error
    except AzureError as error:
        raise unavailable(_STORE, uri, _first_line(error), _ENDPOINT) from error


def _refusal(error: Any, uri: str) -> Exception:
    status, code = error.status_code or 0, str(getattr(error, "error_code", None) or "")
    said = f"{status}: {_first_line(error)}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY:
        return unavailable(_STORE, uri, said, _ENDPOINT)
    if code in _NO_BUCKET_CODES:
        return no_bucket(uri, _ENDPOINT)
    if not status:
        return _without_answer(error, uri)
    if status == HTTPStatus.UNAUTHORIZED or code in _REFUSED_CODES:
        return _refused(error, uri)
    return _as_file_error(status, said, uri) or SourceError(
        f"{_STORE} refuses to serve '{uri}' ({said}).", hint="Check the path, and adls.endpoint.", file=uri
    )


def _as_file_error(status: int, said: str, uri: str) -> OSError | None:
    if status == HTTPStatus.NOT_FOUND:
        return gone(uri)
    if status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT}:
        return replaced(uri)
    return denied(uri, said) if status == HTTPStatus.FORBIDDEN else None


def _without_answer(error: Exception, uri: str) -> Exception:
    """Return the error for what never was answered: no identity to ask with, or an answer that broke off."""
    from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - an extra

    if isinstance(error, ClientAuthenticationError):
        return _refused(error, uri)
    return unavailable(_STORE, uri, _first_line(error), _ENDPOINT)


def _refused(error: Exception, uri: str) -> ConfigurationError:
    return ConfigurationError(
        f"{_STORE} does not accept our credentials for '{uri}', or there are none ({_first_line(error)}).",
        hint=CREDENTIALS_HINT,
        file=uri,
    )


def _blob_host(host: str) -> str:
    return host.replace(".dfs.", ".blob.", 1)


def _credential(account: str) -> Any:
    """Return what the account is used with: what the variables of Azure's command line say, else an identity."""
    if os.environ.get("AZURE_STORAGE_ACCOUNT", account).lower() == account:
        if key := os.environ.get("AZURE_STORAGE_KEY"):
            hide(key)
            return {"account_name": account, "account_key": key}
        if token := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
            from azure.core.credentials import AzureSasCredential  # noqa: PLC0415 - an extra

            hide(token)
            return AzureSasCredential(token)
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an extra, and slow to import

    return DefaultAzureCredential()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0].rstrip(".")
