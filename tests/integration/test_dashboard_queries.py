"""The dashboard's queries on real Spark: at a branch, limited, with progress, stopped, and only reading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.config import load_settings
from lakegate.dashboard.queries import Queries, QueryJob
from lakegate.lake import Lake, connect

pytestmark = pytest.mark.jvm

_SOON_S = 180.0


@pytest.fixture(scope="module")
def queries(lake: Lake, home: Path) -> Iterator[Queries]:
    opened = Queries(lambda narrator: connect(home, settings=load_settings(home, env={}), narrator=narrator))
    yield opened
    opened.close()


def ended(job: QueryJob) -> QueryJob:
    assert job.wait(_SOON_S), job.doing
    return job


def test_a_query_reads_the_ref_that_it_names(lake: Lake, queries: Queries, namespace: str) -> None:
    table = f"{namespace}.pairs"
    with lake.transaction() as tx:
        tx.append(table, [{"id": 1}, {"id": 2}])
    lake.create_branch(f"{namespace}-before")
    with lake.transaction() as tx:
        tx.append(table, [{"id": 3}, {"id": 4}, {"id": 5}])
    sql = f"SELECT id, id FROM {table} ORDER BY id"
    job = ended(queries.start(sql, limit=4))
    assert job.result is not None, job.error
    assert (job.result.table.to_pydict(), job.result.cut) == ({"id": [1, 2, 3, 4], "id (2)": [1, 2, 3, 4]}, True)
    before = ended(queries.start(sql, ref=f"{namespace}-before"))
    assert before.result is not None
    assert (before.result.table["id"].to_pylist(), before.result.cut) == ([1, 2], False)
    shown = ended(queries.start(f"DESCRIBE TABLE {table}"))
    assert shown.result is not None
    assert shown.result.table["col_name"].to_pylist()[0] == "id"
    for change in (f"DELETE FROM {table}", f"DROP TABLE {table}"):
        refused = ended(queries.start(change))
        assert (refused.state, refused.error and refused.error.code) == ("failed", "query")
    failing = ended(queries.start("SELECT raise_error('not today')"))
    assert failing.error is not None
    assert "not today" in failing.error.message


def test_a_stopped_query_stops_in_spark(queries: Queries) -> None:
    job = queries.start("SELECT count(*) FROM range(100000000000) a JOIN range(1000) b ON a.id % 7 = b.id % 3")
    while job.progress is None and job.state == "running":
        job.wait(0.05)
    job.stop()
    assert job.state == "stopped"
    # Its slots in Spark are free again: another one gets through.
    after = ended(queries.start("SELECT 1 AS one"))
    assert after.result is not None
    assert after.result.table.to_pydict() == {"one": [1]}


def test_the_rows_that_a_branch_changes(lake: Lake, queries: Queries, namespace: str) -> None:
    table = f"{namespace}.places"
    with lake.transaction() as tx:
        tx.sql(f"CREATE TABLE {table} (id BIGINT, at MAP<STRING, INT>, x DOUBLE)")
        tx.sql(f"INSERT INTO {table} VALUES (1, map('a', 1), double('NaN')), (2, NULL, 2.0), (2, NULL, 2.0)")
    created = lake.diff_rows(table, "main", "main", left_at=lake.runs(limit=1)[0].base)
    assert created.added is not None
    assert (created.added.to_arrow().num_rows, created.removed) == (3, None)
    lake.create_branch(f"{namespace}-then")
    with lake.transaction() as tx:
        tx.sql(f"INSERT INTO {table} VALUES (3, NULL, 3.0)")
    appended = lake.diff_rows(table, f"{namespace}-then", "main")
    assert appended.added is not None
    assert appended.removed is None, "nothing else is read"
    assert appended.added.to_arrow()["id"].to_pylist() == [3]
    with lake.transaction() as tx:
        tx.sql(f"UPDATE {table} SET at = map('b', 2) WHERE id = 1")
        tx.sql(f"ALTER TABLE {table} ADD COLUMN note STRING")
    job = ended(queries.read(lambda other: other.diff_rows(table, f"{namespace}-then", "main").added, where="main"))
    assert job.result is not None, job.error
    changed = sorted(job.result.table.to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["at"], row["note"]) for row in changed] == [(1, '{"b":2}', None), (3, None, None)]
    removed = lake.diff_rows(table, f"{namespace}-then", "main").removed
    assert removed is not None
    assert removed.to_arrow().select(["id", "at"]).to_pylist() == [{"id": 1, "at": '{"a":1}'}]
    nothing = ended(queries.read(lambda other: other.diff_rows(table, "main", "main").added, where="main"))
    assert nothing.result is not None
    assert nothing.result.table.num_rows == 0


def test_times_in_structs_that_differ_by_microseconds_are_changes(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.times"
    struct = "named_struct('at', TIMESTAMP '2024-01-31 07:05:09.{0}', 'local', TIMESTAMP_NTZ '2024-01-31 07:05:09.{0}')"
    with lake.transaction() as tx:
        tx.sql(f"CREATE TABLE {table} (id BIGINT, at STRUCT<at: TIMESTAMP, local: TIMESTAMP_NTZ>)")
        tx.sql(f"INSERT INTO {table} SELECT 1, {struct.format('123456')}")
    lake.create_branch(f"{namespace}-times")
    with lake.transaction() as tx:
        tx.sql(f"UPDATE {table} SET at = {struct.format('123457')} WHERE id = 1")
    found = lake.diff_rows(table, f"{namespace}-times", "main", key=["id"])
    assert found.changed is not None
    (changed,) = found.changed.to_arrow().to_pylist()
    assert ("123456" in changed["before"]["at"], "123457" in changed["after"]["at"]) == (True, True)
