"""The demo: starts and deploys everything, then uploads three files. A local webhook stands in for Slack."""

from __future__ import annotations

import html
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.components import local_stack
from lakegate.errors import RetryableError
from lakegate.integrations.aws.demo.cloud import (
    Cloud,
    DemoFile,
    DemoHome,
    OutcomeWaiter,
    Upload,
    deploy,
    is_deployed,
    make_files,
)
from lakegate.lake import connect
from lakegate.local.ministack import MiniStack, in_environment
from lakegate.local.stores import stores_of
from lakegate.model.tables import RowCount
from lakegate.ports import Narrator

if TYPE_CHECKING:
    from lakegate.lake import Lake

_WAIT_S = 600.0
_MAX_BYTES = 1 << 20
_LINK = re.compile(r"<(?:[^<>|]+\|)?([^<>]+)>")
_WEIGHT = re.compile(r"(?<!\w)[*`]+|[*`]+(?!\w)")


@dataclass(frozen=True, slots=True)
class Tour:
    """The result of the demo.

    Attributes:
        alert: The alert about the rejected file.
        rows: The number of rows in the table on ``main``, and its upper bound.
    """

    home: Path
    endpoint: str
    bucket: str
    log: Path
    outcomes: tuple[Upload, ...]
    alert: Mapping[str, Any]
    rows: RowCount


def play(
    folder: Path,
    table: str,
    checks: Sequence[str],
    narrator: Narrator,
    *,
    rows: int,
    generate: Callable[..., tuple[Path, ...]],
) -> Tour:
    """Start the servers, deploy the function, upload the files, and wait for their outcomes.

    Args:
        generate: Writes synthetic files: :func:`lakegate.sources.synthetic.generate`.
    """
    home = DemoHome(folder)
    ministack = MiniStack(home.path, narrator)
    endpoint = _started(ministack, home, narrator)
    with in_environment(ministack.environment), slack_stand_in() as slack:
        home.write(endpoint, table, checks)
        with _opened(home, slack, narrator) as (lake, cloud):
            waiter = OutcomeWaiter(lake, cloud, narrator, timeout_s=_WAIT_S)
            files = make_files(home.uploads, generate, rows=rows)
            outcomes = tuple(_send(file, table, cloud, waiter) for file in files)
            alert = _alert(outcomes, slack, waiter)
            found = lake.table(table)
            counted = (found.rows, found.rows_at_most)
            return Tour(home.path, endpoint, cloud.bucket, ministack.log, outcomes, alert, counted)


def _started(ministack: MiniStack, home: DemoHome, narrator: Narrator) -> str:
    home.require_ours()
    endpoint = ministack.start()
    with in_environment(ministack.environment):
        if not home.has_earlier_runs or is_deployed(narrator):
            return endpoint
        narrator.note("MiniStack was killed and lost its deployments. Starting over without tables.")
        local_stack(home.path, home.settings(os.environ), narrator).down()
    ministack.stop()
    home.clear()
    return ministack.start()


@contextmanager
def _opened(home: DemoHome, slack: SlackStandIn, narrator: Narrator) -> Iterator[tuple[Lake, Cloud]]:
    settings = home.settings(os.environ)
    stores = stores_of([settings.catalog.warehouse or ""], settings.storage)
    stack = local_stack(home.path, settings, narrator).up(stores)
    cloud = deploy(home, stack, slack.url, narrator)
    with connect(home.path, settings=settings, narrator=narrator) as lake:
        yield lake, cloud


def _send(file: DemoFile, table: str, cloud: Cloud, waiter: OutcomeWaiter) -> Upload:
    key = f"landing/{table.replace('.', '/')}/{file.path.name}"
    since = datetime.now(UTC)
    return waiter.await_outcome(file, table, key, cloud.upload(file.path, key), since)


def _alert(outcomes: Sequence[Upload], slack: SlackStandIn, waiter: OutcomeWaiter) -> Mapping[str, Any]:
    run_id = next(
        outcome.run.run_id for outcome in outcomes if outcome.outcome == "rejected" and outcome.run is not None
    )
    alert = waiter.wait("Waiting for the alert", lambda: slack.about(run_id))
    if alert is None:
        raise RetryableError(
            f"Run {run_id} was rejected, but no alert arrived.", hint=f"lakegate runs {run_id}", run_id=run_id
        )
    return alert


class SlackStandIn:
    """The messages that the webhook received.

    Attributes:
        url: The webhook's URL, a secret like Slack's own.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.messages: list[Mapping[str, Any]] = []

    def about(self, text: str) -> Mapping[str, Any] | None:
        """Return the last message that contains ``text``, if there is one yet."""
        return next((one for one in reversed(self.messages) if text in json.dumps(one, ensure_ascii=False)), None)


@contextmanager
def slack_stand_in() -> Iterator[SlackStandIn]:
    """Serve the webhook while the body runs."""
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
    """Return a message's lines as plain text.

    Example:
        >>> text_of({"text": "x", "blocks": [{"type": "section", "text": {"text": "*2* rows &lt; 3"}}]})
        ('2 rows < 3',)
    """
    texts = [text for block in message.get("blocks", ()) for text in _texts(block)] or [str(message.get("text", ""))]
    plain = (html.unescape(_WEIGHT.sub("", _LINK.sub(r"\1", text))) for text in texts)
    return tuple(line for text in plain for line in text.splitlines() if line.strip())


def _texts(block: Mapping[str, Any]) -> list[str]:
    fields = [str(field.get("text", "")).replace("\n", ": ", 1) for field in block.get("fields", ())]
    parts = [block.get("text"), *block.get("elements", ())]
    return [*fields, *(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)]


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

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
