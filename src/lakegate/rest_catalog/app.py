"""Iceberg's REST API, as much of it as reading takes, and its server."""

from __future__ import annotations

import base64
import binascii
import errno
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakegate.errors import AlreadyExistsError, CatalogUnavailableError, ConfigurationError, InputError, LakegateError
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.secrets import is_loopback
from lakegate.ports import Catalog
from lakegate.rest_catalog.access import LOG, Access
from lakegate.rest_catalog.contents import (
    MAIN,
    Contents,
    Namespace,
    Published,
    RefusedError,
    Snapshots,
    bad_request,
    explained,
    internal,
    json_response,
    no_namespace,
    no_table,
    read_only,
    unavailable,
)

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
"""What clients may ask besides the configuration. Those that know the list don't try anything else."""

_SEPARATOR = "\x1f"
_LARGEST_PAGE = 10_000


def create_app(
    catalog: Catalog,
    files: TableFiles,
    *,
    token: Callable[[], str] | None = None,
    find_again: Callable[[], Catalog] | None = None,
) -> ASGIApp:
    """Return the API as an ASGI app.

    Args:
        catalog: The catalog with all branches; only what is in the history of ``main`` can be seen through the app.
        token: Returns the bearer token that requests must bring, read again for each; ``None`` for no token, which lets
            only requests to ``localhost`` through.
        find_again: Returns the catalog when it doesn't answer: one that was restarted may have another address.
    """
    current = _Current(catalog, find_again or (lambda: catalog))
    api = _Api(Published(current), Contents(current, files))
    namespaces = "/v1/{prefix}/namespaces"
    routes = [
        Route("/health", api.health),
        Route("/ready", current.answering(api.ready)),
        Route("/v1/config", current.answering(api.config)),
        Route(namespaces, current.answering(api.list_namespaces)),
        Route(f"{namespaces}/{{namespace}}", current.answering(api.load_namespace)),
        Route(f"{namespaces}/{{namespace}}/tables", current.answering(api.list_tables)),
        Route(f"{namespaces}/{{namespace}}/tables/{{table}}", current.answering(api.load_table)),
    ]
    handlers: Mapping[Any, Callable[[Request, Any], Response]] = {
        RefusedError: lambda _, error: error.response(),
        LakegateError: _failed,
        HTTPException: _not_routed,
        Exception: lambda *_: internal().response(),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A path with a slash too many is another path.
    app.router.redirect_slashes = False
    return _Undecoded(Access(app, token))


class _Current:
    """The catalog, and where it is now."""

    def __init__(self, catalog: Catalog, find_again: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._find_again = find_again
        self._lock = threading.Lock()

    def __call__(self) -> Catalog:
        return self._catalog

    def answering(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Return what answers as ``answer``, and does so once more if the catalog turns out to have moved."""

        def answered(request: Request) -> Response:
            asked = self._catalog
            try:
                return answer(request)
            except CatalogUnavailableError:
                if not self._has_moved(asked):
                    raise
            return answer(request)

        return answered

    def _has_moved(self, asked: Catalog) -> bool:
        with self._lock:  # of many requests that fail at once, one looks
            if self._catalog is asked:
                self._catalog = self._find_again()
            return self._catalog is not asked


class _Undecoded:
    """Routes by the path as it was sent, so that an encoded slash separates nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw: bytes | None = scope.get("raw_path")
            path = quote(scope["path"]) if raw is None else raw.decode("ascii", "replace").partition("?")[0]
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


class _Api:
    """The requests that are answered, in threads: the catalog is asked synchronously."""

    def __init__(self, published: Published, contents: Contents) -> None:
        self._published = published
        self._contents = contents

    async def health(self, request: Request) -> Response:
        """Say that the process answers, even when all threads wait for a catalog that doesn't."""
        del request
        return json_response({"status": "ok"})

    def ready(self, request: Request) -> Response:
        """Say whether the catalog answers, too."""
        del request
        self._published.ref(MAIN)
        return json_response({"status": "ok"})

    def config(self, request: Request) -> Response:
        """Return the prefix for the state that the client asks for as its warehouse, and what it may ask there."""
        prefix = self._published.prefix(request.query_params.get("warehouse", ""))
        # Clients put it into their paths as it is.
        overrides = {"prefix": quote(prefix, safe=":")}
        return json_response({"defaults": {}, "overrides": overrides, "endpoints": ENDPOINTS})

    def list_namespaces(self, request: Request) -> Response:
        """List the namespaces at the top, or directly in ``parent``."""
        parent = _levels(request.query_params.get("parent", ""))

        def names(ref: Ref) -> Sequence[Namespace]:
            listing = self._contents.listing(ref)
            if parent and parent not in listing.namespaces:
                raise no_namespace(".".join(parent))
            return listing.below(parent)

        return self._page(request, "namespaces", names)

    def load_namespace(self, request: Request) -> Response:
        """Return a namespace, which has no properties; or say that it is there."""
        ref = self._ref(request)
        namespace = self._namespace(request, ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(ref))
        return json_response({"namespace": namespace, "properties": {}}, headers=_headers(ref))

    def list_tables(self, request: Request) -> Response:
        """List the tables of a namespace."""

        def names(ref: Ref) -> Sequence[dict[str, Any]]:
            namespace = self._namespace(request, ref)
            found = self._contents.listing(ref).tables.get(namespace, ())
            return [{"namespace": namespace, "name": name} for name in found]

        return self._page(request, "identifiers", names)

    def load_table(self, request: Request) -> Response:
        """Return a table's metadata; or say that it is there, or hasn't changed."""
        wanted = request.query_params.get("snapshots", "all")
        snapshots: Snapshots | None = {"all": "all", "refs": "refs"}.get(wanted)  # type: ignore[assignment]
        if snapshots is None:
            raise bad_request("The parameter snapshots must be 'all' or 'refs'.")
        ref, pointer = self._table(request)
        headers = _headers(ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        etag = self._contents.etag(pointer, snapshots)
        headers |= {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            content = self._contents.table(pointer, snapshots)
        except InputError as error:
            _log_failure(error)
            raise internal(f"The metadata file of table {pointer.table} is missing or damaged.") from error
        return Response(content, headers=headers, media_type="application/json")

    def _ref(self, request: Request) -> Ref:
        return self._published.ref(_prefix(request))

    def _namespace(self, request: Request, ref: Ref) -> Namespace:
        namespace = _levels(_text(request, "namespace"))
        if namespace not in self._contents.listing(ref).namespaces:
            raise no_namespace(".".join(namespace))
        return namespace

    def _table(self, request: Request) -> tuple[Ref, TablePointer]:
        namespace, name = _levels(_text(request, "namespace")), _text(request, "table")
        try:
            table = TableIdentifier(namespace=namespace, name=name)
            ref, pointer = self._published.table(_prefix(request), table)
        except ConfigurationError:
            raise
        except InputError:  # not the name of a table, or that of a view or a namespace
            raise no_table(".".join((*namespace, name))) from None
        if pointer is None:
            raise no_table(str(table))
        return ref, pointer

    def _page(self, request: Request, field: str, names: Callable[[Ref], Sequence[Any]]) -> Response:
        """Return a list, or a page of it when the client asks for pages. All its pages come from one commit."""
        ref, size = self._ref(request), _page_size(request)
        token = request.query_params.get("pageToken")
        if token is None:
            return json_response({field: names(ref), "next-page-token": None}, headers=_headers(ref))
        start = 0
        if token:
            commit, start = _read_token(token)
            if commit != ref.hash:
                if ref.name != MAIN or not self._published.has(commit):
                    raise _bad_token()
                ref = Ref(name=commit, hash=commit, kind="detached")
        found = names(ref)
        end = start + size
        following = _token(ref.hash, end) if end < len(found) else None
        return json_response({field: found[start:end], "next-page-token": following}, headers=_headers(ref))


def _text(request: Request, parameter: str) -> str:
    try:
        return unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise bad_request("The path isn't UTF-8.") from None


def _prefix(request: Request) -> str:
    prefix = _text(request, "prefix")
    # Some clients encode once more what they were given encoded.
    return unquote(prefix) if "%" in prefix else prefix


def _levels(namespace: str) -> Namespace:
    return tuple(namespace.split(_SEPARATOR)) if namespace else ()


def _headers(ref: Ref) -> dict[str, str]:
    return {"X-Lakegate-Commit": ref.hash}


def _matches(condition: str, etag: str) -> bool:
    return condition.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in condition.split(","))


def _page_size(request: Request) -> int:
    text = request.query_params.get("pageSize", str(_LARGEST_PAGE))
    if not (text.isascii() and text.isdecimal()) or int(text[:9]) == 0:
        raise bad_request("The parameter pageSize must be a number from 1 on.")
    return min(int(text[:9]), _LARGEST_PAGE)


def _token(commit: str, start: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([commit, start]).encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[str, int]:
    try:
        commit, start = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _bad_token() from None
    if not (isinstance(commit, str) and type(start) is int and start >= 0):
        raise _bad_token()
    return commit, start


def _bad_token() -> RefusedError:
    return bad_request("The page token isn't one of this list. Begin again with an empty pageToken.")


def _log_failure(error: LakegateError) -> None:
    LOG.warning("%s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})


def _failed(request: Request, error: LakegateError) -> Response:
    _log_failure(error)
    if request.scope["path"] == "/ready":
        return unavailable("The catalog doesn't answer.").response()
    return explained(error).response()


def _not_routed(request: Request, error: HTTPException) -> Response:
    """Answer what no route is for, or not with this method."""
    if request.scope["path"].startswith("/v1/"):
        return read_only().response()
    status = HTTPStatus(error.status_code)
    kind = "UnsupportedOperationException" if status == HTTPStatus.METHOD_NOT_ALLOWED else "NotFoundException"
    return RefusedError(status, kind, f"{status.phrase}. The API begins at /v1/config.", error.headers).response()


_BACKLOG = 128
_LAST_REQUESTS_S = 10


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        port: Port; 0 for any free one, until it is taken.
        certificate: Certificate chain (PEM), to speak TLS.
        key: Its private key (PEM).
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The address as clients spell it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'' if self.certificate is None else 's'}://{host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def require_safe(address: Address, *, has_token: bool) -> None:
    """Make sure that other machines can't read without a token."""
    if not has_token and not address.is_private:
        raise ConfigurationError(
            f"Anyone who reaches {address.host} could read the lake's metadata without a token.",
            hint="Put a token into a variable and pass --token env:NAME_OF_THE_VARIABLE (setting serve.token), or "
            "leave out --host.",
            setting="serve.token",
            host=address.host,
        )


def listen(address: Address) -> socket.socket:
    """Take the port.

    Returns:
        The socket, which is listening. Its own name says which port it is.

    Raises:
        AlreadyExistsError: Another program has the port.
        InputError: This machine doesn't have the address, or this user may not take the port.
    """
    try:
        family, *_, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"Can't listen on '{address.host}': there's no such host.", host=address.host) from error
    try:
        listening = socket.create_server(place, family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyExistsError(
                f"Port {address.port} on {address.host} is in use by another program.",
                hint="Pass another one: --port 8182, or --port 0 for any free one.",
                host=address.host,
                port=address.port,
            ) from error
        low = "Ports below 1024 are for root: pass a higher one." if error.errno == errno.EACCES else None
        raise InputError(
            f"Can't listen on {address.host}, port {address.port}: {error.strerror or error}.",
            hint=low or "Pass an address of this machine: --host 127.0.0.1.",
            host=address.host,
            port=address.port,
        ) from error
    # Connections inherit it. asyncio leaves them without, and a body then waits 40 ms for its headers' receipt.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(app: ASGIApp, listening: socket.socket, address: Address) -> None:
    """Serve until SIGINT or SIGTERM. Requests under way get ten seconds to end.

    Args:
        listening: The socket; closed at the end.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,  # ours knows what must not be in it
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LAST_REQUESTS_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    try:
        config.load()
    except OSError as error:  # of which ssl.SSLError is one
        raise ConfigurationError(
            f"Can't use the certificate {address.certificate} with the key {address.key}: {error.strerror or error}.",
            hint="serve.tls_certificate and serve.tls_key name files in PEM format that belong together.",
            setting="serve.tls_certificate",
        ) from error
    # It sends itself the signal once more when it has ended.
    with listening, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
