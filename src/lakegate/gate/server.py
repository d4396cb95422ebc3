"""Where a server listens, and how it runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from lakegate.errors import ConfigurationError
from lakegate.listening import listen
from lakegate.model.secrets import is_loopback

_SHUTDOWN_TIMEOUT_S = 10
_PRIVATE = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with


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
        """The server's URL, for clients: on this machine's name if it listens on all its addresses."""
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        host = f"[{host}]" if ":" in host else host
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


def run(app: ASGIApp, listening: socket.socket, address: ListenAddress) -> None:
    """Serve until SIGINT or SIGTERM. Running requests get ten seconds to end.

    Args:
        listening: The socket; closed at the end.
    """
    config = _config(app, address)
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


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve on a free port of this machine while the body runs, in a thread; yield the URL."""
    listening = listen(_PRIVATE, 0, command="lakegate gate run")
    address = ListenAddress(_PRIVATE, listening.getsockname()[1])
    server = uvicorn.Server(_config(app, address))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="gate", daemon=True)
    with listening:  # connections that come before the thread runs wait
        thread.start()
        try:
            yield address.url
        finally:
            server.should_exit = True
            thread.join(_SHUTDOWN_TIMEOUT_S)


def _config(app: ASGIApp, address: ListenAddress) -> uvicorn.Config:
    return uvicorn.Config(
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
