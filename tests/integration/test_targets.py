"""Servers that run here keep the contract of every target: SeaweedFS's REST catalog, Glue as MiniStack has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pytest
from pyiceberg.catalog import Catalog

from lakegate.catalogs.target.targets import Target
from lakegate.iceberg.files import TableFiles
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.testing.target import TargetContract, World
from support import target_catalogs
from support.target_catalogs import RunningCatalog

pytestmark = [pytest.mark.system]


def _running(catalog: AbstractContextManager[RunningCatalog]) -> Iterator[RunningCatalog]:
    with patch.dict(os.environ), catalog as running:  # which sets some itself, before it is there
        os.environ.update(running.environment)
        yield running


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[RunningCatalog]:
    yield from _running(target_catalogs.seaweedfs())


@pytest.fixture(scope="module")
def glue() -> Iterator[RunningCatalog]:
    yield from _running(target_catalogs.glue())


class OnServer(TargetContract):
    @pytest.fixture
    def others(self, catalog: RunningCatalog) -> Catalog:
        return catalog.others()

    @pytest.fixture
    def target(self, catalog: RunningCatalog) -> Target:
        return catalog.target()

    @pytest.fixture
    def files(self, catalog: RunningCatalog) -> TableFiles:
        return catalog.files()

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        made = SqliteDatabase(tmp_path / "journal.db")
        yield made
        made.close()


@pytest.mark.xdist_group("seaweedfs-catalog")
class TestSeaweedFS(OnServer):
    @pytest.fixture
    def catalog(self, seaweedfs: RunningCatalog) -> RunningCatalog:
        return seaweedfs

    @pytest.fixture
    def world(self, database: Database, target: Target, others: Catalog, files: TableFiles) -> World:
        world = World(database, target, others, files)
        others.create_namespace(world.namespace)  # it refuses to where files are already
        world.publish(world.staged("first", {"trips": [1]}))
        return world


@pytest.mark.xdist_group("ministack")
class TestGlueOnMiniStack(OnServer):
    @pytest.fixture
    def catalog(self, glue: RunningCatalog) -> RunningCatalog:
        return glue


# PyIceberg's way is tried on SQLite in full; each of these takes Glue seconds.
_KEPT = ("rows_are", "new_table", "last_moment", "column", "last_publish", "a_name", "at_once", "two_t", "dies")
for _name in dir(TestGlueOnMiniStack):
    if _name.startswith("test_") and not any(word in _name for word in _KEPT):
        setattr(TestGlueOnMiniStack, _name, None)
