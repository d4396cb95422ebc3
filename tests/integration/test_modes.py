"""Batches that do more than append, and deletes, on real Spark and Nessie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.config import TableSettings
from lakegate.errors import AuditFailedError, InputError, NotFoundError, QueryError, SchemaError
from lakegate.lake import Lake
from lakegate.progress import SilentNarrator
from lakegate.spark.engine import SparkEngine
from lakegate.wap import failpoints
from support.flow_support import when_reached
from support.lakes import components_of, session_of
from support.ledger_support import event_in

pytestmark = pytest.mark.jvm

Rows = Sequence[tuple[Any, ...]]
Parquet = Callable[..., Path]


@pytest.fixture
def table(namespace: str) -> str:
    return f"{namespace}.drivers"


@pytest.fixture
def parquet(tmp_path: Path) -> Parquet:
    def write(name: str, /, **columns: Any) -> Path:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        return path

    return write


@pytest.fixture
def filled(lake: Lake, table: str, parquet: Parquet) -> str:
    lake.ingest(table, parquet("first", id=[1, 2, 3], name=["a", "b", "c"], fare=[1.0, 2.0, 3.0]))
    return table


def rows(lake: Lake, table: str, ref: str = "main") -> Rows:
    found = lake.table(table, ref=ref).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=lambda row: [(value is not None, value) for value in row])


def test_an_upsert_updates_inserts_and_deletes_once(
    lake: Lake, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parquet: Parquet
) -> None:
    changes = tmp_path / "changes.csv"
    changes.write_text("NAME,op,ID\nB,U,2\nnew,I,4\n-,D,3\n-,D,9\n")
    options: Mapping[str, Any] = {"mode": "upsert", "key": ["Id"], "delete_when": "op = 'D'", "schema": "evolve"}
    with pytest.raises(SchemaError, match="no column 'opp'"):
        lake.plan(filled, changes, mode="upsert", key=["id"], delete_when="opp = 'D'")
    plan = lake.plan(filled, changes, **options)
    assert ([one.column for one in plan.request.schema_changes], plan.request.mode.key) == ([], ("id",))

    more = parquet("more", id=[8], name=["h"], fare=[8.0])

    def append_beside() -> None:
        settings = session_of(components_of(lake)).conf
        settings.set("spark.sql.iceberg.snapshot-property.lakegate.run-id", "an upsert beside it")
        try:
            assert lake.ingest(filled, more).status == "published"
        finally:
            settings.unset("spark.sql.iceberg.snapshot-property.lakegate.run-id")

    with monkeypatch.context() as patch:
        # A session of its own would compile anew all that Spark runs.
        patch.delattr(SparkEngine, "transaction")
        with when_reached(patch, "before-publish", append_beside):
            run = lake.ingest(filled, changes, **options)
    # The fare, which the batch lacks, stays as it was.
    expected = [(1, "a", 1.0), (2, "B", 2.0), (4, "new", None), (8, "h", 8.0)]
    assert (run.status, rows(lake, filled)) == ("published", expected)
    assert (run.staged[0].change, run.staged[0].rows, run.staged[0].rows_removed) == ("rewrite", 2, 2)
    commit = next(iter(lake.log()))
    assert event_in(commit).mode == "upsert"
    assert lake.ingest(filled, changes, **options).status == "skipped"

    lake.revert(run.run_id)
    assert rows(lake, filled) == [(1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0), (8, "h", 8.0)]
    assert lake.ingest(filled, changes, **options).status == "published"
    assert rows(lake, filled) == expected
    nothing = parquet("nothing", id=[77], name=["-"], fare=[0.0], op=["D"])
    assert lake.ingest(filled, nothing, mode="upsert", key=["id"], delete_when="op = 'D'").status != "rejected"
    assert rows(lake, filled) == expected
    with lake.transaction() as tx:
        tx.sql(f"ALTER TABLE {filled} SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")
    nothing = parquet("nothing2", id=[78], name=["-"], fare=[0.0], op=["D"])
    assert lake.ingest(filled, nothing, mode="upsert", key=["id"], delete_when="op = 'D'").status != "rejected"
    lake.ingest(filled, parquet("last", id=[1], name=["A"], fare=[5.0]), mode="upsert", key=["id"])
    assert rows(lake, filled)[0] == (1, "A", 5.0)


def test_keys_that_repeat_or_are_null_are_refused_with_examples(lake: Lake, filled: str, parquet: Parquet) -> None:
    repeated = parquet("repeated", id=[5, 5, None, 6], name=["x"] * 4, fare=[0.0] * 4)
    with pytest.raises(InputError, match=r"'id' is NULL .*\(5\) in 2 rows|\(NULL\) in 1 row") as refused:
        lake.ingest(filled, repeated, mode="upsert", key=["id"])
    assert int(refused.value.exit_code) == 2
    assert not [ref.name for ref in lake.branches.list() if filled in ref.name]
    created = f"{filled}_created"
    with pytest.raises(InputError, match="isn't unique"):
        lake.ingest(created, parquet("twice", id=[5, 5]), mode="upsert", key=["id"])
    lake.ingest(created, parquet("new", id=[5, 6], gone=[False, True]), mode="upsert", key=["id"], delete_when="gone")
    assert rows(lake, created) == [(5, False)]


def test_partitions_are_replaced_and_others_stay(lake: Lake, namespace: str, parquet: Parquet) -> None:
    table = f"{namespace}.trips"

    def day(number: int) -> datetime:
        return datetime(2024, 1, number, 12)

    options: Mapping[str, Any] = {"mode": "replace-partitions"}
    with pytest.raises(InputError, match="isn't partitioned"):
        lake.ingest(table, parquet("a", id=[1], at=[day(1)]), **options)
    first = parquet("a", id=[1, 2, 3], at=[day(1), day(1), day(2)])
    lake.ingest(table, first, partition_by=["days(at)"], **options)
    run = lake.ingest(table, parquet("b", id=[9], at=[day(1)]), **options)
    assert (run.staged[0].rows, run.staged[0].rows_removed) == (1, 2)
    assert [row[0] for row in rows(lake, table)] == [3, 9]

    with lake.transaction() as tx:
        tx.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD days(at) WITH months(at)")
    with pytest.raises(InputError, match="earlier partitioning"):
        lake.ingest(table, parquet("c", id=[10], at=[day(2)]), **options)
    run = lake.ingest(table, parquet("d", id=[11, 12], at=[day(2), day(3)]), mode="overwrite")
    assert [row[0] for row in rows(lake, table)] == [11, 12]
    lake.ingest(table, parquet("c", id=[10], at=[day(2)]), **options)
    assert [row[0] for row in rows(lake, table)] == [10]


def test_an_overwrite_that_fails_its_audit_or_dies_leaves_main_alone(
    lake: Lake, filled: str, parquet: Parquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(lake, filled)
    bad = parquet("bad", id=[1, None], name=["x", "y"], fare=[1.0, 2.0], extra=[1, 2])
    run = lake.ingest(
        filled, bad, mode="overwrite", schema="evolve", checks=["not_null(id)", "row_count(2, 2)"], on_rejected="return"
    )
    assert (run.status, rows(lake, filled)) == ("rejected", before)
    assert [(one.failing_rows, one.total_rows) for one in run.failures] == [(1, 2)]
    assert len(rows(lake, filled, ref=run.branch)) == 2
    lake.publish(run.branch, accept="it is known")
    assert rows(lake, filled) == [(None, "y", 2.0, 2), (1, "x", 1.0, 1)]
    lake.revert(run.run_id)
    assert rows(lake, filled) == before

    good = parquet("good", id=[7], name=["g"], fare=[7.0])

    def die(point: str) -> None:
        if point == "before-publish":
            raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(failpoints, "reach", die)
        lake.ingest(filled, good, mode="overwrite")
    assert rows(lake, filled) == before
    (recovered,) = [one for one in lake.recover() if filled in one.tables]
    assert (recovered.status, rows(lake, filled)) == ("published", [(7, "g", 7.0)])
    assert lake.ingest(filled, good, mode="overwrite").status == "skipped"


def test_rows_are_deleted_if_what_is_left_passes(lake: Lake, filled: str) -> None:
    run = lake.delete_rows(filled, "fare >= 2 AND name <> 'c'")
    assert rows(lake, filled) == [(1, "a", 1.0), (3, "c", 3.0)]
    lake.revert(run.run_id)
    assert len(rows(lake, filled)) == 3
    none = lake.delete_rows(filled, "id = 99")
    assert (none.status, none.staged) == ("skipped", ())
    for where in ("", "id = 1; DROP TABLE x", "nothing = 1", "id = 1)) OR ((1 = 1"):
        with pytest.raises(InputError):
            lake.delete_rows(filled, where)
    with pytest.raises(NotFoundError, match="doesn't exist"):
        lake.delete_rows("nyc.nothing", "true")
    guarded = lake.settings.model_copy(update={"tables": {filled: TableSettings(checks=("row_count(min=3)",))}})
    components = Components(lake.home, guarded, session=None, narrator=SilentNarrator())
    with Lake(components) as strict, pytest.raises(AuditFailedError, match="row_count"):
        strict.delete_rows(filled, "id = 1")
    assert len(rows(lake, filled)) == 3


def test_rows_are_deleted_by_floats_as_spark_compares_them(lake: Lake, table: str, parquet: Parquet) -> None:
    """By Iceberg's bounds, no value of the first file is greater than 5, and all of the second are less than 0."""
    lake.ingest(table, parquet("first", id=[1, 2], x=[1.0, math.nan]))
    lake.ingest(table, parquet("second", id=[3, 4], x=[-1.0, -0.0]))
    lake.delete_rows(table, "X > 5")
    assert [row[0] for row in rows(lake, table)] == [1, 3, 4]
    lake.delete_rows(table, f"`x` < 0 AND id IN (SELECT id FROM {table})")
    assert [row[0] for row in rows(lake, table)] == [1, 4]
    with pytest.raises(QueryError) as caught:
        lake.delete_rows(table, "x")
    assert "BOOLEAN" in f"{caught.value.message} {caught.value.detail}"
    assert [row[0] for row in rows(lake, table)] == [1, 4]
