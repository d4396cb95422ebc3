"""Catalogs in SQL databases keep the contract of every target: by PyIceberg, and by swapping their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import AuthorizationExpiredError, BadRequestError, ForbiddenError, ValidationException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import make_url, text

from lakegate.catalogs.target import TargetCatalog
from lakegate.catalogs.target.opening import open_target
from lakegate.catalogs.target.publishing import Window
from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget
from lakegate.catalogs.target.sql_swap import SqlSwapTarget
from lakegate.catalogs.target.targets import Step
from lakegate.errors import CatalogUnavailableError, ConfigurationError, ConflictError, InputError, OutcomeUnknownError
from lakegate.iceberg.files import TableFiles, local_path
from lakegate.iceberg.metadata import parse, serialise
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.factory import open_postgres
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.testing.target import Killed, Staged, TargetContract, World

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

    def test_thousands_of_tables_are_asked_for_at_once(self, target: SqlSwapTarget, others: SqlCatalog) -> None:
        others.create_namespace("nyc")
        others.create_table("nyc.t7", schema=pa.schema([("id", pa.int64())]))
        names = [TableIdentifier.parse(f"nyc.t{number}") for number in range(2_000)]
        found = target.tables(names)
        assert [str(name) for name, pointer in found.items() if pointer is not None] == ["nyc.t7"]


class TestPyIceberg(OnSqlite):
    @pytest.fixture
    def target(self, others: SqlCatalog) -> PyIcebergTarget:
        return PyIcebergTarget(others, TableFiles(), NAME)


@pytest.mark.xdist_group("postgres")
class TestSqlSwapOnPostgres(TargetContract):
    @pytest.fixture
    def database(self, postgres: PostgresServer) -> Iterator[Database]:
        # As lakegate does, after the journal's tables: a schema that has the overlay's alone is no journal's.
        made = open_postgres(make_url(postgres.url).set(password=postgres.password), tls=False).database
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

    def test_a_user_without_rights_is_told_what_he_may_not_do(self, world: World, others: SqlCatalog) -> None:
        user = f"reader_{uuid4().hex[:8]}"
        with others.engine.begin() as connection:
            connection.execute(text(f"CREATE ROLE {user} LOGIN PASSWORD 'right'"))
            # Which one it is depends on whether a journal was there before.
            place = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'iceberg_tables'::regclass"
            schema = connection.scalar(text(place))
            connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {user}"))
            connection.execute(text(f"ALTER ROLE {user} SET search_path = {schema}"))
            connection.execute(text(f"GRANT SELECT ON iceberg_tables, iceberg_namespace_properties TO {user}"))
        address = others.engine.url.set(username=user)
        given = {
            **others.properties,
            "type": "sql",
            "uri": address.set(password="wrong").render_as_string(hide_password=False),
        }
        with pytest.raises(ConfigurationError, match="doesn't let this user sign in: password authentication failed"):
            open_target("lake", given, TableFiles())
        given["uri"] = address.set(password="right").render_as_string(hide_password=False)
        target = open_target("lake", given, TableFiles())
        reader = TargetCatalog(world.database, target)
        for staged in (world.staged("r", {"trips": [2]}), replace(world, namespace=user).staged("new", {"trips": [3]})):
            with pytest.raises(
                ConfigurationError, match=r"doesn't let this user .*: permission denied for table \w+\.$"
            ):
                world.publish(staged, reader)
        target.close()
        assert world.ids("trips") == [1]


_REFUSALS: Mapping[str, Exception] = {
    "denied": ForbiddenError("read only"),
    "expired": AuthorizationExpiredError("the token has expired"),
    "elsewhere": BadRequestError("Location is not allowed: s3://elsewhere/trips"),
}


class Answers(SqlCatalog):
    """A catalog that does to its next commits what ``faults`` say, one each."""

    faults: tuple[str, ...] = ()
    may_create_namespaces = True
    late: Callable[[], object] = staticmethod(int)

    def create_namespace_if_not_exists(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        if not self.may_create_namespaces:
            raise ForbiddenError("no")
        super().create_namespace_if_not_exists(namespace, properties)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        fault, *rest = self.faults or ("",)
        self.faults = tuple(rest)
        if fault in _REFUSALS:
            raise _REFUSALS[fault]
        if fault == "late":
            self.late = partial(super().commit_table, table, requirements, updates)
            raise ConnectionResetError("gone")
        if fault == "altered":
            updates = tuple(_later(one) for one in updates)
        answer = super().commit_table(table, requirements, updates)
        if fault == "lost":
            raise ConnectionResetError("gone")
        return super().commit_table(table, requirements, updates) if fault == "twice" else answer


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
    catalog.faults = ("altered",)
    with pytest.raises(InputError, match=rf"doesn't keep table .*\.{table} as it was staged: timestamp-ms"):
        world.publish(staged)
    assert (world.ids(table), world.commits_of("r")) == (before, [])
    world.publish(world.staged("after", {table: [3]}))
    assert world.ids(table) == [*(before or ()), 3]


def test_an_answer_that_is_lost_is_found_out(world: World, catalog: Answers) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.faults = ("lost",)
    with pytest.raises(OutcomeUnknownError, match="gave no answer"):
        world.publish(staged)
    assert [one.message for one in world.commits_of("r")] == ["publish r"]
    assert world.ids("trips") == [1, 2]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("denied", r"doesn't let this user change table .*\.trips: read only"),
        ("expired", r"doesn't let this user change table .*\.trips: the token has expired"),
        ("elsewhere", r"refused the change of table .*\.trips: Location is not allowed: s3://elsewhere/trips"),
    ],
)
def test_a_publish_that_the_catalog_refuses_names_table_and_reason(
    world: World, catalog: Answers, fault: str, said: str
) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.faults = (fault,)
    with pytest.raises(InputError, match=said):
        world.publish(staged)
    assert world.ids("trips") == [1]
    world.publish(staged)
    assert world.ids("trips") == [1, 2]


def test_a_request_that_is_sent_twice_was_made_once(world: World, catalog: Answers) -> None:
    catalog.faults = ("twice",)
    world.publish(world.staged("r", {"trips": [2]}))
    assert [one.message for one in world.commits_of("r")] == ["publish r"]
    assert world.ids("trips") == [1, 2]


def test_a_request_that_arrives_late_is_the_runs_commit(world: World, catalog: Answers) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.faults = ("late",)
    with pytest.raises(OutcomeUnknownError, match="gave no answer"):
        world.publish(staged)
    assert world.commits_of("r") == []
    catalog.late()
    with pytest.raises(ConflictError):
        world.publish(staged)
    (own,) = world.commits_of("r")
    assert (own.message, own.puts[0].snapshot_id) == ("publish r", staged.puts[0].snapshot_id)
    assert own.author != "another writer"
    world.append_as_others("trips", 10)
    assert next(world.lake.history(MAIN)).author != "another writer"
    assert world.at_main("trips")[0].hash != own.hash
    assert world.ids("trips") == [1, 2, 10]


def test_a_part_that_arrives_late_is_put_back(world: World, catalog: Answers) -> None:
    world.publish(world.staged("second", {"zones": [5]}))
    staged = world.staged("r", {"trips": [2], "zones": [6]})
    catalog.faults = ("late",)
    with pytest.raises(OutcomeUnknownError):
        world.publish(staged)
    assert world.commits_of("r") == []
    catalog.late()
    assert world.ids("trips") == [1, 2]
    world.at_main("trips", "zones")
    assert (world.ids("trips"), world.ids("zones"), world.commits_of("r")) == ([1], [5], [])
    world.publish(world.rebased(staged))
    assert (world.ids("trips"), world.ids("zones"), len(world.commits_of("r"))) == ([1, 2], [5, 6], 1)


def test_a_second_table_that_arrives_late_was_published_with_the_first(world: World, catalog: Answers) -> None:
    world.publish(world.staged("second", {"zones": [5]}))
    staged = world.staged("r", {"trips": [2], "zones": [6]})
    catalog.faults = ("", "late")
    with pytest.raises(OutcomeUnknownError):
        world.publish(staged)
    catalog.late()
    assert [one.message for one in world.commits_of("r")] == ["publish r"]
    assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [5, 6])


def test_rights_that_end_within_a_publish_block_no_reader(world: World, catalog: Answers) -> None:
    world.publish(world.staged("second", {"zones": [5]}))
    staged, other = world.staged("r", {"trips": [2], "zones": [6]}), world.staged("other", {"more": [1]})
    head = world.lake.get_ref(MAIN)
    catalog.faults = ("", *["denied"] * 20)
    with pytest.raises(OutcomeUnknownError, match="can't be put back now"):
        world.publish(staged)
    assert world.lake.get_ref(MAIN) == head == world.at_main("trips", "zones")[0]
    with pytest.raises(CatalogUnavailableError, match="couldn't be settled"):
        world.commits_of("r")
    with pytest.raises(ConfigurationError, match="read only"):
        world.publish(staged)
    catalog.faults = ()
    assert [one.message for one in world.commits_of("r")] == ["publish r"]
    assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [5, 6])
    world.publish(other)


def test_a_change_that_the_catalog_altered_is_put_back_after_a_death(world: World, catalog: Answers) -> None:
    staged = world.staged("r", {"trips": [2]})
    catalog.faults = ("altered",)
    with pytest.raises(InputError, match="timestamp-ms"):
        world.publish(staged)
    staged = world.staged("dies", {"trips": [3]})
    altered = TargetCatalog(world.database, _Dying(catalog, TableFiles(), NAME))
    catalog.faults = ("altered",)
    with pytest.raises(Killed):
        world.publish(staged, altered)
    assert (world.commits_of("dies"), world.ids("trips")) == ([], [1])


def test_snapshots_that_others_expire_at_the_last_moment_are_a_conflict(world: World, catalog: Answers) -> None:
    """Both the run and somebody else drop the table's first snapshot."""
    world.publish(world.staged("second", {"trips": [2]}))
    staged = world.staged("r", {"trips": [3]})
    shorter = world.editor.trim_snapshots(staged.puts[0], at_least=1, before=datetime.now(UTC))
    assert shorter != staged.puts[0]

    def reach(window: Window) -> None:
        if window == "announced":
            table = catalog.load_table((world.namespace, "trips"))
            table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()

    with pytest.raises(ConflictError, match="trips"):
        world.publish(Staged("r", staged.base, [shorter], ()), world.open(reach))
    world.publish(world.rebased(staged))
    assert world.ids("trips") == [1, 2, 3]


def test_a_publish_that_dropped_old_snapshots_can_be_put_back(world: World, catalog: Answers) -> None:
    world.publish(world.staged("second", {"trips": [2], "zones": [5]}))
    staged = world.staged("r", {"trips": [3], "zones": [6]})
    shorter = world.editor.trim_snapshots(staged.puts[0], at_least=1, before=datetime.now(UTC))
    catalog.faults = ("", "denied")
    with pytest.raises(ConfigurationError, match="read only"):
        world.publish(Staged("r", staged.base, [shorter, staged.puts[1]], ()))
    assert (world.ids("trips"), world.ids("zones"), world.commits_of("r")) == ([1, 2], [5], [])


class _Dying(PyIcebergTarget):
    def apply(self, steps: Sequence[Step]) -> Sequence[TablePointer | None]:
        super().apply(steps)
        raise Killed


def test_a_namespace_that_the_catalog_does_not_let_us_create_is_named(world: World, catalog: Answers) -> None:
    world.namespace = f"{world.namespace}_new"
    staged = world.staged("r", {"trips": [2]})
    catalog.may_create_namespaces = False
    with pytest.raises(ConfigurationError, match=rf"doesn't let this user create namespace {world.namespace}: no"):
        world.publish(staged)
    catalog.may_create_namespaces = True
    world.publish(staged)
    assert world.ids("trips") == [2]


def test_a_sql_catalog_that_is_read_only_says_so(database: Database, others: SqlCatalog, tmp_path: Path) -> None:
    world = World(database, SqlSwapTarget(others, TableFiles(), NAME), others, TableFiles())
    world.publish(world.staged("first", {"trips": [1]}))
    staged = world.staged("r", {"trips": [2]})
    uri = f"sqlite:///file:{tmp_path / 'catalog.db'}?mode=ro&uri=true"
    reader = SqlCatalog("lake", uri=uri, warehouse=others.properties["warehouse"], init_catalog_tables="false")
    with pytest.raises(ConfigurationError, match=r"doesn't let this user change table .*readonly database"):
        world.publish(staged, TargetCatalog(database, SqlSwapTarget(reader, TableFiles(), NAME)))
    reader.close()
    world.publish(staged)
    assert world.ids("trips") == [1, 2]


def test_a_writer_who_began_from_what_was_put_back_fails(world: World, catalog: Answers) -> None:
    world.publish(world.staged("second", {"zones": [1]}))
    with pytest.raises(Killed):
        world.publish(world.staged("r", {"trips": [2], "zones": [2]}), world.dying("table-published"))
    begun = catalog.load_table((world.namespace, "trips")).transaction()
    begun.append(pa.table({"id": [9], "name": ["x"]}, schema=begun.table_metadata.schema().as_arrow()))
    world.append_as_others("zones", 10)
    world.at_main("trips", "zones")
    with pytest.raises(ValidationException, match="Cannot find starting snapshot"):
        begun.commit_transaction()
    assert (world.ids("trips"), world.ids("zones")) == ([1], [1, 10])


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
