"""Requests to the object store that a writer has signed: on a real store, and the ones that aren't signed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from lakegate.config import S3Settings
from lakegate.gate.refusals import RefusedError
from lakegate.gate.signing import Signer
from lakegate.model.opening import Opening
from lakegate.storage.s3 import S3RequestSigner
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
