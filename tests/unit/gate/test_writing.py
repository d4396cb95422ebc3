"""Writers on the branch of their opening: PyIceberg as it is, and requests by hand where it hides what's asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import IntegerType

from lakegate.errors import CatalogUnavailableError, OutcomeUnknownError
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.testing.memory import MemoryCatalog
from support.gate_world import GateWorld, Writer, memory_world, pyiceberg_writer, served, writer_token
from support.rest_world import valid
from support.served_lake import duckdb_with_iceberg

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
SCHEMA: Any = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}


@pytest.fixture
def world(tmp_path: Path) -> GateWorld:
    return memory_world(tmp_path)


@pytest.fixture
def writer(world: GateWorld) -> Writer:
    writer = world.writer(world.open("wap/day"))
    assert writer.send("POST", "namespaces", {"namespace": ["nyc"]}).status_code == 200
    return writer


@pytest.fixture
def pyiceberg(world: GateWorld) -> Iterator[PyIcebergCatalog]:
    with served(world.app()) as url, pyiceberg_writer(url, world.open("wap/day")) as catalog:
        catalog.create_namespace("nyc")
        yield catalog


def rows(catalog: PyIcebergCatalog, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def stored(world: GateWorld, table: str, branch: str = "wap/day") -> Any:
    """Return what is in a table's metadata file on a branch."""
    pointer = world.catalog.get_table(TableIdentifier.parse(table), world.catalog.get_ref(branch))
    assert pointer is not None
    return TableFiles().metadata(pointer).document


def test_pyiceberg_writes_as_to_any_catalog(world: GateWorld, pyiceberg: PyIcebergCatalog) -> None:
    before = world.catalog.get_ref("main")
    pyiceberg.create_table("nyc.trips", ROWS.schema).append(ROWS)
    pyiceberg.load_table("nyc.trips").delete("id = 2")
    pyiceberg.load_table("nyc.trips").overwrite(ROWS.slice(0, 1), overwrite_filter="id = 3")
    with pyiceberg.load_table("nyc.trips").update_schema() as change:
        change.add_column("extra", IntegerType())
        change.rename_column("name", "label")
    with pyiceberg.load_table("nyc.trips").transaction() as change:
        change.set_properties(owner="dana")
    assert rows(pyiceberg, "nyc.trips") == [
        {"id": 1, "label": "a", "extra": None},
        {"id": 1, "label": "a", "extra": None},
    ]
    with pyiceberg.create_table_transaction("nyc.copy", ROWS.schema) as change:
        change.append(ROWS)
    pyiceberg.rename_table("nyc.copy", "nyc.kept")
    pyiceberg.create_table("nyc.gone", ROWS.schema)
    pyiceberg.drop_table("nyc.gone")
    pyiceberg.create_namespace("nyc.archive.old")
    assert pyiceberg.list_tables("nyc") == [("nyc", "kept"), ("nyc", "trips")]
    assert pyiceberg.list_namespaces("nyc") == [("nyc", "archive")]
    pyiceberg.drop_namespace("nyc.archive.old")
    pyiceberg.drop_namespace("nyc.archive")
    assert pyiceberg.list_namespaces("nyc") == []
    assert rows(pyiceberg, "nyc.kept") == ROWS.to_pylist()
    with pytest.raises(NoSuchTableError):
        pyiceberg.load_table("nyc.gone")
    assert world.catalog.get_ref("main") == before


def test_who_wrote_what_is_in_the_branchs_history(world: GateWorld, pyiceberg: PyIcebergCatalog) -> None:
    pyiceberg.create_table("nyc.trips", ROWS.schema).append(ROWS)
    newest, created, *_ = world.catalog.history("wap/day", operations=True)
    assert (newest.message, newest.tables) == ("append nyc.trips", ("nyc.trips",))
    assert created.message == "create nyc.trips"
    assert newest.properties["lakegate.gate.opening"] == "wap-day"
    assert "PyIceberg" in newest.properties["lakegate.gate.client"]


def test_an_append_that_lost_is_put_on_top(world: GateWorld, pyiceberg: PyIcebergCatalog) -> None:
    """Not every client tries again after a conflict: DuckDB doesn't."""
    first = pyiceberg.create_table("nyc.trips", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    other, late = pyiceberg.load_table("nyc.trips"), pyiceberg.load_table("nyc.trips")
    for number, table in enumerate((first, other, late)):
        table.append(pa.table({"id": [number], "name": ["x"]}))
    assert [row["id"] for row in rows(pyiceberg, "nyc.trips")] == [0, 1, 2]
    document = stored(world, "nyc.trips")
    assert [one["sequence-number"] for one in document["snapshots"]] == [1, 2, 3]
    assert [one["summary"]["total-records"] for one in document["snapshots"]] == ["1", "2", "3"]


def test_an_append_of_duckdb_that_lost_gets_row_ids_of_its_own(world: GateWorld) -> None:
    opening = world.open("wap/day")
    with served(world.app()) as url, duckdb_with_iceberg() as first, duckdb_with_iceberg() as second:
        for connection in (first, second):
            options = f"TYPE iceberg, ENDPOINT '{url}', TOKEN '{writer_token(opening)}'"
            connection.execute(f"ATTACH 'wap/day' AS lake ({options})")
        first.execute("CREATE SCHEMA lake.nyc")
        first.execute("CREATE TABLE lake.nyc.trips (id BIGINT) WITH ('format-version' = '3')")
        first.execute("BEGIN; INSERT INTO lake.nyc.trips VALUES (2), (3)")
        second.execute("BEGIN; INSERT INTO lake.nyc.trips VALUES (4); COMMIT")
        first.execute("COMMIT")
        assert second.execute("SELECT id FROM lake.nyc.trips ORDER BY id").fetchall() == [(2,), (3,), (4,)]
        document = stored(world, "nyc.trips")
        assert [one["first-row-id"] for one in document["snapshots"]] == [0, 1]
        assert document["next-row-id"] == 3
        first.execute("BEGIN; DELETE FROM lake.nyc.trips WHERE id = 2")
        second.execute("INSERT INTO lake.nyc.trips VALUES (5)")
        with pytest.raises(duckdb.Error, match="409"):
            first.execute("COMMIT")


def test_no_other_change_that_lost_is(pyiceberg: PyIcebergCatalog) -> None:
    table = pyiceberg.create_table("nyc.trips", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    table.append(ROWS)
    late = pyiceberg.load_table("nyc.trips")
    table.append(ROWS)
    with pytest.raises(Exception, match="main has changed"):
        late.overwrite(ROWS)
    assert len(rows(pyiceberg, "nyc.trips")) == 6


def test_files_are_below_the_table_in_a_folder_for_each_opening(world: GateWorld) -> None:
    for branch in ("wap/a", "wap/b"):
        with served(world.app()) as url, pyiceberg_writer(url, world.open(branch)) as catalog:
            catalog.create_namespace("nyc")
            table = catalog.create_table("nyc.trips", ROWS.schema)
            table.append(ROWS)
            shown = catalog.load_table("nyc.trips").properties
            home, folder = table.location(), branch.replace("/", "-")
            assert shown["gc.enabled"] == "false"
            assert shown["write.data.path"] == f"{home}/data/{folder}"
            assert shown["write.metadata.path"] == f"{home}/metadata/{folder}"
            assert home.startswith(f"{world.root}/nyc/trips_")
            (file,) = catalog.load_table("nyc.trips").inspect.files()["file_path"].to_pylist()
            assert str(file).startswith(f"{home}/data/{folder}/")
        # They are shown, and never stored.
        assert stored(world, "nyc.trips", branch)["properties"] == {"write.parquet.compression-codec": "zstd"}


def test_main_is_read_with_the_same_token_and_not_written(world: GateWorld) -> None:
    with served(world.app()) as url, pyiceberg_writer(url, world.open("wap/day")) as catalog:
        catalog.create_namespace("nyc")
        catalog.create_table("nyc.trips", ROWS.schema).append(ROWS)
        pointer = world.catalog.get_table(TableIdentifier.parse("nyc.trips"), world.catalog.get_ref("wap/day"))
        assert pointer is not None
        published = pointer.model_copy(update={"content_id": None})
        base = world.catalog.get_ref("main").hash
        request = CommitRequest(branch="main", base=base, message="publish", namespaces=(("nyc",),), puts=(published,))
        world.catalog.commit(request)
    later = world.open("wap/later")
    with served(world.app()) as url, pyiceberg_writer(url, later) as branch:
        main = type(branch)("main", uri=url, token=branch.properties["token"], warehouse="main")
        assert len(rows(main, "nyc.trips")) == 3
        assert main.load_table("nyc.trips").properties["gc.enabled"] == "false"
        with pytest.raises(NotImplementedError):
            main.load_table("nyc.trips").append(ROWS)
        branch.load_table("nyc.trips").append(ROWS)
        assert (len(rows(branch, "nyc.trips")), len(rows(main, "nyc.trips"))) == (6, 3)
        with pytest.raises(Exception, match="published table"):
            branch.rename_table("nyc.trips", "nyc.other")
        main.close()


def test_several_tables_change_in_one_commit_or_none(world: GateWorld, writer: Writer) -> None:
    for name in ("a", "b"):
        assert writer.send("POST", "namespaces/nyc/tables", {"name": name, "schema": SCHEMA}).status_code == 200
    uuid = writer.load("a")["metadata"]["table-uuid"]

    def change(name: str, value: str, uuid: str) -> dict[str, Any]:
        return {
            "identifier": {"namespace": ["nyc"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [{"action": "set-properties", "updates": {"k": value}}],
        }

    before = world.catalog.get_ref("wap/day")
    both = [change("a", "1", uuid), change("b", "1", uuid)]  # b has another UUID
    assert writer.send("POST", "transactions/commit", {"table-changes": both}).status_code == 409
    assert world.catalog.get_ref("wap/day") == before
    both[1]["requirements"] = []
    assert writer.send("POST", "transactions/commit", {"table-changes": both}).status_code == 204
    assert [stored(world, f"nyc.{name}")["properties"]["k"] for name in ("a", "b")] == ["1", "1"]
    assert next(world.catalog.history("wap/day", operations=True)).tables == ("nyc.a", "nyc.b")


def test_several_gates_and_writers_change_tables_of_a_branch(world: GateWorld, writer: Writer) -> None:
    for name in ("a", "b"):
        assert writer.send("POST", "namespaces/nyc/tables", {"name": name, "schema": SCHEMA}).status_code == 200
    gates = [writer, world.writer(writer.opening)]

    def change(number: int) -> int:
        added = {"action": "set-properties", "updates": {f"k{number}": "1"}}
        return int(gates[number % 2].commit("ab"[number // 2 % 2], [added]).status_code)

    one_by_one = [change(number) for number in range(8)]
    with ThreadPoolExecutor(2) as pool:
        at_once = list(pool.map(change, range(8, 24)))
    assert {*one_by_one, *at_once} == {200}
    found = {key for name in ("a", "b") for key in stored(world, f"nyc.{name}")["properties"] if key.startswith("k")}
    assert found == {f"k{number}" for number in range(24)}


def test_a_request_that_is_sent_again_is_not_done_again(world: GateWorld, writer: Writer) -> None:
    """By whichever process: what was done is in the branch's history."""
    keyed = writer.with_headers(**{"Idempotency-Key": "0196f3a0-0000-7000-8000-000000000001"})
    body = {"name": "trips", "schema": SCHEMA}
    first = keyed.send("POST", "namespaces/nyc/tables", body)
    elsewhere = world.writer(writer.opening).with_headers(**keyed.headers)
    again = elsewhere.send("POST", "namespaces/nyc/tables", body)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    # The same key with another body, path or opening is another request.
    assert keyed.send("POST", "namespaces/nyc/tables", {**body, "properties": {"a": "1"}}).status_code == 409
    other = world.writer(world.open("wap/other")).with_headers(**{"Idempotency-Key": keyed.headers["Idempotency-Key"]})
    assert other.send("POST", "namespaces/nyc/tables", body).status_code == 404
    assert [keyed.send("DELETE", "namespaces/nyc/tables/trips").status_code for _ in range(2)] == [204, 204]
    assert writer.send("DELETE", "namespaces/nyc/tables/trips").status_code == 404


class Unreliable(MemoryCatalog):
    """Fails in commits as told."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[CommitRequest], object] = lambda request: None
        self.after: Callable[[Ref], object] = lambda ref: None

    def commit(self, request: CommitRequest) -> Ref:
        self.before(request)
        made = super().commit(request)
        self.after(made)
        return made


def test_a_commit_without_an_answer_is_looked_up(tmp_path: Path) -> None:
    catalog = Unreliable()
    world = GateWorld(catalog, f"file://{tmp_path}/warehouse")
    writer = world.writer(world.open("wap/day"))
    assert writer.send("POST", "namespaces", {"namespace": ["nyc"]}).status_code == 200

    def lose(_: object) -> None:
        raise OutcomeUnknownError("The connection was lost.")

    catalog.after = lose
    made = writer.send("POST", "namespaces/nyc/tables", {"name": "trips", "schema": SCHEMA})
    assert (made.status_code, made.json()["metadata"]["table-uuid"]) == (200, stored(world, "nyc.trips")["table-uuid"])
    catalog.before = lose
    unknown = writer.commit("trips", [{"action": "set-properties", "updates": {"a": "1"}}])
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (504, "CommitStateUnknownException")

    def away(_: object) -> None:
        raise CatalogUnavailableError("Nessie isn't there.")

    catalog.before = away
    assert writer.commit("trips", [{"action": "set-properties", "updates": {"a": "1"}}]).status_code == 503


def test_a_branch_sealed_while_a_commit_is_on_its_way_gets_nothing_more(tmp_path: Path) -> None:
    catalog = Unreliable()
    world = GateWorld(catalog, f"file://{tmp_path}/warehouse")
    opening = world.open("wap/day")
    writer = world.writer(opening)
    writer.send("POST", "namespaces", {"namespace": ["nyc"]})
    writer.send("POST", "namespaces/nyc/tables", {"name": "trips", "schema": SCHEMA})
    head = catalog.get_ref("wap/day").hash

    def seal(_: object) -> None:  # between the gate's question and its commit
        world.seal(opening)
        catalog.before = lambda request: None
        branch = catalog.get_ref("wap/day")
        catalog.create_branch("wap/day-sealed", branch)
        catalog.delete_ref(branch)

    catalog.before = seal
    late = writer.commit("trips", [{"action": "set-properties", "updates": {"a": "1"}}])
    assert (late.status_code, late.json()["error"]["type"]) == (403, "ForbiddenException")
    assert catalog.get_ref("wap/day-sealed").hash == head


def test_answers_are_what_the_specification_describes(world: GateWorld, writer: Writer) -> None:
    config = valid("CatalogConfig", writer.send("GET", "/v1/config").json())
    assert config["overrides"] == {"prefix": "wap%2Fday"}
    assert "POST /v1/{prefix}/transactions/commit" in config["endpoints"]
    assert valid("GetNamespaceResponse", writer.send("GET", "namespaces/nyc").json()) == {
        "namespace": ["nyc"],
        "properties": {"location": f"{world.root}/nyc"},
    }
    valid("GetNamespaceResponse", writer.send("POST", "namespaces", {"namespace": ["lab"]}).json())
    staged = writer.send("POST", "namespaces/nyc/tables", {"name": "t", "schema": SCHEMA, "stage-create": True})
    assert "metadata-location" not in valid("LoadTableResult", staged.json())
    assert writer.send("GET", "namespaces/nyc/tables/t").status_code == 404
    valid("LoadTableResult", writer.send("POST", "namespaces/nyc/tables", {"name": "t", "schema": SCHEMA}).json())
    valid("LoadTableResult", writer.load("t"))
    changed = writer.commit("t", [{"action": "set-properties", "updates": {"a": "1"}}])
    assert set(valid("LoadTableResult", changed.json())) == {"metadata-location", "metadata"}
    assert writer.send("POST", "namespaces/nyc/tables/t/metrics", {"report-type": "scan-report"}).status_code == 204
    assert writer.send("HEAD", "namespaces/nyc/tables/t").status_code == 204
    etag = writer.send("GET", "namespaces/nyc/tables/t").headers["ETag"]
    unchanged = writer.with_headers(**{"If-None-Match": etag}).send("GET", "namespaces/nyc/tables/t")
    assert unchanged.status_code == 304


def test_the_result_is_a_table_that_lakegate_publishes(world: GateWorld, pyiceberg: PyIcebergCatalog) -> None:
    pyiceberg.create_table("nyc.trips", ROWS.schema).append(ROWS)
    table = TableIdentifier.parse("nyc.trips")
    pointer = world.catalog.get_table(table, world.catalog.get_ref("wap/day"))
    reader = IcebergTableReader(TableFiles())
    assert pointer is not None
    reader.require_loadable(pointer, "wap/day")
    assert reader.change(None, pointer).kind == "create"
    later = pyiceberg.load_table("nyc.trips")
    later.append(ROWS)
    after = world.catalog.get_table(table, world.catalog.get_ref("wap/day"))
    change = reader.change(pointer, after)
    assert (change.kind, change.rows_added) == ("append", 3)


def test_trinos_name_for_a_location_is_kept(world: GateWorld, writer: Writer) -> None:
    location = f"{world.root}/nyc/trips-{'0af9' * 8}"
    body = {"name": "trips", "schema": SCHEMA, "location": location, "stage-create": True}
    metadata = writer.send("POST", "namespaces/nyc/tables", body).json()["metadata"]
    assert metadata["location"] == location
    made = writer.commit(
        "trips",
        [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "set-location", "location": location},
            {"action": "set-properties", "updates": metadata["properties"]},
        ],
        [{"type": "assert-create"}],
    )
    assert made.status_code == 200, made.text
    assert json.loads(made.content)["metadata"]["location"] == location
    assert stored(world, "nyc.trips")["properties"] == {"write.parquet.compression-codec": "zstd"}
