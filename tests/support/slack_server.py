"""A stand-in for Slack, which holds messages to Slack's limits, and for webhooks of others; real HTTP on loopback."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

TOKEN = "xoxb-1234-secret"
HOOK = "/services/T0000/B0000/verysecretpath"
Odd = Literal["429", "408", "500", "302", "cut", "hang", "drip"]

_LINK = re.compile(r"<https?://[^\s<>|]+\|[^<>|]+>")
_ENTITY = re.compile(r"&(?:amp|lt|gt);")


@dataclass
class Received:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.body)
        return told


@dataclass
class SlackServer:
    """What arrived, and how to answer the next requests: ``odd`` ones first, then as Slack does."""

    url: str
    received: list[Received] = field(default_factory=list)
    odd: deque[Odd] = field(default_factory=deque)
    retry_after: str = "0"
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def hook(self) -> str:
        return self.url + HOOK

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [one.json for one in self.received]


@contextmanager
def slack_server() -> Iterator[SlackServer]:
    """Run one until the body ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.state = SlackServer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server.state
        finally:
            server.state.over.set()
            server.shutdown()
            thread.join()


def problems(message: dict[str, Any]) -> list[str]:
    """Return what Slack would not take of a message, or would take for something else than text."""
    found = [] if 0 < _length(message.get("text", "")) <= 3000 else ["text"]
    found += [f"mrkdwn {message.get('text')}"] if not _is_text(message.get("text", "")) else []
    blocks = message.get("blocks", [])
    if not 0 < len(blocks) <= 50:
        found.append("number of blocks")
    for block in blocks:
        found += [f"{block.get('type')}: {problem}" for problem in _CHECKS.get(block.get("type"), _unknown)(block)]
    return found


def _unknown(_block: dict[str, Any]) -> list[str]:
    return ["unknown type"]


def _header(block: dict[str, Any]) -> list[str]:
    text = block["text"]
    good = text["type"] == "plain_text" and 0 < _length(text["text"]) <= 150 and not set("<>\n") & set(text["text"])
    return [] if good else ["text"]


def _section(block: dict[str, Any]) -> list[str]:
    fields = block.get("fields", [])
    found = [] if "text" in block or fields else ["neither text nor fields"]
    found += ["too many fields"] if len(fields) > 10 else []
    found += _mrkdwn(block["text"], 3000) if "text" in block else []
    return found + [problem for one in fields for problem in _mrkdwn(one, 2000)]


def _context(block: dict[str, Any]) -> list[str]:
    elements = block["elements"]
    return ["elements"] * (not 0 < len(elements) <= 10) + [p for one in elements for p in _mrkdwn(one, 3000)]


def _mrkdwn(text: dict[str, Any], most: int) -> list[str]:
    found = [] if 0 < _length(text["text"]) <= most else [f"{_length(text['text'])} characters"]
    found += [] if text["type"] == "mrkdwn" and text["verbatim"] is True else ["not verbatim"]
    return found + ([] if _is_text(text["text"]) else [f"mrkdwn {text['text']}"])


_CHECKS: dict[str | None, Callable[[dict[str, Any]], list[str]]] = {
    "header": _header,
    "section": _section,
    "context": _context,
}


def _is_text(text: str) -> bool:
    """Tell whether there is nothing in a text that Slack takes for a mention, or for an entity that is none."""
    rest = _LINK.sub("", text)
    return not set("<>") & set(rest) and "&" not in _ENTITY.sub("", rest)


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    state: SlackServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        state = self.server.state
        body = self.rfile.read(int(self.headers["Content-Length"]))
        received = Received(self.path, dict(self.headers.items()), body)
        if state.odd:
            self._answer_oddly(state.odd.popleft(), state)
            return
        state.received.append(received)
        if self.path == HOOK:
            wrong = problems(received.json)
            self._answer(400 if wrong else 200, "invalid_blocks" if wrong else "ok")
        elif self.path == "/api/chat.postMessage":
            self._answer(200, json.dumps(self._posted(received)), "application/json")
        else:
            self._answer(204, "")

    def _posted(self, received: Received) -> dict[str, Any]:
        if received.headers.get("Authorization") != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth"}
        if received.json["channel"] != "C42":
            return {"ok": False, "error": "channel_not_found"}
        if problems(received.json):
            return {"ok": False, "error": "invalid_blocks"}
        return {"ok": True, "ts": f"17000000.{len(self.server.state.received):06}"}

    def _answer_oddly(self, odd: Odd, state: SlackServer) -> None:
        if odd == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif odd == "hang":
            state.over.wait(60)
            self.close_connection = True
        elif odd == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not state.over.wait(0.05):
                self.wfile.write(b"x")
            self.close_connection = True
        elif odd == "302":
            self.send_response(302)
            self.send_header("Location", f"{state.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            headers = {"Retry-After": state.retry_after} if odd == "429" else {}
            self._answer(int(odd), "rate_limited" if odd == "429" else "<html>away</html>", **headers)

    def _answer(self, status: int, text: str, kind: str = "text/plain", **headers: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
