"""Queries of users: the text that runs can only read, and valid Spark SQL is not refused."""

from __future__ import annotations

import pytest

from lakegate.errors import QueryError
from lakegate.spark.guard import query_text


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "(SELECT 1)"),
        ("TABLE nyc.trips", "(TABLE nyc.trips)"),
        ("SELECT * FROM nyc.`select`", "(SELECT * FROM nyc.`select`)"),
        ("FROM nyc.trips |> WHERE fare < 0", "(FROM nyc.trips |> WHERE fare < 0)"),
        ("with a as (select 1) select * from a ; -- done", "(with a as (select 1) select * from a)"),
        ("SELECT /*+ BROADCAST(t) */ 1 /* /* in */ out */ + 1", "(SELECT /*+ BROADCAST(t) */ 1 + 1)"),
        ("-- why\nSELECT 1\n/* a\nb */+ 2", "(\nSELECT 1\n\n+ 2)"),
        ("SELECT 1--x\r\n+ 1", "(SELECT 1\n+ 1)"),
        ("SELECT 'a -- b /* c ; '' \\' d', \"-- ' \"", "(SELECT 'a -- b /* c ; '' \\' d', \"-- ' \")"),
        ("SELECT r'\\', R\"\\\"", "(SELECT r'\\', R\"\\\")"),
        ("SELECT `a``b -- ;`, 1.5e-3, x.y[0], -1, transform(xs, x -> x + 1)",) * 2,
        ("SELECT '${x}', été FROM a.b\u00a0c", "(SELECT '${x}', été FROM a.b c)"),
        ("SHOW TABLES IN nyc -- all", "SHOW TABLES IN nyc"),
        ("EXPLAIN SELECT from_xml(x, 'a')", "EXPLAIN (SELECT from_xml(x, 'a'))"),
        ("-- \\\nSELECT 1 -- C:\\\nFROM nyc.trips", "(\nSELECT 1\nFROM nyc.trips)"),
        ("explain formatted TABLE nyc.trips", "explain formatted (TABLE nyc.trips)"),
    ],
)
def test_a_query_runs_in_parentheses_and_without_comments(sql: str, expected: str) -> None:
    assert query_text(sql) == (f"({expected})" if expected == sql and "``" in sql else expected)


_BY_COMMENT = (
    ("-- \\\nSELECT /*\nDELETE FROM nyc.trips -- */ 1\n; DROP TABLE a.b", "more than one statement"),
    ("SELECT 1 /* /* */", "never closed"),
    ("SELECT 2 */ 3", "lakegate can't read it"),
    ("SELECT 'a", "never closed"),
    ("SELECT\n  `a", "never closed"),
    ("SELECT a://b--c\n", "lakegate can't read it near ':'"),
    ("SELECT ${spark.x}", "lakegate can't read it"),
    ("SELECT a\\b", "lakegate can't read it"),
    ("SELECT '\ud800'", "isn't valid Unicode"),
    ("SELECT 1) UNION (SELECT 2", "')' at line 1, column 9 closes nothing"),
    ("SELECT (1", "'(' at line 1, column 8 is never closed"),
    ("SELECT 1; DROP TABLE nyc.trips", "more than one statement"),
)
_BY_STATEMENT = (
    ("", "is empty"),
    ("-- nothing", "is empty"),
    ("selec 1", "can't start with 'selec'"),
    ("drop table nyc.trips", "this is a DROP statement"),
    ("ALTER TABLE nyc.trips ADD COLUMN x int", "this is an ALTER statement"),
    ("with a as (select 1) insert into t select * from a", "INSERT"),
    ("merge into t using s on t.a = s.a when matched then delete", "MERGE"),
    ("BEGIN DELETE FROM t; END", "more than one statement"),
    ("EXECUTE IMMEDIATE 'DROP TABLE t'", "can't start with 'EXECUTE'"),
    ("EXPLAIN DELETE FROM t", "DELETE"),
    ("SELECT from_xml(x, 'a INT', map('RowValidationXsdPath', '/x')) FROM t", "with options"),
    ("SELECT from_xml(x, 'a INT', map(concat('rowValidation', 'XSDPath'), '/x')) FROM t", "with options"),
    ("SELECT `schema_of_xml`(x, map('row' 'ValidationXSDPath', '/x')) FROM t", "with options"),
    ("SELECT * FROM nyc.`trips@main`", "names a reference"),
    ("SELECT * FROM a.b WHERE x IN (TABLE c.d)", "TABLE at line 1, column 31 isn't supported"),
    ("EXPLAIN EXTENDED", "EXPLAIN needs a query"),
    ("SELECT TRANSFORM(id) USING 'bash -c env' FROM nyc.trips", "can't run a program"),
    ('SELECT * FROM (MAP id USING /* x */ "cat" FROM nyc.trips)', "can't run a program"),
    ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "runs code inside Spark"),
    ("select * from t where `Try_Reflect` ('x', 'y', a) = java_method('x', 'y')", "runs code inside Spark"),
    ("SELECT xpath_string(x, 'a') FROM t", "opens files and addresses that its XML names"),
    ("SELECT IDENTIFIER('ref' || 'lect')('x', 'y')", "IDENTIFIER() (line 1, column 8)"),
)


@pytest.mark.parametrize(("sql", "said"), [*_BY_COMMENT, *_BY_STATEMENT])
def test_what_is_no_plain_query_is_refused_in_plain_words(sql: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        query_text(sql)
    assert said in caught.value.message
    assert "Token" not in caught.value.message


@pytest.mark.parametrize(
    ("sql", "command"),
    [
        ("DROP TABLE nyc.trips", "lakegate table drop TABLE"),
        ("DELETE FROM nyc.trips", "lakegate table delete TABLE --where"),
        ("TRUNCATE TABLE nyc.trips", "lakegate table truncate TABLE"),
        ("ALTER TABLE nyc.trips ADD COLUMN a INT", "lakegate table evolve TABLE"),
    ],
)
def test_a_statement_that_a_command_stands_for_names_it(sql: str, command: str) -> None:
    with pytest.raises(QueryError) as refused:
        query_text(sql)
    assert command in (refused.value.hint or "")
