"""Servers for people and engines: the socket they listen on, and from whom they take requests.

A web page can make its own host name point to this machine (DNS rebinding), and can open WebSockets to any server that
its visitor reaches. So a server without a token checks which name the browser asked for, and which page asks.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from lakegate.errors import InputError, RetryableError
from lakegate.model.secrets import is_loopback

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?", re.IGNORECASE)
"""A ``Host`` header: an IPv6 address in brackets or a name, and perhaps a port."""
_BACKLOG = 128
_LAST_PORT = 65_535


def listen(host: str, port: int, *, command: str) -> socket.socket:
    """Return a socket that listens on ``host`` and ``port``. Its own name has the actual port.

    Args:
        host: A name or address of this machine.
        port: The port; 0 picks a free one.
        command: The command that listens, such as ``lakegate ui``, for hints.

    Raises:
        RetryableError: Another program has the port.
        InputError: This machine doesn't have the address, or this user may not use the port.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"Can't listen on '{host}': there's no such host.", hint=f"{command} --host 127.0.0.1", host=host
        ) from error
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        listening = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise RetryableError(
                f"Port {port} on {host} is in use by another program, perhaps another `{command}`.",
                hint=f"{command} --port {port + 1 if port < _LAST_PORT else 0}",
                host=host,
                port=port,
            ) from error
        is_port = error.errno == errno.EACCES
        raise InputError(
            f"This user may not listen on port {port} of {host}."
            if is_port
            else f"Can't listen on {host}, port {port}: {os.strerror(error.errno or 0)}.",
            hint=f"{command} --port 0" if is_port else f"{command} --host 127.0.0.1",
            host=host,
            port=port,
        ) from error
    # Connections inherit this, which asyncio doesn't set. Without it, a body waits 40 ms for the ACK of its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def may_ask(hosts: Collection[str], origins: Collection[str] = (), *, url: str | None = None) -> bool:
    """Return whether a server takes a request, by whom the request was meant for and which page sends it.

    Args:
        hosts: Its ``Host`` headers. There must be one.
        origins: Its ``Origin`` headers. Pages send one, which must be that of the server's own pages; programs none.
        url: The server's public URL. Default: every name of this machine.

    Example:
        >>> may_ask(["localhost:8484"], ["http://localhost:8484"]), may_ask(["localhost:8484"], ["http://localhost:80"])
        (True, False)
        >>> may_ask(["[::1]"]), may_ask(["[::1].example.com"]), may_ask([""])
        (True, False, False)
    """
    header = next(iter(hosts), "")
    match = _HOST.fullmatch(header)
    if len(hosts) != 1 or match is None:
        return False
    name = (match[1] or match[2]).lower()
    if not (is_loopback(name) if url is None else name == urlsplit(url).hostname):
        return False
    own = {_origin(f"http://{header}"), _origin(f"https://{header}")} if url is None else {_origin(url)}
    return all(_origin(origin) in own for origin in origins)


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL as browsers send them: in lower case, and without the scheme's own port."""
    scheme, _, rest = url.lower().partition("://")
    own_port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return f"{scheme}://{rest.partition('/')[0].removesuffix(own_port)}"
