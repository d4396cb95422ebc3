"""Who may ask, and what the log says about it: the layer around the app."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakegate.errors import LakegateError
from lakegate.model.secrets import is_loopback
from lakegate.rest_catalog.contents import RefusedError, internal, unavailable

LOG = logging.getLogger("lakegate.rest_catalog")
OPEN_PATHS = ("/health", "/ready")
"""What may be asked without a token: probes of the server itself, which say nothing about the lake."""

_LONGEST_PATH = 500


class Access:
    """Lets requests through that may ask, and logs each of them, without tokens and queries.

    Args:
        token: Returns the bearer token to ask for, read again for each request; ``None`` to ask for none. Without one,
            only requests for this machine's own names are answered: a page in somebody's browser can make its own name
            lead here.
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

        async def noting(message: Message) -> None:
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
                await self._app(scope, receive, noting)
            except RefusedError as refusal:
                await refusal.response()(scope, receive, noting)
            except Exception as error:  # noqa: BLE001 - the last line of defence
                failure = error
                if not status:
                    await internal().response()(scope, receive, noting)
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
                    "This server has no token, so it answers to this machine's own names only, such as localhost.",
                )
            return
        try:
            token = await run_sync(self._token)
        except LakegateError as error:
            LOG.warning("%s", error.message)
            raise unavailable("The server's token can't be read at the moment.") from error
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not _equal(given.strip(), token):
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "NotAuthorizedException",
                "This catalog needs a bearer token." if not given else "This catalog doesn't accept the token.",
                {"WWW-Authenticate": 'Bearer realm="lakegate"'},
            )


def _equal(given: str, token: str) -> bool:
    """Compare in a time that says nothing about the token, not even its length."""
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
    path = scope["path"][:_LONGEST_PATH]  # without the query, which could hold a token that somebody put there
    facts = {
        "method": scope["method"],
        "path": path,
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 3),
        "client": (scope.get("client") or (None,))[0],
        "user_agent": Headers(scope=scope).get("user-agent", "")[:_LONGEST_PATH] or None,
        "commit": commit,
    }
    quiet = scope["path"] in OPEN_PATHS and status == HTTPStatus.OK
    level = logging.ERROR if failure else logging.DEBUG if quiet else logging.INFO
    LOG.log(level, "%s %s %s", facts["method"], path, status, extra={"facts": facts}, exc_info=failure)
