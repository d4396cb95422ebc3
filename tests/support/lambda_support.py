"""A lakehouse that functions work in, and the events that they are called with."""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pyarrow.parquet as pq
import pytest

from lakegate.config import load_settings
from lakegate.lake import Lake, connect
from lakegate.local.stack import LocalStack
from lakegate.progress import SilentNarrator
from lakegate.storage import s3 as client
from support.e2e_support import trips
from support.lambda_runtime import LambdaFunction

if TYPE_CHECKING:
    from support.postgres import PostgresServer
    from support.s3_server import Bucket, S3Server

_IDS = itertools.count(1)


_WITHOUT_SPARK = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "py4j" or name in ("pyspark.core", "pyspark.java_gateway"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Without())
from pyspark.util import is_remote_only
assert is_remote_only()
print("pyspark is the client alone")
"""


def without_spark(folder: Path) -> Path:
    """Return a folder for PYTHONPATH, with which pyspark is what the package pyspark-client has of it."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_WITHOUT_SPARK)
    return folder


def parquet(rows: int, *, nulls: int = 0, start: int = 0) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(trips(rows, nulls=nulls, start=start), buffer)
    return buffer.getvalue()


def s3_record(bucket: str, key: str, *, name: str = "ObjectCreated:Put", **about: object) -> dict[str, Any]:
    """Return a record as S3 notifies of an object, its key encoded as S3 does."""
    thing = {"key": quote_plus(key, safe="/"), "size": 1024, "eTag": "d41d8cd98f", "sequencer": "0A1B2C3D4E5F678901"}
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-31T07:00:00.000Z",
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": bucket}, "object": {**thing, **about}},
    }


def s3_event(bucket: str, *keys: str, **options: Any) -> dict[str, Any]:
    return {"Records": [s3_record(bucket, key, **options) for key in keys]}


def bridge_event(bucket: str, key: str, *, kind: str = "Object Created") -> dict[str, Any]:
    thing = {"key": key, "size": 5, "etag": "b1946ac92492d2347c6235b4d2611184", "version-id": "IYV3p45BT0ac8hjHg1houSd"}
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": kind,
        "source": "aws.s3",
        "time": "2026-01-31T07:00:00Z",
        "detail": {"version": "0", "bucket": {"name": bucket}, "object": {**thing, "sequencer": "617f08299329d189"}},
    }


def sns_envelope(payload: object) -> dict[str, Any]:
    """Return what SNS puts into a queue, unless delivery is raw."""
    return {
        "Type": "Notification",
        "MessageId": "22b80b92",
        "TopicArn": "arn:aws:sns:x",
        "Message": json.dumps(payload),
    }


def sns_event(payload: object) -> dict[str, Any]:
    sns = {"Type": "Notification", "MessageId": "95df01b4", "Message": json.dumps(payload)}
    return {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": sns}]}


@contextmanager
def open_lakehouse(
    home: Path, s3_server: S3Server, postgres: PostgresServer
) -> Iterator[tuple[Lake, Mapping[str, str]]]:
    """Yield a lake whose Spark reads from S3 and whose journal is in Postgres, and the variables of its functions.

    It is a project of its own: its Spark is started for S3, which others' must not be.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**s3_server.credentials, "AWS_ENDPOINT_URL": s3_server.endpoint}.items():
            patch.setenv(name, value)
        patch.setenv("LAKEGATE_TEST_JOURNAL", postgres.password)
        client.s3_client.cache_clear()
        journal_url = postgres.new_database("lambda")
        journal = {"journal.url": journal_url, "journal.password": "env:LAKEGATE_TEST_JOURNAL"}
        local = {"LAKEGATE_LOCAL_SPARK_MEMORY": "1500m", "LAKEGATE_LOCAL_START_TIMEOUT_S": "300"}
        settings = load_settings(home, env=local, flags=journal)
        stack = LocalStack(home, settings.local, SilentNarrator())
        try:
            with connect(home, settings=settings) as lake:
                bucket = s3_server.new_bucket()
                bucket.put("a.parquet", parquet(1))
                # The local Spark is started for S3 by the first ingest from there.
                assert lake.ingest("warm.trips", f"{bucket.uri}/a.parquet").status == "published"
                state = stack.up()
                variables = _variables(state.nessie_uri, state.spark_url, lake, s3_server, postgres)
                yield lake, {**variables, "LAKEGATE_JOURNAL_URL": journal_url}
        finally:
            stack.down()
            client.s3_client.cache_clear()


def _variables(nessie: str, spark: str, lake: Lake, s3_server: S3Server, postgres: PostgresServer) -> Mapping[str, str]:
    address, _, token = spark.partition("/;token=")
    return {
        **s3_server.credentials,
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "LAKEGATE_CATALOG_URI": nessie,
        "LAKEGATE_CATALOG_WAREHOUSE": lake.home.joinpath(".lakegate/warehouse").as_uri(),
        "LAKEGATE_ENGINE_URL": address,
        "LAKEGATE_ENGINE_TOKEN": "env:SPARK_TOKEN",
        "SPARK_TOKEN": token,
        "LAKEGATE_JOURNAL_PASSWORD": "env:JOURNAL_PASSWORD",
        "JOURNAL_PASSWORD": postgres.password,
        "LAKEGATE_JOURNAL_LEASE_S": "5",
        "LAKEGATE_WATCH_ROUTES": json.dumps(["landing/{namespace}/{table}/*.parquet"]),
        "LAKEGATE_FUNCTION_MARGIN_S": "5",
    }


@dataclass
class Queue:
    """A queue of SQS as its consumer sees it: messages come again until they are done, or have come too often."""

    max_receives: int = 5
    waiting: dict[str, str] = field(default_factory=dict)
    receives: dict[str, int] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)
    sent_ms: dict[str, int] = field(default_factory=dict)

    def send(self, *payloads: object) -> list[str]:
        ids = [f"message-{next(_IDS)}" for _ in payloads]
        for name, payload in zip(ids, payloads, strict=True):
            self.waiting[name] = payload if isinstance(payload, str) else json.dumps(payload)
            self.sent_ms[name] = int(time.time() * 1000)
        return ids

    def receive(self, ids: Sequence[str] | None = None) -> dict[str, Any]:
        """Return an event with what waits; what has come too often goes to the dead letters."""
        for name in ids or list(self.waiting):
            if self.receives.get(name, 0) >= self.max_receives:
                self.dead[name] = self.waiting.pop(name)
        chosen = [name for name in ids or self.waiting if name in self.waiting]
        for name in chosen:
            self.receives[name] = self.receives.get(name, 0) + 1
        return {"Records": [self._record(name) for name in chosen]}

    def settle(self, event: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
        """Delete what is done, as the answer says; return what is not."""
        failed = [one["itemIdentifier"] for one in answer["batchItemFailures"]]
        for record in event["Records"]:
            if record["messageId"] not in failed:
                self.waiting.pop(record["messageId"], None)
        return failed

    def deliver(self, function: LambdaFunction, *, timeout_s: float = 120.0) -> list[str]:
        """Call the function with all that waits; return what is not done."""
        event = self.receive()
        return self.settle(event, function.invoke(event, timeout_s=timeout_s)) if event["Records"] else []

    def _record(self, name: str) -> dict[str, Any]:
        return {
            "messageId": name,
            "receiptHandle": "MessageReceiptHandle",
            "body": self.waiting[name],
            "attributes": {
                "ApproximateReceiveCount": str(self.receives[name]),
                "SentTimestamp": str(self.sent_ms[name]),
                "SenderId": "123456789012",
            },
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:MyQueue",
            "awsRegion": "us-east-1",
        }


@dataclass
class World:
    """A bucket, the lake that its files go to, and functions to take them there.

    Attributes:
        variables: What a function is given.
        python: What starts a function's process.
    """

    lake: Lake
    bucket: Bucket
    variables: Mapping[str, str]
    folder: Path
    namespace: str
    functions: list[LambdaFunction] = field(default_factory=list)
    python: Sequence[str] = (sys.executable,)

    @property
    def table(self) -> str:
        return f"{self.namespace}.trips"

    def function(self, **variables: str) -> LambdaFunction:
        name = f"function-{len(self.functions)}"
        made = LambdaFunction({**self.variables, **variables}, self.folder / name)
        if "PYTHONPATH" not in variables:  # which says what is imported
            made.python = self.python
        self.functions.append(made)
        return made

    def key(self, name: str) -> str:
        return f"landing/{self.namespace}/trips/{name}"

    def put(self, name: str, content: bytes) -> dict[str, Any]:
        """Put a file into the bucket, and return the event of it."""
        etag = self.bucket.put(self.key(name), content)
        return s3_event(self.bucket.name, self.key(name), eTag=etag)

    def put_many(self, names: Iterable[str], rows: int = 10) -> list[dict[str, Any]]:
        """Put files with rows of their own into the bucket."""
        return [self.put(name, parquet(rows, start=rows * number)) for number, name in enumerate(names)]

    def ids(self) -> list[int]:
        found: list[Any] = self.lake.table(self.table).to_arrow(columns=["id"])["id"].to_pylist()
        return sorted(found)

    def statuses(self) -> list[str]:
        return sorted(run.status for run in self.lake.runs(table=self.table, limit=1_000))

    def close(self) -> None:
        for function in self.functions:
            function.close()
