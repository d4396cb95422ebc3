"""Ports for servers that must be told theirs before they listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_RANGE = (11_000, 32_000)
"""Below where Linux takes the port of whoever asks for any: until the server listens, which may take it seconds under
load, no client and no other server gets the port by chance."""
_CHOOSER = random.SystemRandom()


def free_port(*, together: int = 1, avoid: int | None = None) -> int:
    """Return a port that is free on the loopback interface, as are those after it, ``together`` in all."""
    while True:
        port = _CHOOSER.randrange(*_RANGE)
        if port != avoid and all(_is_free(one) for one in range(port, port + together)):
            return port


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as candidate:
        candidate.bind(("127.0.0.1", port))
        return True
    return False
