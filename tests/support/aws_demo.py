"""``make demo-aws``: from an upload to S3 to a published table, an alert and a dead letter; no account and no Docker.

MiniStack stands in for AWS, and a webhook on this machine for Slack. What is deployed is ``deploy/aws/template.yaml``;
only the function's image is replaced by a zip that loads lakegate from this checkout, and waits are shorter.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import boto3
import yaml

from lakegate.components import local_stack
from lakegate.config import load_settings
from lakegate.lake import Lake, connect
from lakegate.progress import SilentNarrator
from lakegate.sources.synthetic import generate
from support.ministack import REGION, MiniStack, ministack

TEMPLATE = Path(__file__).parents[2] / "deploy" / "aws" / "template.yaml"
STACK = "lakegate-demo"
TABLE = "demo.trips"
CHECKS = ("not_null(passenger_count)", "in_range(trip_distance, 0, 200)", "unique(trip_id)", "row_count(min=1)")
LAKE_BUCKET = "lakegate-demo-lake"
_CODE_BUCKET, _CODE_KEY = "lakegate-demo-code", "function.zip"
_WITHIN_S = 180.0
_T = TypeVar("_T")
_FUNCTION = """\
import sys
sys.path[:0] = {path!r}
from lakegate.integrations.aws_lambda import handler
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """What became of the files.

    Attributes:
        published: The run of the clean file.
        rejected: The run of the file with NULLs.
        dead_letter: The key of the damaged file, from the dead-letter queue.
        alerts: What Slack was told, as JSON.
        rows: The table's rows on ``main``.
    """

    published: str
    rejected: str
    dead_letter: str
    alerts: tuple[str, ...]
    rows: int | None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Reads a template's short forms, ``!Ref x``, as the long ones."""


def _long_form(loader: Any, suffix: str, node: Any) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        value = value.split(".", 1) if suffix == "GetAtt" else value
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _long_form)


def template() -> dict[str, Any]:
    """Return the template, with intrinsic functions in their long forms."""
    return cast("dict[str, Any]", yaml.load(TEMPLATE.read_text(encoding="utf-8"), _Loader))  # noqa: S506 - a SafeLoader


def run_demo(folder: Path, *, rows: int, tell: Callable[[str], None] = lambda _: None) -> Demo:
    """Deploy to MiniStack, upload three files, and wait for what becomes of them."""
    with ministack() as cloud, patch.dict(os.environ, cloud.environment), _slack() as (webhook, messages):
        home = folder / "lake"
        home.mkdir()
        (home / "lakegate.toml").write_text(
            f'[catalog]\nwarehouse = "s3://{LAKE_BUCKET}/warehouse"\n\n[s3]\nendpoint = "{cloud.endpoint}"\n'
            f'region = "{REGION}"\npath_style = true\n\n{_table_settings()}'
        )
        settings = load_settings(home)
        stack = local_stack(home, settings, SilentNarrator())
        try:
            tell("Starting Nessie and Spark")
            servers = stack.up()
            tell("Deploying deploy/aws/template.yaml to MiniStack")
            outputs = _deploy(
                {
                    "LakeBucket": LAKE_BUCKET,
                    "CatalogUri": servers.nessie_uri,
                    "SparkUrl": f"sc://localhost:{servers.spark.port}",
                    "SparkTokenArn": _secret("spark", servers.spark.token or ""),
                    "SlackSecretArn": _secret("slack", webhook),
                    "JournalUrl": f"sqlite:///{home / '.lakegate' / 'journal.db'}",
                }
            )
            with connect(home, settings=settings, narrator=SilentNarrator()) as lake:
                return _Play(lake, cloud, outputs, messages, tell).play(folder, rows)
        finally:
            stack.down()


class _Play:
    def __init__(
        self,
        lake: Lake,
        cloud: MiniStack,
        outputs: Mapping[str, str],
        messages: list[str],
        tell: Callable[[str], None],
    ) -> None:
        self._lake = lake
        self._log = cloud.log
        self._landing = outputs["Landing"].removeprefix("s3://")
        self._dead_letters = outputs["DeadLettersUrl"]
        self._messages = messages
        self._tell = tell

    def play(self, folder: Path, rows: int) -> Demo:
        clean, nulls, damaged = _files(folder / "files", rows)
        self._upload(clean)
        published = self._wait("a clean file is published", lambda: self._run("published"))
        self._upload(nulls)
        rejected = self._wait("a file with NULLs is rejected", lambda: self._run("rejected"))
        self._wait("Slack is told", lambda: any(rejected in message for message in self._messages) or None)
        self._upload(damaged)
        letter = self._wait("a damaged file is given up", self._dead_letter)
        return Demo(published, rejected, letter, tuple(self._messages), self._lake.table(TABLE).rows)

    def _upload(self, file: Path) -> None:
        bucket, _, prefix = self._landing.partition("/")
        key = f"{prefix}{TABLE.replace('.', '/')}/{file.name}"
        self._tell(f"Uploading s3://{bucket}/{key}")
        boto3.client("s3").upload_file(str(file), bucket, key)

    def _run(self, status: str) -> str | None:
        return next((run.run_id for run in self._lake.runs(table=TABLE) if run.status == status), None)

    def _dead_letter(self) -> str | None:
        answer = boto3.client("sqs").receive_message(QueueUrl=self._dead_letters)
        bodies = [json.loads(message["Body"]) for message in answer.get("Messages", ())]
        return bodies[0]["detail"]["object"]["key"] if bodies else None

    def _wait(self, what: str, look: Callable[[], _T | None]) -> _T:
        self._tell(f"Waiting until {what}")
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            if (found := look()) is not None:
                return found
            time.sleep(0.5)
        raise RuntimeError(f"It took longer than {_WITHIN_S:g} s until {what}:\n{self._log.read_text()[-4000:]}")


def _deploy(parameters: Mapping[str, str]) -> dict[str, str]:
    made = template()
    function, queue = (made["Resources"][name]["Properties"] for name in ("Function", "Queue"))
    del function["PackageType"]
    function |= {
        "Handler": "function.handler",
        "Runtime": f"python{sys.version_info[0]}.{sys.version_info[1]}",
        "CodeUri": f"s3://{_CODE_BUCKET}/{_CODE_KEY}",
    }
    # A parameter's number is text to MiniStack, which then can't compare it.
    function["Events"]["Landed"]["Properties"] |= {
        "MaximumBatchingWindowInSeconds": 1,
        "ScalingConfig": {"MaximumConcurrency": 2},
    }
    queue["RedrivePolicy"]["maxReceiveCount"] = 3
    s3, stacks = boto3.client("s3"), boto3.client("cloudformation")
    s3.create_bucket(Bucket=_CODE_BUCKET)
    s3.put_object(Bucket=_CODE_BUCKET, Key=_CODE_KEY, Body=_function())
    stacks.create_stack(
        StackName=STACK,
        TemplateBody=json.dumps(made),
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
    )
    stacks.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    (stack,) = stacks.describe_stacks(StackName=STACK)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _function() -> bytes:
    """Return a zip whose handler loads lakegate from where this process has it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("function.py", _FUNCTION.format(path=[path for path in sys.path if path]))
        archive.writestr("lakegate.toml", f"[function]\nretry_s = 3\n\n{_table_settings()}")
    return packed.getvalue()


def _table_settings() -> str:
    return f'[tables."{TABLE}"]\nchecks = {json.dumps(list(CHECKS))}\n'


def _secret(name: str, value: str) -> str:
    manager: Any = boto3.client("secretsmanager")
    return str(manager.create_secret(Name=name, SecretString=value)["ARN"])


def _files(folder: Path, rows: int) -> tuple[Path, Path, Path]:
    def one(name: str, seed: int, **options: Any) -> Path:
        (made,) = generate(folder / name, files=1, rows=rows, seed=seed, **options)
        return made.rename(folder / f"{name}.parquet")

    clean = one("clean", 1)
    nulls = one("nulls", 2, null_rate=0.01, null_columns=("passenger_count",))
    damaged = one("damaged", 3)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    return clean, nulls, damaged


@contextmanager
def _slack() -> Iterator[tuple[str, list[str]]]:
    """Yield a webhook's URL, and the messages that it gets."""
    messages: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/services/T/B/x", messages
        server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="From an upload to S3 to a published table, with MiniStack as AWS.")
    parser.add_argument("--rows", type=int, default=10_000, help="rows in each file")
    rows = parser.parse_args().rows
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {line}", flush=True)  # noqa: T201

    with tempfile.TemporaryDirectory(prefix="lakegate-demo-aws-") as folder:
        demo = run_demo(Path(folder), rows=rows, tell=tell)
    tell(f"{TABLE} has {demo.rows:,} rows on main, none of them from a bad file. Everything is stopped and removed.")


if __name__ == "__main__":
    main()
