"""Google Cloud Storage, through its JSON API."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from lakegate.config import GcsSettings
from lakegate.errors import missing_package
from lakegate.model.secrets import is_loopback
from lakegate.storage.objects import (
    LONGEST_WAIT_S,
    CutError,
    ObjectAddress,
    ObjectStore,
    StoredObject,
    StoreErrors,
    first_line,
)

if TYPE_CHECKING:
    from requests import Response

ERRORS = StoreErrors(
    "Google Cloud Storage",
    endpoint="gcs.endpoint or STORAGE_EMULATOR_HOST",
    address="gcs.endpoint",
    credentials="Provide credentials in the usual ways: GOOGLE_APPLICATION_CREDENTIALS, 'gcloud auth "
    "application-default login', or the machine's service account.",
)
_FIRST_WAIT_S = 0.2
_GIVEN_UP_AFTER_S = 60.0
_NO_PROJECT = "none"  # the library requires a project, although object requests don't use it
_FIELDS = "items(name,size,generation,updated),nextPageToken"


class GcsStore(ObjectStore):
    """Objects in Google Cloud Storage.

    An object's ``etag`` and ``version_id`` are its generation, which changes with every write. Google's own entity tags
    also change with the metadata.
    """

    def __init__(self, settings: GcsSettings) -> None:
        self._client = gcs_client(settings)
        from google.cloud.storage.retry import DEFAULT_RETRY

        waits = DEFAULT_RETRY.with_delay(initial=_FIRST_WAIT_S, maximum=LONGEST_WAIT_S)
        self._retry = waits.with_timeout(_GIVEN_UP_AFTER_S)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below ``prefix``."""
        address = ObjectAddress.parse(prefix)
        listed = iter(
            self._client.list_blobs(address.bucket, prefix=address.key or None, fields=_FIELDS, retry=self._retry)
        )
        while True:
            try:
                with translated(prefix):
                    blob = next(listed, None)
            except FileNotFoundError as error:
                raise ERRORS.no_bucket(prefix) from error
            if blob is None:
                return
            yield _stored(f"{address.root}/{blob.name}", blob)

    def stat(self, uri: str) -> StoredObject:
        """Return the object with exactly this key."""
        return _stored(uri, self._loaded(uri))

    def _blob(self, uri: str) -> Any:
        address = ObjectAddress.parse(uri)
        return self._client.bucket(address.bucket).blob(address.key)

    def _loaded(self, uri: str) -> Any:
        blob = self._blob(uri)
        with translated(uri):
            blob.reload(retry=self._retry)
        return blob

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        blob = self._blob(uri)
        with translated(uri):
            content: bytes = blob.download_as_bytes(
                start=start,
                end=end - 1,
                if_generation_match=int(etag),
                raw_download=True,  # as stored, without decompression
                checksum=None,  # ranges don't have one
                retry=self._retry,
            )
        if len(content) != end - start:
            raise CutError(f"The response for '{uri}' was cut off.", hint="Try again.", file=uri)
        return content

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        blob = self._blob(uri)
        blob.metadata = metadata
        with translated(uri):
            blob.upload_from_string(
                content, content_type="application/octet-stream", if_generation_match=0, retry=self._retry
            )

    def _upload(self, uri: str, file: BinaryIO) -> None:
        with translated(uri):
            self._blob(uri).upload_from_file(file, content_type="application/octet-stream", retry=self._retry)

    def _metadata(self, uri: str) -> Mapping[str, str]:
        return self._loaded(uri).metadata or {}

    def _delete(self, uri: str) -> None:
        with translated(uri):
            self._blob(uri).delete(retry=self._retry)


@lru_cache(maxsize=8)
def gcs_client(settings: GcsSettings) -> Any:
    """Return the thread-safe ``google.cloud.storage.Client`` for these settings.

    Credentials aren't sent to an endpoint without TLS, which is an emulator.

    Raises:
        ConfigurationError: When the library isn't installed, or there are no credentials.
    """
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.storage import Client
    except ImportError as error:
        raise missing_package("Files on Google Cloud Storage need", "google-cloud-storage", "gcs") from error
    credentials: Any = None
    if settings.endpoint is not None and not settings.endpoint.lower().startswith("https:"):
        credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
    elif not os.environ.get("STORAGE_EMULATOR_HOST"):  # with it, the library doesn't use credentials
        try:
            credentials, _ = google.auth.default(scopes=Client.SCOPE)
        except GoogleAuthError as error:
            raise ERRORS.unauthenticated(None, first_line(str(error))) from error
    options = {"api_endpoint": settings.endpoint} if settings.endpoint else None
    client: Any = Client(project=_NO_PROJECT, credentials=credentials, client_options=options)
    session = client._http  # noqa: SLF001 - there's no public access to its session
    session.hooks["response"].append(_read_refusal)
    session.trust_env = not is_loopback(urlsplit(client._connection.API_BASE_URL).hostname or "")  # noqa: SLF001
    return client


@contextmanager
def translated(uri: str) -> Iterator[None]:
    """Translate exceptions of Google's library about ``uri`` into the errors of an ``ObjectStore``."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from requests import RequestException

    try:
        yield
    except GoogleAPICallError as error:
        status = int(error.code or 0)
        reason = f"{status}: {first_line(str(error.message))}"
        if status == HTTPStatus.NOT_FOUND and "bucket does not exist" in reason:
            raise ERRORS.no_bucket(uri) from error
        raise ERRORS.refused(uri, status, reason) from error
    except (RetryError, RequestException, TransportError) as error:
        raise ERRORS.unavailable(uri, first_line(str(error))) from error
    except GoogleAuthError as error:
        raise ERRORS.unauthenticated(uri, first_line(str(error))) from error


def _read_refusal(response: Response, **_: object) -> None:
    """Read an error response to its end: the library streams downloads, and doesn't close refused ones."""
    if not response.ok:
        response.content  # noqa: B018 - reading it releases the connection


def _stored(uri: str, blob: Any) -> StoredObject:
    generation = str(blob.generation)
    return StoredObject(uri, blob.size, blob.updated, generation, generation)
