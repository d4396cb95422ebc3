"""Engines write through the gate, as they are: what is published of it, and when nothing is."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.types import LongType

from lakegate.api.gate import door
from lakegate.components import Components
from lakegate.errors import AuditFailedError, InputError, NotFoundError
from lakegate.gate.connect import writer_snippet
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.spark.sessions import end_session, remote_sessions
from support.e2e_support import Cli, write_trips
from support.gate_clients import duck, pyiceberg, spark
from support.gate_world import served
from support.served_lake import duckdb_with_iceberg
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
WRITE = """
import pyarrow, sys
from pyiceberg.catalog import load_catalog
catalog = load_catalog()
catalog.create_namespace_if_not_exists("job")
catalog.create_table("job.{0}", pyarrow.schema([("id", pyarrow.int64())])).append(pyarrow.table({{"id": [1, 2]}}))
"""


@pytest.fixture(scope="module")
def trips(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table that is published already."""
    lake.ingest("gated.trips", write_trips(tmp_path_factory.mktemp("first") / "trips.parquet", 5))
    return "gated.trips"


@pytest.fixture(scope="module")
def url(components: Components) -> Iterator[str]:
    with served(door(components)) as address:
        yield address


def count(lake: Lake, table: str) -> int:
    (row,) = lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow().to_pylist()
    return int(row["n"])


def heads(lake: Lake) -> list[str]:
    """Return main's newest two commits, newest first."""
    return [commit.hash for commit in lake.log(limit=2)]


def test_pyiceberg_writes_and_all_of_it_is_published_in_one_commit(lake: Lake, trips: str) -> None:
    before, rows = heads(lake)[0], count(lake, trips)
    with lake.gate("pyi", checks={"pyi.new": ["not_null(id)"]}) as gate, pyiceberg(gate.uri, gate) as catalog:
        catalog.create_namespace("pyi")
        new = catalog.create_table("pyi.new", ROWS.schema)
        new.append(ROWS)
        new.overwrite(ROWS)
        new.delete("id = 2")
        with new.update_schema() as change:
            change.add_column("extra", LongType())
            change.rename_column("name", "label")
        table = catalog.load_table(trips)
        table.append(table.scan(limit=2).to_arrow())
        with catalog.create_table_transaction("pyi.made", ROWS.schema) as made:
            made.append(ROWS)
        catalog.rename_table("pyi.made", "pyi.kept")
        catalog.create_table("pyi.gone", ROWS.schema)
        catalog.drop_table("pyi.gone")
        assert lake.gate.openings()[-1].branch == gate.branch
    run = gate.run
    assert (run.kind, run.name, run.status) == ("gate", "pyi", "published")
    assert set(run.tables) == {"pyi.new", "pyi.kept", trips}
    assert [report.table for report in run.reports if report.results] == ["pyi.new"]
    assert run.opening is not None
    assert ["PyIceberg" in writer for writer in run.opening.writers] == [True]
    assert heads(lake)[1] == before
    found = lake.query("SELECT id, label, extra FROM pyi.new ORDER BY id").to_arrow().to_pylist()
    assert found == [{"id": 1, "label": "a", "extra": None}, {"id": 3, "label": "c", "extra": None}]
    assert (count(lake, "pyi.kept"), count(lake, trips)) == (3, rows + 2)


def test_a_failing_check_keeps_the_branch_and_leaves_main_as_it_was(lake: Lake) -> None:
    before = heads(lake)
    with (
        pytest.raises(AuditFailedError, match=r"bad.rows: not_null\(name\) failed"),
        lake.gate("bad", checks={"bad.rows": ["not_null(name)", "unique(id)"]}) as gate,
        pyiceberg(gate.uri, gate) as catalog,
    ):
        catalog.create_namespace("bad")
        catalog.create_table("bad.rows", ROWS.schema).append(
            pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})
        )
    assert (gate.run.status, heads(lake)) == ("rejected", before)
    assert lake.table("bad.rows", ref=gate.branch).rows == 2
    with pytest.raises(NotFoundError):
        lake.table("bad.rows")


def test_duckdb_writes_and_it_is_published(lake: Lake, trips: str) -> None:
    rows = count(lake, trips)
    with lake.gate("duck") as gate, duck(gate.uri, gate) as connection:
        for statement in (
            "CREATE SCHEMA gate.duck",
            "CREATE TABLE gate.duck.t (id BIGINT, name VARCHAR)",
            "INSERT INTO gate.duck.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "CREATE TABLE gate.duck.copy AS SELECT * FROM gate.duck.t",
            "DELETE FROM gate.duck.t WHERE id = 2",
            "UPDATE gate.duck.t SET name = 'z' WHERE id = 3",
            "ALTER TABLE gate.duck.t ADD COLUMN extra INTEGER",
            f"INSERT INTO gate.{trips} SELECT * FROM gate.{trips} LIMIT 2",
            "BEGIN",
            "INSERT INTO gate.duck.t VALUES (7, 'q', 1)",
            "INSERT INTO gate.duck.copy VALUES (7, 'q')",
            "COMMIT",
        ):
            connection.execute(statement)
        written = connection.execute("SELECT id, name, extra FROM gate.duck.t ORDER BY id").fetchall()
        assert written == [(1, "a", None), (3, "z", None), (7, "q", 1)]
        with pytest.raises(duckdb.Error):
            connection.execute("CREATE VIEW gate.duck.v AS SELECT 1 AS a")
    assert gate.run.status == "published"
    assert [count(lake, table) for table in ("duck.t", "duck.copy", trips)] == [3, 4, rows + 2]


STATEMENTS = (
    "CREATE NAMESPACE sp",
    "CREATE TABLE sp.t (id BIGINT, day DATE, name STRING) PARTITIONED BY (months(day))",
    "INSERT INTO sp.t VALUES (1, DATE '2026-01-02', 'a'), (2, DATE '2026-02-02', 'b'), (3, NULL, 'c')",
    "UPDATE sp.t SET name = 'z' WHERE id = 1",
    "DELETE FROM sp.t WHERE id = 2",
    """MERGE INTO sp.t t USING (SELECT 3 AS id, 'm' AS name UNION ALL SELECT 9, 'n') s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET name = s.name
    WHEN NOT MATCHED THEN INSERT (id, day, name) VALUES (s.id, NULL, s.name)""",
    "ALTER TABLE sp.t ADD COLUMN extra INT",
    "ALTER TABLE sp.t RENAME COLUMN name TO label",
    "ALTER TABLE sp.t ADD PARTITION FIELD bucket(4, id)",
    "ALTER TABLE sp.t SET TBLPROPERTIES ('team' = 'data')",
    "CREATE OR REPLACE TABLE sp.again AS SELECT id, label FROM sp.t",
    "CREATE OR REPLACE TABLE sp.again AS SELECT id FROM sp.t WHERE id > 1",
    "CREATE TABLE sp.v3 (id BIGINT) TBLPROPERTIES ('format-version' = '3')",
    "INSERT INTO sp.v3 VALUES (1), (2), (3)",
    "DELETE FROM sp.v3 WHERE id = 2",
    "INSERT OVERWRITE sp.t SELECT * FROM sp.t",
    "CALL gate.system.rewrite_data_files('sp.t')",
    "ALTER TABLE sp.v3 RENAME TO sp.three",
    "CREATE TABLE sp.gone (id INT)",
    "DROP TABLE sp.gone",
    "INSERT INTO gated.trips SELECT * FROM gated.trips LIMIT 2",
)
REFUSED = {
    "ALTER TABLE sp.t CREATE BRANCH inner_one": "inside a table",
    "ALTER TABLE sp.t SET LOCATION 'file:///tmp/x'": "location can't be changed",
    "ALTER TABLE sp.t SET TBLPROPERTIES ('write.data.path' = 'file:///tmp/x')": "gate's to choose",
    "ALTER TABLE sp.t SET TBLPROPERTIES ('gc.enabled' = 'true')": "let writers delete",
    "ALTER TABLE gated.trips RENAME TO sp.trips": "published table",
    "CALL gate.system.expire_snapshots('sp.t')": "GC is disabled",
    "CALL gate.system.remove_orphan_files('sp.t')": "GC is disabled",
    "DROP TABLE sp.t PURGE": "GC is disabled",
    "CREATE VIEW sp.v AS SELECT 1 AS a": "(?i)view",
}


@pytest.mark.storage  # there, it has its requests signed, and its own credentials aren't used
def test_spark_writes_and_it_is_published(lake: Lake, trips: str, stack: StackState) -> None:
    rows = count(lake, trips)
    with lake.gate("spark") as gate, spark(gate.uri, gate, stack) as session:
        for statement in STATEMENTS:
            session.sql(statement).collect()
        for statement, message in REFUSED.items():
            with pytest.raises(Exception, match=message):
                session.sql(statement).collect()
        found = session.sql("SELECT id, label FROM sp.t ORDER BY id").collect()
        assert [tuple(row) for row in found] == [(1, "z"), (3, "m"), (9, "n")]
    assert gate.run.status == "published"
    assert [count(lake, table) for table in ("sp.t", "sp.again", "sp.three", trips)] == [3, 2, 2, rows + 2]


def test_three_engines_write_to_one_table_while_main_moves(
    lake: Lake, trips: str, stack: StackState, tmp_path: Path
) -> None:
    rows, each = count(lake, trips), 4
    with (
        lake.gate("three") as gate,
        pyiceberg(gate.uri, gate) as catalog,
        duck(gate.uri, gate) as connection,
        spark(gate.uri, gate, stack) as session,
    ):
        row = catalog.load_table(trips).scan(row_filter="id = 0", limit=1).to_arrow()

        def by_pyiceberg(number: int) -> None:
            given = row.set_column(0, row.schema.field("id"), pa.array([1000 + number], pa.int64()))
            catalog.load_table(trips).append(given)

        def by_duckdb(number: int) -> None:
            connection.execute(f"INSERT INTO gate.{trips} (id, passengers) VALUES ({2000 + number}, 1)")

        def by_spark(number: int) -> None:
            session.sql(f"INSERT INTO {trips} (id, passengers) VALUES ({3000 + number}, 1)").collect()

        def all_of(write: Callable[[int], None]) -> None:
            for number in range(each):
                write(number)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(all_of, (by_pyiceberg, by_duckdb, by_spark)))
        lake.ingest(trips, write_trips(tmp_path / "more.parquet", 3, start=5000))
    publication = gate.run.publication
    assert publication is not None
    assert list(publication.replayed) == [trips]
    found = lake.query(f"SELECT id FROM {trips} WHERE id >= 1000 ORDER BY id").to_arrow()["id"].to_pylist()
    assert found == [*(base + number for base in (1000, 2000, 3000) for number in range(each)), 5000, 5001, 5002]
    assert count(lake, trips) == rows + 3 * each + 3


def test_two_gates_know_the_same_openings(lake: Lake, components: Components, url: str) -> None:
    opened = lake.gate.open("two", checks={"two.rows": ["row_count(min=5)"]})
    with served(door(components)) as other, pyiceberg(url, opened) as here, pyiceberg(other, opened) as there:
        here.create_namespace("two")
        here.create_table("two.rows", ROWS.schema).append(ROWS)
        table = there.load_table("two.rows")
        table.append(ROWS)
        assert lake.gate.renew(opened.branch, open_for="1h").status == "created"
        assert lake.gate.seal(opened.branch).status == "published"
        for catalog in (here, there):
            with pytest.raises(ForbiddenError, match="sealed"):
                catalog.create_table("two.late", ROWS.schema)
        with pytest.raises(ForbiddenError, match="sealed"):
            table.append(ROWS)
    assert count(lake, "two.rows") == 6
    with pytest.raises(InputError, match="nobody"):
        lake.gate.open("two", checks={"two.rows": ["nobody"]})


@pytest.fixture
def cli(lake: Lake, home: Path) -> Cli:
    return Cli(home, {"LAKEGATE_JOURNAL_LEASE_S": "2"})


def gate_run(*command: str, name: str) -> tuple[str, ...]:
    return "gate", "run", "--name", name, "--branch", f"wap/{name}", "--", *command


def test_a_command_that_succeeds_publishes_and_one_that_fails_does_not(lake: Lake, cli: Cli) -> None:
    before = heads(lake)
    done = cli.run(*gate_run(sys.executable, "-c", WRITE.format("failed") + "sys.exit(7)", name="seven"))
    assert (done.returncode, "exited with 7" in done.stderr, heads(lake)) == (7, True, before)
    assert "diff main wap/seven" in done.stderr
    assert lake.table("job.failed", ref="wap/seven").rows == 2

    done = cli.run(*gate_run("true", name="nothing"))
    assert (done.returncode, heads(lake)) == (1, before), done.stderr
    assert "No table was changed on wap/nothing" in done.stdout
    assert "wap/nothing" not in [branch.name for branch in lake.branches.list()]

    checked = ("gate", "run", "--check", "job.done:unique(id)", "-o", "json")
    done = cli.run(*checked, "--", sys.executable, "-c", f"{WRITE.format('done')}print('said')")
    assert done.returncode == 0, done.stderr
    assert "said" in done.stderr
    run = json.loads(done.stdout)
    assert (run["status"], run["tables"], count(lake, "job.done")) == ("published", ["job.done"], 2)


def test_tests_of_dbt_that_fail_are_failed_checks(lake: Lake, cli: Cli, tmp_path: Path) -> None:
    """What dbt is told and what it leaves are real; dbt itself is run by ``make prove``."""
    (tmp_path / "dbt_project.yml").write_text("name: shop\nprofile: shop\n")
    (tmp_path / "profiles.yml").write_text("shop: {outputs: {dev: {type: duckdb, schema: job}}}\n")
    results = '{"results": [{"unique_id": "test.shop.few_rows.1a", "status": "fail", "failures": 2}]}'
    leaves = f"""
import os, pathlib
folder = pathlib.Path(os.environ["DBT_TARGET_PATH"])
folder.mkdir()
(folder / "run_results.json").write_text({results!r})
"""
    before, lines = heads(lake), WRITE.format("tested") + leaves
    here = Cli(
        home=cli.home, variables={**cli.variables, "DBT_PROJECT_DIR": str(tmp_path), "DBT_PROFILES_DIR": str(tmp_path)}
    )
    done = here.run("gate", "run", "--dbt", "--branch", "wap/tested", "--", sys.executable, "-c", lines)
    assert (done.returncode, heads(lake)) == (1, before), done.stderr
    assert "exited with 0: test few_rows: 2 rows failed" in done.stderr
    run = lake.gate.find("wap/tested")
    assert (run.status, run.error is not None and "test few_rows" in run.error.message) == ("failed", True)


def test_a_killed_gate_publishes_nothing_and_keeps_the_branch(lake: Lake, cli: Cli, tmp_path: Path) -> None:
    lake.recover()  # what other tests left may be published
    before, written = heads(lake), tmp_path / "written"
    script = WRITE.format("killed") + f"import time; open({str(written)!r}, 'x').close(); time.sleep(600)"
    process = cli.start(*gate_run(sys.executable, "-c", script, name="killed"))
    try:
        wait_until(written.exists, what="what the command writes", process=process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def recovered() -> bool:
        lake.recover()
        return lake.gate.find("wap/killed").finished_at is not None

    wait_until(recovered, what="its lease to end")
    run = lake.gate.find("wap/killed")
    assert (run.status, run.branch_kept, heads(lake)) == ("failed", True, before)
    assert lake.table("job.killed", ref="wap/killed").rows == 2
    assert cli.run("gate", "seal", "wap/killed").returncode == 2


def test_what_is_printed_to_be_pasted_works(
    lake: Lake, url: str, stack: StackState, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake.gate.open("pasted")
    monkeypatch.setenv("LAKEGATE_GATE_TOKEN", opened.token)
    snippet = partial(writer_snippet, uri=url, branch=opened.branch)

    names: dict[str, Any] = {}
    exec(snippet("pyiceberg"), names)  # noqa: S102 - as a user would
    with names["gate"] as catalog:
        catalog.create_namespace("pasted")
        catalog.create_table("pasted.rows", ROWS.schema).append(ROWS)

    sql = snippet("duckdb").replace("'…'", f"'{opened.token}'").replace("INSTALL iceberg; LOAD iceberg;", "")
    with duckdb_with_iceberg() as connection:
        connection.execute(f"{sql} INSERT INTO gate.pasted.rows VALUES (4, 'd')")

    lines = (line.split(maxsplit=1) for line in snippet("spark").replace("…", opened.token).splitlines()[1:])
    settings = {key: value for key, value in lines if key not in ("spark.jars.packages", "spark.sql.extensions")}
    session: Any = remote_sessions(stack.spark_url)(settings)
    try:
        session.sql("INSERT INTO pasted.rows VALUES (5, 'e')").collect()
    finally:
        end_session(session)

    assert lake.gate.seal(opened.run_id).status == "published"
    assert count(lake, "pasted.rows") == 5
