"""``lakegate demo --aws``: everything from an upload to S3 to a published table and an alert, on one machine.

MiniStack stands in for AWS, and a local webhook for Slack.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import platform
import re
import secrets
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args
from urllib.parse import unquote_plus

from lakegate.components import local_stack
from lakegate.config import FILE_NAME, HOME_NAME, Settings, load_settings
from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.integrations.aws.clients import Clients, open_clients, translate_errors
from lakegate.integrations.aws.deployment import Deployment
from lakegate.integrations.aws.package import Architecture, FunctionPackage, build_package
from lakegate.lake import connect
from lakegate.local import StackState
from lakegate.local.ministack import REGION, MiniStack, in_environment
from lakegate.local.stores import stores_of
from lakegate.model.tables import RowCount
from lakegate.ports import Narrator
from lakegate.private_files import private_folder
from lakegate.progress import redact

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run

_WAIT_S = 600.0
_MAX_BYTES = 1 << 20
_LINK = re.compile(r"<(?:[^<>|]+\|)?([^<>]+)>")
_EMPHASIS = re.compile(r"(?<!\w)[*`]+|[*`]+(?!\w)")


@dataclass(frozen=True, slots=True)
class AwsDemo:
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


def run_demo(
    folder: Path,
    table: str,
    checks: Sequence[str],
    narrator: Narrator,
    *,
    rows: int,
    generate: Callable[..., tuple[Path, ...]],
) -> AwsDemo:
    """Start the servers, deploy the function, upload the files, and wait for their outcomes.

    Args:
        generate: Writes synthetic files: :func:`lakegate.sources.synthetic.generate`.
    """
    home = DemoHome(folder)
    ministack = MiniStack(home.path, narrator)
    endpoint = _start_ministack(ministack, home, narrator)
    with in_environment(ministack.environment), slack_stand_in() as slack:
        home.write(endpoint, table, checks)
        with _open_lake_and_cloud(home, slack, narrator) as (lake, cloud):
            waiter = OutcomeWaiter(lake, cloud, narrator, timeout_s=_WAIT_S)
            files = make_files(home.uploads, generate, rows=rows)
            outcomes = tuple(waiter.upload_and_wait(file, table) for file in files)
            alert = _await_alert(outcomes, slack, waiter)
            found = lake.table(table)
            counted = (found.rows, found.rows_at_most)
            return AwsDemo(home.path, endpoint, cloud.bucket, ministack.log, outcomes, alert, counted)


def _start_ministack(ministack: MiniStack, home: DemoHome, narrator: Narrator) -> str:
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
def _open_lake_and_cloud(home: DemoHome, slack: SlackStandIn, narrator: Narrator) -> Iterator[tuple[Lake, Cloud]]:
    settings = home.settings(os.environ)
    stores = stores_of([settings.catalog.warehouse or ""], settings.storage)
    stack = local_stack(home.path, settings, narrator).up(stores)
    cloud = deploy(home, stack, slack.url, narrator)
    with connect(home.path, settings=settings, narrator=narrator) as lake:
        yield lake, cloud


def _await_alert(outcomes: Sequence[Upload], slack: SlackStandIn, waiter: OutcomeWaiter) -> Mapping[str, Any]:
    run_id = next(
        outcome.run.run_id for outcome in outcomes if outcome.outcome == "rejected" and outcome.run is not None
    )
    alert = waiter.wait("Waiting for the alert", lambda: slack.about(run_id))
    if alert is None:
        raise RetryableError(
            f"Run {run_id} was rejected, but no alert arrived.", hint=f"lakegate runs {run_id}", run_id=run_id
        )
    return alert


class SlackStandIn(ThreadingHTTPServer):
    """A webhook on this machine, with the messages that it received. Its URL is a secret, like Slack's own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = f"/services/{secrets.token_urlsafe(16)}"
        self.url = f"http://127.0.0.1:{self.server_port}{self.path}"
        self.messages: list[Mapping[str, Any]] = []

    def about(self, text: str) -> Mapping[str, Any] | None:
        """Return the last message that contains ``text``, if there is one yet."""
        return next((one for one in reversed(self.messages) if text in json.dumps(one, ensure_ascii=False)), None)


@contextmanager
def slack_stand_in() -> Iterator[SlackStandIn]:
    """Serve the webhook while the body runs."""
    with SlackStandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server
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
    plain = (html.unescape(_EMPHASIS.sub("", _LINK.sub(r"\1", text))) for text in texts)
    return tuple(line for text in plain for line in text.splitlines() if line.strip())


def _texts(block: Mapping[str, Any]) -> list[str]:
    fields = [str(field.get("text", "")).replace("\n", ": ", 1) for field in block.get("fields", ())]
    parts = [block.get("text"), *block.get("elements", ())]
    return [*fields, *(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)]


class _Handler(BaseHTTPRequestHandler):
    server: SlackStandIn
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
        self.server.messages.append(message)
        self._answer(200, "ok")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


_VISIBILITY_TIMEOUT_S = 5
_MAX_MESSAGES = 10
_LAMBDA_LINES = ("START RequestId", "END RequestId", "REPORT RequestId")
BUCKET = "lakegate-demo"
WAREHOUSE = f"s3://{BUCKET}/warehouse"
_FIRST_LINE = "# Written by `lakegate demo --aws`"
_KEPT_VARIABLES = "LAKEGATE_LOCAL_"
# Without grouping, since repeated demos would otherwise only count the alert; with short retries to save minutes.
_FAST_SETTINGS = '[notify]\ngroup = "0s"\n\n[function]\nretry_s = 3\n'
_HINT = "Choose another folder: lakegate demo --aws --dir FOLDER"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter queue.

    Attributes:
        key: The object that it announces.
        event: What happened to the object.
    """

    key: str
    event: str
    received: int
    queue: str


class Cloud:
    """The deployed function's bucket, queues and log, on AWS or MiniStack."""

    def __init__(self, outputs: Mapping[str, str], clients: Clients) -> None:
        self.bucket = outputs["Bucket"]
        self._dead_letters = outputs["DeadLettersUrl"]
        self._log_group = outputs["LogGroup"]
        self._clients = clients

    def upload(self, path: Path, key: str) -> str:
        """Upload a file to the bucket and return its URI."""
        self._clients.s3.upload_file(str(path), self.bucket, key)
        return f"s3://{self.bucket}/{key}"

    def dead_letter(self, key: str) -> DeadLetter | None:
        """Return an object's dead letter, if there is one yet. It stays in its queue.

        Each call counts as a receive, so only the first call that finds the letter knows how often the function
        received it.
        """
        answer = self._clients.sqs.receive_message(
            QueueUrl=self._dead_letters,
            MaxNumberOfMessages=_MAX_MESSAGES,
            VisibilityTimeout=_VISIBILITY_TIMEOUT_S,
            AttributeNames=["ApproximateReceiveCount"],
        )
        for message in answer.get("Messages", ()):
            for record in json.loads(message["Body"]).get("Records", ()):
                if unquote_plus(record["s3"]["object"]["key"]) == key:
                    times = int(message["Attributes"]["ApproximateReceiveCount"])
                    return DeadLetter(key, record["eventName"], times - 1, self._dead_letters)
        return None

    def log_tail(self, lines: int) -> Sequence[str]:
        """Return the last lines of the function's log, with secrets removed."""
        with translate_errors("reading the function's log"):
            pages = self._clients.logs.get_paginator("filter_log_events").paginate(logGroupName=self._log_group)
            texts = [line for page in pages for event in page["events"] for line in event["message"].splitlines()]
        messages = (text for text in texts if text.strip() and not text.startswith(_LAMBDA_LINES))
        return [redact(text) for text in deque(messages, maxlen=lines)]


_DEPLOYMENT_NAME = "demo"
_PARAMETERS = {
    "BucketName": BUCKET,
    "FunctionTimeout": "300",
    "BatchWindow": "1",
    "BatchSize": "10",
    "MaximumConcurrency": "2",
    "MaxReceiveCount": "3",
}
_ARCHITECTURES: dict[str, Architecture] = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
_DEPLOY_POLL_S = 0.3


def deploy(home: DemoHome, stack: StackState, webhook: str, narrator: Narrator) -> Cloud:
    """Build the function for this machine and deploy it."""
    with narrator.step("Building the function"):
        package = build_package(home.function, _package_to_build(home))
    clients = open_clients()
    given = {
        **_PARAMETERS,
        "CatalogUri": stack.nessie_uri,
        "SparkUrl": f"sc://localhost:{stack.spark.port}",
        "SparkTokenArn": _secret(clients, "spark", stack.spark.token or ""),
        "SlackSecretArn": _secret(clients, "slack", webhook),
        "JournalUrl": home.journal_url,
    }
    return Cloud(
        Deployment(_DEPLOYMENT_NAME, clients, narrator, poll_s=_DEPLOY_POLL_S).deploy(given, package).outputs, clients
    )


def is_deployed(narrator: Narrator) -> bool:
    """Return whether the function is deployed, in any state."""
    return Deployment(_DEPLOYMENT_NAME, open_clients(), narrator).survey().state is not None


def _package_to_build(home: DemoHome) -> FunctionPackage:
    architecture = _ARCHITECTURES.get(platform.machine().lower())
    if sys.platform != "linux" or architecture is None:
        raise ConfigurationError(
            f"The function needs Linux on {' or '.join(get_args(Architecture))}, but this machine runs "
            f"{platform.system()} on {platform.machine()}.",
            hint="Run it on a Linux machine, or deploy to AWS: lakegate aws deploy --help",
        )
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"  # MiniStack runs functions with its own Python
    return FunctionPackage(python=python, architecture=architecture, settings=home.function_settings)


def _secret(clients: Clients, kind: str, value: str) -> str:
    """Return a secret's ARN, creating it if needed. Each value is its own secret, so functions never use an old one."""
    manager: Any = clients.session.client("secretsmanager")
    name = f"lakegate-{_DEPLOYMENT_NAME}/{kind}-{hashlib.sha256(value.encode()).hexdigest()[:16]}"
    try:
        return str(manager.create_secret(Name=name, SecretString=value)["ARN"])
    except manager.exceptions.ResourceExistsException:
        return str(manager.describe_secret(SecretId=name)["ARN"])


_T = TypeVar("_T")
_POLL_S = 0.5
_LOG_LINES = 12
_CLOCK_SKEW_S = 5.0
_ENDED: dict[str, Outcome] = {"published": "published", "rejected": "rejected"}


@dataclass(frozen=True, slots=True)
class Upload:
    """The outcome of an uploaded file.

    Attributes:
        letter: Its message in the dead-letter queue, if there is one.
    """

    file: DemoFile
    uri: str
    outcome: Outcome
    run: Run | None
    letter: DeadLetter | None
    seconds: float


class OutcomeWaiter:
    """Waits for the outcomes of files."""

    def __init__(self, lake: Lake, cloud: Cloud, narrator: Narrator, *, timeout_s: float) -> None:
        self._lake = lake
        self._cloud = cloud
        self._narrator = narrator
        self._timeout_s = timeout_s

    def upload_and_wait(self, file: DemoFile, table: str) -> Upload:
        """Upload a file and wait for its outcome.

        Raises:
            RetryableError: If it has no outcome in time, or not the expected one. The message has the log's end.
        """
        key = f"landing/{table.replace('.', '/')}/{file.path.name}"
        since, began = datetime.now(UTC), time.monotonic()
        uri = self._cloud.upload(file.path, key)

        def look() -> Upload | None:
            letter = self._cloud.dead_letter(key)
            run = self._run(table, uri, since)
            outcome = "dead-lettered" if letter else _ENDED.get(run.status) if run else None
            return outcome and Upload(file, uri, outcome, run, letter, time.monotonic() - began)

        found = self.wait(f"{file.kind} file: waiting until it's {file.expected}", look)
        if found is None:
            raise self._error_with_log(f"{uri} wasn't {file.expected} within {self._timeout_s:g} s.")
        if found.outcome != file.expected:
            raise self._error_with_log(f"{uri} was {found.outcome} but should have been {file.expected}.")
        return found

    def wait(self, what: str, look: Callable[[], _T | None]) -> _T | None:
        """Call ``look`` until it returns a result, and return that; ``None`` after a timeout."""
        deadline = time.monotonic() + self._timeout_s
        with self._narrator.step(what[:1].upper() + what[1:]):
            while True:
                found = look()
                if found is not None or time.monotonic() > deadline:
                    return found
                time.sleep(_POLL_S)

    def _run(self, table: str, uri: str, since: datetime) -> Run | None:
        runs = self._lake.runs(table=table, since=since - timedelta(seconds=_CLOCK_SKEW_S))
        return next((run for run in runs if run.request is not None and uri in run.request.batch.uris), None)

    def _error_with_log(self, message: str) -> RetryableError:
        try:
            log = self._cloud.log_tail(_LOG_LINES)
        except LakegateError as error:
            log = [error.message]
        log_text = "\n".join(f"  {line}" for line in log) or "  (nothing)"
        return RetryableError(
            f"{message} The function's log ends:\n{log_text}",
            hint="Read the log above, then try again: lakegate demo --aws",
        )


class DemoHome:
    """The demo's folder, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uploads = self.path / "uploads"
        self.function = self.path / HOME_NAME / "function"

    @property
    def journal_url(self) -> str:
        """The journal that the function and the command line share: a file on this machine."""
        return f"sqlite:///{self.path / HOME_NAME / 'journal.db'}"

    @property
    def function_settings(self) -> Path:
        """Path of the function's ``lakegate.toml``. It contains no addresses, so it's always the same."""
        return self.function / FILE_NAME

    def write(self, endpoint: str, table: str, checks: Sequence[str]) -> None:
        """Create the folder and its settings."""
        settings = self.path / FILE_NAME
        self.require_ours()
        try:
            for folder in (self.uploads, self.function):
                private_folder(folder)
            about_table = f"[tables.{json.dumps(table)}]\nchecks = {json.dumps(list(checks))}\n"
            settings.write_text(
                f"{_FIRST_LINE}, which overwrites it.\n\n{_store_settings(endpoint)}\n{about_table}", encoding="utf-8"
            )
            self.function_settings.write_text(
                f"{_FIRST_LINE}, which overwrites it.\n\n{_FAST_SETTINGS}\n{about_table}", encoding="utf-8"
            )
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def has_earlier_runs(self) -> bool:
        """Whether an earlier demo left runs."""
        return (self.path / HOME_NAME / "journal.db").exists()

    def require_ours(self) -> None:
        """Raise an error if the folder is the user's own project."""
        settings = self.path / FILE_NAME
        try:
            known = settings.read_text(encoding="utf-8", errors="replace") if settings.exists() else None
        except OSError as error:
            raise self._unusable(error) from error
        if not (known or _FIRST_LINE).startswith(_FIRST_LINE) or (known is None and self.has_earlier_runs):
            raise ConfigurationError(
                f"{self.path} is your own project; the demo would overwrite it.", hint=_HINT, folder=str(self.path)
            )

    def clear(self) -> None:
        """Delete everything that earlier demos left. None may be running."""
        self.require_ours()
        try:
            shutil.rmtree(self.path / HOME_NAME)
        except OSError as error:
            raise self._unusable(error) from error

    def settings(self, variables: Mapping[str, str]) -> Settings:
        """Return the settings. Only variables for the local stack apply."""
        return load_settings(self.path, env={k: v for k, v in variables.items() if k.startswith(_KEPT_VARIABLES)})

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"Can't use {error.filename or self.path}: {error.strerror or error}.", hint=_HINT)


def _store_settings(endpoint: str) -> str:
    return f"""\
[catalog]
warehouse = "{WAREHOUSE}"

[s3]
endpoint = "{endpoint}"
region = "{REGION}"
path_style = true
"""


Kind = Literal["clean", "nulls", "truncated"]
Outcome = Literal["published", "rejected", "dead-lettered"]

NULL_COLUMN = "passenger_count"
_NULL_RATE = 0.01
_KEPT_SHARE = 0.6
_SEEDS = 2**31 - 3


@dataclass(frozen=True, slots=True)
class DemoFile:
    """A file and its expected outcome."""

    kind: Kind
    path: Path
    about: str
    expected: Outcome


def make_files(folder: Path, generate: Callable[..., tuple[Path, ...]], *, rows: int) -> tuple[DemoFile, ...]:
    """Write three new files, and return them in upload order."""
    seed = secrets.randbelow(_SEEDS)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"

    def one(kind: Kind, number: int, **options: Any) -> Path:
        (made,) = generate(folder / kind, files=1, rows=rows, seed=seed + number, overwrite=True, **options)
        named = made.replace(folder / f"{stamp}-{kind}.parquet")
        made.parent.rmdir()
        return named

    clean = one("clean", 0)
    nulls = one("nulls", 1, null_rate=_NULL_RATE, null_columns=(NULL_COLUMN,))
    truncated = one("truncated", 2)
    whole = truncated.read_bytes()
    truncated.write_bytes(whole[: int(len(whole) * _KEPT_SHARE)])
    return (
        DemoFile("clean", clean, f"{rows:,} good rows", "published"),
        DemoFile("nulls", nulls, f"NULLs in {NULL_COLUMN}", "rejected"),
        DemoFile("truncated", truncated, f"its last {1 - _KEPT_SHARE:.0%} are missing", "dead-lettered"),
    )
