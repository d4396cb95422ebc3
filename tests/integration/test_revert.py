"""Reverting on real Spark, Iceberg and Nessie; Spark and PyIceberg read what it leaves, and it is written to again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import InputError, NotFoundError, NotRevertableError
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run, UndoneTable
from lakegate.spark.sessions import CATALOG
from lakegate.wap.transaction import Transaction
from support.iceberg_tables import as_pyiceberg_has_it
from support.lakes import session_of

pytestmark = pytest.mark.jvm


class World:
    """A table of ids in a namespace of its own."""

    def __init__(self, lake: Lake, components: Components, namespace: str, folder: Path) -> None:
        self.lake = lake
        self.components = components
        self.table = f"{namespace}.trips"
        self.other = f"{namespace}.zones"
        self.folder = folder
        self.read: list[tuple[str, str, list[int]]] = []
        """Table, commit and ids of each state that :meth:`ids` read."""

    def file(self, name: str, ids: Sequence[int]) -> Path:
        days = pa.array([datetime(2024, 1, 1 + i % 3) for i in ids], pa.timestamp("us"))
        path = self.folder / f"{name}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "day": days}), path)
        return path

    def add(self, name: str, ids: Sequence[int], **options: Any) -> Run:
        path = self.file(name, ids)
        return self.lake.ingest(self.table, path, partition_by=["days(day)"], **options)

    def again(self, name: str) -> Run:
        return self.lake.ingest(self.table, self.folder / f"{name}.parquet")

    def ids(self, table: str | None = None) -> list[int]:
        """The ids on main, as PyIceberg reads them; Spark is asked for the same state in the end."""
        name = table or self.table
        state = self.lake.table(name)
        found = _ids(as_pyiceberg_has_it(state.metadata.metadata_location).scan().to_arrow()["id"].to_pylist())
        assert state.rows == len(found)
        self.read.append((name, self.components.catalog.get_ref("main").hash, found))
        return found

    def spark_reads_the_same(self) -> None:
        """Assert what Spark reads of all states, in one query, as each costs a plan."""
        names = (TableIdentifier.parse(table).sql(CATALOG, ref=f"main#{at}") for table, at, _ in self.read)
        asked = (f"SELECT {number} AS state, id FROM {name}" for number, name in enumerate(names))
        found: list[list[int | None]] = [[] for _ in self.read]
        for state, id_ in session_of(self.components).sql(" UNION ALL ".join(asked)).collect():
            found[state].append(id_)
        assert [_ids(ids) for ids in found] == [ids for _, _, ids in self.read]

    def files(self) -> set[str]:
        return {file.path for file in self.lake.table(self.table).files()}

    def exists(self, table: str) -> bool:
        catalog = self.components.catalog
        return catalog.get_table(TableIdentifier.parse(table), catalog.get_ref("main")) is not None

    def frame(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        return [{"id": i, "day": datetime(2024, 1, 1 + i % 3)} for i in ids]

    def commits_since(self, hash_: str) -> int:
        return len(list(self.components.catalog.history("main", until=hash_)))


@pytest.fixture
def world(lake: Lake, components: Components, namespace: str, tmp_path: Path) -> Iterator[World]:
    made = World(lake, components, namespace, tmp_path)
    yield made
    made.spark_reads_the_same()


@pytest.mark.storage
def test_the_middle_of_three_ingests_goes_with_its_files_and_can_come_again(world: World) -> None:
    world.add("a", range(10))
    before = world.files()
    middle = world.add("b", range(10, 20))
    brought = world.files() - before
    world.add("c", range(20, 30))
    assert world.again("b").status == "skipped"
    every = world.files()
    head = world.lake.branches.list()[0].hash

    planned = world.lake.revert(middle.run_id[:24], dry_run=True)
    assert world.lake.branches.list()[0].hash == head
    run = world.lake.revert(middle.run_id)

    assert run.undone == planned.undone == (UndoneTable(table=world.table, rows=-10, data_files=-len(brought)),)
    assert world.files() == every - brought
    assert world.ids() == [*range(10), *range(20, 30)]
    assert world.commits_since(head) == 1
    reverted = world.lake.run(middle.run_id)
    assert (reverted.status, reverted.reverted_by) == ("reverted", run.run_id)
    assert world.lake.run(run.run_id) == run
    with pytest.raises(InputError, match="already reverted"):
        world.lake.revert(middle.run_id)
    assert world.again("b").status == "published"
    assert world.again("a").status == "skipped"
    assert world.ids() == list(range(30))


@pytest.mark.storage
def test_a_table_of_a_reverted_transaction_is_not_restored_alone_but_written_to_again(world: World) -> None:
    world.add("a", range(4))
    second = world.add("b", range(4, 8))
    assert second.publication is not None
    with world.lake.transaction() as both:
        both.overwrite(world.table, world.frame([50]))
        both.append(world.other, [{"id": 1}])
    before = world.lake.branches.list()[0].hash
    one = world.lake.revert(both.run.run_id)
    assert (world.ids(), world.exists(world.other)) == (list(range(8)), False)
    with pytest.raises(InputError, match="is a revert") as caught:
        world.lake.revert(one.run_id)
    assert both.run.run_id in str(caught.value.hint)
    with pytest.raises(NotRevertableError, match=f"{both.run.run_id} would come back to {world.table}, but not to"):
        world.lake.restore_table(world.table, at=before)
    assert (world.ids(), world.exists(world.other)) == (list(range(8)), False)
    with world.lake.transaction() as again:
        again.overwrite(world.table, world.frame([50]))
    assert (world.ids(), again.run.status) == ([50], "published")
    world.lake.restore_table(world.table, at=second.publication.commit)
    assert world.ids() == list(range(8))
    assert world.again("b").status == "skipped"
    world.lake.revert(second.run_id)
    assert world.again("b").status == "published"
    with world.lake.transaction() as up:
        up.upsert(world.table, world.frame([9, 10]), keys=["id"])
    assert world.ids() == [*range(8), 9, 10]


def test_a_transaction_goes_from_all_its_tables_in_one_commit(world: World) -> None:
    world.add("a", range(5))
    with world.lake.transaction("both") as tx:
        tx.append(world.table, world.frame(range(5, 8)))
        tx.append(world.table, world.frame([8]))
        tx.append(world.other, [{"id": 1}])
    world.add("c", [9])
    head = world.lake.branches.list()[0].hash
    run = world.lake.revert(tx.run.run_id)

    assert world.commits_since(head) == 1
    assert set(run.tables) == {world.table, world.other}
    assert world.ids() == [0, 1, 2, 3, 4, 9]
    assert not world.exists(world.other)


@pytest.mark.storage
def test_an_overwrite_and_an_upsert_are_undone_and_later_appends_stay(world: World) -> None:
    world.add("a", range(6))
    with world.lake.transaction() as over:
        over.overwrite(world.table, world.frame([100]))
    world.add("c", [50, 51])
    assert world.ids() == [50, 51, 100]
    run = world.lake.revert(over.run.run_id)
    assert world.ids() == [0, 1, 2, 3, 4, 5, 50, 51]
    assert run.undone[0].rows == 5

    with world.lake.transaction() as up:
        up.upsert(world.table, world.frame([5, 6]), keys=["id"])
    world.add("d", [52])
    world.lake.revert(up.run.run_id)
    assert world.ids() == [0, 1, 2, 3, 4, 5, 50, 51, 52]
    world.add("e", [53])
    with world.lake.transaction() as more:
        more.upsert(world.table, world.frame([53, 54]), keys=["id"])
    assert world.ids() == [0, 1, 2, 3, 4, 5, 50, 51, 52, 53, 54]


def test_dependents_are_named_and_are_reverted_first(world: World) -> None:
    world.add("a", range(4))
    second = world.add("b", range(4, 8))

    def totals(tx: Transaction) -> None:
        tx.append(world.other, tx.sql(f"SELECT count(*) AS id FROM {world.table}"))

    world.lake.transact(totals)
    totalled = world.lake.runs(limit=1)[0]
    with world.lake.transaction() as up:
        up.upsert(world.table, world.frame([4]), keys=["id"])
    world.add("c", [20])
    with pytest.raises(NotRevertableError) as caught:
        world.lake.revert(second.run_id)
    assert up.run.run_id in caught.value.message
    dependents: Any = caught.value.context["dependents"]
    assert len(dependents) == 2
    for later in (up.run.run_id, totalled.run_id, second.run_id):
        world.lake.revert(later)
    assert world.ids() == [0, 1, 2, 3, 20]
    assert not world.exists(world.other)
    assert world.again("b").status == "published"
    assert world.ids() == [*range(8), 20]


@pytest.mark.storage
def test_what_was_replaced_by_a_newer_version_of_its_file_comes_back(world: World) -> None:
    world.add("keep", [1])
    old = world.add("f", [2, 3])
    new = world.add("f", [2, 3, 4], on_changed="replace")
    assert world.ids() == [1, 2, 3, 4]
    assert world.lake.run(old.run_id).status == "reverted"
    world.lake.revert(new.run_id)

    assert world.ids() == [1, 2, 3]
    assert world.lake.run(old.run_id).status == "published"
    world.file("f", [2, 3])
    assert world.again("f").status == "skipped"
    world.lake.maintenance.rebuild_journal()
    assert world.again("f").status == "skipped"
    world.lake.revert(old.run_id)
    assert world.ids() == [1]
    assert world.again("f").status == "published"
    assert world.ids() == [1, 2, 3]


def test_rows_that_were_compacted_are_refused_and_later_ones_are_not(world: World) -> None:
    first = world.add("a", range(6))
    world.add("b", range(6, 12))
    _rewrite_by_hand(world)
    later = world.add("c", [20])

    with pytest.raises(NotRevertableError, match=r"\(Compact\) has since deleted or rewritten its rows"):
        world.lake.revert(first.run_id)
    world.lake.revert(later.run_id)
    assert world.ids() == list(range(12))


@pytest.mark.storage
def test_ingests_go_on_while_reverting(world: World) -> None:
    runs = [world.add(f"r{number}", [number]) for number in range(4)]

    def ingest() -> None:
        for number in range(10, 14):
            world.add(f"n{number}", [number])

    with ThreadPoolExecutor(1) as pool:
        concurrent = pool.submit(ingest)
        for run in runs[1:]:
            world.lake.revert(run.run_id)
        concurrent.result(300)

    assert world.ids() == [0, 10, 11, 12, 13]


@pytest.mark.storage
def test_a_table_is_restored_from_a_tag_and_its_lost_files_come_again(world: World) -> None:
    lake = world.lake
    world.add("a", range(4))
    tag = lake.tags.create(f"tag-{world.table}")
    assert tag in lake.tags.list()
    second = world.add("b", range(4, 8))
    lake.revert(world.add("c", [9]).run_id)
    with pytest.raises(NotFoundError, match="didn't exist at commit"):
        lake.restore_table(world.other, at=tag.hash)
    run = lake.restore_table(world.table, at=tag.hash)

    assert (run.status, second.run_id in run.reverts) == ("published", True)
    assert run.undone == (UndoneTable(table=world.table, rows=-4, data_files=-3),)
    assert world.ids() == list(range(4))
    assert lake.restore_table(world.table, at=tag.hash).status == "skipped"
    assert (world.again("a").status, world.again("b").status) == ("skipped", "published")
    assert world.ids() == list(range(8))
    assert lake.tags.delete(tag.name) == tag
    assert tag not in lake.tags.list()


def test_a_branch_is_reset_and_main_only_by_force(world: World) -> None:
    lake, name = world.lake, f"dev-{world.table}"
    world.add("a", range(4))
    branch = lake.branches.create(name)
    world.add("b", [9])
    moved = lake.branches.reset(name)
    assert moved.hash == lake.branches.list()[0].hash != branch.hash
    assert lake.branches.reset(name, at=branch.hash).hash == branch.hash
    with pytest.raises(InputError, match="removes commits"):
        lake.branches.reset("main", to=name)
    lake.branches.reset("main", to=name, force=True)
    assert world.ids() == [0, 1, 2, 3]
    assert world.again("b").status == "published"
    lake.branches.delete(name)


def _ids(values: Sequence[int | None]) -> list[int]:
    return sorted(value for value in values if value is not None)


def _rewrite_by_hand(world: World) -> None:
    """Put all rows in new files, by a commit on main that is not lakegate's, as maintenance does."""
    catalog, name = world.components.catalog, TableIdentifier.parse(world.table)
    base = catalog.create_branch(f"compact-{world.table}", catalog.get_ref("main"))
    tx = world.components.engine.transaction(base.name, "by-hand")
    tx.overwrite(name, tx.table(name), None)
    tx.close()
    branch = catalog.get_ref(base.name)
    pointer = catalog.get_table(name, branch)
    assert pointer is not None
    catalog.commit(CommitRequest(branch="main", base=base.hash, message="Compact", puts=(pointer,)))
    catalog.delete_ref(branch)
