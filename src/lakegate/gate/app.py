"""The app: the routes of Iceberg's REST API to their handlers, and what becomes of errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakegate.errors import CatalogUnavailableError, LakegateError
from lakegate.gate.access import AccessMiddleware, log_failure
from lakegate.gate.commits import Committer
from lakegate.gate.contents import Contents, Published
from lakegate.gate.engine import EngineApi
from lakegate.gate.environment import ENGINE_PATH
from lakegate.gate.lending import Lender
from lakegate.gate.openings import Doorkeeper
from lakegate.gate.reading import ReadApi
from lakegate.gate.refusals import (
    RefusedError,
    internal_error,
    not_supported,
    public_error,
    read_only,
    unavailable,
)
from lakegate.gate.requests import opening_of
from lakegate.gate.signing import Signer
from lakegate.gate.writing import WriteApi, writing
from lakegate.iceberg.files import TableFiles
from lakegate.ports import Catalog, Openings


@dataclass(frozen=True, slots=True)
class Gate:
    """What lets writers in.

    Attributes:
        openings: The openings of branches.
        key: The key that tokens are signed with.
        warehouse: Root of the tables' files.
        signer: Signs writers' requests to the object store; ``None`` if they have keys of their own.
        lender: Lends keys to writers whose requests it can't sign; ``None`` for none.
    """

    openings: Openings
    key: bytes
    warehouse: str
    signer: Signer | None = None
    lender: Lender | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """What lets lakegate's own Spark in.

    Attributes:
        token: What it must send as its bearer token.
        folder: Returns the folder for new tables of a namespace.
        file_io: Spark's options for files that the settings set: what a table's own catalog says doesn't change them.
    """

    token: str = field(repr=False)
    folder: Callable[[tuple[str, ...]], str]
    file_io: Mapping[str, str] = field(default_factory=dict)


def create_app(
    catalog: Catalog,
    files: TableFiles,
    *,
    token: Callable[[], str] | None = None,
    find_again: Callable[[], Catalog] | None = None,
    gate: Gate | None = None,
    engine: Engine | None = None,
) -> ASGIApp:
    """Return the API as an ASGI app.

    Args:
        catalog: The catalog with all branches. Only the history of ``main`` is visible through the app, and to the
            holder of an opening's token its branch.
        token: Returns the bearer token that readers must send, read anew for each request; ``None`` for no token, which
            allows only requests to ``localhost``.
        find_again: Called when the catalog doesn't answer, to find it again: after a restart, it may have moved.
        gate: Lets writers in; ``None`` for a server that only reads.
        engine: Lets lakegate's own Spark in; ``None`` if it has the catalog itself.
    """
    current = _CatalogHandle(catalog, find_again or (lambda: catalog))
    contents = Contents(current, files)
    doorkeeper = None if gate is None else Doorkeeper(gate.openings, gate.key)
    warehouse, signer, lender = (None, None, None) if gate is None else (gate.warehouse, gate.signer, gate.lender)
    reads = ReadApi(Published(current), contents, warehouse, signer, doorkeeper, lender=lender)
    routes = _read_routes(reads, current)
    if gate is not None and doorkeeper is not None:
        committer = Committer(current, files, doorkeeper)
        writes = WriteApi(committer, contents, gate.warehouse, gate.key, gate.signer, lender=lender)
        routes += _write_routes(writes, current)
    if engine is not None:
        routes += EngineApi(current, files, engine.folder, engine.file_io).routes()
    handlers: Mapping[Any, Callable[[Request, Any], Response]] = {
        RefusedError: lambda _, error: error.response(),
        LakegateError: _lakegate_failed,
        HTTPException: _no_route,
        Exception: lambda *_: internal_error().response(),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A path with an extra slash is a different path.
    app.router.redirect_slashes = False
    engines = {} if engine is None else {ENGINE_PATH: engine.token}
    return _RawPathMiddleware(AccessMiddleware(app, token, doorkeeper, engines))


_NAMESPACES = "/v1/{prefix}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"


def _read_routes(api: ReadApi, current: _CatalogHandle) -> list[Route]:
    return [
        Route("/health", api.health),
        Route("/ready", current.retrying(api.ready)),
        Route("/v1/config", current.retrying(api.config)),
        Route(_NAMESPACES, current.retrying(api.list_namespaces)),
        Route(_NAMESPACE, current.retrying(api.load_namespace)),
        Route(_TABLES, current.retrying(api.list_tables)),
        Route(_TABLE, current.retrying(api.load_table)),
    ]


def _write_routes(api: WriteApi, current: _CatalogHandle) -> list[Route]:
    posts = {
        _NAMESPACES: api.create_namespace,
        _TABLES: api.create_table,
        _TABLE: api.commit_table,
        f"{_TABLE}/metrics": api.report_metrics,
        "/v1/{prefix}/tables/rename": api.rename_table,
        "/v1/{prefix}/transactions/commit": api.commit_transaction,
    }
    routes = [Route(path, writing(handler, current.retrying), methods=["POST"]) for path, handler in posts.items()]
    signs = writing(api.sign, current.retrying, any_prefix=True)
    routes += [Route(path, signs, methods=["POST"]) for path in (f"{_TABLE}/sign", "/v1/aws/s3/sign")]
    drops = {_TABLE: api.drop_table, _NAMESPACE: api.drop_namespace}
    return routes + [
        Route(path, writing(handler, current.retrying), methods=["DELETE"]) for path, handler in drops.items()
    ]


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


def _lakegate_failed(request: Request, error: LakegateError) -> Response:
    log_failure(error)
    if request.scope["path"] == "/ready":
        return unavailable("The catalog doesn't answer.").response()
    return public_error(error).response()


_NOT_OFFERED = (
    "lakegate's catalog doesn't offer this: it lists, creates, writes, renames and drops tables. Views aren't "
    "published, and tables that exist elsewhere can't be registered: insert their rows."
)


def _no_route(request: Request, error: HTTPException) -> Response:
    """Answer requests without a route, or with another method."""
    if request.scope["path"].startswith("/v1/"):
        refusal = read_only() if opening_of(request) is None else not_supported(_NOT_OFFERED)
        return refusal.response()
    status = HTTPStatus(error.status_code)
    kind = "UnsupportedOperationException" if status == HTTPStatus.METHOD_NOT_ALLOWED else "NotFoundException"
    return RefusedError(status, kind, f"{status.phrase}. The API starts at /v1/config.", error.headers).response()
