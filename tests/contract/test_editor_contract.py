"""What every table editor does: the one of Iceberg tables, on disk and on S3, and the one of a lakehouse in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyiceberg.types import StringType

from lakegate.config import StorageSettings
from lakegate.errors import NotReplayableError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.refs import TablePointer
from lakegate.model.schema import Column, Schema
from lakegate.ports import TableEditor, TableReader
from support.fakes import FakeLakehouse, TableVersion
from support.iceberg_tables import NAME, IcebergTables, append, iceberg_tables, pointer_to

if TYPE_CHECKING:
    from support.s3_warehouse import S3Warehouse


@dataclass(frozen=True)
class World:
    """An editor, its reader, and how to change a table otherwise; each change returns the state after it."""

    editor: TableEditor
    reader: TableReader
    create: Callable[[], TablePointer]
    append: Callable[[TablePointer, Sequence[int]], TablePointer]
    empty: Callable[[TablePointer], TablePointer]
    rename_region: Callable[[TablePointer], TablePointer]
    """Drop the column and add another one."""

    def files(self, pointer: TablePointer) -> dict[str, int]:
        return {file.path: file.rows for file in self.reader.files(pointer)}

    def snapshots(self, pointer: TablePointer) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.reader.snapshots(pointer)]


def _iceberg(tables: IcebergTables, storage: StorageSettings | None = None) -> World:
    def appended(pointer: TablePointer, ids: Sequence[int]) -> TablePointer:
        table = tables.at(pointer)
        append(table, ids)
        return pointer_to(table, pointer.content_id)

    def empty(pointer: TablePointer) -> TablePointer:
        table = tables.at(pointer)
        table.delete()
        return pointer_to(table, pointer.content_id)

    def rename_region(pointer: TablePointer) -> TablePointer:
        table = tables.at(pointer)
        with table.update_schema() as change:
            change.delete_column("region")
        with table.update_schema() as change:
            change.add_column("area", StringType())
        return pointer_to(table, pointer.content_id)

    return World(
        IcebergTableEditor(TableFiles(storage)),
        IcebergTableReader(TableFiles(storage)),
        lambda: pointer_to(tables.create()),
        appended,
        empty,
        rename_region,
    )


def _memory() -> World:
    house = FakeLakehouse()

    def save(version: TableVersion, pointer: TablePointer | None = None) -> TablePointer:
        location = f"mem://metadata/{uuid4()}"
        house.versions[location] = version
        return TablePointer(
            table=NAME,
            content_id="main" if pointer is None else pointer.content_id,
            metadata_location=location,
            snapshot_id=version.snapshots[-1].snapshot_id if version.snapshots else -1,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )

    def create() -> TablePointer:
        columns = (Column(name="id", type="long"), Column(name="region", type="string"))
        return save(TableVersion(schema=Schema(columns=columns), location=f"mem://t{uuid4()}"))

    def appended(pointer: TablePointer, ids: Sequence[int]) -> TablePointer:
        return house.edit(pointer, [{"id": number, "region": "north"} for number in ids], "append")

    def empty(pointer: TablePointer) -> TablePointer:
        return house.edit(pointer, None, "delete")

    def rename_region(pointer: TablePointer) -> TablePointer:
        columns = (Column(name="id", type="long"), Column(name="area", type="string"))
        version = house.versions[pointer.metadata_location]
        return save(replace(version, schema=Schema(columns=columns)), pointer)

    return World(house, house, create, appended, empty, rename_region)


@pytest.fixture(params=["iceberg", "iceberg-s3", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "memory":
        yield _memory()
    elif request.param == "iceberg":
        with iceberg_tables(tmp_path) as tables:
            yield _iceberg(tables)
    else:
        warehouse: S3Warehouse = request.getfixturevalue("s3_warehouse")
        with iceberg_tables(warehouse.uri, warehouse.pyiceberg) as tables:
            yield _iceberg(tables, warehouse.storage)


def test_replayed_files_join_those_that_are_there(world: World) -> None:
    base = world.append(world.create(), [1, 2])
    branch = world.append(world.append(base, [11]), [12, 13])
    main = world.append(base, [21, 22, 23, 24])
    staged = world.snapshots(branch)[-2:]
    expected = world.files(main) | world.files(branch)

    moved = world.editor.rebase(branch.model_copy(update={"content_id": "branch"}), staged, main)

    assert world.files(moved) == expected
    assert sorted(expected.values()) == [1, 2, 2, 4]
    assert world.snapshots(moved) == [*world.snapshots(main), *staged]
    assert (moved.content_id, moved.snapshot_id) == ("main", staged[-1])
    assert moved.metadata_location not in {main.metadata_location, branch.metadata_location}
    parents = [snapshot.parent_id for snapshot in world.reader.snapshots(moved)]
    assert parents == [None, *world.snapshots(moved)[:-1]]
    assert len(world.files(main)) == 2
    assert len(world.files(branch)) == 3


def test_the_replayed_snapshots_added_what_they_added_on_the_branch(world: World) -> None:
    base = world.append(world.create(), [1])
    branch, main = world.append(base, [11]), world.append(base, [21])
    moved = world.editor.rebase(branch, [branch.snapshot_id], main)
    added = world.reader.added_files(moved, [branch.snapshot_id])
    assert added.complete
    assert added.files == world.reader.added_files(branch, [branch.snapshot_id]).files
    summary = world.reader.snapshots(moved)[-1].summary
    assert (summary["added-records"], summary["added-data-files"]) == ("1", "1")


def test_what_an_editor_did_is_told_apart(world: World) -> None:
    created = world.create()
    base = world.append(created, [1])
    branch, main = world.append(world.append(base, [11]), [12]), world.append(base, [21])
    staged = world.snapshots(branch)[-2:]
    moved = world.editor.rebase(branch, staged, main)

    def told(before: TablePointer | None, after: TablePointer | None) -> tuple[str, list[int]]:
        change = world.reader.change(before, after)
        return change.kind, list(change.snapshot_ids)

    assert told(base, branch) == ("append", staged)
    assert told(main, moved) == ("append", staged)
    assert told(None, created) == ("create", [])
    assert told(None, branch) == ("create", world.snapshots(branch))
    assert told(base, None)[0] == "drop"
    assert told(branch, base)[0] == "rewrite"
    assert told(base, world.empty(base))[0] == "rewrite"
    assert told(base, world.create())[0] == "rewrite"
    assert told(base, world.rename_region(base)) == ("metadata", [])
    assert told(base, world.append(world.rename_region(base), [31]))[0] == "rewrite"
    change = world.reader.change(base, branch)
    assert (change.parent_snapshot_id, change.rows_added, change.rows_removed) == (base.snapshot_id, 2, 0)


def test_a_table_without_a_snapshot_takes_files(world: World) -> None:
    base = world.create()
    branch = world.append(base, [11, 12])
    moved = world.editor.rebase(branch, [branch.snapshot_id], base)
    assert world.files(moved) == world.files(branch)
    assert list(world.files(world.append(moved, [1])).values()).count(1) == 1


def test_no_snapshots_change_nothing(world: World) -> None:
    base = world.append(world.create(), [1])
    assert world.editor.rebase(base, [], base) == base
    assert world.editor.drop_files(base, [], {}) == base


def test_replaying_twice_is_refused(world: World) -> None:
    base = world.append(world.create(), [1])
    branch, main = world.append(base, [11]), world.append(base, [21])
    moved = world.editor.rebase(branch, [branch.snapshot_id], main)
    with pytest.raises(NotReplayableError, match=r"nyc\.trips: it has snapshot \d+ already"):
        world.editor.rebase(branch, [branch.snapshot_id], moved)


def test_what_cannot_be_replayed_is_refused(world: World) -> None:
    base = world.append(world.create(), [1])
    branch, main = world.append(base, [11]), world.append(base, [21])
    with pytest.raises(NotReplayableError, match="snapshot 123 isn't in"):
        world.editor.rebase(branch, [branch.snapshot_id, 123], main)
    emptied, renamed = world.empty(branch), world.rename_region(main)
    with pytest.raises(NotReplayableError, match="did more than append"):
        world.editor.rebase(emptied, [emptied.snapshot_id], main)
    with pytest.raises(NotReplayableError, match="column 'region' isn't in the table") as caught:
        world.editor.rebase(branch, [branch.snapshot_id], renamed)
    assert world.editor.rebase_problem(branch, [branch.snapshot_id], renamed) == caught.value.message
    assert world.editor.rebase_problem(branch, [branch.snapshot_id], main) is None
    assert caught.value.hint
    assert caught.value.context["table"] == "nyc.trips"


def test_files_join_no_other_table_of_the_name_but_one_that_was_created_with_theirs(world: World) -> None:
    base = world.append(world.create(), [1])
    branch, another = world.append(base, [11]), world.append(world.create(), [21])
    with pytest.raises(NotReplayableError, match=r"nyc\.trips: it was replaced by another table with the same name"):
        world.editor.rebase(branch, [branch.snapshot_id], another)
    assert "was replaced by another table" in (world.editor.rebase_problem(branch, [branch.snapshot_id], another) or "")
    both = world.editor.rebase(branch, world.snapshots(branch), another)
    assert world.files(both) == world.files(branch) | world.files(another)


def test_snapshots_can_be_left_out(world: World) -> None:
    base = world.append(world.create(), [1])
    branch = world.append(base, [11])
    assert world.editor.as_audited(branch, base, [branch.snapshot_id]) == branch
    shorter = world.editor.as_audited(branch, None, [branch.snapshot_id])
    assert world.snapshots(shorter) == [branch.snapshot_id]
    assert world.files(shorter) == world.files(branch)
    assert world.reader.change(base, shorter).kind == "append"


def test_dropping_leaves_the_other_files(world: World) -> None:
    first = world.append(world.create(), [1])
    second = world.append(first, [2, 3])
    pointer = world.append(second, [4, 5, 6])
    (path,) = world.files(second).keys() - world.files(first).keys()
    summary: Mapping[str, Any] = {"lakegate.reverts": "r1"}

    dropped = world.editor.drop_files(pointer, [path], summary)

    assert world.files(dropped) == {p: n for p, n in world.files(pointer).items() if p != path}
    assert path in world.files(pointer)
    newest = world.reader.snapshots(dropped)[-1]
    assert (newest.operation, newest.parent_id) == ("delete", pointer.snapshot_id)
    assert newest.snapshot_id == dropped.snapshot_id
    assert newest.summary["lakegate.reverts"] == "r1"
    assert (newest.summary["deleted-data-files"], newest.summary["deleted-records"]) == ("1", "2")
    with pytest.raises(NotReplayableError, match="1 of the 1 files to drop are no longer in it"):
        world.editor.drop_files(dropped, [path], {})


def test_dropping_everything_leaves_an_empty_table_that_goes_on(world: World) -> None:
    base = world.append(world.create(), [1])
    branch = world.append(base, [11])
    empty = world.editor.drop_files(base, list(world.files(base)), {})
    assert world.files(empty) == {}
    moved = world.editor.rebase(branch, [branch.snapshot_id], empty)
    assert world.files(moved) == {p: n for p, n in world.files(branch).items() if p not in world.files(base)}
    assert len(world.files(world.append(moved, [2, 3]))) == 2


def test_files_that_are_not_there_are_refused_with_all_others(world: World) -> None:
    pointer = world.append(world.create(), [1])
    with pytest.raises(NotReplayableError, match="1 of the 2 files to drop") as caught:
        world.editor.drop_files(pointer, [*world.files(pointer), "mem://nowhere"], {})
    assert "mem://nowhere" in caught.value.message
