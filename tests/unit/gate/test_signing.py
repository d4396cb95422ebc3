"""Requests to the object store that a writer has signed: on a real store, and the ones that aren't signed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakegate.config import S3Settings, StorageSettings
from lakegate.gate.refusals import RefusedError
from lakegate.gate.signing import Signer
from lakegate.model.opening import Opening
from lakegate.storage.s3 import S3RequestSigner
from lakegate.testing.memory import MemoryCatalog
from support.gate_world import GateWorld, pyiceberg_writer, served
from support.s3_server import REGION, Bucket, S3Server

OPENING = Opening(opening_id="o1", branch="wap/day", base="", deadline=datetime(2030, 1, 1, tzinfo=UTC))
HOST = "https://s3.eu-central-1.amazonaws.com"
TABLE = "lake/nyc/trips_1"


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    return Signer(S3RequestSigner(S3Settings(region="eu-central-1")), "s3://bucket/lake")


def asked(method: str, uri: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "method": method,
        "uri": uri,
        "region": "eu-central-1",
        "headers": {key: [value] for key, value in (headers or {}).items()},
    }


OWN = f"{HOST}/bucket/{TABLE}/data/o1/f.parquet"


@pytest.mark.parametrize(
    ("method", "uri", "is_new"),
    [
        ("GET", f"{HOST}/bucket/{TABLE}/data/f.parquet", False),
        ("HEAD", f"{HOST}/bucket/{TABLE}/data/o2/f.parquet", False),
        ("GET", f"https://bucket.s3.eu-central-1.amazonaws.com/{TABLE}/data/a%20b%3D1/f.parquet", False),
        ("PUT", OWN, True),
        ("PUT", f"{HOST}/bucket/{TABLE}/metadata/o1/snap.avro", True),
        ("PUT", f"{HOST}/bucket/{TABLE}/data/o1/day=2026-01-01/f.parquet", True),
        ("POST", f"{OWN}?uploads", False),
        ("PUT", f"{OWN}?partNumber=1&uploadId=x", False),
        ("POST", f"{OWN}?uploadId=x", True),
    ],
)
def test_what_a_writer_needs_is_signed(signer: Signer, method: str, uri: str, is_new: bool) -> None:
    made = signer.signed(OPENING, asked(method, uri, {"Content-Type": "x"}))
    headers = {key.lower(): value for key, value in made["headers"].items()}
    assert made["uri"] == uri
    assert headers["authorization"][0].startswith("AWS4-HMAC-SHA256 Credential=a/")
    # No object is written twice, not even by the one who wrote it: what was audited stays as it was.
    assert headers.get("if-none-match") == (["*"] if is_new else None)
    assert ("if-none-match" in headers["authorization"][0]) == is_new


@pytest.mark.parametrize(
    ("method", "uri", "headers"),
    [
        ("DELETE", OWN, {}),
        ("DELETE", f"{HOST}/bucket/{TABLE}/data/f.parquet", {}),
        ("POST", f"{HOST}/bucket/?delete", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/data/f.parquet", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/data/o2/f.parquet", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/metadata/00001-a.metadata.json", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/o1/f.parquet", {}),
        ("PUT", f"{HOST}/bucket/other/data/o1/f.parquet", {}),
        ("PUT", f"{HOST}/other/{TABLE}/data/o1/f.parquet", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/data/o1/../../data/f.parquet", {}),
        ("PUT", f"{HOST}/bucket/{TABLE}/data/o1/%2E%2E/f.parquet", {}),
        ("PUT", f"{HOST}/bucket//{TABLE}/data/o1/f.parquet", {}),
        ("PUT", f"{OWN}?acl", {}),
        ("PUT", f"{OWN}?tagging", {}),
        ("POST", OWN, {}),
        ("POST", f"{OWN}?select&select-type=2", {}),
        ("PUT", OWN, {"x-amz-copy-source": "/other/secret"}),
        ("PUT", OWN, {"X-Amz-Acl": "public-read"}),
        ("GET", f"{HOST}/bucket?list-type=2&prefix=lake/", {}),
        ("GET", f"{HOST}/bucket/other/f", {}),
        ("GET", f"{HOST}/bucket/lake", {}),
        ("GET", f"{HOST}/bucket/{TABLE}/f?acl", {}),
        ("GET", f"https://evil.example.com/bucket/{TABLE}/f", {}),
        ("GET", f"http://s3.eu-central-1.amazonaws.com/bucket/{TABLE}/f", {}),
        ("GET", f"https://s3.eu-central-1.amazonaws.com@evil.example.com/bucket/{TABLE}/f", {}),
        ("PATCH", OWN, {}),
        ("PUT", "", {}),
    ],
)
def test_nothing_else_is_signed(signer: Signer, method: str, uri: str, headers: Mapping[str, str]) -> None:
    with pytest.raises(RefusedError) as refused:
        signer.signed(OPENING, asked(method, uri, headers))
    assert refused.value.status in (400, 403)


def test_a_request_that_makes_no_sense_is_a_bad_one(signer: Signer) -> None:
    for body in (
        {},
        {"method": 1, "uri": OWN},
        {"method": "GET", "uri": None},
        {**asked("GET", OWN), "headers": ["x"]},
    ):
        with pytest.raises(RefusedError) as refused:
            signer.signed(OPENING, body)
        assert refused.value.status == 400


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in s3_server.credentials.items():
        monkeypatch.setenv(name, value)
    return s3_server.new_bucket()


def test_a_real_store_takes_what_is_signed_once(bucket: Bucket) -> None:
    settings = S3Settings(endpoint=bucket.endpoint, region=REGION, path_style=True)
    signer = Signer(S3RequestSigner(settings), f"{bucket.uri}/lake")
    bucket.put(f"{TABLE}/data/f.parquet", b"published")

    def send(method: str, key: str, content: bytes | None = None) -> httpx.Response:
        uri = f"{bucket.endpoint}/{bucket.name}/{key}"
        made = signer.signed(OPENING, asked(method, uri))
        headers = {name: values[0] for name, values in made["headers"].items()}
        return httpx.request(method, uri, headers=headers, content=content, trust_env=False)

    own = f"{TABLE}/data/o1/f.parquet"
    assert send("GET", f"{TABLE}/data/f.parquet").content == b"published"
    assert send("PUT", own, b"mine").status_code == 200
    assert send("PUT", own, b"another").status_code == 412
    assert send("GET", own).content == b"mine"


def test_a_writer_on_s3_is_told_to_have_its_requests_signed(bucket: Bucket) -> None:
    storage = StorageSettings(s3=S3Settings(endpoint=bucket.endpoint, region=REGION, path_style=True))
    world = GateWorld(MemoryCatalog(), f"{bucket.uri}/lake", storage)
    opening = world.open("wap/day")
    own = {"s3.access-key-id": "AWS_ACCESS_KEY_ID", "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY"}
    keys = {setting: os.environ[name] for setting, name in own.items()}  # PyIceberg needs no signature with these
    with served(world.app()) as url, pyiceberg_writer(url, opening, **keys) as catalog:
        catalog.create_namespace("nyc")
        rows = pa.table({"id": [1, 2, 3]})
        catalog.create_table("nyc.trips", rows.schema).append(rows)
        catalog.load_table("nyc.trips").delete("id = 2")
        assert catalog.load_table("nyc.trips").scan().to_arrow().num_rows == 2
    writer = world.writer(opening)
    config = writer.send("GET", "/v1/config").json()
    assert config["defaults"]["s3.remote-signing-enabled"] == "true"
    assert (config["defaults"]["s3.endpoint"], config["defaults"]["s3.path-style-access"]) == (bucket.endpoint, "true")
    location = writer.load("trips")["metadata-location"]
    uri = f"{bucket.endpoint}/{location.removeprefix('s3://')}"
    for path in ("/v1/aws/s3/sign", "namespaces/nyc/tables/trips/sign", "/v1/main/namespaces/nyc/tables/trips/sign"):
        signed = writer.send("POST", path, asked("GET", uri))
        assert (signed.status_code, signed.headers["Cache-Control"]) == (200, "no-cache"), signed.text
        headers = {name: values[0] for name, values in signed.json()["headers"].items()}
        assert httpx.get(uri, headers=headers, trust_env=False).status_code == 200
        assert writer.send("POST", path, asked("DELETE", uri)).status_code == 403
    assert httpx.get(uri, trust_env=False).status_code == 403
