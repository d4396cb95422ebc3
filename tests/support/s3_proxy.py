"""What stands between a program and its object store in tests: busy now and then, and cutting connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self

from support.loopback import loopback_client

Trouble = Literal["busy", "cut", "cut-body", "denied", "failing", "lost", "none", "twice"]
"""``lost``: the request is done, and its answer never comes. ``twice``: it's done twice; the second answer comes."""
_SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
)
_DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
_FAILING = b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>Please try again.</Message></Error>'
_REFUSALS: dict[Trouble, tuple[int, bytes]] = {
    "busy": (503, _SLOW_DOWN),
    "denied": (403, _DENIED),
    "failing": (500, _FAILING),
}
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host"}


class Proxy:
    """Passes requests on to ``target``, each only after what ``trouble`` says of its number (from 0) was done to it.

    Attributes:
        requests: Method and path of each request that came.
        before: Called with method and path before a request is passed on.
        instead: Called with method, path and body; may return status and body of an answer of its own.
    """

    def __init__(self, target: str, trouble: Callable[[int], Trouble] = lambda _: "none") -> None:
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.instead: Callable[[str, str, bytes], tuple[int, bytes] | None] = lambda _method, _path, _body: None
        self._target = target
        self._client = loopback_client()
        self._trouble = trouble
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def take(self, method: str, path: str) -> Trouble:
        with self._lock:
            self.requests.append((method, path))
            number = len(self.requests) - 1
        self.before(method, path)
        return self._trouble(number)

    def _handler(self) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - each trouble is one branch
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                trouble = proxy.take(self.command, self.path)
                own = _REFUSALS.get(trouble) or proxy.instead(self.command, self.path, body)
                if trouble == "cut":
                    self.close_connection = True
                elif own:
                    self._answer(own[0], {}, own[1])
                else:
                    # the host is signed, so it stays the one that the client asked for
                    kept = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                    url = proxy._target + self.path
                    if trouble == "twice":
                        proxy._client.request(self.command, url, headers=kept, content=body)
                    answer = proxy._client.request(self.command, url, headers=kept, content=body)
                    if trouble == "lost":
                        self.close_connection = True
                    else:
                        cut = trouble == "cut-body"
                        self._answer(answer.status_code, dict(answer.headers), answer.content, cut=cut)

            def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                length = headers.get("content-length", str(len(body))) if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body[: len(body) // 2] if cut else body)
                self.close_connection = cut

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
