"""Statements of a transaction: what they read and write, and what is refused."""

from __future__ import annotations

import pytest

from lakegate.errors import QueryError
from lakegate.spark.statement import parse_statement, referenced_tables

_CASES = [
    ("SELECT * FROM a.t", "a.t", ""),
    ("TABLE a.t", "a.t", ""),
    ("SELECT * FROM a.`select`", "a.select", ""),
    ("INSERT INTO a.t TABLE b.s", "b.s", "a.t"),
    ("FROM a.t SELECT x", "a.t", ""),
    ("SELECT * FROM a.t; -- done", "a.t", ""),
    ("SELECT * FROM lakegate.a.t", "a.t", ""),
    ("SELECT * FROM a.b.c.d", "a.b.c.d", ""),
    ("SELECT * FROM a.t.files JOIN a.t.branch_main", "a.t.branch_main a.t.files", ""),
    ("SELECT * FROM lakegate.a.files", "a.files", ""),
    ("SELECT * FROM a.t VERSION AS OF 3", "a.t", ""),
    ("WITH c AS (SELECT * FROM a.t) SELECT * FROM C JOIN b.s USING (id)", "a.t b.s", ""),
    ("WITH c AS (SELECT 1), d AS (SELECT * FROM c) SELECT * FROM d WHERE x IN (SELECT y FROM c)", "", ""),
    ("SELECT * FROM (WITH c AS (SELECT * FROM a.t) SELECT * FROM c)", "a.t", ""),
    ("SELECT * FROM a.t x JOIN b.s y ON x.i = y.i LEFT ANTI JOIN c.u USING (i)", "a.t b.s c.u", ""),
    ("SELECT (SELECT max(x) FROM b.s) FROM a.t WHERE EXISTS (SELECT 1 FROM c.u)", "a.t b.s c.u", ""),
    ("(SELECT * FROM a.t) UNION ALL (SELECT * FROM b.s)", "a.t b.s", ""),
    ("SELECT /*+ BROADCAST(t) */ a.t.x FROM a.t", "a.t", ""),
    ("SELECT * FROM a.t LATERAL VIEW explode(xs) q AS x", "a.t", ""),
    ("SELECT 'FROM b.s', \"x.y\" FROM a.t -- b.s", "a.t", ""),
    ("INSERT INTO a.t VALUES (1)", "", "a.t"),
    ("INSERT INTO a.t (x, y) SELECT x, y FROM b.s", "b.s", "a.t"),
    ("INSERT INTO a.t SELECT * FROM a.t", "a.t", "a.t"),
    ("INSERT OVERWRITE a.t PARTITION (d = 'x') SELECT * FROM b.s", "b.s", "a.t"),
    ("WITH c AS (SELECT * FROM b.s) INSERT INTO a.t SELECT * FROM c", "b.s", "a.t"),
    ("MERGE INTO a.t USING b.s ON t.i = s.i WHEN MATCHED THEN DELETE", "a.t b.s", "a.t"),
    ("MERGE INTO a.t x USING (SELECT * FROM b.s) y ON x.i = y.i WHEN NOT MATCHED THEN INSERT *", "a.t b.s", "a.t"),
    ("UPDATE a.t SET x = 1 WHERE y IN (SELECT y FROM b.s)", "a.t b.s", "a.t"),
    ("DELETE FROM a.t AS z WHERE EXISTS (SELECT 1 FROM b.s WHERE s.i = z.i)", "a.t b.s", "a.t"),
    ("DELETE FROM a.t", "a.t", "a.t"),
    ("CREATE TABLE a.t (location string, x int) USING iceberg PARTITIONED BY (days(x))", "", "a.t"),
    ("CREATE TABLE IF NOT EXISTS a.t USING iceberg AS SELECT * FROM b.s", "b.s", "a.t"),
    ("DROP TABLE IF EXISTS a.t", "", "a.t"),
    ("ALTER TABLE a.t ADD COLUMN location string", "", "a.t"),
    ("alter table lakegate.a.`t` add partition field days(x);", "", "a.t"),
    ("ALTER TABLE a.t RENAME COLUMN x TO y", "", "a.t"),
    ("ALTER TABLE a.t SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')", "", "a.t"),
]


@pytest.mark.parametrize(("sql", "read", "written"), _CASES)
def test_a_statement_tells_which_tables_it_reads_and_writes(sql: str, read: str, written: str) -> None:
    statement = parse_statement(sql)
    assert sorted(map(str, statement.read)) == read.split()
    assert sorted(map(str, statement.written)) == written.split()


def test_only_create_table_creates() -> None:
    assert sorted(map(str, parse_statement("CREATE TABLE a.t AS SELECT * FROM b.s").created)) == ["a.t"]
    assert not parse_statement("INSERT INTO a.t SELECT * FROM b.s").created


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "ALTER TABLE a.t ADD COLUMN x int; DROP TABLE a.t",
        "USE a",
        "SET spark.sql.x = 1",
        "CALL system.rollback_to_snapshot('a.t', 1)",
        "TRUNCATE TABLE a.t",
        "EXPLAIN SELECT * FROM a.t",
        "DESCRIBE a.t",
        "EXECUTE IMMEDIATE 'DROP TABLE a.t'",
        "LOAD DATA INPATH 'x' INTO TABLE a.t",
        "FROM a.t INSERT INTO b.s SELECT 1 INSERT INTO b.u SELECT 2",
        "INSERT OVERWRITE DIRECTORY '/x' SELECT 1",
        "INSERT INTO IDENTIFIER('a.t') SELECT 1",
        "CREATE VIEW a.v AS SELECT 1",
        "CREATE NAMESPACE x",
        "DROP TABLE a.t PURGE",
        "CREATE TABLE a.t (x int) LOCATION '/x'",
        "CREATE TABLE a.t (x int) TBLPROPERTIES ('a' = 1, 'location' = '/x')",
        "CREATE TABLE a.t (x int) TBLPROPERTIES (write.data.path '/x')",
        "CREATE TABLE a.t (x int) OPTIONS (path '/x')",
        "ALTER TABLE a.t SET TBLPROPERTIES (write.data.path '/x')",
        "ALTER TABLE a.t SET TBLPROPERTIES ('a' 'b', 'Location' 'c')",
        "ALTER TABLE a.t SET LOCATION '/x'",
        "ALTER TABLE a.t SET TBLPROPERTIES ('current-snapshot-id' = '1')",
        "ALTER TABLE a.t SET TBLPROPERTIES (gc.enabled = true)",
        "ALTER TABLE a.t UNSET TBLPROPERTIES IF EXISTS ('gc.enabled')",
        "CREATE TABLE a.t (x int) TBLPROPERTIES ('gc.enabled' = 'true')",
        "CREATE TABLE a.t TBLPROPERTIES ('nessie.commit.id' = 'c0ffee') AS SELECT 1 AS x",
        "ALTER TABLE a.t SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')",
        "ALTER TABLE a.t RENAME TO a.s",
        "ALTER TABLE a.t CREATE BRANCH b",
        "ALTER TABLE a.t SET TBLPROPERTIES ('a'",
        "ALTER TABLE",
        "ALTER TABLE t ADD COLUMN x int",
        "ALTER TABLE a.`t@main` ADD COLUMN x int",
    ],
)
def test_what_a_transaction_does_not_run(sql: str) -> None:
    with pytest.raises(QueryError):
        parse_statement(sql)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM t", "'t' lacks a namespace"),
        ("WITH c AS (SELECT * FROM t) SELECT * FROM c", "'t' lacks a namespace"),
        ("SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c) JOIN c", "'c' lacks a namespace"),
        ("SELECT * FROM a.`t@main`", "names a reference"),
        ("INSERT INTO a.`t@main` SELECT 1", "names a reference"),
        ("MERGE INTO a.t USING a.`t@main` s ON t.i = s.i WHEN MATCHED THEN DELETE", "names a reference"),
        ("SELECT * FROM spark_catalog.a.t", "another catalog"),
        ("DROP TABLE other.t", "another catalog"),
        ("SELECT * FROM IDENTIFIER('a.t')", "IDENTIFIER"),
        ("SELECT * FROM a.`t.s`", "contains a '.'"),
    ],
)
def test_names_of_anything_but_the_branchs_tables_are_refused(sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said.replace("(", r"\(")):
        parse_statement(sql, ["other", "lakegate"])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM a.t WHERE x = 1 OR y = 2;", "DELETE FROM a.t WHERE (x = 1 OR y = 2) AND {once}"),
        ("DELETE FROM a.t z", "INSERT OVERWRITE `lakegate`.`a`.`t` SELECT * FROM `lakegate`.`a`.`t` WHERE false"),
        (
            "WITH c AS (SELECT 1 WHERE true) DELETE FROM a.t WHERE i IN (SELECT i FROM c WHERE i = 1) -- x",
            "WITH c AS (SELECT 1 WHERE true) DELETE FROM a.t WHERE (i IN (SELECT i FROM c WHERE i = 1)) AND {once}",
        ),
        ("DELETE FROM a.t WHERE v = 'WHERE ;'", "DELETE FROM a.t WHERE (v = 'WHERE ;') AND {once}"),
    ],
)
def test_a_delete_is_put_so_that_its_snapshot_carries_the_run(sql: str, expected: str) -> None:
    assert parse_statement(sql).sql == expected.format(once="(SELECT count(*) FROM range(1)) = 1")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("update a.t set x = 'ä --' where y=1 -- why", "update a.t set x = 'ä --' where y=1"),
        ("INSERT/**/INTO a.t\n-- one\nSELECT r'\\', 'it''s \\' ;'", "INSERT INTO a.t\n\nSELECT r'\\', 'it''s \\' ;'"),
        ("SELECT * FROM a.t -- all", "(SELECT * FROM a.t)"),
    ],
)
def test_what_runs_is_what_was_checked_without_its_comments(sql: str, expected: str) -> None:
    assert parse_statement(sql).sql == expected


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT TRANSFORM(x) USING 'cat' FROM a.t", "can't run a program"),
        ('INSERT INTO a.t SELECT MAP x USING /**/ "cat" FROM a.t', "can't run a program"),
        ("SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 1)", "IDENTIFIER"),
        ("SELECT `reflect`('java.lang.System', 'exit', 1)", "runs code inside Spark"),
        ("ALTER TABLE a.t SET TBLPROPERTIES ('loca\\u0074ion' = '/x')", "Can't read the table property"),
        ("CREATE TABLE a.t (x int) TBLPROPERTIES ('loca' 'tion' = '/x')", "Can't read the table property"),
        ("MERGE INTO a.t USING (TABLE b.`s@main`) s ON t.i = s.i WHEN MATCHED THEN DELETE", "TABLE at line 1"),
        ("CREATE TABLE a.t AS TABLE b.s", "TABLE at line 1"),
        ("CREATE TABLE a.t (x int) TBLPROPERTIES ('loca''tion' = '/x')", "Can't read the table property"),
    ],
)
def test_attacks_are_refused_in_plain_words(sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said.replace("(", r"\(")) as caught:
        parse_statement(sql)
    assert "Token" not in caught.value.message


@pytest.mark.parametrize("before", ["ALTER TABLE a.t SET TBLPROPERTIES", "CREATE TABLE a.t (x int) OPTIONS"])
@pytest.mark.parametrize(
    "written",
    [
        "'write.metadata.delete-after-commit.enabled' true",
        "'write.metadata.delete-after-commit.enabled' 'true'",
        "write.metadata.`delete-after-commit`.enabled true",
        "'a' = 'b', 'gc.enabled' true",
        "'a' true, 'gc.enabled' = true",
        "'a' = concat('b', 'c'), 'gc.enabled' = true",
        "'a' = f[(1, 2)], gc.enabled = true",
        "'current-snapshot-id' 123456",
        "`cherry-pick-snapshot-id` = 1",
    ],
)
def test_a_property_is_read_as_spark_reads_it(before: str, written: str) -> None:
    with pytest.raises(QueryError, match=r"can't set the table property|Can't read the table property"):
        parse_statement(f"{before} ({written})")


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE a.t SET TBLPROPERTIES ('a' = 'b', c.d = 1, \"e\" = true, `f g` = 1.5)",
        "ALTER TABLE a.t UNSET TBLPROPERTIES IF EXISTS ('a', c.d)",
        "CREATE TABLE a.t (options string) OPTIONS ('a' = concat('x', 'y'), b = 2) TBLPROPERTIES ('c' = 'd')",
    ],
)
def test_other_properties_are_set(sql: str) -> None:
    assert parse_statement(sql).sql == sql


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM nyc.trips.snapshots", ("nyc.trips", "nyc.trips.snapshots")),
        ("SELECT * FROM spark_catalog.a.b JOIN lakegate.nyc.trips", ("nyc.trips",)),
        ("SELECT * FROM a.files", ("a.files",)),
        ("SELECT * FROM nyc.`trips@main`", None),
        ("SELECT * FROM a_view", None),
        ("SELECT * FROM IDENTIFIER('nyc.trips')", None),
    ],
)
def test_what_a_query_reads_is_told_for_sure_or_not_at_all(sql: str, tables: tuple[str, ...] | None) -> None:
    assert referenced_tables(sql) == tables


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("MERGE WITH SCHEMA EVOLUTION INTO a.b USING c.d ON b.id = d.id WHEN MATCHED THEN DELETE", "sqlglot"),
        ("INSERT WITH SCHEMA EVOLUTION INTO a.b SELECT * FROM c.d", "sqlglot"),
        ("SELECT * FROM a.b |> UNION ALL SELECT * FROM c.d", "in parentheses"),
    ],
)
def test_who_writes_what_cannot_be_run_is_told_what_to_write_instead(sql: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_statement(sql)
    assert said in (caught.value.hint or "")
