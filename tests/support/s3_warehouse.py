"""A warehouse on the S3 server of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from lakegate.config import S3Settings, StorageSettings
from support.s3_server import REGION, Bucket, S3Server


@dataclass(frozen=True)
class S3Warehouse:
    """A prefix in a bucket of its own, and how to reach it."""

    bucket: Bucket
    server: S3Server

    @property
    def uri(self) -> str:
        return f"{self.bucket.uri}/some where/lake"

    @property
    def storage(self) -> StorageSettings:
        """How lakegate reaches it, with credentials in the environment."""
        return StorageSettings(s3=S3Settings(endpoint=self.server.endpoint, region=REGION, path_style=True))

    @property
    def pyiceberg(self) -> Mapping[str, str]:
        """How PyIceberg's own file systems reach it."""
        return {
            "s3.endpoint": self.server.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": self.server.access_key,
            "s3.secret-access-key": self.server.secret_key,
        }

    def keys(self, prefix: str = "") -> set[str]:
        """Return the keys of all objects in the bucket that start so."""
        pages = self.bucket.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket.name, Prefix=prefix)
        return {entry["Key"] for page in pages for entry in page.get("Contents", ())}


def new_warehouse(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Warehouse:
    """Return an empty warehouse, with its credentials in this process's environment while the patch lasts."""
    for name, value in server.credentials.items():
        monkeypatch.setenv(name, value)
    return S3Warehouse(server.new_bucket(), server)
