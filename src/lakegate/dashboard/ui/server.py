"""The dashboard's server: Streamlit on uvicorn, and the route ``/metrics``."""

from __future__ import annotations

import errno
import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import streamlit as st
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.web import bootstrap

from lakegate.dashboard.ui import session
from lakegate.dashboard.ui.access import Access, OnlyTrustedProxies, auth_secrets
from lakegate.dashboard.ui.pages import home
from lakegate.dashboard.ui.session import Actions, Shared
from lakegate.dashboard.ui.shell import documents, theme_options
from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.model.secrets import is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SCRIPT = Path(__file__).parents[1] / "script.py"
_BACKLOG = 128
_SHUTDOWN_TIMEOUT_S = 2
_ACTION_POLL_S = 0.2
_RETRY_RERUN_S = 0.005
# Vega generates code to draw charts, and Streamlit loads components from blobs. Both come from this server.
_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'unsafe-inline' 'unsafe-eval' blob: data:",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' ws: wss: data: blob:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "frame-ancestors": "'none'",
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` and ``port``; port 0 picks a free one.

    Raises:
        RetryableError: Another program has the port.
        ConfigurationError: ``host`` isn't an address of this machine, or this user may not use the port.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no host can have this name"
        raise ConfigurationError(
            f"Can't listen on '{host}': {reason}.", hint="lakegate ui --host 127.0.0.1", host=host
        ) from error
    family, *_, address = found[0]
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except PermissionError as error:
        raise ConfigurationError(
            f"This user may not listen on port {port} of {host}.", hint="lakegate ui --port 8484", port=port
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RetryableError(
                f"Port {port} on {host} is in use by another program, perhaps another dashboard.",
                hint=f"lakegate ui --port {port + 1 if port < 65_535 else 8484}",  # 65535 is the last port
                port=port,
            ) from error
        raise ConfigurationError(
            f"Can't listen on {host}:{port}: {os.strerror(error.errno or 0)}.",
            hint="lakegate ui --host 127.0.0.1",
            host=host,
        ) from error


def address_of(opened: socket.socket) -> str:
    """Return the URL at which a browser on this machine reaches a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it's compared, not listened on
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(
    shared: Shared,
    opened: socket.socket,
    *,
    when_ready: Callable[[], None] = lambda: None,
    when_waiting: Callable[[Sequence[str]], None] = lambda _: None,
) -> None:
    """Serve the dashboard until SIGINT or SIGTERM, then wait for running actions. A second SIGINT stops the wait.

    Args:
        opened: The listening socket. It's closed at the end.
        when_ready: Called once the server answers.
        when_waiting: Called with the running actions, if there are any when the signal comes.
    """
    app = make_app(shared, opened)
    config = uvicorn.Config(
        app,
        lifespan="on",
        # Trust depends on the peer's own address, never on a header that claims another.
        proxy_headers=False,
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
    )
    try:
        DashboardServer(config, shared.actions, when_ready, when_waiting).run(sockets=[opened])
    except KeyboardInterrupt:
        pass  # uvicorn has stopped and raises the signal again
    finally:
        opened.close()
        session.share(None)


def make_app(shared: Shared, opened: socket.socket) -> ASGIApp:
    """Return the dashboard as an ASGI app, with Streamlit set up for it."""
    deliver_messages_before_rerun()
    secrets = auth_secrets(shared.access)
    bootstrap.load_config_options(dict(options(shared.access, opened)))
    session.share(shared)
    middleware = [Middleware(_Headers)]
    settings = shared.access.settings
    if shared.access.login == "proxy":
        middleware.append(
            Middleware(OnlyTrustedProxies, header=settings.user_header or "", proxies=settings.trusted_proxies)
        )
    routes = [*metrics_routes(shared), *documents(shared.access, _hosts(shared.access, opened))]
    return st.App(_SCRIPT, secrets=secrets, middleware=middleware, routes=routes)


def deliver_messages_before_rerun() -> None:
    """Have Streamlit handle all messages of a script run before it starts another run of the same window.

    A run ends in its own thread, and the server's event loop learns of it a moment later. If a timer's rerun request
    arrives in between, Streamlit starts a run at once and drops the remaining messages of the previous one: a click,
    and nothing happens. A busy machine makes this more likely. Only fragment reruns meet a run that is ending; other
    reruns stop it and redraw the whole page.
    """
    begin = getattr(AppSession, "_create_scriptrunner", None)
    if begin is None or begin.__module__ == __name__:
        return

    def begin_after(self: AppSession, wanted: Any) -> None:
        ending = self._scriptrunner
        if ending is None:
            if self._state is not AppSessionState.SHUTDOWN_REQUESTED:
                begin(self, wanted)
        elif not ending.request_rerun(wanted):
            self._event_loop.call_later(_RETRY_RERUN_S, begin_after, self, wanted)

    AppSession._create_scriptrunner = begin_after  # type: ignore[method-assign,assignment]  # noqa: SLF001


def options(access: Access, opened: socket.socket) -> Mapping[str, Any]:
    """Return Streamlit's options. They override the user's own from files and variables."""
    host, port = opened.getsockname()[:2]
    known = urlsplit(access.settings.url or "")
    return {
        **theme_options(),
        "browser.gatherUsageStats": False,
        "browser.serverAddress": known.hostname or "localhost",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "minimal",
        "client.allowedOrigins": [],
        "global.developmentMode": False,
        "logger.level": "error",
        "magic.displayRootDocString": False,
        "runner.magicEnabled": False,
        "server.address": host,
        "server.allowedHosts": _hosts(access, opened),
        "server.baseUrlPath": known.path.strip("/"),
        "server.enableCORS": True,
        "server.enableStaticServing": False,
        "server.enableXsrfProtection": True,
        "server.fileWatcherType": "none",
        "server.headless": True,
        "server.maxUploadSize": 1,
        "server.port": port,
        "server.runOnSave": False,
        "server.trustedUserHeaders": {access.settings.user_header: "user"} if access.login == "proxy" else {},
    }


def _hosts(access: Access, opened: socket.socket) -> list[str]:
    """Return the host names that the server answers to; empty for any."""
    known = urlsplit(access.settings.url or "")
    if known.hostname is not None:
        return [known.hostname]
    # Another site's host name that points here (DNS rebinding) must not read anything.
    return ["localhost", "127.0.0.1", "::1"] if is_loopback(opened.getsockname()[0]) else []


def _warm() -> None:
    """Read what the first visitor will need, and exempt all objects loaded by then from garbage collection.

    Streamlit runs a full garbage collection after each script run, which would take longer than the run itself.
    """
    with suppress(Exception):  # the page itself shows what's wrong
        home.prerendered()
    gc.freeze()


class DashboardServer(uvicorn.Server):
    """The web server. It ends once the actions that users began have ended."""

    def __init__(
        self,
        config: uvicorn.Config,
        actions: Actions,
        when_ready: Callable[[], None],
        when_waiting: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(config)
        self._actions = actions
        self._when_ready = when_ready
        self._when_waiting = when_waiting

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server and wait for running actions."""
        # Streamlit closes connections that uvicorn has already closed, which uvicorn would log.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)
        # Actions need the lake, which is closed after this.
        if left := self._actions.under_way():
            self._when_waiting([f"{work.action} {work.about}" for work in left])
        while left and not self.force_exit:
            await run_in_threadpool(left[0].ended, _ACTION_POLL_S)
            left = self._actions.under_way()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server and report it."""
        await super().startup(sockets)
        if not self.should_exit:
            threading.Thread(target=_warm, name="lakegate-warm", daemon=True).start()
            self._when_ready()


class _Headers:
    """ASGI middleware: browsers load nothing from elsewhere, and no other site may frame the dashboard."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, answer if scope["type"] == "http" else send)


def metrics_routes(shared: Shared) -> list[Route]:
    """Return the route ``/metrics``. With OpenID Connect there is none, because a scraper can't log in."""
    access = shared.access

    async def metrics(request: Request) -> PlainTextResponse:
        # Another site's host name that points here (DNS rebinding) could read the tables' names.
        if access.login == "none" and not is_loopback(request.url.hostname or ""):
            return PlainTextResponse("Request /metrics from 127.0.0.1.\n", status_code=403)
        name = request.headers.get(access.settings.user_header or "")
        if access.login == "proxy" and not access.visitor({"user": name}).may_see:
            return PlainTextResponse("You don't have access to this.\n", status_code=403)
        try:
            from lakegate.telemetry.prometheus import CONTENT_TYPE, text
        except ModuleNotFoundError:
            return PlainTextResponse("Metrics need: pip install 'lakegate[metrics]'\n", status_code=501)
        try:
            samples = await run_in_threadpool(shared.lake.metrics)
        except LakegateError as error:
            return PlainTextResponse(f"{error.message}\n", status_code=503)
        return PlainTextResponse(text(samples), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    return [] if access.login == "oidc" else [Route("/metrics", metrics, methods=["GET"])]
