"""Starts Streamlit's server for the dashboard."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web import bootstrap

from lakegate.dashboard.branches import list_branches
from lakegate.dashboard.overview import overview
from lakegate.dashboard.ui import session
from lakegate.dashboard.ui.access import Access, auth_secrets
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import LakegateError
from lakegate.listening import may_ask

_SCRIPT = Path(__file__).parents[1] / "script.py"
_SHUTDOWN_TIMEOUT_S = 2
_HEALTH = "/_stcore/health"
"""Where probes ask, by any name. The answer reveals nothing about the lake."""


def address_of(opened: socket.socket) -> str:
    """Return the URL at which a browser on this machine reaches a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it's compared, not listened on
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(shared: Shared, opened: socket.socket, *, when_ready: Callable[[], None] = lambda: None) -> None:
    """Serve the dashboard until SIGINT or SIGTERM, then wait for running actions. A second SIGINT stops the wait.

    Args:
        opened: The listening socket. It's closed at the end.
        when_ready: Called once the server answers.
    """

    @asynccontextmanager
    async def lifespan(_: st.App) -> AsyncIterator[None]:
        threading.Thread(target=_warm, args=(shared,), name="lakegate-warm", daemon=True).start()
        when_ready()
        yield

    bootstrap.load_config_options(dict(options(shared.access, opened)))
    own_pages = Middleware(OwnPagesMiddleware, url=shared.access.settings.url)
    app = st.App(_SCRIPT, secrets=auth_secrets(shared.access), lifespan=lifespan, middleware=[own_pages])
    config = uvicorn.Config(
        app, lifespan="on", access_log=False, log_config=None, timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S
    )
    session.share(shared)
    try:
        with shared.actions, suppress(KeyboardInterrupt):  # uvicorn has stopped and raises the signal again
            uvicorn.Server(config).run(sockets=[opened])
    finally:
        opened.close()
        session.share(None)


class OwnPagesMiddleware:
    """Refuses requests by other host names than the server's, and from other pages than its own.

    Args:
        url: The server's public URL; ``None`` if it has none and is reached by this machine's names.
    """

    def __init__(self, app: ASGIApp, url: str | None) -> None:
        self._app = app
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                # No other page may show ours in a frame and have its visitor's clicks.
                MutableHeaders(scope=message)["Content-Security-Policy"] = "frame-ancestors 'none'"
            await send(message)

        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if may_ask(headers.getlist("host"), headers.getlist("origin"), url=self._url):
            await self._app(scope, receive, unframed)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"].endswith(_HEALTH):
            await self._app(scope, receive, send)
        else:
            name = self._url or "this machine's names, such as localhost"
            await PlainTextResponse(f"This dashboard only answers its own pages, at {name}.\n", 403)(
                scope, receive, send
            )


def _warm(shared: Shared) -> None:
    """Read what the first visitor will need, and exempt all objects loaded by then from garbage collection.

    Streamlit runs a full garbage collection after each script run, which would take longer than the run itself.
    """
    with suppress(LakegateError):  # the pages themselves show what's wrong
        overview(shared.model)
        list_branches(shared.model)
    gc.freeze()


def options(access: Access, opened: socket.socket) -> Mapping[str, Any]:
    """Return Streamlit's options. They override the user's own from files and variables."""
    host, port = opened.getsockname()[:2]
    url = urlsplit(access.settings.url or "")
    return {
        "browser.gatherUsageStats": False,
        "browser.serverAddress": url.hostname or "localhost",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "client.allowedOrigins": [],
        "global.developmentMode": False,
        "logger.level": "error",
        "runner.magicEnabled": False,
        "server.address": host,
        "server.allowedHosts": [],  # OwnPagesMiddleware knows more names
        "server.baseUrlPath": url.path.strip("/"),
        "server.enableAgentApi": False,
        "server.enableCORS": True,
        "server.enableStaticServing": False,
        "server.enableXsrfProtection": True,
        "server.fileWatcherType": "none",
        "server.headless": True,
        "server.port": port,
        "server.runOnSave": False,
        "server.trustedUserHeaders": "{}",
        "theme.baseFontSize": 14,
        "theme.headingFontSizes": ["1.7rem", "1.3rem", "1.1rem", "1rem", "1rem", "1rem"],
        "theme.primaryColor": "#1f5fbf",
    }
