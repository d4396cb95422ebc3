"""The connection to Google Cloud Storage: made by Google's library, by its own rules for credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from lakegate.config import GcsSettings
from lakegate.errors import ConfigurationError, SourceError
from lakegate.storage.errors import denied, gone, no_bucket, replaced, unavailable
from lakegate.storage.retrying import LONGEST_WAIT_S

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from requests import Response

CREDENTIALS_HINT = (
    "Give credentials in the usual ways: GOOGLE_APPLICATION_CREDENTIALS, 'gcloud auth application-default login', "
    "or the machine's service account."
)
_STORE = "Google Cloud Storage"
ENDPOINT = "gcs.endpoint or STORAGE_EMULATOR_HOST"
_FIRST_WAIT_S = 0.2
_GIVEN_UP_AFTER_S = 60.0
_NO_PROJECT = "none"  # objects are found by their bucket alone, and yet the library insists on one
_SERVER_ERROR = 500
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT})


@lru_cache(maxsize=8)
def gcs_client(settings: GcsSettings) -> Any:
    """Return the ``google.cloud.storage.Client`` for these settings; may be used from any thread.

    An endpoint without TLS, which is a stand-in's, gets none of our credentials.

    Raises:
        ConfigurationError: When the library is not installed, or there are no credentials.
    """
    try:
        import google.auth  # noqa: PLC0415 - an extra, and slow to import
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
        from google.cloud.storage import Client  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "Files on Google Cloud Storage need the package google-cloud-storage, which is not installed.",
            hint="pip install 'lakegate[gcs]'",
            extra="gcs",
        ) from error
    credentials: Any = None
    if settings.endpoint is not None and not settings.endpoint.lower().startswith("https:"):
        credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    elif not os.environ.get("STORAGE_EMULATOR_HOST"):  # with which the library itself uses none
        try:
            credentials, _ = google.auth.default(scopes=Client.SCOPE)
        except GoogleAuthError as error:
            raise _without_credentials(error) from error
    options = {"api_endpoint": settings.endpoint} if settings.endpoint else None
    client: Any = Client(project=_NO_PROJECT, credentials=credentials, client_options=options)
    client._http.hooks["response"].append(_take_refusal_in)  # noqa: SLF001 - it offers no other way to its session
    return client


def _take_refusal_in(response: Response, **_: object) -> None:
    """Read a refusal to its end: the library streams downloads, and leaves the connections of refused ones open."""
    if not response.ok:
        response.content  # noqa: B018 - reading it is what gives the connection back


def gcs_retry() -> Retry:
    """Return how requests are repeated: the library's own way, for a minute at most."""
    from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    retry: Retry = DEFAULT_RETRY.with_delay(initial=_FIRST_WAIT_S, maximum=LONGEST_WAIT_S).with_timeout(
        _GIVEN_UP_AFTER_S
    )
    return retry


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Turn what Google's library raises in the body into the errors of :class:`~lakegate.storage.objects.ObjectStore`.

    Args:
        uri: What the body looks at, for the message.
    """
    from google.api_core.exceptions import GoogleAPICallError, RetryError  # noqa: PLC0415 - an extra
    from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415

    try:
        yield
    except GoogleAPICallError as error:
        raise _refusal(error, uri) from error
    except (RetryError, RequestException, TransportError) as error:
        raise unavailable(_STORE, uri, _first_line(str(error)), ENDPOINT) from error
    except GoogleAuthError as error:
        raise _without_credentials(error, uri) from error


def _refusal(error: Any, uri: str) -> Exception:
    status = int(error.code or 0)
    said = f"{status}: {_first_line(error.message)}"
    if status >= _SERVER_ERROR or status in _BUSY:
        return unavailable(_STORE, uri, said, ENDPOINT)
    if status == HTTPStatus.NOT_FOUND:
        return no_bucket(uri, ENDPOINT) if "bucket does not exist" in said else gone(uri)
    if status == HTTPStatus.PRECONDITION_FAILED:
        return replaced(uri)
    if status == HTTPStatus.FORBIDDEN:
        return denied(uri, said)
    if status == HTTPStatus.UNAUTHORIZED:
        return _without_credentials(error, uri)
    return SourceError(
        f"{_STORE} refuses to serve '{uri}' ({said}).", hint="Check the path, and gcs.endpoint.", file=uri
    )


def _without_credentials(error: Exception, uri: str | None = None) -> ConfigurationError:
    return ConfigurationError(
        f"{_STORE} does not accept our credentials, or there are none ({_first_line(str(error))}).",
        hint=CREDENTIALS_HINT,
        file=uri,
    )


def _first_line(text: str) -> str:
    return (text.splitlines() or ["no reason given"])[0].rstrip(".")
