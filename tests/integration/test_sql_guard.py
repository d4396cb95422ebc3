"""SQL that users type, on real Spark and Nessie: nothing valid is refused, and nothing that is run can do harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import QueryError
from lakegate.lake import Lake
from lakegate.spark.sessions import CATALOG

pytestmark = pytest.mark.jvm

_SECRET = "a-secret-in-a-file"
_VALID = (
    ("TABLE {t}", 3),
    ("VALUES (1), (2)", 2),
    ("FROM {t} |> WHERE id > 1 |> SELECT id", 2),
    ("WITH a AS (SELECT id FROM {t}) SELECT * FROM a ORDER BY id DESC LIMIT 2;", 2),
    ("(SELECT id FROM {t}) UNION ALL (SELECT id FROM {s})", 5),
    ("SELECT * FROM {s} -- one table called `select`\n", 2),
    ("SELECT id, row_number() OVER (PARTITION BY name ORDER BY id) AS n FROM {t}", 3),
    ("SELECT id, x FROM {t} LATERAL VIEW explode(xs) q AS x", 4),
    ("SELECT * FROM (SELECT name, id FROM {t}) PIVOT (sum(id) FOR name IN ('a', 'b'))", 1),
    ("SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR k IN (a, b))", 2),
    ("SELECT count(*) FROM {t} TABLESAMPLE (100 PERCENT)", 1),
    ("SELECT name, count(*) FROM {t} GROUP BY GROUPING SETS ((name), ())", 4),
    ("SELECT transform(xs, x -> x + 1), filter(xs, (x, i) -> i = 0), aggregate(xs, 0L, (a, x) -> a + x) FROM {t}", 3),
    ("SELECT point.x, point['y'], xs[0], INTERVAL '1' DAY, DATE'2026-01-31', X'1F', 1.5e-3, 1L FROM {t}", 3),
    ("SELECT a.id FROM {t} a JOIN {t} b USING (id) LEFT ANTI JOIN {s} c ON a.id = c.id + 100", 3),
    ("SELECT /*+ REPARTITION(2) */ id /* a /* nested */ comment */ FROM {t} -- and one more; C:\\temp", 3),
    ("SELECT '-- no /* comment ; ', 'it''s', 'a\\'b', r'\\', \"x\", '${{spark.app.name}}'", 1),
    ("SELECT 1 AS a, 2 AS a ORDER BY 1 LIMIT 1", 1),
    ("SELECT * FROM range(3) t(n) WHERE n RLIKE '^[0-1]$' AND n IS DISTINCT FROM 7", 2),
    ("SELECT count(*) FROM {t}.files", 1),
    ("SELECT if(id > 1, 'x', 'y') AS `or``der`, CASE WHEN id = 1 THEN 2 END FROM {t}", 3),
    ("SHOW TABLES IN {n}", 2),
    ("DESCRIBE TABLE {t}", None),
    ("DESC QUERY SELECT 1 AS a", 1),
    ("EXPLAIN FORMATTED SELECT * FROM {t} /* why */", 1),
)
_CHANGES = (
    "DELETE FROM {t}",
    "DELETE FROM {t} WHERE id = 1",
    "UPDATE {t} SET id = 9",
    "INSERT INTO {t} SELECT * FROM {t}",
    "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE false",
    "MERGE INTO {t} USING (SELECT 1 AS i) s ON id = i WHEN MATCHED THEN DELETE",
    "ALTER TABLE {t} ADD COLUMN more int",
    "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "ALTER TABLE {t} CREATE BRANCH b",
    "CREATE OR REPLACE TABLE {t} AS SELECT 1 AS x",
    "CREATE TABLE {n}.made AS SELECT 1 AS x",
    "DROP TABLE {t}",
    "CREATE NAMESPACE {n}.more",
    "CALL lakegate.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "CALL lakegate.system.set_current_snapshot('{t}', 1)",
    "BEGIN DELETE FROM {t}; END",
    "EXECUTE IMMEDIATE 'DELETE FROM {t}'",
    "FROM {t} INSERT INTO {t} SELECT *",
    "WITH a AS (SELECT * FROM {t}) INSERT INTO {t} SELECT * FROM a",
    "INSERT OVERWRITE DIRECTORY '{out}' USING parquet SELECT 1 AS x",
    "INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 1 AS x",
    "CREATE TABLE spark_catalog.default.{n} USING json LOCATION '{out}' AS SELECT 1 AS x",
)
_READS = (
    "SELECT * FROM text.`{file}`",
    "SELECT * FROM csv.`{file}`",
    "SELECT * FROM json.`file://{file}`",
    "SELECT * FROM binaryFile.`{file}`",
    "SELECT * FROM `TEXT` . /* x */ `{file}`",
    "SELECT * FROM (WITH a AS (SELECT * FROM text.`{file}`) SELECT * FROM a)",
)
_RUNS = (
    "SELECT TRANSFORM(id) USING 'touch {out}' FROM {t}",
    'SELECT * FROM (MAP id USING "touch {out}" FROM {t})',
    "SELECT reflect('java.lang.System', 'getenv', 'SPARK_CONNECT_AUTHENTICATE_TOKEN')",
    "SELECT IDENTIFIER('java_' || 'method')('java.lang.System', 'getenv', 'HOME')",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '{file}'))",
    "SELECT schema_of_xml('<a/>', map(concat('rowValidation', 'XSDPath'), '{file}'))",
    "ADD JAR '{file}'",
    "SET spark.sql.runSQLOnFiles = true",
)


@pytest.fixture(scope="module")
def names(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A lake with two tables, one called ``select``, that nobody changes; and a file that is nobody's business."""
    folder, namespace = tmp_path_factory.mktemp("guard"), "sql_guard"
    points = pa.array([{"x": 1, "y": 2}] * 3)
    rows = pa.table({"id": [1, 2, 3], "name": list("abc"), "xs": [[1, 2], [3], [4]], "point": points})
    pq.write_table(rows, folder / "t.parquet")
    pq.write_table(pa.table({"id": [1, 2]}), folder / "s.parquet")
    lake.ingest(f"{namespace}.t", folder / "t.parquet")
    lake.ingest(f"{namespace}.select", folder / "s.parquet")
    (folder / "secret.txt").write_text(_SECRET)
    return {
        "n": namespace,
        "t": f"{namespace}.t",
        "s": f"{namespace}.`select`",
        "file": str(folder / "secret.txt"),
        "out": str(folder / "out"),
    }


@contextmanager
def harmless(lake: Lake, names: dict[str, str], said: str) -> Iterator[None]:
    before = lake.branches.list()
    yield
    assert lake.branches.list() == before, f"a reference moved: {said}"
    assert not Path(names["out"]).exists(), f"something was written, or a program ran: {said}"


def disguised(sql: str) -> list[str]:
    """Return a statement plain, and hidden behind comments that Spark and others read in different ways."""
    return [sql, f"/* /* */ SELECT 1 -- */ */ {sql}", f"SELECT 1 /* '*/; {sql} -- '"]


def test_valid_queries_are_run(lake: Lake, names: dict[str, str]) -> None:
    wrong = {}
    for text, rows in _VALID:
        sql = text.format(**names)
        try:
            found = lake.query(sql).to_arrow().num_rows
        except QueryError as error:
            wrong[sql] = error.message
        else:
            if rows is not None and rows != found:
                wrong[sql] = f"{found} rows, {rows} are right"
    assert not wrong
    ordered = lake.query(f"SELECT id FROM {names['t']} ORDER BY id DESC").to_arrow()["id"].to_pylist()
    assert ordered == [3, 2, 1]


def test_other_statements_are_refused_and_do_no_harm(lake: Lake, names: dict[str, str], namespace: str) -> None:
    head = lake.branches.list()
    for text in (*_CHANGES, *_READS, *_RUNS):
        for sql in disguised(text.format(**names)):
            with pytest.raises(QueryError) as caught:
                lake.query(sql)
            assert _SECRET not in str(caught.value)
    assert lake.branches.list() == head
    elsewhere = ("DELETE FROM {n}.`t@main`", "SELECT * FROM {n}.`t@main`", "INSERT INTO {n}.`t@main` TABLE {t}")
    with lake.transaction() as tx:
        tx.sql(f"CREATE TABLE {namespace}.made AS SELECT * FROM {names['s']}")
        for text in (*_READS, *_RUNS, *_CHANGES[12:18], *_CHANGES[19:], *elsewhere):
            with harmless(lake, names, text):
                for sql in disguised(text.format(**names)):
                    with pytest.raises(QueryError):
                        tx.sql(sql)
    assert lake.table(f"{namespace}.made").rows == 2
    assert (lake.table(names["t"]).rows, lake.table(f"{names['n']}.select").rows) == (3, 2)


def test_the_session_of_a_query_cannot_write_whatever_it_is_sent(lake: Lake, names: dict[str, str]) -> None:
    """As if the guard had a hole: statements go to Spark as they are."""
    tag = lake.branches.create("looked-at-by-the-guard").name
    for options, tried in (({}, (*_CHANGES, *_READS)), ({"ref": tag}, _CHANGES[:2])):
        session = lake.query("SELECT 1", **options).dataframe.sparkSession
        assert session.conf.get(f"spark.sql.catalog.{CATALOG}.cache-enabled") == "true"
        for text in tried:
            sql = text.format(**names)
            with harmless(lake, names, sql):
                found = None
                with suppress(Exception):
                    found = session.sql(sql).toArrow()
                assert found is None or found.num_rows == 0 or "rewrite" in sql, sql
    assert lake.query(f"SELECT sum(id) AS n FROM {names['t']}").to_arrow()["n"].to_pylist() == [6]
    lake.branches.delete(tag)


def test_wide_tables_and_strange_names_can_be_queried_and_changed(lake: Lake, namespace: str, tmp_path: Path) -> None:
    columns = ["a]b", "x] lakegate.n.`t@main`", "two\nlines", "RelationV2[", "at@sign", *(f"c{n}" for n in range(60))]
    pq.write_table(pa.table({name: pa.array([1, 2], pa.int64()) for name in columns}), tmp_path / "w.parquet")
    table = f"{namespace}.`wide-table`"
    lake.ingest(f"{namespace}.wide-table", tmp_path / "w.parquet")
    snapshot = lake.table(f"{namespace}.wide-table").snapshots()[-1].snapshot_id
    for sql in (
        f"SELECT * FROM {table}",
        f"SELECT `at@sign` AS `x@y`, 'RelationV2[a] z@y' FROM {table}",
        f"SELECT * FROM {table} VERSION AS OF {snapshot}",
        f"SELECT * FROM {table} FOR SYSTEM_TIME AS OF current_timestamp()",
        f"WITH a AS (SELECT * FROM {table}) SELECT a.*, (SELECT max(c1) FROM {table}) FROM a",
    ):
        assert lake.query(sql).to_arrow().num_rows == 2, sql
    with lake.transaction() as tx:
        tx.sql(f"DELETE FROM {table} WHERE `at@sign` = 1 AND 'a\n@b' <> 'ScriptTransformation'")
        tx.sql(f"UPDATE {table} SET `a]b` = 7")
        tx.sql(f"ALTER TABLE {table} ADD COLUMN `new@one` int")
        parted = f"{namespace}.parted"
        tx.sql(f"CREATE TABLE {parted} (id bigint, day date) PARTITIONED BY (day)")
        tx.sql(f"INSERT OVERWRITE {parted} PARTITION (day = '2024-01-01') SELECT 1")
        tx.sql(f"ALTER TABLE {parted} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        tx.sql(f"DELETE FROM {parted} WHERE id = 5")
        tx.sql(f"ALTER TABLE {parted} ADD PARTITION FIELD bucket(4, id)")
        tx.sql(f"ALTER TABLE {parted} WRITE ORDERED BY id")
        tx.sql(f"DROP TABLE IF EXISTS {namespace}.absent")
    assert lake.query(f"SELECT `a]b` AS n FROM {table}").to_arrow()["n"].to_pylist() == [7]


def test_a_query_keeps_to_its_commit_and_the_next_sees_what_was_published(
    lake: Lake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.t"
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "t.parquet")
    lake.ingest(table, tmp_path / "t.parquet")
    before = lake.query(f"SELECT sum(id) AS n FROM {table}")
    with lake.transaction() as tx:
        tx.sql(f"DELETE FROM {table} WHERE id = 3")
    after = lake.query(f"SELECT sum(id) AS n FROM {table}")
    assert [one.to_arrow()["n"].to_pylist() for one in (before, after)] == [[6], [3]]
    with pytest.raises(QueryError, match=r"near 'x'.*\(line 2\)"):
        lake.query("SELECT 1 -- one\nFORM x")
