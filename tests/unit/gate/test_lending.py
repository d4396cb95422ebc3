"""Keys that writers are lent: what they allow, on a real store that obeys them, and who gets them for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from lakegate.config import S3Settings, StorageSettings
from lakegate.gate.lending import Lender
from lakegate.model.opening import Opening
from lakegate.storage.s3 import RoleKeys, S3Role
from lakegate.testing.memory import MemoryCatalog
from support.gate_world import GateWorld, pyiceberg_writer, served, writer_token
from support.s3_server import REGION, WRITER_ROLE, Bucket, S3Server
from support.served_lake import duckdb_with_iceberg

WANTED = {"X-Iceberg-Access-Delegation": "vended-credentials"}
HOUR = timedelta(hours=1)


class NotedRole(S3Role):
    """A role that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any], int]] = []

    def keys(self, name: str, policy: Mapping[str, Any], seconds: int) -> RoleKeys:
        self.asked.append((name, policy, seconds))
        return RoleKeys("a", f"s3cret-{len(self.asked)}", "t", datetime.now(UTC) + timedelta(seconds=seconds))


def opening(opening_id: str, ends_in: timedelta) -> Opening:
    return Opening(opening_id=opening_id, branch="wap/day", base="", deadline=datetime.now(UTC) + ends_in)


def test_keys_allow_to_read_the_warehouse_and_to_write_an_openings_files() -> None:
    role = NotedRole()
    lender = Lender(role, "s3://bucket/my*lake", {"s3.region": "x"}, partition="aws-cn")
    lent = lender.lent(opening("o1", HOUR), "s3://bucket/my*lake/nyc/trips_1")
    [(name, policy, _)] = role.asked
    assert name == "lakegate-o1"
    assert policy == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws-cn:s3:::bucket/my${*}lake/*"},
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": "arn:aws-cn:s3:::bucket",
                "Condition": {"StringLike": {"s3:prefix": "my${*}lake/*"}},
            },
            {
                "Effect": "Allow",
                "Action": "s3:PutObject",
                "Resource": [
                    "arn:aws-cn:s3:::bucket/my${*}lake/*/data/o1/*",
                    "arn:aws-cn:s3:::bucket/my${*}lake/*/metadata/o1/*",
                ],
            },
        ],
    }
    [keys] = lent["storage-credentials"]
    assert keys["prefix"] == "s3://bucket/my*lake/nyc/trips_1"
    assert (keys["config"]["s3.secret-access-key"], keys["config"]["s3.region"]) == ("s3cret-1", "x")


def test_keys_end_soon_and_are_lent_again_until_then() -> None:
    role = NotedRole()
    lender = Lender(role, "s3://bucket", {}, partition="aws")
    for one in (opening("day", 24 * HOUR), opening("half", HOUR / 2), opening("minute", HOUR / 60)):
        assert lender.lent(one, "s3://bucket/t") == lender.lent(one, "s3://bucket/t")
    seconds = [asked[2] for asked in role.asked]
    assert (seconds[0], seconds[2], len(seconds)) == (3600, 900, 3)
    assert 1700 < seconds[1] <= 1800
    assert "s3cret" not in repr(role.keys("a", {}, 900))


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in s3_server.credentials.items():
        monkeypatch.setenv(name, value)
    return s3_server.new_bucket()


def world_on(bucket: Bucket, role: str | None = WRITER_ROLE) -> GateWorld:
    settings = S3Settings(endpoint=bucket.endpoint, region=REGION, path_style=True, writer_role=role)
    return GateWorld(MemoryCatalog(), f"{bucket.uri}/lake", StorageSettings(s3=settings))


def test_duckdb_and_pyiceberg_write_with_keys_that_they_are_lent(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_on(bucket)
    own = world.open("wap/day")
    with served(world.app()) as url:  # which has found its own keys
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        with duckdb_with_iceberg() as connection:
            connection.execute(
                f"ATTACH 'wap/day' AS lake (TYPE iceberg, ENDPOINT '{url}', TOKEN '{writer_token(own)}')"
            )
            connection.execute("CREATE SCHEMA lake.nyc")
            connection.execute("CREATE TABLE lake.nyc.t AS SELECT 1 AS id")
            connection.execute("INSERT INTO lake.nyc.t VALUES (2)")
            connection.execute("DELETE FROM lake.nyc.t WHERE id = 1")
        with pyiceberg_writer(url, own) as catalog:
            catalog.load_table("nyc.t").append(pa.table({"id": pa.array([3], pa.int32())}))
            found: list[Any] = catalog.load_table("nyc.t").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == [2, 3]


def test_a_store_obeys_the_keys(bucket: Bucket) -> None:
    world = world_on(bucket)
    own = world.open("wap/day")
    writer = world.writer(own).with_headers(**WANTED)
    writer.send("POST", "namespaces", {"namespace": ["nyc"]})
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    body = {"name": "t", "schema": {"type": "struct", "fields": fields}}
    made = writer.send("POST", "namespaces/nyc/tables", body).json()
    answer = writer.with_headers(**{"If-None-Match": "*"}).send("GET", "namespaces/nyc/tables/t")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    loaded = answer.json()
    assert loaded["storage-credentials"] == made["storage-credentials"]
    [lent] = loaded["storage-credentials"]
    assert loaded["config"] == {**lent["config"], "s3.remote-signing-enabled": "false"}
    assert lent["prefix"] == loaded["metadata"]["location"]
    table = loaded["metadata"]["location"].removeprefix(f"{bucket.uri}/")
    bucket.put("other/secret", b"x")
    client = boto3.client(
        "s3",
        endpoint_url=lent["config"]["s3.endpoint"],
        region_name=lent["config"]["client.region"],
        aws_access_key_id=lent["config"]["s3.access-key-id"],
        aws_secret_access_key=lent["config"]["s3.secret-access-key"],
        aws_session_token=lent["config"]["s3.session-token"],
    )
    mine = f"{table}/data/{own.opening_id}/f"
    client.put_object(Bucket=bucket.name, Key=mine, Body=b"x")
    client.get_object(Bucket=bucket.name, Key=loaded["metadata-location"].removeprefix(f"{bucket.uri}/"))
    client.list_objects_v2(Bucket=bucket.name, Prefix="lake/")
    refused: list[Callable[[], object]] = [
        *(
            lambda key=key: client.put_object(Bucket=bucket.name, Key=key, Body=b"x")
            for key in (f"{table}/data/f", f"{table}/data/other/f", f"{table}/metadata/v1.metadata.json", "other/f")
        ),
        lambda: client.delete_object(Bucket=bucket.name, Key=mine),
        lambda: client.get_object(Bucket=bucket.name, Key="other/secret"),
        lambda: client.list_objects_v2(Bucket=bucket.name, Prefix="other/"),
    ]
    for attempt in refused:
        with pytest.raises(ClientError, match="AccessDenied"):
            attempt()


def test_nobody_else_gets_keys(bucket: Bucket) -> None:
    world = world_on(bucket)
    writer = world.writer(world.open("wap/day"))
    writer.send("POST", "namespaces", {"namespace": ["nyc"]})
    writer.send("POST", "namespaces/nyc/tables", {"name": "t", "schema": {"type": "struct", "fields": []}})
    signs = writer.with_headers(**{"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"})
    without_role = world_on(bucket, None)
    without_role.catalog, without_role.openings = world.catalog, world.openings
    poor = without_role.writer(writer.opening).with_headers(**WANTED)
    for one in (writer, signs, poor):
        loaded = one.load("t")
        assert "metadata" in loaded
        assert "storage-credentials" not in loaded
