"""The part of Iceberg's REST API that reading needs, and the app of all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakegate.errors import CatalogUnavailableError, ConfigurationError, InputError, LakegateError
from lakegate.gate.access import LOG, AccessMiddleware
from lakegate.gate.contents import Contents, Namespace, Published
from lakegate.gate.refusals import (
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
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.ports import Catalog

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
"""Endpoints besides the configuration. Clients that read this list don't try others."""

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
    return _RawPathMiddleware(AccessMiddleware(app, token))


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
    LOG.warning("%s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})


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
