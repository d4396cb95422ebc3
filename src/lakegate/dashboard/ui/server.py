"""Starts Streamlit's server for the dashboard."""

from __future__ import annotations

import errno
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
import uvicorn
from streamlit.web import bootstrap

from lakegate.dashboard.branches import list_branches
from lakegate.dashboard.overview import overview
from lakegate.dashboard.ui import session
from lakegate.dashboard.ui.access import Access, auth_secrets
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.model.secrets import is_loopback

_SCRIPT = Path(__file__).parents[1] / "script.py"
_SHUTDOWN_TIMEOUT_S = 2


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
        return socket.create_server(address, family=family, dualstack_ipv6=is_dual)
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
    app = st.App(_SCRIPT, secrets=auth_secrets(shared.access), lifespan=lifespan)
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
    # Another site's host name that points here (DNS rebinding) must not read anything.
    hosts = ["localhost", "127.0.0.1", "::1"] if is_loopback(host) else []
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
        "server.allowedHosts": [url.hostname] if url.hostname is not None else hosts,
        "server.baseUrlPath": url.path.strip("/"),
        "server.enableCORS": True,
        "server.enableStaticServing": False,
        "server.enableXsrfProtection": True,
        "server.fileWatcherType": "none",
        "server.headless": True,
        "server.port": port,
        "server.runOnSave": False,
        "theme.baseFontSize": 14,
        "theme.headingFontSizes": ["1.7rem", "1.3rem", "1.1rem", "1rem", "1rem", "1rem"],
        "theme.primaryColor": "#1f5fbf",
    }
