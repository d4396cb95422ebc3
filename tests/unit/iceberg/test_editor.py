"""The table editor on tables that PyIceberg writes here, so no JVM is needed."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakegate.errors import EngineError, InputError, NotFoundError, NotReplayableError
from lakegate.iceberg import metadata
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import TableFiles, local_path
from lakegate.iceberg.manifests import (
    FileEntry,
    ListedManifest,
    ManifestList,
    _raw_entry_reader,
    explicit_first_row_id,
    read_container,
    read_entries,
    read_list,
    read_manifest,
    write_container,
    write_entries,
    write_list,
)
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.iceberg.snapshot_producer import Head, SnapshotProducer
from lakegate.iceberg.snapshot_producer import LoadedTable as TableState
from lakegate.model.maintenance import Flaw
from lakegate.model.refs import TablePointer
from support.iceberg_tables import (
    IcebergTables,
    append,
    delete_by_equality,
    iceberg_tables,
    ids_at,
    merge_deletes,
    pointer_to,
)
from support.version_1 import leave_out_counts


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with iceberg_tables(tmp_path) as made:
        yield made


@pytest.fixture
def editor() -> IcebergTableEditor:
    return IcebergTableEditor()


def document_at(pointer: TablePointer) -> dict[str, Any]:
    content = local_path(pointer.metadata_location).read_bytes()
    return dict(metadata.parse(content))


def rewritten(pointer: TablePointer, changes: Mapping[str, Any]) -> TablePointer:
    """Return the table with other metadata, written beside it."""
    location = f"{pointer.metadata_location.removesuffix('.metadata.json')}-x.metadata.json"
    local_path(location).write_text(json.dumps({**document_at(pointer), **changes}))
    return pointer.model_copy(update={"metadata_location": location})


def manifests_at(pointer: TablePointer) -> Sequence[ListedManifest]:
    (snapshot,) = [s for s in document_at(pointer)["snapshots"] if s["snapshot-id"] == pointer.snapshot_id]
    return read_list(local_path(snapshot["manifest-list"]).read_bytes()).manifests


def entries_at(pointer: TablePointer) -> list[FileEntry]:
    return [
        entry
        for manifest in manifests_at(pointer)
        for entry in read_entries(read_container(local_path(manifest.file.manifest_path).read_bytes()), manifest.file)
    ]


def live_at(pointer: TablePointer) -> list[FileEntry]:
    return [entry for entry in entries_at(pointer) if entry.is_live]


def split_at(pointer: TablePointer) -> tuple[set[str], list[FileEntry]]:
    """Return the paths of a state's data files, and the entries of its delete files, those removed included."""
    data, deletes = set[str](), list[FileEntry]()
    for manifest in manifests_at(pointer):
        entries = read_entries(read_container(local_path(manifest.file.manifest_path).read_bytes()), manifest.file)
        if manifest.file.content == ManifestContent.DELETES:
            deletes.extend(entries)
        else:
            data.update(entry.file.file_path for entry in entries if entry.is_live)
    return data, deletes


def paths_at(pointer: TablePointer) -> set[str]:
    return {entry.file.file_path for entry in live_at(pointer)}


def appended(tables: IcebergTables, base: TablePointer, ids: Sequence[int], region: str = "north") -> TablePointer:
    table = tables.at(base)
    append(table, ids, region)
    return pointer_to(table, "branch")


def contents_of(pointer: TablePointer) -> set[str]:
    return {path.name for path in local_path(pointer.metadata_location).parent.iterdir()}


def test_an_append_that_merged_manifests_of_delete_files_is_replayed(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    main = tables.create()
    append(main, [1, 2, 3])
    for ids in ([1], [2]):
        delete_by_equality(main, pa.table({"id": ids}), [1])
    branch = tables.at(pointer_to(main))
    append(branch, [4])
    merge_deletes(branch, lambda entry: entry)
    append(main, [5])
    staged, onto = pointer_to(branch, "branch"), pointer_to(main)
    moved = editor.rebase(staged, [staged.snapshot_id], onto)
    data, deletes = split_at(moved)
    assert data == split_at(staged)[0] | split_at(onto)[0]
    assert len(data) == 3
    assert {one.file.file_path for one in deletes} == {one.file.file_path for one in split_at(onto)[1]}
    assert len(deletes) == 2


@pytest.mark.parametrize(
    "spec",
    [
        PartitionSpec(),
        PartitionSpec(
            PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(1, 1001, IdentityTransform(), "id")
        ),
    ],
    ids=["plain", "partitioned"],
)
def test_many_replays_stay_small_and_right(
    tables: IcebergTables, editor: IcebergTableEditor, spec: PartitionSpec
) -> None:
    properties = {"commit.manifest.min-count-to-merge": "4", "lakegate.keep-snapshots": "5"}
    table = tables.create(properties, spec=spec)
    append(table, [0])
    base = main = pointer_to(table)
    staged = [appended(tables, base, [number], f"r{number % 3}") for number in range(1, 21)]
    for each in staged:
        main = editor.rebase(each, [each.snapshot_id], main)
        assert len(manifests_at(main)) <= 3 * 4
        document = document_at(main)
        assert len(document["snapshots"]) <= 5
        assert document["snapshots"][-1]["snapshot-id"] == main.snapshot_id
        logged = [entry["snapshot-id"] for entry in document["snapshot-log"]]
        assert logged == [one["snapshot-id"] for one in document["snapshots"]]
        assert {one["schema-id"] for one in document["snapshots"]} == {document["current-schema-id"]}
        written = read_container(local_path(document["snapshots"][-1]["manifest-list"]).read_bytes()).meta
        assert written["sequence-number"] == str(document["last-sequence-number"])
    assert ids_at(main) == list(range(21))
    assert ids_at(main, row_filter="region = 'r1'") == list(range(1, 21, 3))
    assert ids_at(main, row_filter="id = 17") == [17]

    # Each entry still says which snapshot added it and when, in whichever manifest it is by now.
    live = entries_at(main)
    order = {each.snapshot_id: number for number, each in enumerate([base, *staged], start=1)}
    assert {entry.snapshot_id: entry.sequence_number for entry in live} == order
    assert all(entry.file_sequence_number == entry.sequence_number for entry in live)
    statuses = {entry.snapshot_id: entry.status for entry in live}
    assert statuses[main.snapshot_id] == ManifestEntryStatus.ADDED
    assert statuses[base.snapshot_id] == ManifestEntryStatus.EXISTING
    summary = document_at(main)["snapshots"][-1]["summary"]
    assert (summary["total-records"], summary["total-data-files"]) == ("21", "21")
    assert int(summary["total-files-size"]) == sum(entry.file.file_size_in_bytes for entry in live)

    (dropped,) = [entry.file.file_path for entry in live if entry.snapshot_id == staged[16].snapshot_id]
    kept = manifests_at(main)
    main = editor.drop_files(main, [dropped], {})
    assert ids_at(main) == [number for number in range(21) if number != 17]
    assert len(set(kept) - set(manifests_at(main))) == 1
    later = appended(tables, main, [99])
    assert ids_at(later) == [number for number in [*range(21), 99] if number != 17]


def test_what_several_runs_appended_is_appended_with_one_metadata_file(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    table = tables.create({"lakegate.keep-snapshots": "1", "commit.manifest.min-count-to-merge": "2"})
    append(table, [0])
    base = pointer_to(table)
    first = appended(tables, base, [1])
    staged = [appended(tables, base, [number]) for number in (2, 3, 4)]
    sources = [(each, [each.snapshot_id]) for each in staged]
    sources.insert(1, (first, [first.snapshot_id]))  # it is there already
    moved, refused = editor.rebase_each(sources, editor.rebase(first, [first.snapshot_id], base))

    assert list(refused) == [1]
    assert isinstance(refused[1], NotReplayableError)
    assert ids_at(moved) == [0, 1, 2, 3, 4]
    document = document_at(moved)
    ids = [each.snapshot_id for each in staged]
    assert [one["snapshot-id"] for one in document["snapshots"]] == ids
    assert [one.get("parent-snapshot-id") for one in document["snapshots"][1:]] == ids[:-1]
    reader = IcebergTableReader()
    added = [[file.rows for file in reader.added_files(moved, [one]).files] for one in ids]
    assert added == [[1]] * 3
    assert all(reader.added_files(moved, [one]).complete for one in ids)
    # Each can be taken out alone.
    (path,) = (file.path for file in reader.added_files(moved, [ids[1]]).files)
    assert ids_at(editor.drop_files(moved, [path], {})) == [0, 1, 2, 4]


def test_files_that_name_a_sequence_number_get_that_of_the_table_they_are_replayed_onto(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    """Otherwise, equality deletes that were published meanwhile would apply to them."""
    table = tables.create({"format-version": "2"})
    append(table, [0])
    staged = appended(tables, pointer_to(table), [1, 2])
    own = manifests_at(staged)[0].file
    path = local_path(own.manifest_path)
    container = read_container(path.read_bytes())
    path.write_bytes(write_entries(container.meta, read_entries(container, own)))
    for number in (3, 4):
        append(table, [number])
    moved = editor.rebase(staged, [staged.snapshot_id], pointer_to(table))
    assert sorted(entry.sequence_number for entry in live_at(moved)) == [1, 2, 3, 4]
    assert ids_at(moved) == [0, 1, 2, 3, 4]


def test_what_is_refused_leaves_nothing(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    append(table, [0])
    base = pointer_to(table)
    branch = tables.at(base)
    staged = [append(branch, [1]), 7]
    path = entry_path(table)
    before = contents_of(base)
    with pytest.raises(NotReplayableError):
        editor.rebase(pointer_to(branch), staged, base)
    with pytest.raises(NotReplayableError):
        editor.drop_files(base, [path, f"{path}.not"], {})
    assert contents_of(base) == before


def columns(change: str, *arguments: Any) -> Callable[[Table], None]:
    def make(table: Table) -> None:
        with table.update_schema() as update:
            getattr(update, change)(*arguments)

    return make


def partitioned(column: str, transform: Transform[Any, Any], name: str) -> Callable[[Table], None]:
    def make(table: Table) -> None:
        with table.update_spec() as update:
            update.add_field(column, transform, name)

    return make


def filled(table: Table) -> None:
    append(table, [500])


def emptied_in_part(table: Table) -> None:
    table.delete("id < 3")


def overwritten(table: Table) -> None:
    table.overwrite(pa.table({"id": pa.array([500], pa.int64())}))


@pytest.mark.parametrize(
    ("on_branch", "on_main", "told"),
    [
        ([], [columns("delete_column", "n")], r"column 'n' isn't in the table"),
        ([], [columns("rename_column", "n", "m")], r"column 'n' is called 'm' in the table"),
        ([columns("add_column", "extra", IntegerType())], [], r"column 'extra' isn't in the table"),
        (
            [],
            [columns("delete_column", "n"), columns("add_column", "n", IntegerType())],
            r"column 'n' isn't in the table",
        ),
        (
            [columns("update_column", "n", LongType())],
            [],
            r"column 'n' has type int in the table and long in the files",
        ),
        (
            [partitioned("region", IdentityTransform(), "by_region"), filled],
            [partitioned("id", BucketTransform(4), "id_bucket")],
            r"partition spec 1 \(by by_region\)",
        ),
        ([emptied_in_part], [], r"snapshot \d+ did more than append"),
        ([overwritten], [], r"snapshot \d+ did more than append"),
    ],
)
def test_files_that_the_table_cannot_take_are_refused(
    tables: IcebergTables,
    editor: IcebergTableEditor,
    on_branch: Sequence[Callable[[Table], None]],
    on_main: Sequence[Callable[[Table], None]],
    told: str,
) -> None:
    kinds = {"id": LongType(), "region": StringType(), "n": IntegerType()}
    fields = (NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(kinds.items(), 1))
    main = tables.create(schema=Schema(*fields))
    append(main, range(10))
    known = {snapshot.snapshot_id for snapshot in main.metadata.snapshots}
    branch = tables.at(pointer_to(main))
    for ids in ([100], [101]):
        append(branch, ids)
    for table, changes in ((branch, on_branch), (main, on_main)):
        for change in changes:
            change(table)
    source, onto = pointer_to(branch, "branch"), pointer_to(main)
    staged = [one.snapshot_id for one in branch.metadata.snapshots if one.snapshot_id not in known]
    before = contents_of(onto)

    with pytest.raises(NotReplayableError, match=told) as caught:
        editor.rebase(source, staged, onto)

    assert str(source.table) in caught.value.message
    assert caught.value.hint
    assert contents_of(onto) == before


def test_what_is_not_known_of_a_metadata_file_survives(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    append(table, [0])
    base = pointer_to(table)
    staged = appended(tables, base, [1])
    strange = {"encryption-keys": [{"key-id": "k"}], "statistics": [{"snapshot-id": base.snapshot_id}]}
    moved = document_at(editor.rebase(staged, [staged.snapshot_id], rewritten(base, strange)))
    assert {key: moved[key] for key in strange} == strange


def test_trimming_keeps_named_snapshots(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    snapshots = [append(table, [number]) for number in range(8)]
    table.manage_snapshots().create_tag(snapshots[1], "audited").commit()
    pointer = pointer_to(table)
    rest = {
        "statistics-path": "file:///s",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    statistics = [{"snapshot-id": snapshot, **rest} for snapshot in snapshots]
    by_partition = [{"snapshot-id": one, "statistics-path": "p", "file-size-in-bytes": 1} for one in snapshots]
    long = rewritten(pointer, {"statistics": statistics, "partition-statistics": by_partition})
    assert editor.as_audited(long, long, [long.snapshot_id]) is long
    properties = {**document_at(long)["properties"], "lakegate.keep-snapshots": "3"}
    long = rewritten(long, {"properties": properties})

    short = editor.as_audited(long, long, [long.snapshot_id])

    document = document_at(short)
    expected = {snapshots[1], *snapshots[-3:]}
    assert {snapshot["snapshot-id"] for snapshot in document["snapshots"]} == expected
    assert {entry["snapshot-id"] for entry in document["statistics"]} == expected
    assert {entry["snapshot-id"] for entry in document["partition-statistics"]} == expected
    assert document["refs"] == document_at(long)["refs"]
    assert [entry["snapshot-id"] for entry in document["snapshot-log"]] == snapshots[-3:]
    assert document["metadata-log"][-1]["metadata-file"] == long.metadata_location
    assert short == long.model_copy(update={"metadata_location": short.metadata_location})
    assert ids_at(short) == list(range(8))
    assert editor.as_audited(short, short, [short.snapshot_id]) is short
    assert editor.as_audited(long, long, snapshots) is long


def test_snapshots_go_without_those_before_them(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    """What a run went through on its branch goes; the target's own past stays, also when most snapshots are too old."""
    table = tables.create({"lakegate.keep-snapshots": "4"})
    snapshots = [append(table, [number]) for number in range(4)]
    published = pointer_to(table)
    snapshots += [append(table, [number]) for number in range(4, 8)]
    table.manage_snapshots().create_tag(snapshots[5], "draft").commit()
    short = editor.as_audited(pointer_to(table), published, snapshots[7:])
    document = document_at(short)
    kept = [*snapshots[1:4], snapshots[7]]
    assert [snapshot["snapshot-id"] for snapshot in document["snapshots"]] == kept
    assert [entry["snapshot-id"] for entry in document["snapshot-log"]] == kept
    assert document["refs"].keys() == {"main"}, "no name for what is gone"
    assert ids_at(short) == list(range(8))


@pytest.mark.parametrize("change", ["swapped and swapped back", "dropped and added", "added"])
def test_a_snapshot_is_published_in_the_schema_that_its_audit_read(
    tables: IcebergTables, editor: IcebergTableEditor, change: str
) -> None:
    """Whoever asks for a snapshot sees it in the schema that it names."""
    table = tables.create()
    append(table, [0])
    published = pointer_to(table)
    if change == "swapped and swapped back":
        rename(table, ("id", "x"), ("region", "id"), ("x", "region"))
    step, last = append(table, []), append(table, [])
    if change == "swapped and swapped back":
        rename(table, ("region", "x"), ("id", "region"), ("x", "id"))
    else:
        with table.update_schema() as update:
            if change == "dropped and added":
                update.delete_column("region")
            update.add_column("region" if change == "dropped and added" else "other", StringType())
    branch = pointer_to(table)

    audited = editor.as_audited(branch, published, [step, last])

    document, before = document_at(audited), document_at(published)
    assert {one["schema-id"] for one in document["snapshots"][1:]} == {branch.schema_id}
    assert document["snapshots"][0] == before["snapshots"][0], "what readers see already"
    assert (audited.snapshot_id, audited.schema_id) == (branch.snapshot_id, branch.schema_id)
    assert audited.metadata_location != branch.metadata_location
    assert editor.as_audited(audited, published, [step, last]) is audited


def test_a_snapshot_that_readers_see_already_stays_as_they_see_it(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    table = tables.create()
    first = append(table, [0])
    append(table, [1])
    published = pointer_to(table)
    append(table, [2])
    branch = pointer_to(table)
    document = document_at(branch)
    other = {**document["snapshots"][0], "manifest-list": "file:///other", "schema-id": 7}
    by_hand = rewritten(branch, {"snapshots": [other, *document["snapshots"][1:]]})
    audited = editor.as_audited(by_hand, published, [first, branch.snapshot_id])
    assert document_at(audited)["snapshots"] == document["snapshots"]


def rename(table: Table, *names: tuple[str, str]) -> None:
    for old, new in names:
        with table.update_schema() as update:
            update.rename_column(old, new)


def test_both_names_of_compressed_metadata(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create({"write.metadata.compression-codec": "gzip"})
    append(table, [0])
    base = pointer_to(table)
    staged = appended(tables, base, [1])
    content = gzip.compress(local_path(base.metadata_location).read_bytes())
    for ending in (".metadata.json.gz", ".gz.metadata.json"):
        location = f"{base.metadata_location.removesuffix('.metadata.json')}x{ending}"
        local_path(location).write_bytes(content)
        old = base.model_copy(update={"metadata_location": location})
        assert IcebergTableReader().metadata(old).rows == 1
        assert len(set(IcebergTableReader().reach(old))) == 4
        moved = editor.rebase(staged, [staged.snapshot_id], old)
        assert moved.metadata_location.rpartition("/")[2].startswith("00002-")
        assert moved.metadata_location.endswith(".gz.metadata.json")
        assert ids_at(moved) == [0, 1]
        assert metadata.serialise(location, document_at(old)).startswith(b"\x1f\x8b")


def test_a_table_that_was_of_version_1(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create({"format-version": "1", "commit.manifest.min-count-to-merge": "2"})
    append(table, [0])
    append(table, [1])
    old = pointer_to(table)
    with pytest.raises(NotReplayableError, match="format version is 1") as caught:
        editor.drop_files(old, [entry_path(table)], {})
    assert "'format-version' = '2'" in str(caught.value.hint)
    shorter = editor.as_audited(old, None, [old.snapshot_id])
    assert (len(document_at(shorter)["snapshots"]), document_at(shorter)["format-version"]) == (1, 1)
    assert ids_at(shorter) == [0, 1]
    table.transaction().upgrade_table_version(2).commit_transaction()
    base = pointer_to(table)
    staged = appended(tables, base, [2])
    moved = editor.rebase(staged, [staged.snapshot_id], base)
    assert ids_at(moved) == [0, 1, 2]
    assert ids_at(appended(tables, moved, [3])) == [0, 1, 2, 3]
    with pytest.raises(NotReplayableError, match="older format version"):
        editor.drop_files(moved, [entry_path(table)], {})


@pytest.mark.parametrize("columns", [True, False], ids=["null", "no_column"])
@pytest.mark.parametrize("added_by", [True, False], ids=["", "no_snapshot_id"])
def test_a_count_that_is_missing_is_unknown(
    tables: IcebergTables, editor: IcebergTableEditor, *, columns: bool, added_by: bool
) -> None:
    table = tables.create({"format-version": "1", "commit.manifest.min-count-to-merge": "9"})
    first = append(table, [0])
    append(table, [1, 2])
    table.transaction().upgrade_table_version(2).commit_transaction()
    base = pointer_to(table)
    staged = appended(tables, base, [3])
    (snapshot,) = [s for s in document_at(base)["snapshots"] if s["snapshot-id"] == base.snapshot_id]
    leave_out_counts(local_path(snapshot["manifest-list"]), columns=columns, added_by=added_by)
    reader = IcebergTableReader()
    assert sorted(file.rows for file in reader.files(base)) == [1, 2]
    assert sum(file.rows for file in reader.added_files(base, [first, base.snapshot_id]).files) == 3
    assert len(set(reader.reach(base))) == 2 * (1 + 1 + 1) + 1

    moved = editor.rebase(staged, [staged.snapshot_id], base)

    assert ids_at(moved) == [0, 1, 2, 3]
    lines = [line.file for line in manifests_at(moved)]
    assert [(m.added_files_count, m.added_rows_count, m.deleted_files_count) for m in lines] == [
        (1, 1, 0),
        (1, 2, 0),
        (1, 1, 0),
    ]
    assert [m.added_snapshot_id for m in lines] == [staged.snapshot_id, base.snapshot_id, first]
    assert ids_at(appended(tables, moved, [4])) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("total", ["total-records", "total-data-files"])
def test_totals_are_those_of_the_manifests(tables: IcebergTables, editor: IcebergTableEditor, total: str) -> None:
    """Nothing is written where a total is wrong before, or would be wrong after."""
    table = tables.create({"lakegate.keep-snapshots": "1"})
    append(table, [0])
    append(table, [1, 2])
    base = pointer_to(table)
    staged = appended(tables, base, [3])
    snapshots = [
        {**snapshot, "summary": {**snapshot["summary"], total: "7"}} for snapshot in document_at(base)["snapshots"]
    ]
    damaged = rewritten(base, {"snapshots": snapshots})
    before = contents_of(base)
    edits: dict[str, Callable[[], TablePointer]] = {
        "rebase": lambda: editor.rebase(staged, [staged.snapshot_id], damaged),
        "drop": lambda: editor.drop_files(damaged, [entry_path(table)], {}),
        "trim": lambda: editor.as_audited(damaged, None, []),
    }
    for name, edit in edits.items():
        with pytest.raises(InputError) as caught:
            edit()
        held = "3" if total == "total-records" else "2"
        assert f"nyc.trips: snapshot {base.snapshot_id} counts 7 " in caught.value.message, name
        assert caught.value.message.endswith(f"its manifests hold {held}."), name
    assert contents_of(base) == before
    for snapshot in snapshots:
        del snapshot["summary"][total]
    unknown = rewritten(base, {"snapshots": snapshots})
    assert ids_at(IcebergTableEditor().rebase(staged, [staged.snapshot_id], unknown)) == [0, 1, 2, 3]


@pytest.mark.parametrize("merges", ["true", "false"])
@pytest.mark.parametrize("what", ["as it was", "lacks one", "has one twice", "has another's"])
def test_an_append_that_has_other_older_files_is_a_rewrite(tables: IcebergTables, what: str, merges: str) -> None:
    """However its summary counts them: no check reads files that were there before."""
    table = tables.create(
        {"commit.manifest-merge.enabled": merges, "commit.manifest.min-count-to-merge": "2", "format-version": "2"}
    )
    for number in range(3):
        append(table, [number])
    base = pointer_to(table)
    staged, other = appended(tables, base, [7]), appended(tables, base, [8])
    document, listed = document_at(staged), read_list(_list_of(staged).read_bytes())
    older = [line for line in listed.manifests if line.file.added_snapshot_id != staged.snapshot_id]
    (foreign,) = [line for line in manifests_at(other) if line.file.added_snapshot_id == other.snapshot_id]
    lines = {
        "as it was": listed.manifests,
        "lacks one": [line for line in listed.manifests if line not in older[:1]],
        "has one twice": [*listed.manifests, *older[:1]],
        "has another's": [*listed.manifests, foreign],
    }[what]
    location = f"{document['location']}/metadata/snap-{uuid4()}.avro"
    forged = write_list(ManifestList(listed.meta, tuple(lines)), staged.snapshot_id, base.snapshot_id, 4)
    local_path(location).write_bytes(forged)
    document["snapshots"][-1]["manifest-list"] = location
    found = IcebergTableReader().change(base, rewritten(staged, {"snapshots": document["snapshots"]}))
    is_same = what == "as it was" or (not older and what != "has another's")
    assert found.kind == ("append" if is_same else "rewrite")


@pytest.mark.parametrize("by", ["its entry", "its manifest"])
def test_an_append_of_files_with_an_older_sequence_number_is_a_rewrite(tables: IcebergTables, by: str) -> None:
    """Older equality deletes would hide rows that the audit of an append reads."""
    table = tables.create({"format-version": "2"})
    append(table, [0])
    base = pointer_to(table)
    staged = appended(tables, base, [1])
    (own,) = [one for one in manifests_at(staged) if one.file.added_snapshot_id == staged.snapshot_id]
    if by == "its manifest":
        listed = read_list(_list_of(staged).read_bytes())
        lines = tuple(one.with_sequence_number(1) if one == own else one for one in listed.manifests)
        _list_of(staged).write_bytes(
            write_list(ManifestList(listed.meta, lines), staged.snapshot_id, base.snapshot_id, 2)
        )
    else:
        path = local_path(own.file.manifest_path)
        container = read_container(path.read_bytes())
        entries = [replace(one, sequence_number=1) for one in read_entries(container, own.file)]
        path.write_bytes(write_entries(container.meta, entries))
    found = IcebergTableReader().change(base, staged)
    assert (found.kind, found.reason) == ("rewrite", f"snapshot {staged.snapshot_id} did more than add data files")


def _list_of(pointer: TablePointer) -> Path:
    (snapshot,) = [s for s in document_at(pointer)["snapshots"] if s["snapshot-id"] == pointer.snapshot_id]
    return local_path(snapshot["manifest-list"])


def entry_path(table: Table) -> str:
    return str(table.inspect.files()["file_path"][0].as_py())


def test_metadata_that_is_missing_or_damaged(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    append(table, [0])
    base = pointer_to(table)
    staged = appended(tables, base, [1])
    with pytest.raises(NotFoundError, match="has no snapshot 7"):
        editor.rebase(staged, [staged.snapshot_id], base.model_copy(update={"snapshot_id": 7}))
    missing = base.model_copy(update={"metadata_location": f"{base.metadata_location}.not"})
    with pytest.raises(NotFoundError, match="doesn't exist"):
        editor.as_audited(missing, None, [])
    local_path(missing.metadata_location).write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        editor.as_audited(missing, None, [])
    lists = local_path(document_at(staged)["snapshots"][-1]["manifest-list"])
    whole = lists.read_bytes()
    for damaged in (b"", b"Obj", whole[:-20], whole[:-1] + b"x"):
        lists.write_bytes(damaged)
        with pytest.raises(InputError, match=r"Manifest list .* of table nyc\.trips is damaged"):
            editor.rebase(staged, [staged.snapshot_id], base)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let this process write no large files; no longer than needed, as pytest's own output may go to one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_nothing(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    append(table, [0])
    base = pointer_to(table)
    staged = appended(tables, base, [1])
    before = contents_of(base)
    said = pytest.raises(EngineError, match=r"Can't write the metadata of table nyc\.trips to .*: File too large")
    with full_disk(), said as caught:
        editor.rebase(staged, [staged.snapshot_id], base)
    assert "free space" in str(caught.value.hint)
    assert contents_of(base) == before


def test_a_tables_own_tags_and_branches_stay(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    append(table, [0])
    created = pointer_to(table)
    own = {"audited": {"snapshot-id": created.snapshot_id, "type": "tag"}}
    base = rewritten(created, {"refs": {**document_at(created)["refs"], **own}})
    staged = appended(tables, created, [1])
    moved = editor.rebase(staged, [staged.snapshot_id], base)
    assert document_at(moved)["refs"] == {**own, "main": {"snapshot-id": moved.snapshot_id, "type": "branch"}}


def test_properties_are_set_in_metadata_of_their_own(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create({"kept": "1", "changed": "1"})
    append(table, [0])
    before = pointer_to(table)
    after = editor.with_properties(before, {"changed": "2", "added": "3"})
    assert after.metadata_location != before.metadata_location
    assert (after.snapshot_id, ids_at(after)) == (before.snapshot_id, [0])
    old, new = document_at(before), document_at(after)
    assert new["properties"] == {**old["properties"], "changed": "2", "added": "3"}
    assert new["metadata-log"][-1]["metadata-file"] == before.metadata_location
    changed = {"properties", "metadata-log", "last-updated-ms"}
    assert {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} == changed


def test_what_was_written_first_is_left_out(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create()
    first = appended(tables, pointer_to(table), [0, 1])
    second = appended(tables, first, [2])
    empty = editor.without_rows(second)
    assert ids_at(empty) == []
    after = editor.rebase(second, [second.snapshot_id], empty)
    assert (after.snapshot_id, ids_at(after)) == (second.snapshot_id, [2])
    assert [one["snapshot-id"] for one in document_at(after)["snapshots"]] == [second.snapshot_id]


def test_partitions_by_double_stay_exact(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    exact = 1.3139546443756256
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "fare", DoubleType()))
    table = tables.create(schema=schema, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "fare")))
    append(table, [0])
    base = pointer_to(table)
    rows = pa.table({"id": [1], "fare": [exact]}, schema=schema.as_arrow())
    branch = tables.at(base)
    branch.append(rows)
    staged = pointer_to(branch, "branch")
    append(table, [2])

    moved = editor.rebase(staged, [staged.snapshot_id], pointer_to(table))

    assert exact in [entry.file.partition[0] for entry in live_at(moved)]
    assert ids_at(moved, row_filter=f"fare = {exact}") == [1]


def with_delete_file(pointer: TablePointer, **changes: Any) -> TablePointer:
    """Return the same state with a file of position deletes beside its data files."""
    table = TableState(pointer, document_at(pointer), TableFiles())
    producer = SnapshotProducer(table, Head.of(table), pointer.snapshot_id)
    content = producer.read(producer.head.manifests.manifests[0])
    kind = bytes([2 * DataFileContent.POSITION_DELETES])  # what a file holds is its first field, a zigzag varint
    raw = kind + content.live[0].raw[1:]
    entry = replace(content.live[0], raw=raw, status=int(ManifestEntryStatus.ADDED), **changes)
    return with_deletes(pointer, entry)


def with_deletes(pointer: TablePointer, entry: FileEntry) -> TablePointer:
    """Return the same state with a manifest more, in which a delete file is added, or removed."""
    table = TableState(pointer, document_at(pointer), TableFiles())
    producer = SnapshotProducer(table, Head.of(table), pointer.snapshot_id)
    listed = producer.head.manifests
    content = producer.read(listed.manifests[0])
    line = producer.write_manifest(content.container, [entry], content.spec_id, content=ManifestContent.DELETES)
    location = table.new_path(f"snap-{uuid4()}.avro")
    lines = ManifestList(listed.meta, (*listed.manifests, line))
    local_path(location).write_bytes(write_list(lines, pointer.snapshot_id, None, producer.head.sequence_number))
    snapshots = document_at(pointer)["snapshots"]
    snapshots[-1]["manifest-list"] = location
    return rewritten(pointer, {"snapshots": snapshots})


def test_only_what_maintenance_can_mend_makes_it_due(tables: IcebergTables) -> None:
    table = tables.create()
    append(table, [0])
    append(table, [1])
    pointer = pointer_to(table)

    def found(pointer: TablePointer) -> tuple[int, int]:
        layout = IcebergTableReader().layout(pointer, small_bytes=1 << 20, at_least=2)
        return layout.small_files, layout.delete_files

    assert found(pointer) == (2, 0)
    assert found(with_delete_file(pointer)) == (2, 1)
    assert found(with_delete_file(pointer, sequence_number=0)) == (2, 0)  # older than all that is there
    assert found(rewritten(pointer, {"properties": {"write.target-file-size-bytes": "100"}})) == (0, 0)

    later, document = datetime.now(UTC), document_at(pointer)
    tag = {"kept": {"snapshot-id": document["snapshots"][0]["snapshot-id"], "type": "tag"}}
    tagged = rewritten(pointer, {"refs": {**document["refs"], **tag}})
    outdated = IcebergTableReader().outdated_snapshots
    assert (outdated(pointer, at_least=1, before=later), outdated(tagged, at_least=1, before=later)) == (1, 0)


def test_snapshots_from_before_a_time_go_but_for_the_newest_and_named_ones(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    table = tables.create({"lakegate.keep-snapshots": "2"})
    ids = [append(table, [number]) for number in range(5)]
    table.manage_snapshots().create_tag(ids[1], "kept").commit()
    pointer = pointer_to(table)
    snapshots = document_at(pointer)["snapshots"]
    for day, snapshot in enumerate(snapshots):
        snapshot["timestamp-ms"] += day * 86_400_000
    invented = {"snapshots": snapshots, "invented": {"a": [1]}, "last-updated-ms": snapshots[-1]["timestamp-ms"]}
    pointer = rewritten(pointer, {**invented, "snapshot-log": []})

    def left(days: float, keep: int) -> list[int]:
        before = datetime.fromtimestamp(snapshots[0]["timestamp-ms"] / 1000 + days * 86_400, tz=UTC)
        shorter = editor.trim_snapshots(pointer, at_least=keep, before=before)
        assert (ids_at(shorter), shorter.snapshot_id) == ([0, 1, 2, 3, 4], ids[4])
        assert document_at(shorter)["invented"] == {"a": [1]}
        return [ids.index(one["snapshot-id"]) for one in document_at(shorter)["snapshots"]]

    assert left(2.5, 1) == [1, 3, 4]
    assert left(9, 1) == [1, 4]
    assert left(9, 3) == [1, 2, 3, 4]
    assert left(-1, 1) == [0, 1, 2, 3, 4]


def upgraded(pointer: TablePointer) -> TablePointer:
    """Return the table as of version 3, as an upgrade leaves it."""
    return rewritten(pointer, {"format-version": 3, "next-row-id": 0})


def with_row_ids(pointer: TablePointer) -> None:
    """Give the table's manifests a place for row ids, as writers of version 3 do."""
    for line in manifests_at(pointer):
        path = local_path(line.file.manifest_path)
        container = read_container(path.read_bytes())
        schema = json.loads(container.schema)
        fields = schema["fields"][-1]["type"]["fields"]
        if 142 not in {field["field-id"] for field in fields}:
            fields.append({"name": "first_row_id", "type": ["null", "long"], "default": None, "field-id": 142})
            meta = {**container.meta, "avro.schema": json.dumps(schema), "format-version": "3"}
            records = container.records(_raw_entry_reader(container.schema))
            path.write_bytes(write_container(meta, [raw + b"\0" for _, raw in records]))


def row_ids(pointer: TablePointer) -> dict[tuple[int, ...], int]:
    """Return the id of the first row of each live file as readers work it out, by the column ``id`` of the file."""
    found: dict[tuple[int, ...], int] = {}
    for line in manifests_at(pointer):
        next_row_id = line.first_row_id
        container = read_container(local_path(line.file.manifest_path).read_bytes())
        read = resolve_reader(
            AvroSchemaConversion().avro_to_iceberg(json.loads(container.schema)),
            MANIFEST_ENTRY_SCHEMAS[3],
            {-1: ManifestEntry, 2: DataFile},
        ).read
        for entry, _ in container.records(read):
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            own = entry.data_file[[field.field_id for field in DATA_FILE_TYPE[3].fields].index(142)]
            if own is None:
                assert next_row_id is not None
                own, next_row_id = next_row_id, next_row_id + entry.data_file.record_count
            held = pq.read_table(local_path(entry.data_file.file_path), columns=["id"])["id"].to_pylist()
            found[tuple(int(str(one)) for one in held)] = own
    return found


def with_shared_row_ids(pointer: TablePointer) -> TablePointer:
    """Return the same state with the row ids of its newest manifest begun anew at 1."""
    table = TableState(pointer, document_at(pointer), TableFiles())
    head = Head.of(table)
    newest, *others = head.manifests.manifests
    lines = ManifestList(head.manifests.meta, (newest.with_first_row_id(1), *others))
    location = table.new_path(f"snap-{uuid4()}.avro")
    local_path(location).write_bytes(write_list(lines, pointer.snapshot_id, None, head.sequence_number, 0))
    snapshots = document_at(pointer)["snapshots"]
    snapshots[-1]["manifest-list"] = location
    return rewritten(pointer, {"snapshots": snapshots})


def test_files_that_name_row_ids_get_new_ones_where_they_are_replayed(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    """Rows that were published meanwhile may have the ids that a writer took on the branch."""
    table = tables.create()
    append(table, [1, 2])
    old = pointer_to(table)
    staged = appended(tables, old, [3, 4])
    for pointer in (old, staged):
        with_row_ids(pointer)
    own = manifests_at(staged)[0].with_first_row_id(1).file
    path = local_path(own.manifest_path)
    container = read_container(path.read_bytes())
    entries = [replace(one, raw=one.numbered or one.raw) for one in read_entries(container, own)]
    path.write_bytes(write_entries(container.meta, entries, inherit=True))
    assert row_ids(editor.rebase(staged, [staged.snapshot_id], upgraded(old))) == {(3, 4): 0, (1, 2): 2}


def test_rows_of_version_3_get_ids_once_and_keep_them(tables: IcebergTables, editor: IcebergTableEditor) -> None:
    table = tables.create({"commit.manifest.min-count-to-merge": "2"})
    append(table, [0])
    append(table, [1, 2])
    old = pointer_to(table)
    staged = [appended(tables, old, ids) for ids in ([3, 4, 5], [6], [7, 8])]
    for pointer in (old, *staged):
        with_row_ids(pointer)
    base = upgraded(old)

    first = editor.rebase(staged[0], [staged[0].snapshot_id], base)
    document = document_at(first)
    snapshot = document["snapshots"][-1]
    # After the upgrade, all that was there is numbered, too.
    assert (snapshot["first-row-id"], snapshot["added-rows"], document["next-row-id"]) == (0, 6, 6)
    known = row_ids(first)
    assert sorted((ids, len(held)) for held, ids in known.items()) == [(0, 3), (3, 2), (5, 1)]
    assert known[3, 4, 5] == 0

    # Each replay merges the manifests before it; the ids of what these hold stay.
    second, refused = editor.rebase_each([(one, [one.snapshot_id]) for one in staged[1:]], first)
    assert not refused
    document = document_at(second)
    assert [(one["first-row-id"], one["added-rows"]) for one in document["snapshots"][-2:]] == [(6, 1), (7, 2)]
    assert document["next-row-id"] == 9
    assert row_ids(second) == known | {(6,): 6, (7, 8): 7}
    assert sum(line.file.existing_files_count or 0 for line in manifests_at(second)) > 1

    inspected = [one for one in IcebergTableReader().inspect(second, set()) if isinstance(one, Flaw)]
    assert inspected == []
    nearly = rewritten(second, {"next-row-id": 8})
    inspected = [one for one in IcebergTableReader().inspect(nearly, set()) if isinstance(one, Flaw)]
    assert [(one.kind, one.file.what) for one in inspected] == [("wrong-count", "metadata file")]
    assert "8, but the table's next row id is 8" in inspected[0].message
    inspected = [
        one for one in IcebergTableReader().inspect(with_shared_row_ids(second), set()) if isinstance(one, Flaw)
    ]
    assert [one.file.what for one in inspected] == ["metadata file"]
    assert "share row ids from 1 on" in inspected[0].message

    gone = entry_path(tables.at(old))
    third = editor.drop_files(second, [gone], {})
    left = row_ids(third)
    assert left.items() < row_ids(second).items()
    assert len(left) == 4
    # Whoever reads changes sees the ids of removed rows, too.
    (removed,) = [
        entry.data_file
        for line in manifests_at(third)
        for entry in read_manifest(local_path(line.file.manifest_path).read_bytes())
        if entry.status == ManifestEntryStatus.DELETED
    ]
    assert {explicit_first_row_id(removed)} == set(row_ids(second).values()) - set(left.values())
    assert document_at(third)["next-row-id"] == 9
    snapshot = document_at(third)["snapshots"][-1]
    assert (snapshot["first-row-id"], snapshot["added-rows"]) == (9, 0)


def test_manifests_from_before_an_upgrade_get_a_place_for_row_ids(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    table = tables.create({"commit.manifest.min-count-to-merge": "2"})
    append(table, [0])
    append(table, [1, 2])
    old = pointer_to(table)
    staged = appended(tables, old, [3])
    moved = editor.rebase(staged, [staged.snapshot_id], upgraded(old))
    assert sorted(row_ids(moved).values()) == [0, 1, 3]
    again = editor.rebase_each([(appended(tables, old, [4]), [])], moved)[0]
    assert again == moved
    # What was published before the upgrade can be taken back, and merged: nothing gets another id.
    known = row_ids(moved)
    gone = entry_path(tables.at(old))
    left = editor.drop_files(moved, [gone], {})
    assert (row_ids(left).items() < known.items(), len(row_ids(left))) == (True, 2)
    assert document_at(left)["next-row-id"] == document_at(moved)["next-row-id"] == 4
    other = appended(tables, old, [5])
    more = editor.rebase(other, [other.snapshot_id], moved)
    assert row_ids(more) == known | {(5,): 4}
    assert ids_at(more) == [0, 1, 2, 3, 5]


def test_rows_that_stay_on_main_keep_their_ids_and_new_ones_get_none_of_theirs(
    tables: IcebergTables, editor: IcebergTableEditor
) -> None:
    table = tables.create({"commit.manifest-merge.enabled": "false"})
    append(table, [0])
    old = pointer_to(table)
    staged = [appended(tables, old, ids) for ids in ([1, 2], [3], [4])]
    for pointer in (old, *staged):
        with_row_ids(pointer)
    base = upgraded(old)
    main = first = editor.rebase(staged[0], [staged[0].snapshot_id], base)
    main = editor.rebase(staged[1], [staged[1].snapshot_id], main)
    known = row_ids(main)

    # What a revert does that goes back to the state before the first, and keeps what the second appended.
    again = editor.raise_counters(base, main, by_sequence=False)
    assert document_at(again)["next-row-id"] == document_at(main)["next-row-id"] == 4
    last = document_at(main)["last-sequence-number"]
    again = editor.rebase(main, [staged[1].snapshot_id], again, keep_row_ids=True)
    assert row_ids(again)[3,] == known[3,]
    assert document_at(again)["next-row-id"] >= 4
    # Its last change is numbered as it was, and no later one is numbered like one that is gone.
    assert {one.sequence_number for one in entries_at(again) if one.first_row_id == known[3,]} == {last}
    longer = document_at(editor.raise_counters(base, main))
    assert (longer["last-sequence-number"], document_at(base)["last-sequence-number"]) == (last, last - 2)
    assert editor.raise_counters(again, main) == again
    again = editor.rebase(staged[2], [staged[2].snapshot_id], again)
    assert row_ids(again)[4,] >= 4
    assert len(set(row_ids(again).values())) == 3

    assert editor.raise_counters(main, first) == main
    with pytest.raises(NotReplayableError, match="the files added since are of version 3"):
        editor.rebase(main, [staged[1].snapshot_id], old)


@pytest.mark.parametrize("kind", ["variant", "geometry(OGC:CRS84)"])
def test_a_table_with_a_type_that_pyiceberg_lacks_is_known_but_for_its_values(
    tables: IcebergTables, editor: IcebergTableEditor, kind: str
) -> None:
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region"))
    table = tables.create(spec=spec)
    append(table, [0])
    append(table, [1], "south")
    plain = upgraded(pointer_to(table))
    (schema,) = document_at(plain)["schemas"]
    nested = {"type": "list", "element-id": 12, "element": kind, "element-required": False}
    more = [
        {"id": 10, "name": "variant", "required": False, "type": kind, "doc": "variant"},
        {"id": 11, "name": "many", "required": False, "type": nested},
    ]
    base = rewritten(plain, {"schemas": [{**schema, "fields": [*schema["fields"], *more]}], "last-column-id": 12})

    reader = IcebergTableReader()
    found = {column.name: column.type for column in reader.metadata(base).table_schema.columns}
    assert found == {"id": "long", "region": "string", "variant": kind, "many": f"list<{kind}>"}
    assert reader.schemas(base)[-1].table_schema == reader.metadata(base).table_schema
    gone, kept = sorted(paths_at(base), key=lambda path: "south" in path)
    left = editor.drop_files(base, [gone], {})
    assert [file.path for file in reader.files(left)] == [kept]
    assert document_at(left)["schemas"] == document_at(base)["schemas"]
    with pytest.raises(InputError, match="such as a variant column, that only Spark can read"):
        reader.read_rows(base)
