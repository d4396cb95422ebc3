"""Checks that take a query: ``custom_sql`` can read the batch, and nothing else; lakegate's own name its columns."""

from __future__ import annotations

import pytest

from lakegate.checks import custom_sql, parse_check, parse_checks, validate_checks
from lakegate.checks.audit import answer_from_manifest
from lakegate.checks.predicates import read_query
from lakegate.checks.questions import QueryRows
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles

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
        "SELECT (TABLE t) FROM batch",
        "WITH o AS (TABLE t) SELECT * FROM batch ANTI JOIN o USING (id)",
        "SELECT 1 FROM batch HAVING (table t) > 3",
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
        ("contact.tags", "'contact.tags' is of type map<string, int>, whose values can't be compared"),
    ],
)
def test_columns_that_cannot_be_grouped_by_are_refused_before_anything_is_read(given: str, problem: str) -> None:
    with pytest.raises(CheckError) as caught:
        asked(f"sequential_values(id, partition_by='{given}')")
    assert problem in caught.value.message


def test_a_query_is_run_over_no_rows_too() -> None:
    definition, schema = find_check("custom_sql"), Schema(columns=(Column(name="id", type="long"),))
    question = definition.ask(custom_sql("SELECT 1 FROM batch HAVING count(*) < 100"), schema)
    assert answer_from_manifest(question, AddedFiles(files=(), complete=True)) is None


@pytest.mark.parametrize(
    ("left", "right", "refused"),
    [
        ("decimal(38, 0)", "decimal(38, 18)", True),
        ("decimal(20, 0)", "decimal(38, 18)", False),
        ("long", "decimal(38, 30)", True),
        ("long", "int", False),
        ("date", "date", False),
    ],
)
@pytest.mark.parametrize("text", ["column_pair_greater(a, b)", "mutually_exclusive_ranges(a, b)"])
def test_columns_that_spark_would_round_are_not_compared(left: str, right: str, text: str, *, refused: bool) -> None:
    schema = Schema(columns=(Column(name="a", type=left), Column(name="b", type=right)))
    try:
        validate_checks(parse_checks(text), schema, lambda _: None)
        is_refused = False
    except CheckError:
        is_refused = True
    families_differ = text.startswith("mutually") and left.partition("(")[0] == "long" and "decimal" in right
    assert is_refused is (refused or families_differ)


@pytest.mark.parametrize(
    "text", ["sequential_values(batch.seq)", "outliers(batch.seq)", "mutually_exclusive_ranges(batch.seq, seq)"]
)
def test_a_struct_called_batch_is_not_the_batch(text: str) -> None:
    names = {"batch": "struct<seq: long>", "seq": "long"}
    schema = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in names.items()))
    sql = asked(text, schema).sql
    assert "`batch`.`seq`" in sql
    assert "FROM batch" not in sql
    with pytest.raises(CheckError, match="column '__Lakegate_x' could be confused"):
        asked(text, Schema(columns=(*schema.columns, Column(name="__Lakegate_x", type="long"))))
