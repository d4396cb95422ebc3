"""Tables read from their files. PyIceberg writes them here, so no JVM is needed."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    PartitionFieldSummary,
)

from lakegate.errors import InputError, NotFoundError
from lakegate.iceberg.files import local_path
from lakegate.iceberg.manifests import FileEntry, ListedManifest, encode, new_listed_manifest
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.refs import TablePointer
from support.iceberg_tables import append as add
from support.iceberg_tables import (
    delete_by_equality,
    expire_parent,
    iceberg_tables,
    list_otherwise,
    merge_deletes,
    pointer_to,
)
from support.pyiceberg_catalog import DictCatalog
from support.written_tables import NAME, append, catalog_below, create, trips


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[DictCatalog]:
    with catalog_below(tmp_path) as catalog:
        yield catalog


@pytest.fixture
def reader() -> IcebergTableReader:
    return IcebergTableReader()


def test_metadata_of_a_table_never_written_to(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    table = create(iceberg, trips([]), {"owner": "ann"})
    pointer = pointer_to(table)
    metadata = reader.metadata(pointer)
    assert metadata.snapshot is None
    assert (metadata.rows, metadata.data_files, metadata.size_bytes) == (0, 0, 0)
    assert metadata.location == table.location()
    assert metadata.properties["owner"] == "ann"
    assert metadata.partition_by == ()
    assert list(reader.snapshots(pointer)) == []
    assert list(reader.files(pointer)) == []
    assert reader.added_files(pointer, []).complete


def test_schema_is_told_in_icebergs_words(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    columns: list[pa.Field[Any]] = [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.decimal128(10, 2)),
        pa.field("c", pa.timestamp("us")),
        pa.field("d", pa.timestamp("us", tz="UTC")),
        pa.field("e", pa.list_(pa.string())),
        pa.field("f", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.float64()))])),
        pa.field("g", pa.map_(pa.string(), pa.date32())),
        pa.field("h", pa.binary(16)),
    ]
    schema = pa.schema(columns)
    found = reader.metadata(pointer_to(create(iceberg, schema.empty_table()))).table_schema.columns
    assert [(column.name, column.type) for column in found] == [
        ("a", "long"),
        ("b", "decimal(10, 2)"),
        ("c", "timestamp"),
        ("d", "timestamptz"),
        ("e", "list<string>"),
        ("f", "struct<x: int, y: list<double>>"),
        ("g", "map<string, date>"),
        ("h", "fixed[16]"),
    ]
    assert [column.name for column in found if column.required] == ["a"]


def test_the_snapshot_is_the_one_the_pointer_names(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    table = create(iceberg, trips([]))
    first, second = append(table, trips([1, 2])), append(table, trips([3]))
    newest = pointer_to(table)
    older = newest.model_copy(update={"snapshot_id": first})
    assert reader.metadata(newest).rows == 3
    assert reader.metadata(older).rows == 2
    assert [snapshot.snapshot_id for snapshot in reader.snapshots(newest)] == [first, second]
    last = reader.snapshots(newest)[-1]
    assert (last.parent_id, last.operation, last.summary["added-records"]) == (first, "append", "1")
    assert abs(last.time - datetime.now(UTC)) < timedelta(days=1)
    assert sum(file.rows for file in reader.files(newest)) == 3
    assert sum(file.rows for file in reader.files(older)) == 2
    with pytest.raises(NotFoundError, match="snapshot 42"):
        reader.metadata(newest.model_copy(update={"snapshot_id": 42}))


def test_added_files_are_those_of_the_given_snapshots(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    table = create(iceberg, trips([]))
    append(table, trips([1]))
    second, third = append(table, trips([2, 3])), append(table, trips([4]))
    append(table, trips([5]))
    pointer = pointer_to(table)
    added = reader.added_files(pointer, [second, third, second])
    assert added.complete
    assert added.rows == 3
    assert [file.columns["id"].lower for file in added.files] == [2, 4]
    assert reader.added_files(pointer, []).files == ()


def test_added_files_are_found_after_a_later_commit_merged_their_manifest(
    iceberg: DictCatalog, reader: IcebergTableReader
) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = create(iceberg, trips([]), merging)
    ids = [append(table, trips([number])) for number in range(4)]
    pointer = pointer_to(table)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) < len(ids)
    for number, snapshot_id in enumerate(ids):
        added = reader.added_files(pointer, [snapshot_id])
        assert [file.columns["id"].lower for file in added.files] == [number]
        assert added.complete


def test_new_files_are_none_that_a_merged_manifest_lists_again(
    iceberg: DictCatalog, reader: IcebergTableReader
) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = create(iceberg, trips([]), merging)
    append(table, trips([1]))
    before = pointer_to(table)
    append(table, trips([2]))
    pointer = pointer_to(table)
    older = {file.path for file in reader.files(before)}
    [data] = [path for path in reader.new_files(before, pointer) if path.endswith(".parquet")]
    assert {data} == {file.path for file in reader.files(pointer)} - older
    assert older < set(reader.new_files(None, pointer))


_NOT_MERGED: dict[str, Callable[[FileEntry], FileEntry | None]] = {
    "dropped": lambda entry: None if entry.file.record_count == 2 else entry,
    "another number": lambda entry: replace(entry, sequence_number=1),
    "other metrics": lambda entry: _with_field(entry, "value_counts", {1: 9}),
    "other bounds": lambda entry: _with_field(entry, "lower_bounds", {1: bytes(8)}),
    "other parts": lambda entry: _with_field(entry, "split_offsets", [4_000]),
}


def _with_field(entry: FileEntry, name: str, value: object) -> FileEntry:
    """Return an entry, in PyIceberg's layout of version 3, with another value in one of its file's fields."""
    layout = DATA_FILE_TYPE[3]
    file = construct_reader(layout, {-1: DataFile}).read(new_decoder(entry.raw))
    file[[field.name for field in layout.fields].index(name)] = value
    return replace(entry, raw=encode(construct_writer(layout).write, file))


@pytest.mark.parametrize("change", [None, *_NOT_MERGED])
def test_an_append_may_merge_manifests_of_delete_files_but_not_change_them(tmp_path: Path, change: str | None) -> None:
    with iceberg_tables(tmp_path) as tables:
        table = tables.create()
        add(table, [1, 2, 3])
        add(table, [4])
        for ids in ([1, 2], [3]):
            delete_by_equality(table, pa.table({"id": ids}), [1])
            table.refresh()
        snapshot_id = add(table, [5])
        merge_deletes(table, _NOT_MERGED.get(change or "", lambda entry: entry))
        added = IcebergTableReader().added_files(pointer_to(table), [snapshot_id])
        assert (len(added.files), added.complete) == (1, change is None)


def _as_listed(lines: Sequence[ListedManifest]) -> Sequence[ListedManifest]:
    return [ListedManifest(one.file) for one in lines]


def _with_later_deletes(lines: Sequence[ListedManifest]) -> Sequence[ListedManifest]:
    return [one.with_sequence_number(9) if one.file.content == ManifestContent.DELETES else one for one in lines]


def _with_other_partitions(lines: Sequence[ListedManifest]) -> Sequence[ListedManifest]:
    place = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[3].fields].index("partitions")
    lines[-1].file[place] = [PartitionFieldSummary.from_args(contains_null=True, contains_nan=False)]  # of the parent
    return _as_listed(lines)


def _with_a_hidden_manifest(lines: Sequence[ListedManifest]) -> Sequence[ListedManifest]:
    like = lines[-1].file  # of the parent
    path = local_path(like.manifest_path)
    copy = path.with_name(f"{uuid.uuid4()}-m0.avro")
    content = path.read_bytes()
    copy.write_bytes(content)
    hidden = new_listed_manifest(
        copy.as_uri(), len(content), [], 0, like.added_snapshot_id or 0, like.sequence_number or 0, None
    )
    return [*lines, hidden]


@pytest.mark.parametrize("change", [_as_listed, _with_later_deletes, _with_other_partitions, _with_a_hidden_manifest])
def test_an_append_lists_its_parents_manifests_as_the_parent_does(
    tmp_path: Path, change: Callable[[Sequence[ListedManifest]], Sequence[ListedManifest]]
) -> None:
    with iceberg_tables(tmp_path) as tables:
        table = tables.create()
        add(table, [1, 2, 3])
        delete_by_equality(table, pa.table({"id": [1]}), [1])
        table.refresh()
        snapshot_id = add(table, [4])
        list_otherwise(table, change)
        added = IcebergTableReader().added_files(pointer_to(table), [snapshot_id])
        assert (len(added.files), added.complete) == (1, change is _as_listed)


@pytest.mark.parametrize("loses", [False, True])
def test_an_append_to_an_expired_snapshot_is_compared_with_the_earlier_state(tmp_path: Path, *, loses: bool) -> None:
    with iceberg_tables(tmp_path) as tables:
        table = tables.create()
        add(table, [1, 2])
        base = pointer_to(table)
        branch = tables.at(base)
        add(branch, [3])
        after = expire_parent(branch, loses=loses)
        change = IcebergTableReader().change(base, after)
        assert (change.kind, change.rows_added) == ("rewrite" if loses else "append", 1)


def test_added_files_say_when_something_else_was_done(iceberg: DictCatalog, reader: IcebergTableReader) -> None:
    table = create(iceberg, trips([]))
    first = append(table, trips([1, 2]))
    append(table, trips([3]))
    table.delete("id == 1")
    rewritten = pointer_to(table)
    assert not reader.added_files(rewritten, [rewritten.snapshot_id]).complete
    assert not reader.added_files(rewritten, [first, rewritten.snapshot_id]).complete
    assert reader.added_files(rewritten, [first]).complete
    table.delete("id == 3")
    dropped = pointer_to(table)
    assert not reader.added_files(dropped, [dropped.snapshot_id]).complete
    assert not reader.added_files(dropped, [first, 42]).complete


def test_added_files_say_when_the_summary_counts_other_rows(iceberg: DictCatalog, tmp_path: Path) -> None:
    table = create(iceberg, trips([]))
    append(table, trips([1, 2]))
    pointer = pointer_to(table)
    text = Path(pointer.metadata_location.removeprefix("file://")).read_text()
    assert text.count('"added-records":"2"') == 1
    for changed in (
        text.replace('"added-records":"2"', '"added-records":"3"'),
        text.replace('"added-records":"2",', ""),
    ):
        path = tmp_path / f"{uuid.uuid4()}.metadata.json"
        path.write_text(changed)
        added = IcebergTableReader().added_files(
            pointer.model_copy(update={"metadata_location": f"file:{path}"}), [pointer.snapshot_id]
        )
        assert not added.complete
        assert added.rows == 2


@pytest.mark.parametrize(
    ("content", "expected", "said"),
    [
        (None, NotFoundError, "doesn't exist"),
        (b"", InputError, "damaged"),
        (b"{", InputError, "damaged"),
        (b"{}", InputError, "damaged"),
        (b'{"format-version": 9}', InputError, "damaged"),
        (b"\xff\xfe\x00", InputError, "damaged"),
    ],
    ids=["missing", "empty", "cut", "no-fields", "future", "binary"],
)
def test_metadata_files_that_cannot_be_read(
    tmp_path: Path, reader: IcebergTableReader, content: bytes | None, expected: type[Exception], said: str
) -> None:
    path = tmp_path / "v1.metadata.json"
    if content is not None:
        path.write_bytes(content)
    pointer = TablePointer(
        table=NAME,
        content_id=None,
        metadata_location=path.as_uri(),
        snapshot_id=1,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )
    with pytest.raises(expected, match=said) as caught:
        reader.metadata(pointer)
    assert str(path) in str(caught.value)
    assert "nyc.trips" in str(caught.value)


@pytest.mark.parametrize("damage", [None, b"", b"Obj\x01garbage"], ids=["missing", "empty", "garbage"])
def test_manifests_that_cannot_be_read(iceberg: DictCatalog, damage: bytes | None) -> None:
    table = create(iceberg, trips([]))
    append(table, trips([1]))
    pointer = pointer_to(table)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifest = snapshot.manifests(table.io)[0].manifest_path
    for location in (manifest, snapshot.manifest_list):
        path = Path(location.removeprefix("file://"))
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        with pytest.raises(NotFoundError if damage is None else InputError, match=path.name):
            list(IcebergTableReader().files(pointer))
        with pytest.raises(NotFoundError if damage is None else InputError, match=path.name):
            IcebergTableReader().added_files(pointer, [pointer.snapshot_id])


def test_reading_a_table_loads_neither_arrow_nor_pyicebergs_tables(iceberg: DictCatalog) -> None:
    table = create(iceberg, trips([]))
    append(table, trips([1]))
    program = (
        "import sys\n"
        "from lakegate.iceberg.reader import IcebergTableReader\n"
        "from lakegate.model.refs import TablePointer\n"
        "pointer = TablePointer.model_validate_json(sys.argv[1])\n"
        "print([file.rows for file in IcebergTableReader().files(pointer)])\n"
        "print(sorted({'pandas', 'pyarrow', 'pyiceberg.table', 'pyspark'} & set(sys.modules)))"
    )
    given = pointer_to(table).model_dump_json()
    result = subprocess.run([sys.executable, "-c", program, given], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[1]", "[]"]
