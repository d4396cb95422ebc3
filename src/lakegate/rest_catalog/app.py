"""The part of Iceberg's REST API that reading needs: its handlers, who may call them, and the server."""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakegate.errors import AlreadyExistsError, CatalogUnavailableError, ConfigurationError, InputError, LakegateError
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.secrets import is_loopback
from lakegate.ports import Catalog
from lakegate.rest_catalog.contents import (
    Contents,
    Namespace,
    Published,
    RefusedError,
    bad_request,
    internal_error,
    json_response,
    no_namespace,
    no_table,
    public_error,
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
"""Endpoints besides the configuration. Clients that read this list don't try others."""

OPEN_PATHS = ("/health", "/ready")
"""Paths that need no token: probes of the server, which reveal nothing about the lake."""

_LOG = logging.getLogger("lakegate.rest_catalog")
_MAX_PATH_LENGTH = 500
_SEPARATOR = "\x1f"


def create_app(
    catalog: Catalog,
    files: TableFiles,
    *,
    token: Callable[[], str] | None = None,
    find_again: Callable[[], Catalog] | None = None,
) -> ASGIApp:
    """Return the API as an ASGI app.

    Args:
        catalog: The catalog with all branches. Only the history of ``main`` is visible through the app.
        token: Returns the bearer token that requests must carry, read anew for each; ``None`` for no token, which
            allows only requests to ``localhost``.
        find_again: Called when the catalog doesn't answer, to find it again: after a restart, it may have moved.
    """
    current = _CatalogHandle(catalog, find_again or (lambda: catalog))
    api = _Api(Published(current), Contents(current, files))
    namespaces = "/v1/{prefix}/namespaces"
    routes = [
        Route("/health", api.health),
        Route("/ready", current.retrying(api.ready)),
        Route("/v1/config", current.retrying(api.config)),
        Route(namespaces, current.retrying(api.list_namespaces)),
        Route(f"{namespaces}/{{namespace}}", current.retrying(api.load_namespace)),
        Route(f"{namespaces}/{{namespace}}/tables", current.retrying(api.list_tables)),
        Route(f"{namespaces}/{{namespace}}/tables/{{table}}", current.retrying(api.load_table)),
    ]
    handlers: Mapping[Any, Callable[[Request, Any], Response]] = {
        RefusedError: lambda _, error: error.response(),
        LakegateError: _lakegate_failed,
        HTTPException: _no_route,
        Exception: lambda *_: internal_error().response(),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A path with an extra slash is a different path.
    app.router.redirect_slashes = False
    return _RawPathMiddleware(_AccessMiddleware(app, token))


class _CatalogHandle:
    """The catalog at its current address."""

    def __init__(self, catalog: Catalog, find_again: Callable[[], Catalog]) -> None:
        self._catalog = catalog
        self._find_again = find_again
        self._lock = threading.Lock()

    def __call__(self) -> Catalog:
        return self._catalog

    def retrying(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Wrap ``answer`` to try once more if the catalog has moved."""

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
        with self._lock:  # only one of many failing requests looks for it
            if self._catalog is asked:
                self._catalog = self._find_again()
            return self._catalog is not asked


class _RawPathMiddleware:
    """Routes by the path as it was sent, so that an encoded slash doesn't split it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw: bytes | None = scope.get("raw_path")
            path = quote(scope["path"]) if raw is None else raw.decode("ascii", "replace").partition("?")[0]
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


class _Api:
    """The request handlers. They run in threads, because the catalog's client is synchronous."""

    def __init__(self, published: Published, contents: Contents) -> None:
        self._published = published
        self._contents = contents

    async def health(self, _request: Request) -> Response:
        """Report that the process is alive, even if all threads wait for the catalog."""
        return json_response({"status": "ok"})

    def ready(self, _request: Request) -> Response:
        """Report whether the catalog answers."""
        self._published.ref(MAIN)
        return json_response({"status": "ok"})

    def config(self, request: Request) -> Response:
        """Return the prefix for the state that the client names as its warehouse, and the endpoints."""
        prefix = self._published.prefix(request.query_params.get("warehouse", ""))
        # Clients put the prefix into their paths without encoding it.
        overrides = {"prefix": quote(prefix, safe=":")}
        return json_response({"defaults": {}, "overrides": overrides, "endpoints": ENDPOINTS})

    def list_namespaces(self, request: Request) -> Response:
        """List the top-level namespaces, or those directly in ``parent``."""
        parent = _namespace_levels(request.query_params.get("parent", ""))
        ref = self._ref(request)
        listing = self._contents.listing(ref)
        if parent and parent not in listing.namespaces:
            raise no_namespace(".".join(parent))
        return json_response({"namespaces": listing.below(parent), "next-page-token": None}, headers=_headers(ref))

    def load_namespace(self, request: Request) -> Response:
        """Return a namespace, without properties. For HEAD, only report that it exists."""
        ref = self._ref(request)
        namespace = self._namespace(request, ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(ref))
        return json_response({"namespace": namespace, "properties": {}}, headers=_headers(ref))

    def list_tables(self, request: Request) -> Response:
        """List the tables of a namespace, all at once: the specification lets a server ignore ``pageToken``."""
        ref = self._ref(request)
        namespace = self._namespace(request, ref)
        names = self._contents.listing(ref).tables.get(namespace, ())
        tables = [{"namespace": namespace, "name": name} for name in names]
        return json_response({"identifiers": tables, "next-page-token": None}, headers=_headers(ref))

    def load_table(self, request: Request) -> Response:
        """Return a table's metadata. For HEAD, only report that it exists."""
        ref, pointer = self._table(request)
        headers = _headers(ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        etag = self._contents.etag(pointer)
        headers |= {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            content = self._contents.table(pointer)
        except InputError as error:
            _log_failure(error)
            raise internal_error(f"The metadata file of table {pointer.table} is missing or damaged.") from error
        return Response(content, headers=headers, media_type="application/json")

    def _ref(self, request: Request) -> Ref:
        return self._published.ref(_prefix(request))

    def _namespace(self, request: Request, ref: Ref) -> Namespace:
        namespace = _namespace_levels(_text(request, "namespace"))
        if namespace not in self._contents.listing(ref).namespaces:
            raise no_namespace(".".join(namespace))
        return namespace

    def _table(self, request: Request) -> tuple[Ref, TablePointer]:
        namespace, name = _namespace_levels(_text(request, "namespace")), _text(request, "table")
        try:
            table = TableIdentifier(namespace=namespace, name=name)
            ref, pointer = self._published.table(_prefix(request), table)
        except ConfigurationError:
            raise
        except InputError:  # not a table name, or the name of a view or namespace
            raise no_table(".".join((*namespace, name))) from None
        if pointer is None:
            raise no_table(str(table))
        return ref, pointer


def _text(request: Request, parameter: str) -> str:
    try:
        return unquote(request.path_params[parameter], errors="strict")
    except UnicodeDecodeError:
        raise bad_request("The path isn't UTF-8.") from None


def _prefix(request: Request) -> str:
    prefix = _text(request, "prefix")
    # Some clients encode the prefix again.
    return unquote(prefix) if "%" in prefix else prefix


def _namespace_levels(namespace: str) -> Namespace:
    return tuple(namespace.split(_SEPARATOR)) if namespace else ()


def _headers(ref: Ref) -> dict[str, str]:
    return {"X-Lakegate-Commit": ref.hash}


def _matches(condition: str, etag: str) -> bool:
    return condition.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in condition.split(","))


def _log_failure(error: LakegateError) -> None:
    _LOG.warning("%s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})


def _lakegate_failed(request: Request, error: LakegateError) -> Response:
    _log_failure(error)
    if request.scope["path"] == "/ready":
        return unavailable("The catalog doesn't answer.").response()
    return public_error(error).response()


def _no_route(request: Request, error: HTTPException) -> Response:
    """Answer requests without a route, or with another method."""
    if request.scope["path"].startswith("/v1/"):
        return read_only().response()
    status = HTTPStatus(error.status_code)
    kind = "UnsupportedOperationException" if status == HTTPStatus.METHOD_NOT_ALLOWED else "NotFoundException"
    return RefusedError(status, kind, f"{status.phrase}. The API starts at /v1/config.", error.headers).response()


class _AccessMiddleware:
    """Authenticates requests, and logs each of them without tokens and query strings.

    Args:
        token: Returns the bearer token to require, read anew for each request; ``None`` to require none. Without a
            token, only requests to this machine's own names are answered, because a web page could make its own host
            name point here (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, token: Callable[[], str] | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        status, size, commit = 0, 0, None

        async def recording(message: Message) -> None:
            nonlocal status, size, commit
            if message["type"] == "http.response.start":
                status = message["status"]
                commit = Headers(raw=message["headers"]).get("x-lakegate-commit")
            else:
                size += len(message.get("body", b""))
            await send(message)

        failure: BaseException | None = None
        try:
            try:
                await self._require_allowed(scope)
                await self._app(scope, receive, recording)
            except RefusedError as refusal:
                await refusal.response()(scope, receive, recording)
            except Exception as error:  # noqa: BLE001 - clients must get an answer, and the log the error
                failure = error
                if not status:
                    await internal_error().response()(scope, receive, recording)
        finally:
            _log(scope, status, size, commit, time.monotonic() - began, failure)

    async def _require_allowed(self, scope: Scope) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        headers = Headers(scope=scope)
        if self._token is None:
            if not is_loopback(_host(headers.get("host", ""))):
                raise RefusedError(
                    HTTPStatus.FORBIDDEN,
                    "ForbiddenException",
                    "This server has no token, so it only answers requests to this machine's names, such as localhost.",
                )
            return
        try:
            token = await run_sync(self._token)
        except LakegateError as error:
            _LOG.warning("%s", error.message)
            raise unavailable("The server's token can't be read at the moment.") from error
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not _tokens_match(given.strip(), token):
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "NotAuthorizedException",
                "This catalog needs a bearer token." if not given else "The bearer token is wrong.",
                {"WWW-Authenticate": 'Bearer realm="lakegate"'},
            )


def _tokens_match(given: str, token: str) -> bool:
    """Compare in constant time, which doesn't even reveal the token's length."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, token))
    return hmac.compare_digest(*digests)


def _host(header: str) -> str:
    """Return the host of a ``Host`` header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    host, _, port = header.lower().partition(":")
    return host if port.isdecimal() or host == header.lower() else header


def _log(
    scope: Scope, status: int, size: int, commit: str | None, seconds: float, failure: BaseException | None
) -> None:
    path = scope["path"][:_MAX_PATH_LENGTH]  # without the query string, in which somebody may have put a token
    facts = {
        "method": scope["method"],
        "path": path,
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 3),
        "client": (scope.get("client") or (None,))[0],
        "user_agent": Headers(scope=scope).get("user-agent", "")[:_MAX_PATH_LENGTH] or None,
        "commit": commit,
    }
    quiet = scope["path"] in OPEN_PATHS and status == HTTPStatus.OK
    level = logging.ERROR if failure else logging.DEBUG if quiet else logging.INFO
    _LOG.log(level, "%s %s %s", facts["method"], path, status, extra={"facts": facts}, exc_info=failure)


_BACKLOG = 128
_SHUTDOWN_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a server listens.

    Attributes:
        port: The port; 0 to pick a free one.
        certificate: Certificate chain (PEM) for TLS.
        key: Its private key (PEM).
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """The server's URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'' if self.certificate is None else 's'}://{host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def require_safe(address: ListenAddress, *, has_token: bool) -> None:
    """Raise if other machines could read without a token."""
    if not has_token and not address.is_private:
        raise ConfigurationError(
            f"Anyone who reaches {address.host} could read the lake's metadata without a token.",
            hint="Put a token into an environment variable and pass --token env:NAME (setting serve.token), or leave "
            "out --host.",
            setting="serve.token",
            host=address.host,
        )


def listen(address: ListenAddress) -> socket.socket:
    """Return a socket that listens at ``address``. Its own name has the actual port.

    Raises:
        AlreadyExistsError: Another program has the port.
        InputError: This machine doesn't have the address, or this user may not use the port.
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
        low = "Ports below 1024 need root: pass a higher one." if error.errno == errno.EACCES else None
        raise InputError(
            f"Can't listen on {address.host}, port {address.port}: {error.strerror or error}.",
            hint=low or "Pass an address of this machine: --host 127.0.0.1.",
            host=address.host,
            port=address.port,
        ) from error
    # Connections inherit this, which asyncio doesn't set. Without it, a body waits 40 ms for the ACK of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(app: ASGIApp, listening: socket.socket, address: ListenAddress) -> None:
    """Serve until SIGINT or SIGTERM. Running requests get ten seconds to end.

    Args:
        listening: The socket; closed at the end.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,  # the middleware's log leaves out tokens
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    try:
        config.load()
    except OSError as error:  # includes ssl.SSLError
        raise ConfigurationError(
            f"Can't use the certificate {address.certificate} with the key {address.key}: {error.strerror or error}.",
            hint="serve.tls_certificate and serve.tls_key name files in PEM format that belong together.",
            setting="serve.tls_certificate",
        ) from error
    # uvicorn raises the signal again once it has stopped.
    with listening, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
