"""Iceberg catalogs that run here, and lakes on them: for the contract of targets, the proof and the benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, load_catalog

from lakegate.catalogs.target.opening import open_target
from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget
from lakegate.catalogs.target.targets import Target
from lakegate.config import S3Settings, StorageSettings
from lakegate.iceberg.files import TableFiles
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.postgres import PostgresServer


@dataclass(frozen=True)
class RunningCatalog:
    """A catalog that runs, as any process can open it.

    Attributes:
        name: What it's called in results.
        properties: PyIceberg's.
        environment: What its object store needs.
        by_pyiceberg: Whether a SQL catalog is written by PyIceberg, and not by swapping its rows.
    """

    name: str
    properties: Mapping[str, str]
    environment: Mapping[str, str]
    by_pyiceberg: bool = False

    def others(self) -> Catalog:
        """Open it as somebody else does."""
        os.environ.update(self.environment)
        return load_catalog("lake", **self.properties)

    def files(self) -> TableFiles:
        """Return what reads its tables' files."""
        if "AWS_ENDPOINT_URL" not in self.environment:
            return TableFiles()
        endpoint, region = (self.environment[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION"))
        return TableFiles(StorageSettings(s3=S3Settings(endpoint=endpoint, region=region, path_style=True)))

    def target(self) -> Target:
        """Open it as lakegate does."""
        os.environ.update(self.environment)
        if self.by_pyiceberg:
            return PyIcebergTarget(self.others(), self.files(), self.name)
        return open_target("lake", self.properties, self.files())


def sqlite(folder: Path, *, by_pyiceberg: bool = False) -> RunningCatalog:
    """Return a SQL catalog in a file."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": (folder / "lake").as_uri()}
    return RunningCatalog(f"SQLite, {_way(by_pyiceberg)}", properties, {}, by_pyiceberg)


def on_postgres(server: PostgresServer, folder: Path, *, by_pyiceberg: bool = False) -> RunningCatalog:
    """Return a SQL catalog on Postgres."""
    address = server.url.replace("lakegate@", f"lakegate:{server.password}@")
    properties = {"type": "sql", "uri": address, "warehouse": (folder / "lake").as_uri()}
    return RunningCatalog(f"Postgres, {_way(by_pyiceberg)}", properties, {}, by_pyiceberg)


@contextmanager
def seaweedfs() -> Iterator[RunningCatalog]:
    """Run SeaweedFS with its Iceberg REST catalog."""
    from support.s3_server import S3Server

    server = S3Server(table_bucket="lake")
    try:
        server.start()
        found = RunningCatalog("SeaweedFS", server.catalog, {**server.credentials, "AWS_ENDPOINT_URL": server.endpoint})
        wait_until(lambda: answers(found), what="SeaweedFS's Iceberg catalog")
        yield found
    finally:
        server.remove()


@contextmanager
def glue() -> Iterator[RunningCatalog]:
    """Run MiniStack, with a bucket for the tables of its Glue."""
    import boto3

    from support.ministack import ministack

    with ministack() as server:
        keys = server.environment
        endpoint, region = keys["AWS_ENDPOINT_URL"], keys["AWS_REGION"]
        secrets = {"access-key-id": keys["AWS_ACCESS_KEY_ID"], "secret-access-key": keys["AWS_SECRET_ACCESS_KEY"]}
        boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
        ).create_bucket(Bucket="lake")
        properties = {"type": "glue", "warehouse": "s3://lake/w"}
        for service in ("glue", "s3"):
            properties |= {f"{service}.endpoint": endpoint, f"{service}.region": region}
            properties |= {f"{service}.{key}": value for key, value in secrets.items()}
        yield RunningCatalog("Glue (MiniStack)", properties, keys)


def _way(by_pyiceberg: bool) -> str:
    return "by PyIceberg" if by_pyiceberg else "swap"


def answers(catalog: RunningCatalog) -> bool:
    """Return whether a catalog is ready."""
    try:
        catalog.others().list_namespaces()
    except Exception:  # noqa: BLE001 - its parts start one after another
        return False
    return True
