"""A small typed client for Nessie's REST API v2.

The OpenAPI document in a Nessie server defines endpoints, parameters, and how a path spells a reference (``name``,
``name@hash``, ``@hash``, ``name*timestamp``). ``pynessie`` supports only version 1.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.catalogs.nessie import answers
from lakegate.catalogs.nessie.answers import Request
from lakegate.credentials.tokens import BearerAuth, Token
from lakegate.errors import CatalogUnavailableError, ConfigurationError
from lakegate.model.secrets import is_loopback

_Answer = TypeVar("_Answer", bound=answers.Wire)
_Page = TypeVar("_Page", bound=answers.PagedAnswer)

_API_VERSION = 2
_ATTEMPTS = 4
_MAX_WAIT_S = 2.0
_MAX_CONNECT_S = 10.0


class NessieClient:
    """Calls one Nessie server. Thread-safe; connections are kept alive until :meth:`close`.

    If the server is unavailable or overloaded, reads are retried with jitter for up to ``timeout_s`` seconds. Changes
    are sent only once; a commit without a response raises :class:`~lakegate.errors.OutcomeUnknownError`.

    Args:
        uri: Address of the API, ``https://host/api/v2``.
        token: Bearer token, sent in a header and never shown. If the server refuses it, it's renewed and the request
            sent once more.
        timeout_s: Seconds to wait for a response, and to keep retrying a read.
        retry_wait_s: Scale of the wait before the first retry, in seconds.

    Raises:
        ConfigurationError: If ``uri`` isn't an http(s) address or contains credentials.
    """

    def __init__(
        self,
        uri: str,
        *,
        token: Token | None = None,
        timeout_s: float = 30.0,
        page_size: int = 250,
        retry_wait_s: float = 0.1,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        url = _parse(uri)
        self.server = str(url).rstrip("/")
        self._page_size = page_size
        self._timeout_s = timeout_s
        self._retry_wait_s = retry_wait_s
        self._http = httpx.Client(
            base_url=url,
            # Without the second header, the server leaves out the details of conflicts.
            headers={"Accept": "application/json", "Nessie-Client-Spec": "2"},
            auth=None if token is None else BearerAuth(token, setting="catalog.token"),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _MAX_CONNECT_S)),
            trust_env=not is_loopback(url.host),
            verify=_tls_verification(url),
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"NessieClient({self.server!r})"

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def configuration(self) -> answers.ServerConfiguration:
        """Return the server's configuration."""
        answer = self.read("config", Request("read the catalog's configuration"), answers.ServerConfiguration)
        # A server's v1 address reports that v2 is supported, but only the v2 address reports its own version.
        version = answer.actual_api_version or (1 if self.server.endswith("/v1") else answer.max_supported_api_version)
        if version < _API_VERSION:
            raise answers.not_nessie(self.server, f"it speaks version {version} of the API")
        return answer

    def read(
        self,
        path: str,
        request: Request,
        model: type[_Answer],
        parameters: Mapping[str, str | None] | None = None,
        body: answers.JsonObject | None = None,
    ) -> _Answer:
        """Read from the server, with retries; with ``POST`` if there's a ``body``."""
        method = "GET" if body is None else "POST"
        retrying = Retrying(
            retry=retry_if_exception_type(CatalogUnavailableError),
            wait=wait_random_exponential(multiplier=self._retry_wait_s, max=_MAX_WAIT_S),
            stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(self._timeout_s),
            reraise=True,
        )
        return retrying(lambda: self.change(method, path, request, model, parameters, body))

    def pages(
        self,
        path: str,
        request: Request,
        model: type[_Page],
        parameters: Mapping[str, str | None] | None = None,
        *,
        first: int | None = None,
    ) -> Iterator[_Page]:
        """Yield all pages of a response, fetching each one only when needed.

        Args:
            first: Size of the first page, if a few records may be enough. Each later page is four times as large.
        """
        size = min(first or self._page_size, self._page_size)
        query_parameters = dict(parameters or {})
        while True:
            page = self.read(path, request, model, {**query_parameters, "max-records": str(size)})
            yield page
            if not page.has_more or page.token is None:
                return
            query_parameters["page-token"] = page.token
            size = min(4 * size, self._page_size)

    def change(
        self,
        method: str,
        path: str,
        request: Request,
        model: type[_Answer],
        parameters: Mapping[str, str | None] | None = None,
        body: answers.JsonObject | None = None,
    ) -> _Answer:
        """Send a request once and return the response.

        Raises:
            LakegateError: If the request fails; see :mod:`lakegate.catalogs.nessie.answers`.
        """
        query = {name: value for name, value in (parameters or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=query, json=body)
        except httpx.HTTPError as error:
            raise answers.no_answer(error, request, self.server) from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise CatalogUnavailableError(
                f"The lake was closed; can't {request.task}.",
                hint="Open it again with lakegate.connect(), and close it only when all its work has ended.",
                uri=self.server,
            ) from error
        if not response.is_success:
            raise answers.failure(response, request, self.server)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            kind = response.headers.get("content-type", "no content type").partition(";")[0]
            reason = f"the response ({kind}) isn't Nessie's"
            raise answers.unreadable(request, self.server, reason) from error


def path_of(name: str, commit: str | None = None) -> str:
    """Return a reference in the form that request paths use, at its head or at a commit.

    Args:
        name: Branch or tag; empty for a bare commit.

    Example:
        >>> path_of("wap/nyc.trips_01", "2e1cfa82b035c26c")
        'wap%2Fnyc.trips_01@2e1cfa82b035c26c'
    """
    return quote(name, safe="") + (f"@{commit}" if commit else "")


def _parse(uri: str) -> httpx.URL:
    try:
        url = httpx.URL(uri.rstrip("/") + "/")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigurationError("catalog.uri isn't a valid URL.", hint=_URI_HINT) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("catalog.uri isn't an http or https URL.", hint=_URI_HINT)
    if url.userinfo:
        # Credentials would replace the token, and appear in every log line.
        raise ConfigurationError(
            "catalog.uri contains a user name or password.",
            hint="Remove them from the URL, and set catalog.token by reference, for example env:NESSIE_TOKEN.",
        )
    return url


def _tls_verification(url: httpx.URL) -> ssl.SSLContext | bool:
    """Return the trusted authorities; none if TLS can't occur, since loading them adds 50 ms to every command."""
    may_use_tls = url.scheme == "https" or not is_loopback(url.host)  # a remote server may be behind an HTTPS proxy
    return True if may_use_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


_URI_HINT = "Write it as http(s)://host:port/api/v2."
