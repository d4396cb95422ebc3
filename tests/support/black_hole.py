"""A way to a server that can fall silent: connections stand, and nothing comes through, as when the machine is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_CHUNK = 65_536


@dataclass
class Way:
    """One that runs.

    Attributes:
        port: Where it listens.
        swallows_new: Whether connections that are made from now on are silent, too.
    """

    port: int
    swallows_new: bool = False
    _silent: set[int] = field(default_factory=set)
    _open: dict[int, tuple[socket.socket, socket.socket]] = field(default_factory=dict)

    @property
    def connections(self) -> int:
        """How many there have been."""
        return len(self._open)

    def fall_silent(self, *, for_good: bool) -> None:
        """Swallow what comes on the connections that there are, and on those to come unless a new server is there."""
        self._silent |= self._open.keys()
        self.swallows_new = for_good

    def carry(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(_CHUNK):
                if number not in self._silent:
                    sink.sendall(content)
        if number not in self._silent:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def serve(self, listener: socket.socket, target: int) -> None:
        with suppress(OSError):
            for number in range(1_000_000):
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", target))
                self._open[number] = (near, far)
                if self.swallows_new:
                    self._silent.add(number)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=(number, source, sink), daemon=True).start()

    def close(self) -> None:
        for pair in self._open.values():
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


@contextmanager
def way_to(target: int) -> Iterator[Way]:
    """Run one on the loopback interface until the body ends.

    Args:
        target: Port to pass on to.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        way = Way(listener.getsockname()[1])
        thread = threading.Thread(target=way.serve, args=(listener, target), daemon=True)
        thread.start()
        try:
            yield way
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            way.close()
            thread.join(10.0)
