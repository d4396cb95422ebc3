"""A small typed client of Nessie's REST API v2.

Endpoints, parameters and the forms of a reference in a path (``name``, ``name@hash``, ``@hash``, ``name*timestamp``)
are those of the OpenAPI document that a Nessie server carries; ``pynessie`` speaks version 1 only.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.catalogs.nessie import answers, models
from lakegate.catalogs.nessie.answers import Request
from lakegate.credentials.places import is_loopback
from lakegate.credentials.tokens import BearerAuth, Token
from lakegate.errors import CatalogUnavailableError, ConfigurationError

_Answer = TypeVar("_Answer", bound=models.Wire)
_Page = TypeVar("_Page", bound=models.Page)

_API_VERSION = 2
_ATTEMPTS = 4
_LONGEST_WAIT_S = 2.0
_LONGEST_CONNECT_S = 10.0


class NessieClient:
    """Calls one Nessie server. Thread-safe; connections are kept alive until :meth:`close`.

    Reading is tried again when the server is away or overloaded, with jitter, until ``timeout_s`` seconds have passed.
    Changes are sent once: their answer counts, and a commit without an answer is
    :class:`~lakegate.errors.OutcomeUnknownError`.

    Every method raises :class:`~lakegate.errors.CatalogUnavailableError` when no answer comes,
    :class:`~lakegate.errors.ConfigurationError` when the token is refused or something else than Nessie answers, and
    :class:`~lakegate.errors.NotFoundError` when the reference or commit asked for does not exist.

    Args:
        uri: Address of the API, ``https://host/api/v2``.
        token: Bearer token; sent in a header and shown nowhere. When it is refused, it is renewed, and the request is
            sent once more.
        timeout_s: Seconds to wait for one answer, and to go on trying to read.
        page_size: Records to ask for in one page.
        retry_wait_s: Scale of the wait before the first retry, in seconds.
        transport: Replaces the network, for tests.

    Raises:
        ConfigurationError: When ``uri`` is no http(s) address or holds credentials.
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
        self._server = str(url).rstrip("/")
        self._page_size = page_size
        self._timeout_s = timeout_s
        self._retry_wait_s = retry_wait_s
        self._http = httpx.Client(
            base_url=url,
            # Without the second header the server leaves the details of conflicts out.
            headers={"Accept": "application/json", "Nessie-Client-Spec": "2"},
            auth=None if token is None else BearerAuth(token, setting="catalog.token"),
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _LONGEST_CONNECT_S)),
            trust_env=not is_loopback(url.host),
            verify=_trust(url),
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"NessieClient({self._server!r})"

    @property
    def server(self) -> str:
        """The server's address."""
        return self._server

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def configuration(self) -> models.Configuration:
        """Return what the server says of itself.

        Raises:
            ConfigurationError: When it does not speak version 2 of the API at this address.
        """
        answer = self._read("config", Request("read the catalog's configuration"), models.Configuration)
        # The v1 address of a server says that v2 is supported, but only the v2 address tells its own version.
        version = answer.actual_api_version or (1 if self._server.endswith("/v1") else answer.max_supported_api_version)
        if version < _API_VERSION:
            raise answers.not_nessie(self._server, f"it speaks version {version} of the API")
        return answer

    def get_reference(self, name: str) -> models.Reference:
        """Return the branch or tag ``name``."""
        request = Request(f"find branch or tag '{name}'", ref=name)
        return self._read(f"trees/{_segment(name)}", request, models.ReferenceAnswer).reference

    def list_references(self) -> Iterator[models.Reference]:
        """Yield all branches and tags, page by page."""
        for page in self._pages("trees", Request("list branches and tags"), models.ReferencesPage, {}):
            yield from page.references

    def create_reference(self, name: str, kind: str, source_hash: str) -> models.Reference:
        """Create a ``BRANCH`` or ``TAG`` at a commit.

        Raises:
            AlreadyExistsError: When a reference of this name exists.
        """
        request = Request(f"create {kind.lower()} '{name}' at {source_hash[:12]}", ref=name, hash=source_hash)
        body = {"type": "DETACHED", "hash": source_hash}
        answer = self._send("POST", "trees", request, models.ReferenceAnswer, {"name": name, "type": kind}, body)
        return answer.reference

    def assign_reference(self, name: str, kind: str, expected_hash: str, target_hash: str) -> models.Reference:
        """Point a reference that stands at ``expected_hash`` at ``target_hash``.

        Raises:
            ConflictError: When it stands elsewhere.
        """
        request = Request(f"move {kind.lower()} '{name}' to {target_hash[:12]}", ref=name, hash=expected_hash)
        body = {"type": "DETACHED", "hash": target_hash}
        path = f"trees/{path_of(name, expected_hash)}"
        return self._send("PUT", path, request, models.ReferenceAnswer, {"type": kind}, body).reference

    def delete_reference(self, name: str, kind: str, expected_hash: str) -> None:
        """Delete a reference that stands at ``expected_hash``.

        Raises:
            ConflictError: When it stands elsewhere.
        """
        request = Request(f"delete {kind.lower()} '{name}'", ref=name, hash=expected_hash)
        path = f"trees/{path_of(name, expected_hash)}"
        self._send("DELETE", path, request, models.ReferenceAnswer, {"type": kind}, None)

    def get_contents(
        self, at: str, keys: Sequence[tuple[str, ...]]
    ) -> tuple[models.Reference, Mapping[tuple[str, ...], models.Content]]:
        """Return where was read, and what ``keys`` hold there; keys that do not exist are left out.

        Args:
            at: Where to read, as :func:`path_of` makes it.
            keys: Elements of the keys wanted. They travel in the body, so no name needs escaping.
        """
        request = Request(f"read {', '.join(answers.key_text(key) for key in keys)}", ref=at)
        body = {"requestedKeys": [{"elements": list(key)} for key in keys]}
        path = f"trees/{at}/contents"
        answer = self._retrying(lambda: self._send("POST", path, request, models.ContentsAnswer, {}, body))
        return answer.effective_reference, {item.key.elements: item.content for item in answer.contents}

    def list_entries(self, at: str, content_type: str, *, content: bool) -> Iterator[models.Entry]:
        """Yield the keys that hold ``content_type`` (``ICEBERG_TABLE``, ``NAMESPACE``), page by page.

        Args:
            at: Where to read, as :func:`path_of` makes it.
            content_type: Type of content wanted.
            content: Whether to fetch what the keys hold, too.
        """
        parameters = {"filter": f"entry.contentType == '{content_type}'", "content": str(content).lower()}
        request = Request("list tables and namespaces", ref=at)
        for page in self._pages(f"trees/{at}/entries", request, models.EntriesPage, parameters):
            yield from page.entries

    def history(
        self, at: str, *, limit_hash: str | None = None, cel: str | None = None, operations: bool = False
    ) -> Iterator[models.LogEntry]:
        """Yield commits, newest first, page by page.

        Args:
            at: Where to start, as :func:`path_of` makes it.
            limit_hash: Last commit to look at, itself included when it passes the filter. One that is never met
                limits nothing.
            cel: Filter in the Common Expression Language, run by the server.
            operations: Whether to fetch the operations, too.
        """
        parameters = {"limit-hash": limit_hash, "filter": cel, "fetch": "ALL" if operations else None}
        request = Request("read the history", ref=at)
        for page in self._pages(f"trees/{at}/history", request, models.HistoryPage, parameters):
            yield from page.log_entries

    def newest_commit(self, at: str) -> str | None:
        """Return the hash of the first commit of a history, ``None`` when it is empty."""
        request = Request(f"find commit {at}", ref=at)
        page = self._read(f"trees/{at}/history", request, models.HistoryPage, {"max-records": "1"})
        return page.log_entries[0].commit_meta.hash if page.log_entries else None

    def commit(self, branch: str, base: str, body: models.JsonObject) -> models.Reference:
        """Commit operations computed from ``base``; return the branch at its new head.

        Args:
            branch: Branch to commit to.
            base: Hash that the expected state of all keys is taken from.
            body: ``Operations_V2`` of the API.

        Raises:
            ConflictError: When a key changed after ``base``.
            OutcomeUnknownError: When it was sent and no usable answer came.
        """
        request = Request(f"commit to branch '{branch}'", ref=branch, hash=base, commits=True)
        path = f"trees/{path_of(branch, base)}/history/commit"
        return self._send("POST", path, request, models.CommitAnswer, {}, body).target_branch

    def diff(self, left: str, right: str) -> Iterator[models.DiffEntry]:
        """Yield the keys that stand differently at two places, page by page; see :func:`path_of`."""
        request = Request("compare two commits", ref=left)
        for page in self._pages(f"trees/{left}/diff/{right}", request, models.DiffPage, {}):
            yield from page.diffs

    def _pages(
        self, path: str, request: Request, model: type[_Page], parameters: Mapping[str, str | None]
    ) -> Iterator[_Page]:
        asked = {**parameters, "max-records": str(self._page_size)}
        while True:
            page = self._read(path, request, model, asked)
            yield page
            if not page.has_more or page.token is None:
                return
            asked["page-token"] = page.token

    def _read(
        self, path: str, request: Request, model: type[_Answer], parameters: Mapping[str, str | None] | None = None
    ) -> _Answer:
        return self._retrying(lambda: self._send("GET", path, request, model, parameters or {}, None))

    def _retrying(self, call: Callable[[], _Answer]) -> _Answer:
        retrying = Retrying(
            retry=retry_if_exception_type(CatalogUnavailableError),
            wait=wait_random_exponential(multiplier=self._retry_wait_s, max=_LONGEST_WAIT_S),
            stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(self._timeout_s),
            reraise=True,
        )
        return retrying(call)

    def _send(
        self,
        method: str,
        path: str,
        request: Request,
        model: type[_Answer],
        parameters: Mapping[str, str | None],
        body: models.JsonObject | None,
    ) -> _Answer:
        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            response = self._http.request(method, path, params=given, json=body)
        except httpx.HTTPError as error:
            raise answers.no_answer(error, request, self._server) from error
        if not response.is_success:
            raise answers.failure(response, request, self._server)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            kind = response.headers.get("content-type", "no content type").partition(";")[0]
            reason = f"the answer ({kind}) is not Nessie's"
            raise answers.unreadable(request, self._server, reason) from error


def path_of(name: str, commit: str | None = None) -> str:
    """Return a reference as it stands in the path of a request, at its head or at a commit.

    Args:
        name: Branch or tag; empty for a bare commit.
        commit: Commit hash.

    Example:
        >>> path_of("wap/nyc.trips_01", "2e1cfa82b035c26c")
        'wap%2Fnyc.trips_01@2e1cfa82b035c26c'
    """
    return _segment(name) + (f"@{commit}" if commit else "")


def _segment(text: str) -> str:
    return quote(text, safe="")


def _parse(uri: str) -> httpx.URL:
    try:
        url = httpx.URL(uri.rstrip("/") + "/")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigurationError("catalog.uri is not a web address.", hint=_URI_HINT) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("catalog.uri is not an http or https address.", hint=_URI_HINT)
    if url.userinfo:
        # They would take the place of the token, and stand in every log line.
        raise ConfigurationError(
            "catalog.uri holds a user name or password.",
            hint="Take them out of the address, and set catalog.token by reference, for example env:NESSIE_TOKEN.",
        )
    return url


def _trust(url: httpx.URL) -> ssl.SSLContext | bool:
    """Return whom to trust: nobody where no TLS is spoken, for reading all certificates takes 50 ms of each command."""
    speaks_tls = url.scheme == "https" or not is_loopback(url.host)  # to others' servers by a proxy, it may be
    return True if speaks_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


_URI_HINT = "Write it as http(s)://host:port/api/v2."
