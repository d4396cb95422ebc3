"""The contract of every target, as pytest tests: what lakegate relies on when it publishes to an Iceberg catalog.

Subclass :class:`TargetContract` in one of your test modules, and override its fixtures ``target``, ``others`` and
``database``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from lakegate.catalogs.target import TargetCatalog
from lakegate.catalogs.target.publishing import Window
from lakegate.catalogs.target.targets import Target
from lakegate.errors import ConflictError, InputError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY

_COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
)


class Killed(BaseException):
    """Ends a publish where a process could die."""


@dataclass
class World:
    """A lake on a target, somebody else who writes to it, and a namespace of the test's own.

    Attributes:
        others: The target as any other program sees it.
        files: Reads the tables' files.
    """

    database: Database
    target: Target
    others: Catalog
    files: TableFiles
    namespace: str = field(default_factory=lambda: f"ns_{uuid4().hex[:12]}")

    def __post_init__(self) -> None:
        """Open the lake, and a catalog in memory in which to write staged states."""
        self.lake = self.open()
        self.editor = IcebergTableEditor(self.files)
        self.reader = IcebergTableReader(self.files)
        self._stage = InMemoryCatalog("stage", **{**self.others.properties, "uri": "sqlite:///:memory:"})
        self._stage.create_namespace("stage")

    @property
    def is_atomic(self) -> bool:
        """Whether several tables change at one moment."""
        return self.target.capabilities.many != "per table"

    @property
    def keeps_files(self) -> bool:
        """Whether the files of a table stay when it's dropped."""
        return bool(self.lake.capabilities().drop_keeps_files)

    def open(self, reach: Callable[[Window], None] = lambda _window: None) -> TargetCatalog:
        """Open the lake as another process would."""
        return TargetCatalog(self.database, self.target, reach=reach)

    def dying(self, window: Window) -> TargetCatalog:
        """Open the lake as a process that dies in ``window``."""

        def reach(reached: Window) -> None:
            if reached == window:
                raise Killed

        return self.open(reach)

    def table(self, name: str) -> TableIdentifier:
        """Return the identifier of table ``name`` in the test's namespace."""
        return TableIdentifier(namespace=(self.namespace,), name=name)

    def at_main(self, *names: str) -> tuple[Ref, Sequence[TablePointer | None]]:
        """Return ``main``, and tables as they are there."""
        tables = [self.table(name) for name in names]
        ref, found = self.lake.get_ref_with_tables(MAIN, tables)
        return ref, [found[table] for table in tables]

    def staged(
        self, run: str, ids: Mapping[str, Sequence[int]], change: Callable[[Table], None] | None = None
    ) -> Staged:
        """Append rows to tables, which are created if needed, on a branch off ``main``.

        Args:
            change: Done to each table before.
        """
        base, before = self.at_main(*ids)
        branch = self.lake.create_branch(f"wap/{self.namespace}/{run}", base)
        puts: list[TablePointer] = []
        for (name, numbers), was in zip(ids.items(), before, strict=True):
            table = self._staged_table(name, was)
            if change is not None:
                change(table)
                table.refresh()
            columns = table.schema().as_arrow()
            table.append(_rows(columns, numbers, run), snapshot_properties={RUN_ID_PROPERTY: self._run_id(run)})
            puts.append(self._pointer(self.table(name), table.refresh(), was))
        new = () if self.namespace in _names(self.lake, base) else ((self.namespace,),)
        request = CommitRequest(branch=branch.name, base=base.hash, message="s", puts=tuple(puts), namespaces=new)
        self.lake.commit(request)
        return Staged(run, base, puts, new)

    def publish(self, staged: Staged, lake: TargetCatalog | None = None, **changed: object) -> Ref:
        """Publish what was staged."""
        request = CommitRequest(
            branch=MAIN,
            base=staged.base.hash,
            message=f"publish {staged.run}",
            puts=tuple(staged.puts),
            namespaces=staged.namespaces,
            properties={RUN_ID_PROPERTY: self._run_id(staged.run)},
        )
        return (lake or self.lake).commit(request.model_copy(update=changed))

    def rebased(self, staged: Staged) -> Staged:
        """Return the same appends on top of what ``main`` has now."""
        base, now = self.at_main(*(put.table.name for put in staged.puts))
        puts = []
        for put, onto in zip(staged.puts, now, strict=True):
            assert onto is not None
            before = self.lake.get_table(put.table, staged.base)
            snapshots = self.reader.change(before, put).snapshot_ids
            puts.append(self.editor.rebase(put, snapshots, onto))
        return Staged(staged.run, base, puts, ())

    def append_as_others(self, name: str, *ids: int) -> None:
        """Append rows as somebody who knows nothing of lakegate."""
        table = self.others.load_table((self.namespace, name))
        table.append(_rows(table.schema().as_arrow(), ids, "others"))

    def ids(self, name: str) -> list[int] | None:
        """Return the ids that others read from a table; ``None`` if there's no such table for them."""
        try:
            table = self.others.load_table((self.namespace, name))
        except NoSuchTableError:
            return None
        return sorted(cast("list[int]", table.scan().to_arrow()["id"].to_pylist()))

    def commits_of(self, run: str) -> list[Commit]:
        """Return the commits of a run."""
        return list(self.open().history(MAIN, run_id=self._run_id(run), operations=True))

    def _run_id(self, run: str) -> str:
        return f"{self.namespace}-{run}"

    def _staged_table(self, name: str, was: TablePointer | None) -> Table:
        alias = ("stage", f"t{uuid4().hex}")
        if was is not None:
            return self._stage.register_table(alias, was.metadata_location)
        warehouse = str(self.others.properties["warehouse"]).rstrip("/")
        return self._stage.create_table(alias, _COLUMNS, location=f"{warehouse}/{self.namespace}/{name}_{alias[1]}")

    def _pointer(self, name: TableIdentifier, table: Table, was: TablePointer | None) -> TablePointer:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return TablePointer(
            table=name,
            content_id=None if was is None else was.content_id,
            metadata_location=table.metadata_location,
            snapshot_id=snapshot.snapshot_id,
            schema_id=table.metadata.current_schema_id,
            spec_id=table.metadata.default_spec_id,
            sort_order_id=table.metadata.default_sort_order_id,
        )


@dataclass(frozen=True)
class Staged:
    """A run that was staged on ``base`` and isn't published yet."""

    run: str
    base: Ref
    puts: Sequence[TablePointer]
    namespaces: tuple[tuple[str, ...], ...]


class TargetContract:
    """The behaviour that lakegate expects of every target.

    Subclass it, name the class ``Test…``, and override the fixtures ``target``, ``others`` and ``database``. Each test
    works in a namespace of its own, and leaves it behind.
    """

    @pytest.fixture
    def target(self) -> Target:
        """Return the target under test. Override it."""
        raise NotImplementedError("Override the fixture 'target' so that it returns the target to test.")

    @pytest.fixture
    def others(self) -> Catalog:
        """Return PyIceberg's catalog of the same target, with the property ``warehouse``. Override it."""
        raise NotImplementedError("Override the fixture 'others' so that it returns the target's PyIceberg catalog.")

    @pytest.fixture
    def database(self) -> Database:
        """Return a database for the journal. Override it."""
        raise NotImplementedError("Override the fixture 'database' so that it returns a journal's database.")

    @pytest.fixture
    def files(self) -> TableFiles:
        """Return what reads the tables' files. Override it if the environment alone doesn't say where they are."""
        return TableFiles()

    @pytest.fixture
    def world(self, database: Database, target: Target, others: Catalog, files: TableFiles) -> World:
        """Return a lake with a table ``trips`` that has one row, 1."""
        world = World(database, target, others, files)
        world.publish(world.staged("first", {"trips": [1]}))
        return world

    # One table

    def test_a_new_table_is_there_once_it_is_published(self, world: World) -> None:
        staged = world.staged("r", {"new": [1, 2]})
        assert world.ids("new") is None
        head = world.publish(staged)
        published = world.lake.get_table(world.table("new"), head)
        assert published is not None
        assert world.ids("new") == [1, 2]
        assert world.reader.change(staged.puts[0], published).kind in ("none", "metadata")
        assert [one.tables for one in world.commits_of("r")] == [(f"{world.namespace}.new",)]

    def test_rows_are_there_once_they_are_published(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2, 3]})
        assert world.ids("trips") == [1]
        head = world.publish(staged)
        published = world.lake.get_table(world.table("trips"), head)
        assert published is not None
        assert (published.snapshot_id, world.ids("trips")) == (staged.puts[0].snapshot_id, [1, 2, 3])
        assert world.reader.change(world.lake.get_table(world.table("trips"), staged.base), published).kind == "append"

    def test_an_older_base_conflicts_and_its_rows_follow_when_rebased(self, world: World) -> None:
        first, second = world.staged("a", {"trips": [2]}), world.staged("b", {"trips": [3]})
        world.publish(first)
        with pytest.raises(ConflictError, match="trips"):
            world.publish(second)
        assert world.ids("trips") == [1, 2]
        world.publish(world.rebased(second))
        assert world.ids("trips") == [1, 2, 3]

    def test_what_others_commit_is_noticed_and_kept(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        world.append_as_others("trips", 10)
        world.append_as_others("trips", 11)
        with pytest.raises(ConflictError, match="trips"):
            world.publish(staged)
        newest = next(world.lake.history(MAIN, operations=True))
        assert (newest.author, newest.tables) == ("another writer", (f"{world.namespace}.trips",))
        world.publish(world.rebased(staged))
        assert world.ids("trips") == [1, 2, 10, 11]

    def test_what_others_commit_at_the_last_moment_conflicts(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})

        def reach(window: Window) -> None:
            if window == "announced":
                world.append_as_others("trips", 10)

        with pytest.raises(ConflictError, match="trips"):
            world.publish(staged, world.open(reach))
        assert world.ids("trips") == [1, 10]
        world.publish(world.rebased(staged))
        assert world.ids("trips") == [1, 2, 10]
        assert [one.message for one in world.commits_of("r")] == ["publish r"]

    def test_a_column_is_added_with_the_publish(self, world: World) -> None:
        def widen(table: Table) -> None:
            with table.update_schema() as schema:
                schema.add_column("fare", DoubleType())

        staged = world.staged("r", {"trips": [2]}, widen)
        name = (world.namespace, "trips")
        assert world.others.load_table(name).schema().column_names == ["id", "name"]
        head = world.publish(staged)
        assert world.others.load_table(name).schema().column_names == ["id", "name", "fare"]
        before, after = (world.lake.get_table(world.table("trips"), ref) for ref in (staged.base, head))
        assert world.reader.change(before, after, evolves=True).kind == "evolve"
        assert world.ids("trips") == [1, 2]

    def test_the_last_publish_is_reverted(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        world.publish(staged)
        base, (now,) = world.at_main("trips")
        before = world.lake.get_table(world.table("trips"), staged.base)
        assert before is not None
        back = world.editor.raise_counters(before, now)
        world.publish(Staged("undo", base, [back], ()), at_head=True)
        assert world.ids("trips") == [1]
        world.publish(world.staged("again", {"trips": [3]}))
        assert world.ids("trips") == [1, 3]

    def test_a_table_is_dropped_and_its_history_stays(self, world: World) -> None:
        base, (before,) = world.at_main("trips")
        if not world.keeps_files:
            with pytest.raises(InputError, match="can't drop a table and keep its files"):
                world.publish(Staged("r", base, [], ()), deletes=(world.table("trips"),))
            assert world.ids("trips") == [1]
            return
        world.publish(Staged("r", base, [], ()), deletes=(world.table("trips"),))
        assert world.ids("trips") is None
        assert world.at_main("trips")[1] == [None]
        assert before is not None
        assert world.lake.get_table(world.table("trips"), base) == before
        assert world.files.metadata(before).document["table-uuid"] == before.content_id

    def test_a_table_that_others_changed_is_not_dropped(self, world: World) -> None:
        if not world.keeps_files:
            pytest.skip("No table is dropped.")
        base, _ = world.at_main("trips")
        world.append_as_others("trips", 10)
        with pytest.raises(ConflictError, match="trips"):
            world.publish(Staged("r", base, [], ()), deletes=(world.table("trips"),))
        assert world.ids("trips") == [1, 10]

    def test_what_others_drop_is_noticed(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        world.others.drop_table((world.namespace, "trips"))
        with pytest.raises(ConflictError, match="trips"):
            world.publish(staged)
        assert world.at_main("trips")[1] == [None]

    def test_a_table_gets_another_name(self, world: World) -> None:
        base, (was,) = world.at_main("trips")
        assert was is not None
        put = was.model_copy(update={"table": world.table("rides")})
        if not world.target.capabilities.renames:
            with pytest.raises(InputError, match="can't rename a table"):
                world.publish(Staged("r", base, [put], ()), deletes=(world.table("trips"),))
            assert (world.ids("trips"), world.ids("rides")) == ([1], None)
            return
        head = world.publish(Staged("r", base, [put], ()), deletes=(world.table("trips"),))
        assert (world.ids("trips"), world.ids("rides")) == (None, [1])
        assert world.lake.get_table(world.table("rides"), head) == put
        world.publish(world.staged("more", {"rides": [2]}))
        assert world.ids("rides") == [1, 2]

    def test_others_tables_are_listed_and_read_as_they_are(self, world: World) -> None:
        name = (world.namespace, "theirs")
        self.others_create(world, name)
        assert world.table("theirs") in {one.table for one in world.lake.list_tables(world.lake.get_ref(MAIN))}
        assert (world.namespace,) in set(world.lake.list_namespaces(world.lake.get_ref(MAIN)))
        world.publish(world.staged("r", {"theirs": [1]}))
        assert world.ids("theirs") == [1]

    def others_create(self, world: World, name: tuple[str, str]) -> None:
        """Create an empty table as somebody who knows nothing of lakegate."""
        world.others.create_table(name, _COLUMNS)

    def test_main_is_the_targets(self, world: World) -> None:
        main = world.lake.get_ref(MAIN)
        with pytest.raises(InputError, match="main"):
            world.lake.delete_ref(main)
        with pytest.raises(InputError, match="main"):
            world.lake.assign_ref(main, main)
        with pytest.raises(InputError, match="drops no namespaces"):
            world.publish(Staged("r", main, [], ()), drops=((world.namespace,),))

    def test_all_rows_of_several_at_once_are_there_once(self, world: World) -> None:
        def publish(number: int) -> None:
            other = World(world.database, world.target, world.others, world.files, world.namespace)
            staged = other.staged(f"r{number}", {"trips": [number]})
            for _ in range(50):
                try:
                    other.publish(staged)
                except ConflictError:
                    staged = other.rebased(staged)
                else:
                    return
            raise AssertionError(f"r{number} conflicted 50 times.")

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(publish, range(2, 8)))
        assert world.ids("trips") == [1, 2, 3, 4, 5, 6, 7]
        assert [len(world.commits_of(f"r{number}")) for number in range(2, 8)] == [1] * 6

    # Several tables

    def test_two_tables_are_published_by_one_commit(self, world: World) -> None:
        world.publish(world.staged("r", {"trips": [2], "zones": [7]}))
        assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [7])
        assert [set(one.tables) for one in world.commits_of("r")] == [
            {f"{world.namespace}.{t}" for t in ("trips", "zones")}
        ]

    def test_if_one_of_two_tables_conflicts_neither_has_the_rows(self, world: World) -> None:
        world.publish(world.staged("second", {"zones": [5]}))
        staged = world.staged("r", {"trips": [2], "zones": [6]})

        def reach(window: Window) -> None:
            if window == "announced":
                world.append_as_others("zones", 10)

        with pytest.raises(ConflictError, match="zones"):
            world.publish(staged, world.open(reach))
        assert (world.ids("trips"), world.ids("zones")) == ([1], [5, 10])
        world.publish(world.rebased(staged))
        assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [5, 6, 10])
        assert [one.message for one in world.commits_of("r")] == ["publish r"]

    # A process that dies

    @pytest.mark.parametrize("tables", [("trips", "zones"), ("trips", "new")])
    @pytest.mark.parametrize("window", ["announced", "table-published", "published"])
    def test_who_dies_while_publishing_has_published_all_or_nothing(
        self, world: World, window: Window, tables: Sequence[str]
    ) -> None:
        if window == "table-published" and world.is_atomic:
            pytest.skip("There is no such moment.")
        world.publish(world.staged("second", {"zones": [1]}))
        staged = world.staged("r", {name: [2] for name in tables})
        with pytest.raises(Killed):
            world.publish(staged, world.dying(window))
        found = world.commits_of("r")
        before = {"trips": [1], "zones": [1], "new": None}
        if window == "announced":
            assert found == []
            assert {name: world.ids(name) for name in tables} == {name: before[name] for name in tables}
            world.publish(staged)
        assert [one.message for one in world.commits_of("r")] == ["publish r"]
        assert {name: world.ids(name) for name in tables} == {name: [*(before[name] or ()), 2] for name in tables}
        world.publish(world.staged("after", {name: [3] for name in tables}))
        assert {name: world.ids(name) for name in tables} == {name: [*(before[name] or ()), 2, 3] for name in tables}

    def test_a_half_publish_is_put_back_if_others_changed_the_rest(self, world: World) -> None:
        if world.is_atomic:
            pytest.skip("There is no half publish.")
        world.publish(world.staged("second", {"zones": [1]}))
        staged = world.staged("r", {"trips": [2], "zones": [2]})
        with pytest.raises(Killed):
            world.publish(staged, world.dying("table-published"))
        world.append_as_others("zones", 10)
        assert world.commits_of("r") == []
        assert (world.ids("trips"), world.ids("zones")) == ([1], [1, 10])
        world.publish(world.rebased(staged))
        assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [1, 2, 10])

    def test_a_half_publish_that_others_built_on_is_in_the_log_and_blocks_nobody(self, world: World) -> None:
        if world.is_atomic:
            pytest.skip("There is no half publish.")
        world.publish(world.staged("second", {"zones": [1]}))
        staged = world.staged("r", {"trips": [2], "zones": [2]})
        with pytest.raises(Killed):
            world.publish(staged, world.dying("table-published"))
        world.append_as_others("trips", 10)
        world.append_as_others("zones", 10)
        assert world.commits_of("r") == []
        newest = next(world.lake.history(MAIN, operations=True))
        assert newest.message == f"a part of a publish that failed: {world.namespace}.trips"
        world.publish(world.staged("after", {"trips": [3], "zones": [3]}))
        assert (world.ids("trips"), world.ids("zones")) == ([1, 2, 3, 10], [1, 3, 10])

    def test_what_others_did_after_a_death_is_a_commit_of_its_own(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        with pytest.raises(Killed):
            world.publish(staged, world.dying("published"))
        world.append_as_others("trips", 10)
        (commit,), (now,) = world.commits_of("r"), world.at_main("trips")[1]
        (own,) = commit.puts
        assert (own.snapshot_id, own.content_id) == (staged.puts[0].snapshot_id, now and now.content_id)
        theirs = next(world.lake.history(MAIN, operations=True))
        assert (theirs.author, theirs.puts) == ("another writer", (now,))
        assert world.ids("trips") == [1, 2, 10]

    def test_a_publish_is_found_although_others_expired_its_snapshot(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        with pytest.raises(Killed):
            world.publish(staged, world.dying("published"))
        world.append_as_others("trips", 10)
        table = world.others.load_table((world.namespace, "trips"))
        table.maintenance.expire_snapshots().by_id(staged.puts[0].snapshot_id).commit()
        assert len(world.commits_of("r")) == 1
        world.publish(world.staged("after", {"trips": [3]}))
        assert world.ids("trips") == [1, 2, 3, 10]

    def test_a_publish_that_others_rolled_back_is_in_the_log(self, world: World) -> None:
        _, (before,) = world.at_main("trips")
        assert before is not None
        with pytest.raises(Killed):
            world.publish(world.staged("r", {"trips": [2]}), world.dying("published"))
        table = world.others.load_table((world.namespace, "trips"))
        table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        assert len(world.commits_of("r")) == 1
        world.publish(world.staged("after", {"trips": [3]}))
        assert [one.author for one in world.lake.history(MAIN)][1] == "another writer"
        assert world.ids("trips") == [1, 3]

    def test_a_revert_is_found_although_others_appended(self, world: World) -> None:
        staged = world.staged("r", {"trips": [2]})
        world.publish(staged)
        base, (now,) = world.at_main("trips")
        before = world.lake.get_table(world.table("trips"), staged.base)
        assert before is not None
        back = Staged("undo", base, [world.editor.raise_counters(before, now)], ())
        with pytest.raises(Killed):
            world.publish(back, world.dying("published"))
        world.append_as_others("trips", 10)
        assert len(world.commits_of("undo")) == 1
        assert world.ids("trips") == [1, 10]

    def test_several_processes_settle_what_one_left(self, world: World) -> None:
        world.publish(world.staged("second", {"zones": [1]}))
        with pytest.raises(Killed):
            world.publish(world.staged("r", {"trips": [2], "zones": [2]}), world.dying("published"))
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda _: world.open().get_ref(MAIN).hash, range(3)))
        assert {one.hash for one in world.commits_of("r")} <= {*found, world.lake.get_ref(MAIN).hash}
        assert len(world.commits_of("r")) == 1

    def test_who_died_does_not_block_other_tables(self, world: World) -> None:
        with pytest.raises(Killed):
            world.publish(world.staged("r", {"trips": [2]}), world.dying("announced"))
        world.publish(world.staged("other", {"zones": [1]}))
        assert (world.ids("trips"), world.ids("zones")) == ([1], [1])


def _rows(columns: pa.Schema, ids: Sequence[int], name: str) -> pa.Table:
    values: dict[str, list[Any]] = {"id": list(ids), "name": [name] * len(ids)}
    return pa.table({one: values.get(one, [1.5] * len(ids)) for one in columns.names}, schema=columns)


def _names(lake: TargetCatalog, ref: Ref) -> set[str]:
    return {".".join(name) for name in lake.list_namespaces(ref)}
