"""Verify a lake: each kind of damage is found and named, and the fix in the finding repairs it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from sqlalchemy import text

from lakegate.errors import ConfigurationError, EngineError, NotFoundError, SourceError, StorageUnavailableError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import LocalFileStore, TableFiles, local_path
from lakegate.iceberg.manifests import (
    LIST_SCHEMA,
    ListedManifest,
    ManifestList,
    read_container,
    read_entries,
    read_list,
    write_entries,
    write_list,
)
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal import integrity, runs
from lakegate.journal.database import JournalTransaction
from lakegate.journal.journal import Journal
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import NeededFile, VerifyFinding, VerifyReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.ports import Engine
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog
from lakegate.wap.context import Context
from lakegate.wap.gc import gc
from lakegate.wap.history import FILES_PROPERTY, TABLES_PROPERTY, encode_files, sync
from lakegate.wap.recover import rebuild
from lakegate.wap.revert import restore_table, revert
from lakegate.wap.table_changes import drop_table, rename_table
from lakegate.wap.verify import verify
from support.iceberg_tables import (
    NAME,
    IcebergTables,
    delete_by_equality,
    delete_by_vectors,
    iceberg_tables,
    listing_files_of,
    pointer_to,
    vector_blob,
)
from support.memory_journal import MemoryDatabase
from support.memory_store import MemoryStore


class Lake:
    """A lake of one table that PyIceberg writes, published by runs to a catalog in memory.

    Args:
        tables: The catalog of PyIceberg.
        root: The warehouse.
        states: The table after each run, if they have been written before.
    """

    def __init__(self, tables: IcebergTables, root: str, states: Sequence[TablePointer] = ()) -> None:
        self.catalog = MemoryCatalog()
        self.database = MemoryDatabase()
        self.journal = Journal(self.database)
        self.root = root
        self.table: Table = tables.at(states[-1]) if states else tables.create()
        namespace = CommitRequest(branch="main", base=self.head.hash, message="ns", namespaces=(("nyc",),))
        self.catalog.commit(namespace)
        if states:
            self.commits = [self.put(self.about(number), state) for number, state in enumerate(states, 1)]
        else:
            self.commits = [self.publish(number) for number in range(1, 4)]
        sync(self.context, "main")

    @property
    def head(self) -> Ref:
        return self.catalog.get_ref("main")

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.catalog,
            reader=IcebergTableReader(),
            editor=IcebergTableEditor(),
            engine=lambda: cast("Engine", None),
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse=self.root,
            changed_files=lambda _: (),
        )

    def publish(self, number: int, *, by_run: bool = True) -> str:
        """Append a row and publish it, by default as run ``rN`` of the source file ``fN``; return the commit."""
        run = {RUN_ID_PROPERTY: f"r{number}"} if by_run else {}
        rows = pa.table({"id": [number], "region": ["n"]}, schema=self.table.schema().as_arrow())
        self.table.append(rows, snapshot_properties=run)
        return self.put(self.about(number) if by_run else {})

    def about(self, number: int) -> dict[str, str]:
        """Return what a run's commit says of it."""
        return {RUN_ID_PROPERTY: f"r{number}", TABLES_PROPERTY: str(NAME), FILES_PROPERTY: self.files(number)}

    @staticmethod
    def file(number: int) -> SourceFile:
        version = f"sha256:{number}"
        return SourceFile(uri=f"file:///in/{number}", size_bytes=1, version=version, rows=1, identity=f"1:{number}:0")

    @classmethod
    def files(cls, number: int) -> str:
        return encode_files([cls.file(number)])

    def put(self, properties: dict[str, str], state: TablePointer | None = None) -> str:
        was = self.catalog.get_table(NAME, self.head)
        content_id = None if was is None else was.content_id
        pointer = (state or pointer_to(self.table)).model_copy(update={"content_id": content_id})
        request = CommitRequest(branch="main", base=self.head.hash, message="m", puts=(pointer,), properties=properties)
        return self.catalog.commit(request).hash

    def verify(self, **changed: Any) -> VerifyReport:
        given: dict[str, Any] = {"grace": timedelta(days=1), "now": datetime.now(UTC), **changed}
        return verify(self.context, files=LocalFileStore(self.root), **given)

    def damage_journal(self, statement: str) -> None:
        with self.database.writing() as tx:
            tx.execute(text(statement))

    def data_file(self, number: int) -> Path:
        """Return the data file of the run ``rN``."""
        snapshot = self.table.metadata.snapshots[number - 1]
        added = IcebergTableReader().added_files(pointer_to(self.table), [snapshot.snapshot_id]).files
        return local_path(added[0].path)

    def manifest_list(self) -> Path:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return local_path(snapshot.manifest_list)

    def edit_metadata(self, change: Callable[[dict[str, Any]], None]) -> None:
        path = local_path(self.table.metadata_location)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Sequence[TablePointer]]:
    """The lake's folder, a copy to restore it from, and the table after each run: writing it takes 0.1 s."""
    folder = tmp_path_factory.mktemp("verified")
    with iceberg_tables(folder / "lake") as tables:
        lake = Lake(tables, (folder / "lake").as_uri())
        found = (lake.catalog.get_table(NAME, lake.catalog.get_ref(commit)) for commit in lake.commits)
        states = [state for state in found if state is not None]
    (folder / "lake").rename(folder / "copy")
    return folder / "lake", folder / "copy", states


@pytest.fixture
def root(written: tuple[Path, Path, Sequence[TablePointer]]) -> Iterator[Path]:
    folder, pristine, _ = written
    shutil.copytree(pristine, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def iceberg(root: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(root) as opened:
        yield opened


@pytest.fixture
def lake(iceberg: IcebergTables, root: Path, written: tuple[Path, Path, Sequence[TablePointer]]) -> Lake:
    return Lake(iceberg, root.as_uri(), written[2])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_sound_lake_has_no_findings(lake: Lake) -> None:
    report = lake.verify(deep=True)
    assert report.passed, report.findings
    on_disk = [path for path in local_path(lake.root).rglob("*") if path.is_file()]
    # The first metadata file, of the table before its first publish, is in no commit.
    assert (report.tables, report.states, report.commits, report.runs) == (1, 3, 4, 3)
    assert (report.files, report.deep) == (len(on_disk) - 1, True)
    assert report.size_bytes < sum(path.stat().st_size for path in on_disk)
    delete_row(lake, VECTOR)
    report = lake.verify(deep=True)
    assert report.passed, report.findings


def test_sound_equality_deletes_are_no_finding(lake: Lake) -> None:
    delete_equal(lake, [1])
    report = lake.verify(deep=True)
    assert report.passed, report.findings


@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifests", "data files"])
def test_a_table_made_of_another_ones_files_is_found(lake: Lake, iceberg: IcebergTables, what: str) -> None:
    own = iceberg.create()
    state = pointer_to(lake.table) if what == "metadata" else listing_files_of(lake.table, own, what)
    other = state.model_copy(update={"table": TableIdentifier.parse("nyc.other"), "content_id": None})
    lake.catalog.create_branch("b", lake.head)
    lake.catalog.commit(CommitRequest(branch="b", base=lake.head.hash, message="m", puts=(other,)))
    ours = {path for path in local_path(lake.table.location()).rglob("*") if path.is_file()}
    (found,) = (one for one in lake.verify(deep=True).findings if one.kind == "shared-files")
    assert (found.table, "nyc.trips" in found.message) == ("nyc.other", True)
    assert all("/" + lake.table.location().rpartition("/")[2] + "/" in path for path in found.files)
    given: dict[str, Any] = {"keep_rejected": timedelta(0), "grace": timedelta(0)}
    later = datetime.now(UTC) + timedelta(days=1)
    gc(lake.context, files=LocalFileStore(lake.root), now=later, **given)
    # The metadata file of the table before its first publish goes.
    assert sum(not path.exists() for path in ours) == 1
    drop_table(lake.context, NAME, new_run_id="dropped")
    gc(lake.context, files=LocalFileStore(lake.root), now=later, history=timedelta(0), **given)
    assert len(set(lake.context.reader.reach(other))) > 1
    assert not lake.context.reader.missing(list(lake.context.reader.reach(other)))


def test_a_compaction_may_keep_lower_sequence_numbers(lake: Lake) -> None:
    rewrite_entry(lake, sequence_number=2, least=2)
    lake.edit_metadata(say("replace"))
    assert lake.verify().passed


def test_a_renamed_table_has_its_files_for_itself(lake: Lake) -> None:
    rename_table(lake.context, NAME, TableIdentifier.parse("nyc.rides"), new_run_id="renamed")
    report = lake.verify(deep=True)
    assert report.passed, report.findings


def test_files_below_a_folder_with_dots_in_its_path_are_not_garbage(lake: Lake, iceberg: IcebergTables) -> None:
    local_path(f"{lake.root}/x").mkdir()
    lake.table = iceberg.catalog.create_table("nyc.dots", lake.table.schema(), location=f"{lake.root}/x/../nyc/./dots")
    lake.publish(4)
    later = datetime.now(UTC) + timedelta(days=1)
    report = lake.verify(now=later, grace=timedelta(0), deep=True)
    assert {one.number for one in report.findings if one.kind == "orphaned-files"} == {2}, "two first metadata files"
    gc(lake.context, files=LocalFileStore(lake.root), keep_rejected=timedelta(0), grace=timedelta(0), now=later)
    assert not lake.context.reader.missing(list(lake.context.reader.reach(pointer_to(lake.table))))


def manifest(lake: Lake) -> Path:
    return local_path(read_list(lake.manifest_list().read_bytes()).manifests[0].file.manifest_path)


def miscount(document: dict[str, Any]) -> None:
    document["snapshots"][-1]["summary"]["total-records"] = "7"


def missize(document: dict[str, Any]) -> None:
    document["snapshots"][-1]["summary"]["total-files-size"] = "7"


def say(operation: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["snapshots"][-1]["summary"].update(operation=operation)


def forget_snapshot(document: dict[str, Any]) -> None:
    document["current-snapshot-id"] = document["snapshots"][0]["snapshot-id"]


def rewrite(path: Path) -> None:
    """Give a data file another number of rows, and the size it had."""
    size, rows = path.stat().st_size, pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows]), path, write_statistics=False, store_schema=False)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[:footer] + bytes(size - len(content)) + content[footer:])


def relist(lake: Lake, *, copied: bool) -> None:
    """List the manifest of the second run in place of the third's, as it is or as a copy that is said to be another."""
    path, snapshot = lake.manifest_list(), lake.table.current_snapshot()
    assert snapshot is not None
    found = read_list(path.read_bytes())
    newest, second, first = found.manifests
    where, length = second.file.manifest_path, second.file.manifest_length
    if copied:
        where = f"{lake.root}/copy-m0.avro"
        local_path(where).write_bytes(local_path(second.file.manifest_path).read_bytes())
    told = second.file if copied else newest.file
    line = ManifestFile(where, length, *(told[at] for at in range(2, len(told))))
    lines = (ListedManifest(line), second, first)
    parent, number = snapshot.parent_snapshot_id, snapshot.sequence_number or 0
    path.write_bytes(write_list(ManifestList(found.meta, lines), snapshot.snapshot_id, parent, number))


def count_no_deletes(lake: Lake) -> None:
    delete_row(lake, VECTOR)
    lake.edit_metadata(lambda document: document["snapshots"][-1]["summary"].update({"total-delete-files": "0"}))


def list_manifests(lake: Lake, change: Callable[[list[ListedManifest]], list[ListedManifest]], rows: int) -> None:
    """Change what the newest snapshot lists, and its totals to that."""
    path, snapshot = lake.manifest_list(), lake.table.current_snapshot()
    assert snapshot is not None
    found = read_list(path.read_bytes())
    lines, number = tuple(change(list(found.manifests))), snapshot.sequence_number or 0
    path.write_bytes(
        write_list(ManifestList(found.meta, lines), snapshot.snapshot_id, snapshot.parent_snapshot_id, number)
    )
    totals = {"total-records": str(rows), "total-data-files": str(rows)}
    lake.edit_metadata(lambda document: document["snapshots"][-1]["summary"].update(totals))


def relabelled(line: ListedManifest, name: str, value: int) -> ListedManifest:
    """Return a manifest's record in the list with another value of one field."""
    at = [field.name for field in LIST_SCHEMA.fields].index(name)
    return ListedManifest(ManifestFile(*(value if n == at else line.file[n] for n in range(len(line.file)))))


def rewrite_entry(lake: Lake, *, sequence_number: int = 3, least: int = 3, content: int = 0) -> None:
    """Give the data file of the third run another sequence number or content in its manifest.

    Args:
        least: The manifest's lowest sequence number, by its list.
    """
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None

    def rewrite(lines: list[ListedManifest]) -> list[ListedManifest]:
        line = next(one for one in lines if one.file.added_snapshot_id == snapshot.snapshot_id)
        path = local_path(line.file.manifest_path)
        container = read_container(path.read_bytes())
        (entry,) = read_entries(container, line.file)
        raw = bytes([2 * content]) + entry.raw[1:]
        written = write_entries(container.meta, [replace(entry, raw=raw, sequence_number=sequence_number)])
        path.write_bytes(written)
        changed = relabelled(relabelled(line, "manifest_length", len(written)), "min_sequence_number", least)
        return [changed if one is line else one for one in lines]

    list_manifests(lake, rewrite, 3)


def misnumber(document: dict[str, Any]) -> None:
    document["snapshots"][-1]["sequence-number"] = 1


def renumber(path: Path) -> None:
    """Give a field of a manifest list an id that nobody knows, as one bit can."""
    path.write_bytes(path.read_bytes().replace(b'"field-id": 506', b'"field-id": 706'))


def mislay(document: dict[str, Any]) -> None:
    document["snapshots"][0]["manifest-list"] = "nowhere://lists/1.avro"


def delete_row(lake: Lake, blob: bytes, rows: int = 1, times: int = 1, **changed: Any) -> None:
    """Delete the row of the third run by deletion vectors."""
    target = f"file://{lake.data_file(3)}"
    delete_by_vectors(lake.table, [(target, blob, rows)] * times, **changed)


def delete_equal(lake: Lake, keys: Sequence[int]) -> Path:
    """Delete the row of the third run by its id, in a file that is said to delete by columns with these field ids."""
    return delete_by_equality(lake.table, pa.table({"id": [3]}, schema=pa.schema([_ID])), keys)


def disorder(document: dict[str, Any]) -> None:
    document["snapshot-log"][0]["timestamp-ms"] += 3_600_000


def reuse_ids(document: dict[str, Any]) -> None:
    document["last-column-id"] = 1


FIELDS = (("id", pa.int64(), "1"), ("fare", pa.float64(), "2"))
_ID = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
VECTOR = vector_blob([0])
DAMAGES: Sequence[tuple[str, Callable[[Lake], object], str]] = [
    ("missing-file", lambda lake: lake.data_file(2).unlink(), "lakegate revert r2"),
    ("wrong-size", lambda lake: cut(lake.data_file(3)), "lakegate revert r3"),
    ("missing-file", lambda lake: manifest(lake).unlink(), "table restore nyc.trips --at {1}"),
    ("missing-file", lambda lake: lake.manifest_list().unlink(), "table restore nyc.trips --at {1}"),
    ("unreadable-file", lambda lake: manifest(lake).write_bytes(b"?"), "table restore nyc.trips --at {1}"),
    (
        "missing-file",
        lambda lake: local_path(lake.table.metadata_location).unlink(),
        "table restore nyc.trips --at {1}",
    ),
    ("unreadable-file", lambda lake: renumber(lake.manifest_list()), "table restore nyc.trips --at {1}"),
    ("unreadable-file", lambda lake: local_path(lake.table.metadata_location).write_text("{}"), "--at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(miscount), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(missize), "table restore nyc.trips --at {1}"),
    ("unloadable-table", lambda lake: lake.edit_metadata(forget_snapshot), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(say("shuffle")), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(say("delete")), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(misnumber), "table restore nyc.trips --at {1}"),
    ("unloadable-table", lambda lake: lake.edit_metadata(disorder), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: lake.edit_metadata(reuse_ids), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: delete_equal(lake, [7]), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: delete_equal(lake, []), "table restore nyc.trips --at {1}"),
    ("wrong-rows", lambda lake: delete_equal(lake, [2]), "table restore nyc.trips --at {1}"),
    ("missing-file", lambda lake: delete_equal(lake, [1]).unlink(), "table restore nyc.trips --at {1}"),
    ("wrong-size", lambda lake: cut(delete_equal(lake, [1])), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: relist(lake, copied=False), "table restore nyc.trips --at {0}"),
    ("wrong-count", lambda lake: relist(lake, copied=True), "table restore nyc.trips --at {0}"),
    ("wrong-count", lambda lake: list_manifests(lake, lambda lines: [*lines, lines[0]], 4), "--at {1}"),
    ("wrong-count", lambda lake: list_manifests(lake, lambda lines: lines[:-1], 2), "--at {1}"),
    (
        "wrong-count",
        lambda lake: list_manifests(lake, lambda lines: [*lines[:-1], lines[-1].with_sequence_number(9)], 3),
        "--at {1}",
    ),
    (
        "wrong-count",
        lambda lake: list_manifests(
            lake, lambda lines: [*lines[:-1], relabelled(lines[-1], "partition_spec_id", 9)], 3
        ),
        "--at {1}",
    ),
    ("wrong-count", lambda lake: rewrite_entry(lake, sequence_number=9), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: rewrite_entry(lake, sequence_number=2), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: rewrite_entry(lake, sequence_number=2, least=2), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: rewrite_entry(lake, content=1), "table restore nyc.trips --at {1}"),
    ("wrong-count", count_no_deletes, "table restore nyc.trips --at {1}"),
    ("wrong-rows", lambda lake: rewrite(lake.data_file(2)), "lakegate revert r2"),
    ("unreadable-file", lambda lake: delete_row(lake, VECTOR[:-1] + b"?"), "table restore nyc.trips --at {1}"),
    ("unreadable-file", lambda lake: delete_row(lake, VECTOR, content_offset=7), "restore nyc.trips --at {1}"),
    ("unreadable-file", lambda lake: delete_row(lake, VECTOR, 2), "table restore nyc.trips --at {1}"),
    ("wrong-rows", lambda lake: delete_row(lake, vector_blob([1])), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: delete_row(lake, VECTOR, times=2), "table restore nyc.trips --at {1}"),
    ("wrong-count", lambda lake: delete_row(lake, VECTOR, content_offset=None), "restore nyc.trips --at {1}"),
]


def swap(lake: Lake) -> None:
    """Put the data files of two runs, of equal size, in each other's place."""
    one, other = lake.data_file(1), lake.data_file(2)
    assert one.stat().st_size == other.stat().st_size
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def test_data_files_in_each_others_place_are_found(lake: Lake) -> None:
    swap(lake)
    assert lake.verify().passed
    found = lake.verify(deep=True).findings
    assert [(one.kind, one.run_id) for one in found] == [("wrong-rows", "r2"), ("wrong-rows", "r1")]
    assert "its column id has values outside the bounds in its manifest" in found[0].message


@pytest.mark.parametrize(("kind", "damage", "fix"), DAMAGES, ids=[f"{n}-{one[0]}" for n, one in enumerate(DAMAGES)])
def test_damaged_files_are_found(lake: Lake, kind: str, damage: Callable[[Lake], object], fix: str) -> None:
    damage(lake)
    found = lake.verify(deep=True).findings
    assert [one.kind for one in found] == [kind], found
    assert found[0].table == str(NAME)
    assert fix.format(*(commit[:12] for commit in lake.commits)) in found[0].fix
    take(lake, found[0].fix)
    assert not [one for one in lake.verify(deep=True).findings if "on main" in one.message]


def take(lake: Lake, advice: str) -> Run:
    """Do what a finding says."""
    restored, reverted = re.search(r"--at (\w+)", advice), re.search(r"lakegate revert (\w+)", advice)
    if reverted is not None:
        return revert(lake.context, reverted[1], new_run_id="x")
    assert restored is not None
    commit = next(one for one in lake.commits if one.startswith(restored[1]))
    return restore_table(lake.context, NAME, Ref(name=commit, hash=commit), new_run_id="x")


def test_pages_that_cannot_be_read_are_found_by_reading_them(lake: Lake) -> None:
    path = lake.data_file(2)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(16) + content[20:])
    assert lake.verify(deep=True).passed
    (found,) = lake.verify(pages=True).findings
    assert (found.kind, found.run_id) == ("unreadable-file", "r2")
    assert "one of its pages can't be read" in found.message


def test_a_bit_that_flipped_in_a_page_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    pq.write_table(rows, path, compression="none", use_dictionary=False, write_page_checksum=True)
    content = path.read_bytes()
    path.write_bytes(content.replace((2).to_bytes(8, "little"), (3).to_bytes(8, "little"), 1))
    assert pq.read_table(path)["id"].to_pylist() == [1, 3, 3]
    file = NeededFile(path.as_uri(), "data file", rows=3)
    reader = IcebergTableReader()
    assert list(reader.footer_flaws([file], pages=False)) == [None]
    (flaw,) = reader.footer_flaws([file], pages=True)
    assert flaw is not None
    assert "CRC" in flaw.message


def test_numbers_of_nulls_are_compared_with_the_footer(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ids, fares = (pa.field(name, kind, metadata={"PARQUET:field_id": key}) for name, kind, key in FIELDS)
    rows = pa.table({"id": [1, 2, 3], "fare": [0.5, None, None]}, schema=pa.schema([ids, fares]))
    pq.write_table(rows, path, row_group_size=2)
    reader, file = IcebergTableReader(), NeededFile(path.as_uri(), "data file", rows=3)
    counts: Sequence[dict[int, int]] = ({}, {2: 2}, {1: 0, 2: 2}, {1: 1, 2: 2}, {2: 0})
    flaws = reader.footer_flaws([file._replace(nulls=one) for one in counts], pages=False)
    assert [flaw and flaw.message for flaw in flaws] == [
        *[None] * 3,
        "its column id holds 0 NULLs, not 1",
        "its column fare holds 2 NULLs, not 0",
    ]


def test_metadata_that_cannot_be_followed_or_opened_is_a_finding_too(lake: Lake) -> None:
    lake.edit_metadata(mislay)
    assert [one.kind for one in lake.verify().findings] == ["unreadable-file"]
    path = local_path(lake.table.metadata_location)
    path.unlink()
    path.mkdir()
    kinds = {one.kind for one in lake.verify().findings}
    assert kinds == {"unreadable-file"}


@pytest.mark.parametrize("tables", [(), (NAME,)])
@pytest.mark.parametrize("of", ["metadata", "list"])
@pytest.mark.parametrize(
    ("trouble", "raised"),
    [
        (ConfigurationError("No credentials."), ConfigurationError),
        (SourceError("S3 refuses."), SourceError),
        (OSError(5, "Input/output error"), EngineError),
    ],
)
def test_metadata_that_cannot_be_read_just_now_is_no_finding(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, trouble: Exception, raised: type, of: str, tables: Any
) -> None:
    refused = local_path(lake.table.metadata_location) if of == "metadata" else lake.manifest_list()
    content = TableFiles.content

    def refuse(files: TableFiles, location: str) -> bytes:
        if local_path(location) == refused:
            raise trouble
        return content(files, location)

    monkeypatch.setattr(TableFiles, "content", refuse)
    with pytest.raises(raised):
        lake.verify(tables=tables)


def test_a_data_file_that_may_not_be_read_is_no_finding(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for trouble, raised in (
        (PermissionError(13, "access denied"), EngineError),
        (SourceError("S3 refuses."), SourceError),
        (StorageUnavailableError("S3 doesn't answer."), StorageUnavailableError),
    ):
        monkeypatch.setattr(TableFiles, "open", Mock(side_effect=trouble))
        with pytest.raises(raised):
            lake.verify(deep=True)


def test_a_store_that_does_not_say_whether_a_file_exists_is_no_finding(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr("lakegate.iceberg.files.open_store", lambda _uri, _settings: store)
    snapshot = lake.table.current_snapshot()
    assert snapshot is not None
    elsewhere = {"snapshot-id": snapshot.snapshot_id, "statistics-path": "s3://elsewhere/1.puffin"}
    lake.edit_metadata(lambda document: document.update({"statistics": [elsewhere]}))
    assert [one.kind for one in lake.verify().findings] == ["missing-file"]
    for trouble, kind in (
        (ConfigurationError("No credentials."), ConfigurationError),
        (SourceError("The bucket doesn't exist."), SourceError),
        (PermissionError(13, "access denied (403)"), ConfigurationError),
    ):
        monkeypatch.setattr(store, "stat", Mock(side_effect=trouble))
        with pytest.raises(kind):
            lake.verify()


def test_a_table_with_damaged_metadata_can_be_dropped(lake: Lake) -> None:
    local_path(lake.table.metadata_location).unlink()
    run = drop_table(lake.context, NAME, new_run_id="x")
    assert (run.undone[0].rows, run.undone[0].dropped) == (None, True)


def test_what_an_older_state_needs_is_found_and_no_revert_is_offered(lake: Lake) -> None:
    gone = lake.data_file(1)
    lake.table.overwrite(lake.table.scan().to_arrow().slice(1))
    lake.put({RUN_ID_PROPERTY: "r4", TABLES_PROPERTY: str(NAME)})
    sync(lake.context, "main")
    gone.unlink()
    (found,) = lake.verify().findings
    assert (found.kind, found.run_id, found.files) == ("missing-file", "r1", (f"file://{gone}",))
    assert "an older state" in found.message
    assert "lakegate revert" not in found.fix


def test_a_file_that_two_manifests_name_is_counted_once(lake: Lake) -> None:
    files = lake.verify().files
    lake.table.delete("id = 1")  # PyIceberg drops the file, and writes its manifest again
    lake.put({RUN_ID_PROPERTY: "r4", TABLES_PROPERTY: str(NAME)})
    sync(lake.context, "main")
    report = lake.verify(deep=True)
    on_disk = [path for path in local_path(lake.root).rglob("*") if path.is_file()]
    assert files < report.files <= len(on_disk)


def test_an_operation_that_is_not_what_a_snapshot_did_is_found(lake: Lake) -> None:
    lake.table.delete("id = 1")
    lake.put({RUN_ID_PROPERTY: "r4", TABLES_PROPERTY: str(NAME)})
    sync(lake.context, "main")
    assert lake.verify().passed
    lake.edit_metadata(say("append"))
    (found,) = lake.verify().findings
    assert (found.kind, found.table) == ("wrong-count", str(NAME))
    assert "has the operation 'append', but it removed 1 file" in found.message


def test_files_that_nothing_needs_are_counted_once_they_are_old(lake: Lake) -> None:
    folder = local_path(lake.table.location()) / "data"
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(b"12345")
    assert lake.verify().passed
    (found,) = lake.verify(now=datetime.now(UTC) + timedelta(days=2)).findings
    # Besides, the metadata file of the table before its first publish.
    assert (found.kind, found.number, found.fix) == ("orphaned-files", 3, "Delete them: lakegate gc")
    assert lake.verify(now=datetime.now(UTC) + timedelta(days=2)).passed  # they only take room
    assert found.size_bytes is not None
    assert found.size_bytes > 10
    assert lake.verify(now=datetime.now(UTC) + timedelta(days=2), tables=[NAME]).passed
    # What can't be read may need them.
    manifest(lake).unlink()
    kinds = [one.kind for one in lake.verify(now=datetime.now(UTC) + timedelta(days=2)).findings]
    assert kinds == ["missing-file"]


def test_commits_that_no_run_made_are_found_until_somebody_accepts_them(lake: Lake) -> None:
    before = lake.head.hash
    commit = lake.publish(4, by_run=False)
    (found,) = lake.verify().findings
    assert (found.kind, found.commit, found.table) == ("foreign-commit", commit, str(NAME))
    assert f"table restore nyc.trips --at {before[:12]}" in found.fix
    assert lake.verify(since=lake.head).passed

    drop = CommitRequest(branch="main", base=lake.head.hash, message="drop", deletes=(NAME,))
    lake.catalog.commit(drop)
    assert [one.kind for one in lake.verify(since=Ref(name=commit, hash=commit)).findings] == ["foreign-commit"]


def run_of(lake: Lake, run_id: str, **changes: Any) -> Run:
    known = lake.journal.get("r1")
    assert known is not None
    return known.model_copy(update={"run_id": run_id, **changes})


def forget_run(lake: Lake) -> None:
    lake.damage_journal("DELETE FROM runs WHERE run_id = 'r2'")


def lose_lease(lake: Lake) -> None:
    running = {"status": "running", "publication": None, "finished_at": None}
    token = lake.journal.begin(run_of(lake, "r9", **running))
    lake.journal.abandon("r9", token)


def lose_lease_early(lake: Lake) -> None:
    """As a transaction that was killed before it wrote to a table."""
    running = {"status": "running", "publication": None, "finished_at": None, "tables": (), "kind": "transaction"}
    lake.journal.abandon("r9", lake.journal.begin(run_of(lake, "r9", **running)))


def lose_lease_row(lake: Lake) -> None:
    lose_lease(lake)
    lake.damage_journal("DELETE FROM leases")


JOURNALS: Sequence[tuple[list[str], Callable[[Lake], object], str]] = [
    (["lost-lease"], lose_lease, "lakegate recover r9"),
    (["lost-lease"], lose_lease_early, "lakegate recover r9"),
    (["lost-lease"], lose_lease_row, "lakegate recover r9"),
    (["run-without-commit"], lambda lake: lake.journal.save(run_of(lake, "r8")), "lakegate journal rebuild"),
    (["unknown-run"], forget_run, "lakegate journal rebuild"),
    (
        ["differing-run"],
        lambda lake: lake.damage_journal(
            "UPDATE runs SET status = 'failed', document = replace(document, '\"published\"', '\"failed\"') "
            "WHERE run_id = 'r2'"
        ),
        "lakegate journal rebuild",
    ),
    (
        ["differing-run"],
        lambda lake: lake.damage_journal(
            f"UPDATE runs SET document = replace(document, '{lake.commits[1]}', '{lake.commits[0]}') "
            "WHERE run_id = 'r2'"
        ),
        "lakegate journal rebuild",
    ),
    (
        ["journal-rows"],
        lambda lake: lake.damage_journal("UPDATE claims SET rows = 'many' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    *(
        (["journal-rows"], lambda lake, text=text: lake.damage_journal(text), "lakegate journal rebuild")
        for text in (
            "UPDATE runs SET status = '?' WHERE run_id = 'r2'",
            "UPDATE runs SET status = 'failed' WHERE run_id = 'r2'",
            "UPDATE runs SET document = '?' WHERE run_id = 'r2'",
            "UPDATE runs SET document = x'ff', branch = x'ff', started_at = x'ff' WHERE run_id = 'r2'",
            "UPDATE run_tables SET started_at = 'then' WHERE run_id = 'r2'",
            "UPDATE events SET committed_at = '2020-01-01T00:00:00.000000+00:00' WHERE run_id = 'r2'",
            "UPDATE events SET run_id = 'r3' WHERE run_id = 'r2'",
            "UPDATE events SET run_id = '' WHERE run_id = 'r2'",
            "UPDATE run_tables SET table_name = 'nyc.other' WHERE run_id = 'r2'",
            "UPDATE run_tables SET run_id = 'r9' WHERE run_id = 'r2'",
            "INSERT INTO run_tables SELECT run_id, 'nyc.other', started_at FROM run_tables WHERE run_id = 'r2'",
            "INSERT INTO steps VALUES ('r2', 0, 'stage', '2026-01-01T00:00:00.000000+00:00', NULL, 'done')",
            "INSERT INTO check_results VALUES ('r2', 0, 'nyc.trips', 'a', 'a', 'error', 'fail', 'scan', 1, 1)",
            "INSERT INTO claims VALUES (99, 'nyc.trips', 'file:///x', 'v', 1, 1, 'claimed', 'r2', '')",
            "INSERT INTO claims VALUES (99, 'nyc.trips', 'file:///x', 'v', 1, 1, 'claimed', 'r9', '')",
            "DELETE FROM events WHERE run_id = 'r2'",
            "UPDATE history SET has_all_commits = 'yes'",
        )
    ),
    (
        ["journal-rows", "journal-rows"],
        lambda lake: lake.damage_journal("UPDATE events SET commit_hash = x'ff' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["journal-rows", "unknown-run"],
        lambda lake: lake.damage_journal("UPDATE runs SET run_id = 'r0' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET identity = '1:9:0' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET run_id = 'r3' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["source-files", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET table_name = 'nyc.other' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["source-files", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET path = 'file:///in/9' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["journal-rows", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET state = 'claimed' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
    (
        ["source-files", "source-files"],
        lambda lake: lake.damage_journal("UPDATE claims SET version = 'w' WHERE run_id = 'r2'"),
        "lakegate journal rebuild",
    ),
]


@pytest.mark.parametrize(
    ("kinds", "damage", "fix"), JOURNALS, ids=[f"{n}-{one[0][0]}" for n, one in enumerate(JOURNALS)]
)
def test_a_journal_that_disagrees_is_found(
    lake: Lake, kinds: list[str], damage: Callable[[Lake], object], fix: str
) -> None:
    damage(lake)
    found = lake.verify().findings
    assert [one.kind for one in found] == kinds, found
    assert all(fix in one.fix for one in found)
    if "rebuild" in fix:
        rebuild(lake.context, "main")
        assert lake.verify().passed


def test_a_damaged_row_is_described(lake: Lake) -> None:
    lake.damage_journal("UPDATE runs SET status = '?', kind = '?' WHERE run_id IN ('r2', 'r3')")
    (found,) = lake.verify().findings
    assert found.message == "2 rows of the journal's table runs can't be right: row r2: its kind is '?'."
    assert (found.run_id, found.number) == ("r2", 2)


def test_the_size_of_a_file_is_compared_with_its_runs_document(lake: Lake) -> None:
    batch = Batch(format="csv", files=(Lake.file(2),), columns=())
    request = IngestRequest(run_id="r2", table=NAME, branch="wap/r2", batch=batch)
    run = lake.journal.get("r2")
    assert run is not None
    lake.journal.save(run.model_copy(update={"request": request}))
    assert lake.verify().passed  # the journal knows the file from its commit, which has no sizes
    lake.damage_journal("UPDATE claims SET size_bytes = 7 WHERE run_id = 'r2'")
    (found,) = lake.verify().findings
    assert "table claims can't be right: row 2: its size_bytes is 7, but 1 in its run's document." in found.message
    rebuild(lake.context, "main")
    assert lake.verify().passed


def test_a_run_that_only_the_journal_knew_stays_when_its_document_is_damaged(lake: Lake) -> None:
    lake.journal.save(run_of(lake, "r9", status="failed", publication=None))
    lake.damage_journal("UPDATE runs SET document = '{' WHERE run_id = 'r9'")
    rebuild(lake.context, "main")
    assert lake.verify().passed
    run = lake.journal.get("r9")
    assert run is not None
    assert (run.status, run.tables, run.detail) == ("failed", (str(NAME),), "Its record was damaged.")


def test_a_run_of_a_newer_release_is_found_and_kept(lake: Lake) -> None:
    lake.damage_journal("""UPDATE runs SET document = '{"run_id": "r2", "status": "?"}' WHERE run_id = 'r2'""")
    (found,) = lake.verify().findings
    assert "pip install --upgrade lakegate" in found.fix
    rebuild(lake.context, "main")
    assert lake.verify().findings == (found,)


def test_a_lease_whose_times_are_damaged_is_lost(lake: Lake) -> None:
    lose_lease(lake)
    lake.damage_journal("UPDATE leases SET expires_at = 'soon', holder = 'host:1:1'")
    found = lake.verify().findings
    assert [one.kind for one in found] == ["journal-rows", "lost-lease"]
    assert lake.journal.take_over("r9") is not None
    assert lake.journal.abandoned() == []


def test_a_journal_that_is_ahead_of_main_is_found(lake: Lake) -> None:
    lake.catalog.assign_ref(lake.head, Ref(name=lake.commits[1], hash=lake.commits[1], kind="detached"))
    found: Sequence[VerifyFinding] = lake.verify().findings
    assert [(one.kind, one.run_id) for one in found] == [("journal-ahead", None), ("run-without-commit", "r3")]
    sync(lake.context, "main")
    assert lake.verify().passed


def test_a_reverted_run_that_main_has_lost_is_no_longer_one_of_main(lake: Lake) -> None:
    revert(lake.context, "r3", new_run_id="x")
    lake.catalog.assign_ref(lake.head, Ref(name=lake.commits[1], hash=lake.commits[1], kind="detached"))
    rebuild(lake.context, "main")
    assert lake.verify().passed
    run = lake.journal.get("r3")
    assert run is not None
    assert (run.status, run.publication, run.reverted_by) == ("discarded", None, None)


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_run_that_goes_on_while_it_is_read_is_no_finding_and_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_mended: bool
) -> None:
    """As in Postgres, where the second statement of a transaction sees what was committed since the first."""
    first = lake.journal.save(run_of(lake, "r9", status="failed", publication=None, tables=()))
    compare, names = vars(integrity)["_mismatches"], iter(["a.a", "b.b"])

    def meanwhile(tx: JournalTransaction, page: Sequence[Any]) -> Any:
        if page and (name := next(names, None)):
            runs.store(tx, first.model_copy(update={"tables": (name,)}))
        return compare(tx, page)

    monkeypatch.setattr(integrity, "_mismatches", meanwhile)
    if is_mended:
        next(names)  # once: then its row is locked
        rebuild(lake.context, "main")
    else:
        assert lake.verify().passed
    run = lake.journal.get("r9")
    assert run is not None
    assert run.tables == ("b.b",)


def test_what_the_journal_has_not_read_yet_is_no_finding(lake: Lake) -> None:
    lake.publish(4)
    assert lake.verify().passed


def test_a_table_that_is_nowhere_is_refused(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match=r"nyc\.trip doesn't exist"):
        lake.verify(tables=[NAME.model_copy(update={"name": "trip"})])
