"""Runs the API: takes the port, serves until it is stopped, and lets requests under way end."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from lakegate.errors import AlreadyExistsError, ConfigurationError, InputError
from lakegate.model.secrets import is_loopback

_BACKLOG = 128
_LAST_REQUESTS_S = 10


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or address.
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
    """Make sure that other machines can't read without a token.

    Raises:
        ConfigurationError: When they could.
    """
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

    Raises:
        ConfigurationError: The certificate or its key can't be used.
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
