"""A branch may point a table at the files of another one; that isn't published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from lakegate.context import Context
from lakegate.errors import ClockError, InputError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import local_path
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.journal import Journal
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.ports import Engine
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog
from lakegate.wap.stage import find_staged
from support.iceberg_tables import IcebergTables, append, iceberg_tables, listing_files_of, pointer_to
from support.memory_journal import MemoryDatabase

OTHER = TableIdentifier.parse("nyc.other")
TRIPS = TableIdentifier.parse("nyc.trips")


class Lake:
    """``nyc.trips`` on main, and a branch."""

    def __init__(self, tables: IcebergTables, root: Path) -> None:
        self.tables, self.root = tables, root
        self.catalog = MemoryCatalog()
        self.trips: Table = tables.create()
        append(self.trips, [1])
        self.first = pointer_to(self.trips)
        append(self.trips, [2])
        self._commit("main", pointer_to(self.trips), namespaces=(("nyc",),))

    def _commit(self, branch: str, pointer: TablePointer, namespaces: tuple[tuple[str, ...], ...] = ()) -> None:
        head = self.catalog.get_ref(branch)
        now = self.catalog.get_table(pointer.table, head)
        put = pointer.model_copy(update={"content_id": None if now is None else now.content_id})
        request = CommitRequest(branch=branch, base=head.hash, message="m", puts=(put,), namespaces=namespaces)
        self.catalog.commit(request)

    def point(self, branch: str, pointer: TablePointer, table: TableIdentifier = OTHER) -> None:
        """Point a table at a state."""
        self._commit(branch, pointer.model_copy(update={"table": table}))

    def written_by_hand(self, *, uuid: str | None = None, dots: bool = False) -> TablePointer:
        """Return a copy of the metadata of ``nyc.trips``, outside of the table's folder."""
        pointer = pointer_to(self.trips)
        document = json.loads(local_path(pointer.metadata_location).read_text())
        if dots:
            folder, _, name = document["location"].rpartition("/")
            document["location"] = f"{folder}/x/../{name}"
        document |= {} if uuid is None else {"table-uuid": uuid}
        path = self.root / "elsewhere" / "00009-x.metadata.json"
        path.parent.mkdir()
        path.write_text(json.dumps(document))
        return pointer.model_copy(update={"metadata_location": path.as_uri()})

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.catalog,
            reader=IcebergTableReader(),
            editor=IcebergTableEditor(),
            engine=lambda: cast("Engine", None),
            journal=Journal(MemoryDatabase()),
            narrator=SilentNarrator(),
            warehouse=self.root.as_uri(),
            changed_files=lambda _: (),
        )


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with iceberg_tables(tmp_path) as tables:
        yield Lake(tables, tmp_path)


@pytest.mark.parametrize(
    "state", ["its metadata", "an older state", "by hand", "by hand, another UUID", "by hand, another UUID, dots"]
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_a_table_made_of_another_ones_files_is_not_staged(lake: Lake, state: str, exists: bool) -> None:
    if exists:
        lake.point("main", pointer_to(lake.tables.create()))
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    if state.startswith("by hand"):
        pointer = lake.written_by_hand(uuid=str(uuid4()) if "UUID" in state else None, dots="dots" in state)
    else:
        pointer = pointer_to(lake.trips) if state == "its metadata" else lake.first
    lake.point("b", pointer)
    with pytest.raises(
        InputError, match=r"nyc.other on branch 'b' isn't made of its own files: its location .* nyc.trips"
    ):
        find_staged(lake.context, "b")


def test_a_table_with_files_of_its_own_is_staged(lake: Lake) -> None:
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    own = lake.tables.create()
    append(own, [1])
    lake.point("b", pointer_to(own))
    assert [staged.table for staged in find_staged(lake.context, "b")] == [OTHER]
    append(own, [2])
    lake.point("b", pointer_to(own))
    assert [staged.table for staged in find_staged(lake.context, "b")] == [OTHER]


@pytest.mark.parametrize("what", ["manifest list", "manifests", "data files"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
def test_a_table_that_lists_another_ones_files_is_not_staged(lake: Lake, what: str, exists: bool) -> None:
    own = lake.tables.create()
    append(own, [7])
    if exists:
        lake.point("main", pointer_to(own))
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    lake.point("b", listing_files_of(lake.trips, own, what))
    with pytest.raises(InputError, match=r"nyc.other on branch 'b' isn't made of its own files: it lists"):
        find_staged(lake.context, "b")


def test_files_that_a_table_has_long_had_stay_publishable(lake: Lake) -> None:
    # Its next manifest lists them again.
    own = lake.tables.create({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    append(own, [7])
    lake.point("main", listing_files_of(lake.trips, own, "data files"))
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    at_main = lake.catalog.get_table(OTHER, lake.catalog.get_ref("main"))
    assert at_main is not None
    table = lake.tables.at(at_main)
    append(table, [8])
    with table.update_spec() as update:
        update.add_identity("region")
    lake.point("b", pointer_to(table))
    assert [staged.table for staged in find_staged(lake.context, "b")] == [OTHER]


def test_a_table_that_is_only_on_main_keeps_its_files_for_itself(lake: Lake) -> None:
    own = lake.tables.create()
    append(own, [7])
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    later = lake.tables.create()
    append(later, [8])
    lake.point("main", pointer_to(later), TableIdentifier.parse("nyc.later"))
    lake.point("b", listing_files_of(later, own, "data files"))
    with pytest.raises(InputError, match=r"nyc.other on branch 'b' isn't made of its own files: it lists"):
        find_staged(lake.context, "b")


@pytest.mark.parametrize("exists", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("way", ["a folder above both", "a link to the other's folder", "its metadata in the other's"])
def test_no_way_of_writing_a_location_makes_another_ones_files_its_own(
    lake: Lake, tmp_path: Path, way: str, exists: bool
) -> None:
    own = lake.tables.create()
    append(own, [7])
    if exists:
        lake.point("main", pointer_to(own))
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    pointer = listing_files_of(lake.trips, own, "data files")
    theirs = local_path(lake.trips.location())
    path = local_path(pointer.metadata_location)
    content = path.read_text()
    if way == "a folder above both":
        document = json.loads(content) | {"location": theirs.parent.as_uri()}
        content = json.dumps(document)
    elif way == "a link to the other's folder":
        (local_path(own.location()) / "data" / "x").symlink_to(theirs / "data")
        linked = listing_files_of(lake.trips, own, "data files", under=f"{own.location()}/data/x")
        path = local_path(linked.metadata_location)
        content = path.read_text()
    else:
        path = theirs / "metadata" / "00077-x.metadata.json"
    path.write_text(content)
    lake.point("b", pointer.model_copy(update={"metadata_location": path.as_uri()}))
    with pytest.raises(InputError, match=r"nyc.other on branch 'b' isn't made of its own files"):
        find_staged(lake.context, "b")


@pytest.mark.parametrize("table", [OTHER, TRIPS], ids=["new", "existing"])
def test_what_a_fast_clock_wrote_is_not_staged(lake: Lake, table: TableIdentifier) -> None:
    """Nobody could write to it until then."""
    lake.catalog.create_branch("b", lake.catalog.get_ref("main"))
    if table == TRIPS:
        append(lake.trips, [3])
        pointer = pointer_to(lake.trips)
    else:
        own = lake.tables.create()
        append(own, [7])
        pointer = pointer_to(own)
    path = local_path(pointer.metadata_location)
    document = json.loads(path.read_text())
    for ahead_s, is_refused in ((3600, True), (50, False)):
        moved = path.with_name(f"00009-{ahead_s}.metadata.json")
        moved.write_text(json.dumps(document | {"last-updated-ms": document["last-updated-ms"] + ahead_s * 1000}))
        lake.point("b", pointer.model_copy(update={"metadata_location": moved.as_uri()}), table)
        if is_refused:
            with pytest.raises(ClockError, match=r"on branch 'b' was written by a clock that is .* ahead") as caught:
                find_staged(lake.context, "b")
            assert "lakegate discard b" in (caught.value.hint or "")
        else:
            assert [staged.table for staged in find_staged(lake.context, "b")] == [table]
