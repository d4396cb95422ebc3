"""Catalogs in SQL databases keep the contract of every target: by PyIceberg, and by swapping their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate
from sqlalchemy import make_url

from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget
from lakegate.catalogs.target.sql_swap import SqlSwapTarget
from lakegate.errors import ConfigurationError, InputError, OutcomeUnknownError
from lakegate.iceberg.files import TableFiles, local_path
from lakegate.iceberg.metadata import parse, serialise
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.postgres import PostgresDatabase
from lakegate.testing.target import Staged, TargetContract, World

if TYPE_CHECKING:
    from support.postgres import PostgresServer

NAME = "the test's catalog"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = SqliteDatabase(tmp_path / "journal.db")
    yield made
    made.close()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=(tmp_path / "lake").as_uri())
    yield made
    made.close()


class OnSqlite(TargetContract):
    @pytest.fixture
    def database(self, database: Database) -> Database:
        return database

    @pytest.fixture
    def others(self, others: SqlCatalog) -> SqlCatalog:
        return others


class TestSqlSwap(OnSqlite):
    @pytest.fixture
    def target(self, others: SqlCatalog) -> SqlSwapTarget:
        return SqlSwapTarget(others, TableFiles(), NAME)


class TestPyIceberg(OnSqlite):
    @pytest.fixture
    def target(self, others: SqlCatalog) -> PyIcebergTarget:
        return PyIcebergTarget(others, TableFiles(), NAME)


@pytest.mark.xdist_group("postgres")
class TestSqlSwapOnPostgres(TargetContract):
    @pytest.fixture
    def database(self, postgres: PostgresServer) -> Iterator[Database]:
        made = PostgresDatabase(make_url(postgres.url).set(password=postgres.password), tls=False)
        yield made
        made.close()

    @pytest.fixture
    def others(self, postgres: PostgresServer, tmp_path: Path) -> Iterator[SqlCatalog]:
        url = make_url(postgres.url).set(drivername="postgresql+pg8000", password=postgres.password)
        address = url.render_as_string(hide_password=False)
        made = SqlCatalog("lake", uri=address, warehouse=(tmp_path / "lake").as_uri())
        yield made
        made.close()

    @pytest.fixture
    def target(self, others: SqlCatalog) -> SqlSwapTarget:
        return SqlSwapTarget(others, TableFiles(), NAME)


class Answers(SqlCatalog):
    """A catalog that does to the next commit what ``fault`` says."""

    fault = ""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        fault, self.fault = self.fault, ""
        if fault == "denied":
            raise ForbiddenError("read only")
        if fault == "altered":
            updates = tuple(_later(one) for one in updates)
        answer = super().commit_table(table, requirements, updates)
        if fault == "lost":
            raise ConnectionResetError("gone")
        return answer


def _later(update: Any) -> Any:
    if not isinstance(update, AddSnapshotUpdate):
        return update
    snapshot = update.snapshot.model_copy(update={"timestamp_ms": update.snapshot.timestamp_ms + 1})
    return update.model_copy(update={"snapshot": snapshot})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Answers]:
    made = Answers("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=(tmp_path / "lake").as_uri())
    yield made
    made.close()


@pytest.fixture
def world(database: Database, catalog: Answers) -> World:
    world = World(database, PyIcebergTarget(catalog, TableFiles(), NAME), catalog, TableFiles())
    world.publish(world.staged("first", {"trips": [1]}))
    return world


@pytest.mark.parametrize("table", ["trips", "new"])
def test_a_table_that_the_catalog_keeps_otherwise_is_put_back(world: World, catalog: Answers, table: str) -> None:
    staged = world.staged("r", {table: [2]})
    before = world.ids(table)
    catalog.fault = "altered"
    with pytest.raises(InputError, match=rf"doesn't keep table .*\.{table} as it was staged: timestamp-ms"):
        world.publish(staged)
    assert (world.ids(table), world.commits_of("r")) == (before, [])
    world.publish(world.staged("after", {table: [3]}))
    assert world.ids(table) == [*(before or ()), 3]


def test_an_answer_that_is_lost_is_found_out(world: World, catalog: Answers) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.fault = "lost"
    with pytest.raises(OutcomeUnknownError, match="gave no answer"):
        world.publish(staged)
    assert [one.message for one in world.commits_of("r")] == ["publish r"]
    assert world.ids("trips") == [1, 2]


def test_a_user_without_rights_is_told_and_nothing_is_left(world: World, catalog: Answers) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.fault = "denied"
    with pytest.raises(ConfigurationError, match="read only"):
        world.publish(staged)
    assert world.ids("trips") == [1]
    world.publish(staged)
    assert world.ids("trips") == [1, 2]


def _in_version_3(staged: Staged) -> Staged:
    (put,) = staged.puts
    place = f"{put.metadata_location.rpartition('/')[0]}/{uuid4()}.metadata.json"
    document = parse(local_path(put.metadata_location).read_bytes())
    content = serialise(place, {**document, "format-version": 3, "next-row-id": 0})
    local_path(place).write_bytes(content)
    return Staged(staged.run, staged.base, [put.model_copy(update={"metadata_location": place})], staged.namespaces)


def test_what_pyiceberg_cannot_write_is_refused(world: World) -> None:
    with pytest.raises(InputError, match="format version 3"):
        world.publish(_in_version_3(world.staged("r", {"trips": [2]})))
    assert world.ids("trips") == [1]


def test_a_swap_takes_any_format_version(database: Database, others: SqlCatalog) -> None:
    world = World(database, SqlSwapTarget(others, TableFiles(), NAME), others, TableFiles())
    staged = _in_version_3(world.staged("r", {"trips": [2]}))
    world.publish(staged)
    (row,) = world.at_main("trips")[1]
    assert row is not None
    assert json.loads(local_path(row.metadata_location).read_bytes())["format-version"] == 3
