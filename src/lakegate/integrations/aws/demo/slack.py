"""A stand-in for Slack: a local incoming webhook that keeps what it receives."""

from __future__ import annotations

import html
import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MAX_BYTES = 1 << 20
_LINK = re.compile(r"<(?:[^<>|]+\|)?([^<>]+)>")
_WEIGHT = re.compile(r"(?<!\w)[*`]+|[*`]+(?!\w)")


class SlackStandIn:
    """The messages that were sent to the webhook.

    Attributes:
        url: The webhook's address, secret as with Slack's own.
        messages: The messages, oldest first.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.messages: list[Mapping[str, Any]] = []

    def about(self, text: str) -> Mapping[str, Any] | None:
        """Return the last message that contains ``text``, if there is one yet."""
        return next((one for one in reversed(self.messages) if text in json.dumps(one, ensure_ascii=False)), None)


@contextmanager
def slack_stand_in() -> Iterator[SlackStandIn]:
    """Serve until the body ends."""
    path = f"/services/{secrets.token_urlsafe(16)}"
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.path = path
        server.state = SlackStandIn(f"http://127.0.0.1:{server.server_address[1]}{path}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server.state
        finally:
            server.shutdown()
            thread.join()


def text_of(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a message's lines as people read them.

    Example:
        >>> text_of({"text": "x", "blocks": [{"type": "section", "text": {"text": "*2* rows &lt; 3"}}]})
        ('2 rows < 3',)
    """
    texts = [text for block in message.get("blocks", ()) for text in _texts(block)] or [str(message.get("text", ""))]
    return tuple(line for text in texts for line in _plain(text).splitlines() if line.strip())


def _texts(block: Mapping[str, Any]) -> list[str]:
    fields = [str(field.get("text", "")).replace("\n", ": ", 1) for field in block.get("fields", ())]
    parts = [block.get("text"), *block.get("elements", ())]
    return [*fields, *(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)]


def _plain(text: str) -> str:
    return html.unescape(_WEIGHT.sub("", _LINK.sub(r"\1", text)))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    path: str
    state: SlackStandIn


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != self.server.path or not length.isdigit() or int(length) > _MAX_BYTES:
            self._answer(404, "no_service")
            return
        try:
            message = json.loads(self.rfile.read(int(length)))
        except ValueError:
            self._answer(400, "invalid_payload")
            return
        self.server.state.messages.append(message)
        self._answer(200, "ok")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        """Print nothing."""
