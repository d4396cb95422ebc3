"""``custom_sql``: a query that can read the batch, and nothing else."""

from __future__ import annotations

import pytest

from lakegate.checks import custom_sql
from lakegate.checks.predicates import read_query
from lakegate.errors import CheckError


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
