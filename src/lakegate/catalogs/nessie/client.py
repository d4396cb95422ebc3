"""A small typed client for Nessie's REST API v2: requests, responses as values, and errors as lakegate's.

Source: the OpenAPI document in a Nessie server (``META-INF/openapi/openapi.yaml``), version 0.99, spec 2.2.0. It
defines endpoints, parameters, and how a path spells a reference (``name``, ``name@hash``, ``@hash``,
``name*timestamp``). Unknown fields of a response are ignored, so newer servers may send more. ``pynessie`` supports
only version 1.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal, TypeVar
from urllib import parse

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.catalogs import HEAD_MOVED, KeyConflict, commit_conflict, moved_reference
from lakegate.credentials.tokens import BearerAuth, Token, http_client
from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import quote
from lakegate.model.secrets import is_loopback

_API_VERSION = 2
_ATTEMPTS = 4
_MAX_WAIT_S = 2.0
_MAX_CONNECT_S = 10.0
_URI_HINT = "Write it as http(s)://host:port/api/v2."
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
# Nessie accepts UNCHANGED for a key that never existed only if the commit's base is the head: our compare-and-swap.
NO_SUCH_KEY = "lakegate-at-head"
_LONGEST_MESSAGE = 500
_PLAIN = re.compile(r"[A-Za-z0-9_-]*[A-Za-z0-9_][A-Za-z0-9_-]*")
_ACTUAL_HASH = re.compile(r"but at '([0-9a-f]+)'")


class Wire(BaseModel):
    """Base class of responses and their parts: frozen, lenient, camel case in JSON."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class PagedAnswer(Wire):
    """Base class of paged responses."""

    has_more: bool = False
    token: str | None = None


class ServerConfiguration(Wire):
    """A server's description of itself (``GET /config``)."""

    max_supported_api_version: int
    actual_api_version: int | None = None
    spec_version: str | None = None
    repository_creation_timestamp: str | None = None


class Reference(Wire):
    """A branch, a tag or a bare commit."""

    type: Literal["BRANCH", "TAG", "DETACHED"]
    name: str = ""
    hash: str


class ReferenceAnswer(Wire):
    """Response to reading, creating, moving or deleting one reference."""

    reference: Reference


class ReferencesPage(PagedAnswer):
    """Response of ``GET /trees``."""

    references: tuple[Reference, ...]


class ContentKey(Wire):
    """A key: the elements of a namespace's or a table's name."""

    elements: tuple[str, ...]


class Content(Wire):
    """The content of a key. Fields that its type doesn't have are ``None``."""

    type: str
    id: str | None = None
    metadata_location: str | None = None
    snapshot_id: int | None = None
    schema_id: int | None = None
    spec_id: int | None = None
    sort_order_id: int | None = None


class KeyedContent(Wire):
    """A key with its content."""

    key: ContentKey
    content: Content


class ContentsAnswer(Wire):
    """Response of ``POST /trees/{ref}/contents``. Keys that don't exist are left out."""

    contents: tuple[KeyedContent, ...]
    effective_reference: Reference


class ContentEntry(Wire):
    """A key in a listing."""

    name: ContentKey
    type: str
    content: Content | None = None


class EntriesPage(PagedAnswer):
    """Response of ``GET /trees/{ref}/entries``."""

    entries: tuple[ContentEntry, ...]


class Operation(Wire):
    """One operation of a past commit. Only a ``PUT`` has content."""

    type: str
    key: ContentKey
    content: Content | None = None


class CommitMeta(Wire):
    """A commit's metadata."""

    hash: str
    message: str = ""
    authors: tuple[str, ...] = ()
    commit_time: datetime
    all_properties: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    parent_commit_hashes: tuple[str, ...] = ()


class LogEntry(Wire):
    """One commit in a history."""

    commit_meta: CommitMeta
    operations: tuple[Operation, ...] | None = None


class HistoryPage(PagedAnswer):
    """Response of ``GET /trees/{ref}/history``."""

    log_entries: tuple[LogEntry, ...]


class CommitAnswer(Wire):
    """Response of ``POST /trees/{branch}/history/commit``."""

    target_branch: Reference


class DiffEntry(Wire):
    """A key that differs between two references."""

    key: ContentKey
    from_: Content | None = Field(default=None, alias="from")
    to: Content | None = None


class DiffPage(PagedAnswer):
    """Response of ``GET /trees/{from}/diff/{to}``."""

    diffs: tuple[DiffEntry, ...]


class Conflict(Wire):
    """One reason why a change was refused."""

    conflict_type: str | None = None
    key: ContentKey | None = None


class ErrorDetails(Wire):
    """Details of an error, sent to clients that announce ``Nessie-Client-Spec: 2``."""

    conflicts: tuple[Conflict, ...] = ()


class NessieError(Wire):
    """The body of every error response."""

    status: int
    message: str = ""
    error_code: str
    error_details: ErrorDetails | None = None


JsonObject = dict[str, Any]
"""A request's body."""
_Answer = TypeVar("_Answer", bound=Wire)
_Page = TypeVar("_Page", bound=PagedAnswer)


@dataclass(frozen=True, slots=True)
class Request:
    """A request's description for error messages.

    Attributes:
        task: What it does, to follow "can't": ``list branches and tags``.
        hash: The commit that it expects or reads.
        commits: Whether it commits, so that its outcome must never be guessed.
    """

    task: str
    ref: str | None = None
    hash: str | None = None
    commits: bool = False


class NessieClient:
    """Calls one Nessie server. Thread-safe; connections are kept alive until :meth:`close`.

    If the server is unavailable or overloaded, reads are tried four times, with jitter, but not after ``timeout_s``
    seconds. Changes are sent only once; a commit without a response raises
    :class:`~lakegate.errors.OutcomeUnknownError`.

    Args:
        uri: Address of the API, ``https://host/api/v2``.
        token: Bearer token, sent in a header and never shown. If the server refuses it, it's renewed and the request
            sent once more.
        timeout_s: Seconds to wait for a response, and to keep retrying a read.
        retry_wait_s: Scale of the wait before the first retry, in seconds.

    Raises:
        ConfigurationError: If ``uri`` isn't an http(s) address or contains credentials, or if the environment's proxy
            can't be used.
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
        self._http = http_client(
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

    def configuration(self) -> ServerConfiguration:
        """Return the server's configuration."""
        answer = self.read("config", Request("read the catalog's configuration"), ServerConfiguration)
        # A server's v1 address reports that v2 is supported, but only the v2 address reports its own version.
        version = answer.actual_api_version or (1 if self.server.endswith("/v1") else answer.max_supported_api_version)
        if version < _API_VERSION:
            raise _not_nessie(self.server, f"it speaks version {version} of the API")
        return answer

    def read(
        self,
        path: str,
        request: Request,
        model: type[_Answer],
        parameters: Mapping[str, str | None] | None = None,
        body: JsonObject | None = None,
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
            if not page.has_more:
                return
            if page.token is None:  # gc would take what is on the other pages for garbage
                raise _unreadable(request, self.server, "the response is cut off, without a token for its next page")
            query_parameters["page-token"] = page.token
            size = min(4 * size, self._page_size)

    def change(
        self,
        method: str,
        path: str,
        request: Request,
        model: type[_Answer],
        parameters: Mapping[str, str | None] | None = None,
        body: JsonObject | None = None,
    ) -> _Answer:
        """Send a request once and return the response.

        Raises:
            LakegateError: If the request fails.
        """
        query = {name: value for name, value in (parameters or {}).items() if value is not None}
        try:
            response = self._http.request(method, path, params=query, json=body)
        except httpx.HTTPError as error:
            raise _no_answer(error, request, self.server) from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise CatalogUnavailableError(
                f"The lake was closed; can't {request.task}.",
                hint="Open it again with lakegate.connect(), and close it only when all its work has ended.",
                uri=self.server,
            ) from error
        if not response.is_success:
            raise _failure(response, request, self.server)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            kind = response.headers.get("content-type", "no content type").partition(";")[0]
            reason = f"the response ({kind}) isn't Nessie's"
            raise _unreadable(request, self.server, reason) from error


def path_of(name: str, commit: str | None = None) -> str:
    """Return a reference in the form that request paths use, at its head or at a commit.

    Args:
        name: Branch or tag; empty for a bare commit.

    Example:
        >>> path_of("wap/nyc.trips_01", "2e1cfa82b035c26c")
        'wap%2Fnyc.trips_01@2e1cfa82b035c26c'
    """
    return parse.quote(name, safe="") + (f"@{commit}" if commit else "")


def key_text(elements: tuple[str, ...]) -> str:
    """Return a content key as text, quoting parts that aren't plain names.

    Example:
        >>> key_text(("nyc", "trips")), key_text(("nyc", "odd.name"))
        ('nyc.trips', 'nyc.`odd.name`')
    """
    return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in elements)


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


def _no_answer(error: httpx.HTTPError, request: Request, server: str) -> LakegateError:
    """Return the error for a request to ``server`` that got no answer."""
    reason = _first_line(str(error)) or type(error).__name__
    if request.commits and not isinstance(error, _NOT_SENT):
        return _outcome_unknown(request, server, f"the connection was lost before a response arrived ({reason})")
    what = "didn't answer in time" if isinstance(error, httpx.TimeoutException) else "doesn't answer"
    return CatalogUnavailableError(
        f"The catalog at {server} {what} ({reason}); can't {request.task}.",
        hint="Check 'lakegate status'; start the local stack with 'lakegate up', or correct catalog.uri."
        if is_loopback(httpx.URL(server).host)
        else "Check that it's running and that catalog.uri is right, then try again.",
        uri=server,
        ref=request.ref,
    )


def _failure(response: httpx.Response, request: Request, server: str) -> LakegateError:
    """Return the error for a response of ``server`` whose status isn't 2xx."""
    status = response.status_code
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _refused(response, request, server)
    if response.is_redirect:
        target = response.headers.get("location", "").split("?")[0].split("@")[-1]
        return _not_nessie(server, f"it redirects to {target or 'another address'}")
    error = _error_in(response)
    if response.is_server_error or status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT):
        return _overloaded(status, error, request, server)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # from the HTTP server, before Nessie sees it
        return InputError(
            f"The catalog at {server} can't {request.task}: the request is too large (HTTP {status}).",
            hint="Ingest fewer files at a time, such as with lakegate backfill. Nessie's limit is "
            "quarkus.http.limits.max-body-size, by default 10 MB: about 100,000 files.",
            uri=server,
            ref=request.ref,
        )
    if error is None:
        return _not_nessie(server, f"HTTP {status} without Nessie's error object")
    return _from_nessie(error, request, server)


def _not_nessie(server: str, reason: str) -> ConfigurationError:
    """Return the error for an address where something other than Nessie's API v2 responds."""
    return ConfigurationError(
        f"There is no Nessie API v2 at {server}: {reason}.",
        hint="Set catalog.uri to the address that ends in /api/v2, for example http://127.0.0.1:19120/api/v2.",
        uri=server,
    )


def _unreadable(request: Request, server: str, reason: str) -> LakegateError:
    """Return the error for a successful response whose body isn't Nessie's."""
    if request.commits:
        return _outcome_unknown(request, server, f"the response can't be read ({reason})")
    return _not_nessie(server, reason)


def _from_nessie(error: NessieError, request: Request, server: str) -> LakegateError:
    message = _first_line(error.message).rstrip(".")
    context = {"ref": request.ref, "hash": request.hash, "nessie_error": error.error_code}
    if error.error_code == "REFERENCE_CONFLICT":
        return _conflict(error, message, request)
    if error.error_code == "REFERENCE_ALREADY_EXISTS":
        return AlreadyExistsError(
            f"Can't {request.task}: a branch or tag of this name exists.",
            hint="Choose another name, or delete the old one first.",
            **context,
        )
    if error.status == HTTPStatus.NOT_FOUND:
        return NotFoundError(
            f"Can't {request.task}: {message}.",
            hint="'lakegate branch list' shows what exists.",
            **context,
        )
    if request.commits and "content ID" in error.message:
        # Nessie checks the content ids first. If a key was created or dropped (or both) since it was read, the response
        # is therefore a bad request and not a conflict.
        return commit_conflict(request.ref or "", request.hash or "", (), message)
    return InputError(
        f"The catalog refused to {request.task}: {message}.",
        hint="Check the names." if error.status == HTTPStatus.BAD_REQUEST else None,
        uri=server,
        **context,
    )


def _conflict(error: NessieError, message: str, request: Request) -> ConflictError:
    conflicts = error.error_details.conflicts if error.error_details else ()
    if request.commits:
        keys = [
            HEAD_MOVED
            if conflict.key.elements == (NO_SUCH_KEY,)
            else KeyConflict(key_text(conflict.key.elements), conflict.conflict_type or "UNKNOWN")
            for conflict in conflicts
            if conflict.key is not None
        ]
        return commit_conflict(request.ref or "", request.hash or "", keys, message)
    actual = _ACTUAL_HASH.search(message)
    return moved_reference(request.ref or "", request.hash or "", actual[1] if actual else None)


def _refused(response: httpx.Response, request: Request, server: str) -> ConfigurationError:
    status = response.status_code
    reason, hint = "doesn't allow this", "Ask the catalog's administrator to grant this token's user the permission."
    if status == HTTPStatus.UNAUTHORIZED:
        reason = "doesn't accept the token" if "Authorization" in response.request.headers else "requires a token"
        hint = "Set catalog.token to a valid token by reference, for example env:NESSIE_TOKEN, or catalog.oauth2_*."
    return ConfigurationError(
        f"The catalog at {server} {reason} (HTTP {status}); can't {request.task}.",
        hint=hint,
        uri=server,
        ref=request.ref,
        status=status,
    )


def _overloaded(status: int, error: NessieError | None, request: Request, server: str) -> LakegateError:
    reason = f"HTTP {status}" + (f": {_first_line(error.message)}" if error else "")
    if request.commits and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _outcome_unknown(request, server, f"the server responded with an error ({reason})")
    return CatalogUnavailableError(
        f"The catalog at {server} is unavailable ({reason}); can't {request.task}.",
        hint="Try again. Check the catalog with 'lakegate status'.",
        uri=server,
        ref=request.ref,
    )


def _outcome_unknown(request: Request, server: str, reason: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"The commit to '{request.ref}' may or may not have been made: {reason}.",
        hint=f"To find out, run 'lakegate log {request.ref}'.",
        uri=server,
        branch=request.ref,
        base=request.hash,
    )


def _error_in(response: httpx.Response) -> NessieError | None:
    try:
        return NessieError.model_validate_json(response.content)
    except ValidationError:
        return None


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"
