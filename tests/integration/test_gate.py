"""Engines that write through the gate, as they are, to a branch in Nessie; and what is published of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakegate.components import Components
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.model.opening import Opening
from lakegate.spark.sessions import end_session, remote_sessions
from support.e2e_support import write_trips
from support.gate_world import GateWorld, pyiceberg_writer, served, writer_token
from support.served_lake import duckdb_with_iceberg

pytestmark = pytest.mark.jvm

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def world(lake: Lake, components: Components, tmp_path_factory: pytest.TempPathFactory) -> GateWorld:
    lake.ingest("gated.trips", write_trips(tmp_path_factory.mktemp("first") / "trips.parquet", 5))
    return GateWorld(components.catalog, components.warehouse, components.settings.storage)


@pytest.fixture(scope="module")
def url(world: GateWorld) -> Iterator[str]:
    with served(world.app()) as address:
        yield address


def count(lake: Lake, table: str) -> int:
    (row,) = lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow().to_pylist()
    return int(row["n"])


def test_pyiceberg_writes_a_branch_that_is_published(lake: Lake, world: GateWorld, url: str) -> None:
    opening = world.open("wap/gate-pyiceberg")
    with pyiceberg_writer(url, opening) as catalog:
        catalog.create_namespace("pyi")
        catalog.create_table("pyi.new", ROWS.schema).append(ROWS)
        catalog.load_table("pyi.new").delete("id = 2")
        trips = catalog.load_table("gated.trips")
        trips.append(trips.scan(limit=2).to_arrow())
        with catalog.create_table_transaction("pyi.made", ROWS.schema) as change:
            change.append(ROWS)
        catalog.rename_table("pyi.made", "pyi.kept")
        catalog.create_table("pyi.gone", ROWS.schema)
        catalog.drop_table("pyi.gone")
    before = count(lake, "gated.trips")
    assert lake.publish(opening.branch).status == "published"
    assert (count(lake, "pyi.new"), count(lake, "pyi.kept"), count(lake, "gated.trips")) == (2, 3, before + 2)


def test_appends_from_many_clients_to_one_table_all_arrive(lake: Lake, world: GateWorld, url: str) -> None:
    opening = world.open("wap/gate-many")
    with pyiceberg_writer(url, opening) as catalog:
        catalog.create_namespace_if_not_exists("many")
        catalog.create_table("many.rows", ROWS.schema, properties={"commit.retry.num-retries": "0"})

        def append(number: int) -> None:
            catalog.load_table("many.rows").append(pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]}))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(12)))
        found: list[Any] = catalog.load_table("many.rows").scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == list(range(12))
    assert lake.publish(opening.branch).status == "published"
    assert count(lake, "many.rows") == 12


def test_duckdb_writes_a_branch_that_is_published(lake: Lake, world: GateWorld, url: str) -> None:
    opening = world.open("wap/gate-duckdb")
    before = count(lake, "gated.trips")
    with duckdb_with_iceberg() as connection:
        connection.execute(
            f"ATTACH '{opening.branch}' AS lake (TYPE iceberg, ENDPOINT '{url}', TOKEN '{writer_token(opening)}')"
        )
        for statement in (
            "CREATE SCHEMA lake.duck",
            "CREATE TABLE lake.duck.t (id BIGINT, name VARCHAR)",
            "INSERT INTO lake.duck.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "CREATE TABLE lake.duck.copy AS SELECT * FROM lake.duck.t",
            "DELETE FROM lake.duck.t WHERE id = 2",
            "UPDATE lake.duck.t SET name = 'z' WHERE id = 3",
            "ALTER TABLE lake.duck.t ADD COLUMN extra INTEGER",
            "INSERT INTO lake.gated.trips SELECT * FROM lake.gated.trips LIMIT 2",
            "BEGIN",
            "INSERT INTO lake.duck.t VALUES (7, 'q', 1)",
            "INSERT INTO lake.duck.copy VALUES (7, 'q')",
            "COMMIT",
        ):
            connection.execute(statement)
        rows = connection.execute("SELECT id, name, extra FROM lake.duck.t ORDER BY id").fetchall()
        assert rows == [(1, "a", None), (3, "z", None), (7, "q", 1)]
        with pytest.raises(duckdb.Error):
            connection.execute("CREATE VIEW lake.duck.v AS SELECT 1 AS a")
    assert lake.publish(opening.branch).status == "published"
    assert (count(lake, "duck.t"), count(lake, "duck.copy"), count(lake, "gated.trips")) == (3, 4, before + 2)


STATEMENTS = (
    "CREATE NAMESPACE gate.sp",
    "CREATE TABLE gate.sp.t (id BIGINT, day DATE, name STRING) PARTITIONED BY (months(day))",
    "INSERT INTO gate.sp.t VALUES (1, DATE '2026-01-02', 'a'), (2, DATE '2026-02-02', 'b'), (3, NULL, 'c')",
    "UPDATE gate.sp.t SET name = 'z' WHERE id = 1",
    "DELETE FROM gate.sp.t WHERE id = 2",
    """MERGE INTO gate.sp.t t USING (SELECT 3 AS id, 'm' AS name UNION ALL SELECT 9, 'n') s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, day, name) VALUES (s.id, NULL, s.name)""",
    "ALTER TABLE gate.sp.t ADD COLUMN extra INT",
    "ALTER TABLE gate.sp.t RENAME COLUMN name TO label",
    "ALTER TABLE gate.sp.t ADD PARTITION FIELD bucket(4, id)",
    "ALTER TABLE gate.sp.t SET TBLPROPERTIES ('team' = 'data')",
    "CREATE OR REPLACE TABLE gate.sp.again AS SELECT id, label FROM gate.sp.t",
    "CREATE OR REPLACE TABLE gate.sp.again AS SELECT id FROM gate.sp.t WHERE id > 1",
    "CREATE TABLE gate.sp.v3 (id BIGINT) TBLPROPERTIES ('format-version' = '3')",
    "INSERT INTO gate.sp.v3 VALUES (1), (2), (3)",
    "DELETE FROM gate.sp.v3 WHERE id = 2",
    "INSERT OVERWRITE gate.sp.t SELECT * FROM gate.sp.t",
    "CALL gate.system.rewrite_data_files('sp.t')",
    "ALTER TABLE gate.sp.v3 RENAME TO sp.three",
    "CREATE TABLE gate.sp.gone (id INT)",
    "DROP TABLE gate.sp.gone",
    "INSERT INTO gate.gated.trips SELECT * FROM gate.gated.trips LIMIT 2",
)
REFUSED = {
    "ALTER TABLE gate.sp.t CREATE BRANCH inner_one": "inside a table",
    "ALTER TABLE gate.sp.t SET LOCATION 'file:///tmp/x'": "location can't be changed",
    "ALTER TABLE gate.sp.t SET TBLPROPERTIES ('write.data.path' = 'file:///tmp/x')": "gate's to choose",
    "ALTER TABLE gate.sp.t SET TBLPROPERTIES ('gc.enabled' = 'true')": "let writers delete",
    "ALTER TABLE gate.gated.trips RENAME TO sp.trips": "published table",
    "CALL gate.system.expire_snapshots('sp.t')": "GC is disabled",
    "CALL gate.system.remove_orphan_files('sp.t')": "GC is disabled",
    "DROP TABLE gate.sp.t PURGE": "GC is disabled",
    "CREATE VIEW gate.sp.v AS SELECT 1 AS a": "(?i)view",
}


@pytest.mark.storage  # there, it has its requests signed, and its own credentials aren't used
def test_spark_writes_a_branch_that_is_published(lake: Lake, world: GateWorld, url: str, stack: StackState) -> None:
    opening, before = world.open("wap/gate-spark"), count(lake, "gated.trips")
    spark: Any = remote_sessions(stack.spark_url)(spark_options(url, opening))
    try:
        for statement in STATEMENTS:
            spark.sql(statement).collect()
        for statement, message in REFUSED.items():
            with pytest.raises(Exception, match=message):
                spark.sql(statement).collect()
        rows = spark.sql("SELECT id, label FROM gate.sp.t ORDER BY id").collect()
        assert [tuple(row) for row in rows] == [(1, "z"), (3, "m"), (9, "n")]
    finally:
        end_session(spark)
    assert lake.publish(opening.branch).status == "published"
    assert [count(lake, f"sp.{name}") for name in ("t", "again", "three")] == [3, 2, 2]
    assert count(lake, "gated.trips") == before + 2


def spark_options(url: str, opening: Opening) -> dict[str, str]:
    catalog = "spark.sql.catalog.gate"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": url,
        f"{catalog}.token": writer_token(opening),
        f"{catalog}.cache-enabled": "false",
    }
