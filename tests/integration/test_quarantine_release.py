"""Releasing, fixing and dropping quarantined rows on real Spark, Iceberg and Nessie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import AuditFailedError, InputError, NotFoundError, NotRevertableError, QueryError, SchemaError
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.run_text import rows_of

pytestmark = pytest.mark.jvm
POSITIVE = "in_range(fare, min=0, severity='quarantine')"


def rows(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    found = lake.table(table).to_arrow(columns=["id", "fare"]).to_pylist()
    return sorted(((row["id"], row["fare"]) for row in found), key=lambda row: row[0])


def ingest(lake: Lake, table: str, path: Path, given: Sequence[tuple[int, float]]) -> str:
    ids, fares = zip(*given, strict=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "fare": pa.array(fares, pa.float64())}), path)
    return lake.ingest(table, path, checks=[POSITIVE]).run_id


def test_rows_are_released_once_fixed_or_as_they_are_and_dropped(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    before = {ref.name for ref in lake.branches.list()}
    with pytest.raises(NotFoundError, match=f"No row of {table} was ever quarantined"):
        lake.quarantine.release(table)
    first = ingest(lake, table, tmp_path / "a.parquet", [(1, 1.0), (2, -2.0), (3, -3.0), (4, -4.0)])
    second = ingest(lake, table, tmp_path / "b.parquet", [(5, 5.0), (6, -6.0)])
    assert [(one.run_id, one.rows, one.waiting, one.checks) for one in lake.quarantine.list(table)] == [
        (second, 1, 1, {"in_range(fare, min=0)": 1}),
        (first, 3, 3, {"in_range(fare, min=0)": 3}),
    ]
    assert [row["id"] for row in lake.quarantine.show(table, run_id=second)] == [6]

    with pytest.raises(SchemaError, match="has no column 'fair'"):
        lake.quarantine.release(table, changes={"fair": "1"})
    with pytest.raises(InputError, match="contains a subquery"):
        lake.quarantine.release(table, changes={"fare": "(SELECT 1)"})
    with pytest.raises(InputError, match="waits in quarantine"):
        lake.quarantine.release(table, check="other")
    for change in (lake.quarantine.release, lake.quarantine.drop):
        with pytest.raises(QueryError, match="CAST_INVALID_INPUT"):  # by what a row holds, not as it's planned
            change(table, where="CAST(concat('x', id) AS INT) = 1")

    assert [(run.status, run.table) for run in lake.runs(table=table, limit=1)] == [("failed", table)]
    fixed = lake.quarantine.release(table, run_id=first, where="fare > -3", changes={"fare": "abs(fare)"})
    assert (fixed.status, fixed.publication and fixed.publication.rows) == ("published", 1)
    assert rows(lake, table) == [(1, 1.0), (2, 2.0), (5, 5.0)]
    with pytest.raises(
        AuditFailedError, match=r"No row of .* was released: 1 of 1 chosen row fails in_range\(fare, min=0\)"
    ) as caught:
        lake.quarantine.release(table, run_id=first, where="id = 3")
    assert caught.value.hint is not None
    for way in ("--set 'fare=EXPRESSION'", "--accept 'REASON'", f"quarantine show {table} --run {first}"):
        assert way in caught.value.hint
    assert {ref.name for ref in lake.branches.list()} == before
    released = lake.quarantine.release(table, run_id=first, where="id = 3", actor="ann", accept="it is a refund")
    assert (released.accepted and released.accepted.reason, rows_of(released)) == ("it is a refund", 1)
    assert [one.rows for one in released.staged] == [1, 0]
    assert [(one.action, one.actor) for one in released.actions] == [("release", "ann")]
    assert rows(lake, table) == [(1, 1.0), (2, 2.0), (3, -3.0), (5, 5.0)]
    with pytest.raises(InputError, match="waits in quarantine"):
        lake.quarantine.release(table, run_id=first, where="id = 3")
    (mine,) = (one for one in lake.quarantine.list(table) if one.run_id == first)
    assert (mine.rows, mine.waiting, set(mine.released_by)) == (3, 1, {fixed.run_id, released.run_id})

    # A run whose rows were released needs its releases to go with it; the others go alone.
    with pytest.raises(NotRevertableError, match=released.run_id):
        lake.revert(first)
    lake.revert(released.run_id)
    assert rows(lake, table) == [(1, 1.0), (2, 2.0), (5, 5.0)]
    lake.revert(second)
    assert rows(lake, table) == [(1, 1.0), (2, 2.0)]

    dropped = lake.quarantine.drop(table, where="id = 3")
    assert dropped.publication is not None
    assert (dropped.publication.rows, dropped.publication.rows_removed) == (0, 1)
    assert [row["id"] for row in lake.quarantine.show(table)] == [4]
    lake.revert(dropped.run_id)
    assert sorted(row["id"] for row in lake.quarantine.show(table)) == [3, 4]


def test_rows_that_still_fail_are_released_for_a_reason(
    stack: StackState, namespace: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table, home = f"{namespace}.trips", tmp_path_factory.mktemp("accepted")
    (home / "lakegate.toml").write_text(f'[tables."{table}"]\nchecks = ["{POSITIVE}"]\n', encoding="utf-8")
    warehouse = (home / "warehouse").as_uri()
    with connect(home, engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as lake:
        ingest(lake, table, tmp_path / "a.parquet", [(1, 1.0), (2, -2.0)])
        with pytest.raises(AuditFailedError):
            lake.quarantine.release(table)
        run = lake.quarantine.release(table, accept="the vendor confirmed it")
        assert (run.status, run.accepted and run.accepted.reason) == ("published", "the vendor confirmed it")
        assert "the vendor confirmed it" in next(lake.log(limit=1)).properties["lakegate"]
        assert rows(lake, table) == [(1, 1.0), (2, -2.0)]
        assert [one.released_by for one in lake.quarantine.list(table)] == [(run.run_id,)]
        with pytest.raises(InputError, match="waits in quarantine"):
            lake.quarantine.release(table, accept="again")
        ingest(lake, table, tmp_path / "b.parquet", [(3, -3.0)])
    warning = "in_range(fare, min=-1, severity='warn')"  # the same kind, so it counts by now
    (home / "lakegate.toml").write_text(f'[tables."{table}"]\nchecks = ["{warning}"]\n', encoding="utf-8")
    with connect(home, engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as lake:
        run = lake.quarantine.release(table)
        assert (run.status, run.accepted, len(run.reports[0].warnings)) == ("published", None, 1)


def test_in_a_transaction_such_a_check_blocks(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.trips"
    ingest(lake, table, tmp_path / "a.parquet", [(1, 1.0), (2, -2.0)])
    with pytest.raises(AuditFailedError), lake.transaction() as tx:
        tx.check(table, POSITIVE)
        tx.append(table, [{"id": 9, "fare": -9.0}])
    assert [row["id"] for row in lake.quarantine.show(table)] == [2]


def test_a_table_takes_its_quarantined_rows_along_when_it_is_emptied_dropped_or_put_back(
    lake: Lake, namespace: str, tmp_path: Path
) -> None:
    table, path = f"{namespace}.trips", tmp_path / "a.parquet"

    def held() -> list[int]:
        return [one.rows for one in lake.quarantine.list(table)]

    first = ingest(lake, table, path, [(1, -1.0), (2, -2.0)])
    assert (rows(lake, table), held()) == ([], [2])
    assert lake.truncate_table(table).reverts == (first,)
    assert held() == []
    assert lake.ingest(table, path, checks=[POSITIVE]).status == "published"
    ingest(lake, table, tmp_path / "b.parquet", [(3, 3.0), (4, -4.0)])
    assert (rows(lake, table), sorted(held())) == ([(3, 3.0)], [1, 2])

    full = next(lake.log(limit=1)).hash
    lake.drop_table(table)
    with pytest.raises(NotFoundError):
        lake.quarantine.list(table)
    assert lake.ingest(table, path, checks=[POSITIVE]).status == "published"
    assert held() == [2]
    assert lake.restore_table(table, at=full).tables == (table, f"{table}__quarantine")
    assert (rows(lake, table), sorted(held())) == ([(3, 3.0)], [1, 2])
    assert lake.quarantine.release(table, changes={"fare": "0"}).status == "published"
    assert [id_ for id_, _ in rows(lake, table)] == [1, 2, 3, 4]
