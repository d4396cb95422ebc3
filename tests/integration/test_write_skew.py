"""Two projects race, one relying on rows that the other changes: on real Spark and Nessie.

They have journals of their own, so that nothing but the catalog stands between them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import LakegateError, NotReplayableError, NotRevertableError, QueryError
from lakegate.lake import Lake
from lakegate.model.run import Run
from support.flow_support import when_reached
from support.other_project import other_project

pytestmark = pytest.mark.jvm

_READ_BELOW = ("{t}.changes", "{t}.files", "{t}.snapshots", "{t}.PARTITIONS")
_OTHER_STATES = ("{t}.branch_main", "{t}.snapshot_id_1", "{t}.at_timestamp_1700000000000", "{t}.tag_x")


class Keys:
    """A table of parents, and one of children that refer to them."""

    def __init__(self, lake: Lake, other: Lake, namespace: str, folder: Path) -> None:
        self.lake, self.other, self.folder = lake, other, folder
        self.parents, self.children = f"{namespace}.parents", f"{namespace}.children"

    def file(self, name: str, keys: list[int]) -> Path:
        path = self.folder / f"{name}.parquet"
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), path)
        return path

    def add_parents(self, name: str, keys: list[int]) -> Run:
        return self.lake.ingest(self.parents, self.file(name, keys))

    def add_children(self, name: str, keys: list[int]) -> Run:
        check = f"relationships(k, to='{self.parents}')"
        return self.other.ingest(self.children, self.file(name, keys), checks=[check], on_rejected="return")

    def orphans(self) -> list[int]:
        children, parents = (self.lake.table(one).to_arrow()["k"] for one in (self.children, self.parents))
        known = parents.to_pylist()
        return [key for key in children.to_pylist() if key is not None and key not in known]


def test_a_revert_and_a_run_that_relies_on_its_rows_are_not_both_committed(
    lake: Lake, components: Components, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_project(components, tmp_path / "other") as other:
        keys = Keys(lake, other, namespace, tmp_path)
        keys.add_parents("first", [1, 2])
        assert keys.add_children("some", [1]).status == "published"

        second = keys.add_parents("second", [3])
        with (
            when_reached(monkeypatch, "before-commit", lambda: keys.add_children("late", [3])),
            pytest.raises(NotRevertableError, match="as this run left it"),
        ):
            lake.revert(second.run_id)
        assert keys.orphans() == [], "the run commits between the revert's look and its commit"
        assert lake.run(second.run_id).status == "published"

        third = keys.add_parents("third", [4])
        with when_reached(monkeypatch, "before-commit", lambda: lake.revert(third.run_id)):
            run = keys.add_children("later", [4])
        assert keys.orphans() == [], "the revert commits between the run's last look and its commit"
        assert (run.status, lake.run(third.run_id).status) == ("rejected", "reverted")
        assert [result.failing_rows for result in run.failures] == [1]

        fourth = keys.add_parents("fourth", [5])
        with (
            when_reached(monkeypatch, "before-commit", lambda: keys.add_children("unrelated", [1, 2])),
            pytest.raises(NotRevertableError, match="as this run left it"),
        ):
            lake.revert(fourth.run_id)
        assert keys.orphans() == []


def test_what_a_transaction_reads_below_a_table_is_relied_on(
    lake: Lake, components: Components, namespace: str, tmp_path: Path
) -> None:
    rows = pa.table({"k": pa.array([1], pa.int64())})
    pq.write_table(rows, tmp_path / "rows.parquet")
    table, counts, deep = f"{namespace}.c", f"{namespace}.counts", f"{namespace}.deep.branch_main"
    lake.ingest(table, tmp_path / "rows.parquet")
    with lake.transaction() as tx:
        tx.append(deep, rows)
        tx.append(counts, [{"n": 0}])

    with other_project(components, tmp_path / "other") as other:
        for number, name in enumerate(("{t}", *_READ_BELOW)):
            with pytest.raises(NotReplayableError, match="changed on main"), lake.transaction() as tx:
                read = tx.sql(f"SELECT count(*) AS n FROM {name.format(t=table)}").toArrow()
                pq.write_table(rows, tmp_path / f"more-{number}.parquet")
                other.ingest(table, tmp_path / f"more-{number}.parquet", run_id=f"more-{number}-{namespace}")
                tx.append(counts, read)
            assert tx.run.reads == (table,), name

    with lake.transaction() as tx:
        with pytest.raises(QueryError, match="another state"):
            tx.sql(f"SELECT count(*) FROM {table}.branch_main")
        # Spark itself may say first that there is no such state.
        for name in (name.format(t=table) for name in _OTHER_STATES):
            for statement in (f"SELECT count(*) FROM {name}", f"INSERT INTO {counts} SELECT k FROM {name}"):
                with pytest.raises(LakegateError):
                    tx.sql(statement)
            for change in (f"INSERT INTO {name} SELECT 7", f"DELETE FROM {name}", f"UPDATE {name} SET k = 7"):
                with pytest.raises(LakegateError):
                    tx.sql(change)
            with pytest.raises(QueryError, match="another state"):
                tx.table(name)
        read = tx.sql(f"SELECT count(*) AS n FROM {deep}").toArrow()
        assert (read["n"].to_pylist(), tx.table(deep).count(), tx.reads) == ([1], 1, (deep,))
        tx.sql(f"INSERT INTO {deep} SELECT 7")
    assert (tx.run.status, tx.run.tables) == ("published", (deep,))
