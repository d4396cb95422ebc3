"""A stand-in for AWS Secrets Manager: its JSON protocol, spoken on the loopback interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SecretsManager:
    """Holds secrets, and says how often it was asked.

    ``refusal`` makes it answer every request with that error: its status and its code.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.secrets: dict[str, str] = {}
        self.refusal: tuple[int, str] | None = None
        self.asked: list[str] = []

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, str]]:
        name = body["SecretId"]
        self.asked.append(name)
        if self.refusal is not None:
            status, code = self.refusal
            return status, {"__type": code, "message": "no"}
        if name not in self.secrets:
            return 400, {"__type": "ResourceNotFoundException", "message": "Secrets Manager can't find it."}
        return 200, {"Name": name, "SecretString": self.secrets[name]}


@contextmanager
def secrets_manager() -> Iterator[SecretsManager]:
    """Run one until the body ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["X-Amz-Target"] == "secretsmanager.GetSecretValue"
            status, answer = manager.answer(body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    manager = SecretsManager(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield manager
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
