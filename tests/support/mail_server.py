"""A mail server on loopback that keeps what it is given, for tests."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default


@dataclass
class MailServer:
    """Where it listens, the mails that arrived, the recipient that it doesn't know, and how many it greets together."""

    port: int
    mails: list[EmailMessage] = field(default_factory=list)
    unknown: str = "nobody@example.com"
    together: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """Run one until the body ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.state = MailServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.state
        finally:
            server.shutdown()
            thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    state: MailServer


class _Handler(socketserver.StreamRequestHandler):
    """SMTP as far as one mail needs it (RFC 5321)."""

    server: _Server

    def handle(self) -> None:
        with suppress(threading.BrokenBarrierError):
            self.server.state.together.wait()
        self._answer("220 ready")
        while line := self.rfile.readline():
            word = line[:4].upper().strip()
            if word == b"DATA":
                self._answer("354 go on")
                self.server.state.mails.append(message_from_bytes(self._data(), policy=default))
            if word == b"RCPT" and self.server.state.unknown in line.decode():
                self._answer("550 no such user")
                continue
            self._answer("221 bye" if word == b"QUIT" else "250 ok")
            if word == b"QUIT":
                return

    def _data(self) -> bytes:
        lines = iter(self.rfile.readline, b".\r\n")
        return b"".join(line.removeprefix(b".") for line in lines)

    def _answer(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")
