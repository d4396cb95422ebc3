"""Checks that take a query: ``custom_sql`` can read the batch, and nothing else; lakegate's own name its columns."""

from __future__ import annotations

import pytest

from lakegate.checks import custom_sql, parse_check, validate_checks
from lakegate.checks.predicates import read_query
from lakegate.checks.questions import QueryRows
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.schema import Column, Schema

SCHEMA = Schema(
    columns=(
        Column(name="id", type="long"),
        Column(name="till", type="long"),
        Column(name="Zone", type="string"),
        Column(name="contact", type="struct<zip: string, tags: map<string, int>>"),
    )
)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM batch",
        "(SELECT v, count(*) FROM Batch GROUP BY v HAVING count(*) > 1)",
        "WITH x AS (SELECT id FROM batch), y AS (SELECT * FROM x) SELECT * FROM y JOIN batch USING (id)",
        "SELECT * FROM batch a JOIN batch b ON a.id = b.id WHERE EXISTS (SELECT 1 FROM batch c WHERE c.id = a.id)",
        "SELECT * FROM batch LATERAL VIEW explode(items) t",
    ],
)
def test_a_query_over_the_batch_is_read(query: str) -> None:
    assert read_query(query, "batch") == query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM nyc.trips",
        "FROM nyc.trips SELECT *",
        "SELECT * FROM batch, other",
        "SELECT * FROM batch WHERE id IN (SELECT id FROM nyc.trips)",
        "WITH batch AS (SELECT * FROM nyc.trips) SELECT * FROM batch",
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1 FROM batch) SELECT * FROM a",
        "SELECT * FROM t WHERE id IN (WITH t AS (SELECT 1 FROM batch) SELECT * FROM t)",
        "SELECT * FROM parquet.`/tmp/x`",
        "SELECT * FROM range(5)",
        "SELECT * FROM IDENTIFIER('nyc.trips')",
        "SELECT * FROM (TABLE t)",
        "TABLE t",
        "SELECT java_method('a', 'b') FROM batch",
        "SELECT TRANSFORM (a) USING 'sh' FROM batch",
        "SELECT 1 FROM batch; DROP TABLE t",
        "SELECT 1 FROM batch -- x",
        "SELECT '${env:HOME}' FROM batch",
        "INSERT INTO batch SELECT 1",
        "DESCRIBE batch",
        "",
    ],
)
def test_anything_else_is_refused_when_the_check_is_read(query: str) -> None:
    with pytest.raises(CheckError, match="custom_sql: the query"):
        custom_sql(query)


def asked(text: str, schema: Schema = SCHEMA) -> QueryRows:
    (check,) = validate_checks([parse_check(text)], schema)
    question = find_check(check.kind).ask(check, schema)
    assert isinstance(question, QueryRows)
    return question


@pytest.mark.parametrize("text", ["sequential_values(id, {})", "mutually_exclusive_ranges(id, till, {})"])
def test_columns_to_group_by_are_found_as_others_are(text: str) -> None:
    assert "PARTITION BY `Zone` ORDER" in asked(text.format("partition_by=zone")).sql
    grouped = text.format("partition_by=['ZONE', 'contact.Zip', 'zone']")
    assert "PARTITION BY `Zone`, `contact`.`zip` ORDER" in asked(grouped).sql
    (check,) = validate_checks([parse_check(grouped)], SCHEMA)
    assert check.arguments["partition_by"] == ["Zone", "contact.zip"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("nope", "there is no column 'nope'"),
        ("contact.city", "there is no column 'contact.city'"),
        ("contact.tags", "'contact.tags' is of type map<string, int>, whose values cannot be compared"),
    ],
)
def test_columns_that_cannot_be_grouped_by_are_refused_before_anything_is_read(given: str, problem: str) -> None:
    with pytest.raises(CheckError) as caught:
        asked(f"sequential_values(id, partition_by='{given}')")
    assert problem in caught.value.message
