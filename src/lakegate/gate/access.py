"""Who may send requests, and their log."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakegate.credentials.openings import PREFIX
from lakegate.errors import LakegateError
from lakegate.gate.openings import Doorkeeper
from lakegate.gate.refusals import RefusedError, internal_error, unavailable
from lakegate.listening import may_ask

OPEN_PATHS = ("/health", "/ready")
"""Paths that need no token: probes of the server, which reveal nothing about the lake."""

LOG = logging.getLogger("lakegate.gate")
_MAX_PATH_LENGTH = 500


def log_failure(error: LakegateError) -> None:
    """Log one of our errors, with what clients aren't told."""
    LOG.warning("%s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})


class AccessMiddleware:
    """Authenticates requests, and logs each of them without tokens and query strings.

    Args:
        token: Returns the bearer token to require, read anew for each request; ``None`` to require none. Without a
            token, only requests to this machine's own names are answered, because a web page could make its own host
            name point here (DNS rebinding).
        doorkeeper: Knows writers' tokens; ``None`` if there are no writers.
        engines: By the beginning of paths that only lakegate's own Spark may ask for, its token.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: Callable[[], str] | None,
        doorkeeper: Doorkeeper | None,
        engines: Mapping[str, str],
    ) -> None:
        self._app = app
        self._token = token
        self._doorkeeper = doorkeeper
        self._engines = engines

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
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip()
        for path, own in self._engines.items():
            if scope["path"].startswith(f"{path}/"):
                if scheme.lower() != "bearer" or not _tokens_match(given, own):
                    raise _unauthorized("The bearer token is wrong: it isn't that of lakegate's own Spark.")
                return
        if self._doorkeeper is not None and scheme.lower() == "bearer" and given.startswith(PREFIX):
            scope.setdefault("state", {})["opening"] = await run_sync(self._doorkeeper.admit, given)
            return
        if self._token is None:
            if not may_ask(headers.getlist("host"), headers.getlist("origin")):
                raise RefusedError(
                    HTTPStatus.FORBIDDEN,
                    "ForbiddenException",
                    "This server has no token, so it only answers requests to this machine's names, such as localhost, "
                    "and none of other servers' pages.",
                )
            return
        try:
            token = await run_sync(self._token)
        except LakegateError as error:
            LOG.warning("%s", error.message)
            raise unavailable("The server's token can't be read at the moment.") from error
        if scheme.lower() != "bearer" or not _tokens_match(given, token):
            raise _unauthorized("This catalog needs a bearer token." if not given else "The bearer token is wrong.")


def _unauthorized(message: str) -> RefusedError:
    headers = {"WWW-Authenticate": 'Bearer realm="lakegate"'}
    return RefusedError(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", message, headers)


def _tokens_match(given: str, token: str) -> bool:
    """Compare in constant time, which doesn't even reveal the token's length."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, token))
    return hmac.compare_digest(*digests)


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
    LOG.log(level, "%s %s %s", facts["method"], path, status, extra={"facts": facts}, exc_info=failure)
