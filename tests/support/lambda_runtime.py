"""AWS Lambda's Runtime API, as far as AWS's own runtime client uses it, and a function that runs behind it.

See "Using the Lambda runtime API for custom runtimes" in AWS's documentation: the client asks for the next event, and
posts an answer or an error for it.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

HANDLER = "lakegate.integrations.aws_lambda.handler"
_API = "/2018-06-01/runtime/"
_WITHIN_S = 280.0


@dataclass(frozen=True)
class Call:
    """An event on its way to the function."""

    id: str
    event: Any
    timeout_s: float


@dataclass(frozen=True)
class Answer:
    """What the function gave back: a value, or an error as AWS sees it."""

    value: Any = None
    error: Mapping[str, Any] | None = None


class FunctionEndedError(Exception):
    """The process is gone without an answer."""


class RuntimeApi(ThreadingHTTPServer):
    """The API that one function's process talks to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.calls: queue.Queue[Call | None] = queue.Queue()
        self.answers: queue.Queue[tuple[str, Answer]] = queue.Queue()
        threading.Thread(target=self.serve_forever, name="runtime API", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: functions are killed in the middle of a request."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        api = cast("RuntimeApi", self.server)
        assert self.path == f"{_API}invocation/next"
        call = api.calls.get()
        if call is None:
            self.close_connection = True
            return
        body = json.dumps(call.event).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Lambda-Runtime-Aws-Request-Id", call.id)
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + call.timeout_s) * 1000)))
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:demo")
        self.send_header("Lambda-Runtime-Trace-Id", "Root=1-0-0")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        api = cast("RuntimeApi", self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
        words = self.path.removeprefix(_API).split("/")
        name = words[1] if words[0] == "invocation" else "init"
        api.answers.put((name, Answer(error=body) if words[-1] == "error" else Answer(value=body)))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class LambdaFunction:
    """A function: one process of AWS's runtime client, started at the first call and again after it has died.

    Args:
        variables: Its variables; ``LAKEGATE_*`` of our own environment are not passed on.
        folder: Where it runs, and where its log goes.
    """

    def __init__(self, variables: Mapping[str, str], folder: Path) -> None:
        self.variables = dict(variables)
        self._folder = folder
        self._api = RuntimeApi()
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.python: Sequence[str] = (sys.executable,)
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / "log"

    def invoke(self, event: Any, *, timeout_s: float = 120.0) -> Any:
        """Call the function, and return its answer.

        Raises:
            AssertionError: When it answered with an error.
            FunctionEndedError: When its process died.
        """
        answer = self.call(event, timeout_s=timeout_s)
        assert answer.error is None, answer.error
        return answer.value

    def call(self, event: Any, *, timeout_s: float = 120.0) -> Answer:
        """Call the function; its answer may be an error. It's told ``timeout_s``, but isn't stopped then."""
        return self.wait(self.start(event, timeout_s=timeout_s))

    def start(self, event: Any, *, timeout_s: float = 120.0) -> str:
        """Call the function, and return the id to :meth:`wait` for."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        call = Call(f"request-{next(self._numbers)}", event, timeout_s)
        self._api.calls.put(call)
        return call.id

    def wait(self, name: str) -> Answer:
        """Return the answer to a call."""
        assert self._process is not None
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            try:
                answered, answer = self._api.answers.get(timeout=0.1)
            except queue.Empty:
                if self._process.poll() is not None and self._api.answers.empty():
                    raise FunctionEndedError(f"exit code {self._process.returncode}: {self.log()[-2000:]}") from None
                continue
            assert answered in {name, "init"}
            return answer
        raise AssertionError(f"no answer to {name}: {self.log()[-2000:]}")

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        """Return lakegate's lines of the log."""
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    def memory_mb(self) -> float:
        """Return the most memory that its process has had so far, in MiB."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._api.calls.put(None)
        self._api.shutdown()
        self._api.server_close()

    def _start(self) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LAKEGATE_")}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.python, "-m", "awslambdaric", HANDLER],
                cwd=self._folder,
                env={
                    **kept,
                    "AWS_LAMBDA_RUNTIME_API": self._api.address,
                    "AWS_LAMBDA_FUNCTION_NAME": "demo",
                    "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
                    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
                    **self.variables,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
