"""A proxy that has logged people in: it passes on their name in a header, and drops what browsers send in its place."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MOST = 1 << 16


@contextmanager
def header_proxy(port: int, *, header: str, user: str) -> Iterator[str]:
    """Run one in front of a server on this machine; yields its address.

    Args:
        port: The server's port.
        header: The header that holds the name.
        user: The name of everyone who comes by.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, port, header, user), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def _serve(listening: socket.socket, port: int, header: str, user: str) -> None:
    while True:
        try:
            browser, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(browser, port, header, user), daemon=True).start()


def _pass_on(browser: socket.socket, port: int, header: str, user: str) -> None:
    with browser, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
        head = b""
        while b"\r\n\r\n" not in head:
            more = browser.recv(_MOST)
            if not more:
                return
            head += more
        head, _, rest = head.partition(b"\r\n\r\n")
        server.sendall(_named(head, header, user) + b"\r\n\r\n" + rest)
        threading.Thread(target=_copy, args=(browser, server), daemon=True).start()
        _copy(server, browser)


def _named(head: bytes, header: str, user: str) -> bytes:
    """Return a request's head with the name in it, for the one request of its connection."""
    first, *lines = head.split(b"\r\n")
    own = (header.lower().encode(), b"connection")
    upgrades = any(line.lower().startswith(b"upgrade:") for line in lines)
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in own]
    connection = b"Connection: Upgrade" if upgrades else b"Connection: close"
    return b"\r\n".join([first, *kept, f"{header}: {user}".encode(), connection])


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_MOST):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
