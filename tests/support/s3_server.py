"""A real S3 server for tests: SeaweedFS, in a folder of its own, on the loopback interface, with random credentials."""

from __future__ import annotations

import base64
import itertools
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from support.loopback import loopback_client
from support.ports import free_port
from support.waiting import wait_ready

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"
WRITER_ROLE = "arn:aws:iam::000000000000:role/writer"
"""A role that may do everything, and that everybody may assume."""
_TIMEOUT_S = 180
_SERVERS = ("admin", "filer", "master", "s3", "volume")
# Without these it would listen on every address and report home.
_OPTIONS = (
    *("-ip=127.0.0.1", "-master.telemetry=false", "-webdav=false", "-admin.ui=false"),
    "-s3.port.lance=0",
    "-s3.iam.config=iam.json",
    "-volume.max=10000",  # each bucket takes some; by default there are as many as would fill the disk
)


def _allowed(*actions: str, **more: object) -> dict[str, object]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, **more}]}


_ROLES = {
    "sts": {
        "tokenDuration": "1h",
        "maxSessionLength": "12h",
        "issuer": "tests",
        "signingKey": base64.b64encode(secrets.token_bytes(32)).decode(),
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "roles": [
        {
            "roleName": "writer",
            "roleArn": WRITER_ROLE,
            "trustPolicy": _allowed("sts:AssumeRole", Principal="*"),
            "attachedPolicies": ["all"],
        }
    ],
    "policies": [{"name": "all", "document": _allowed("s3:*", Resource=["*"])}],
}


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the client of its server."""

    name: str
    endpoint: str
    client: S3Client

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, content: bytes) -> str:
        """Write an object, and return its entity tag."""
        return self.client.put_object(Bucket=self.name, Key=key, Body=content)["ETag"].strip('"')

    def keep_versions(self) -> None:
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})


class S3Server:
    """One server; ``new_bucket`` gives each test a bucket of its own.

    Args:
        table_bucket: A bucket for an Iceberg REST catalog. Default: there's no such catalog.
        open_port: Where to serve S3 on all addresses. Default: a free port of the loopback interface.
        keys: The access key and the secret key. Default: random ones.
        folder: Where objects are kept, also when the server is killed. Default: a new one, which ``stop`` removes.
    """

    def __init__(
        self,
        *,
        table_bucket: str | None = None,
        open_port: int | None = None,
        keys: tuple[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._table_bucket = table_bucket
        self.access_key, self.secret_key = keys or (secrets.token_hex(10).upper(), secrets.token_hex(20))
        self._folder = folder or Path(tempfile.mkdtemp(prefix="lakegate-s3-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._buckets = itertools.count(1)
        # For each, another one for gRPC; and one for the catalog.
        first = free_port(together=2 * len(_SERVERS) + 1) if open_port is None else open_port + 1
        self._ports = {name: first + 2 * at for at, name in enumerate(_SERVERS)}
        self._iceberg_port = 0 if table_bucket is None else first + 2 * len(_SERVERS)
        self._bound = "127.0.0.1"
        if open_port is not None:
            self._ports["s3"], self._bound = open_port, "0.0.0.0"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def catalog(self) -> Mapping[str, str]:
        """PyIceberg's properties of the Iceberg REST catalog."""
        return {
            "type": "rest",
            "uri": f"http://127.0.0.1:{self._iceberg_port}",
            "oauth2-server-uri": f"http://127.0.0.1:{self._iceberg_port}/v1/oauth/tokens",
            "warehouse": f"s3://{self._table_bucket}",
            "credential": f"{self.access_key}:{self.secret_key}",
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": REGION,
        }

    @property
    def credentials(self) -> Mapping[str, str]:
        """What a program finds in its environment to use the server, the endpoint apart."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def settings(self, warehouse: str) -> str:
        """Return a ``lakegate.toml`` with which tables are kept there."""
        return (
            f'[catalog]\nwarehouse = "{warehouse}"\n\n'
            f'[s3]\nendpoint = "{self.endpoint}"\nregion = "{REGION}"\npath_style = true\n'
        )

    def new_bucket(self) -> Bucket:
        bucket = Bucket(f"landing-{next(self._buckets)}", self.endpoint, self.client)
        bucket.client.create_bucket(Bucket=bucket.name)
        return bucket

    @cached_property
    def client(self) -> S3Client:
        """A client with the server's own keys."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def start(self) -> None:
        ports = [word for name, port in self._ports.items() for word in _port_options(name, port)]
        ports.append(f"-s3.port.iceberg={self._iceberg_port}")
        options = (*_OPTIONS, f"-ip.bind={self._bound}", *ports)
        (self._folder / "iam.json").write_text(json.dumps(_ROLES))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).parent / "weed", "mini", f"-dir={self._folder}", *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={
                    "HOME": str(self._folder),
                    "TMPDIR": str(self._folder),
                    "PATH": "/usr/bin:/bin",
                    **({} if self._table_bucket is None else {"S3_TABLE_BUCKET": self._table_bucket}),
                    **self.credentials,
                },
                start_new_session=True,
            )
        wait_ready(self._process, self._is_ready, within_s=_TIMEOUT_S, log=self._folder / "log")

    def remove(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        # any answer, and then one that only a server whose parts know each other can give
        try:
            with loopback_client(timeout_s=1) as client:
                client.get(self.endpoint)
            self.client.list_buckets()
        except (httpx.HTTPError, BotoCoreError, ClientError):
            return False
        return True


def _port_options(name: str, port: int) -> tuple[str, ...]:
    return f"-{name}.port={port}", f"-{name}.port.grpc={port + 1}"
